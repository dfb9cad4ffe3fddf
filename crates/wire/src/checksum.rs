//! The Internet checksum (RFC 1071), its incremental update (RFC 1624), TCP's pseudo-header (RFC
//! 9293 3.1, RFC 8200 8.1) and the DSS checksum (RFC 8684 3.3.1).
//!
//! All functions work on sums that are folded to 16 bits and *not* inverted, so that a payload's sum is
//! computed once for both the TCP and the DSS checksum.

use std::net::IpAddr;

/// The one's-complement sum of `bytes` as big-endian 16-bit words, an odd last byte padded with
/// zero; folded to 16 bits, not inverted.
pub fn ones_complement(bytes: &[u8]) -> u16 {
    // The sum doesn't depend on byte order (RFC 1071 section 2 B): words are added in native order and the
    // result is swapped once. Four lanes, which the compiler vectorises, add whole 64-bit words (wrapping)
    // and their upper halves. The difference is the sum of the lower halves. The halves' sums can't overflow
    // below 2^32 words each.
    let (mut all, mut upper) = ([0u64; 4], [0u64; 4]);
    let (blocks, rest) = bytes.as_chunks::<128>();
    for block in blocks {
        for group in block.as_chunks::<32>().0 {
            for (at, word) in group.as_chunks::<8>().0.iter().enumerate() {
                let word = u64::from_ne_bytes(*word);
                all[at] = all[at].wrapping_add(word);
                upper[at] += word >> 32;
            }
        }
    }
    // Each sum is folded to 33 bits first, so that the total can't overflow either.
    let folded = |sum: u64| (sum >> 32) + (sum & 0xffff_ffff);
    let mut total = 0;
    for (all, upper) in all.into_iter().zip(upper) {
        total += folded(all.wrapping_sub(upper << 32)) + folded(upper);
    }
    let (words, tail) = rest.as_chunks::<8>();
    for word in words {
        total += folded(u64::from_ne_bytes(*word));
    }
    let mut last = [0u8; 8];
    last[..tail.len()].copy_from_slice(tail);
    total += folded(u64::from_ne_bytes(last));
    u16::from_be_bytes(fold(total).to_ne_bytes())
}

/// Folds to 16 bits with end-around carry.
#[inline]
fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// A running one's-complement sum over pieces of any length.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Sum {
    total: u64,
    odd: bool,
}

impl Sum {
    /// Adds one big-endian word. An even number of bytes must have been added before.
    #[inline]
    pub fn add_u16(&mut self, word: u16) {
        debug_assert!(!self.odd, "a word at an odd offset");
        self.total += u64::from(word);
    }

    /// Adds two words.
    #[inline]
    pub fn add_u32(&mut self, words: u32) {
        debug_assert!(!self.odd, "a word at an odd offset");
        self.total += u64::from(words);
    }

    /// Adds four words.
    #[inline]
    pub fn add_u64(&mut self, words: u64) {
        self.add_u32((words >> 32) as u32);
        self.add_u32(words as u32);
    }

    /// Adds bytes, at an even or an odd offset.
    #[inline]
    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add_piece(ones_complement(bytes), bytes.len());
    }

    /// Adds a piece by its folded sum ([`crate::Payload::ones_complement_sum`]) and its length. At an odd
    /// offset its bytes count swapped (RFC 1071 section 2 B).
    #[inline]
    pub fn add_piece(&mut self, sum: u16, len: usize) {
        self.total += u64::from(if self.odd { sum.swap_bytes() } else { sum });
        self.odd ^= len % 2 == 1;
    }

    /// Folded to 16 bits, not inverted.
    #[inline]
    pub fn folded(self) -> u16 {
        fold(self.total)
    }

    /// The checksum: folded and inverted.
    #[inline]
    pub fn checksum(self) -> u16 {
        !self.folded()
    }
}

/// The sum of TCP's pseudo-header for a segment of `tcp_len` bytes, header included.
#[inline]
pub fn pseudo_header(src: IpAddr, dst: IpAddr, protocol: u8, len: u32) -> Sum {
    let mut sum = Sum::default();
    for address in [src, dst] {
        match address {
            IpAddr::V4(address) => sum.add_u32(address.to_bits()),
            IpAddr::V6(address) => {
                let bits = address.to_bits();
                sum.add_u64((bits >> 64) as u64);
                sum.add_u64(bits as u64);
            }
        }
    }
    sum.add_u16(u16::from(protocol));
    sum.add_u32(len);
    sum
}

/// The checksum after one 16-bit word under it changed from `old` to `new` (RFC 1624, equation 3).
#[inline]
pub fn update(checksum: u16, old: u16, new: u16) -> u16 {
    !fold(u64::from(!checksum) + u64::from(!old) + u64::from(new))
}

/// The DSS checksum (RFC 8684 3.3.1) of a mapping whose data has the folded sum `data`.
///
/// `dsn` is the whole 64-bit data sequence number, also where the option carries 32 bits of it; `len`
/// is the data-level length as in the option, so one more than the data when DATA_FIN is set. For an
/// infinite mapping the length is 0 and there is no checksum to compute.
#[inline]
pub fn dss_checksum(dsn: u64, ssn: u32, len: u16, data: u16) -> u16 {
    let mut sum = Sum::default();
    sum.add_u64(dsn);
    sum.add_u32(ssn);
    sum.add_u16(len);
    sum.add_u16(data);
    sum.checksum()
}

/// Whether `checksum` is right for the mapping. Sums that differ only in the sign of zero (0x0000
/// and 0xffff, RFC 1624 section 3) are the same number and accepted, as verification over all the
/// words would.
#[inline]
pub fn dss_checksum_holds(dsn: u64, ssn: u32, len: u16, data: u16, checksum: u16) -> bool {
    let mut sum = Sum::default();
    sum.add_u16(!dss_checksum(dsn, ssn, len, data));
    sum.add_u16(checksum);
    matches!(sum.folded(), 0xffff | 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Word by word, as in RFC 1071 section 4.1.
    fn reference(bytes: &[u8]) -> u16 {
        let mut sum = 0u64;
        for pair in bytes.chunks(2) {
            sum += u64::from(pair[0]) << 8 | u64::from(pair.get(1).copied().unwrap_or(0));
        }
        fold(sum)
    }

    #[test]
    fn example_of_rfc_1071() {
        // Section 3: 00 01 f2 03 f4 f5 f6 f7 sums to ddf2.
        let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
        assert_eq!(ones_complement(&bytes), 0xddf2);
    }

    #[test]
    fn example_of_rfc_1624() {
        // Section 4: a header whose checksum is 0xdd2f and a field that goes from 0x5555 to 0x3285
        // gets 0x0000, where the equation of RFC 1141 gives 0xffff.
        assert_eq!(update(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn dss_checksum_by_hand() {
        // DSN 0001 0002 0003 0004, SSN 0005 0006, length 0004, zero, data "abc" padded: 6162 6300.
        // 1+2+3+4+5+6+4 = 0x19; 0x6162 + 0x6300 = 0xc462; sum 0xc47b; inverted 0x3b84.
        let data = ones_complement(b"abc");
        assert_eq!(data, 0xc462);
        let checksum = dss_checksum(0x0001_0002_0003_0004, 0x0005_0006, 4, data);
        assert_eq!(checksum, 0x3b84);
        assert!(dss_checksum_holds(0x0001_0002_0003_0004, 0x0005_0006, 4, data, 0x3b84));
        assert!(!dss_checksum_holds(0x0001_0002_0003_0004, 0x0005_0006, 3, data, 0x3b84));
        assert!(!dss_checksum_holds(0x0001_0002_0003_0004, 0x0005_0006, 4, data, 0x3b85));
    }

    #[test]
    fn carries_are_not_lost() {
        assert_eq!(ones_complement(&[0xff; 65_535]), reference(&[0xff; 65_535]));
        assert_eq!(ones_complement(&[]), 0);
    }

    proptest! {
        #[test]
        fn equals_the_reference(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            prop_assert_eq!(ones_complement(&bytes), reference(&bytes));
        }

        #[test]
        fn pieces_in_any_split_give_the_same_sum(
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
            cuts in proptest::collection::vec(0usize..200, 0..4),
        ) {
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            cuts.push(bytes.len());
            let mut sum = Sum::default();
            let mut start = 0;
            for cut in cuts {
                sum.add_bytes(&bytes[start..cut]);
                start = cut;
            }
            // One's complement has two zeros: compare as numbers.
            prop_assert_eq!(sum.folded() % 0xffff, reference(&bytes) % 0xffff);
        }

        #[test]
        fn update_equals_recomputation(
            mut words in proptest::collection::vec(any::<u16>(), 2..20),
            at in any::<prop::sample::Index>(),
            new: u16,
        ) {
            // A word that is never zero: a header's sum is never the number zero's other sign.
            words.push(0x4500);
            let sum = |words: &[u16]| {
                let mut sum = Sum::default();
                words.iter().for_each(|&word| sum.add_u16(word));
                sum.checksum()
            };
            let before = sum(&words);
            let at = at.index(words.len() - 1);
            let old = std::mem::replace(&mut words[at], new);
            prop_assert_eq!(update(before, old, new), sum(&words));
        }
    }
}
