//! The client's path manager, as `ropewalkd proxy` has it (crates/gateway/src/proxy/watch.rs): a link that
//! falls silent is probed and left, and used again once a probe is answered. Only links that are down at
//! times have one.
//!
//! A probe is not simulated as packets: it has no answer while the link is down in either direction. The
//! moments are those of the proxy: 200 ms of silence, then three round-trip times, at least 500 ms and at
//! most 3 s; on a dead link a probe every second.

use ropewalk_engine::{PathId, Span, Time};
use ropewalk_link::{Change, ChangeAction, LinkSpec};

use super::World;
use super::timers::TimerEvent;
use crate::spec::{Mode, PathManager};
use crate::{PathSpec, Scenario};

/// A link is silent after so long, and probed.
const SILENT: Span = Span::from_millis(200);
/// How long a probe has no answer, at least and at most, before the link is dead.
const LIMIT: (Span, Span) = (Span::from_millis(500), Span::from_secs(3));
/// Time between probes of a dead link.
const DEAD: Span = Span::from_secs(1);

/// What is known of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Watched {
    /// It carries; the timer is for when it goes down.
    Alive,
    /// It went down at this moment; the timer is for when it is left.
    Silent(Time),
    /// It was left; the timer is for the next probe.
    Dead,
    /// A probe was sent that will be answered.
    Answering,
}

/// The last time up to `at` that a change happened, if it did.
fn last(change: &Change, at: Time) -> Option<Time> {
    let since = at.checked_sub(change.at)?;
    Some(match change.every {
        Some(every) if !every.is_zero() => change.at + since / every * every,
        _ => change.at,
    })
}

/// The first time after `at` that a change happens, if it does.
fn next(change: &Change, at: Time) -> Option<Time> {
    if change.at > at {
        return Some(change.at);
    }
    let every = change.every.filter(|every| !every.is_zero())?;
    last(change, at)?.checked_add(every)
}

fn is_switch(change: &&Change) -> bool {
    matches!(change.action, ChangeAction::Down | ChangeAction::Up)
}

/// Whether a link is down at a moment. Of changes at the same time the last counts.
fn is_down(link: &LinkSpec, at: Time) -> bool {
    let switches = link.changes.iter().filter(is_switch);
    let latest =
        switches.filter_map(|change| Some((last(change, at)?, change))).max_by_key(|(when, _)| *when);
    latest.is_some_and(|(_, change)| change.action == ChangeAction::Down)
}

fn path_is_down(path: &PathSpec, at: Time) -> bool {
    is_down(&path.up, at) || is_down(&path.down, at)
}

/// When a path next goes down, or comes up.
fn next_switch(path: &PathSpec, at: Time) -> Option<Time> {
    let changes = path.up.changes.iter().chain(&path.down.changes);
    changes.filter(is_switch).filter_map(|change| next(change, at)).min()
}

/// When a path is next down.
fn next_down(path: &PathSpec, at: Time) -> Option<Time> {
    let mut when = at;
    // Up and down again and again: the second switch at the latest.
    for _ in 0..8 {
        when = next_switch(path, when)?;
        if path_is_down(path, when) {
            return Some(when);
        }
    }
    None
}

impl World {
    /// Begins to watch the links that are down at times.
    pub(super) fn watch_links(&mut self) {
        let scenario = std::sync::Arc::clone(&self.scenario);
        if self.spec.mode != Mode::Multipath || scenario.client.path_manager != PathManager::Ropewalk {
            return;
        }
        self.watched = vec![Watched::Alive; scenario.paths.len()];
        for (path, spec) in scenario.paths.iter().enumerate() {
            if let Some((first, _)) = first_long(spec) {
                // Connections that leave paths aren't independent of each other's times.
                self.lookahead = None;
                self.set_timer(first, TimerEvent::Watch(path));
            }
        }
    }

    /// A moment at which a link is looked at.
    pub(super) fn look_at_link(&mut self, path: usize) {
        let scenario = std::sync::Arc::clone(&self.scenario);
        let (spec, now) = (&scenario.paths[path], self.now);
        let rtt = spec.up.delay + spec.down.delay;
        let down = path_is_down(spec, now);
        let (state, at) = match self.watched[path] {
            Watched::Alive if down => (Watched::Silent(now), Some(now + patience(spec))),
            // It was up in between: what was silent then isn't dead now.
            Watched::Silent(since) if down && next_switch(spec, since).is_none_or(|next| next > now) => {
                self.hosts.leave_path(now, PathId(path as u16));
                self.dirty |= 3;
                (Watched::Dead, Some(now + DEAD))
            }
            Watched::Silent(_) if down => (Watched::Silent(now), Some(now + patience(spec))),
            Watched::Dead if down => (Watched::Dead, Some(now + DEAD)),
            Watched::Dead => (Watched::Answering, Some(now + rtt)),
            Watched::Answering if down => (Watched::Dead, Some(now + DEAD)),
            Watched::Answering => {
                self.hosts.join_path(now, PathId(path as u16));
                self.dirty |= 3;
                (Watched::Alive, next_down(spec, now))
            }
            Watched::Alive | Watched::Silent(_) => (Watched::Alive, next_down(spec, now)),
        };
        self.watched[path] = state;
        if let Some(at) = at {
            self.set_timer(at, TimerEvent::Watch(path));
        }
    }
}

/// How long a link may be silent before it is left.
fn patience(path: &PathSpec) -> Span {
    SILENT + (3 * (path.up.delay + path.down.delay)).clamp(LIMIT.0, LIMIT.1)
}

/// When a path is first down for so long that it is left, and for how long; `None`: for good.
fn first_long(path: &PathSpec) -> Option<(Time, Option<Span>)> {
    let mut from = next_down(path, Time::ZERO)?;
    // Several changes may follow one another.
    for _ in 0..16 {
        let mut until = next_switch(path, from);
        while let Some(up) = until.filter(|up| path_is_down(path, *up)) {
            until = next_switch(path, up);
        }
        let lasts = until.map(|until| until - from);
        if lasts.is_none_or(|lasts| lasts > patience(path)) {
            return Some((from, lasts));
        }
        from = next_down(path, until?)?;
    }
    None
}

/// The first path whose link is down for so long that the client's path manager decides when it is used
/// again: from when, and for how long; `None`: for good.
pub fn long_outage(scenario: &Scenario) -> Option<(&PathSpec, Time, Option<Span>)> {
    let of = |path| first_long(path).map(|(from, lasts)| (path, from, lasts));
    scenario.paths.iter().filter_map(of).min_by_key(|(_, from, _)| *from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Recording, RunSpec, Workload, networks};
    use ropewalk_engine::Span;

    const SECOND: Span = Span::from_secs(1);

    /// A link goes down after so long, for so long.
    fn down_for(after: Span, length: Span) -> Vec<Change> {
        let from = Time::ZERO + after;
        vec![Change::once(from, ChangeAction::Down), Change::once(from + length, ChangeAction::Up)]
    }

    #[test]
    fn when_links_are_down() {
        let mut path = networks::wifi_lte().paths[0].clone();
        let at = Time::from_nanos;
        path.down.changes =
            vec![Change::once(at(20), ChangeAction::Down), Change::once(at(50), ChangeAction::Up)];
        let down = |nanos| path_is_down(&path, at(nanos));
        assert_eq!([19, 20, 49, 50].map(down), [false, true, true, false]);
        assert_eq!(
            (next_down(&path, at(0)), next_down(&path, at(20)), next_switch(&path, at(20))),
            (Some(at(20)), None, Some(at(50)))
        );
        let mut scenario = networks::wifi_lte();
        let mut outage = |length| {
            scenario.paths[1].up.changes = down_for(SECOND, length);
            long_outage(&scenario).map(|(path, _, lasts)| (path.name.clone(), lasts))
        };
        let long = Some(("lte".into(), Some(30 * SECOND)));
        assert_eq!((outage(SECOND / 2), outage(30 * SECOND)), (None, long));
        for change in &mut path.down.changes {
            change.every = Some(Span::from_nanos(100));
        }
        let down = |nanos| path_is_down(&path, at(nanos));
        assert_eq!([120, 149, 150, 1020].map(down), [true, true, false, true]);
        assert_eq!([60, 130].map(|nanos| next_down(&path, at(nanos))), [Some(at(120)), Some(at(220))]);
    }

    /// How long after the end of an outage the path carries again.
    fn carries_again_after(path_manager: PathManager, outage: Span) -> Span {
        let mut scenario = networks::wifi_lte();
        let changes = down_for(2 * SECOND, outage);
        let wifi = &mut scenario.paths[0];
        (wifi.up.changes, wifi.down.changes) = (changes.clone(), changes);
        scenario.workload = Workload::Bulk { duration: 90 * SECOND };
        scenario.limit = 120 * SECOND;
        scenario.client.path_manager = path_manager;
        let mut world = World::new(&RunSpec {
            scenario: std::sync::Arc::new(scenario),
            scheduler: ropewalk_engine::scheduler::builtin().parse("minrtt").unwrap(),
            congestion: ropewalk_engine::congestion::builtin().parse("cubic").unwrap(),
            mode: Mode::Multipath,
            seed: 1,
            start_phase: Span::ZERO,
            recording: Recording::default(),
        })
        .unwrap();
        let end = Time::ZERO + 2 * SECOND + outage;
        world.run_until(end);
        let before = world.bytes_on(0);
        let mut now = end;
        while world.bytes_on(0) < before + 200_000 && now < Time::ZERO + 90 * SECOND {
            now += SECOND / 10;
            world.run_until(now);
        }
        now - end
    }

    #[test]
    fn a_link_that_was_silent_carries_again_as_its_path_manager_has_it() {
        let longest = |path_manager| {
            let of = |seconds: u64| carries_again_after(path_manager, seconds * SECOND);
            [20, 26, 32, 38].map(of).into_iter().max().unwrap()
        };
        let (ropewalk, linux) = (longest(PathManager::Ropewalk), longest(PathManager::Linux));
        assert!(ropewalk < Span::from_millis(1600), "{ropewalk}");
        assert!(linux > Span::from_secs(5), "{linux}");
    }
}
