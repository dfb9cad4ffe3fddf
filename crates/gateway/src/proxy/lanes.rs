//! Rules for what isn't TCP: each policy that some name has a lane in the tunnel. A flow's packets show which
//! rule fits, so rules by name or size don't concern them.

use std::sync::Arc;

use ropewalk_datagrams::packet::Summary;
use ropewalk_datagrams::{LinkUse, MOST_LANES};

use super::link::{Link, LinkState};
use super::policy::{self, Mode, PacketConditions, Policies, Policy};
use crate::tunnel::word::Use;

/// The rules, each with its lane, and the lanes' policies: first of what no rule is about.
#[derive(Clone, PartialEq, Default, Debug)]
pub(super) struct Lanes {
    rules: Vec<(PacketConditions, usize)>,
    policies: Vec<Policy>,
    /// Rules for whose policies there are no lanes left.
    pub left_out: usize,
}

impl PacketConditions {
    fn fits(&self, packet: &Summary) -> bool {
        let PacketConditions { networks, ports, dscp } = self;
        let is_port = |(_, to): (u16, u16)| ports.iter().any(|(first, last)| (*first..=*last).contains(&to));
        (networks.is_empty() || networks.iter().any(|one| one.contains(&packet.flow.destination)))
            && (ports.is_empty() || packet.flow.ports.is_some_and(is_port))
            && (dscp.is_empty() || dscp.contains(&packet.dscp))
    }
}

impl Lanes {
    pub fn of(policies: &Policies) -> Lanes {
        let mut lanes = Lanes { rules: Vec::new(), policies: vec![policies.other.clone()], left_out: 0 };
        for rule in &policies.rules {
            let Some(conditions) = rule.of_packets() else { continue };
            let known = lanes.policies.iter().position(|known| *known == rule.policy);
            let lane = match known {
                // Its flows don't come here.
                _ if rule.policy.direct => 0,
                Some(lane) => lane,
                None if lanes.policies.len() < MOST_LANES => {
                    lanes.policies.push(rule.policy.clone());
                    lanes.policies.len() - 1
                }
                None => {
                    lanes.left_out += 1;
                    0
                }
            };
            lanes.rules.push((conditions, lane));
        }
        lanes
    }

    /// The lane of a packet of the networks behind the proxy.
    pub fn lane(&self, packet: &Summary) -> usize {
        self.rules.iter().find(|(conditions, _)| conditions.fits(packet)).map_or(0, |(_, lane)| *lane)
    }

    /// How they use a link, by its state; `None`: not at all.
    pub fn uses(&self, links: &[Arc<Link>], link: &Link) -> Option<Vec<Use>> {
        let is_listed = links.iter().any(|known| known.index == link.index && known.name == link.name);
        let is_out = matches!(link.state(), LinkState::NoRoute | LinkState::Captive | LinkState::QuotaSpent);
        if !is_listed || is_out {
            return None;
        }
        let uses: Vec<Use> = self.policies.iter().map(|policy| use_of(policy, links, link)).collect();
        uses.iter().any(|one| !one.how.is_shut).then_some(uses)
    }
}

/// How packets of a policy use a link. One that seems dead is used as well: probes of TCP say so.
fn use_of(policy: &Policy, links: &[Arc<Link>], link: &Link) -> Use {
    let scheduler = match policy.mode {
        Mode::Redundant => "redundant",
        Mode::SmallestDelay => "smallest-delay",
        _ => "adaptive",
    };
    let keeps = matches!(policy.mode, Mode::LoadBalance(_));
    let used = |is_backup, order| Use::new(LinkUse { is_shut: false, is_backup, order, keeps }, scheduler);
    let shut = Use::new(LinkUse { is_shut: true, ..LinkUse::default() }, scheduler);
    if !policy.over.is_empty() && !policy.over.contains(&link.name) {
        return shut;
    }
    if link.state() != LinkState::Up {
        return used(link.stands_by(), 0);
    }
    let plan = policy::plan_over(policy, links, &[false, true], None);
    let Some(is_backup) = plan.backup(link.index) else { return shut };
    if policy.mode != Mode::Priority || !is_backup {
        return used(is_backup, 0);
    }
    // Those that have their turn when others are full, in order.
    let waiting = plan.roles.iter().filter(|role| role.backup).position(|role| role.link == link.index);
    waiting.map_or(shut, |waiting| used(false, 1 + waiting as u8))
}

#[cfg(test)]
mod tests {
    use ropewalk_datagrams::packet::{FlowKey, protocol};
    use tokio::time::Instant;

    use super::super::Rule;
    use super::super::reach::Reach;
    use super::*;
    use crate::setup::Route;

    fn rule(conditions: &[(&str, &str)], policy: &str) -> Rule {
        let mut rule = Rule::new(policy.parse().unwrap());
        conditions.iter().for_each(|(name, value)| rule.add(name, value).unwrap());
        rule
    }

    #[test]
    fn a_packet_has_the_lane_of_the_first_rule_that_fits() {
        let mut outgrown = rule(&[("port", "4433")], "redundant");
        outgrown.size = 1000;
        let policies = Policies {
            rules: vec![
                outgrown,
                rule(&[("to", "*.example.org")], "redundant"),
                rule(&[("to", "192.0.2.0/24"), ("port", "5060-5061")], "redundant"),
                rule(&[("dscp", "ef"), ("dscp", "af41")], "fastest over wlan0"),
                rule(&[("port", "53")], "direct"),
                rule(&[("to", "2001:db8::7")], "redundant"),
            ],
            other: "fastest".parse().unwrap(),
        };
        let lanes = Lanes::of(&policies);
        let lane = |to: &str, port: Option<u16>, dscp| {
            let flow = FlowKey {
                source: "198.18.0.2".parse().unwrap(),
                destination: to.parse().unwrap(),
                protocol: if port.is_some() { protocol::UDP } else { protocol::ICMP },
                ports: port.map(|port| (4000, port)),
            };
            lanes.lane(&Summary { flow, dscp, is_later_fragment: false, is_quic: false })
        };
        assert_eq!(lane("192.0.2.9", Some(5061), 46), 1);
        assert_eq!(lane("192.0.2.9", Some(5062), 46), 2);
        assert_eq!(lane("192.0.2.9", None, 34), 2);
        assert_eq!(lane("192.0.2.9", None, 0), 0);
        assert_eq!(lane("192.0.3.9", Some(53), 0), 0);
        assert_eq!(lane("2001:db8::7", Some(4433), 0), 1);
        assert_eq!(lanes.policies.len(), 3);
        // What follows too many has none of its own.
        let rules = (0..20)
            .map(|port| rule(&[("port", &format!("{}", 1 + port))], &format!("redundant over l{port}")));
        let lanes = Lanes::of(&Policies { rules: rules.collect(), other: "fastest".parse().unwrap() });
        assert_eq!((lanes.policies.len(), lanes.rules[14].1, lanes.rules[15].1), (MOST_LANES, 15, 0));
        assert_eq!(lanes.left_out, 5);
    }
    /// A link is used if it has a route in some family.
    #[tokio::test]
    async fn lanes_use_links_of_different_families() {
        let families = [(true, false), (false, true), (true, true), (false, false)];
        let link = |(index, (v4, v6)): (usize, (bool, bool))| {
            let link = Link::new(index, format!("l{index}").parse().unwrap(), Instant::now(), false);
            let [v4, v6] = [v4, v6].map(|is_there| is_there.then_some(Route::Direct));
            link.learn(|known| known.reach = Reach { v4, v6, ..Reach::default() });
            Arc::new(link)
        };
        let links: Vec<_> = families.into_iter().enumerate().map(link).collect();
        let uses = |policy: &str| {
            let policies = Policies { rules: Vec::new(), other: policy.parse::<Policy>().unwrap() };
            let of = |link: &Arc<Link>| {
                let uses = Lanes::of(&policies).uses(&links, link)?;
                Some((uses[0].how.is_backup, uses[0].how.order, uses[0].how.is_shut))
            };
            links.iter().map(of).collect::<Vec<_>>()
        };
        let [first, backup, next] = [(false, 0), (true, 0), (false, 1)].map(|(a, b)| Some((a, b, false)));
        assert_eq!(uses("fastest"), [first, first, first, None]);
        assert_eq!(uses("active-standby"), [first, backup, backup, None]);
        let last = Some((false, 2, false));
        assert_eq!(uses("priority"), [first, next, last, None]);
        // One that a policy doesn't name.
        assert_eq!(uses("fastest over l1,l3"), [None, first, None, None]);
    }
}
