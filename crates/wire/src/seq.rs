//! Serial-number arithmetic on TCP's 32-bit sequence space (RFC 9293 3.4, RFC 1982).

/// A TCP sequence number, as it stands on the wire. Comparison is modulo 2^32, so it is no `Ord`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct Seq(pub u32);

impl Seq {
    /// `self + bytes`, modulo 2^32.
    #[inline]
    pub const fn plus(self, bytes: u32) -> Seq {
        Seq(self.0.wrapping_add(bytes))
    }

    /// The signed distance from `earlier` to `self`; meaningful within 2^31.
    #[inline]
    pub const fn since(self, earlier: Seq) -> i32 {
        self.0.wrapping_sub(earlier.0) as i32
    }

    /// Whether `self` comes before `other`.
    #[inline]
    pub const fn before(self, other: Seq) -> bool {
        self.since(other) < 0
    }

    /// Whether `self` comes after `other`.
    #[inline]
    pub const fn after(self, other: Seq) -> bool {
        self.since(other) > 0
    }

    /// The 64-bit position nearest to `near` whose low 32 bits are `self`.
    ///
    /// The engine keeps every stream position in 64 bits that never wrap; this is the one place
    /// where a position from the wire is unfolded.
    #[inline]
    pub const fn unfold(self, near: u64) -> u64 {
        near.wrapping_add(self.since(Seq(near as u32)) as i64 as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::Seq;

    #[test]
    fn order_holds_across_the_wrap() {
        assert!(Seq(0xffff_fff0).before(Seq(0x10)));
        assert!(Seq(0x10).after(Seq(0xffff_fff0)));
        assert_eq!(Seq(0x10).since(Seq(0xffff_fff0)), 0x20);
        assert_eq!(Seq(0xffff_ffff).plus(2), Seq(1));
    }

    #[test]
    fn unfolding_finds_the_nearest_position() {
        let near = (7 << 32) | 0x0000_0010;
        assert_eq!(Seq(0xffff_fff0).unfold(near), (6 << 32) | 0xffff_fff0);
        assert_eq!(Seq(0x20).unfold(near), near + 0x10);
    }
}
