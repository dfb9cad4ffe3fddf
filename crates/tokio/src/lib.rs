//! Multipath TCP (RFC 8684) for tokio, on Ropewalk's user-space engine: no kernel support is needed.
//!
//! A [`Network`] owns devices that carry IP packets (TUN devices with segmentation offload, or anything that
//! is a [`PacketDevice`]) and the tasks that drive the engine. On it [`MptcpListener`] and [`MptcpStream`]
//! are used as tokio's `TcpListener` and `TcpStream` are.
//!
//! ```
//! use ropewalk_tokio::{MemoryDevice, MptcpListener, MptcpStream, Network, Path};
//! use tokio::io::{AsyncReadExt, AsyncWriteExt};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! // Two hosts in one process, joined by one path.
//! let [mut one, mut other] = MemoryDevice::pair(1);
//! let server = Network::builder().path(Path::new(one.remove(0), [10, 0, 0, 1].into())).build()?;
//! let client = Network::builder().path(Path::new(other.remove(0), [10, 0, 0, 2].into())).build()?;
//!
//! let listener = MptcpListener::bind(&server, ([10, 0, 0, 1], 80).into())?;
//! tokio::spawn(async move {
//!     let (mut stream, _peer) = listener.accept().await?;
//!     stream.write_all(b"hello").await?;
//!     stream.shutdown().await
//! });
//!
//! let mut stream = MptcpStream::connect(&client, ([10, 0, 0, 1], 80).into()).await?;
//! let mut text = String::new();
//! stream.read_to_string(&mut text).await?;
//! assert_eq!(text, "hello");
//! assert!(stream.info().is_some_and(|info| info.multipath));
//! # Ok(())
//! # }
//! ```
//!
//! # Cores
//! A network over devices of N queues has N shards, each with an endpoint of the engine, a queue of every
//! device, and a driver of its own; connections belong to shards by a hash. Nothing polls: without packets,
//! calls and due timers no driver runs. Timers are tokio's, which fire up to a millisecond late.
#![forbid(unsafe_code)]

mod alarm;
mod backlog;
mod clock;
mod device;
mod driver;
mod entries;
mod error;
mod info;
mod listener;
mod memory;
mod network;
mod options;
mod pieces;
mod queue;
mod shard;
mod steering;
mod stream;

pub use device::{DeviceError, Offload, PacketDevice, TunDevice};
pub use info::StreamInfo;
pub use listener::MptcpListener;
pub use memory::MemoryDevice;
pub use network::{Execution, Network, NetworkBuilder, Path};
pub use options::{ConnectOptions, ListenOptions, default_config};
pub use queue::PathState;
pub use ropewalk_engine::PathId;
pub use ropewalk_engine::config::{BufferConfig, ConnectionConfig, EndpointConfig, LocalEndpoint};
pub use ropewalk_engine::metrics::SubflowStatus;
pub use ropewalk_engine::mptcp::{CloseReason, ConnectionInfo, ConnectionStats, DecisionRecord, SubflowInfo};
pub use ropewalk_os::tun;
pub use ropewalk_wire::pool::{MAX_CONDENSED, Pool};
pub use shard::DriverCounters;
pub use stream::{MptcpStream, OwnedReadHalf, OwnedWriteHalf, ReuniteError};
