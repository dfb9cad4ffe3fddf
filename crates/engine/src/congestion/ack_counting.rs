//! What a host counts of an ACK.

/// What congestion control counts of an ACK that acknowledges several segments.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[non_exhaustive]
pub enum AckCounting {
    /// Its segments (RFC 3465 with no limit).
    #[default]
    Segments,
    /// Its segments in slow start, one in congestion avoidance, as Linux 3.14's `tcp_slow_start` and
    /// `tcp_cong_avoid_ai`: the window grows half as fast as with [`Segments`](Self::Segments) where every
    /// second segment is acknowledged. Slow start counts what the cumulative ACK covers, goes on to one above
    /// the threshold and leaves nothing of an ACK. A segment takes one ACK more than the increase says. CUBIC
    /// corrects for delayed ACKs.
    OneInAvoidance,
    /// One (RFC 5681 3.1 in whole segments; ns-3.19's `TcpNewReno`).
    One,
}
