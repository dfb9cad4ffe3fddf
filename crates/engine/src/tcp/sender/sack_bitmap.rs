//! Which entries of a scoreboard are sacked, as bits. An entry's number is how many there were before it.
//! SACK blocks mostly cover what an earlier ACK reported: the bitmap passes 64 such entries in one step
//! without reading them.

/// Entries in a word.
const WORD: u64 = u64::BITS as u64;

/// Empty until something is sacked: most of many connections never need it.
#[derive(Debug, Default)]
pub(crate) struct SackBitmap(Option<Box<Ring>>);

/// A ring of words; its length is a power of two.
#[derive(Debug)]
struct Ring {
    words: Vec<u64>,
}

impl Ring {
    #[inline]
    fn word(&self, number: u64) -> usize {
        (number / WORD) as usize & (self.words.len() - 1)
    }
}

impl SackBitmap {
    /// Whether the bitmap is in use.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Starts with none sacked, and room for `entries` and more.
    #[cold]
    pub fn make_room(&mut self, entries: usize) {
        // The window may double before the bitmap is built again, and its first
        // and last words are used in part.
        let words = (2 * entries as u64).div_ceil(WORD) + 2;
        self.0 = Some(Box::new(Ring { words: vec![0; words.next_power_of_two() as usize] }));
    }

    /// An entry with this number is appended; the first on the scoreboard has the number `first`.
    #[inline]
    pub fn on_push(&mut self, number: u64, first: u64) {
        if number.is_multiple_of(WORD)
            && let Some(ring) = &mut self.0
        {
            if number / WORD - first / WORD < ring.words.len() as u64 {
                // The word may hold the bits of entries that were removed one ring ago.
                let word = ring.word(number);
                ring.words[word] = 0;
            } else {
                // The entries outgrew the ring. The next SACK builds a larger one.
                self.forget();
            }
        }
    }

    /// Marks an entry as sacked.
    #[inline]
    pub fn set(&mut self, number: u64) {
        if let Some(ring) = &mut self.0 {
            let word = ring.word(number);
            ring.words[word] |= 1 << (number % WORD);
        }
    }

    /// The first entry from `start` that isn't sacked, or `end`.
    #[inline]
    pub fn first_clear(&self, start: u64, end: u64) -> u64 {
        let Some(ring) = &self.0 else { return start };
        let mut at = start;
        while at < end {
            let clear = !ring.words[ring.word(at)] >> (at % WORD);
            if clear != 0 {
                return end.min(at + u64::from(clear.trailing_zeros()));
            }
            at = at / WORD * WORD + WORD;
        }
        end
    }

    /// Drops the bitmap.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::SackBitmap;

    proptest! {
        /// Against a set, by random operations. The bitmap is only forgotten when the entries outgrow its
        /// room.
        #[test]
        fn it_is_a_set(ops in prop::collection::vec((0u8..12, 0u64..200, 0u64..200), 1..300)) {
            let mut bitmap = SackBitmap::default();
            let mut model = BTreeSet::new();
            let (mut first, mut next, mut room) = (0u64, 0u64, 0);
            for (op, a, b) in ops {
                match op {
                    0..=4 => {
                        for _ in 0..a / 4 {
                            bitmap.on_push(next, first);
                            next += 1;
                        }
                    }
                    5..=8 if next > first => {
                        if !bitmap.is_known() {
                            model.clear();
                            room = next - first;
                            bitmap.make_room(room as usize);
                        }
                        for number in (first + a % (next - first)..next).take(b as usize) {
                            bitmap.set(number);
                            model.insert(number);
                        }
                    }
                    9 | 10 => first = (first + a).min(next),
                    11 if a < 4 => bitmap.forget(),
                    _ => {}
                }
                if next - first <= 2 * room && !(op == 11 && a < 4) && !model.is_empty() {
                    prop_assert!(bitmap.is_known(), "{} entries with room for {room}", next - first);
                }
                if !bitmap.is_known() {
                    (room, model) = (0, BTreeSet::new());
                    prop_assert_eq!(bitmap.first_clear(first, next), first);
                    continue;
                }
                for start in [first, first + a % (next - first + 1), first + b % (next - first + 1)] {
                    let clear = (start..next).find(|number| !model.contains(number)).unwrap_or(next);
                    prop_assert_eq!(bitmap.first_clear(start, next), clear);
                }
            }
        }
    }
}
