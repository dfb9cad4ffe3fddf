//! Two networks in one process, joined in memory: streams, listeners, ends, leaks, shards.

mod ends;
mod leaks;
mod messages;
mod paths;
mod shards;
mod streams;

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use ropewalk_tokio::{
    ConnectionConfig, MemoryDevice, MptcpListener, MptcpStream, Network, Offload, PacketDevice, Path, Pool,
    default_config,
};

/// The server's address on its first path.
fn server_address() -> SocketAddr {
    ([10, 0, 0, 1], 80).into()
}

/// A second and a bit of TIME-WAIT are over soon.
fn config() -> ConnectionConfig {
    let mut config = default_config();
    config.tcp.time_wait = ropewalk_engine::Span::from_millis(50);
    config
}

/// Server and client with `paths` paths of `queues` queues between them; each device passes through `wrap`.
fn networks_over<D: PacketDevice>(
    paths: u8,
    queues: usize,
    mut wrap: impl FnMut(MemoryDevice) -> D,
) -> (Network, Network) {
    let mut builders = [Network::builder().config(config()), Network::builder().config(config())];
    for path in 0..paths {
        let devices = MemoryDevice::pair(queues);
        let mut sides = devices.into_iter().zip([1, 2]).map(|(mut device, host)| {
            // On the last of several paths nothing arrives at the queue that it was sent from.
            if host == 1 && path > 0 && path + 1 == paths {
                device.rotate_left(1);
            }
            let device: Vec<D> = device.into_iter().map(&mut wrap).collect();
            Path::with_queues(device, [10, 0, path, host].into())
        });
        builders = builders.map(|builder| builder.path(sides.next().unwrap()));
    }
    let [server, client] = builders.map(|builder| builder.build().unwrap());
    (server, client)
}

fn networks(paths: u8, queues: usize) -> (Network, Network) {
    networks_over(paths, queues, |device| device)
}

/// A connection, from the client's side and from the server's.
async fn connection(server: &Network, client: &Network) -> (MptcpStream, MptcpStream) {
    let listener = MptcpListener::bind(server, server_address()).unwrap();
    let near = MptcpStream::connect(client, server_address()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    (near, far)
}

/// Every connection of both is gone.
async fn assert_drained(server: &Network, client: &Network) {
    let limit = Duration::from_secs(300);
    assert!(client.drain(limit).await, "{} connections are left at the client", client.connections());
    assert!(server.drain(limit).await, "{} connections are left at the server", server.connections());
}

/// Bytes whose place in the stream can be told.
fn pattern(len: usize) -> Vec<u8> {
    (0..len as u32).map(|at| (at.wrapping_mul(0x9e37_79b1) >> 24) as u8).collect()
}

/// Loses every Nth packet that it sends.
struct Lossy {
    device: MemoryDevice,
    every: u64,
    sent: u64,
}

impl PacketDevice for Lossy {
    fn offload(&self) -> Offload {
        self.device.offload()
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>, pool: &mut Pool) -> Poll<io::Result<Bytes>> {
        self.device.poll_receive(cx, pool)
    }

    fn send(&mut self, pieces: &[IoSlice<'_>]) -> io::Result<()> {
        self.sent += 1;
        if self.sent.is_multiple_of(self.every) { Ok(()) } else { self.device.send(pieces) }
    }
}
