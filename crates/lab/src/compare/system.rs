//! What a user can run: the systems that have Multipath TCP and their schedulers, and by which rule one of
//! several equal candidates is named.

use ropewalk_engine::registry::{InKernel, Kernel, Spec};
use ropewalk_engine::scheduler;
use ropewalk_sim::Mode;

use super::Candidate;

/// A system that has Multipath TCP, for which one of the candidates is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum System {
    /// Linux with its own Multipath TCP, and Ropewalk's engine on it.
    #[default]
    Here,
    /// Linux's own Multipath TCP: up to 6.18 its one scheduler is `default` (net/mptcp/sched.c).
    Linux,
    /// The kernel of multipath-tcp.org, 0.96 on Linux 5.4: net/mptcp/mptcp_{sched,rr,redundant,blest,ecf}.c.
    /// Its `default` is the lowest round-trip time first.
    OtherKernel,
    /// A router with OpenMPTCProuter 0.60 or later, with Linux 6.x. From 6.6 on (0.61) its images also have
    /// `bpf_burst`, the same as `default`, and `bpf_first`, `bpf_bkup`, `bpf_red`, `bpf_rr`, since 0.62
    /// `bpf_minrtt` (openmptcprouter-feeds, openmptcprouter-full/Makefile). The last three ignore congestion
    /// windows and are not what `redundant`, `roundrobin` and `minrtt` are here.
    Router,
    /// A router with OpenMPTCProuter up to 0.59, which has the kernel of multipath-tcp.org (Linux 5.4).
    OldRouter,
    /// An iPhone or a Mac. Applications ask for Multipath TCP; the system chooses subflows for what it sends
    /// (xnu, bsd/netinet/mptcp.c), and the server for what it receives.
    Apple,
    /// An Android phone: its kernels are built without Multipath TCP (kernel/common,
    /// arch/arm64/configs/gki_defconfig of android14-6.1).
    Android,
    /// Ropewalk's engine.
    Ropewalk,
}

impl System {
    /// Those that a user can name.
    pub const NAMED: [System; 7] = [
        System::Linux,
        System::OtherKernel,
        System::Router,
        System::OldRouter,
        System::Apple,
        System::Android,
        System::Ropewalk,
    ];

    /// Their names.
    pub(crate) const NAMES: [&str; System::NAMED.len()] = {
        let mut names = [""; System::NAMED.len()];
        let mut at = 0;
        while at < names.len() {
            names[at] = System::NAMED[at].name();
            at += 1;
        }
        names
    };

    /// Its name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            System::Here => "this machine",
            System::Linux => "linux",
            System::OtherKernel => "multipath-tcp.org",
            System::Router => "openmptcprouter",
            System::OldRouter => "openmptcprouter-0.59",
            System::Apple => "apple",
            System::Android => "android",
            System::Ropewalk => "ropewalk",
        }
    }

    /// The kernel that schedules what is sent there, if one does.
    #[must_use]
    pub fn kernel(self) -> Option<Kernel> {
        match self {
            // A phone's downloads are scheduled by the server.
            System::Here | System::Linux | System::Router | System::Apple => Some(Kernel::Linux),
            System::OtherKernel | System::OldRouter => Some(Kernel::MultipathTcp),
            System::Android | System::Ropewalk => None,
        }
    }

    /// The scheduler that it uses unless told otherwise.
    #[must_use]
    pub fn default_scheduler(self) -> Option<&'static str> {
        match self {
            System::Ropewalk => Some(scheduler::PRODUCT_DEFAULT),
            _ => Some(scheduler::builtin().default_of(self.kernel()?)?.name),
        }
    }

    /// How its kernel has this scheduler: as it is, without parameters.
    fn own(self, candidate: &Candidate) -> Option<&'static InKernel> {
        let Spec { text, entry, .. } = &candidate.scheduler;
        entry.in_kernel(self.kernel()?).filter(|_| text == entry.name)
    }

    /// Whether the candidate can be run there. Plain TCP always can.
    #[must_use]
    pub fn can_run(self, candidate: &Candidate) -> bool {
        is_tcp(candidate) || matches!(self, System::Here | System::Ropewalk) || self.own(candidate).is_some()
    }

    /// Why this candidate would be named before others that are as fast.
    pub(crate) fn merit(self, candidate: &Candidate) -> Merit {
        if is_tcp(candidate) {
            Merit::NoMultipath
        } else if let Some(own) = self.own(candidate) {
            if own.is_default { Merit::ItsDefault(self) } else { Merit::AtHand(self) }
        } else if candidate.scheduler.entry.name == scheduler::PRODUCT_DEFAULT {
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
    /// It is what this system uses unless told otherwise.
    ItsDefault(System),
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
            Merit::ItsDefault(_) => 1,
            Merit::AtHand(_) => 2,
            Merit::Default => 3,
            Merit::Simplest => 4,
        }
    }

    /// In words, of the one that is named.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Merit::NoMultipath => "it needs no Multipath TCP",
            Merit::ItsDefault(System::OtherKernel) => "it is the default of the kernel of multipath-tcp.org",
            Merit::ItsDefault(System::Router | System::OldRouter) => "it is the default of OpenMPTCProuter",
            Merit::ItsDefault(System::Apple) => "it is what a Linux server does by itself",
            Merit::ItsDefault(_) => "it is what Linux does by itself",
            Merit::AtHand(System::OldRouter) => {
                "it is in OpenMPTCProuter's kernel, repeats the fewest bytes and is the simplest"
            }
            Merit::AtHand(_) => {
                "it is in the kernel of multipath-tcp.org, repeats the fewest bytes and is the simplest"
            }
            Merit::Default => "it is the default of `ropewalkd gateway` and `proxy`",
            Merit::Simplest => "it repeats the fewest bytes (to the per cent) and is the simplest",
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_algorithms::Registries;
    use ropewalk_engine::registry::Entry;
    use ropewalk_engine::scheduler::Scheduler;
    use ropewalk_engine::testing;

    use super::*;

    fn candidate(scheduler: &str) -> Candidate {
        let registries = Registries::builtin();
        Candidate {
            label: scheduler.into(),
            scheduler: registries.schedulers.parse(scheduler).unwrap(),
            mode: Mode::Multipath,
        }
    }

    #[test]
    fn a_system_runs_only_what_it_has() {
        let can = |system: System, name: &str| system.can_run(&candidate(name));
        for name in ["minrtt", "roundrobin", "redundant", "blest", "ecf"] {
            assert!(can(System::OtherKernel, name) && can(System::OldRouter, name), "{name}");
            assert!(!can(System::Router, name) && !can(System::Linux, name), "{name}");
        }
        for name in ["linux", "ropewalk", "ecf(beta=0.5)", "blest:linux"] {
            assert!(!can(System::OtherKernel, name), "{name}");
            assert!(can(System::Ropewalk, name) && !can(System::Android, name), "{name}");
        }
        assert!(can(System::Router, "linux") && can(System::Apple, "linux") && can(System::Linux, "linux"));
    }

    /// What a new scheduler's entry says of kernels is all that there is to say.
    #[test]
    fn a_new_entry_is_named_where_its_kernel_runs() {
        const NEW: Entry<dyn Scheduler> = Entry {
            name: "new",
            kernels: &[Kernel::MultipathTcp.has().called("mptcp_new").since("0.97")],
            ..Entry::<dyn Scheduler>::of(|_| testing::build("minrtt"))
        };
        let new = Candidate { label: "new".into(), scheduler: NEW.spec(), mode: Mode::Multipath };
        assert!(System::OldRouter.can_run(&new) && !System::Linux.can_run(&new));
        assert_eq!(System::OtherKernel.merit(&new), Merit::AtHand(System::OtherKernel));
    }

    #[test]
    fn a_systems_default_is_named_before_the_rest_of_it() {
        let rank = |system: System, name: &str| system.merit(&candidate(name)).rank();
        assert!(rank(System::OtherKernel, "minrtt") < rank(System::OtherKernel, "roundrobin"));
        assert!(rank(System::OldRouter, "minrtt") < rank(System::OldRouter, "blest"));
        assert!(rank(System::Here, "linux") < rank(System::Here, "ropewalk"));
        assert!(rank(System::Ropewalk, "ropewalk") < rank(System::Ropewalk, "linux"));
        assert!(rank(System::Here, "ropewalk") < rank(System::Here, "minrtt"));
    }
}
