//! Requests that threads without the lease have left, see [`Channels`](toehold_shm::Channels).

use super::Shard;
use super::due::Wakeup;

impl Shard {
    /// Serves the requests that were left, as a call of the program would. Returns whether there
    /// was any.
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
            waiting,
            wakes,
            ..
        } = self;
        let shard = waiting.seats.index();
        channels.take_requests(|channel| {
            stack.serve_channel(channel);
            // More may be shown than before, which is no event.
            if channels.is_attended() && channels.mark(channel) {
                *has_woken = true;
                waiting.due.owe(Wakeup::Lanes { shard, channel }, wakes.all());
            }
        });
        self.tick();
        self.respond();
        if self.waiting.seats.sleeper().is_some() && self.waiting.seats.driver().is_none() {
            self.check_sleeper();
        }
    }
}
