//! What is simulated: plain data. The lab parses it from text and validates it; a library user may fill it
//! in.

use std::sync::Arc;

use ropewalk_engine::congestion::CongestionControl;
use ropewalk_engine::registry::Spec;
use ropewalk_engine::scheduler::Scheduler;
use ropewalk_engine::{Span, Time};
use ropewalk_link::LinkSpec;

use crate::Side;
use crate::host::{Host, HostProfile};

/// The longest time that a scenario may name, so that sums of times never overflow.
pub(crate) const HORIZON: Span = Span::from_nanos(u64::MAX / 4);

/// Largest IP packets that a path may have: IPv4's least that every host takes, and its most.
pub const MTUS: std::ops::RangeInclusive<u32> = 576..=65_535;

/// Two ends, the paths between them, and what goes over them.
#[derive(Clone, PartialEq, Debug)]
pub struct Scenario {
    /// Its name.
    pub name: String,
    /// One line.
    pub summary: String,
    /// The paths, at least one; the connection starts on the first that is up.
    pub paths: Vec<PathSpec>,
    /// Links that several paths share, behind their own.
    pub bottlenecks: Vec<Bottleneck>,
    /// Traffic that competes.
    pub background: Vec<Background>,
    /// What is transferred.
    pub workload: Workload,
    /// Which end sends the data.
    pub direction: Direction,
    /// The client, which opens the connection and the joins.
    pub client: EndSpec,
    /// The server.
    pub server: EndSpec,
    /// The run starts this long before the workload, so that background traffic reaches a steady state.
    /// Metrics start with the workload.
    pub warmup: Span,
    /// A run that isn't complete by then ends with [`Outcome::TimeLimit`](crate::Outcome::TimeLimit).
    pub limit: Span,
}

impl Scenario {
    /// How many connections the workload opens.
    pub(crate) fn connections(&self) -> u32 {
        match &self.workload {
            Workload::Flows { count, .. } => *count,
            Workload::Transfers(transfers) => transfers.len() as u32,
            Workload::Web { connections, persistent: true, .. } => (*connections).max(1),
            Workload::Web { connections, objects, .. } => (*connections).max(objects.len() as u32),
            _ => 1,
        }
    }
}

/// One path: an interface of the client, with a link of its own in each direction.
#[derive(Clone, PartialEq, Debug)]
pub struct PathSpec {
    /// Its name: "wifi".
    pub name: String,
    /// Client to server.
    pub up: LinkSpec,
    /// Server to client.
    pub down: LinkSpec,
    /// Largest IP packet, bytes.
    pub mtu: u32,
    /// Whether subflows on it are backups.
    pub backup: bool,
    /// Index into [`Scenario::bottlenecks`] of the link that follows its own.
    pub bottleneck: Option<usize>,
    /// What its bytes cost the user, if they do. It changes nothing in a run.
    pub metered: Option<Metered>,
}

/// A path whose bytes cost something.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Metered {
    /// Price of 10^9 bytes; none: not said.
    pub price: Option<f64>,
}

/// A link that several paths share.
#[derive(Clone, PartialEq, Debug)]
pub struct Bottleneck {
    /// Its name.
    pub name: String,
    /// Client to server: entered after the path's own link.
    pub up: LinkSpec,
    /// Server to client: entered before the path's own link.
    pub down: LinkSpec,
}

/// Competing traffic on one path (and its bottleneck), between hosts of its own.
#[derive(Clone, PartialEq, Debug)]
pub struct Background {
    /// Index of the path whose links it takes.
    pub path: usize,
    /// Which way its data flows.
    pub direction: Direction,
    /// What it is.
    pub traffic: Traffic,
    /// Extra one-way delay that only this traffic sees.
    pub extra_delay: Span,
    /// When it starts, from the start of the run.
    pub start: Time,
    /// When it stops; `None`: never.
    pub stop: Option<Time>,
}

/// Kinds of competing traffic.
#[derive(Clone, PartialEq, Debug)]
pub enum Traffic {
    /// One TCP flow that always has data.
    TcpSaturated {
        /// Its congestion control.
        congestion: String,
    },
    /// One TCP flow whose application writes one packet at a time, exponentially spaced.
    TcpLimited {
        /// Its congestion control.
        congestion: String,
        /// Mean packets per second.
        packets_per_second: f64,
        /// Bytes per packet.
        packet: u32,
    },
    /// One TCP flow of a size, again and again.
    TcpFlows {
        /// Its congestion control.
        congestion: String,
        /// Bytes per flow.
        bytes: u64,
        /// Idle time between flows.
        pause: Span,
        /// How many, one after another; a run doesn't end before they have. None: without end, and not waited
        /// for.
        times: Option<u32>,
        /// Fixed receive buffer of its hosts, bytes; none: as their system has it.
        receive_buffer: Option<u64>,
    },
    /// One Multipath TCP connection that always has data. Its client has all paths, and opens it on
    /// [`Background::path`].
    MptcpSaturated {
        /// Its scheduler.
        scheduler: String,
        /// The congestion control of its subflows.
        congestion: String,
    },
    /// UDP on/off.
    UdpOnOff {
        /// Rate while on, bits per second.
        rate: u64,
        /// Mean packet, bytes (IP); sizes are exponential, clipped to 64..=mtu.
        packet: u32,
        /// Mean on time.
        on: Span,
        /// Distribution of the on times.
        on_shape: Times,
        /// Mean off time.
        off: Span,
        /// Distribution of the off times.
        off_shape: Times,
    },
}

impl Traffic {
    /// Names its congestion control.
    pub(crate) fn congestion(&self) -> Option<&str> {
        match self {
            Traffic::TcpSaturated { congestion }
            | Traffic::MptcpSaturated { congestion, .. }
            | Traffic::TcpLimited { congestion, .. }
            | Traffic::TcpFlows { congestion, .. } => Some(congestion),
            Traffic::UdpOnOff { .. } => None,
        }
    }

    /// Names its scheduler, if it is Multipath TCP.
    pub(crate) fn scheduler(&self) -> Option<&str> {
        match self {
            Traffic::MptcpSaturated { scheduler, .. } => Some(scheduler),
            _ => None,
        }
    }
}

/// How a source's times on or off are distributed around their mean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Times {
    /// Pareto of shape 1.5: of finite mean and infinite variance.
    Pareto,
    /// Exponential.
    Exponential,
}

/// Which end sends the data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Direction {
    /// Client to server.
    Upload,
    /// Server to client.
    #[default]
    Download,
}

impl Direction {
    /// The side that sends the data.
    pub fn sender(self) -> Side {
        match self {
            Direction::Upload => Side::Client,
            Direction::Download => Side::Server,
        }
    }
}

/// One of several transfers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Transfer {
    /// When the client opens the connection, from the begin of the workload.
    pub start: Span,
    /// Its size.
    pub bytes: u64,
    /// Which end sends it.
    pub direction: Direction,
}

/// The key frames of a video: they are coded without the frames before them, and so are larger.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyFrames {
    /// Bytes of a key frame.
    pub frame: u32,
    /// Every so many frames there is one; the first frame is one.
    pub every: u32,
}

/// What is transferred.
#[derive(Clone, PartialEq, Debug)]
pub enum Workload {
    /// One flow. FCT counts from connect to the last byte delivered (a download's request is one segment).
    Flow {
        /// Its size.
        bytes: u64,
    },
    /// Several at once, each on a connection of its own.
    Flows {
        /// How many.
        count: u32,
        /// Size of each.
        bytes: u64,
    },
    /// Transfers that each have their own time, size and direction, each on a connection of its own. FCT
    /// counts from when the client is connected.
    Transfers(Vec<Transfer>),
    /// A web page: objects over a number of connections, request and response; each connection asks for its
    /// next object when the last has arrived. FCT: the page's.
    Web {
        /// Sizes of the objects.
        objects: Vec<u64>,
        /// Connections, or how many there are at once if they aren't persistent.
        connections: u32,
        /// Bytes of a request.
        request: u32,
        /// Whether a connection carries one object after another. `false`: each object has a connection of
        /// its own.
        persistent: bool,
    },
    /// Frames at a constant rate; the metric is each frame's delay from its making to its last byte.
    Cbr {
        /// Bytes per frame.
        frame: u32,
        /// Rate of these frames, bits per second: a frame every `8 frame / rate` seconds.
        rate: u64,
        /// Larger frames among them.
        key: Option<KeyFrames>,
        /// How long.
        duration: Span,
        /// How long after its making a frame is of use: its deadline, which schedulers see. `None`: they see
        /// no frames.
        deadline: Option<Span>,
    },
    /// As much as possible for a time; the metric is goodput.
    Bulk {
        /// How long.
        duration: Span,
    },
    /// One after another on one connection; the metric is each exchange's time.
    RequestResponse {
        /// Bytes of a request.
        request: u32,
        /// Bytes of a response.
        response: u64,
        /// How many.
        count: u32,
        /// Pause between them.
        think: Span,
    },
}

impl Workload {
    /// How many frames are made; `None` where there are none.
    pub fn frames(&self) -> Option<u64> {
        let Workload::Cbr { frame, rate, duration, .. } = self else { return None };
        Some(duration.div_ceil(frame_interval(u64::from(*frame), *rate)).max(1))
    }

    /// Bytes of all frames; `None` where there are none.
    pub fn frame_bytes(&self) -> Option<u64> {
        let Workload::Cbr { frame, key, .. } = self else { return None };
        let frames = self.frames()?;
        let (keys, size) =
            key.map_or((0, 0), |key| (frames.div_ceil(u64::from(key.every.max(1))), u64::from(key.frame)));
        Some((frames - keys).saturating_mul(u64::from(*frame)).saturating_add(keys.saturating_mul(size)))
    }
}

/// Time between frames of `frame` bytes at `rate` bits per second.
pub(crate) fn frame_interval(frame: u64, rate: u64) -> Span {
    let interval = u128::from(frame) * 8_000_000_000 / u128::from(rate.max(1));
    Span::from_nanos(u64::try_from(interval).unwrap_or(u64::MAX).max(1))
}

/// One end's settings.
#[derive(Clone, PartialEq, Debug)]
pub struct EndSpec {
    /// Connection-level send buffer, bytes.
    pub send_buffer: u64,
    /// Connection-level receive buffer, bytes.
    pub receive_buffer: u64,
    /// Whether buffers start small and grow as Linux's do; `false`: they have their full size at once.
    pub autotune: bool,
    /// DSS checksums.
    pub checksum: bool,
    /// ECN.
    pub ecn: bool,
    /// Least RTO.
    pub min_rto: Span,
    /// Initial window, segments.
    pub initial_window: u32,
    /// Whether joins begin with the third ACK, or after the first DSS as Linux's do.
    pub early_join: bool,
    /// What it does about links that fall silent; the client's counts.
    pub path_manager: PathManager,
    /// The rest of its TCP.
    pub host: Host,
}

impl EndSpec {
    /// Linux's defaults: what its buffers grow to, its least RTO, and the initial window of RFC 6928.
    pub const DEFAULT: EndSpec = EndSpec {
        send_buffer: 4 << 20,
        receive_buffer: 6 << 20,
        autotune: true,
        checksum: false,
        ecn: false,
        min_rto: Span::from_millis(200),
        initial_window: 10,
        early_join: false,
        path_manager: PathManager::Ropewalk,
        host: Host::LINUX_6_18,
    };

    /// An end of a system, with its buffers, window and timeout.
    pub const fn of(profile: HostProfile) -> EndSpec {
        match profile {
            HostProfile::Linux618 => EndSpec::DEFAULT,
            HostProfile::Linux314 => EndSpec {
                host: Host::LINUX_3_14,
                checksum: true,
                path_manager: PathManager::Linux,
                ..EndSpec::DEFAULT
            },
            HostProfile::Linux419 => EndSpec {
                host: Host::LINUX_4_19,
                checksum: true,
                path_manager: PathManager::Linux,
                ..EndSpec::DEFAULT
            },
            HostProfile::Ns3 => EndSpec {
                host: Host::NS_3,
                send_buffer: 128 << 10,
                receive_buffer: 128 << 10,
                autotune: false,
                min_rto: Span::from_secs(1),
                initial_window: 1,
                path_manager: PathManager::Linux,
                ..EndSpec::DEFAULT
            },
        }
    }
}

impl Default for EndSpec {
    fn default() -> Self {
        EndSpec::DEFAULT
    }
}

/// What a client does about a link that falls silent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PathManager {
    /// As `ropewalkd proxy`: it probes the link, leaves it after about a second without an answer, and opens
    /// subflows on it again once a probe is answered.
    #[default]
    Ropewalk,
    /// As Linux 6.18's in the kernel: subflows stay until they time out, and aren't opened again.
    Linux,
}

/// All paths together, or plain TCP on one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// Multipath TCP.
    Multipath,
    /// Plain TCP on this path.
    SinglePath(usize),
}

/// What to keep of a run beyond its totals.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Recording {
    /// cwnd, srtt, queue lengths, the out-of-order queue, every so often; `None`: not at all.
    pub samples_every: Option<Span>,
    /// Each data segment's fate.
    pub segments: bool,
    /// Each scheduler decision with its reason.
    pub decisions: bool,
}

/// One run.
#[derive(Clone, Debug)]
pub struct RunSpec {
    /// The scenario.
    pub scenario: Arc<Scenario>,
    /// The scheduler of the sending side (of both sides, in fact).
    pub scheduler: Spec<dyn Scheduler>,
    /// Congestion control of both sides.
    pub congestion: Spec<dyn CongestionControl>,
    /// Multipath or one path.
    pub mode: Mode,
    /// Seeds every random stream of the run; the same seed gives all schedulers the same links.
    pub seed: u64,
    /// Shift of the workload's start (and with it of every phase), for scenarios without randomness.
    pub start_phase: Span,
    /// What to keep.
    pub recording: Recording,
}

impl RunSpec {
    /// When the workload starts, from the start of the run.
    pub fn begin(&self) -> Time {
        Time::ZERO + self.scenario.warmup.saturating_add(self.start_phase)
    }

    /// A multipath run with seed 1 that starts at once and keeps its totals only.
    pub fn new(
        scenario: Scenario,
        scheduler: Spec<dyn Scheduler>,
        congestion: Spec<dyn CongestionControl>,
    ) -> Self {
        RunSpec {
            scenario: Arc::new(scenario),
            scheduler,
            congestion,
            mode: Mode::Multipath,
            seed: 1,
            start_phase: Span::ZERO,
            recording: Recording::default(),
        }
    }
}
