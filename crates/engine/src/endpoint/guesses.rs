//! Where segments with some four-tuple probably go: what is found without a hash of all of it, and in a twentieth of
//! the memory, for someone who can see whether it is right once the segment is there.

use std::net::IpAddr;

use ropewalk_wire::FourTuple;

use super::SubflowHandle;

/// Subflows of an endpoint from which on it remembers.
const WORTH: usize = 128;

/// See the module. It learns from what was searched for, and forgets when it grows.
#[derive(Debug, Default)]
pub(super) struct Guesses {
    /// By ports and addresses: packed places, or 0. A power of two of them.
    places: Vec<u32>,
}

impl Guesses {
    /// Ports that follow one another stand side by side, those of other addresses elsewhere.
    #[inline]
    fn index(&self, tuple: &FourTuple) -> usize {
        let bits = |address: &IpAddr| match address {
            IpAddr::V4(address) => address.to_bits(),
            IpAddr::V6(address) => (address.to_bits() >> 64) as u32 ^ address.to_bits() as u32,
        };
        // The golden ratio's bits keep neighbours' ranges apart.
        let addresses = (bits(&tuple.src) ^ bits(&tuple.dst)).wrapping_mul(0x9e37_79b9);
        let ports = u32::from(tuple.src_port) + u32::from(tuple.dst_port);
        (addresses >> 12 ^ addresses).wrapping_add(ports) as usize & self.places.len().wrapping_sub(1)
    }

    /// Where segments with this tuple went when one was last searched for, if another's place isn't there.
    #[inline]
    pub fn get(&self, tuple: &FourTuple) -> Option<SubflowHandle> {
        SubflowHandle::unpack(*self.places.get(self.index(tuple))?)
    }

    /// Remembers a place of an endpoint with so many subflows.
    #[inline]
    pub fn learn(&mut self, tuple: &FourTuple, place: SubflowHandle, subflows: usize) {
        let packed = place.pack();
        if subflows < WORTH || packed == 0 {
            return;
        }
        if self.places.len() < 2 * subflows {
            self.grow(subflows);
        }
        let index = self.index(tuple);
        self.places[index] = packed;
    }

    #[cold]
    fn grow(&mut self, subflows: usize) {
        self.places.clear();
        self.places.resize((4 * subflows).next_power_of_two(), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tuple(port: u16) -> FourTuple {
        FourTuple::new(
            format!("192.0.2.1:{port}").parse().expect("an address"),
            "192.0.2.2:80".parse().expect("an address"),
        )
    }

    #[test]
    fn what_was_learnt_is_known_until_it_grows() {
        let mut guesses = Guesses::default();
        let place = SubflowHandle { index: 7, strand: 3 };
        guesses.learn(&tuple(1), place, WORTH - 1);
        assert_eq!(guesses.get(&tuple(1)), None, "few are found as fast by the hash");
        for port in 0..WORTH as u16 {
            guesses.learn(&tuple(port), SubflowHandle { index: u32::from(port), ..place }, WORTH);
        }
        for port in 0..WORTH as u16 {
            assert_eq!(guesses.get(&tuple(port)), Some(SubflowHandle { index: u32::from(port), ..place }));
        }
        assert_eq!(guesses.get(&tuple(WORTH as u16)), None);
        guesses.learn(&tuple(1000), place, 10 * WORTH);
        assert_eq!((guesses.get(&tuple(1)), guesses.get(&tuple(1000))), (None, Some(place)));
        guesses.learn(&tuple(1), SubflowHandle { index: u32::MAX, strand: 0 }, WORTH);
        assert_eq!(guesses.get(&tuple(1)), None, "there is no room for it");
    }
}
