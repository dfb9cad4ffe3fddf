//! How far what arrives on a subflow opens the receive window (net/ipv4/tcp_input.c, `tcp_grow_window`,
//! `tcp_measure_rcv_mss` and `tcp_rcvbuf_grow`, as of Linux 6.18).
//!
//! Each subflow has a buffer of its own size and a limit of its own up to which it opens; the connection has
//! another size, and offers what is less ([`super::receive::ReceiveSide`]). A buffer's size is memory; what
//! window it makes depends on the share of a packet's memory that is payload, the scaling ratio, half until a
//! subflow has received something.

use crate::Span;

/// A segment of the usual size.
const SEGMENT: u64 = 1460;

/// What timestamps take of it.
const TIMESTAMPS: u64 = 12;

/// What is taken as read in a round trip before anything was: ten segments, what the peer may send in its
/// first, or what an older kernel's first window of `segments` allows.
pub(super) fn first_space(segments: u32) -> u64 {
    let segments = if segments == 0 { 10 } else { u64::from(segments) };
    segments * (SEGMENT - TIMESTAMPS)
}

/// Segments of less payload don't open the window.
const LEAST_TO_OPEN: u64 = 128;

/// Only longer segments say what is payload of a packet's memory (TCP_MSS_DEFAULT).
const LEAST_TO_MEASURE: u64 = 536;

/// The whole of a buffer, in units of the scaling ratio.
const WHOLE: u64 = 256;

/// The ratio before anything was received (TCP_DEFAULT_SCALING_RATIO).
pub(super) const FIRST_RATIO: u64 = 128;

/// What a window of `window` bytes takes in memory.
pub(super) fn memory_for(window: u64, ratio: u64) -> u64 {
    window.saturating_mul(WHOLE) / ratio.max(1)
}

/// The window that `memory` bytes make.
pub(super) fn window_of(memory: u64, ratio: u64) -> u64 {
    memory.saturating_mul(ratio) / WHOLE
}

/// How large a window becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// Twice what was read, and twice more in the proportion in which it has grown, for slow start.
    Proportional,
    /// Twice what was read and 16 segments, and half more or twice that if it has grown by a quarter or by
    /// half (Linux 3.13's `tcp_rcv_space_adjust`).
    InSteps,
}

impl Growth {
    /// The window for `copied` bytes read in a round trip where it was `before` in the one before.
    pub(super) fn wanted(self, before: u64, copied: u64) -> u64 {
        match self {
            Growth::Proportional => {
                let window = 2 * copied;
                let growth = u128::from(window) * u128::from(copied.saturating_sub(before))
                    / u128::from(before.max(1));
                window.saturating_add(2 * u64::try_from(growth).unwrap_or(u64::MAX / 4))
            }
            Growth::InSteps => {
                let window = 2 * copied + 16 * (SEGMENT - TIMESTAMPS);
                match copied {
                    _ if copied >= before + before / 2 => 2 * window,
                    _ if copied >= before + before / 4 => window + window / 2,
                    _ => window,
                }
            }
        }
    }
}

/// Memory that a packet with `len` bytes of payload takes (`truesize`): with headers and the buffer's own end
/// in a power of two, or in pages, and the descriptor. 2304 bytes for a segment of the usual size.
fn packet_memory(len: u64) -> u64 {
    const HEADERS: u64 = 52 + 64;
    const END: u64 = 320;
    const DESCRIPTOR: u64 = 256;
    const PAGE: u64 = 4096;
    let whole = len + HEADERS + END;
    let rounded = if whole <= PAGE { whole.next_power_of_two() } else { whole.next_multiple_of(PAGE) };
    rounded + DESCRIPTOR
}

/// How long it is measured what the application reads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Interval {
    /// Its length; 0: not known yet.
    pub length: Span,
    /// The round trip that it is a part of.
    pub stands_for: Span,
    /// Its length may have changed after so long.
    pub look_after: Span,
    /// How large the window becomes by what was read in it.
    pub growth: Growth,
}

/// One subflow's part in the window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WindowAutotuning {
    /// How far it has opened: rcv_ssthresh.
    opened: u64,
    /// How far it may: what its buffer makes beside the packet that just came.
    cap: u64,
    /// From here on it opens no further, though it may by `cap`: where packets take more memory than window,
    /// it opens to half of the greatest buffer's window only (`__tcp_grow_window` until Linux 5.12).
    stop: u64,
    /// Payload of the largest segment so far, by which the ratio goes.
    largest: u64,
    /// Its buffer's size; 0: as large as the connection's, and fixed.
    memory: u64,
    ratio: u64,
    /// Whether `ratio` is measured from what arrives. Older kernels don't: half of the memory is window
    /// (`tcp_adv_win_scale` = 1).
    measures: bool,
    /// What was read in a round trip when its buffer last grew.
    space: u64,
}

impl WindowAutotuning {
    /// The buffer is `initial` bytes at first and may grow to `max`. The first window is at most `segments`
    /// segments, or 64 KiB if that is 0.
    pub fn new(initial: u64, max: u64, segments: u32) -> Self {
        let fixed = initial >= max;
        // One segment is kept back where that leaves two (`tcp_init_buffer_space`).
        let reserve = if fixed || initial <= 3 * SEGMENT { 0 } else { SEGMENT - TIMESTAMPS };
        let first = if segments == 0 { 65_535 } else { u64::from(segments) * (SEGMENT - TIMESTAMPS) };
        WindowAutotuning {
            opened: (initial - reserve).min(first),
            cap: initial - reserve,
            stop: u64::MAX,
            largest: LEAST_TO_MEASURE,
            memory: if fixed { 0 } else { memory_for(initial, FIRST_RATIO) },
            ratio: FIRST_RATIO,
            measures: segments == 0,
            space: first_space(segments),
        }
    }

    /// Where a full segment takes so many bytes of memory, and the window may become `max`: a segment that
    /// takes more of the window than it brings lets it open to half of that, or as often halved as its memory
    /// has to be to become less than its payload.
    pub fn counting(mut self, segment_memory: u32, max: u64) -> Self {
        let window = u64::from(segment_memory) / 2;
        if window > SEGMENT - TIMESTAMPS {
            let mut halvings = 1;
            while window >> halvings > SEGMENT - TIMESTAMPS {
                halvings += 1;
            }
            self.stop = (max >> halvings) + 1;
        }
        self
    }

    /// The window that this subflow lets the connection offer.
    #[inline]
    pub fn opened(&self) -> u64 {
        self.opened
    }

    /// The connection's window has opened to `window` bytes.
    pub fn follow(&mut self, window: u64) {
        self.opened = self.opened.max(window.min(self.cap));
    }

    /// Which share of its packets' memory is payload, of 256.
    pub fn ratio(&self) -> u64 {
        self.ratio
    }

    /// `len` bytes arrived in one segment: it opens by twice that, by two segments at least. Whether it
    /// opened at all.
    #[inline]
    pub fn open(&mut self, len: u64) -> bool {
        if len > self.largest {
            self.measure(len);
        }
        let opens = self.opened < self.cap.min(self.stop) && len >= LEAST_TO_OPEN;
        if opens {
            self.opened = (self.opened + 2 * len.max(SEGMENT)).min(self.cap);
        }
        opens
    }

    /// The connection's buffer grew since `copied` bytes were read in a round trip, and the subflow's
    /// follows, by its own measure of what there was before.
    pub(super) fn grow(&mut self, growth: Growth, copied: u64, max: u64) {
        if self.memory > 0 {
            let window = growth.wanted(self.space, copied).min(max);
            self.space = copied;
            self.memory = self.memory.max(memory_for(window, self.ratio));
            self.limit();
        }
    }

    /// Subflows' buffers were added to the connection's, which makes a window of `window` bytes now.
    pub fn raise(&mut self, window: u64) {
        self.cap = self.cap.max(window.saturating_sub(SEGMENT - TIMESTAMPS));
    }

    /// The connection's buffer was given another size, with a window of `window` bytes.
    pub fn resize(&mut self, window: u64, is_fixed: bool) {
        self.memory = if is_fixed { 0 } else { self.memory.max(memory_for(window, self.ratio)) };
        self.cap = self.cap.max(window);
    }

    #[cold]
    fn measure(&mut self, len: u64) {
        self.largest = len;
        if self.memory > 0 && self.measures {
            self.ratio = (len * WHOLE / packet_memory(len)).max(1);
            self.limit();
        }
    }

    fn limit(&mut self) {
        let beside = self.memory.saturating_sub(packet_memory(self.largest));
        self.cap = self.cap.max(window_of(beside, self.ratio));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `ss -tMim` of a 6.18 kernel that reads a mebibyte over two subflows: rb131072 at first, rcv_ssthresh
    /// 64088, then 78971.
    #[test]
    fn the_first_full_segment_shows_how_much_of_the_buffer_is_payload() {
        let mut autotuning = WindowAutotuning::new(65_536, 6 << 20, 0);
        assert_eq!((autotuning.opened(), autotuning.ratio(), autotuning.memory), (64_088, 128, 131_072));
        let mut segments = 0;
        while autotuning.open(1420) {
            segments += 1;
        }
        assert_eq!((autotuning.opened(), autotuning.ratio(), segments), (78_971, 157, 6));
    }

    /// The same connection: 28,400 bytes in a round trip, then 44,632. rb270684 and rb311928 on the subflow
    /// that data came on, rb332012 and rb382600 on the one that had none.
    #[test]
    fn its_buffer_follows_by_its_own_measure() {
        let [mut busy, mut idle] = [WindowAutotuning::new(65_536, 6 << 20, 0); 2];
        busy.open(1420);
        for (copied, expected) in [(28_400, [270_684, 332_012]), (44_632, [311_928, 382_600])] {
            busy.grow(Growth::Proportional, copied, 6 << 20);
            idle.grow(Growth::Proportional, copied, 6 << 20);
            for (memory, expected) in [busy.memory, idle.memory].into_iter().zip(expected) {
                assert!(memory.abs_diff(expected) <= 4, "{memory}, not {expected}");
            }
        }
        while busy.open(1420) {}
        assert!(busy.opened().abs_diff(189_886) <= 4, "{}", busy.opened());
    }

    #[test]
    fn it_opens_by_twice_what_arrives_and_small_segments_do_nothing() {
        let mut autotuning = WindowAutotuning::new(65_536, 6 << 20, 0);
        autotuning.grow(Growth::Proportional, 300_000, 6 << 20);
        assert!(!autotuning.open(127));
        assert!(autotuning.open(1448));
        assert_eq!(autotuning.opened(), 64_088 + 2 * 1460);
        assert!(autotuning.open(4000));
        assert_eq!(autotuning.opened(), 64_088 + 2 * 1460 + 2 * 4000);
    }

    #[test]
    fn a_fixed_buffer_is_a_window_as_it_is() {
        let mut autotuning = WindowAutotuning::new(200_000, 200_000, 0);
        assert_eq!(autotuning.opened(), 65_535);
        while autotuning.open(1448) {}
        autotuning.grow(Growth::Proportional, 1_000_000, 200_000);
        assert!(!autotuning.open(1448));
        assert_eq!(autotuning.opened(), 200_000);
        assert_eq!(WindowAutotuning::new(1000, 1000, 0).opened(), 1000);
        assert_eq!(WindowAutotuning::new(1000, 5000, 0).opened(), 1000, "nothing to keep back of so little");
    }

    /// Linux 3.14 offers 28,960 bytes at first (`tcp_default_init_rwnd`: 20 segments), and two segments more
    /// for each that comes, up to what its buffer makes.
    #[test]
    fn an_old_host_offers_twenty_segments_at_first() {
        let mut autotuning = WindowAutotuning::new(187_200, 3 << 20, 20);
        assert_eq!(autotuning.opened(), 28_960);
        for arrived in 1..=10 {
            assert!(autotuning.open(1448));
            assert_eq!(autotuning.opened(), 28_960 + arrived * 2 * 1460);
        }
        assert_eq!(WindowAutotuning::new(15_000, 15_000, 20).opened(), 15_000, "a small buffer is less");
        autotuning.follow(100_000);
        assert_eq!(autotuning.opened(), 100_000, "what came on another subflow");
        autotuning.follow(90_000);
        autotuning.follow(10 << 20);
        assert_eq!(autotuning.opened(), 187_200 - 1448, "its own buffer is the limit");
    }

    /// `__tcp_grow_window`: a segment of 1428 bytes in 4352 takes 2176 of the window. Then the window opens
    /// to half of the greatest.
    #[test]
    fn segments_that_take_more_than_they_bring_open_half_of_the_window() {
        let opened = |memory| {
            let mut autotuning = WindowAutotuning::new(65_536, 65_536, 20).counting(memory, 65_536);
            while autotuning.open(1428) {}
            autotuning.opened()
        };
        assert_eq!([0, 2304].map(opened), [65_536; 2]);
        assert_eq!(opened(4352), 28_960 + 2 * 2 * 1460, "the step that passes 32,768 is whole");
        assert_eq!(opened(8704), 28_960, "a quarter of it, which is offered at first");
    }

    #[test]
    fn packets_take_powers_of_two_and_pages() {
        assert_eq!([1420, 1448, 500, 8948].map(packet_memory), [2304, 2304, 1280, 12_544]);
    }

    #[test]
    fn twice_what_was_read_and_twice_more_as_it_grows() {
        let wanted = |before, copied| Growth::Proportional.wanted(before, copied);
        assert_eq!(wanted(14_480, 28_960), 3 * 2 * 28_960);
        assert_eq!(
            wanted(26_064, 39_096),
            156_384,
            "the kernel's own, as its tracepoint tcp_rcvbuf_grow tells"
        );
        assert_eq!(wanted(10_000, 5000), 10_000);
    }

    /// Linux 3.13: rcvwin = 2 copied + 16 advmss, three halves of it from a quarter more on, and twice from a
    /// half more on.
    #[test]
    fn older_kernels_grow_in_steps() {
        let wanted = |before, copied| Growth::InSteps.wanted(before, copied);
        let steady = 2 * 40_000 + 16 * 1448;
        assert_eq!(wanted(40_000, 40_000), steady);
        assert_eq!(wanted(32_001, 40_000), steady);
        assert_eq!(wanted(32_000, 40_000), steady * 3 / 2);
        assert_eq!(wanted(26_668, 40_000), steady * 3 / 2);
        assert_eq!(wanted(26_666, 40_000), steady * 2);
    }
}
