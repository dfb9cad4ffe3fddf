//! Where connections open, and when the others of their paths are joined.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use ropewalk_tokio::{
    ConnectOptions, LocalEndpoint, MemoryDevice, MptcpListener, MptcpStream, Network, Offload, PacketDevice,
    Path, PathId, Pool,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, Sleep, sleep};

use super::{config, server_address};

/// A device on which packets arrive later, and from which `most` packets are sent at most.
struct Far {
    device: MemoryDevice,
    delay: Duration,
    arriving: VecDeque<(Instant, Bytes)>,
    sleep: Pin<Box<Sleep>>,
    most: usize,
}

impl Far {
    fn new(device: MemoryDevice, delay: Duration, most: usize) -> Far {
        Far { device, delay, arriving: VecDeque::new(), sleep: Box::pin(sleep(Duration::ZERO)), most }
    }
}

impl PacketDevice for Far {
    fn offload(&self) -> Offload {
        self.device.offload()
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, pool: &mut Pool) -> Poll<io::Result<Bytes>> {
        while let Poll::Ready(packet) = self.device.poll_receive(cx, pool) {
            self.arriving.push_back((Instant::now() + self.delay, packet?));
        }
        loop {
            let Some(at) = self.arriving.front().map(|(at, _)| *at) else { return Poll::Pending };
            if at <= Instant::now()
                && let Some((_, packet)) = self.arriving.pop_front()
            {
                return Poll::Ready(Ok(packet));
            }
            self.sleep.as_mut().reset(at);
            std::task::ready!(self.sleep.as_mut().poll(cx));
        }
    }

    fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        if self.most == 0 {
            return Ok(());
        }
        self.most -= 1;
        self.device.send(pieces)
    }
}

/// Server and client with paths of these delays, milliseconds each way. The server's first device sends
/// `most` packets at most.
fn networks(delays: [u64; 2], most: usize) -> (Network, Network) {
    let mut builders =
        [Network::builder().config(config()), Network::builder().config(config()).remember_paths()];
    for (path, delay) in delays.into_iter().enumerate() {
        let mut sides = MemoryDevice::pair(1).into_iter().zip([1, 2]).map(|(mut queues, host)| {
            let most = if host == 1 && path == 0 { most } else { usize::MAX };
            let device = Far::new(queues.remove(0), Duration::from_millis(delay), most);
            Path::new(device, [10, 0, path as u8, host].into())
        });
        builders = builders.map(|builder| builder.path(sides.next().unwrap()));
    }
    let [server, client] = builders.map(|builder| builder.build().unwrap());
    (server, client)
}

fn joins(network: &Network) -> u64 {
    let mib = network.mib();
    mib.iter().find(|(name, _)| name == "MPTcpExtMPJoinSynTx").map_or(0, |(_, count)| *count)
}

#[tokio::test(start_paused = true)]
async fn an_early_join_begins_before_the_peer_has_said_anything_more() {
    for early in [false, true] {
        // Nothing but the SYN/ACK comes back.
        let (server, client) = networks([20, 20], 1);
        let _listener = MptcpListener::bind(&server, server_address()).unwrap();
        let options = ConnectOptions::new().early_join(early);
        let stream = MptcpStream::connect_with(&client, server_address(), &options).await.unwrap();
        sleep(Duration::from_millis(200)).await;
        assert_eq!(joins(&client), u64::from(early), "{early}");
        assert!(stream.info().unwrap().multipath);
    }
}

/// Opens a connection, sends and receives some, and returns the path that it was opened on.
async fn exchange(listener: &MptcpListener, client: &Network, options: &ConnectOptions) -> PathId {
    let mut near = MptcpStream::connect_with(client, server_address(), options).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    let opened = near.info().unwrap().subflows[0].path;
    near.write_all(&[7; 300_000]).await.unwrap();
    near.shutdown().await.unwrap();
    let mut received = Vec::new();
    far.read_to_end(&mut received).await.unwrap();
    assert_eq!(received.len(), 300_000);
    far.write_all(b"done").await.unwrap();
    far.shutdown().await.unwrap();
    near.read_to_end(&mut received).await.unwrap();
    opened
}

#[tokio::test(start_paused = true)]
async fn a_connection_opens_where_an_earlier_one_found_it_best() {
    let (server, client) = networks([80, 10], usize::MAX);
    let listener = MptcpListener::bind(&server, server_address()).unwrap();
    let (free, peer) = (ConnectOptions::new(), server_address().ip());
    let paths = || [PathId(0), PathId(1)];
    assert_eq!(client.remembered_path(peer, paths()), None);
    assert_eq!(exchange(&listener, &client, &free).await, PathId(0));
    assert_eq!(client.remembered_path(peer, paths()), Some(PathId(1)));
    assert_eq!(exchange(&listener, &client, &free).await, PathId(1));
    // Who names a path, or an address, gets it.
    assert_eq!(exchange(&listener, &client, &ConnectOptions::new().path(PathId(0))).await, PathId(0));
    let local = ConnectOptions::new().local(([10, 0, 0, 2], 0).into());
    assert_eq!(exchange(&listener, &client, &local).await, PathId(0));
    // Other peers are other paths; what an hour has passed over is forgotten; a network that wasn't asked to
    // remembers nothing.
    assert_eq!(client.remembered_path([10, 0, 9, 9].into(), paths()), None);
    assert_eq!(server.remembered_path(peer, paths()), None);
    sleep(Duration::from_secs(3700)).await;
    assert_eq!(client.remembered_path(peer, paths()), None);
}

#[tokio::test]
async fn paths_come_and_go_while_a_network_runs() {
    let (server, client) = super::networks(1, 1);
    let (mut near, mut far) = super::connection(&server, &client).await;
    let give = |at: u8| {
        let sides = MemoryDevice::pair(1).into_iter().zip([(&server, 1), (&client, 2)]);
        let given = sides.map(|(mut queues, (network, host))| {
            network.give_path(PathId(at.into()), Path::new(queues.remove(0), [10, 0, at, host].into()))
        });
        given.collect::<io::Result<Vec<()>>>()
    };
    assert!(give(0).is_err() && give(2).is_err(), "a path that is there, and one beyond the next place");
    let established = |stream: &MptcpStream| {
        stream
            .info()
            .map_or(0, |info| info.subflows.iter().filter(|one| !one.tcp.rtt.smoothed.is_zero()).count())
    };
    for round in 0..3u8 {
        give(1).unwrap();
        let from = LocalEndpoint {
            address: [10, 0, 1, 2].into(),
            port: None,
            path: PathId(1),
            id: 2,
            signal: false,
            subflow: true,
            backup: false,
        };
        near.add_path(&from, None);
        while established(&near) < 2 {
            sleep(Duration::from_millis(5)).await;
        }
        // What is sent while it goes arrives all the same.
        near.write_all(&[round; 100_000]).await.unwrap();
        near.remove_path(PathId(1));
        for network in [&server, &client] {
            network.take_path_away(PathId(1));
        }
        let mut received = vec![0; 100_000];
        far.read_exact(&mut received).await.unwrap();
        assert!(received.iter().all(|byte| *byte == round));
        while established(&near) > 1 {
            sleep(Duration::from_millis(5)).await;
        }
    }
}
