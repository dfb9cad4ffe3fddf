//! A case: the network, the settings of both ends, and the operations with their times. The case's number
//! determines all of it, so that the number reproduces a failure.

use std::sync::OnceLock;

use crate::split_mix::SplitMix64;
use ropewalk_engine::{MILLISECOND, SECOND, Span, congestion, scheduler};

impl SplitMix64 {
    pub fn chance(&mut self, probability: f64) -> bool {
        ((self.next() >> 11) as f64) < probability * (1u64 << 53) as f64
    }

    /// At least `low`, less than `high`.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.next() % (high - low).max(1)
    }

    /// Less than `end`.
    pub fn span(&mut self, end: Span) -> Span {
        Span::from_nanos(self.range(0, end.as_nanos()))
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.range(0, of.len() as u64) as usize]
    }
}

/// One path, the same both ways.
#[derive(Clone, Debug)]
pub struct PathCase {
    /// Bytes per second.
    pub rate: u64,
    pub delay: Span,
    /// Each packet is delayed by up to this much more, on its own: packets overtake each other.
    pub jitter: Span,
    pub loss: f64,
    pub duplicate: f64,
    /// Packets.
    pub queue: usize,
    /// Super-segments are cut and joined at other places than the engine's.
    pub reshape: bool,
    /// Segments are cut in two, and two that follow each other are joined, where their mappings allow it.
    pub resegment: bool,
    /// A byte of a mapping with a checksum is altered.
    pub flip: f64,
    pub strip: Option<Strip>,
}

/// A middlebox that strips MPTCP's options.
#[derive(Clone, Copy, Debug)]
pub struct Strip {
    /// From the packet with this index on, both ways counted together.
    pub from: u64,
    /// For that many packets.
    pub count: u64,
    /// Only of what this end sends.
    pub sender: Option<usize>,
}

/// How an application reads.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    /// All there is, at once.
    Eager,
    /// So many bytes, so often.
    Slow { size: usize, every: Span },
    /// Nothing for a time, then all.
    Pause { from: Span, until: Span },
}

#[derive(Clone, Debug)]
pub struct Side {
    pub scheduler: &'static str,
    pub congestion: &'static str,
    pub multipath: bool,
    pub checksum: bool,
    pub send_buffer: (u64, u64),
    pub receive_buffer: (u64, u64),
    pub sack: bool,
    pub timestamps: bool,
    pub window_scaling: bool,
    pub nagle: bool,
    pub gather: bool,
    pub ecn: bool,
    pub timestamp_offset: u32,
    pub reading: Reading,
    /// Segments per super-segment.
    pub burst: u32,
    /// Announces a further address.
    pub signal: bool,
    pub backup_path: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Op {
    Write { end: usize, len: u64 },
    Shutdown { end: usize },
    Close { end: usize },
    Abort { end: usize },
    Down { path: usize },
    Up { path: usize },
    AddPath { path: usize },
    RemovePath { end: usize, path: usize },
    Backup { end: usize, path: usize, on: bool },
}

/// Where numbers start.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wrap {
    /// Whose initial sequence number is this far before its wrap.
    pub isn: Option<(usize, u32)>,
    /// Keys whose initial data sequence numbers are just before the wrap of their low half.
    pub keys: [Option<u64>; 2],
}

#[derive(Clone, Debug)]
pub struct Case {
    pub seed: u64,
    /// Addresses of IPv6 instead of IPv4.
    pub ipv6: bool,
    pub paths: Vec<PathCase>,
    pub sides: [Side; 2],
    pub wrap: Wrap,
    /// In order of time, counted from the start.
    pub ops: Vec<(Span, Op)>,
}

/// Keys whose SHA-256 ends in a number at most 120,000 before 2^32.
const KEYS_BEFORE_WRAP: [u64; 16] = [
    14945, 34703, 39998, 69161, 89003, 97592, 205_204, 252_322, 254_931, 256_839, 366_068, 372_476, 402_058,
    421_968, 437_927, 444_450,
];

/// Every scheduler and congestion control there is, and variants that place or repeat data in other ways.
fn algorithms() -> &'static (Vec<&'static str>, Vec<&'static str>) {
    static ALL: OnceLock<(Vec<&str>, Vec<&str>)> = OnceLock::new();
    ALL.get_or_init(|| {
        let (schedulers, congestion) = (scheduler::builtin(), congestion::builtin());
        let mut schedulers: Vec<_> = schedulers.entries().iter().map(|entry| entry.name).collect();
        schedulers.extend(["minrtt:linux", "roundrobin:strict", "minrtt", "linux", "redundant"]);
        (schedulers, congestion.entries().iter().map(|entry| entry.name).collect())
    })
}

/// The algorithms of the golden cases, which a new algorithm doesn't change.
const GOLDEN_SCHEDULERS: [&str; 21] = [
    "minrtt",
    "roundrobin",
    "redundant",
    "linux",
    "blest",
    "ecf",
    "cfs",
    "single",
    "daps",
    "daps-two-path",
    "otias",
    "rtt-gate",
    "capacity",
    "cp",
    "hsr",
    "lws",
    "lts",
    "f2p-dps",
    "freeze",
    "minrtt:linux",
    "roundrobin:strict",
];
const GOLDEN_CONTROLS: [&str; 13] = [
    "reno",
    "cubic",
    "lia",
    "olia",
    "balia",
    "wvegas",
    "ewtcp",
    "coupled",
    "semicoupled",
    "rtt-compensator",
    "vegas",
    "veno",
    "mveno",
];

const KIB: u64 = 1024;

/// No stream is longer.
pub const MOST_BYTES: u64 = 200_000;

impl Case {
    pub fn new(number: u64) -> Case {
        let dice = &mut SplitMix64(number.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 0x0072_6f70_6577_616c);
        for _ in 0..3 {
            dice.next();
        }
        let paths: Vec<_> = (0..dice.pick(&[1, 1, 2, 2, 2, 3, 4])).map(|_| path(dice)).collect();
        let multipath = dice.chance(0.9);
        let mut sides = [side(dice, paths.len()), side(dice, paths.len())];
        for side in &mut sides {
            side.multipath = multipath || dice.chance(0.5);
        }
        let wraps = dice.chance(0.34);
        let wrap = if wraps {
            for side in &mut sides {
                side.timestamp_offset = (dice.range(0, 3000) as u32).wrapping_neg();
            }
            Wrap {
                isn: Some((dice.range(0, 2) as usize, dice.range(1, 60_000) as u32)),
                keys: [Some(dice.pick(&KEYS_BEFORE_WRAP)), Some(dice.pick(&KEYS_BEFORE_WRAP))],
            }
        } else {
            Wrap::default()
        };
        let mut case = Case { seed: dice.next(), ipv6: false, paths, sides, wrap, ops: Vec::new() };
        case.ops(dice);
        add_middlebox(&mut case, dice);
        // A generator of its own leaves the draws above unchanged.
        let dice = &mut SplitMix64(case.seed ^ 0x6f6e_6365);
        case.ipv6 = dice.chance(0.25);
        for path in &mut case.paths {
            path.resegment = dice.chance(0.2);
        }
        case
    }

    /// As [`new`](Self::new), with algorithms that don't depend on what the registry holds.
    pub fn golden(number: u64) -> Case {
        let mut case = Case::new(number);
        let dice = &mut SplitMix64(number);
        for side in &mut case.sides {
            (side.scheduler, side.congestion) = (dice.pick(&GOLDEN_SCHEDULERS), dice.pick(&GOLDEN_CONTROLS));
        }
        case
    }

    fn ops(&mut self, dice: &mut SplitMix64) {
        let paths = self.paths.len();
        let mut bytes = [dice.pick(&[0, 1, 700, 20_000, 60_000, 150_000]); 2];
        bytes[dice.range(0, 2) as usize] = dice.pick(&[0, 1, 3_000, 30_000, 100_000]);
        let slowest = self.paths.iter().map(|path| path.rate).min().unwrap_or(1);
        let rtt = self.rtt();
        let span = 4 * rtt + (bytes[0] + bytes[1]) * SECOND / slowest * 2;
        let mut ops = Vec::new();
        for (end, total) in bytes.into_iter().enumerate() {
            let pieces = dice.range(1, 4);
            for piece in 0..pieces {
                let len = total / pieces + u64::from(piece == 0) * (total % pieces);
                let at = if piece == 0 && dice.chance(0.8) { Span::ZERO } else { dice.span(span) };
                ops.push((at, Op::Write { end, len }));
            }
            let last = ops.iter().map(|(at, _)| *at).max().unwrap_or(Span::ZERO);
            let at = if dice.chance(0.5) { last } else { last + dice.span(span) };
            ops.push((at, Op::Shutdown { end }));
        }
        let end = dice.range(0, 2) as usize;
        match dice.range(0, 12) {
            0 => ops.push((dice.span(2 * span), Op::Abort { end })),
            1 => ops.push((dice.span(2 * span), Op::Close { end })),
            _ => {}
        }
        for path in 0..paths {
            if dice.chance(0.25) {
                let down = dice.span(span);
                ops.push((down, Op::Down { path }));
                if paths == 1 || dice.chance(0.7) {
                    let outage = dice.pick(&[rtt / 2, 2 * rtt, SECOND, 5 * SECOND, 20 * SECOND]);
                    ops.push((down + outage, Op::Up { path }));
                }
            }
            if dice.chance(0.1) {
                let at = dice.span(span);
                ops.push((at, Op::Backup { end, path, on: dice.chance(0.7) }));
            }
            if paths > 1 && dice.chance(0.12) {
                let at = dice.span(span);
                ops.push((at, Op::RemovePath { end, path }));
                if dice.chance(0.5) {
                    ops.push((at + dice.span(span), Op::AddPath { path }));
                }
            }
        }
        ops.sort_by_key(|(at, _)| *at);
        self.ops = ops;
    }

    /// Round-trip time on the slowest path, with its queue as full as these few bytes can make it.
    pub fn rtt(&self) -> Span {
        let of = |path: &PathCase| {
            let queued = (path.queue as u64 * 1500).min(self.bytes() + 20_000);
            2 * (path.delay + path.jitter) + 2 * queued * SECOND / path.rate
        };
        self.paths.iter().map(of).max().unwrap_or(Span::ZERO)
    }

    pub fn bytes(&self) -> u64 {
        let written = |(_, op): &(Span, Op)| if let Op::Write { len, .. } = op { *len } else { 0 };
        self.ops.iter().map(written).sum()
    }

    /// The time that the transfer may take after the last operation while any path delivers. All that can add
    /// up is added up: every byte over the slowest path; a round trip and a delayed ACK for each window of
    /// the smallest size; a timeout for each packet that is lost, with the doublings it may meet; what the
    /// readers take.
    pub fn bound(&self) -> Span {
        let bytes = self.bytes();
        let slowest = self.paths.iter().map(|path| path.rate).min().unwrap_or(1);
        let loss = self.paths.iter().map(|path| path.loss).fold(0.0, f64::max);
        let window = self
            .sides
            .iter()
            .map(|side| side.send_buffer.0.min(side.receive_buffer.0).min(8 * KIB))
            .min()
            .unwrap_or(1)
            .max(500);
        // Where short segments are held back, or a subflow's own buffer is as small as the window, a window
        // of a segment and a half goes in halves, each of which waits for a delayed ACK.
        let halves = |side: &Side| side.nagle || matches!(side.scheduler, "linux" | "otias");
        let (window, wait) = match self.sides.iter().any(halves) {
            true => ((window / 2).max(500), 250 * MILLISECOND),
            false => (window, 50 * MILLISECOND),
        };
        let rounds = bytes / window + 10;
        let segments = bytes / 1000 + 20;
        let losses = (segments as f64 * loss * 2.0) as u64 + 4;
        let timeout = self.rtt() + 300 * MILLISECOND;
        let readers: Span = self
            .sides
            .iter()
            .map(|side| match side.reading {
                Reading::Eager => Span::ZERO,
                Reading::Slow { size, every } => bytes / size as u64 * every,
                Reading::Pause { from, until } => until - from,
            })
            .sum();
        bytes * SECOND / slowest + rounds * (self.rtt() + wait) + losses * 4 * timeout + readers + 5 * SECOND
    }

    /// How long a transfer may take longer because of outages of `starved` in all. By the end of an outage
    /// the retransmission timeout is as long as the outage, and each further loss doubles it, up to 120 s. So
    /// many losses in a row are allowed for that more are less likely than one in 100,000.
    pub fn after_outage(&self, starved: Span) -> Span {
        let loss = self.paths.iter().map(|path| path.loss).fold(0.0, f64::max);
        let (mut total, mut wait, mut likelihood) = (4 * starved, 2 * starved, loss);
        while likelihood > 1e-5 {
            likelihood *= loss;
            wait = (2 * wait).min(120 * SECOND);
            total += wait;
        }
        total
    }

    /// Cases a little simpler than this one, for reducing a failure.
    pub fn simpler(&self) -> Vec<Case> {
        let mut all = Vec::new();
        let mut vary = |change: &dyn Fn(&mut Case)| {
            let mut case = self.clone();
            change(&mut case);
            if format!("{case:?}") != format!("{self:?}") {
                all.push(case);
            }
        };
        for index in 0..self.ops.len() {
            if !matches!(self.ops[index].1, Op::Shutdown { .. }) {
                vary(&|case| {
                    case.ops.remove(index);
                });
            }
            vary(&|case| {
                if let Op::Write { len, .. } = &mut case.ops[index].1 {
                    *len /= 2;
                }
            });
        }
        for index in 0..self.paths.len() {
            vary(&|case| case.paths[index].loss = 0.0);
            vary(&|case| case.paths[index].jitter = Span::ZERO);
            vary(&|case| case.paths[index].duplicate = 0.0);
            vary(&|case| case.paths[index].reshape = false);
            vary(&|case| case.paths[index].resegment = false);
            vary(&|case| case.paths[index].flip = 0.0);
            vary(&|case| case.paths[index].strip = None);
        }
        if self.paths.len() > 1 {
            vary(&|case| {
                case.paths.pop();
                let paths = case.paths.len();
                case.ops.retain(|(_, op)| match op {
                    Op::Down { path }
                    | Op::Up { path }
                    | Op::AddPath { path }
                    | Op::RemovePath { path, .. }
                    | Op::Backup { path, .. } => *path < paths,
                    _ => true,
                });
            });
        }
        vary(&|case| case.wrap = Wrap::default());
        vary(&|case| case.ipv6 = false);
        for end in 0..2 {
            vary(&|case| case.sides[end].checksum = false);
            vary(&|case| case.sides[end].nagle = false);
            vary(&|case| case.sides[end].gather = false);
            vary(&|case| case.sides[end].ecn = false);
            vary(&|case| case.sides[end].signal = false);
            vary(&|case| case.sides[end].backup_path = None);
            vary(&|case| case.sides[end].reading = Reading::Eager);
            vary(&|case| case.sides[end].burst = 1);
            vary(&|case| case.sides[end].sack = true);
            vary(&|case| case.sides[end].timestamps = true);
            vary(&|case| case.sides[end].window_scaling = true);
            vary(&|case| case.sides[end].timestamp_offset = 0);
            vary(&|case| case.sides[end].send_buffer = (256 * KIB, 256 * KIB));
            vary(&|case| case.sides[end].receive_buffer = (256 * KIB, 256 * KIB));
            vary(&|case| case.sides[end].scheduler = "minrtt");
            vary(&|case| case.sides[end].congestion = "reno");
        }
        all
    }
}

fn path(dice: &mut SplitMix64) -> PathCase {
    let delay = dice.pick(&[0, 1, 5, 10, 20, 50, 150, 300]) * MILLISECOND + dice.span(MILLISECOND);
    PathCase {
        rate: dice.pick(&[60_000, 250_000, 1_250_000, 6_000_000, 100_000_000]),
        delay,
        jitter: if dice.chance(0.3) { dice.span(delay + 2 * MILLISECOND) } else { Span::ZERO },
        loss: dice.pick(&[0.0, 0.0, 0.0, 0.005, 0.02, 0.1]),
        duplicate: dice.pick(&[0.0, 0.0, 0.0, 0.02]),
        queue: dice.pick(&[4, 20, 100, 1000]),
        reshape: dice.chance(0.3),
        resegment: false,
        flip: 0.0,
        strip: None,
    }
}

fn buffer(dice: &mut SplitMix64) -> (u64, u64) {
    let size = dice.pick(&[2 * KIB + 100, 4 * KIB, 10 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB]);
    (size, if dice.chance(0.3) { size * dice.range(1, 8) } else { size })
}

fn side(dice: &mut SplitMix64, paths: usize) -> Side {
    let mut side = Side {
        scheduler: dice.pick(&algorithms().0),
        congestion: dice.pick(&algorithms().1),
        multipath: true,
        checksum: dice.chance(0.2),
        send_buffer: buffer(dice),
        receive_buffer: buffer(dice),
        sack: dice.chance(0.9),
        timestamps: dice.chance(0.85),
        window_scaling: dice.chance(0.9),
        nagle: dice.chance(0.2),
        gather: false,
        ecn: dice.chance(0.3),
        timestamp_offset: dice.next() as u32,
        reading: match dice.range(0, 10) {
            0 => {
                Reading::Slow { size: dice.pick(&[100, 1000, 5000]), every: dice.range(1, 30) * MILLISECOND }
            }
            1 => {
                let from = dice.span(2 * SECOND);
                Reading::Pause { from, until: from + dice.span(8 * SECOND) }
            }
            _ => Reading::Eager,
        },
        burst: dice.pick(&[1, 1, 2, 8, 40]),
        signal: dice.chance(0.15),
        backup_path: (paths > 1 && dice.chance(0.2)).then(|| dice.range(1, paths as u64) as usize),
    };
    // Without a draw of its own, so that the others stay what they are.
    side.gather = side.timestamp_offset.is_multiple_of(8);
    side
}

/// Middleboxes, in a share of the cases.
fn add_middlebox(case: &mut Case, dice: &mut SplitMix64) {
    let index = dice.range(0, case.paths.len() as u64) as usize;
    match dice.range(0, 10) {
        0 => {
            case.paths[index].strip = Some(Strip {
                from: dice.pick(&[0, 1, 2, 3, 4, 5, 6, 8, 12, 20, 40]),
                count: dice.pick(&[1, 2, u64::MAX, u64::MAX]),
                sender: dice.pick(&[None, None, Some(0), Some(1)]),
            });
        }
        1 => {
            case.paths[index].flip = dice.pick(&[0.01, 0.1, 0.5]);
            case.sides[dice.range(0, 2) as usize].checksum = true;
        }
        _ => {}
    }
}
