//! Watching links: a dead one is left, a recovered one is used again, a captive portal isn't the Internet.
//!
//! A probe is a TCP handshake over the link with a destination that answers: the one of `--probe`, else in
//! turn the last that answered over this link and the gateways. It takes the data's way, address translation
//! included. Whatever is received over a link says that it lives, so that a link with traffic needs no probe.
//! A budget limits the others.
//!
//! | | when |
//! |---|---|
//! | a probe on a link that has fallen silent | after 200 ms, then every 200 ms until something is received |
//! | a probe on a link that was silent before | every 5 s |
//! | the link is dead | 3 probes have no answer, the first for 500 ms or three round-trip times, at most 3 s; for 1 s if the round-trip time isn't known |
//! | a probe on a link over which nothing was ever received | at once, then as on one that has fallen silent |
//! | a probe on a dead link | every second; its first answer brings the link back |

use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ropewalk_engine::Span;
use ropewalk_tokio::{ConnectOptions, MptcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};

use super::captive;
use super::link::{DEAD, Link, SILENT};
use super::reach::Reach;
use super::serve::Server;

/// How often a link is looked at.
const TICK: Duration = Duration::from_millis(50);
/// How long after its last data a link counts as one that has fallen silent.
const ACTIVE: Duration = Duration::from_millis(1500);
/// Time between probes of an idle link.
const IDLE: Duration = Duration::from_secs(5);
/// Probes without an answer before a link is dead.
const UNANSWERED: usize = 3;
/// How long the first of them has none, at least and at most.
const LIMIT: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(3));
/// The same where the round-trip time isn't known: the first retransmission timeout (RFC 6298, section 2.1).
const LIMIT_UNKNOWN: Duration = Duration::from_secs(1);
/// How long a probe is waited for.
const PATIENCE: Duration = Duration::from_secs(3);
/// What a probe costs: four packets without data.
const PROBE_BYTES: f64 = 220.0;
/// Weight of a new sample in smoothed values (RFC 6298's).
const GAIN: f64 = 0.125;
/// Time between checks for a captive portal, while there is one and otherwise.
const RECHECK: (Duration, Duration) = (Duration::from_secs(3), Duration::from_secs(60));

/// What limits probes: bytes, refilled through the hour.
#[derive(Debug)]
struct Budget {
    per_second: f64,
    most: f64,
    left: f64,
    filled: Instant,
}

impl Budget {
    fn new(per_hour: u64, now: Instant) -> Budget {
        let most = per_hour as f64;
        Budget { per_second: most / 3600.0, most, left: most, filled: now }
    }

    /// Takes in what a configuration that was read again says.
    fn change(&mut self, per_hour: u64) {
        let most = per_hour as f64;
        if self.most != most {
            (self.most, self.per_second) = (most, most / 3600.0);
        }
    }

    fn take(&mut self, now: Instant) -> bool {
        self.left =
            (self.left + now.duration_since(self.filled).as_secs_f64() * self.per_second).min(self.most);
        self.filled = now;
        let enough = self.left >= PROBE_BYTES;
        if enough {
            self.left -= PROBE_BYTES;
        }
        enough
    }
}

/// How a probe ended.
struct Answer {
    sent: Instant,
    /// How long data had stopped by then, if there was any shortly before.
    stopped: Option<Duration>,
    /// The handshake's time; `None`: no answer in time.
    rtt: Option<Duration>,
    /// Whether packets of it were lost while others came over the link: `None` where none came either, which
    /// says nothing of its losses.
    lost: Option<bool>,
}

/// What is known from one look to the next.
#[derive(Debug)]
struct Watch {
    budget: Budget,
    /// Probes since something was received, and when they were sent.
    unanswered: Vec<Instant>,
    last_probe: Option<Instant>,
    last_check: Option<Instant>,
    /// Data had stopped when it was probed last.
    data_stopped: bool,
    /// A probe had no answer for longer than a round trip, and nothing was received since.
    is_suspect: bool,
}

/// What is to be done about a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    Nothing,
    Probe,
    Dead,
}

/// What a link shows at a moment.
#[derive(Clone, Copy, Debug)]
struct Look {
    alive: bool,
    /// Since anything was received.
    silence: Duration,
    /// Since data was received.
    since_data: Duration,
    /// Since data was sent after which nothing was received.
    unanswered_data: Option<Duration>,
    rtt: Option<Duration>,
    /// A connection may want it.
    is_wanted: bool,
}

impl Watch {
    fn new(now: Instant, budget: u64) -> Watch {
        Watch {
            budget: Budget::new(budget, now),
            unanswered: Vec::new(),
            last_probe: None,
            last_check: None,
            data_stopped: false,
            is_suspect: false,
        }
    }

    fn look(&mut self, now: Instant, look: &Look) -> Verdict {
        self.unanswered.retain(|sent| now.duration_since(*sent) < look.silence);
        let since_probe = self.last_probe.map(|last| now.duration_since(last));
        let due = |gap: Duration| since_probe.is_none_or(|since| since >= gap);
        if !look.alive {
            return self.probe_if(due(DEAD), now);
        }
        if let Some(first) = self.unanswered.first() {
            self.is_suspect |= now.duration_since(*first) >= SILENT * 2 + look.rtt.unwrap_or(LIMIT_UNKNOWN);
        }
        if let Some(first) = self.unanswered.first()
            && self.unanswered.len() >= UNANSWERED
        {
            let limit = look.rtt.map_or(LIMIT_UNKNOWN, |rtt| (rtt * 3).clamp(LIMIT.0, LIMIT.1));
            if now.duration_since(*first) >= limit {
                self.unanswered.clear();
                return Verdict::Dead;
            }
        }
        let fell_silent = look.silence >= SILENT && look.since_data < ACTIVE;
        self.data_stopped |= fell_silent;
        let sent_in_vain = look.unanswered_data.is_some_and(|since| since >= SILENT);
        // A round-trip time of its own before the next probe tells more than the first.
        let gap = SILENT.max(look.rtt.unwrap_or_default().min(LIMIT.1) / 2);
        let is_suspect = fell_silent || sent_in_vain || !self.unanswered.is_empty();
        self.probe_if(if is_suspect { due(gap) } else { look.is_wanted && due(IDLE) }, now)
    }

    fn probe_if(&mut self, due: bool, now: Instant) -> Verdict {
        if !due || !self.budget.take(now) {
            return Verdict::Nothing;
        }
        self.last_probe = Some(now);
        self.unanswered.push(now);
        Verdict::Probe
    }
}

/// The round-trip time of a probe's handshake, without what its retransmissions took, and whether there were
/// any.
fn measured(stream: &MptcpStream, elapsed: Duration) -> (Duration, bool) {
    let Some(info) = stream.info() else { return (elapsed, false) };
    let Some(tcp) = info.subflows.first().map(|subflow| &subflow.tcp) else { return (elapsed, false) };
    match (tcp.totals.total_rto > 0, tcp.rtt.latest) {
        (false, _) | (true, Span::ZERO) => (elapsed, tcp.totals.total_rto > 0),
        (true, rtt) => (Duration::from(rtt).min(elapsed), true),
    }
}

/// A TCP handshake over a link.
async fn probe(server: Arc<Server>, link: Arc<Link>, target: SocketAddr) -> Answer {
    let sent = Instant::now();
    let stopped = Some(link.counters.since_data()).filter(|stopped| *stopped < ACTIVE);
    let options = ConnectOptions::new()
        .multipath(false)
        .local(SocketAddr::new(link.address(target.is_ipv6()), 0))
        .path(link.path());
    let mut opening = pin!(timeout(PATIENCE, MptcpStream::connect_with(&server.network, target, &options)));
    let soon = SILENT * 2 + link.known().rtt.unwrap_or(LIMIT_UNKNOWN);
    let mut opened = timeout(soon, &mut opening).await.ok();
    // While the link is silent nothing tells whether it loses packets, or has stopped.
    let mut works = opened.is_some();
    if opened.is_none() {
        works = link.counters.silence() < sent.elapsed();
        opened = Some(opening.await);
    }
    let elapsed = sent.elapsed();
    let (rtt, repeated) = match opened {
        Some(Ok(Ok(stream))) => {
            let (rtt, repeated) = measured(&stream, elapsed);
            stream.abort();
            (Some(rtt), repeated)
        }
        Some(Ok(Err(error))) if error.kind() == io::ErrorKind::ConnectionRefused => (Some(elapsed), false),
        _ => (None, true),
    };
    Answer { sent, stopped, rtt, lost: works.then_some(repeated) }
}

fn on_answer(server: &Server, link: &Link, answer: &Answer) {
    let was = link.state();
    let since = (answer.sent, answer.stopped);
    server.recorder.note_probe(link, since, answer.rtt, answer.lost == Some(true));
    link.learn(|known| {
        if let Some(lost) = answer.lost {
            known.loss += GAIN * (if lost { 1.0 } else { 0.0 } - known.loss);
        }
        if let Some(rtt) = answer.rtt {
            let smoothed = known.rtt.map_or(rtt, |old| old.mul_f64(1.0 - GAIN) + rtt.mul_f64(GAIN));
            known.rtt = Some(smoothed);
            (known.alive, known.seen) = (true, true);
        }
    });
    if link.state() != was {
        server.on_link_change(link);
    }
}

/// Watches one link until it is cancelled.
pub(super) async fn watch(server: Arc<Server>, link: Arc<Link>) {
    let mut watch = Watch::new(Instant::now(), server.settings().probe_budget);
    let (answers, mut answered) = mpsc::unbounded_channel();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut died = Instant::now();
    // The link's routes, and since when it has them.
    let (mut reach, mut routed) = (Reach::default(), died);
    loop {
        tokio::select! {
            _ = ticks.tick() => {}
            Some(answer) = answered.recv() => {
                let answer: Answer = answer;
                // What was sent before the link died says nothing of its recovery.
                if link.known().alive || answer.sent > died {
                    on_answer(&server, &link, &answer);
                    // The far end may have been restarted meanwhile.
                    if answer.rtt.is_some() && std::mem::take(&mut watch.is_suspect) {
                        server.ask_peers();
                    }
                    if answer.rtt.is_some() && std::mem::take(&mut watch.data_stopped) {
                        server.ask_peers_on(&link);
                    }
                }
                continue;
            }
        }
        let now = Instant::now();
        watch.budget.change(server.settings().probe_budget);
        let known = link.known();
        if known.reach != reach {
            (reach, routed) = (known.reach, now);
            // What was asked of another network says nothing of this one.
            watch.unanswered.clear();
            (watch.last_probe, watch.last_check) = (None, None);
        }
        if !known.reach.any() {
            watch.unanswered.clear();
            continue;
        }
        captive_check(&server, &link, &mut watch.last_check, now);
        // What came before the link had its routes is another network's.
        if !known.seen && link.counters.received_ago().is_some_and(|ago| ago < routed.elapsed()) {
            link.learn(|known| known.seen = true);
        }
        let (targets, is_telling) = server.probe_targets(&link);
        if targets.is_empty() {
            continue;
        }
        let counters = &link.counters;
        let look = Look {
            alive: known.alive,
            silence: counters.silence(),
            since_data: counters.since_data(),
            unanswered_data: counters.unanswered_data(),
            rtt: known.rtt,
            is_wanted: !known.seen && is_telling
                || server.settings().probe.is_some()
                || server.settings().goes_past_tunnel()
                || !server.flows.is_empty(),
        };
        match watch.look(now, &look) {
            Verdict::Nothing => {}
            Verdict::Probe => {
                // Where one destination is silent, another may answer.
                let target = targets[watch.unanswered.len().saturating_sub(1) % targets.len()];
                let (server, link, answers) = (Arc::clone(&server), Arc::clone(&link), answers.clone());
                tokio::spawn(async move {
                    // The watch has ended if nobody receives it.
                    let _ = answers.send(probe(server, link, target).await);
                });
            }
            Verdict::Dead if !is_telling => {}
            Verdict::Dead => {
                died = now;
                link.learn(|known| known.alive = false);
                server.on_link_change(&link);
            }
        }
    }
}

/// Starts a check for a captive portal, if one is due.
fn captive_check(server: &Arc<Server>, link: &Arc<Link>, last: &mut Option<Instant>, now: Instant) {
    if server.settings().captive_check.is_none() || !link.known().alive {
        return;
    }
    let known = link.known();
    let gap = if known.captive && !known.doubted { RECHECK.0 } else { RECHECK.1 };
    if last.is_some_and(|last| now.duration_since(last) < gap) {
        return;
    }
    *last = Some(now);
    let (server, link) = (Arc::clone(server), Arc::clone(link));
    tokio::spawn(async move {
        let (settings, reach) = (server.settings(), link.known().reach);
        let Some(url) = &settings.captive_check else { return };
        let result = captive::is_internet(&server, &link, url).await;
        // It says nothing of another network, and nobody asks any more whose check was taken away.
        if !link.known().reach.is_same_network(reach) || server.settings().captive_check.as_ref() != Some(url)
        {
            return;
        }
        // The first result is always told: if the link stays as it is, unused, nothing else says why.
        let is_first = !link.known().checked;
        link.learn(|known| known.checked = true);
        let captive = match result {
            Ok(internet) => !internet,
            Err(error) => {
                server.judge_captive_checks();
                if is_first && link.known().captive {
                    tracing::warn!(link = link.name, %error, "no answer to the captive check: the link \
                        isn't used");
                } else {
                    tracing::debug!(link = link.name, %error, "no answer to the captive check");
                }
                return;
            }
        };
        if link.known().captive != captive || is_first && captive {
            link.learn(|known| known.captive = captive);
            server.on_link_change(&link);
        }
        server.judge_captive_checks();
    });
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Budget, Look, Verdict, Watch};

    const MS: Duration = Duration::from_millis(1);

    fn busy(silence: u32) -> Look {
        let silence = MS * silence;
        Look {
            alive: true,
            silence,
            since_data: silence,
            unanswered_data: None,
            rtt: Some(20 * MS),
            is_wanted: true,
        }
    }

    /// When the first verdict of a kind comes on a link whose silence is the time.
    fn first(watch: &mut Watch, start: Instant, wanted: Verdict, look: impl Fn(u32) -> Look) -> Option<u32> {
        (0..200).map(|tick| tick * 50).find(|at| watch.look(start + MS * *at, &look(*at)) == wanted)
    }

    #[test]
    fn a_link_that_falls_silent_is_dead_within_a_second() {
        let start = Instant::now();
        let mut watch = Watch::new(start, 1 << 20);
        watch.last_probe = Some(start);
        assert_eq!(first(&mut watch, start, Verdict::Probe, busy), Some(200));
        let mut watch = Watch::new(start, 1 << 20);
        watch.last_probe = Some(start);
        let died = first(&mut watch, start, Verdict::Dead, busy).unwrap();
        assert!((700..=800).contains(&died), "{died} ms");
    }

    #[test]
    fn a_link_that_answers_is_never_dead() {
        let start = Instant::now();
        let mut watch = Watch::new(start, 1 << 20);
        // Each probe is answered after 50 ms; no data comes.
        let mut last = 0;
        for at in (0..60_000).step_by(50) {
            let look = Look { since_data: MS * (at + 400), ..busy(at - last) };
            match watch.look(start + MS * at, &look) {
                Verdict::Dead => panic!("dead at {at} ms"),
                Verdict::Probe => last = at + 50,
                Verdict::Nothing => {}
            }
            last = last.min(at + 50);
        }
    }

    #[test]
    fn a_slow_link_has_more_time() {
        let start = Instant::now();
        let mut watch = Watch::new(start, 1 << 20);
        let slow = |at| Look { rtt: Some(600 * MS), ..busy(at) };
        let died = first(&mut watch, start, Verdict::Dead, slow).unwrap();
        assert!((1800..2300).contains(&died), "{died} ms");
    }

    #[test]
    fn a_link_of_unknown_delay_has_a_second() {
        let start = Instant::now();
        let mut watch = Watch::new(start, 1 << 20);
        watch.last_probe = Some(start);
        let unknown = |at| Look { rtt: None, ..busy(at) };
        let died = first(&mut watch, start, Verdict::Dead, unknown).unwrap();
        assert!((1200..=1300).contains(&died), "{died} ms");
    }

    #[test]
    fn data_without_an_answer_is_suspicious_on_an_idle_link() {
        let start = Instant::now();
        let mut watch = Watch::new(start, 1 << 20);
        watch.last_probe = Some(start);
        let look = |at: u32| Look {
            since_data: Duration::from_secs(60),
            silence: Duration::from_secs(60),
            unanswered_data: Some(MS * at),
            ..busy(0)
        };
        let died = first(&mut watch, start, Verdict::Dead, look).unwrap();
        assert!((700..=800).contains(&died), "{died} ms");
    }

    #[test]
    fn a_dead_link_is_probed_every_second_and_an_idle_one_seldom() {
        let start = Instant::now();
        let count = |alive: bool, is_wanted: bool| {
            let mut watch = Watch::new(start, 1 << 20);
            let look = |at: u32| Look {
                alive,
                is_wanted,
                // Every probe of a link that lives is answered at once.
                silence: if alive { MS * (at % 5000) } else { MS * at },
                since_data: Duration::from_secs(60),
                ..busy(0)
            };
            (0..1200)
                .filter(|tick| watch.look(start + MS * 50 * *tick, &look(tick * 50)) == Verdict::Probe)
                .count()
        };
        assert_eq!(count(false, true), 60);
        assert!((10..=14).contains(&count(true, true)), "{}", count(true, true));
        assert_eq!(count(true, false), 0);
    }

    #[test]
    fn a_budget_is_kept() {
        let start = Instant::now();
        let mut budget = Budget::new(2200, start);
        assert_eq!((0..100).filter(|_| budget.take(start)).count(), 10);
        let hour = start + Duration::from_secs(1800);
        assert_eq!((0..100).filter(|_| budget.take(hour)).count(), 5);
    }
}
