//! Connections that do nothing: memory and CPU time.

use std::net::SocketAddr;
use std::time::Duration;

use ropewalk_tokio::{MemoryDevice, MptcpListener, MptcpStream, Network, Path};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::{Failed, Options, cpu, memory};

const CONNECTIONS: usize = 10_000;
const WATCHED: Duration = Duration::from_secs(10);

pub fn run(_options: &Options) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let [mut one, mut other] = MemoryDevice::pair(1);
        let build =
            |device, host| Network::builder().path(Path::new(device, [10, 0, 0, host].into())).build();
        let (server, client) = (build(one.remove(0), 1)?, build(other.remove(0), 2)?);
        let address: SocketAddr = ([10, 0, 0, 1], 80).into();
        let listener = MptcpListener::bind(&server, address)?;
        let before = memory("VmRSS:");
        let mut streams = Vec::new();
        for _ in 0..CONNECTIONS {
            let mut near = MptcpStream::connect(&client, address).await?;
            let (mut far, _) = listener.accept().await?;
            // Each has said and heard something, as real ones have.
            near.write_all(b"hello").await?;
            far.read_exact(&mut [0; 5]).await?;
            far.write_all(b"hello").await?;
            near.read_exact(&mut [0; 5]).await?;
            streams.push((near, far));
        }
        // The last timers of the handshakes.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let each = (memory("VmRSS:").saturating_sub(before)) as f64 / CONNECTIONS as f64;
        let (polls, used) = (server.driver_counters().polls + client.driver_counters().polls, cpu());
        tokio::time::sleep(WATCHED).await;
        let polls = server.driver_counters().polls + client.driver_counters().polls - polls;
        let used = cpu() - used;
        println!(
            "{CONNECTIONS} idle connections: {each:.2} KiB for both ends of each, {:.2} KiB for one; in {} \
             s drivers ran {polls} times, and the process took {:.1} ms of CPU time",
            each / 2.0,
            WATCHED.as_secs(),
            1e3 * used
        );
        if polls > 0 {
            return Err("drivers ran although nothing happened".into());
        }
        Ok(())
    })
}
