//! The endpoint's counters by the names that `nstat -asz` prints for the kernel's (`net/mptcp/mib.h`, RFC
//! 4022), so that the two can be laid side by side.
//!
//! Each is counted where the kernel counts it: opening and joining once per connection or subflow, control
//! options once per segment. What the engine has no notion of is absent, not 0.

use ropewalk_wire::{Payload, RareOptions, Segment};

use super::Counters;
use crate::mptcp::{CloseReason, Connection, Event, FallbackCause, Role};
use crate::tcp::TcpCounters;

macro_rules! mptcp {
    ($($name:literal $field:ident: $doc:literal,)*) => {
        /// What the endpoint counts of Multipath TCP. They only grow.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
        pub(super) struct MptcpCounters {
            $(#[doc = concat!($doc, " (`", $name, "`).")] $field: u64,)*
        }

        impl MptcpCounters {
            fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$(($name, self.$field),)*].into_iter()
            }
        }
    };
}

mptcp! {
    "MPTcpExtMPCapableSYNTX" capable_syn_tx: "Connections opened",
    "MPTcpExtMPCapableSYNACKRX" capable_synack_rx: "Connections opened that the peer confirmed",
    "MPTcpExtMPCapableACKRX" capable_ack_rx: "Connections accepted",
    "MPTcpExtMPCapableFallbackSYNACK" fallback_synack: "SYN/ACKs without MP_CAPABLE where it was asked for",
    "MPTcpExtMPCapableFallbackACK" fallback_ack: "Handshakes whose last part had no MP_CAPABLE",
    "MPTcpExtMPJoinSynTx" join_syn_tx: "Joins opened",
    "MPTcpExtMPJoinSynAckRx" join_synack_rx: "Joins opened that the peer confirmed",
    "MPTcpExtMPJoinAckRx" join_ack_rx: "Joins accepted",
    "MPTcpExtAddAddrTx" add_addr_tx: "Addresses announced",
    "MPTcpExtEchoAdd" echo_add: "Announcements that peers echoed",
    "MPTcpExtEchoAddTx" echo_add_tx: "Announcements echoed",
    "MPTcpExtRmAddr" remove_addr: "Addresses withdrawn by peers",
    "MPTcpExtRmAddrTx" remove_addr_tx: "Addresses withdrawn",
    "MPTcpExtMPPrioRx" prio_rx: "Changes of priority received",
    "MPTcpExtMPPrioTx" prio_tx: "Changes of priority sent",
    "MPTcpExtMPFailRx" fail_rx: "MP_FAILs received",
    "MPTcpExtMPFailTx" fail_tx: "MP_FAILs sent",
    "MPTcpExtMPFastcloseTx" fastclose_tx: "MP_FASTCLOSEs sent",
    "MPTcpExtMPRstRx" tcprst_rx: "MP_TCPRSTs received",
    "MPTcpExtMPRstTx" tcprst_tx: "MP_TCPRSTs sent",
    "MPTcpExtInfiniteMapRx" infinite_rx: "Infinite mappings received",
    "MPTcpExtInfiniteMapTx" infinite_tx: "Infinite mappings sent",
    "MPTcpExtDSSCorruptionFallback" corruption_fallback: "Fallbacks after a failed checksum",
    "MPTcpExtDssFallback" dss_fallback: "Fallbacks for data without a mapping",
    "MPTcpExtRmSubflow" rm_subflow: "Subflows that went before their connection did",
}

/// What is counted over all connections, those of the past included.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mib {
    mptcp: MptcpCounters,
    past: Totals,
    active_opens: u64,
    passive_opens: u64,
}

/// What connections count themselves.
#[derive(Clone, Copy, Debug, Default)]
struct Totals {
    tcp: TcpCounters,
    checksum_errors: u64,
    announcements: u64,
    announced_ports: u64,
    fast_closes: u64,
    /// By role: we accepted, we opened.
    join_hmac_failures: [u64; 2],
    established: u64,
}

impl Totals {
    fn add<P: Payload>(&mut self, connection: &Connection<P>) {
        self.tcp += &connection.subflows.totals();
        if let Some(stats) = connection.stats.get() {
            self.checksum_errors += stats.checksum_errors;
            self.announcements += stats.announcements;
            self.announced_ports += stats.announced_ports;
            self.fast_closes += stats.fast_closes;
            self.join_hmac_failures[usize::from(connection.role() == Role::Client)] +=
                stats.join_hmac_failures;
        }
        self.established += u64::from(connection.is_multipath() && !connection.closing.is_terminated());
    }
}

/// Whether a segment has options that are counted: a rare one, or an infinite mapping.
#[inline]
fn has_counted_options<P: Payload>(segment: &Segment<P>) -> bool {
    let mapping = segment.dss.as_ref().and_then(|dss| dss.mapping.as_ref());
    segment.rare.is_some() || mapping.is_some_and(|mapping| mapping.len == 0)
}

impl Mib {
    /// A connection is opened.
    pub(super) fn opened(&mut self, multipath: bool) {
        self.active_opens += 1;
        self.mptcp.capable_syn_tx += u64::from(multipath);
    }

    /// A join is opened.
    pub(super) fn join_opened(&mut self) {
        self.active_opens += 1;
        self.mptcp.join_syn_tx += 1;
    }

    /// A connection is forgotten: what it counted stays.
    pub(super) fn retire<P: Payload>(&mut self, connection: &Connection<P>) {
        self.past.add(connection);
        self.past.established = 0;
    }

    /// Something happened to a connection.
    pub(super) fn event<P: Payload>(&mut self, connection: &Connection<P>, event: &Event) {
        let mptcp = &mut self.mptcp;
        match event {
            Event::Connected { multipath: true } => mptcp.capable_synack_rx += 1,
            Event::Accepted { multipath, .. } => {
                self.passive_opens += 1;
                mptcp.capable_ack_rx += u64::from(*multipath);
            }
            Event::SubflowAdded { subflow, .. } => {
                if connection.subflows.is_our_join(*subflow) {
                    mptcp.join_synack_rx += 1;
                } else {
                    self.passive_opens += 1;
                    mptcp.join_ack_rx += 1;
                }
            }
            Event::SubflowRemoved { reason, .. } if *reason != CloseReason::Closed => mptcp.rm_subflow += 1,
            Event::Fallback(cause) => match (cause, connection.role()) {
                (FallbackCause::NoMpCapable, Role::Client) => mptcp.fallback_synack += 1,
                (FallbackCause::NoOptionsInHandshake, _) => mptcp.fallback_ack += 1,
                (FallbackCause::NoMapping, _) => mptcp.dss_fallback += 1,
                (FallbackCause::Checksum, _) => mptcp.corruption_fallback += 1,
                (FallbackCause::NoMpCapable, Role::Server) | (FallbackCause::Peer, _) => {}
            },
            _ => {}
        }
    }

    /// A segment of a connection arrived.
    #[inline]
    pub(super) fn received<P: Payload>(&mut self, segment: &Segment<P>) {
        if has_counted_options(segment) {
            self.control(segment, false);
        }
    }

    /// A segment is sent.
    #[inline]
    pub(super) fn sent<P: Payload>(&mut self, segment: &Segment<P>) {
        if has_counted_options(segment) {
            self.control(segment, true);
        }
    }

    #[cold]
    fn control<P: Payload>(&mut self, segment: &Segment<P>, sent: bool) {
        let mptcp = &mut self.mptcp;
        let mut count =
            |there: bool, rx: fn(&mut MptcpCounters) -> &mut u64, tx: fn(&mut MptcpCounters) -> &mut u64| {
                *if sent { tx(mptcp) } else { rx(mptcp) } += u64::from(there);
            };
        let infinite = segment.dss.and_then(|dss| dss.mapping).is_some_and(|mapping| mapping.len == 0);
        count(infinite, |m| &mut m.infinite_rx, |m| &mut m.infinite_tx);
        let Some(rare) = segment.rare.as_deref() else { return };
        let RareOptions {
            // Counted where connections and joins are opened and accepted.
            mp_capable: _,
            mp_join: _,
            mss: _,
            window_scale: _,
            sack_permitted: _,
            add_addr,
            remove_addr,
            mp_prio,
            mp_fail,
            mp_fastclose,
            mp_tcprst,
        } = rare;
        let announced = add_addr.as_ref();
        count(announced.is_some_and(|add| add.echo), |m| &mut m.echo_add, |m| &mut m.echo_add_tx);
        count(remove_addr.is_some(), |m| &mut m.remove_addr, |m| &mut m.remove_addr_tx);
        count(mp_prio.is_some(), |m| &mut m.prio_rx, |m| &mut m.prio_tx);
        count(mp_fail.is_some(), |m| &mut m.fail_rx, |m| &mut m.fail_tx);
        count(mp_tcprst.is_some(), |m| &mut m.tcprst_rx, |m| &mut m.tcprst_tx);
        // What a connection takes of ADD_ADDR and MP_FASTCLOSE it counts itself: only what is authentic, as
        // the kernel.
        mptcp.add_addr_tx += u64::from(sent && announced.is_some_and(|add| !add.echo));
        mptcp.fastclose_tx += u64::from(sent && mp_fastclose.is_some());
    }

    /// Every counter with its name, `live` being the connections that there are.
    pub(super) fn named<'a, P: Payload>(
        &self,
        own: &Counters,
        live: impl Iterator<Item = &'a Connection<P>>,
    ) -> Vec<(String, u64)> {
        let mut totals = self.past;
        live.for_each(|connection| totals.add(connection));
        let mut list = vec![
            ("TcpActiveOpens".to_string(), self.active_opens),
            ("TcpPassiveOpens".to_string(), self.passive_opens),
        ];
        for (name, value) in totals.tcp.named() {
            match name {
                // Of one socket (`tcp_info`): the kernel has no sum of them.
                _ if name.starts_with("tcpi_") => {}
                "TcpOutRsts" => list.push((name.into(), value + own.out_rsts)),
                _ if name.starts_with("Tcp") => list.push((name.into(), value)),
                _ => list.push((format!("TcpExt{name}"), value)),
            }
        }
        let rest = [
            ("TcpExtListenOverflows", own.listen_overflows),
            ("TcpExtSyncookiesSent", own.cookies_sent),
            ("TcpExtSyncookiesRecv", own.cookies_recv),
            ("TcpExtSyncookiesFailed", own.cookies_failed),
            ("MPTcpExtMPCapableSYNRX", own.capable_syn_rx),
            ("MPTcpExtMPJoinSynRx", own.join_syn_rx),
            ("MPTcpExtMPJoinNoTokenFound", own.join_no_token),
            ("MPTcpExtMPJoinAckHMacFailure", totals.join_hmac_failures[0]),
            ("MPTcpExtMPJoinSynAckHMacFailure", totals.join_hmac_failures[1]),
            ("MPTcpExtDataCsumErr", totals.checksum_errors),
            ("MPTcpExtAddAddr", totals.announcements),
            ("MPTcpExtPortAdd", totals.announced_ports),
            ("MPTcpExtMPFastcloseRx", totals.fast_closes),
            ("MPTcpExtMPCurrEstab", totals.established),
        ];
        let all = self.mptcp.named().chain(rest);
        list.extend(all.map(|(name, value)| (name.to_string(), value)));
        list.sort();
        list
    }
}
