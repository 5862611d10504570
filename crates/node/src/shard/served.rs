//! Requests that threads without the lease have left, see [`Channels`](toehold_shm::Channels).

use super::Shard;

/// What a thread does with the lease before it lets go of it.
pub(crate) fn serve(shard: &mut Shard) {
    shard.serve();
}

impl Shard {
    /// Serves what was left, as a call of the program would. Whether there was anything.
    #[inline]
    pub(crate) fn serve(&mut self) -> bool {
        let any = self.channels.has_requests();
        if any {
            self.serve_all();
        }
        any
    }

    fn serve_all(&mut self) {
        let Self {
            channels,
            stack,
            has_woken,
            ..
        } = self;
        channels.take_requests(|channel| {
            stack.serve_channel(channel);
            if channels.is_attended() {
                // More may be shown than before, which is no event.
                *has_woken |= channels.wake(channel);
            }
        });
        self.tick();
        self.respond();
        if self.waiting.seats.sleeper().is_some() && self.waiting.seats.driver().is_none() {
            self.check_sleeper();
        }
    }
}
