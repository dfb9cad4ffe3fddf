//! Runs one end of a tunnel: has it told what happens, and carries out what it wants.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use quinn::{Connection, SendDatagramError};
use ropewalk_datagrams::packet::{FlowKey, inspect};
use ropewalk_datagrams::{Adaptive, LinkSettings, LinkStats, Stats, Tunnel};
use serde_json::{Value, json};
use tokio::sync::mpsc::{Receiver, Sender};
use tokio::time::{Instant, sleep_until};

use super::Device;

/// What waits to be heard of; beyond, packets are lost, and links wait.
pub(crate) const MOST_EVENTS: usize = 2048;
/// How many events are taken at once.
const BATCH: usize = 128;
/// How often it is looked how large datagrams may be, and what has happened is told.
const LOOK: Duration = Duration::from_millis(100);

/// What happens to a tunnel.
#[derive(Debug)]
pub(crate) enum Event {
    /// A link is connected.
    Up { link: usize, connection: Connection },
    /// A link's connection has ended.
    Down { link: usize, connection: usize },
    /// Something came over a link.
    Datagram { link: usize, bytes: Bytes },
    /// Something came from the device.
    Packet(Bytes),
    /// Whether a link is used only while no other works.
    Backup { link: usize, is_backup: bool },
}

/// What is told of a tunnel.
#[derive(Debug, Default)]
pub struct Seen(Mutex<(Stats, Vec<LinkStats>)>);

impl Seen {
    /// What has happened, and what the links do, for status; `None` while no link is connected.
    pub fn told(&self, name: impl Fn(usize) -> Option<String>) -> Option<Value> {
        let (stats, links) = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let link = |one: &LinkStats| {
            json!({
                "link": name(one.link),
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
                "packets_sent_twice": stats.copied,
                "packets_repaired": stats.repaired,
                "packets_restored": stats.restored,
                "packets_repeated": stats.repeated,
                "gaps_skipped": stats.skipped,
                "datagrams_malformed": stats.malformed,
                "links": links.iter().map(link).collect::<Vec<_>>(),
            })
        })
    }
}

/// Hands what comes over a link to its tunnel, until the connection ends.
pub(crate) async fn read(link: usize, connection: Connection, events: Sender<Event>) {
    let id = connection.stable_id();
    if events.send(Event::Up { link, connection: connection.clone() }).await.is_err() {
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
    connections: BTreeMap<usize, (Connection, bool)>,
    device: &'a Device,
    start: Instant,
}

impl Drive<'_> {
    fn now(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn take(&mut self, now: u64, event: Event, admits: &mut impl FnMut(&FlowKey, bool) -> bool) {
        match event {
            Event::Up { link, connection } => {
                // What it was told belongs to another connection.
                self.tunnel.remove_link(now, link);
                self.connections.insert(link, (connection, false));
                self.look(now);
            }
            Event::Down { link, connection } => {
                if self.connections.get(&link).is_some_and(|(known, _)| known.stable_id() == connection) {
                    self.connections.remove(&link);
                    self.tunnel.remove_link(now, link);
                }
            }
            Event::Backup { link, is_backup } => {
                if let Some((_, known)) = self.connections.get_mut(&link) {
                    *known = is_backup;
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
        for (link, (connection, is_backup)) in &self.connections {
            if let Some(largest) = connection.max_datagram_size() {
                self.tunnel.set_link(now, *link, LinkSettings { largest, is_backup: *is_backup });
            }
        }
    }

    /// Carries out what the tunnel wants now.
    fn carry_out(&mut self, admits: &mut impl FnMut(&FlowKey, bool) -> bool) {
        let now = self.now();
        self.tunnel.on_timeout(now);
        while let Some((link, bytes)) = self.tunnel.poll_transmit(now) {
            let Some((connection, _)) = self.connections.get(&link) else { continue };
            if let Err(SendDatagramError::TooLarge) = connection.send_datagram(bytes) {
                self.look(now);
            }
        }
        while let Some(packet) = self.tunnel.poll_deliver() {
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
    let tunnel = Tunnel::new(Box::new(Adaptive));
    let mut drive = Drive { tunnel, connections: BTreeMap::new(), device: &device, start: Instant::now() };
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
