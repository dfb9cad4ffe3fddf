//! What it takes to undo a reduction of the congestion window that turns out spurious.

/// State of one episode of loss recovery that may be undone.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Undo {
    /// SND.UNA when the episode began (Linux's `undo_marker`), while there is something to undo.
    marker: Option<u64>,
    /// Retransmissions of the episode that no DSACK has reported (`undo_retrans`); `None` before the first.
    retransmitted: Option<u32>,
    /// The timestamp clock at the first retransmission (`retrans_stamp`).
    stamp: Option<u32>,
    prior_cwnd: u32,
    /// `None`: the reduction has another cause as well, and stays.
    prior_ssthresh: Option<u32>,
}

impl Undo {
    /// An episode begins at `una`, with `retrans_out` retransmissions of an earlier one in flight.
    pub fn begin(&mut self, una: u64, retrans_out: u32) {
        self.marker = Some(una);
        self.retransmitted = (retrans_out > 0).then_some(retrans_out);
    }

    /// There is nothing left to undo.
    pub fn end(&mut self) {
        self.marker = None;
    }

    /// Whether there is something to undo.
    pub fn is_possible(&self) -> bool {
        self.marker.is_some()
    }

    /// Remembers the window and threshold to restore.
    pub fn remember(&mut self, cwnd: u32, ssthresh: Option<u32>) {
        self.prior_cwnd = cwnd;
        self.prior_ssthresh = ssthresh;
    }

    /// The reduction stays, whatever turns out: the network reported congestion.
    pub fn forbid(&mut self) {
        self.prior_ssthresh = None;
    }

    /// The window and threshold to restore, unless the reduction stays.
    pub fn prior(&self) -> Option<(u32, u32)> {
        self.prior_ssthresh.map(|ssthresh| (self.prior_cwnd, ssthresh))
    }

    #[inline]
    pub fn on_retransmission(&mut self, segments: u32, clock: u32) {
        self.retransmitted = Some(self.retransmitted.unwrap_or(0) + segments);
        // 0 is no time of Linux's clock either.
        self.stamp.get_or_insert(clock.max(1));
    }

    /// Forgets the time of the first retransmission.
    pub fn clear_retransmission(&mut self) {
        self.stamp = None;
    }

    /// The timestamp clock at the first retransmission, if there was one.
    pub fn first_retransmission(&self) -> Option<u32> {
        self.stamp
    }

    /// A DSACK for data that ends at `end` reports retransmissions of this episode.
    pub fn on_dsack(&mut self, end: u64, segments: u32) {
        // The marker is SND.UNA of that moment: a DSACK up to it is of an earlier episode.
        if self.marker.is_some_and(|marker| end > marker)
            && let Some(left) = self.retransmitted.as_mut()
        {
            *left = left.saturating_sub(segments);
        }
    }

    /// Whether DSACKs have reported every retransmission of the episode.
    pub fn all_reported(&self) -> bool {
        self.marker.is_some() && self.retransmitted == Some(0)
    }
}
