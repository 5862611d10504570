//! Probes: segments that find out the peer's window, its presence, and the arrival of the last
//! data.

use toehold_link::Transmitter;
use toehold_shm::NONE;
use toehold_wire::tcp::Flags;

use super::emit::Emission;
use super::output::Stopped;
use super::pcb::flag;
use super::timers::waits_to_send;
use super::{Context, Tcp};

impl Tcp {
    pub(super) fn transmit_probes(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        out: &mut dyn Transmitter,
    ) -> Result<(), Stopped> {
        if self.pcbs[index].has(flag::TAIL_PROBE) {
            self.transmit_tail_probe(cx, index, out)?;
        }
        if self.pcbs[index].has(flag::PROBE) {
            // An acknowledgement below the window makes the peer answer with its state.
            //= RFC 9293 §3.8.4 (SEG.SEQ = SND.NXT-1, no data)
            let pcb = &self.pcbs[index];
            let seq = if pcb.snd_una == pcb.snd_nxt {
                pcb.snd_nxt - 1
            } else {
                pcb.snd_una - 1
            };
            self.emit(cx, index, out, &Emission::bare(Flags::ACK, seq))?;
            let pcb = &mut self.pcbs[index];
            pcb.clear(flag::PROBE);
            if !waits_to_send(pcb) {
                cx.counters.tcp_keepalive_probes += 1;
            } else if pcb.snd_wnd == 0 {
                cx.counters.tcp_window_probes += 1;
            }
        }
        Ok(())
    }

    //= RFC 8985 §7.3 (send new data if there are any, else the last segment again)
    fn transmit_tail_probe(
        &mut self,
        cx: &mut Context<'_>,
        index: u32,
        out: &mut dyn Transmitter,
    ) -> Result<(), Stopped> {
        let pcb = &self.pcbs[index];
        let window = (pcb.snd_una + pcb.snd_wnd).after(pcb.snd_nxt);
        let fresh = self
            .record_ends
            .within_record(pcb, pcb.unsent().min(pcb.mss.into()));
        let at = pcb.sent_tail;
        if pcb.outstanding() == 0 || at == NONE || self.scoreboard[at].is_sacked() {
            self.pcbs[index].clear(flag::TAIL_PROBE);
            return Ok(());
        }
        let retransmits = fresh == 0 || fresh > window;
        if retransmits {
            let record = self.scoreboard[at];
            let mss = u32::from(pcb.mss);
            let last =
                if record.len() > mss && self.scoreboard.split(&mut self.pcbs[index], at, record.end - mss) {
                    self.scoreboard[at].next
                } else {
                    at
                };
            self.retransmit(cx, index, last, mss, out)?;
        } else {
            let whole = fresh == pcb.unsent();
            self.transmit_chunk(cx, index, fresh, whole, out)?;
        }
        // If the link is full, the probe stays due.
        cx.counters.tcp_tail_loss_probes += 1;
        let (pcb, flight) = self.flying(index);
        pcb.clear(flag::TAIL_PROBE);
        pcb.set(flag::TAIL_PROBE_OUT);
        if retransmits {
            pcb.set(flag::TAIL_PROBE_RETRANSMITS);
        } else {
            pcb.clear(flag::TAIL_PROBE_RETRANSMITS);
        }
        flight.tail_probe_end = pcb.snd_nxt;
        flight.tail_probe_flight = pcb.flight_size().max(pcb.outstanding());
        Ok(())
    }
}
