//! What drawn cells are drawn from: links, workloads, competing traffic and buffers, with their sources. It
//! was written before any cell was drawn. A pair is a range, from which values are drawn uniformly in their
//! logarithm; where a source gives quartiles or medians, the range holds about the middle 90 %. Ranges
//! without a source are a choice, and marked so.
//!
//! Sources:
//! - Dischinger et al., *Characterizing Residential Broadband Networks*, IMC 2007: DSL and cable, queues.
//! - Sundaresan et al., *Broadband Internet Performance: A View From the Gateway*, SIGCOMM 2011: rates,
//!   last-mile latencies and queues of DSL and cable.
//! - Pei et al., *WiFi Can Be the Weakest Link of Round Trip Network Latency in the Wild*, INFOCOM 2016.
//! - Sharma et al., *Measuring the Prevalence of WiFi Bottlenecks in Home Access Networks*, arXiv 2311.05499.
//! - Trevisan, Khatouni, Giordano, *ERRANT: Realistic emulation of radio access networks*, Computer Networks
//!   176, 2020: rates, latencies and losses of 3G and 4G, measured from MONROE.
//! - Winstein, Sivaraman, Balakrishnan, *Stochastic Forecasts Achieve High Throughput and Low Delay over
//!   Cellular Networks*, NSDI 2013: recorded LTE and UMTS links. Over bins of 0.5 s the logarithms of the
//!   rates of the five traces that mahimahi's repository carries have a standard deviation of 0.80 to 1.35
//!   and forget in 1 to 21 s; outages have medians of 0.1 to 1 s.
//! - Jiang et al., *Understanding Bufferbloat in Cellular Networks*, CellNet 2012: queues of seconds.
//! - Narayanan et al., *A First Look at Commercial 5G Performance on Smartphones*, WWW 2020; Xu et al.,
//!   *Understanding Operational 5G*, SIGCOMM 2020: mid-band 5G.
//! - Michel et al., *A First Look at Starlink Performance*, IMC 2022: medians, quartiles of the round-trip
//!   time; Mohan et al., *A Multifaceted Look at Starlink Performance*, WWW 2024: reconfiguration every 15 s;
//!   Kassem et al., *A Browser-side View of Starlink Connectivity*, IMC 2022: losses at handovers;
//!   *Starlink on the Autobahn* (2024, CC BY-SA 4.0): 50 to 412 Mbit/s in 90 % of the seconds, logarithms
//!   with a standard deviation of 0.77 that forget in 10 s.
//! - Di Domenico et al., *A Network Analysis on Cloud Gaming: Stadia, GeForce Now and PSNow*, Network 1(3),
//!   2021; Lyu et al., *Network Anatomy and Real-Time Measurement of Nvidia GeForce NOW*, PAM 2024.
//! - 3GPP TR 38.838: extended reality at 60 to 120 frames a second.
//! - Michel et al., *Enabling Passive Measurement of Zoom Performance in Production Networks*, IMC 2022.
//! - RFC 3551 (G.711), RFC 6716 (Opus): voice in packets of 20 ms.
//! - HTTP Archive, *Web Almanac* 2022 (page weight): some 70 objects and 2 MB a page at the median.

/// From, to.
pub type Range = (f64, f64);

/// A kind of link.
#[derive(Clone, Copy, Debug)]
pub struct LinkKind {
    /// Its name.
    pub name: &'static str,
    /// How often it is drawn, against the others.
    pub weight: f64,
    /// Towards the client, Mbit/s.
    pub down: Range,
    /// Towards the server, Mbit/s.
    pub up: Range,
    /// Round-trip time without load, ms.
    pub rtt: Range,
    /// Spread of the round-trip time, a share of it.
    pub jitter: Range,
    /// Distribution of the jitter.
    pub shape: &'static str,
    /// Length of the queue, ms at the link's mean rate.
    pub queue: Range,
    /// Probability that it loses packets beside those that its queue drops.
    pub lossy: f64,
    /// Of those that do, per cent.
    pub loss: Range,
    /// Packets lost at a time.
    pub burst: Range,
    /// Standard deviation of the rate's logarithm; 0: a steady rate.
    pub variation: Range,
    /// Seconds after which a rate is forgotten.
    pub memory: Range,
    /// Seconds between short outages; 0: none.
    pub outage_every: Range,
    /// Their length, ms.
    pub outage: Range,
}

/// Links. Rates are cut where a user's share of the network rarely gets, which also bounds the time of runs.
pub const LINKS: &[LinkKind] = &[
    LinkKind {
        name: "wifi",
        weight: 0.26,
        down: (8.0, 200.0),
        up: (5.0, 120.0),
        rtt: (12.0, 60.0),
        jitter: (0.05, 0.4),
        shape: "pareto",
        queue: (20.0, 400.0),
        lossy: 0.5,
        loss: (0.02, 1.5),
        burst: (1.0, 6.0),
        variation: (0.15, 0.6),
        memory: (0.2, 4.0),
        outage_every: (0.0, 0.0),
        outage: (0.0, 0.0),
    },
    LinkKind {
        name: "dsl",
        weight: 0.12,
        down: (4.0, 100.0),
        up: (0.6, 30.0),
        rtt: (14.0, 60.0),
        jitter: (0.01, 0.05),
        shape: "normal",
        queue: (60.0, 1000.0),
        lossy: 0.15,
        loss: (0.01, 0.2),
        burst: (1.0, 3.0),
        variation: (0.0, 0.0),
        memory: (0.0, 0.0),
        outage_every: (0.0, 0.0),
        outage: (0.0, 0.0),
    },
    LinkKind {
        name: "cable",
        weight: 0.08,
        down: (30.0, 250.0),
        up: (3.0, 40.0),
        rtt: (12.0, 40.0),
        jitter: (0.05, 0.25),
        shape: "normal",
        queue: (20.0, 300.0),
        lossy: 0.1,
        loss: (0.01, 0.1),
        burst: (1.0, 2.0),
        variation: (0.0, 0.0),
        memory: (0.0, 0.0),
        outage_every: (0.0, 0.0),
        outage: (0.0, 0.0),
    },
    LinkKind {
        name: "fibre",
        weight: 0.05,
        down: (50.0, 250.0),
        up: (20.0, 250.0),
        rtt: (4.0, 25.0),
        jitter: (0.01, 0.05),
        shape: "normal",
        queue: (5.0, 60.0),
        lossy: 0.1,
        loss: (0.001, 0.02),
        burst: (1.0, 2.0),
        variation: (0.0, 0.0),
        memory: (0.0, 0.0),
        outage_every: (0.0, 0.0),
        outage: (0.0, 0.0),
    },
    LinkKind {
        name: "3g",
        weight: 0.06,
        down: (0.5, 8.0),
        up: (0.2, 3.0),
        rtt: (60.0, 250.0),
        jitter: (0.05, 0.3),
        shape: "pareto",
        queue: (300.0, 3000.0),
        lossy: 0.4,
        loss: (0.02, 1.0),
        burst: (1.0, 5.0),
        variation: (0.6, 1.3),
        memory: (0.5, 9.0),
        outage_every: (15.0, 120.0),
        outage: (100.0, 1000.0),
    },
    LinkKind {
        name: "4g",
        weight: 0.22,
        down: (3.0, 80.0),
        up: (1.0, 30.0),
        rtt: (35.0, 120.0),
        jitter: (0.05, 0.3),
        shape: "pareto",
        queue: (100.0, 2000.0),
        lossy: 0.3,
        loss: (0.01, 0.5),
        burst: (1.0, 5.0),
        variation: (0.3, 1.1),
        memory: (0.3, 10.0),
        outage_every: (20.0, 200.0),
        outage: (50.0, 500.0),
    },
    LinkKind {
        name: "5g",
        weight: 0.11,
        down: (30.0, 250.0),
        up: (8.0, 80.0),
        rtt: (14.0, 60.0),
        jitter: (0.05, 0.3),
        shape: "pareto",
        queue: (30.0, 500.0),
        lossy: 0.2,
        loss: (0.005, 0.2),
        burst: (1.0, 5.0),
        variation: (0.2, 0.9),
        memory: (0.2, 5.0),
        outage_every: (20.0, 200.0),
        outage: (50.0, 300.0),
    },
    LinkKind {
        name: "starlink",
        weight: 0.08,
        down: (50.0, 250.0),
        up: (5.0, 30.0),
        rtt: (30.0, 70.0),
        jitter: (0.1, 0.3),
        shape: "normal",
        queue: (30.0, 250.0),
        lossy: 0.7,
        loss: (0.1, 1.5),
        burst: (2.0, 10.0),
        variation: (0.2, 0.8),
        memory: (3.0, 12.0),
        outage_every: (15.0, 15.0),
        outage: (20.0, 300.0),
    },
    LinkKind {
        name: "geo",
        weight: 0.02,
        down: (10.0, 100.0),
        up: (2.0, 10.0),
        rtt: (560.0, 750.0),
        jitter: (0.01, 0.05),
        shape: "normal",
        queue: (100.0, 1000.0),
        lossy: 0.4,
        loss: (0.01, 0.5),
        burst: (1.0, 5.0),
        variation: (0.0, 0.0),
        memory: (0.0, 0.0),
        outage_every: (0.0, 0.0),
        outage: (0.0, 0.0),
    },
];

/// How often there are two, three, four paths (a choice).
pub const PATHS: [(usize, f64); 3] = [(2, 0.78), (3, 0.16), (4, 0.06)];

/// A kind of workload.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadKind {
    /// Its name, the family of its cells.
    pub name: &'static str,
    /// How often it is drawn, against the others.
    pub weight: f64,
    /// What it is.
    pub what: What,
}

/// The quantities of a kind of workload.
#[derive(Clone, Copy, Debug)]
pub enum What {
    /// One flow, its size in KiB.
    Flow(Range),
    /// Flows at once, their number and size in KiB.
    Flows(Range, Range),
    /// A page: objects, their size in KiB, connections.
    Web(Range, Range, Range),
    /// Exchanges one after another: how many, the response in KiB, the pause in ms.
    Exchanges(Range, Range, Range),
    /// As much as possible for so many seconds.
    Bulk(Range),
    /// Frames.
    Frames {
        /// Frames a second.
        frames: Range,
        /// Their rate without key frames, Mbit/s.
        rate: Range,
        /// Key frames: how much larger, and seconds between two; none where the first is 0.
        key: (Range, Range),
        /// Deadline, ms.
        deadline: Range,
        /// Probability that the client sends them.
        upload: f64,
    },
}

const NONE: Range = (0.0, 0.0);

/// Workloads. Sizes of flows and exchanges, pauses and weights are a choice.
pub const WORKLOADS: &[WorkloadKind] = &[
    WorkloadKind { name: "flow", weight: 0.34, what: What::Flow((8.0, 32_768.0)) },
    WorkloadKind { name: "flows", weight: 0.06, what: What::Flows((2.0, 12.0), (16.0, 2048.0)) },
    WorkloadKind { name: "web", weight: 0.08, what: What::Web((8.0, 90.0), (4.0, 120.0), (1.0, 6.0)) },
    WorkloadKind {
        name: "exchanges",
        weight: 0.12,
        what: What::Exchanges((5.0, 20.0), (1.0, 1024.0), (1.0, 1000.0)),
    },
    WorkloadKind { name: "bulk", weight: 0.06, what: What::Bulk((4.0, 8.0)) },
    WorkloadKind {
        name: "video",
        weight: 0.14,
        what: What::Frames {
            frames: (20.0, 60.0),
            rate: (0.3, 5.0),
            key: ((5.0, 10.0), (1.0, 5.0)),
            deadline: (50.0, 150.0),
            upload: 0.5,
        },
    },
    WorkloadKind {
        name: "voice",
        weight: 0.05,
        what: What::Frames {
            frames: (50.0, 50.0),
            rate: (0.024, 0.08),
            key: (NONE, NONE),
            deadline: (80.0, 150.0),
            upload: 0.5,
        },
    },
    WorkloadKind {
        name: "gaming",
        weight: 0.07,
        what: What::Frames {
            frames: (60.0, 60.0),
            rate: (6.0, 40.0),
            key: (NONE, NONE),
            deadline: (50.0, 100.0),
            upload: 0.0,
        },
    },
    WorkloadKind {
        name: "xr",
        weight: 0.04,
        what: What::Frames {
            frames: (60.0, 90.0),
            rate: (30.0, 80.0),
            key: ((2.0, 4.0), (0.5, 2.0)),
            deadline: (50.0, 80.0),
            upload: 0.0,
        },
    },
    WorkloadKind {
        name: "telemetry",
        weight: 0.04,
        what: What::Frames {
            frames: (2.0, 50.0),
            rate: (0.005, 0.4),
            key: (NONE, NONE),
            deadline: (100.0, 1000.0),
            upload: 0.9,
        },
    },
];

/// Seconds that frames are sent for.
pub const FRAMES_FOR: f64 = 8.0;

/// Frames have at most this share of the sum of the paths' mean rates, key frames included: senders of video
/// adapt their rate to what the network gives (RFC 8836).
pub const FRAMES_SHARE: Range = (0.3, 0.85);

/// Flows, pages and exchanges are cut to what all paths together carry in so many seconds.
pub const CARRIED_IN: f64 = 10.0;

/// Probability that the client sends what isn't frames (a choice).
pub const UPLOAD: f64 = 0.2;

/// Probability that a path has competing traffic (a choice), and the kinds of it, one as likely as the other.
pub const COMPETITION: f64 = 0.2;

/// Saturated TCP flows on such a path.
pub const SATURATED: Range = (1.0, 8.0);
/// Users whose TCP flows follow one another, KiB each, with pauses in ms.
pub const USERS: (Range, Range, Range) = ((2.0, 12.0), (16.0, 2048.0), (50.0, 2000.0));
/// UDP that is on and off, a share of the link's rate; seconds.
pub const UDP: (Range, Range) = ((0.1, 0.6), (0.2, 3.0));

/// Probability that all paths run through one bottleneck, and its rate, a share of their sum (a choice).
pub const SHARED: (f64, Range) = (0.1, (0.4, 1.0));

/// Probability of a receive buffer that doesn't grow, and its size, KiB (a choice: what applications set).
pub const BUFFER: (f64, Range) = (0.25, (64.0, 1024.0));

/// Probability that one of the paths goes down for some time; when, and for how long, s (a choice).
pub const DOWN: (f64, Range, Range) = (0.08, (0.1, 5.0), (0.3, 20.0));
