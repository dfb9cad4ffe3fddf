//! Which entries of a scoreboard are sacked, as bits by an entry's number: how many there ever were before it. A walk over what
//! SACK blocks cover meets mostly what an earlier ACK told of: here it passes 64 of them in a step, and none of their memory is read.

/// Entries in a word.
const WORD: u64 = u64::BITS as u64;

/// A ring as long as a power of two, or nothing: then it isn't known which are.
#[derive(Debug, Default)]
pub(crate) struct Sacked {
    words: Vec<u64>,
}

impl Sacked {
    /// Whether it says which are.
    #[inline]
    pub fn is_known(&self) -> bool {
        !self.words.is_empty()
    }

    /// Makes room for so many entries and more, none of which is sacked.
    #[cold]
    pub fn make_room(&mut self, entries: usize) {
        let words = (2 * entries as u64).div_ceil(WORD) + 2;
        self.words.clear();
        self.words.resize(words.next_power_of_two() as usize, 0);
    }

    /// The entry after all others will have this number; the first has the number `first`.
    #[inline]
    pub fn on_push(&mut self, number: u64, first: u64) {
        if number.is_multiple_of(WORD) && self.is_known() {
            if number / WORD - first / WORD < self.words.len() as u64 {
                let word = self.word(number);
                self.words[word] = 0;
            } else {
                self.forget();
            }
        }
    }

    #[inline]
    fn word(&self, number: u64) -> usize {
        (number / WORD) as usize & (self.words.len() - 1)
    }

    /// This one is.
    #[inline]
    pub fn set(&mut self, number: u64) {
        let word = self.word(number);
        self.words[word] |= 1 << (number % WORD);
    }

    /// The first of these that isn't, or `end`.
    #[inline]
    pub fn first_clear(&self, start: u64, end: u64) -> u64 {
        let mut at = start;
        while at < end {
            let clear = !self.words[self.word(at)] >> (at % WORD);
            if clear != 0 {
                return end.min(at + u64::from(clear.trailing_zeros()));
            }
            at = at / WORD * WORD + WORD;
        }
        end
    }

    /// It isn't known any more which are.
    pub fn forget(&mut self) {
        self.words.clear();
    }
}
