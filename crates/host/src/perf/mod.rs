//! Throughput and latency between two endpoints, each the engine or a kernel.
//!
//! Every flow is a connection of its own, whose first bytes say what is wanted ([`protocol`]); [`connection`]
//! is what both sides do, without I/O; [`sockets`] drives it on the kernel's sockets, a thread per flow, and
//! [`engine`] on the engine's connections, behind the TUN devices of [`device`].

pub mod connection;
pub mod device;
pub mod engine;
pub mod protocol;
pub mod sockets;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::clock::Clock;
use crate::histogram::Histogram;
use connection::{StackInfo, TestConnection};
use protocol::{Hello, Mode, Trailer};
use ropewalk_engine::{Span, Time};

/// The port, unless another is asked for.
pub const PORT: u16 = 5202;
/// How long a connection may take to open.
pub const CONNECT_PATIENCE: Span = Span::from_secs(10);
/// How often what the stack says is asked for.
const TICK: Span = Span::from_millis(50);

/// A flow's numbers while it runs, for any thread to read.
#[derive(Debug, Default)]
pub struct LiveCounters {
    sent: AtomicU64,
    received: AtomicU64,
    srtt: AtomicU64,
    retransmitted: AtomicU64,
    running: AtomicBool,
}

/// A moment of a [`LiveCounters`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sample {
    /// Bulk bytes sent and acknowledged.
    pub sent: u64,
    /// Bulk bytes received.
    pub received: u64,
    /// Smoothed round-trip time, nanoseconds.
    pub srtt: Span,
    /// Segments sent again.
    pub retransmitted: u64,
}

impl LiveCounters {
    /// What it shows.
    pub fn read(&self) -> Sample {
        Sample {
            sent: self.sent.load(Ordering::Relaxed),
            received: self.received.load(Ordering::Relaxed),
            srtt: Span::from_nanos(self.srtt.load(Ordering::Relaxed)),
            retransmitted: self.retransmitted.load(Ordering::Relaxed),
        }
    }

    fn publish(&self, flow: &TestConnection) {
        let info = flow.stack_info();
        self.sent.store(flow.acknowledged(), Ordering::Relaxed);
        self.received.store(flow.received(), Ordering::Relaxed);
        self.srtt.store(info.srtt.as_nanos(), Ordering::Relaxed);
        self.retransmitted.store(info.retransmitted, Ordering::Relaxed);
        self.running.store(flow.started_at().is_some(), Ordering::Relaxed);
    }
}

/// What the threads of a client share.
#[derive(Debug)]
pub struct ClientProgress {
    /// Its clock.
    pub clock: Clock,
    /// By flow.
    pub counters: Vec<LiveCounters>,
    stop: Arc<AtomicBool>,
    has_bulk: bool,
    bulk_left: AtomicUsize,
    done: Mutex<Vec<ConnectionResult>>,
}

impl ClientProgress {
    fn new(hellos: impl ExactSizeIterator<Item = Mode> + Clone, stop: Arc<AtomicBool>) -> ClientProgress {
        let bulk = hellos.clone().filter(|mode| *mode != Mode::Echo).count();
        ClientProgress {
            clock: Clock::start(),
            counters: hellos.map(|_| LiveCounters::default()).collect(),
            stop,
            has_bulk: bulk > 0,
            bulk_left: AtomicUsize::new(bulk),
            done: Mutex::new(Vec::new()),
        }
    }

    /// Whether some flow has begun.
    pub fn is_running(&self) -> bool {
        self.counters.iter().any(|counters| counters.running.load(Ordering::Relaxed))
    }

    fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Before each look at a flow: echoes end with the bulk.
    fn end_echoes_with_bulk(&self, flow: &mut TestConnection) {
        let echo = flow.hello().is_some_and(|hello| hello.mode == Mode::Echo);
        if echo && self.has_bulk && self.bulk_left.load(Ordering::Relaxed) == 0 {
            flow.finish_sending();
        }
    }

    fn finish(&self, done: ConnectionResult) {
        if done.mode != Some(Mode::Echo) {
            let _ = self.bulk_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1));
        }
        self.done.lock().unwrap_or_else(PoisonError::into_inner).push(done);
    }

    fn take(&self) -> Vec<ConnectionResult> {
        let mut done = std::mem::take(&mut *self.done.lock().unwrap_or_else(PoisonError::into_inner));
        done.sort_by_key(|done| done.flow);
        done
    }
}

/// What one subflow did, on the engine.
#[derive(Clone, PartialEq, Debug)]
pub struct SubflowResult {
    /// The path's index.
    pub path: u16,
    /// Bytes sent on it, repeats included.
    pub sent: u64,
    /// Smoothed round-trip time, nanoseconds.
    pub srtt: Span,
    /// Segments sent again.
    pub retransmitted: u64,
}

/// What came of a flow.
#[derive(Clone, Debug)]
pub struct ConnectionResult {
    /// Its number in the session.
    pub flow: u16,
    /// What it was; `None` if that was never said.
    pub mode: Option<Mode>,
    /// Who it was with.
    pub peer: Option<SocketAddr>,
    /// What the client wanted.
    pub hello: Option<Hello>,
    /// Whether the engine answered; `None`: there was no answer.
    pub engine_answered: Option<bool>,
    /// How long opening took (client).
    pub connect: Option<Span>,
    /// Bulk bytes sent.
    pub sent: u64,
    /// From the answer to the last byte that the stack took.
    pub sending: Span,
    /// Bulk bytes received.
    pub received: u64,
    /// From the answer to the last byte received.
    pub receiving: Span,
    /// What the server counted (client).
    pub trailer: Option<Trailer>,
    /// What the stack said last.
    pub info: StackInfo,
    /// Subflows at most at one time.
    pub subflows: u8,
    /// Subflow by subflow (engine).
    pub subflow_results: Vec<SubflowResult>,
    /// Times from message to echo, nanoseconds (client); `None`: there was no echo.
    pub echoes: Option<Histogram>,
    /// What went wrong.
    pub error: Option<String>,
}

impl ConnectionResult {
    fn of(
        flow: &TestConnection,
        number: u16,
        peer: Option<SocketAddr>,
        connect: Option<Span>,
    ) -> ConnectionResult {
        ConnectionResult {
            flow: flow.hello().map_or(number, |hello| hello.flow),
            mode: flow.hello().map(|hello| hello.mode),
            peer,
            hello: flow.hello().cloned(),
            engine_answered: flow.answer().map(|answer| answer.engine),
            connect,
            sent: flow.sent(),
            sending: flow.sending(),
            received: flow.received(),
            receiving: flow.receiving(),
            trailer: flow.trailer().copied(),
            info: *flow.stack_info(),
            subflows: flow.subflows(),
            subflow_results: Vec::new(),
            echoes: flow.echoes().cloned(),
            error: flow.error().map(str::to_string),
        }
    }
}

/// What a client measured.
#[derive(Debug)]
pub struct Measured {
    /// By flow.
    pub flows: Vec<ConnectionResult>,
    /// Counters by the kernel's names: of the engine's endpoint, or what the kernel's rose by meanwhile.
    pub counters: Vec<(String, u64)>,
}

/// What happens at a server while it runs.
#[derive(Debug)]
pub enum ServerEvent {
    /// A flow was accepted and has said what it wants.
    Started(SocketAddr, Hello),
    /// A flow is over.
    Finished(Box<ConnectionResult>),
    /// The device of a path went down, or works again (the engine's server).
    Path {
        /// The device's name.
        device: String,
        /// Whether it works.
        up: bool,
    },
}

/// How a server runs.
pub struct ServerControl {
    /// Set it, and the server ends.
    pub stop: Arc<AtomicBool>,
    /// End after the first session.
    pub once: bool,
    /// Receives what happens.
    pub events: std::sync::mpsc::Sender<ServerEvent>,
}

impl std::fmt::Debug for ServerControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerControl").field("once", &self.once).finish_non_exhaustive()
    }
}

/// When `--once` is over: every flow of a session has come and gone, or the rest stays away.
#[derive(Debug, Default)]
struct SessionTracker {
    active: usize,
    /// Session, its flows, and how many are over.
    first: Option<(u64, u16, u16)>,
    idle_since: Option<Time>,
}

/// How long missing flows of a session are waited for.
const STRAGGLERS: Span = Span::from_secs(5);

impl SessionTracker {
    fn on_start(&mut self, hello: &Hello) {
        self.first.get_or_insert((hello.session, hello.flows, 0));
    }

    fn on_end(&mut self, now: Time, done: &ConnectionResult) {
        if let (Some((session, _, over)), Some(hello)) = (&mut self.first, &done.hello)
            && *session == hello.session
        {
            *over += 1;
            self.idle_since = Some(now);
        }
    }

    fn is_over(&self, now: Time) -> bool {
        let Some((_, flows, over)) = self.first else { return false };
        let stale = self.idle_since.is_some_and(|since| now > since + STRAGGLERS);
        self.active == 0 && (over >= flows || (over > 0 && stale))
    }
}
