//! What the path manager remembers (RFC 8684 3.4): addresses to announce, to echo and to withdraw, the peer's
//! addresses, and joins to open or to try again. `joining.rs` has the rules by which a connection uses it.

use std::collections::VecDeque;
use std::net::SocketAddr;

use ropewalk_wire::{AddAddr, RemoveAddr};

use crate::{PathId, SECOND, Span, Time};

/// How often an announcement is sent.
const ANNOUNCE_TRIES: u32 = 4;
/// The time after which control options are repeated (Linux waits 120 s for an echo; a lost announcement
/// would cost a short connection its second path).
pub(crate) const CONTROL_INTERVAL: Span = SECOND;
//= RFC 8684 3.9.3-3
/// How often a join that failed is tried again, after 1, 2, 4, ... seconds.
pub(crate) const JOIN_RETRIES: u32 = 4;
/// Addresses of the peer that are remembered.
const MAX_REMOTE_ADDRESSES: usize = 16;
/// Address ids that one REMOVE_ADDR carries.
const REMOVE_ADDR_IDS: usize = 4;
/// Octets of the longest REMOVE_ADDR that is sent, with its padding.
pub(super) const REMOVE_ADDR_LEN: usize = RemoveAddr::padded_len(REMOVE_ADDR_IDS);

/// A subflow that the connection wants opened: the endpoint gives it a port and numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct JoinRequest {
    /// The network.
    pub path: PathId,
    /// Our address; port 0: any.
    pub local: SocketAddr,
    /// The peer's.
    pub remote: SocketAddr,
    /// Our address id.
    pub local_id: u8,
    /// The peer's address id.
    pub remote_id: u8,
    /// As a backup.
    pub backup: bool,
    /// How often it was tried before.
    pub attempt: u32,
    /// Before the peer's first DSS.
    pub early: bool,
}

/// An address that we announce until it is echoed.
#[derive(Debug)]
struct Announcement {
    option: AddAddr,
    sent: u32,
    next: Time,
    echoed: bool,
}

impl Announcement {
    fn is_pending(&self) -> bool {
        !self.echoed && self.sent < ANNOUNCE_TRIES
    }

    fn is_due(&self, now: Time) -> bool {
        self.is_pending() && self.next <= now
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct PathManager {
    /// `None` while there is nothing in it, as with most connections after their start.
    lists: Option<Box<Lists>>,
    /// Joins that we opened and that aren't closed.
    opened: u8,
    /// The joins of the connection's start were requested before the peer's first DSS.
    early: bool,
}

/// Addresses and joins.
#[derive(Debug, Default)]
struct Lists {
    announced: Vec<Announcement>,
    echoes: VecDeque<AddAddr>,
    /// Address identifiers for REMOVE_ADDR.
    remove_addr: VecDeque<u8>,
    remote_addresses: Vec<(u8, SocketAddr)>,
    /// Joins that the endpoint is to open.
    joins: VecDeque<JoinRequest>,
    /// Joins that failed, and when they are tried again.
    retries: Vec<(Time, JoinRequest)>,
    /// Joins of the connection's start that the peer refused before its first DSS.
    refused: Vec<JoinRequest>,
}

static EMPTY: Lists = Lists {
    announced: Vec::new(),
    echoes: VecDeque::new(),
    remove_addr: VecDeque::new(),
    remote_addresses: Vec::new(),
    joins: VecDeque::new(),
    retries: Vec::new(),
    refused: Vec::new(),
};

impl Lists {
    fn is_silent(&self) -> bool {
        let Lists { announced, echoes, remove_addr, remote_addresses: _, joins: _, retries: _, refused: _ } =
            self;
        let waits = announced.iter().any(Announcement::is_pending);
        echoes.is_empty() && remove_addr.is_empty() && !waits
    }

    fn is_empty(&self) -> bool {
        let Lists { announced, echoes, remove_addr, remote_addresses, joins, retries, refused } = self;
        let addresses = announced.is_empty() && remote_addresses.is_empty();
        let options = echoes.is_empty() && remove_addr.is_empty();
        addresses && options && joins.is_empty() && retries.is_empty() && refused.is_empty()
    }
}

impl PathManager {
    fn lists(&self) -> &Lists {
        self.lists.as_deref().unwrap_or(&EMPTY)
    }

    fn lists_mut(&mut self) -> &mut Lists {
        self.lists.get_or_insert_default()
    }

    /// Changes the lists, if there is anything in them, and frees them if nothing is left.
    fn take_from<T: Default>(&mut self, take: impl FnOnce(&mut Lists) -> T) -> T {
        let Some(lists) = &mut self.lists else { return T::default() };
        let taken = take(lists);
        if lists.is_empty() {
            self.lists = None;
        }
        taken
    }

    /// Whether there is no address option to send, now or later.
    #[inline]
    pub fn is_silent(&self) -> bool {
        self.lists.as_ref().is_none_or(|lists| lists.is_silent())
    }

    /// Whether it has nothing to send and no join to open, now or later.
    #[cfg(feature = "lookahead")]
    pub fn is_idle(&self) -> bool {
        self.is_silent() && !self.awaits_join()
    }

    /// Announces one of our addresses from now on.
    pub fn announce(&mut self, now: Time, option: AddAddr) {
        self.lists_mut().announced.push(Announcement { option, sent: 0, next: now, echoed: false });
    }

    /// How many of our addresses were announced and not withdrawn.
    pub fn announced(&self) -> usize {
        self.lists().announced.len()
    }

    /// Whether an address of ours was announced and not withdrawn.
    pub fn has_announced(&self, id: u8) -> bool {
        self.lists().announced.iter().any(|announcement| announcement.option.address_id == id)
    }

    /// Whether the peer hasn't echoed some announcement.
    pub fn has_unechoed(&self) -> bool {
        self.lists().announced.iter().any(|announcement| !announcement.echoed)
    }

    /// Whether some announcement is to be repeated.
    pub fn has_pending_announcement(&self) -> bool {
        self.lists().announced.iter().any(Announcement::is_pending)
    }

    /// Whether an announcement is due.
    pub fn has_due_announcement(&self, now: Time) -> bool {
        self.lists().announced.iter().any(|announcement| announcement.is_due(now))
    }

    //= RFC 8684 3.4.1-c
    /// The announcement that is due, which counts as sent.
    #[cold]
    pub fn due_announcement(&mut self, now: Time) -> Option<AddAddr> {
        let lists = self.lists.as_mut()?;
        let announcement = lists.announced.iter_mut().find(|announcement| announcement.is_due(now))?;
        announcement.sent += 1;
        announcement.next = now + CONTROL_INTERVAL * (1 << announcement.sent.min(6)) / 2;
        Some(announcement.option)
    }

    /// Octets of the longest announcement.
    pub fn announcement_len(&self) -> usize {
        let is_ipv6 = |announcement: &Announcement| announcement.option.address.is_ipv6();
        if self.lists().announced.iter().any(is_ipv6) { 32 } else { 20 }
    }

    /// The peer has echoed an announcement.
    pub fn on_echo(&mut self, echo: &AddAddr) {
        for Announcement { option, echoed, .. } in
            self.lists.iter_mut().flat_map(|lists| &mut lists.announced)
        {
            *echoed |= option.address_id == echo.address_id && option.address == echo.address;
        }
    }

    /// Queues the echo of one of the peer's announcements; false if too many wait.
    pub fn queue_echo(&mut self, add: &AddAddr) -> bool {
        let fits = self.lists().echoes.len() < MAX_REMOTE_ADDRESSES;
        if fits {
            self.lists_mut().echoes.push_back(AddAddr { echo: true, hmac: None, ..*add });
        }
        fits
    }

    /// The next echo to send.
    pub fn next_echo(&self) -> Option<&AddAddr> {
        self.lists().echoes.front()
    }

    /// The next echo was sent.
    pub fn on_echo_sent(&mut self) {
        self.take_from(|lists| lists.echoes.pop_front());
    }

    /// Has REMOVE_ADDR sent for an address of ours.
    pub fn queue_remove_addr(&mut self, id: u8) {
        let lists = self.lists_mut();
        lists.announced.retain(|announcement| announcement.option.address_id != id);
        lists.remove_addr.push_back(id);
    }

    /// Whether REMOVE_ADDR is to be sent.
    pub fn owes_remove_addr(&self) -> bool {
        !self.lists().remove_addr.is_empty()
    }

    /// The address ids of the next REMOVE_ADDR.
    pub fn take_remove_addr(&mut self) -> Vec<u8> {
        self.take_from(|lists| {
            let count = lists.remove_addr.len().min(REMOVE_ADDR_IDS);
            lists.remove_addr.drain(..count).collect()
        })
    }

    //= RFC 8684 3.4.1-d 3.4.1-4
    /// Remembers an address of the peer, of `limit` at most; false if it is known, or one too many.
    pub fn learn_address(&mut self, id: u8, address: SocketAddr, limit: u8) -> bool {
        let known = &self.lists().remote_addresses;
        let is_known = known.iter().any(|known| known.0 == id || known.1 == address);
        if is_known || known.len() >= usize::from(limit).min(MAX_REMOTE_ADDRESSES) {
            return false;
        }
        self.lists_mut().remote_addresses.push((id, address));
        true
    }

    /// Forgets addresses of the peer.
    pub fn forget_addresses(&mut self, ids: &[u8]) {
        self.take_from(|lists| {
            //= RFC 8684 3.4.2-a 3.4.2-b
            lists.remote_addresses.retain(|(id, _)| !ids.contains(id));
            //= RFC 8684 3.4.2-5
            lists.retries.retain(|(_, request)| !ids.contains(&request.remote_id));
        });
    }

    //= RFC 8684 3.2-a
    /// Queues a join for the endpoint to open; false if `limit` are open or queued.
    pub fn request_join(&mut self, request: JoinRequest, limit: u8) -> bool {
        let allowed = self.opened < limit;
        if allowed {
            self.opened += 1;
            self.lists_mut().joins.push_back(request);
        }
        allowed
    }

    /// Makes the joins to be opened on a path those of backups, or not.
    pub fn set_backup(&mut self, path: PathId, backup: bool) {
        let Some(lists) = &mut self.lists else { return };
        let retries = lists.retries.iter_mut().map(|(_, join)| join);
        let own =
            lists.joins.iter_mut().chain(retries).chain(&mut lists.refused).filter(|join| join.path == path);
        own.for_each(|join| join.backup = backup);
    }

    /// The joins of the connection's start are requested before the peer's first DSS.
    pub fn begin_early(&mut self) {
        self.early = true;
    }

    /// The peer's first DSS is there. Returns the joins that it refused before, or `None` if none was
    /// requested before.
    pub fn end_early(&mut self) -> Option<Vec<JoinRequest>> {
        let was_early = std::mem::take(&mut self.early);
        was_early.then(|| self.take_from(|lists| std::mem::take(&mut lists.refused)))
    }

    /// The peer refused a join before its first DSS.
    pub fn on_early_refusal(&mut self, request: JoinRequest) {
        self.lists_mut().refused.push(request);
    }

    /// Whether a join waits for the endpoint.
    #[inline]
    pub fn has_join_requests(&self) -> bool {
        self.lists.as_ref().is_some_and(|lists| !lists.joins.is_empty())
    }

    /// The next join for the endpoint to open.
    pub fn next_join_request(&mut self) -> Option<JoinRequest> {
        self.take_from(|lists| lists.joins.pop_front())
    }

    /// A join that we opened is closed.
    pub fn on_join_closed(&mut self) {
        self.opened = self.opened.saturating_sub(1);
    }

    /// A join failed before it was complete: what was in the way may pass (RFC 8684 3.6 has reasons that do),
    /// and it is tried again unless it was often enough. Returns whether it is.
    pub fn retry_join(&mut self, now: Time, request: JoinRequest) -> bool {
        let again = request.attempt < JOIN_RETRIES;
        if again {
            let at = now + SECOND * (1 << request.attempt);
            self.lists_mut().retries.push((at, JoinRequest { attempt: request.attempt + 1, ..request }));
        }
        again
    }

    /// Whether a join is about to be opened, or to be tried again.
    pub fn awaits_join(&self) -> bool {
        let lists = self.lists();
        !lists.joins.is_empty() || !lists.retries.is_empty()
    }

    /// Forgets the joins to be opened.
    pub fn forget_joins(&mut self) {
        self.take_from(|lists| {
            lists.joins.clear();
            lists.retries.clear();
        });
    }

    /// When the first join is tried again.
    pub fn next_retry(&self) -> Option<Time> {
        self.lists().retries.iter().map(|(at, _)| *at).min()
    }

    /// Takes the joins that are to be tried again by now.
    pub fn take_due_retries(&mut self, now: Time) -> Vec<JoinRequest> {
        self.take_from(|lists| {
            let due = lists.retries.extract_if(.., |(at, _)| *at <= now);
            due.map(|(_, request)| request).collect()
        })
    }

    /// Joins over a path that was removed aren't tried again.
    pub fn forget_retries(&mut self, path: PathId) {
        self.take_from(|lists| lists.retries.retain(|(_, request)| request.path != path));
    }
}

#[cfg(test)]
mod tests {
    use crate::Time;
    use std::net::SocketAddr;

    use ropewalk_wire::AddAddr;

    use super::PathManager;

    fn address(host: u8) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, host], 80))
    }

    fn announcement(address_id: u8) -> AddAddr {
        AddAddr { echo: false, address_id, address: address(address_id).ip(), port: None, hmac: None }
    }

    #[test]
    fn an_address_that_is_withdrawn_is_announced_no_more_and_others_are() {
        let mut manager = PathManager::default();
        manager.announce(Time::ZERO, announcement(1));
        manager.announce(Time::ZERO, announcement(2));
        manager.queue_remove_addr(1);
        assert_eq!((manager.has_announced(1), manager.has_announced(2)), (false, true));
        assert_eq!(manager.take_remove_addr(), [1]);
    }

    #[test]
    fn an_address_is_learnt_once_by_its_id_and_by_itself_up_to_the_limit() {
        let mut manager = PathManager::default();
        assert!(manager.learn_address(1, address(1), 3));
        assert!(!manager.learn_address(1, address(2), 3), "the id is taken");
        assert!(!manager.learn_address(2, address(1), 3), "the address is known");
        assert!(manager.learn_address(2, address(2), 3));
        assert!(manager.learn_address(3, address(3), 3));
        assert!(!manager.learn_address(4, address(4), 3), "one too many");
    }
}
