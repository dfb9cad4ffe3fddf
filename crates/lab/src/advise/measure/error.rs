//! Why the output of a measuring tool can't be used.

/// Why the output of a measuring tool can't be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MeasurementError {
    /// `ping`: there are no times and no summary.
    #[error("it has neither answers (`time=23.4 ms`) nor a summary")]
    NoPing,
    /// `ping`: nothing was answered.
    #[error("not one answer came back")]
    NoAnswer,
    /// `ss`: there is no connection in it.
    #[error("it has no line with `rtt:` (use `ss -tin`)")]
    NoConnection,
    /// `ss`: its connections leave by several links; their local addresses.
    #[error("its connections leave from {} (choose one link's: `ss -tin src {}`)", .0.join(", "), .0[0])]
    SeveralLinks(Vec<String>),
    /// `fping`: it asked several hosts.
    #[error("it asked {}: give the answers of one", .0.join(" and "))]
    SeveralHosts(Vec<String>),
    /// Several results in one file.
    #[error("it has {0} results: give each as a file of its own")]
    SeveralResults(usize),
    /// A trace that isn't one; the parser's message.
    #[error("{0}")]
    Trace(String),
    /// Rates over time: rows that aren't in order, or further apart than an hour.
    #[error("the times of its rows don't go on in steps")]
    NoTimes,
    /// Rates over time: more than a trace can hold.
    #[error("it is longer than a trace may be (100 million packets of 1500 bytes)")]
    TooLong,
    /// The text isn't JSON; the parser's message.
    #[error("it is not JSON: {0}")]
    NotJson(String),
    /// `iperf3`: it reports its own failure.
    #[error("iperf3 failed: {0}")]
    Iperf(String),
    /// `iperf3`: neither throughput nor loss nor round trips.
    #[error("it has no result (`end.sum_received`)")]
    NoResult,
}
