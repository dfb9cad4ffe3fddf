//! `ropewalk`: every segment where it arrives first, the slow path's data taken from where it will be needed,
//! and idle windows repeat what would arrive late.
//!
//! Source: docs/ropewalk-scheduler.md.
//!
//! Rule. A_i is when a segment that is given to subflow i would arrive, from the least round-trip time, the
//! bytes in flight and the link's rate, which the spacing of ACKs shows.
//! 1. The subflow of least A has room: it gets the next segment.
//! 2. It is full: for the subflow s of least A among those with room, B is what the others can deliver until
//!    A_s, with windows that grow. If B reaches the end of what is unsent, or of the connection-level window,
//!    wait. Else s gets the segment that lies B further on.
//! 3. Nothing can be sent anew: a subflow with room repeats what others carry and what it would deliver
//!    earlier, the last first. Of a head that is late the first copy goes out at once, and all that a silent
//!    subflow carries.
//! 4. A subflow that has been silent for longer than an ACK takes gets nothing new.
//!
//! Rulings: what is repeated by rule 3 for being slow stays below a share of what the application wrote. A
//! subflow without a sample gets one segment, so that it has one; idle windows repeat that. A lone subflow
//! gets up to a sixteenth of its window at once. A link of unknown rate is taken to send ten segments in a
//! round trip where new data is placed, and one where what it carries is to be repeated. The peer's receive
//! window, if it has grown lately, and the send buffer, if the application waits for its space, are taken to
//! be twice as large: autotuning goes on. In loss recovery all is repeated that should have been
//! acknowledged: what has arrived behind a hole waits for the subflow's own repetition. A head is late only
//! where its subflow has a hole or is silent, since a queue delays it as well.
//!
//! Parameters: `repeat` (most repetitions of slow data, a share of the written bytes: default 0.33; 0 to 4).
//! Switches for ablations, one for each part of the rule: `steal` (true), `doubt` (true), `late` (true),
//! `holes` (true), `rate` (true), `silent` (true), `ahead` (true), `wait` (true), `grow` (true), `recover`
//! (true). `opportunistic` and `penalise` (default `off`).

mod path;
#[cfg(test)]
mod tests;

use path::{Path, ack_slack};

use super::mechanisms::{OFF, opportunistic, penalise, with_mechanisms};
use super::text::{Kib, Ms, Subflow, no_room, nothing_to_send};
use super::{Chunk, Decision, Event, Purpose, Rationale, Scheduler, View};
use crate::metrics::{CaState, SubflowMetrics};
use crate::registry::{Entry, Parameter};
use crate::{Span, Time};

pub(super) const ENTRY: Entry<dyn Scheduler> = Entry {
    name: "ropewalk",
    summary: "every segment where it arrives first; idle windows repeat what would arrive late",
    source: "docs/ropewalk-scheduler.md",
    parameters: &[
        Parameter::number(
            "repeat",
            0.33,
            (0.0, 4.0),
            "most repetitions of slow data, a share of what was written",
        ),
        Parameter::ablation("steal", "idle windows repeat what slower subflows carry, the last first"),
        Parameter::ablation("doubt", "repeat what a link of unknown rate carries, as if it were slow"),
        Parameter::ablation("late", "repeat a head that is late, and what a silent subflow carries"),
        Parameter::ablation("holes", "a head is late only where its subflow has a hole, or is silent"),
        Parameter::ablation("rate", "the link's rate from the spacing of ACKs"),
        Parameter::ablation("silent", "nothing new for a silent subflow"),
        Parameter::ablation("ahead", "the slow subflow's data from where it will be needed"),
        Parameter::ablation("wait", "wait if the others deliver all that is unsent earlier"),
        Parameter::ablation("grow", "count on buffers that have grown to grow on"),
        Parameter::ablation("recover", "idle windows repeat what a subflow in loss recovery carries"),
        opportunistic(OFF),
        penalise(OFF),
    ],
    ..Entry::of(|values| {
        let ropewalk = Ropewalk {
            paths: Vec::new(),
            repeat: values.number("repeat"),
            repeated: 0,
            window: 0,
            grew_at: Time::ZERO,
            steal: values.switch("steal"),
            doubt: values.switch("doubt"),
            late: values.switch("late"),
            holes: values.switch("holes"),
            rate: values.switch("rate"),
            silent: values.switch("silent"),
            ahead: values.switch("ahead"),
            wait: values.switch("wait"),
            grow: values.switch("grow"),
            recover: values.switch("recover"),
            tried: (Time::ZERO, 0, 0),
        };
        with_mechanisms(values, ropewalk)
    })
};

/// The part of a lone subflow's window that one decision fills at most: another subflow may join later, and
/// then what is repeated or sent again is what one decision placed.
const LONE_SHARE: u32 = 16;

/// Segments that are looked at in one decision for being late.
const LOOK: usize = 16;

#[derive(Debug)]
struct Ropewalk {
    paths: Vec<Path>,
    repeat: f64,
    /// Bytes repeated for being slow.
    repeated: u64,
    /// The largest connection-level window so far, and when it grew.
    window: u64,
    grew_at: Time,
    steal: bool,
    doubt: bool,
    late: bool,
    holes: bool,
    rate: bool,
    silent: bool,
    ahead: bool,
    wait: bool,
    grow: bool,
    recover: bool,
    /// The last decision to send ahead: when, the bytes that were unsent, and the offset. Asked the same
    /// again, nothing from there on could be sent: it is assigned, or beyond the window.
    tried: (Time, u64, u64),
}

/// A subflow and the nanoseconds until a segment given to it would arrive.
type Arrival<'a> = (&'a SubflowMetrics, f64);

/// The subflow of least arrival, that among those with room, whether any is silent, and whether all have data
/// in flight without a hole and without silence: then no head is late.
struct Survey<'a> {
    best: Option<&'a SubflowMetrics>,
    open: Option<Arrival<'a>>,
    silent: bool,
    calm: bool,
}

impl Ropewalk {
    #[inline]
    fn path(&self, subflow: &SubflowMetrics) -> &Path {
        &self.paths[subflow.id.index()]
    }

    /// One look at all subflows: which are silent, and when a segment given to each would arrive.
    fn survey<'a>(&mut self, view: &View<'a>) -> Survey<'a> {
        let backups = view.backups_count();
        let (mut best, mut open, mut silent, mut calm) = (None, None, false, true);
        let (mut least, mut least_open) = (f64::INFINITY, f64::INFINITY);
        for (path, subflow) in self.paths.iter_mut().zip(view.subflows) {
            let (flying, silent_at) = (subflow.packets_out() > 0, path.silent_at(subflow));
            path.silent = flying && view.now > silent_at;
            path.arrival = f64::INFINITY;
            silent |= path.silent;
            let holes = subflow.sacked_out() > 0 || subflow.ca_state() != CaState::Open;
            calm &= flying && !holes && view.now < silent_at;
            if !subflow.usable() || (subflow.backup && !backups) {
                continue;
            }
            let available = subflow.available();
            if subflow.rtt.smoothed > Span::ZERO || available {
                path.arrival = path.arrival(subflow, view.now);
            }
            if subflow.ca_state() == CaState::Loss
                || (self.silent && path.silent)
                || (subflow.rtt.smoothed == Span::ZERO && (!available || is_probed(view, subflow)))
            {
                continue;
            }
            if available && path.arrival < least_open {
                (open, least_open) = (Some(subflow), path.arrival);
            }
            if path.arrival < least {
                (best, least) = (Some(subflow), path.arrival);
            }
        }
        Survey { best, open: open.map(|subflow| (subflow, least_open)), silent, calm }
    }

    /// Rules 1 and 2.
    fn assign(
        &mut self,
        view: &View<'_>,
        Survey { best, open, .. }: Survey<'_>,
        rationale: &mut Rationale,
    ) -> Decision {
        let Some((subflow, arrival)) = open else {
            let Some(silent) = view.fastest_available() else {
                let _ = no_room(view, rationale);
                return self.wait(view);
            };
            // Only silent ones have room, or those that were given their one probe.
            if let Some(first) = best {
                rationale.say(|| {
                    let (first, silent) = (Subflow(first.id), Subflow(silent.id));
                    format!("wait for {first}: {silent} has room, but isn't known to deliver")
                });
                return self.wait(view);
            }
            rationale.say(|| {
                let since = view.now.saturating_sub(silent.last_progress);
                format!("{} is silent for {}, but there is no other", Subflow(silent.id), Ms(since))
            });
            return self.send(view, silent, 0);
        };
        let first = best.unwrap_or(subflow);
        if first.id == subflow.id {
            rationale.say(|| {
                format!("{} delivers first, in {}", Subflow(subflow.id), Ms(Span::from_nanos(arrival as u64)))
            });
            return self.send(view, subflow, 0);
        }
        // What the others deliver until then.
        let mut before = 0.0;
        for (path, other) in self.paths.iter().zip(view.subflows) {
            let earlier = path.arrival <= arrival && other.id != subflow.id;
            if earlier && other.rtt.smoothed > Span::ZERO && !(self.silent && path.silent) {
                before += path.delivers(other, arrival - path.arrival);
            }
        }
        let end = self.end(view, subflow) as f64;
        if self.wait && before >= end {
            rationale.say(|| {
                format!(
                    "wait for {}: until {} delivers, in {}, the others deliver {} of {}",
                    Subflow(first.id),
                    Subflow(subflow.id),
                    Ms(Span::from_nanos(arrival as u64)),
                    Kib(before as u64),
                    Kib(end as u64)
                )
            });
            return self.wait(view);
        }
        let mss = u64::from(subflow.mss);
        let ahead = if self.ahead {
            (before as u64 / mss * mss).min(view.unsent.min(view.room()).saturating_sub(mss))
        } else {
            0
        };
        let tried = (view.now, view.unsent, view.next_offset + ahead);
        if ahead > 0 && std::mem::replace(&mut self.tried, tried) == tried {
            rationale
                .say(|| format!("wait for {}: nothing from {} on can be sent", Subflow(first.id), tried.2));
            return self.wait(view);
        }
        rationale.say(|| {
            format!(
                "{} is full; {} delivers in {}, when the others have delivered {}",
                Subflow(first.id),
                Subflow(subflow.id),
                Ms(Span::from_nanos(arrival as u64)),
                Kib(before as u64)
            )
        });
        self.send(view, subflow, ahead)
    }

    /// Bytes from the first unassigned one on that can be sent in the foreseeable future. A window that has
    /// grown lately and a send buffer that is full grow on: to double their size.
    fn end(&self, view: &View<'_>, slow: &SubflowMetrics) -> u64 {
        let grows = self.grow && view.now.saturating_sub(self.grew_at) < 4 * slow.rtt.smoothed;
        let room = view.room().saturating_add(if grows { view.send_window } else { 0 });
        let more = if view.writer_waits { view.written.saturating_sub(view.una) } else { 0 };
        room.min(view.unsent + more)
    }

    #[inline]
    fn send(&mut self, view: &View<'_>, subflow: &SubflowMetrics, ahead: u64) -> Decision {
        self.paths[subflow.id.index()].on_new(subflow, view.now);
        if ahead == 0 {
            // Where there is no choice, one decision serves for many segments.
            let segments = if view.subflows.len() == 1 { (subflow.cwnd() / LONE_SHARE).max(1) } else { 1 };
            return Decision::Send { subflow: subflow.id, bytes: segments.saturating_mul(subflow.mss) };
        }
        Decision::SendAt { subflow: subflow.id, offset: view.next_offset + ahead, bytes: subflow.mss }
    }

    /// The subflow with room on which a repetition would arrive first, and in how many nanoseconds.
    fn helper<'a>(&self, view: &View<'a>, not: Option<usize>) -> Option<Arrival<'a>> {
        let mut best: Option<Arrival<'_>> = None;
        for subflow in view.available() {
            let path = self.path(subflow);
            if Some(subflow.id.index()) == not || subflow.rtt.smoothed == Span::ZERO || path.silent {
                continue;
            }
            if best.is_none_or(|(_, least)| path.arrival < least) {
                best = Some((subflow, path.arrival));
            }
        }
        best
    }

    /// When a chunk ought to have been acknowledged on the subflow that carries it.
    fn due(&self, carrier: &SubflowMetrics, chunk: &Chunk) -> Time {
        chunk.sent_at + carrier.rtt.smoothed.max(carrier.rtt.latest) + ack_slack(carrier)
    }

    /// The head, the subflow that carries it, when it will be late, and whether it is known to be lost.
    fn head<'a>(&self, view: &View<'a>) -> Option<(Chunk, &'a SubflowMetrics, Time, bool)> {
        let head = view.in_flight.chunk_after(view.una)?;
        let carrier = view.subflows.get(head.last.index())?;
        let mut due = self.due(carrier, &head);
        let holes = !self.holes || carrier.sacked_out() > 0 || carrier.ca_state() != CaState::Open;
        if !holes {
            // It waits in a queue, until the subflow is silent.
            due = due.max(self.path(carrier).silent_at(carrier));
        }
        let lost = self.recover
            && matches!(carrier.ca_state(), CaState::Recovery | CaState::Loss)
            && head.sent_at + carrier.rtt.smoothed <= view.now;
        Some((head, carrier, due, lost))
    }

    /// Waits, until the head is late.
    fn wait(&self, view: &View<'_>) -> Decision {
        let looks = self.late && view.subflows.len() > 1;
        let due = self.head(view).filter(|_| looks).map(|(_, _, due, _)| due);
        Decision::Wait { until: due.filter(|due| *due > view.now) }
    }

    /// Rule 3, first part: the head is late, or what a silent subflow carries.
    fn overdue(&mut self, view: &View<'_>) -> Option<Decision> {
        let (head, carrier, due, lost) = self.head(view)?;
        if due > view.now && !lost {
            return None;
        }
        let (subflow, own) = self.helper(view, Some(carrier.id.index()))?;
        if due > view.now && own > self.path(carrier).arrival(carrier, view.now) {
            // It repeats its loss earlier itself.
            return None;
        }
        let is_new = !head.carried_by(subflow.id);
        is_new.then(|| self.repeat(view, subflow, &head, Purpose::Opportunistic))
    }

    /// Rule 5: what a silent subflow carries, the oldest first.
    fn abandoned(&mut self, view: &View<'_>) -> Option<Decision> {
        let mut helper = None;
        for carrier in view.subflows {
            if !self.path(carrier).silent {
                continue;
            }
            // It isn't silent itself, so that one serves all.
            let (subflow, _) = (*helper.get_or_insert_with(|| self.helper(view, None)))?;
            let mut at = self.paths[carrier.id.index()].late_until.max(view.una);
            for _ in 0..LOOK {
                let Some(chunk) = view.in_flight.chunk_after(at) else { break };
                if chunk.last == carrier.id && !chunk.carried_by(subflow.id) {
                    if self.due(carrier, &chunk) > view.now {
                        break;
                    }
                    return Some(self.repeat(view, subflow, &chunk, Purpose::Opportunistic));
                }
                at = chunk.offset + u64::from(chunk.len);
                self.paths[carrier.id.index()].late_until = at;
            }
        }
        None
    }

    /// Rule 3, second part: what others carry and what arrives earlier from here, the last first.
    fn relieve(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Option<Decision> {
        let most = view.written as f64 * self.repeat;
        if self.repeated as f64 > most {
            return None;
        }
        let (subflow, own) = self.helper(view, None)?;
        let mut worst: Option<(f64, Chunk)> = None;
        for carrier in view.subflows {
            if carrier.id == subflow.id || carrier.packets_out() == 0 || !carrier.usable() {
                continue;
            }
            let path = &mut self.paths[carrier.id.index()];
            let flying = u64::from(carrier.in_flight()) * u64::from(carrier.mss) + carrier.queued_bytes;
            if path.taken + u64::from(carrier.mss) / 2 > flying {
                continue;
            }
            // The last that it carries and that isn't repeated yet.
            let mut before = path.taken_from;
            let mut last = None;
            for _ in 0..4 * LOOK {
                let Some(chunk) =
                    view.in_flight.chunk_before(before).filter(|chunk| chunk.offset >= view.una)
                else {
                    break;
                };
                if chunk.last == carrier.id && !chunk.carried_by(subflow.id) {
                    last = Some(chunk);
                    break;
                }
                before = chunk.offset;
                path.taken_from = before;
            }
            let Some(chunk) = last else { continue };
            let arrival = path.last_arrives(carrier, view.now, chunk.sent_at, self.doubt);
            if arrival > own + own / 16.0 && worst.is_none_or(|(latest, _)| arrival > latest) {
                worst = Some((arrival, chunk));
            }
        }
        let Some((arrival, chunk)) = worst else { return self.heal(view, subflow, rationale) };
        let path = &mut self.paths[chunk.last.index()];
        path.taken_from = chunk.offset;
        path.taken += u64::from(chunk.len);
        self.repeated += u64::from(chunk.len);
        rationale.say(|| {
            let (offset, other) = (chunk.offset, Subflow(chunk.last));
            let start = format!("nothing new can be sent: {} repeats data at {offset}", Subflow(subflow.id));
            match arrival.is_finite() {
                true => {
                    let takes = Ms(Span::from_nanos(arrival.max(0.0) as u64));
                    format!(
                        "{start} and delivers it in {}; {other} takes {takes}",
                        Ms(Span::from_nanos(own as u64))
                    )
                }
                false => format!("{start}; how long {other} takes isn't known"),
            }
        });
        Some(self.repeat(view, subflow, &chunk, Purpose::Redundant))
    }
}

impl Ropewalk {
    /// Rule 3, in loss recovery: what has arrived behind a hole is of no use until the subflow has filled it,
    /// so all is repeated that should have been acknowledged.
    fn heal(
        &mut self,
        view: &View<'_>,
        subflow: &SubflowMetrics,
        rationale: &mut Rationale,
    ) -> Option<Decision> {
        let holes = |carrier: &&SubflowMetrics| {
            carrier.id != subflow.id && carrier.packets_out() > 0 && carrier.ca_state() != CaState::Open
        };
        if !self.recover {
            return None;
        }
        for carrier in view.subflows.iter().filter(holes) {
            let mut at = self.paths[carrier.id.index()].late_until.max(view.una);
            for _ in 0..4 * LOOK {
                let Some(chunk) = view.in_flight.chunk_after(at) else { break };
                if chunk.last == carrier.id && !chunk.carried_by(subflow.id) {
                    if chunk.sent_at + carrier.rtt.smoothed > view.now {
                        break;
                    }
                    self.repeated += u64::from(chunk.len);
                    rationale.say(|| {
                        format!(
                            "nothing new can be sent: {} repeats data at {}, as {} has lost some",
                            Subflow(subflow.id),
                            chunk.offset,
                            Subflow(carrier.id)
                        )
                    });
                    return Some(self.repeat(view, subflow, &chunk, Purpose::Redundant));
                }
                at = chunk.offset + u64::from(chunk.len);
                self.paths[carrier.id.index()].late_until = at;
            }
        }
        None
    }

    fn repeat(
        &mut self,
        view: &View<'_>,
        subflow: &SubflowMetrics,
        chunk: &Chunk,
        purpose: Purpose,
    ) -> Decision {
        self.paths[subflow.id.index()].on_sent(subflow, view.now);
        Decision::Duplicate { subflow: subflow.id, offset: chunk.offset, purpose }
    }
}

/// Whether a subflow without a round-trip sample already has a segment that will give it one, while another
/// subflow has a sample. It has none from its handshake because its SYN was repeated: the SYN was lost, or
/// the round trip is longer than the first timeout.
fn is_probed(view: &View<'_>, subflow: &SubflowMetrics) -> bool {
    (subflow.packets_out() > 0 || subflow.queued_bytes > 0)
        && view.usable().any(|other| other.rtt.smoothed > Span::ZERO)
}

impl Scheduler for Ropewalk {
    fn name(&self) -> &'static str {
        ENTRY.name
    }

    fn select(&mut self, view: &View<'_>, rationale: &mut Rationale) -> Decision {
        if self.paths.len() < view.subflows.len() {
            self.paths.resize(view.subflows.len(), Path::new());
        }
        if view.send_window > self.window {
            self.window = view.send_window;
            self.grew_at = view.now;
        }
        let survey = self.survey(view);
        if self.late && view.subflows.len() > 1 && !(survey.calm && self.holes) {
            if let Some(decision) = self.overdue(view) {
                rationale.say(|| format!("data at {} and on is late: it is repeated", view.una));
                return decision;
            }
            if survey.silent
                && let Some(decision) = self.abandoned(view)
            {
                let offset = if let Decision::Duplicate { offset, .. } = decision { offset } else { 0 };
                rationale.say(|| format!("data at {offset} is on a silent subflow: it is repeated"));
                return decision;
            }
        }
        if view.sendable() {
            return self.assign(view, survey, rationale);
        }
        if self.steal
            && view.subflows.len() > 1
            && let Some(decision) = self.relieve(view, rationale)
        {
            return decision;
        }
        let _ = nothing_to_send(view, rationale);
        self.wait(view)
    }

    fn on_event(&mut self, view: &View<'_>, event: Event) {
        if self.paths.len() < view.subflows.len() {
            self.paths.resize(view.subflows.len(), Path::new());
        }
        if let Event::SubflowAdded(subflow) = event {
            self.paths[subflow.index()] = Path::new();
        }
    }

    fn wants_link_rate(&self) -> bool {
        self.rate
    }

    fn repeats(&self) -> bool {
        true
    }

    fn metrics(&self) -> Vec<(&'static str, f64)> {
        vec![("repeated", self.repeated as f64)]
    }
}
