//! Memory is shared fairly: a few clients that read nothing keep nobody out. For gateway and proxy.
//!
//! What connections hold is summed up several times a second, and with many new ones. Beyond half of the
//! limit those that have made no progress for two seconds are reset, until two fifths are left: those whose
//! far ends read nothing first (beyond three quarters of the limit after half a second, beyond all of it
//! after a fifth of one), then, after five seconds (two beyond the limit) and unless it is for those others'
//! memory alone, those that losses, a dead or a busy link hold up. Of either it is the address that holds
//! most by such connections, and there the one that has stalled for longest. Meanwhile, and where so much was
//! taken from servers since, each connection takes 16 KiB from its server at a time. What may be sent ahead
//! to those who read nothing: `windows.rs`. Idle connections stay, unless one address's take most of the
//! limit. Those that haven't said yet what they want hold a quarter of the limit at most, however new they
//! are. While too much is held all the same, new connections of addresses that hold more than their share are
//! reset; beyond five quarters of the limit all new ones.
//!
//! What the program takes beside what is counted is part of the limit: its code, handshakes under way,
//! buffers of TLS, TIME-WAIT. It is resident memory, measured each time.
//!
//! Memory or not, a connection ends whose far end takes none of what waits for it for a quarter of an
//! hour.

use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ropewalk_tokio::MptcpStream;
use tokio::time::Instant;

use crate::log;
use crate::windows::{Window, Windows};

/// What a stalled connection holds beyond what its client has asked for with its window: most that is taken
/// from servers ahead of it, bytes.
pub(crate) const BEYOND_WINDOW: u64 = 64 << 10;
/// How often memory is looked at.
const INTERVAL: Duration = Duration::from_millis(100);
/// Most connections that are reset before others have their turn: it takes some milliseconds. Among hundreds
/// of tasks that are ready to run a turn comes late. After so many new connections memory is looked at, too.
const AT_ONCE: usize = 128;
/// A connection has stalled after so long without progress: longer than most retransmission timeouts; where
/// three quarters of the limit are used; and where all of it is. The last two hold where the far end reads
/// nothing.
const STALLED_WHEN_SHORT: [Duration; 3] =
    [Duration::from_secs(2), Duration::from_millis(500), Duration::from_millis(200)];
/// A busy link may hold up so long, while there is room: a lost window's second retransmission is on its way.
const HELD_UP: Duration = Duration::from_secs(5);
/// No link's trouble lasts as long, where an address holds over a quarter of the limit.
const LONG: Duration = Duration::from_secs(10);
/// New connections are reset after so long beyond the limit, and memory is short for so long after each time.
const OVER_LIMIT: Duration = Duration::from_secs(1);
/// How often it is told in the log.
const TOLD: Duration = Duration::from_secs(60);
/// What a connection takes without data: measured with two subflows, both ends' tasks included.
const IDLE_CONNECTION: u64 = 24 << 10;

/// What a connection in TIME-WAIT takes: measured.
const TIME_WAIT: u64 = 6 << 10;

/// Most connections in TIME-WAIT: a sixteenth of the limit is theirs, beside it.
pub(crate) fn most_in_time_wait(limit: u64) -> usize {
    (limit / 16 / TIME_WAIT).max(100) as usize
}

/// When a connection's bytes were last seen to grow.
#[derive(Debug)]
pub(crate) struct Progress(Mutex<(u64, Instant)>);

impl Default for Progress {
    fn default() -> Progress {
        Progress(Mutex::new((0, Instant::now())))
    }
}

impl Progress {
    /// For how long nothing has moved, as often as it is asked. `moved`: bytes so far.
    pub fn stalled(&self, moved: u64, now: Instant) -> Duration {
        let mut progress = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if moved > progress.0 {
            *progress = (moved, now);
        }
        now.duration_since(progress.1)
    }
}

/// A connection that takes memory.
pub(crate) trait Holder {
    /// Whose it is.
    fn client(&self) -> IpAddr;
    /// What it holds.
    fn stream(&self) -> &MptcpStream;
    /// For how long nothing has moved.
    fn stalled(&self, now: Instant) -> Duration;
    /// Whether its client hasn't said yet what it wants.
    fn is_asking(&self) -> bool;
    /// What its receive buffer may grow to.
    fn window(&self) -> &Window;
}

/// Whose memory it is.
pub(crate) trait Owner: Send + Sync + 'static {
    /// Its connections.
    type Connection: Holder + Send + Sync;
    /// Those that there are.
    fn connections(&self) -> Vec<Arc<Self::Connection>>;
    /// So many were reset.
    fn count_evicted(&self, count: u64);
    /// Whose new connections are reset.
    fn pressure(&self) -> &Pressure;
}

/// What connections may hold, whether memory is short, and whose new connections are reset since too much is
/// held.
#[derive(Debug)]
pub(crate) struct Pressure {
    /// Most that the program takes, bytes.
    limit: u64,
    /// What may yet be taken from servers until memory is short, since it was looked at last; bytes.
    room: AtomicI64,
    /// How long data may wait for a far end that takes none of it.
    most_stalled: Duration,
    is_short: AtomicBool,
    refused: Mutex<Refused>,
    /// Connections so far.
    accepted: AtomicUsize,
    /// What far ends may send ahead of who reads it.
    pub windows: Windows,
    seen: Mutex<Seen>,
}

/// What was seen when memory was looked at.
#[derive(Debug, Default)]
struct Seen {
    /// When the log was told of connections that ended, and how many have ended since.
    told: Option<Instant>,
    untold: u64,
    over_since: Option<Instant>,
    short_since: Option<Instant>,
}

#[derive(Debug, Default)]
enum Refused {
    #[default]
    Nobody,
    /// Those that hold more than their share.
    Greedy(BTreeSet<IpAddr>),
    All,
}

impl Default for Pressure {
    /// Without a limit.
    fn default() -> Pressure {
        Pressure::new(i64::MAX as u64, Duration::MAX)
    }
}

impl Pressure {
    pub fn new(limit: u64, most_stalled: Duration) -> Pressure {
        Pressure {
            limit,
            room: AtomicI64::new((limit / 2) as i64),
            most_stalled,
            is_short: AtomicBool::default(),
            refused: Mutex::default(),
            accepted: AtomicUsize::default(),
            windows: Windows::new(limit),
            seen: Mutex::default(),
        }
    }

    /// So many bytes were taken from a server. Hundreds of clients that come at once may have the limit
    /// filled before memory is looked at again.
    pub fn on_taken(&self, bytes: usize) {
        self.room.fetch_sub(bytes as i64, Ordering::Relaxed);
    }

    /// Whether a new connection is to be reset.
    pub fn refuses(&self, client: IpAddr) -> bool {
        match &*self.refused.lock().unwrap_or_else(PoisonError::into_inner) {
            Refused::Nobody => false,
            Refused::Greedy(greedy) => greedy.contains(&client),
            Refused::All => true,
        }
    }

    fn set(&self, refused: Refused) {
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
    }

    /// Whether more than half of the limit is held, or was a moment ago: connections take little at a time.
    pub fn is_short(&self) -> bool {
        self.is_short.load(Ordering::Relaxed) || self.room.load(Ordering::Relaxed) < 0
    }

    pub fn set_short(&self, is_short: bool) {
        self.is_short.store(is_short, Ordering::Relaxed);
    }
}

/// Whose new connections are to be reset, when these are held after all.
fn refused(held: &[Held], limit: u64) -> Refused {
    let used: u64 = held.iter().map(|one| one.bytes).sum();
    if used <= limit {
        return Refused::Nobody;
    }
    if used > limit / 4 * 5 {
        return Refused::All;
    }
    let by_client = by_client(held.iter());
    let share = used / by_client.len().max(1) as u64;
    Refused::Greedy(
        by_client.into_iter().filter(|(_, bytes)| *bytes > share).map(|(client, _)| client).collect(),
    )
}

fn by_client<'a>(held: impl Iterator<Item = &'a Held>) -> BTreeMap<IpAddr, u64> {
    let mut all = BTreeMap::new();
    for one in held {
        *all.entry(one.client).or_default() += one.bytes;
    }
    all
}

/// Memory that a connection takes now.
fn memory_of(stream: &MptcpStream) -> u64 {
    IDLE_CONNECTION + stream.held_bytes()
}

/// Memory that the program takes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|text| text.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) << 10
}

/// What is left of a limit for what is counted, if so much is resident: some quarters of it at least. What
/// was freed stays resident for some seconds.
fn left_for_connections(limit: u64, resident: u64, counted: u64, quarters: u64) -> u64 {
    (limit - resident.saturating_sub(counted).min(limit)).max(limit / 4 * quarters)
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug)]
struct Held {
    client: IpAddr,
    bytes: u64,
    stalled: Duration,
    is_asking: bool,
    /// Its far end reads nothing; told only where memory is short.
    awaits_window: bool,
}

/// Connections of which some are to end, by client: of each the one that has stalled for longest is the last.
struct Candidates<'a> {
    held: &'a [Held],
    of_client: BTreeMap<IpAddr, Vec<usize>>,
    /// Clients by what they hold, and by how long their first candidate has stalled.
    clients: BinaryHeap<(u64, Duration, IpAddr)>,
}

impl<'a> Candidates<'a> {
    /// `by_client`: what counts as theirs.
    fn new(
        held: &'a [Held],
        candidates: impl Iterator<Item = usize>,
        by_client: &BTreeMap<IpAddr, u64>,
    ) -> Self {
        let mut of_client: BTreeMap<IpAddr, Vec<usize>> = BTreeMap::new();
        candidates.for_each(|at| of_client.entry(held[at].client).or_default().push(at));
        of_client.values_mut().for_each(|all| all.sort_by_key(|at| (held[*at].stalled, held[*at].bytes)));
        let mut candidates = Candidates { held, of_client, clients: BinaryHeap::new() };
        let clients: Vec<IpAddr> = candidates.of_client.keys().copied().collect();
        clients.into_iter().for_each(|client| candidates.enter(client, by_client[&client]));
        candidates
    }

    fn enter(&mut self, client: IpAddr, bytes: u64) {
        if let Some(first) = self.of_client[&client].last() {
            self.clients.push((bytes, self.held[*first].stalled, client));
        }
    }

    /// The next of the client that holds most, if it holds more than `least`.
    fn next(&mut self, by_client: &mut BTreeMap<IpAddr, u64>, least: u64) -> Option<usize> {
        let (bytes, _, client) = self.clients.pop()?;
        if bytes <= least {
            return None;
        }
        let victim = self.of_client.get_mut(&client)?.pop()?;
        let left = bytes - self.held[victim].bytes;
        by_client.insert(client, left);
        self.enter(client, left);
        Some(victim)
    }
}

/// Which connections are to end so that two fifths of `limit` are held, and a fifth of it by those that
/// haven't said what they want: indices, in order.
fn victims(held: &[Held], limit: u64) -> Vec<usize> {
    let mut victims = Vec::new();
    let mut asking: u64 = held.iter().filter(|one| one.is_asking).map(|one| one.bytes).sum();
    if asking > limit / 4 {
        // However short the time that each has had: there is no end of them.
        let all = (0..held.len()).filter(|at| held[*at].is_asking);
        let mut counted = by_client(held.iter());
        let mut candidates = Candidates::new(held, all, &counted);
        while asking > limit / 5
            && let Some(victim) = candidates.next(&mut counted, 0)
        {
            asking -= held[victim].bytes;
            victims.push(victim);
        }
    }
    let mut left: BTreeSet<usize> = (0..held.len()).collect();
    victims.iter().for_each(|victim| _ = left.remove(victim));
    let mut used: u64 = left.iter().map(|at| held[*at].bytes).sum();
    if used <= limit / 2 {
        return victims;
    }
    let soon = STALLED_WHEN_SHORT[usize::from(used > limit / 4 * 3) + usize::from(used > limit)];
    let (busy, idle): (Vec<usize>, Vec<usize>) =
        left.iter().copied().partition(|at| held[*at].bytes > IDLE_CONNECTION || held[*at].is_asking);
    let all = by_client(left.iter().map(|at| &held[*at]));
    // Acknowledging nothing must not protect who holds very much for very long.
    let is_greedy = |one: &Held| all[&one.client] > limit / 4 && one.stalled >= LONG;
    let is_unread = |one: &Held| one.awaits_window || one.is_asking || is_greedy(one);
    let (unread, held_up): (Vec<usize>, Vec<usize>) = busy.into_iter().partition(|at| is_unread(&held[*at]));
    // What a link holds up stays while those that read nothing make the difference: their turn comes soon.
    let mut unread_bytes: u64 = unread.iter().map(|at| held[*at].bytes).sum();
    let patience = if used > limit { STALLED_WHEN_SHORT[0] } else { HELD_UP };
    // Addresses that hold most of the memory with idle connections lose some of them.
    let kinds = [(unread, soon, 0), (held_up, patience, 0), (idle, STALLED_WHEN_SHORT[0], limit / 2)];
    for (kind, (all, long, least)) in kinds.into_iter().enumerate() {
        if kind == 1 && used - unread_bytes <= limit / 5 * 2 {
            continue;
        }
        let all: Vec<usize> = all.into_iter().filter(|at| held[*at].stalled >= long).collect();
        // What else an address has may be many programs' that get on well.
        let mut counted = match least {
            0 => by_client(all.iter().map(|at| &held[*at])),
            _ => by_client(left.iter().map(|at| &held[*at])),
        };
        let mut candidates = Candidates::new(held, all.into_iter(), &counted);
        while used > limit / 5 * 2
            && let Some(victim) = candidates.next(&mut counted, least)
        {
            used -= held[victim].bytes;
            unread_bytes -= if kind == 0 { held[victim].bytes } else { 0 };
            left.remove(&victim);
            victims.push(victim);
        }
    }
    victims
}

/// A connection that is to end.
struct Victim<C> {
    connection: Arc<C>,
    /// Its client hadn't said what it wants when it was chosen.
    was_asking: bool,
}

impl<C: Holder> Victim<C> {
    /// Resets it, unless its client has said meanwhile what it wants: hundreds may come before it.
    fn end(&self) {
        if !self.was_asking || self.connection.is_asking() {
            self.connection.stream().reset();
        }
    }
}

/// Sees to it that connections hold no more than the limit, until it is cancelled.
pub(crate) async fn watch<O: Owner>(owner: Arc<O>) {
    loop {
        tokio::time::sleep(INTERVAL).await;
        for some in look(&*owner).chunks(AT_ONCE) {
            some.iter().for_each(|victim| victim.end());
            tokio::task::yield_now().await;
        }
    }
}

/// A connection is accepted. After some of them memory is looked at, since the turn of [`watch`] comes late
/// where very many come.
pub(crate) fn accepted<O: Owner>(owner: &O) {
    if owner.pressure().accepted.fetch_add(1, Ordering::Relaxed) % AT_ONCE == AT_ONCE - 1 {
        look(owner).iter().for_each(Victim::end);
    }
}

/// Looks at memory: whether it is short, whose new connections are reset. The connections that are to end.
fn look<O: Owner>(owner: &O) -> Vec<Victim<O::Connection>> {
    let pressure = owner.pressure();
    // Another thread looks at it.
    let Ok(mut seen) = pressure.seen.try_lock() else { return Vec::new() };
    let now = Instant::now();
    let all = owner.connections();
    let mut held: Vec<Held> = all
        .iter()
        .map(|one| Held {
            client: one.client(),
            bytes: memory_of(one.stream()),
            stalled: one.stalled(now),
            is_asking: one.is_asking(),
            awaits_window: false,
        })
        .collect();
    for (one, held) in all.iter().zip(&held) {
        if held.bytes > IDLE_CONNECTION && held.stalled >= pressure.most_stalled {
            one.stream().reset();
            owner.count_evicted(1);
            let most_stalled = format_args!("{:?}", pressure.most_stalled);
            log::note("took nothing of what waited for it: reset", held.client, most_stalled);
        }
    }
    let used: u64 = held.iter().map(|one| one.bytes).sum();
    let resident = resident();
    let limit = left_for_connections(pressure.limit, resident, used, 1);
    if used > limit / 2 {
        for (one, held) in all.iter().zip(&mut held) {
            held.awaits_window = one.stream().awaits_window();
        }
    }
    let victims = victims(&held, limit);
    owner.count_evicted(victims.len() as u64);
    let mut left: Vec<Held> = held.clone();
    victims.iter().for_each(|victim| left[*victim].bytes = 0);
    // Who is new is reset for what is held, not for what was freed a moment ago.
    let most = left_for_connections(pressure.limit, resident, used, 2);
    let mut refused = refused(&left, most);
    let after: u64 = left.iter().map(|one| one.bytes).sum();
    seen.over_since = (after > most).then(|| seen.over_since.unwrap_or(now));
    if seen.over_since.is_none_or(|since| now.duration_since(since) < OVER_LIMIT) {
        refused = Refused::Nobody;
    }
    if !matches!(refused, Refused::Nobody) {
        let why = format_args!("{after} of {most} bytes");
        log::note("connections take more than the limit: new ones are reset", "", why);
    }
    pressure.set(refused);
    if used > limit / 2 {
        seen.short_since = Some(now);
    }
    pressure.set_short(seen.short_since.is_some_and(|since| now.duration_since(since) < OVER_LIMIT));
    pressure.windows.look(limit.saturating_sub(after));
    for (one, held) in all.iter().zip(&left) {
        pressure.windows.limit(one.stream(), one.window(), held.bytes > IDLE_CONNECTION);
    }
    let room = (limit / 2).saturating_sub(after.min(used));
    pressure.room.store(i64::try_from(room).unwrap_or(i64::MAX), Ordering::Relaxed);
    seen.untold += victims.len() as u64;
    if seen.untold > 0 && seen.told.is_none_or(|told| told.elapsed() >= TOLD) {
        let client = victims.first().map(|victim| held[*victim].client.to_string());
        tracing::warn!(
            target: "ropewalk::memory", used, limit, connections = seen.untold, client,
            "memory is short: connections that made no progress were reset"
        );
        (seen.told, seen.untold) = (Some(now), 0);
    }
    let victim = |at: usize| Victim { connection: Arc::clone(&all[at]), was_asking: held[at].is_asking };
    victims.into_iter().map(victim).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;

    fn held(client: u8, bytes: u64, seconds: u64) -> Held {
        Held {
            client: [10, 0, 0, client].into(),
            bytes,
            stalled: Duration::from_secs(seconds),
            is_asking: false,
            awaits_window: false,
        }
    }

    #[test]
    fn whose_far_ends_read_nothing_end_before_those_that_a_link_holds_up() {
        let mut all = vec![held(1, MIB, 9); 30];
        all.extend((2..22).map(|client| Held { awaits_window: true, ..held(client, MIB, 3) }));
        let ended = victims(&all, 90 * MIB);
        assert!(ended.len() == 14 && ended.iter().all(|victim| *victim >= 30), "{ended:?}");
        let ended = victims(&all, 40 * MIB);
        assert!(ended.len() == 34 && ended[20..].iter().all(|victim| *victim < 30), "{ended:?}");
        // Those that have read nothing for a moment only: theirs is the next turn.
        let mut new = all.clone();
        new.iter_mut().skip(30).for_each(|one| one.stalled = Duration::from_millis(100));
        assert!(victims(&new, 75 * MIB).is_empty());
        assert_eq!(victims(&new, 74 * MIB).len(), 21, "it isn't only theirs");
        // So they are beyond the limit, where what is held up would fit by itself.
        let mut many = vec![held(1, MIB, 9); 10];
        many.extend((2..42).map(|client| Held { awaits_window: true, ..held(client, MIB, 0) }));
        assert!(victims(&many, 40 * MIB).is_empty());
        assert_eq!(victims(&many, 20 * MIB).len(), 10, "they alone are more than two fifths");
        // Nobody is held up for so long who holds so much.
        all.iter_mut().take(30).for_each(|one| one.stalled = LONG);
        let ended = victims(&all, 90 * MIB);
        assert!(ended.iter().all(|victim| *victim < 30), "{ended:?}");
    }

    #[test]
    fn the_greediest_addresss_longest_stalled_end_first() {
        let all = [
            held(1, 10 * MIB, 3),
            held(2, 20 * MIB, 60),
            held(1, 15 * MIB, 50),
            // It moves.
            held(1, 30 * MIB, 0),
            held(3, 5 * MIB, 600),
        ];
        // 25 MiB of the first address and what moves, 20 of the second, 5 of the third.
        assert!(victims(&all, 160 * MIB).is_empty(), "no more than half");
        assert_eq!(victims(&all, 159 * MIB), [2, 1], "until two fifths are left");
        assert_eq!(victims(&all, 106 * MIB), [2, 1, 4], "three seconds are short for a busy link");
        assert_eq!(victims(&all, 79 * MIB), [1, 2, 0, 4], "but not beyond the limit");
        assert_eq!(victims(&all, 20 * MIB), [1, 2, 0, 4], "those that move stay");
        let mut half = [held(1, 40 * MIB, 1), held(2, 30 * MIB, 1)];
        assert!(victims(&half, 60 * MIB).is_empty(), "a second is short for a link");
        half.iter_mut().for_each(|one| one.awaits_window = true);
        assert!(victims(&half, 94 * MIB).is_empty(), "a second is short while there is room");
        assert_eq!(victims(&half, 93 * MIB), [0]);
    }

    #[test]
    fn memory_is_short_once_so_much_was_taken_though_nobody_has_looked() {
        let pressure = Pressure::new(10 * MIB, Duration::ZERO);
        pressure.on_taken(5 << 20);
        assert!(!pressure.is_short());
        pressure.on_taken(1);
        assert!(pressure.is_short());
        let without = Pressure::default();
        without.on_taken(usize::MAX >> 2);
        assert!(!without.is_short());
    }

    #[test]
    fn what_is_not_counted_is_part_of_the_limit() {
        // 18 MiB without any connection; buffers of TLS double what they take; much was freed; all is
        // counted.
        for (resident, counted, left) in [(18, 0, 46), (50, 16, 30), (90, 4, 16), (10, 20, 64)] {
            let found = left_for_connections(64 * MIB, resident * MIB, counted * MIB, 1);
            assert_eq!(found, left * MIB, "{resident}");
        }
        assert_eq!(left_for_connections(64 * MIB, 90 * MIB, 4 * MIB, 2), 32 * MIB);
    }

    #[test]
    fn connections_without_data_stay_unless_one_address_has_most() {
        let all = [held(1, IDLE_CONNECTION, 900), held(2, 9 * MIB, 0)];
        assert!(victims(&all, MIB).is_empty());
        let mut many = vec![held(1, IDLE_CONNECTION, 900); 100];
        many.extend((2..102).map(|client| held(client, IDLE_CONNECTION, 1000)));
        let limit = 190 * IDLE_CONNECTION;
        let ended = victims(&many, limit);
        assert!(ended.iter().all(|victim| *victim < 100) && ended.len() == 5, "{ended:?}");
        assert!(matches!(refused(&many, 200 * IDLE_CONNECTION), Refused::Nobody));
        let Refused::Greedy(greedy) = refused(&many, limit) else { panic!("more than the limit") };
        assert!(greedy.len() == 1 && greedy.contains(&IpAddr::from([10, 0, 0, 1])), "{greedy:?}");
        assert!(matches!(refused(&many, 150 * IDLE_CONNECTION), Refused::All));
        // Who hasn't said what it wants comes before.
        many.iter_mut().skip(150).for_each(|one| one.is_asking = true);
        let ended = victims(&many, limit);
        assert!(ended.iter().take(50).all(|victim| *victim >= 150), "{ended:?}");
    }

    #[test]
    fn those_that_say_nothing_hold_a_quarter_however_new_they_are() {
        let mut all = vec![Held { is_asking: true, ..held(1, MIB, 0) }; 30];
        all.extend(vec![Held { is_asking: true, ..held(2, MIB, 0) }; 5]);
        all.extend(vec![held(3, MIB, 0); 20]);
        assert!(victims(&all, 140 * MIB).is_empty());
        let ended = victims(&all, 120 * MIB);
        assert!(ended.len() == 11 && ended.iter().all(|victim| *victim < 30), "{ended:?}");
    }
}
