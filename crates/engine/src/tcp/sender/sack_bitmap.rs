//! Which entries of a scoreboard are sacked, as bits by an entry's number: how many there ever were before it. A walk over what
//! SACK blocks cover meets mostly what an earlier ACK told of: here it passes 64 of them in a step, and none of their memory is read.

/// Entries in a word.
const WORD: u64 = u64::BITS as u64;

/// Nothing until something is sacked, as on most of many connections: then it isn't known which are.
#[derive(Debug, Default)]
pub(crate) struct SackBitmap(Option<Box<Ring>>);

/// As long as a power of two.
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
    /// Whether it says which are.
    #[inline]
    pub fn is_known(&self) -> bool {
        self.0.is_some()
    }

    /// Makes room for so many entries and more, none of which is sacked.
    #[cold]
    pub fn make_room(&mut self, entries: usize) {
        let words = (2 * entries as u64).div_ceil(WORD) + 2;
        self.0 = Some(Box::new(Ring { words: vec![0; words.next_power_of_two() as usize] }));
    }

    /// The entry after all others will have this number; the first has the number `first`.
    #[inline]
    pub fn on_push(&mut self, number: u64, first: u64) {
        if number.is_multiple_of(WORD)
            && let Some(ring) = &mut self.0
        {
            if number / WORD - first / WORD < ring.words.len() as u64 {
                let word = ring.word(number);
                ring.words[word] = 0;
            } else {
                self.forget();
            }
        }
    }

    /// This one is.
    #[inline]
    pub fn set(&mut self, number: u64) {
        if let Some(ring) = &mut self.0 {
            let word = ring.word(number);
            ring.words[word] |= 1 << (number % WORD);
        }
    }

    /// The first of these that isn't, or `end`.
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

    /// It isn't known any more which are.
    pub fn forget(&mut self) {
        self.0 = None;
    }
}
