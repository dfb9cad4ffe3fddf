//! The states of a TCP connection (RFC 9293 3.3.2). LISTEN is the endpoint's: a subflow is born from the SYN
//! that arrived there.

/// RFC 9293 3.3.2, figure 5.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum State {
    /// No connection.
    #[default]
    Closed,
    /// SYN sent.
    SynSent,
    /// SYN received, its acknowledgement sent.
    SynReceived,
    /// Data flows.
    Established,
    /// FIN sent, not yet acknowledged.
    FinWait1,
    /// FIN acknowledged; the peer may still send.
    FinWait2,
    /// FIN received; we may still send.
    CloseWait,
    /// FIN sent and received, ours not yet acknowledged.
    Closing,
    /// FIN received, then sent, not yet acknowledged.
    LastAck,
    /// Both sides are done; old segments may still be under way.
    TimeWait,
}

impl State {
    /// Whether both sides' sequence numbers are known and confirmed.
    #[inline]
    pub fn is_synchronized(self) -> bool {
        !matches!(self, State::Closed | State::SynSent | State::SynReceived)
    }

    /// Whether the peer may still send data: ESTABLISHED, FIN-WAIT-1, FIN-WAIT-2.
    #[inline]
    pub fn may_receive(self) -> bool {
        matches!(self, State::Established | State::FinWait1 | State::FinWait2)
    }

    /// Whether new data may be sent: ESTABLISHED, CLOSE-WAIT.
    #[inline]
    pub fn may_send(self) -> bool {
        matches!(self, State::Established | State::CloseWait)
    }

    /// Whether data or a FIN may be waiting to be sent or acknowledged.
    #[inline]
    pub fn is_sending(self) -> bool {
        matches!(
            self,
            State::Established | State::CloseWait | State::FinWait1 | State::Closing | State::LastAck
        )
    }
}
