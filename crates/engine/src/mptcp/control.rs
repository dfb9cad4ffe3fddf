//! Control: addresses (RFC 8684 3.4), priority (3.3.8), failure (3.7), FASTCLOSE (3.5); opening, refusing and
//! removing subflows; the connection's timers.

use std::net::SocketAddr;

use ropewalk_wire::{AddAddr, FourTuple, MpJoin, Payload, RareOptions, Segment};

use super::connection::{Connection, Join, JoinRequest, Mode, Strand};
use super::crypto::add_addr_hmac;
use super::stats::Event;
use crate::metrics::{SubflowMetrics, SubflowStatus};
use crate::scheduler;
use crate::tcp::Subflow;
use crate::{Nanos, PathId, SECOND, SubflowId};

/// An address that we announce until it is echoed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Announcement {
    pub option: AddAddr,
    pub sent: u32,
    pub next: Nanos,
    pub echoed: bool,
}

/// How often an announcement is sent, and the time between (Linux waits 120 s; a lost one would cost a short
/// connection its second path).
const ANNOUNCE_TRIES: u32 = 4;
const CONTROL_INTERVAL: Nanos = SECOND;
/// Third ACKs of a join that are repeated before the subflow is given up.
const JOIN_ACK_TRIES: u32 = 6;
//= RFC 8684 3.9.3-3
/// How often a join that failed is tried again, after 1, 2, 4, ... seconds.
pub(crate) const JOIN_RETRIES: u32 = 4;
/// Joins of the peer's that may wait for their third ACK at a time.
const MOST_HALF_OPEN: usize = 8;
/// Addresses of the peer that are remembered.
const MAX_REMOTE_ADDRESSES: usize = 16;

impl<P: Payload> Connection<P> {
    /// Options that only control segments carry; false if the subflow is gone.
    #[cold]
    pub(crate) fn on_rare(
        &mut self,
        now: Nanos,
        index: usize,
        rare: &RareOptions,
        rcv_before: u64,
        had_data: bool,
    ) -> bool {
        if rare.mp_fail.is_some() {
            self.on_fail(now, index);
        }
        if self.mode == Mode::Plain {
            return true;
        }
        if let Some(capable) = rare.mp_capable {
            // The first data comes with MP_CAPABLE in place of a DSS (RFC 8684 3.1).
            if let (true, Some(len)) = (had_data && self.mode == Mode::Multipath, capable.data_len) {
                let idsn = self.remote_key.map_or(0, |key| key.idsn);
                let mapping = ropewalk_wire::DssMapping {
                    dsn: idsn.wrapping_add(1),
                    ssn: 1,
                    len,
                    checksum: capable.checksum,
                    dsn_is_64: true,
                };
                if !self.ack_is_64 {
                    self.answer_in_kind(now, true);
                }
                self.add_mapping(index, &mapping, 0, u32::from(len), rcv_before);
            } else if !had_data && let Some(strand) = self.strands[index].as_mut() {
                strand.tcp.request_ack();
            }
        }
        if let Some(prio) = rare.mp_prio
            && let Some(strand) = self.strands[index].as_mut()
        {
            //= RFC 8684 3.3.8-2
            strand.backup_remote = prio.backup;
            self.metrics[index].backup = prio.backup || strand.backup_local;
            self.wake();
        }
        if let Some(add) = rare.add_addr {
            self.on_add_addr(now, &add);
        }
        if let Some(remove) = &rare.remove_addr {
            self.on_remove_addr(now, &remove.address_ids);
        }
        if let Some(fastclose) = rare.fastclose
            //= RFC 8684 3.5-b 3.5-c
            && fastclose.receiver_key == self.local_key.key
        {
            for strand in self.strands.iter_mut().flatten() {
                strand.tcp.abort();
            }
            self.die("the peer closed with MP_FASTCLOSE");
            return false;
        }
        true
    }

    #[cold]
    fn on_add_addr(&mut self, now: Nanos, add: &AddAddr) {
        let Some(remote) = self.remote_key else { return };
        if add.echo {
            for announcement in &mut self.announced {
                if announcement.option.address_id == add.address_id
                    && announcement.option.address == add.address
                {
                    announcement.echoed = true;
                }
            }
            return;
        }
        let expected = add_addr_hmac(remote.key, self.local_key.key, add.address_id, add.address, add.port);
        if add.hmac != Some(expected) {
            //= RFC 8684 3.4.1-6
            self.stats.add_addr_hmac_failures += 1;
            return;
        }
        if !self.confirmed {
            self.confirmed = true;
            self.open_joins();
        }
        if self.echoes.len() < MAX_REMOTE_ADDRESSES {
            //= RFC 8684 3.4.1-b
            self.echoes.push_back(AddAddr { echo: true, hmac: None, ..*add });
            self.ack_on_best();
        }
        //= RFC 8684 3.4.1-5
        let port = add.port.unwrap_or_else(|| self.first_tuple().map_or(0, |tuple| tuple.dst_port));
        let address = SocketAddr::new(add.address, port);
        let known =
            self.remote_addresses.iter().any(|(id, known)| *id == add.address_id || *known == address);
        let limit = usize::from(self.config.path_manager.add_addr_accepted).min(MAX_REMOTE_ADDRESSES);
        //= RFC 8684 3.4.1-d 3.4.1-4
        if known || self.remote_addresses.len() >= limit {
            return;
        }
        self.remote_addresses.push((add.address_id, address));
        let _ = now;
        let Some(tuple) = self.first_tuple() else { return };
        let local = SocketAddr::new(tuple.src, 0);
        if local.is_ipv4() == address.is_ipv4() {
            let path = self.metrics.first().map_or(PathId(0), |metrics| metrics.path);
            self.request_join(JoinRequest {
                path,
                local,
                remote: address,
                local_id: 0,
                remote_id: add.address_id,
                backup: false,
                //= RFC 8684 3.4.1-9 not tried again
                attempt: JOIN_RETRIES,
            });
        }
        let endpoints = self.config.path_manager.endpoints.clone();
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.subflow && endpoint.address != tuple.src)
        {
            if endpoint.address.is_ipv4() == address.is_ipv4() && local.is_ipv4() != address.is_ipv4() {
                self.request_join(JoinRequest {
                    path: endpoint.path,
                    local: SocketAddr::new(endpoint.address, 0),
                    remote: address,
                    local_id: endpoint.id,
                    remote_id: add.address_id,
                    backup: endpoint.backup,
                    attempt: JOIN_RETRIES,
                });
            }
        }
    }

    #[cold]
    fn on_remove_addr(&mut self, now: Nanos, ids: &[u8]) {
        //= RFC 8684 3.4.2-a 3.4.2-b
        self.remote_addresses.retain(|(id, _)| !ids.contains(id));
        //= RFC 8684 3.4.2-5
        self.retries.retain(|(_, request)| !ids.contains(&request.remote_id));
        for index in 0..self.strands.len() {
            let gone = self.strands[index].as_ref().is_some_and(|strand| ids.contains(&strand.remote_id));
            let others = self.metrics.iter().any(|metrics| {
                metrics.id.index() != index
                    && matches!(
                        metrics.state,
                        SubflowStatus::Usable | SubflowStatus::Stale | SubflowStatus::Closing
                    )
            });
            // Never the last one that can carry data (RFC 8684 3.4.2 leaves it to the receiver).
            if gone && others {
                self.refuse(now, index, 0, "the peer removed its address");
            }
        }
    }

    fn first_tuple(&self) -> Option<FourTuple> {
        self.strands.iter().flatten().next().map(|strand| strand.tcp.tuple())
    }

    /// Joins from our other addresses to the peer's first one.
    #[cold]
    pub(crate) fn open_joins(&mut self) {
        //= RFC 8684 3.1-14
        if self.deny_join || self.mode != Mode::Multipath {
            return;
        }
        let Some(tuple) = self.first_tuple() else { return };
        let endpoints = self.config.path_manager.endpoints.clone();
        for endpoint in endpoints.iter().filter(|endpoint| endpoint.subflow && endpoint.address != tuple.src)
        {
            if endpoint.address.is_ipv4() != tuple.dst.is_ipv4() {
                continue;
            }
            self.request_join(JoinRequest {
                path: endpoint.path,
                local: SocketAddr::new(endpoint.address, 0),
                //= RFC 8684 3.9.1-1 3.9.1-2
                remote: tuple.destination(),
                local_id: endpoint.id,
                remote_id: 0,
                backup: endpoint.backup,
                attempt: 0,
            });
        }
    }

    pub(crate) fn request_join(&mut self, request: JoinRequest) {
        if self.mode == Mode::Multipath
            && !self.is_failing()
            //= RFC 8684 3.2-a
            && self.joins_opened < self.config.path_manager.subflows
        {
            self.joins_opened += 1;
            self.joins.push_back(request);
            self.dirty = true;
        }
    }

    /// Announces our addresses that are marked so.
    #[cold]
    pub(crate) fn announce(&mut self, now: Nanos) {
        let (Some(remote), Some(tuple)) = (self.remote_key, self.first_tuple()) else { return };
        if self.mode != Mode::Multipath {
            return;
        }
        for endpoint in self.config.path_manager.endpoints.iter().filter(|endpoint| endpoint.signal) {
            //= RFC 8684 3.4.1-2 3.4.1-10 3.4.1-12 each id once, until it is removed
            if endpoint.address == tuple.src
                || self.announced.iter().any(|a| a.option.address_id == endpoint.id)
            {
                continue;
            }
            let hmac =
                add_addr_hmac(self.local_key.key, remote.key, endpoint.id, endpoint.address, endpoint.port);
            let option = AddAddr {
                echo: false,
                address_id: endpoint.id,
                address: endpoint.address,
                port: endpoint.port,
                hmac: Some(hmac),
            };
            self.announced.push(Announcement { option, sent: 0, next: now, echoed: false });
        }
        if self.announced.iter().any(|a| !a.echoed) {
            self.arm_control(now);
            self.ack_on_best();
        }
    }

    /// Joins an existing connection: a SYN with MP_JOIN named our token.
    #[cold]
    pub(crate) fn join(
        &mut self,
        now: Nanos,
        path: PathId,
        syn: &Segment<P>,
        mtu: u32,
        isn: u32,
        nonce: u32,
    ) -> Option<usize> {
        let MpJoin::Syn { backup, address_id, nonce: remote_nonce, .. } = syn.rare.as_deref()?.mp_join?
        else {
            return None;
        };
        if self.mode != Mode::Multipath
            || self.dead
            || self.is_failing()
            //= RFC 8684 3.2-a
            || self.joined() >= usize::from(self.config.path_manager.subflows)
        {
            return None;
        }
        self.limit_half_open();
        let index = self.slot(path)?;
        self.insert_subflow(now, index, Join::SynReceived, |cx| Subflow::accept(cx, syn, mtu, isn));
        let local_id = self.local_id_of(syn.tuple.dst);
        let strand = self.strands[index].as_mut()?;
        strand.local_nonce = nonce;
        strand.remote_nonce = remote_nonce;
        strand.remote_id = address_id;
        strand.local_id = local_id;
        strand.backup_remote = backup;
        Some(index)
    }

    /// Joins that are open, or that we wait for ourselves; not those that are yet to be authenticated.
    pub(crate) fn joined(&self) -> usize {
        let counts = |(strand, metrics): &(&Option<Strand<P>>, &SubflowMetrics)| {
            metrics.state != SubflowStatus::Closed
                && strand.as_ref().is_some_and(|s| !matches!(s.join, Join::Initial | Join::SynReceived))
        };
        self.strands.iter().zip(&self.metrics).filter(counts).count()
    }

    /// Makes room for another join that isn't authenticated: the oldest of too many goes without a word, as whoever
    /// knows the token could ask for any number.
    fn limit_half_open(&mut self) {
        let half_open = |(strand, metrics): &(&Option<Strand<P>>, &SubflowMetrics)| {
            metrics.state == SubflowStatus::Handshaking
                && strand.as_ref().is_some_and(|strand| strand.join == Join::SynReceived)
        };
        let waiting = || self.strands.iter().zip(&self.metrics).filter(half_open);
        if waiting().count() < MOST_HALF_OPEN {
            return;
        }
        let oldest = waiting().min_by_key(|(strand, metrics)| (strand.as_ref().map(|s| s.since), metrics.id));
        if let Some(index) = oldest.map(|(_, metrics)| metrics.id.index())
            && let Some(strand) = self.strands[index].as_mut()
        {
            strand.tcp.vanish();
            self.metrics[index].state = SubflowStatus::Closed;
        }
    }

    fn local_id_of(&self, address: std::net::IpAddr) -> u8 {
        self.config.path_manager.endpoints.iter().find(|e| e.address == address).map_or(0, |e| e.id)
    }

    /// Opens a requested subflow.
    #[cold]
    pub(crate) fn open_join(
        &mut self,
        now: Nanos,
        request: &JoinRequest,
        tuple: FourTuple,
        mtu: u32,
        isn: u32,
        nonce: u32,
    ) -> Option<usize> {
        let index = self.slot(request.path)?;
        self.insert_subflow(now, index, Join::SynSent, |cx| Subflow::connect(cx, tuple, mtu, isn));
        let strand = self.strands[index].as_mut()?;
        strand.local_nonce = nonce;
        strand.local_id = request.local_id;
        strand.remote_id = request.remote_id;
        strand.backup_local = request.backup;
        strand.request = Some(*request);
        Some(index)
    }

    //= RFC 8684 3.6-a 3.2-9
    /// Resets a subflow, with MP_TCPRST's reason.
    #[cold]
    pub(crate) fn refuse(&mut self, now: Nanos, index: usize, reason: u8, text: &'static str) {
        if let Some(strand) = self.strands[index].as_mut() {
            // The first reason is the one that counts.
            strand.reset_reason.get_or_insert(reason);
            strand.tcp.abort();
        }
        self.remove(now, index, text);
    }

    /// Everything that a subflow carried and that isn't acknowledged at data level goes elsewhere.
    #[cold]
    pub(crate) fn reinject_all(&mut self, index: usize) {
        self.send.reinject_from(SubflowId(index as u8));
    }

    /// A subflow is gone: tells everyone and moves its data. Its RST, if any, is still sent.
    #[cold]
    pub(crate) fn remove(&mut self, now: Nanos, index: usize, reason: &'static str) {
        if self.metrics[index].state == SubflowStatus::Closed {
            return;
        }
        let was_used = !matches!(self.metrics[index].state, SubflowStatus::Handshaking);
        let path = self.metrics[index].path;
        let id = SubflowId(index as u8);
        self.metrics[index].state = SubflowStatus::Closed;
        self.metrics[index].packets_out = 0;
        self.metrics[index].sacked_out = 0;
        self.metrics[index].lost_out = 0;
        self.metrics[index].retrans_out = 0;
        self.metrics[index].queued_bytes = 0;
        if was_used {
            self.notify(now, scheduler::Event::SubflowRemoved(id));
            self.congestion.subflow_removed(&mut self.metrics, index);
        }
        self.events.push_back(Event::SubflowRemoved { subflow: id, path, reason });
        if let Some(request) = self.strands[index].as_ref().and_then(|strand| strand.request) {
            self.joins_opened = self.joins_opened.saturating_sub(1);
            if !was_used && request.attempt < JOIN_RETRIES {
                // Refused, or unanswered: what was in the way may pass (RFC 8684 3.6 has reasons that do).
                let at = now + (SECOND << request.attempt);
                self.retries.push((at, JoinRequest { attempt: request.attempt + 1, ..request }));
                self.arm_retries();
            }
        }
        self.reinject_all(index);
        let left = self.strands.iter().zip(&self.metrics).any(|(strand, metrics)| {
            strand.is_some() && !matches!(metrics.state, SubflowStatus::Closed) && metrics.id != id
        });
        let finished = self.send.fin_acked && self.receive.finished;
        if !left && !finished && !self.dead {
            let plain_end = self.mode == Mode::Plain && self.send.closed && self.receive.finished;
            if plain_end {
                self.check_closed(now);
            } else {
                self.die(reason);
            }
        }
        if finished {
            // The others may have been waiting for nothing but this one.
            self.check_closed(now);
        }
        self.wake();
    }

    /// Frees the slots of subflows that have nothing more to send, and notices TIME-WAIT's end.
    pub(crate) fn settle(&mut self, now: Nanos, index: usize) {
        let Some(strand) = self.strands[index].as_ref() else { return };
        if strand.tcp.is_finished() && self.metrics[index].state != SubflowStatus::Closed {
            self.remove(now, index, "closed");
        }
        self.check_closed(now);
    }

    /// Has the timer of repeated control fire for the first join to be tried again.
    fn arm_retries(&mut self) {
        let first = self.retries.iter().map(|(at, _)| *at).min();
        self.deadlines.control = [self.deadlines.control, first].into_iter().flatten().min();
    }

    /// Arms the timer of repeated control.
    pub(crate) fn arm_control(&mut self, now: Nanos) {
        let at = now + CONTROL_INTERVAL;
        self.deadlines.control = Some(self.deadlines.control.map_or(at, |known| known.min(at)));
    }

    /// Whether something is to come of the peer at connection level. In plain TCP the subflow has its own timers, of a
    /// closed window as well.
    #[inline]
    pub(crate) fn awaits_data_ack(&self) -> bool {
        self.mode == Mode::Multipath
            && !self.dead
            && (self.send.una < self.send.assigned_end
                || (self.send.closed && !self.send.fin_acked && self.send.unsent() == 0)
                || (self.send.unsent() > 0 && self.send.window_left() == 0))
    }

    /// Arms or stops the connection-level retransmission timer (RFC 8684 3.3.6).
    pub(crate) fn arm_meta(&mut self, now: Nanos) {
        if !self.awaits_data_ack() {
            self.deadlines.retransmit = None;
            return;
        }
        let rto = self
            .metrics
            .iter()
            .filter(|f| f.usable())
            .map(|f| f.rto)
            .max()
            .unwrap_or(self.config.tcp.initial_rto);
        let wait = rto.saturating_mul(1 << self.meta_backoff.min(10)).min(self.config.tcp.max_rto);
        self.deadlines.retransmit = Some(now + wait);
    }

    /// Deadlines that have passed.
    pub(crate) fn on_timeout(&mut self, now: Nanos) {
        for index in 0..self.strands.len() {
            let due = self.strands[index]
                .as_ref()
                .is_some_and(|s| s.tcp.poll_timeout().is_some_and(|at| at <= now));
            if due && let Some((mut cx, strand)) = self.split(now, index) {
                let outcome = strand.tcp.on_timeout(&mut cx);
                self.dirty = true;
                self.note_outcome(now, index, &outcome);
                self.settle(now, index);
            }
        }
        if self.deadlines.wait.is_some_and(|at| at <= now) {
            self.deadlines.wait = None;
            self.wake();
        }
        if self.deadlines.retransmit.is_some_and(|at| at <= now) {
            self.on_meta_timeout(now);
        }
        if self.deadlines.control.is_some_and(|at| at <= now) {
            self.deadlines.control = None;
            self.repeat_control(now);
        }
        if self.deadlines.linger.is_some_and(|at| at <= now) {
            self.deadlines.linger = None;
            for strand in self.strands.iter_mut().flatten() {
                strand.tcp.abort();
            }
            self.dirty = true;
            if !self.dead {
                self.dead = true;
                self.events.push_back(Event::Closed);
            }
        }
    }

    //= RFC 8684 3.3.3-b
    /// No DATA_ACK for long: the head goes again, and the DATA_FIN.
    #[cold]
    fn on_meta_timeout(&mut self, now: Nanos) {
        self.meta_backoff += 1;
        let una = self.send.una;
        // What some subflow still queues for its first transmission needs no second copy.
        if self.send.una < self.send.assigned_end {
            self.send.reinject(una..una + 1);
        }
        let only_fin = self.send.closed && self.send.una == self.send.written && self.meta_backoff >= 2;
        if self.send.window_left() == 0 || only_fin {
            //= RFC 9293 MUST-36 a zero window is probed
            // The window's reopening may have been lost with a path: every subflow asks for it. And a DATA_FIN that
            // nothing answers may never arrive: what comes back shows whether options still do.
            for strand in self.strands.iter_mut().flatten() {
                strand.tcp.probe_window();
            }
        }
        self.ack_on_all();
        self.wake();
        self.arm_meta(now);
    }

    #[cold]
    fn repeat_control(&mut self, now: Nanos) {
        let mut again = false;
        let retries = std::mem::take(&mut self.retries);
        for (at, request) in retries {
            if at <= now {
                self.request_join(request);
            } else {
                self.retries.push((at, request));
            }
        }
        for index in 0..self.strands.len() {
            let Some(strand) = self.strands[index].as_mut() else { continue };
            if let Some(failing) = &strand.failing {
                strand.fail_pending = Some(failing.dsn);
                strand.tcp.request_ack();
                again = true;
            }
            if strand.join == Join::AckSent && self.metrics[index].state == SubflowStatus::Handshaking {
                strand.join_acks += 1;
                if strand.join_acks > JOIN_ACK_TRIES {
                    self.refuse(now, index, 0, "the join's third ACK stayed unanswered");
                } else {
                    strand.tcp.request_ack();
                    again = true;
                }
            }
        }
        for announcement in &self.announced {
            again |= !announcement.echoed && announcement.sent < ANNOUNCE_TRIES;
        }
        if again {
            self.dirty = true;
            self.ack_on_best();
            self.arm_control(now);
        }
        self.arm_retries();
    }

    //= RFC 8684 3.4.1-c
    /// The announcement that is due now.
    #[cold]
    pub(crate) fn due_announcement(&mut self, now: Nanos) -> Option<AddAddr> {
        let announcement =
            self.announced.iter_mut().find(|a| !a.echoed && a.sent < ANNOUNCE_TRIES && a.next <= now)?;
        announcement.sent += 1;
        announcement.next = now + CONTROL_INTERVAL * (1 << announcement.sent.min(6)) / 2;
        Some(announcement.option)
    }

    /// Whether an announcement is due.
    pub(crate) fn has_due_announcement(&self, now: Nanos) -> bool {
        self.announced.iter().any(|a| !a.echoed && a.sent < ANNOUNCE_TRIES && a.next <= now)
    }

    /// Changes our side's backup wish for subflows on a path, and tells the peer (MP_PRIO).
    pub(crate) fn set_backup(&mut self, path: PathId, backup: bool) {
        for index in 0..self.strands.len() {
            if self.metrics[index].path != path {
                continue;
            }
            if let Some(strand) = self.strands[index].as_mut() {
                strand.backup_local = backup;
                strand.prio_pending = Some(backup);
                self.metrics[index].backup = backup || strand.backup_remote;
                strand.tcp.request_ack();
            }
        }
        self.wake();
    }

    /// Takes our address on a path away: REMOVE_ADDR, and its subflows are reset. The last that works stays until
    /// there is another: what is under way would be lost with it.
    pub(crate) fn remove_path(&mut self, now: Nanos, path: PathId) {
        let mut removed = Vec::new();
        for index in 0..self.strands.len() {
            if self.metrics[index].path == path
                && let Some(id) = self.strands[index].as_ref().map(|strand| strand.local_id)
                && self.metrics[index].state != SubflowStatus::Closed
            {
                //= RFC 8684 3.3.3-2 3.4.2-7
                if self.is_last(index)
                    && let Some(strand) = self.strands[index].as_mut()
                {
                    strand.leaving = true;
                    continue;
                }
                self.refuse(now, index, 0, "the path was removed");
                removed.push(id);
            }
        }
        self.retries.retain(|(_, request)| request.path != path);
        //= RFC 8684 3.4.2-2 what was announced and never used
        for endpoint in self.config.path_manager.endpoints.iter().filter(|endpoint| endpoint.path == path) {
            if self.announced.iter().any(|a| a.option.address_id == endpoint.id) {
                removed.push(endpoint.id);
            }
        }
        self.withdraw(removed);
    }

    /// Whether a subflow is the only one that works, and the connection has something left to do.
    fn is_last(&self, index: usize) -> bool {
        let works = |state| matches!(state, SubflowStatus::Usable | SubflowStatus::Stale);
        let others = self.metrics.iter().any(|metrics| metrics.id.index() != index && works(metrics.state));
        let finished = self.send.fin_acked && self.receive.finished;
        self.mode == Mode::Multipath && works(self.metrics[index].state) && !others && !finished
    }

    /// A subflow works now: those whose path was removed can go.
    #[cold]
    pub(crate) fn dismiss_leaving(&mut self, now: Nanos, successor: usize) {
        for index in 0..self.strands.len() {
            let leaves = self.strands[index].as_ref().filter(|strand| strand.leaving && index != successor);
            if let Some(id) = leaves.map(|strand| strand.local_id)
                && self.metrics[index].state != SubflowStatus::Closed
            {
                self.refuse(now, index, 0, "the path was removed");
                self.withdraw(vec![id]);
            }
        }
    }

    //= RFC 8684 3.4.2-1
    /// REMOVE_ADDR for the addresses that no subflow uses over another path.
    fn withdraw(&mut self, mut removed: Vec<u8>) {
        removed.sort_unstable();
        removed.dedup();
        for id in removed {
            let used = |(strand, metrics): (&Option<Strand<P>>, &SubflowMetrics)| {
                metrics.state != SubflowStatus::Closed
                    && strand.as_ref().is_some_and(|strand| strand.local_id == id)
            };
            if !self.strands.iter().zip(&self.metrics).any(used) {
                self.announced.retain(|announcement| announcement.option.address_id != id);
                self.removals.push_back(id);
            }
        }
        if !self.removals.is_empty() {
            self.ack_on_best();
        }
    }
}
