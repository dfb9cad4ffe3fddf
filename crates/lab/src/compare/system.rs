//! What a user can run: the systems that have Multipath TCP and their schedulers, and by which rule one of several equal
//! candidates is named.

use ropewalk_engine::scheduler;
use ropewalk_sim::Mode;

use super::Candidate;

/// A system that has Multipath TCP, for which one of the candidates is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum System {
    /// Linux with its own Multipath TCP, and Ropewalk's engine on it.
    #[default]
    Here,
    /// Linux's own Multipath TCP.
    Linux,
    /// The kernel of multipath-tcp.org.
    OtherKernel,
    /// A router with OpenMPTCProuter, which has that kernel.
    Router,
    /// Ropewalk's engine.
    Ropewalk,
}

impl System {
    /// Those that a user can name.
    pub const NAMED: [System; 4] = [System::Linux, System::OtherKernel, System::Router, System::Ropewalk];

    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            System::Here => "this machine",
            System::Linux => "linux",
            System::OtherKernel => "multipath-tcp.org",
            System::Router => "openmptcprouter",
            System::Ropewalk => "ropewalk",
        }
    }

    /// The one of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<System> {
        System::NAMED.into_iter().find(|system| system.name() == name)
    }

    /// Whether its own Multipath TCP has this scheduler.
    fn has(self, scheduler: &str) -> bool {
        match self {
            System::Here | System::Linux => scheduler == "linux",
            // net/mptcp/mptcp_*.c of github.com/multipath-tcp/mptcp.
            System::OtherKernel | System::Router => {
                ["minrtt", "roundrobin", "redundant", "blest", "ecf"].contains(&scheduler)
            }
            System::Ropewalk => false,
        }
    }

    /// Whether the candidate can be run there. Plain TCP always can.
    #[must_use]
    pub fn can_run(self, candidate: &Candidate) -> bool {
        is_tcp(candidate)
            || matches!(self, System::Here | System::Ropewalk)
            || self.has(candidate.scheduler.entry.name)
    }

    /// Why this candidate would be named before others that are as fast.
    pub(crate) fn merit(self, candidate: &Candidate) -> Merit {
        let scheduler = candidate.scheduler.entry.name;
        if is_tcp(candidate) {
            Merit::NoMultipath
        } else if self.has(scheduler) {
            Merit::AtHand(self)
        } else if scheduler == scheduler::PRODUCT_DEFAULT {
            Merit::Default
        } else {
            Merit::Simplest
        }
    }
}

/// Whether a candidate is plain TCP.
pub(crate) fn is_tcp(candidate: &Candidate) -> bool {
    matches!(candidate.mode, Mode::SinglePath(_))
}

/// Why one of several candidates that are equally fast is named; the strongest reason first.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merit {
    /// It is plain TCP.
    NoMultipath,
    /// This system has it.
    AtHand(System),
    /// Ropewalk's gateway and proxy use it unless told otherwise.
    Default,
    /// It repeats the fewest bytes (to the per cent of what was delivered) and has the simplest rule.
    Simplest,
}

impl Merit {
    /// Its place in the order of reasons: the lowest decides.
    pub(crate) fn rank(self) -> u8 {
        match self {
            Merit::NoMultipath => 0,
            Merit::AtHand(_) => 1,
            Merit::Default => 2,
            Merit::Simplest => 3,
        }
    }

    /// In words, of the one that is named.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Merit::NoMultipath => "it needs no Multipath TCP",
            Merit::AtHand(System::Here | System::Linux) => "it is what Linux does by itself",
            Merit::AtHand(System::OtherKernel | System::Ropewalk) => {
                "it is in the kernel of multipath-tcp.org, repeats the fewest bytes and is the simplest"
            }
            Merit::AtHand(System::Router) => {
                "it is in OpenMPTCProuter's kernel, repeats the fewest bytes and is the simplest"
            }
            Merit::Default => "it is the default of `ropewalkd gateway` and `proxy`",
            Merit::Simplest => "it repeats the fewest bytes (to the per cent) and is the simplest",
        }
    }
}
