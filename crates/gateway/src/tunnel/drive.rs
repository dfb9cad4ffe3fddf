//! Runs one end of a tunnel: has it told what happens, and carries out what it wants.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, SendDatagramError};
use ropewalk_datagrams::packet::{FlowKey, Summary, inspect};
use ropewalk_datagrams::{LinkSettings, LinkStats, LinkUse, SCHEDULERS, Stats, Tunnel, stream};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, sleep_until};

use super::word::{Use, Word};
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
        match self {
            Carrier::Quic(connection) => connection.close_reason().is_some(),
            Carrier::Stream(queue) => queue.is_closed(),
        }
    }

    fn close(self) {
        if let Carrier::Quic(connection) = self {
            connection.close(0u8.into(), b"");
        }
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

/// What happens to a tunnel.
#[derive(Debug)]
pub(crate) enum Event {
    /// A link is connected to this tunnel of the far end's.
    Up { link: usize, carrier: Carrier, far: u64 },
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

/// Says that a link is connected. What is said of it comes after this.
pub(crate) async fn connected(link: usize, connection: &Connection, far: u64, events: &Sender<Event>) {
    let carrier = Carrier::Quic(connection.clone());
    // The tunnel has ended at worst.
    let _ = events.send(Event::Up { link, carrier, far }).await;
}

/// Hands what comes over a link to its tunnel, until the connection ends.
pub(crate) async fn read(link: usize, connection: Connection, events: Sender<Event>) {
    let id = connection.stable_id();
    while let Ok(bytes) = connection.read_datagram().await {
        if events.send(Event::Datagram { link, bytes }).await.is_err() {
            return;
        }
    }
    let _ = events.send(Event::Down { link, connection: id }).await;
}

struct Drive<'a> {
    tunnel: Tunnel,
    connections: BTreeMap<usize, (Carrier, Word)>,
    /// The far end's tunnel.
    far: Option<u64>,
    /// The lanes' schedulers' places in [`SCHEDULERS`].
    schedulers: Vec<u8>,
    device: &'a Device,
    start: Instant,
}

impl Drive<'_> {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn take(&mut self, now: u64, event: Event, gate: &mut impl Gate) {
        match event {
            Event::Up { link, carrier, far } => {
                if self.far.replace(far).is_some_and(|known| known != far) {
                    self.tunnel.meet_far_end();
                    // Connections to the former one carry nothing any more: they are made anew at once.
                    std::mem::take(&mut self.connections).into_values().for_each(|(old, _)| old.close());
                }
                // What it was told belongs to another connection.
                self.tunnel.remove_link(now, link);
                // A stream waits for what is lost: it is for when nothing else works.
                let is_backup = matches!(carrier, Carrier::Stream(_));
                let how = Use { how: LinkUse { is_backup, ..LinkUse::default() }, ..Use::default() };
                self.connections.insert(link, (carrier, Word { most: 0, lanes: vec![how] }));
                self.look(now);
            }
            Event::Down { link, connection } => {
                if self.connections.get(&link).is_some_and(|(known, _)| known.is(connection)) {
                    self.connections.remove(&link);
                    self.tunnel.remove_link(now, link);
                }
            }
            Event::Word { link, word } => {
                self.schedulers.resize(self.schedulers.len().max(word.lanes.len()), u8::MAX);
                for (lane, Use { scheduler, .. }) in word.lanes.iter().enumerate() {
                    if *scheduler != self.schedulers[lane]
                        && let Some((.., make)) = SCHEDULERS.get(usize::from(*scheduler))
                    {
                        self.schedulers[lane] = *scheduler;
                        self.tunnel.set_scheduler(lane, make());
                    }
                }
                if let Some((_, known)) = self.connections.get_mut(&link) {
                    *known = word;
                }
                self.look(now);
            }
            Event::Datagram { link, bytes } => {
                if let Err(error) = self.tunnel.on_datagram(now, link, bytes) {
                    tracing::debug!(link, %error, "a datagram that makes no sense");
                }
            }
            Event::Packet(packet) => {
                let Some(summary) = inspect(&packet).filter(|one| gate.admits(&one.flow, true)) else {
                    return;
                };
                match gate.lane(&summary) {
                    Some(lane) => self.tunnel.on_packet_in(lane, now, packet, &summary),
                    None => self.tunnel.on_packet(now, packet, &summary),
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
        for (link, (carrier, Word { most, lanes })) in &self.connections {
            if let Some(largest) = carrier.largest() {
                let LinkUse { is_backup, order, .. } = lanes.first().copied().unwrap_or_default().how;
                let most = (*most > 0).then_some((*most).into());
                let settings = LinkSettings { largest, is_backup, order, most };
                self.tunnel.set_link(now, *link, settings);
                self.tunnel.set_uses(*link, lanes.iter().map(|one| one.how));
            }
        }
    }

    /// Carries out what the tunnel wants now.
    fn carry_out(&mut self, gate: &mut impl Gate) {
        let now = self.now();
        self.tunnel.on_timeout(now);
        while let Some((link, bytes)) = self.tunnel.poll_transmit(now) {
            let Some((carrier, _)) = self.connections.get(&link) else { continue };
            if carrier.send(bytes) {
                self.look(now);
            }
        }
        while let Some(packet) = self.tunnel.poll_deliver(now) {
            if inspect(&packet).is_some_and(|summary| gate.admits(&summary.flow, false)) {
                self.device.send(&packet);
            }
        }
    }
}

/// What an end says of packets.
pub(crate) trait Gate {
    /// Whether one of the device's (`is_outward`) or of the far end's passes.
    fn admits(&mut self, flow: &FlowKey, is_outward: bool) -> bool;

    /// The lane of one of the device's; `None`: the far end says it.
    fn lane(&mut self, packet: &Summary) -> Option<usize>;
}

/// Runs a tunnel until nothing can happen to it any more.
pub(crate) async fn drive(
    mut events: Receiver<Event>,
    device: Arc<Device>,
    seen: Arc<Seen>,
    mut gate: impl Gate,
) {
    let (.., make) = SCHEDULERS[0];
    let mut drive = Drive {
        tunnel: Tunnel::new(make()),
        connections: BTreeMap::new(),
        far: None,
        schedulers: vec![0],
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
                batch.drain(..).for_each(|event| drive.take(now, event, &mut gate));
            }
            () = sleep_until(due) => {}
        }
        drive.carry_out(&mut gate);
        if Instant::now() >= next_look {
            next_look = Instant::now() + LOOK;
            drive.look(drive.now());
            let told = (drive.tunnel.stats(), drive.tunnel.link_stats());
            *seen.0.lock().unwrap_or_else(PoisonError::into_inner) = told;
        }
    }
}

#[cfg(test)]
mod tests;
