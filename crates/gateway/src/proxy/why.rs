//! Why a connection uses a link, or doesn't: in words, for `ropewalkd status` and the status page.

use serde_json::{Value, json};

use super::flow::ProxiedConnection;
use super::link::{Link, LinkState};
use super::policy::{Mode, Plan, Policy};
use super::serve::Server;

impl Server {
    /// The policy that a flow follows, the number of its rule (from 1; none: what holds for the rest), and
    /// what it makes of each link.
    pub fn why(&self, flow: &ProxiedConnection) -> (String, Option<usize>, Vec<Value>) {
        let config = self.settings();
        let address = flow.stream.peer_addr();
        let rule = config.policies.rule(&flow.target, address.ip(), flow.client.dscp, flow.bytes());
        let policy = rule.map_or(&config.policies.other, |at| &config.policies.rules[at].policy);
        let plan = flow.plan();
        let tcp_on =
            flow.stream.info().filter(|info| !info.multipath).map(|info| {
                info.subflows.first().map_or(flow.opened_on, |subflow| usize::from(subflow.path.0))
            });
        let links = self.links();
        let links = links.iter().map(|link| {
            let (role, why) = match tcp_on {
                Some(on) => why_tcp(link.index == on),
                None => why(policy, &plan, link, address.is_ipv6()),
            };
            json!({ "interface": link.name, "role": role, "why": why })
        });
        (policy.to_string(), rule.map(|at| at + 1), links.collect())
    }
}

/// The same where the connection is plain TCP, which has one link.
fn why_tcp(is_on_it: bool) -> (&'static str, String) {
    match is_on_it {
        true => ("active", "the connection is plain TCP, and was opened on this link".into()),
        false => ("not used", "the far end has no Multipath TCP".into()),
    }
}

/// A link's role for a connection, and the reason.
fn why(policy: &Policy, plan: &Plan, link: &Link, v6: bool) -> (&'static str, String) {
    let price = link.settings().cost();
    let Some(stands_by) = plan.backup(link.index) else {
        let why = if !policy.over.is_empty() && !policy.over.contains(&link.name) {
            format!("the policy is limited to {}", policy.over.join(", "))
        } else if link.state() != LinkState::Up {
            format!("the link is {}", link.state())
        } else if !link.is_usable(v6) {
            format!("the link has no {} route", if v6 { "IPv6" } else { "IPv4" })
        } else {
            "the link has come back only now".into()
        };
        return ("not used", why);
    };
    let role = if stands_by { "stands by" } else { "active" };
    let why = match (&policy.mode, stands_by) {
        (Mode::SaveMetered, false) => format!("no link that works is cheaper than its price, {price}"),
        (Mode::SaveMetered, true) => format!("its price is {price}, and a cheaper link works"),
        (Mode::ActiveStandby, false) => "the first link that works".into(),
        (Mode::ActiveStandby, true) => "a link before it works".into(),
        (Mode::LoadBalance(_), false) => "chosen for this connection by the links' shares".into(),
        (Mode::LoadBalance(_), true) => "the connection is on another link".into(),
        (Mode::Priority, false) => "the links before it don't work, or are full".into(),
        (Mode::Priority, true) => "the links before it have room".into(),
        (_, true) => "a backup, and other links work".into(),
        (_, false) => "every link that works is used".into(),
    };
    (role, why)
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::PathId;
    use tokio::time::Instant;

    use super::super::policy::plan;
    use super::super::reach::Reach;
    use super::*;
    use crate::setup::Route;

    #[test]
    fn each_link_has_a_reason() {
        let link = |(index, text): (usize, &str)| {
            let link = Link::new(index, text.parse().unwrap(), Instant::now(), false);
            link.learn(|known| known.reach = Reach { v4: Some(Route::Direct), ..Reach::default() });
            assert_eq!(link.path(), PathId(index as u16));
            std::sync::Arc::new(link)
        };
        let links: Vec<_> = ["a", "b,metered", "c"].into_iter().enumerate().map(link).collect();
        links[2].learn(|known| (known.alive, known.seen) = (false, true));
        for (policy, expected) in [
            (
                "save-metered",
                [
                    "active: no link that works is cheaper",
                    "stands by: its price is 1",
                    "not used: the link is dead",
                ],
            ),
            (
                "active-standby",
                ["active: the first link", "stands by: a link before it works", "not used: the link is dead"],
            ),
            (
                "blest over b",
                ["not used: the policy is limited to b", "active: every link", "not used: the policy"],
            ),
            (
                "load-balance 1:0:0",
                ["active: chosen", "stands by: the connection is", "not used: the link is dead"],
            ),
        ] {
            let policy: Policy = policy.parse().unwrap();
            let plan = plan(&policy, &links, false, None);
            for (link, expected) in links.iter().zip(expected) {
                let (role, why) = why(&policy, &plan, link, false);
                let told = format!("{role}: {why}");
                assert!(told.starts_with(expected), "{policy}: {told}");
            }
        }
    }
}
