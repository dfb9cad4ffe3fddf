//! Runs one end of a tunnel: has it told what happens, and carries out what it wants.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, SendDatagramError};
use ropewalk_datagrams::packet::{FlowKey, inspect};
use ropewalk_datagrams::{LinkSettings, LinkStats, SCHEDULERS, Stats, Tunnel, stream};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, sleep_until};

use super::{Device, STREAM};

/// What waits to be heard of; beyond, packets are lost, and links wait.
pub(crate) const MOST_EVENTS: usize = 2048;
/// How many events are taken at once.
const BATCH: usize = 128;
/// How often it is looked how large datagrams may be, and what has happened is told.
const LOOK: Duration = Duration::from_millis(100);

/// What carries a link's datagrams.
#[derive(Clone, Debug)]
pub(crate) enum Carrier {
    /// A connection of QUIC.
    Quic(Connection),
    /// A stream.
    Stream(Sender<Bytes>),
}

impl Carrier {
    /// Whether it is the connection of that id.
    fn is(&self, id: usize) -> bool {
        matches!(self, Carrier::Quic(connection) if connection.stable_id() == id)
    }

    fn has_ended(&self) -> bool {
        matches!(self, Carrier::Stream(queue) if queue.is_closed())
    }

    /// The largest datagram that it takes now.
    fn largest(&self) -> Option<usize> {
        match self {
            Carrier::Quic(connection) => connection.max_datagram_size(),
            Carrier::Stream(_) => Some(stream::LARGEST),
        }
    }

    /// Sends, and returns whether the datagram was larger than it takes now. What there is no room for is
    /// lost.
    fn send(&self, bytes: Bytes) -> bool {
        match self {
            Carrier::Quic(connection) => connection.send_datagram(bytes) == Err(SendDatagramError::TooLarge),
            Carrier::Stream(queue) => {
                let _ = queue.try_send(bytes);
                false
            }
        }
    }
}

/// What tells the gateway how a link is used, and which scheduler the tunnel uses: a byte (bit 0: it is a
/// backup; bits 1 to 3: the scheduler; bits 4 to 6: the link's order), and if its bit 7 is set, four bytes: the
/// most bytes per second.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Word(u8, u32);

/// How a link is used.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Use {
    /// While no other works.
    pub is_backup: bool,
    /// While those of a lower order don't work or are full; 7 at most.
    pub order: u8,
    /// Most that is sent, bytes per second; 0: no limit.
    pub most: u32,
}

impl Word {
    /// `scheduler`: a name of [`SCHEDULERS`].
    pub fn new(how: Use, scheduler: &str) -> Word {
        let place = SCHEDULERS.iter().position(|(name, ..)| *name == scheduler).unwrap_or_default();
        let is_limited = u8::from(how.most > 0);
        let byte = is_limited << 7 | how.order.min(7) << 4 | (place as u8) << 1 | u8::from(how.is_backup);
        Word(byte, how.most)
    }

    pub fn encode(self) -> Vec<u8> {
        let mut bytes = vec![self.0];
        if self.1 > 0 {
            bytes.extend(self.1.to_be_bytes());
        }
        bytes
    }

    /// Reads one.
    ///
    /// # Errors
    /// If there is none.
    pub async fn read(from: &mut (impl AsyncRead + Unpin)) -> io::Result<Word> {
        let byte = from.read_u8().await?;
        let most = if byte & 0x80 != 0 { from.read_u32().await? } else { 0 };
        Ok(Word(byte, most))
    }

    fn how(self) -> Use {
        Use { is_backup: self.0 & 1 != 0, order: self.0 >> 4 & 7, most: self.1 }
    }

    /// Its place in [`SCHEDULERS`].
    fn scheduler(self) -> usize {
        usize::from(self.0 >> 1 & 7)
    }
}

/// What happens to a tunnel.
#[derive(Debug)]
pub(crate) enum Event {
    /// A link is connected.
    Up { link: usize, carrier: Carrier },
    /// A link's connection has ended.
    Down { link: usize, connection: usize },
    /// Something came over a link.
    Datagram { link: usize, bytes: Bytes },
    /// Something came from the device.
    Packet(Bytes),
    /// What the proxy says of a link.
    Word { link: usize, word: Word },
}

/// What is told of a tunnel.
#[derive(Debug, Default)]
pub struct Seen(Mutex<(Stats, Vec<LinkStats>)>);

impl Seen {
    /// Whether something was heard by UDP of late, and by the stream.
    pub(crate) fn hears(&self) -> (bool, bool) {
        let (_, links) = &*self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut heard = links.iter().filter(|one| !one.is_silent);
        (heard.clone().any(|one| one.link != STREAM), heard.any(|one| one.link == STREAM))
    }

    /// What has happened, and what the links do, for status; `None` while no link is connected.
    pub fn told(&self, name: impl Fn(usize) -> Option<String>) -> Option<Value> {
        let (stats, links) = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let carrier = match self.hears() {
            (true, _) => Some("quic"),
            (false, true) => Some("stream"),
            (false, false) => None,
        };
        let link = |one: &LinkStats| {
            json!({
                "link": if one.link == STREAM { Some("stream".into()) } else { name(one.link) },
                "silent": one.is_silent,
                "rtt_s": one.rtt.map(|rtt| rtt as f64 / 1e9),
                "queue_s": one.queue as f64 / 1e9,
                "rate_bits_per_s": 8 * one.rate,
                "datagrams_sent": one.sent.0,
                "bytes_sent": one.sent.1,
                "datagrams_lost": one.sent.2,
            })
        };
        (!links.is_empty()).then(|| {
            json!({
                "packets_sent": stats.packets,
                "packets_received": stats.delivered,
                "packets_dropped": stats.dropped,
                "packets_marked": stats.marked,
                "packets_sent_twice": stats.copied,
                "packets_repaired": stats.repaired,
                "packets_restored": stats.restored,
                "packets_repeated": stats.repeated,
                "gaps_skipped": stats.skipped,
                "datagrams_malformed": stats.malformed,
                "carrier": carrier,
                "links": links.iter().map(link).collect::<Vec<_>>(),
            })
        })
    }
}

/// Hands what comes over a link to its tunnel, until the connection ends.
pub(crate) async fn read(link: usize, connection: Connection, events: Sender<Event>) {
    let id = connection.stable_id();
    let carrier = Carrier::Quic(connection.clone());
    if events.send(Event::Up { link, carrier }).await.is_err() {
        return;
    }
    while let Ok(bytes) = connection.read_datagram().await {
        if events.send(Event::Datagram { link, bytes }).await.is_err() {
            return;
        }
    }
    let _ = events.send(Event::Down { link, connection: id }).await;
}

struct Drive<'a> {
    tunnel: Tunnel,
    connections: BTreeMap<usize, (Carrier, Use)>,
    /// The scheduler's place in [`SCHEDULERS`].
    scheduler: usize,
    device: &'a Device,
    start: Instant,
}

impl Drive<'_> {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn take(&mut self, now: u64, event: Event, admits: &mut impl FnMut(&FlowKey, bool) -> bool) {
        match event {
            Event::Up { link, carrier } => {
                // What it was told belongs to another connection.
                self.tunnel.remove_link(now, link);
                // A stream waits for what is lost: it is for when nothing else works.
                let how = Use { is_backup: matches!(carrier, Carrier::Stream(_)), ..Use::default() };
                self.connections.insert(link, (carrier, how));
                self.look(now);
            }
            Event::Down { link, connection } => {
                if self.connections.get(&link).is_some_and(|(known, _)| known.is(connection)) {
                    self.connections.remove(&link);
                    self.tunnel.remove_link(now, link);
                }
            }
            Event::Word { link, word } => {
                if let Some((_, known)) = self.connections.get_mut(&link) {
                    *known = word.how();
                }
                if word.scheduler() != self.scheduler
                    && let Some((.., make)) = SCHEDULERS.get(word.scheduler())
                {
                    self.scheduler = word.scheduler();
                    self.tunnel.set_scheduler(make());
                }
            }
            Event::Datagram { link, bytes } => {
                if let Err(error) = self.tunnel.on_datagram(now, link, bytes) {
                    tracing::debug!(link, %error, "a datagram that makes no sense");
                }
            }
            Event::Packet(packet) => {
                if let Some(summary) = inspect(&packet)
                    && admits(&summary.flow, true)
                {
                    self.tunnel.on_packet(now, packet, &summary);
                }
            }
        }
    }

    /// How large datagrams may be changes as a connection finds its path's MTU.
    fn look(&mut self, now: u64) {
        let tunnel = &mut self.tunnel;
        self.connections.retain(|link, (carrier, _)| {
            let has_ended = carrier.has_ended();
            if has_ended {
                tunnel.remove_link(now, *link);
            }
            !has_ended
        });
        for (link, (carrier, how)) in &self.connections {
            if let Some(largest) = carrier.largest() {
                let Use { is_backup, order, most } = *how;
                let most = (most > 0).then_some(most.into());
                let settings = LinkSettings { largest, is_backup, order, most };
                self.tunnel.set_link(now, *link, settings);
            }
        }
    }

    /// Carries out what the tunnel wants now.
    fn carry_out(&mut self, admits: &mut impl FnMut(&FlowKey, bool) -> bool) {
        let now = self.now();
        self.tunnel.on_timeout(now);
        while let Some((link, bytes)) = self.tunnel.poll_transmit(now) {
            let Some((carrier, _)) = self.connections.get(&link) else { continue };
            if carrier.send(bytes) {
                self.look(now);
            }
        }
        while let Some(packet) = self.tunnel.poll_deliver(now) {
            if inspect(&packet).is_some_and(|summary| admits(&summary.flow, false)) {
                self.device.send(&packet);
            }
        }
    }
}

/// Runs a tunnel until nothing can happen to it any more. `admits`: whether a packet of the device's (true)
/// or of the far end's (false) passes.
pub(crate) async fn drive(
    mut events: Receiver<Event>,
    device: Arc<Device>,
    seen: Arc<Seen>,
    mut admits: impl FnMut(&FlowKey, bool) -> bool,
) {
    let (.., make) = SCHEDULERS[0];
    let mut drive = Drive {
        tunnel: Tunnel::new(make()),
        connections: BTreeMap::new(),
        scheduler: 0,
        device: &device,
        start: Instant::now(),
    };
    let mut batch = Vec::with_capacity(BATCH);
    let mut next_look = Instant::now() + LOOK;
    loop {
        let due = drive.tunnel.next_timeout(drive.now()).map(|at| drive.start + Duration::from_nanos(at));
        let due = due.map_or(next_look, |due| due.min(next_look));
        tokio::select! {
            biased;
            count = events.recv_many(&mut batch, BATCH) => {
                if count == 0 {
                    return;
                }
                let now = drive.now();
                batch.drain(..).for_each(|event| drive.take(now, event, &mut admits));
            }
            () = sleep_until(due) => {}
        }
        drive.carry_out(&mut admits);
        if Instant::now() >= next_look {
            next_look = Instant::now() + LOOK;
            drive.look(drive.now());
            let told = (drive.tunnel.stats(), drive.tunnel.link_stats());
            *seen.0.lock().unwrap_or_else(PoisonError::into_inner) = told;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_word_says_what_it_was_made_of() {
        for (place, (name, ..)) in SCHEDULERS.iter().enumerate() {
            for (is_backup, order, most) in [(false, 0, 0), (true, 0, 125_000), (false, 7, 1)] {
                let how = Use { is_backup, order, most };
                let bytes = Word::new(how, name).encode();
                let word = Word::read(&mut &bytes[..]).await.unwrap();
                assert_eq!((word.how(), word.scheduler()), (how, place));
            }
        }
        assert_eq!(Word::new(Use::default(), "adaptive"), Word::default());
    }
}
