//! What a link carried over time, as a trace: opportunities to send a packet of 1500 bytes. Of a recording
//! that has too many, blocks are left out, so that it takes bounded memory however long it is.

use ropewalk_link::RateTrace;

/// Length of a block, milliseconds.
pub(super) const BLOCK: u64 = 10_000;

/// Blocks that are kept at most: a week; and at least, if they hold no more than `MOST`.
const BLOCKS: usize = 65_536;
const LEAST: usize = 16;

/// Opportunities that are ever kept.
pub(super) const MOST: usize = 100_000_000;

/// The opportunities of both directions, by block.
#[derive(Default)]
pub(super) struct Recording {
    /// Opportunities from which on blocks are left out.
    most: usize,
    /// Of so many blocks one is kept, less one.
    skipped: u64,
    /// Of each kept block, when its opportunities are, milliseconds after its beginning.
    blocks: Vec<[Vec<u16>; 2]>,
    count: usize,
}

impl Recording {
    pub(super) fn new(most: usize) -> Self {
        Recording { most, ..Recording::default() }
    }

    /// Of so many blocks one is kept.
    pub(super) fn one_in(&self) -> u64 {
        self.skipped + 1
    }

    /// What was left out.
    pub(super) fn note(&self) -> Option<String> {
        let seconds = BLOCK / 1000;
        let one_in = self.one_in();
        (one_in > 1).then(|| format!("long: of its blocks of {seconds} s one in {one_in} is taken"))
    }

    /// Whether anything of this span (milliseconds) is kept.
    pub(super) fn keeps(&self, from: u64, to: u64) -> bool {
        (block(from)..=block(to)).any(|block| block.is_multiple_of(self.one_in()))
    }

    /// Adds an opportunity in this direction; false: even one block has too many.
    pub(super) fn push(&mut self, way: usize, at: u64) -> bool {
        let number = block(at);
        if !number.is_multiple_of(self.one_in()) {
            return true;
        }
        let place = (number / self.one_in()) as usize;
        if place >= BLOCKS {
            self.thin();
            return self.push(way, at);
        }
        if self.blocks.len() <= place {
            self.blocks.resize_with(place + 1, Default::default);
        }
        self.blocks[place][way].push((at - number * BLOCK) as u16);
        self.count += 1;
        let too_many = |all: &Self| {
            let few = all.blocks.len() <= LEAST && all.count <= MOST / 2;
            all.count > all.most && all.blocks.len() > 1 && !few
        };
        while too_many(self) {
            self.thin();
        }
        self.count <= MOST
    }

    /// Leaves out every other block.
    fn thin(&mut self) {
        let mut place = 0;
        self.blocks.retain(|_| {
            place += 1;
            place % 2 == 1
        });
        self.skipped = 2 * self.skipped + 1;
        self.count = self.blocks.iter().flatten().map(Vec::len).sum();
    }

    /// The trace of a direction, of a recording of this length (milliseconds). The last entry of it is its
    /// period; `marked`: one is added for that.
    pub(super) fn trace(&self, name: &str, way: usize, length: u64, marked: bool) -> RateTrace {
        let mut opportunities =
            Vec::with_capacity(self.blocks.iter().map(|of| of[way].len()).sum::<usize>() + 1);
        for (place, of) in self.blocks.iter().enumerate() {
            let begin = place as u64 * BLOCK;
            opportunities.extend(of[way].iter().map(|at| (begin + u64::from(*at)) as u32));
        }
        let last = block(length);
        let kept = last / self.one_in();
        let rest = if last.is_multiple_of(self.one_in()) { length - last * BLOCK } else { BLOCK };
        let period = ((kept * BLOCK + rest).min(u64::from(u32::MAX)) as u32).max(1);
        if marked || opportunities.last().is_none_or(|at| *at < period) {
            opportunities.push(period);
        }
        opportunities.sort_unstable();
        RateTrace::new(name, opportunities)
    }
}

/// The number of the block that this millisecond is in; it begins after the end of the one before.
fn block(at: u64) -> u64 {
    at.saturating_sub(1) / BLOCK
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_left_out_evenly_and_closed_up() {
        // Ten a second, for an hour.
        let mut recording = Recording::new(5000);
        for at in 1..=36_000u64 {
            assert!(recording.push(0, at * 100));
        }
        assert_eq!(recording.one_in(), 8);
        let trace = recording.trace("x", 0, 3_600_000, false);
        let opportunities: Vec<u32> = trace.opportunities().collect();
        let apart = opportunities.windows(2).map(|pair| pair[1] - pair[0]);
        assert_eq!(apart.max(), Some(100));
        assert_eq!(opportunities.last(), Some(&450_000));
        // Whole, it is what was put in.
        let mut recording = Recording::new(5000);
        let all = [0, 0, 3, 10_000, 10_001, 25_000, 25_000];
        assert!(all.iter().all(|at| recording.push(1, *at)));
        let trace = recording.trace("x", 1, 25_000, false);
        assert_eq!(trace.opportunities().collect::<Vec<_>>(), [0, 0, 3, 10_000, 10_001, 25_000, 25_000]);
        // However many there are in one, some blocks are kept.
        assert!((1..=200_000).all(|at| recording.push(0, at)));
        assert_eq!(recording.one_in(), 2);
    }
}
