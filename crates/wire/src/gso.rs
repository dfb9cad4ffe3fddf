//! Segmentation in software: splits a super-segment into packets as Linux does (`tcp_gso_segment`), and
//! merges packets into a super-segment (`tcp_gro_receive`).
//!
//! Options are the same in every packet, DSS among them: one mapping covers the whole super-segment
//! and each packet repeats it (RFC 8684 3.3.1 allows it). Merging therefore asks for equal options.

use crate::payload::Payload;
use crate::segment::{Flags, Segment};

/// Most bytes of one super-segment's payload: with the largest headers it still fits the IP length
/// field.
pub const MAX_SUPER_PAYLOAD: usize = 65_535 - 100;

/// Splits a segment into its packets, `gso_size` bytes of payload each and the rest in the last. A
/// segment of one packet is returned unchanged, but with `gso_size` 0.
///
/// Sequence numbers advance; FIN and PSH are on the last packet only, CWR (RFC 3168 6.1.2: once per
/// reaction) and SYN on the first.
pub fn split<P: Payload>(segment: Segment<P>) -> Split<P> {
    let len = segment.payload.len();
    let size = match usize::from(segment.gso_size) {
        0 => len.max(1),
        size => size,
    };
    Split { segment, size, offset: 0, count: len.div_ceil(size).max(1) }
}

/// Iterator over the packets of a super-segment.
#[derive(Clone, Debug)]
pub struct Split<P> {
    segment: Segment<P>,
    size: usize,
    offset: usize,
    /// Packets left.
    count: usize,
}

impl<P: Payload> Iterator for Split<P> {
    type Item = Segment<P>;

    fn next(&mut self) -> Option<Segment<P>> {
        self.count = self.count.checked_sub(1)?;
        let whole = &mut self.segment;
        let start = self.offset;
        let end = (start + self.size).min(whole.payload.len());
        self.offset = end;
        let (is_first, is_last) = (start == 0, self.count == 0);
        if is_first && is_last {
            let placeholder = Segment::new(whole.tuple, whole.seq, whole.ack, whole.flags);
            let mut packet = std::mem::replace(whole, placeholder);
            packet.gso_size = 0;
            return Some(packet);
        }
        let mut packet = Segment {
            seq: whole.seq,
            payload: whole.payload.slice(start, end),
            gso_size: 0,
            rare: whole.rare.clone(),
            ..Segment::new(whole.tuple, whole.seq, whole.ack, whole.flags)
        };
        (packet.window, packet.urgent, packet.ecn) = (whole.window, whole.urgent, whole.ecn);
        (packet.dscp, packet.hop_limit) = (whole.dscp, whole.hop_limit);
        (packet.timestamps, packet.sack, packet.dss) = (whole.timestamps, whole.sack, whole.dss);
        if !is_first {
            packet.flags = packet.flags.without(Flags::CWR.with(Flags::SYN));
        }
        if !is_last {
            packet.flags = packet.flags.without(Flags::FIN.with(Flags::PSH));
        }
        whole.seq = whole.seq.plus(packet.sequence_len());
        Some(packet)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.count, Some(self.count))
    }
}

impl<P: Payload> ExactSizeIterator for Split<P> {}

/// Whether `next` continues `first` so that both can be one super-segment that splits into exactly
/// the same packets again.
///
/// Conditions: both carry data, the same addresses and ports, contiguous sequence numbers, equal
/// acknowledgement, window, IP fields and options, plain ACKs but for a CWR that starts `first` and a
/// FIN or PSH that ends `next`; every packet but the last of one size; no more than
/// [`MAX_SUPER_PAYLOAD`] in all.
pub fn can_merge<P: Payload>(first: &Segment<P>, next: &Segment<P>) -> bool {
    continues(first, first.payload.len(), next)
}

/// As [`can_merge`], for a `first` whose payload of `first_len` bytes is stored elsewhere.
fn continues<P: Payload>(first: &Segment<P>, first_len: usize, next: &Segment<P>) -> bool {
    let next_len = next.payload.len();
    if first_len == 0 || next_len == 0 || first_len + next_len > MAX_SUPER_PAYLOAD {
        return false;
    }
    let size = if first.gso_size == 0 { first_len } else { usize::from(first.gso_size) };
    let sizes_fit = first_len.is_multiple_of(size)
        && if next.gso_size == 0 { next_len <= size } else { usize::from(next.gso_size) == size };
    let plain = Flags::ACK.with(Flags::ECE);
    let ending = Flags::FIN.with(Flags::PSH);
    sizes_fit
        && first.seq.plus(first_len as u32) == next.seq
        && first.tuple == next.tuple
        && first.ack == next.ack
        && first.window == next.window
        && (first.ecn, first.dscp, first.hop_limit) == (next.ecn, next.dscp, next.hop_limit)
        && first.flags.without(Flags::CWR) == next.flags.without(ending)
        && next.flags.without(ending).without(plain) == Flags::default()
        && first.timestamps == next.timestamps
        && first.dss == next.dss
        && first.sack == next.sack
        && first.rare == next.rare
}

/// Appends `next` to `first` if [`can_merge`] allows it; else returns `next`, and both are
/// unchanged. Copies the payloads; for more than two packets see [`Merger`].
#[must_use = "a returned segment was not merged"]
pub fn merge<P: Payload>(first: &mut Segment<P>, next: Segment<P>) -> Option<Segment<P>> {
    if !can_merge(first, &next) {
        return Some(next);
    }
    merge_headers(first, first.payload.len(), &next);
    first.payload = P::join(&[std::mem::take(&mut first.payload), next.payload]);
    None
}

/// Merges all but the payload, of which `first` has `first_len` bytes so far.
fn merge_headers<P: Payload>(first: &mut Segment<P>, first_len: usize, next: &Segment<P>) {
    if first.gso_size == 0 {
        first.gso_size = first_len as u16;
    }
    first.flags = first.flags.with(next.flags);
}

/// Merges packets into super-segments in order of arrival (GRO). The pieces of a payload are joined once,
/// when the super-segment is finished. In steady state only the join allocates.
#[derive(Clone, Debug, Default)]
pub struct Merger<P> {
    /// The super-segment that is being merged, without its payload.
    pending: Option<Segment<P>>,
    pieces: Vec<P>,
    /// Length of all pieces.
    len: usize,
}

impl<P: Payload> Merger<P> {
    /// A merger without a pending super-segment.
    pub fn new() -> Self {
        Merger { pending: None, pieces: Vec::new(), len: 0 }
    }

    /// Adds the next segment. Returns the pending super-segment if the new one doesn't continue it.
    pub fn push(&mut self, mut next: Segment<P>) -> Option<Segment<P>> {
        let finished = match &mut self.pending {
            Some(first) if continues(first, self.len, &next) => {
                merge_headers(first, self.len, &next);
                self.len += next.payload.len();
                self.pieces.push(next.payload);
                return None;
            }
            _ => self.finish(),
        };
        self.len = next.payload.len();
        self.pieces.push(std::mem::take(&mut next.payload));
        self.pending = Some(next);
        finished
    }

    /// Returns the pending super-segment. Called when the device has no more packets for now.
    pub fn finish(&mut self) -> Option<Segment<P>> {
        let mut segment = self.pending.take()?;
        segment.payload = P::join(&self.pieces);
        self.pieces.clear();
        Some(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dss, DssMapping, Ecn, FourTuple, SackBlocks, Seq, SyntheticPayload, Timestamps};

    fn data(flags: Flags, len: u32, gso_size: u16) -> Segment<SyntheticPayload> {
        let tuple = FourTuple::new("10.0.0.1:1".parse().unwrap(), "10.0.0.2:2".parse().unwrap());
        let mut segment = Segment::new(tuple, Seq(0xffff_ff00), Seq(7), flags.with(Flags::ACK));
        segment.gso_size = gso_size;
        segment.window = 500;
        segment.timestamps = Some(Timestamps { value: 1, echo: 2 });
        let mapping = DssMapping { dsn: 9, ssn: 1, len: len as u16, checksum: None, dsn_is_64: true };
        segment.dss =
            Some(Dss { data_ack: Some(3), ack_is_64: false, mapping: Some(mapping), data_fin: false });
        segment.payload = SyntheticPayload(len);
        segment
    }

    #[test]
    fn a_super_segment_is_cut_as_linux_cuts_it() {
        let whole = data(Flags::CWR.with(Flags::PSH).with(Flags::FIN), 2500, 1000);
        let packets: Vec<_> = split(whole.clone()).collect();
        assert_eq!(split(whole.clone()).len(), 3);
        let shape: Vec<_> =
            packets.iter().map(|packet| (packet.seq, packet.payload.0, packet.flags)).collect();
        let expected = [
            (Seq(0xffff_ff00), 1000, Flags::CWR.with(Flags::ACK)),
            (Seq(0xffff_ff00).plus(1000), 1000, Flags::ACK),
            (Seq(0xffff_ff00).plus(2000), 500, Flags::PSH.with(Flags::FIN).with(Flags::ACK)),
        ];
        assert_eq!(shape, expected);
        for packet in packets {
            assert_eq!((packet.dss, packet.timestamps, packet.window), (whole.dss, whole.timestamps, 500));
            assert_eq!(packet.gso_size, 0);
        }
    }

    #[test]
    fn one_packet_stays_one() {
        for segment in [data(Flags::PSH, 0, 0), data(Flags::PSH, 1000, 0), data(Flags::PSH, 1000, 1000)] {
            let expected = Segment { gso_size: 0, ..segment.clone() };
            assert_eq!(split(segment).collect::<Vec<_>>(), [expected]);
        }
    }

    #[test]
    fn merging_undoes_splitting() {
        let whole = data(Flags::CWR.with(Flags::PSH), 2500, 1000);
        let mut packets = split(whole.clone());
        let mut held = packets.next().unwrap();
        for packet in packets {
            assert_eq!(merge(&mut held, packet), None);
        }
        assert_eq!(held, whole);

        let mut merger = Merger::new();
        for packet in split(whole.clone()) {
            assert_eq!(merger.push(packet), None);
        }
        // The short packet and its PSH ended it: a further one begins anew.
        let mut further = data(Flags::default(), 10, 0);
        further.seq = whole.seq.plus(2500);
        assert_eq!(merger.push(further.clone()), Some(whole));
        assert_eq!(merger.finish(), Some(further));
        assert_eq!(merger.finish(), None);
    }

    #[test]
    fn super_segments_of_one_size_merge() {
        let mut held = data(Flags::default(), 2000, 1000);
        let mut next = data(Flags::default(), 1500, 1000);
        next.seq = held.seq.plus(2000);
        next.dss = held.dss;
        assert_eq!(merge(&mut held, next), None);
        assert_eq!((held.payload, held.gso_size), (SyntheticPayload(3500), 1000));
    }

    #[test]
    fn whatever_differs_prevents_a_merge() {
        let held = data(Flags::default(), 1000, 0);
        let mut next = held.clone();
        next.seq = held.seq.plus(1000);
        assert!(can_merge(&held, &next));
        let differences: [fn(&mut Segment<SyntheticPayload>); 14] = [
            |next| next.seq = next.seq.plus(1),
            |next| next.ack = next.ack.plus(1),
            |next| next.window += 1,
            |next| next.ecn = Ecn::Ce,
            |next| next.tuple.src_port += 1,
            |next| next.timestamps = None,
            |next| next.dss = None,
            |next| next.dss.as_mut().unwrap().data_ack = Some(4),
            |next| next.rare_mut().mss = Some(1),
            |next| {
                let mut sack = SackBlocks::default();
                sack.push(1, 2);
                next.sack = sack;
            },
            |next| next.flags = next.flags.with(Flags::CWR),
            |next| next.flags = next.flags.with(Flags::URG),
            |next| next.payload = SyntheticPayload(1001),
            |next| next.payload = SyntheticPayload(0),
        ];
        for (at, difference) in differences.into_iter().enumerate() {
            let mut changed = next.clone();
            difference(&mut changed);
            assert!(!can_merge(&held, &changed), "difference {at}");
            let mut target = held.clone();
            assert_eq!(merge(&mut target, changed.clone()), Some(changed));
            assert_eq!(target, held);
        }
        for ended in [Flags::PSH, Flags::FIN, Flags::SYN, Flags::RST] {
            let held = Segment { flags: held.flags.with(ended), ..held.clone() };
            assert!(!can_merge(&held, &next), "{ended:?}");
        }
    }

    #[test]
    fn a_super_segment_fits_the_length_field() {
        let mut held = data(Flags::default(), 65_000, 1000);
        held.dss = None;
        let mut next = Segment {
            seq: held.seq.plus(65_000),
            payload: SyntheticPayload(435),
            gso_size: 0,
            ..held.clone()
        };
        assert!(can_merge(&held, &next));
        next.payload = SyntheticPayload(436);
        assert!(!can_merge(&held, &next));
    }
}
