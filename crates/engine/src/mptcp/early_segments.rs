//! What overtakes the segment with the client's key. The key comes with the third ACK and with the first data
//! (RFC 8684 3.1).
//!
//! - Data: without the key the data sequence number of a DSS can't be related to the stream, whose first
//!   number is made of the key. Segments that arrive before are kept, so that the client needn't retransmit
//!   them.
//! - Joins: RFC 8684 3.1 forbids to *establish* further subflows before a DSS has come, which shows that
//!   options pass. A SYN establishes nothing, and the peer's token is known from its SYN/ACK: so the SYN
//!   leaves with the third ACK, and the join's own third ACK, which completes it, waits for the DSS. This
//!   saves a round trip of the first path. A server of this engine sends its first DSS with data, or for such
//!   a SYN. A peer that gets the SYN before the keys can't answer it. Linux refuses it: it is sent again when
//!   the DSS has come. This engine keeps it until the keys arrive.

use ropewalk_wire::Segment;

use crate::PathId;

/// Segments with data that may wait: three first windows of RFC 6928.
const MOST_DATA: usize = 30;

/// SYNs with our token that may wait.
const MOST_JOINS: usize = 4;

/// Segments that came before the keys.
#[derive(Debug)]
pub(super) struct EarlySegments<P> {
    data: Vec<Segment<P>>,
    joins: Vec<(PathId, Segment<P>)>,
}

impl<P> Default for EarlySegments<P> {
    fn default() -> Self {
        EarlySegments { data: Vec::new(), joins: Vec::new() }
    }
}

impl<P: Clone> EarlySegments<P> {
    /// Keeps a segment with data, unless it is a repeat, or one too many: that the client retransmits, as if
    /// it had been lost.
    pub fn keep_data(&mut self, segment: &Segment<P>) {
        let is_new = self.data.iter().all(|known| known.seq != segment.seq);
        if is_new && self.data.len() < MOST_DATA {
            self.data.push(segment.clone());
        }
    }

    /// Keeps a SYN; false if it is one too many. One that is repeated waits once.
    pub fn keep_join(&mut self, path: PathId, syn: &Segment<P>) -> bool {
        if self.joins.iter().any(|(_, known)| known.tuple == syn.tuple) {
            return true;
        }
        let fits = self.joins.len() < MOST_JOINS;
        if fits {
            self.joins.push((path, syn.clone()));
        }
        fits
    }

    pub fn has_joins(&self) -> bool {
        !self.joins.is_empty()
    }

    pub fn take_data(&mut self) -> Vec<Segment<P>> {
        std::mem::take(&mut self.data)
    }

    pub fn take_joins(&mut self) -> Vec<(PathId, Segment<P>)> {
        std::mem::take(&mut self.joins)
    }

    pub fn is_empty(&self) -> bool {
        self.data.is_empty() && self.joins.is_empty()
    }
}
