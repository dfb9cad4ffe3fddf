//! What the sender hands to the segment builder.

/// Data, or a FIN, of a segment to be sent.
pub struct DataSegment<P> {
    pub position: u64,
    /// Connection-level offset of its first byte.
    pub tag: u64,
    pub payload: P,
    pub fin: bool,
    /// No more data follows for now.
    pub push: bool,
    pub retransmission: bool,
    /// See [`Transmit::part`](crate::tcp::Transmit::part).
    pub part: Option<(u16, u16)>,
    /// Bytes of payload per packet.
    pub mss: usize,
}
