//! A thousand connections opened and closed each second: the soak.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ropewalk_tokio::{MemoryDevice, MptcpListener, MptcpStream, Network, Path, default_config};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, MissedTickBehavior};

use crate::{Failed, Options, cpu, memory};

const EACH_SECOND: u64 = 1000;
/// TIME-WAIT. With Linux's 60 s one client address can't open more than 470 connections a second to one
/// server address: its 28,000 ports are all in TIME-WAIT.
const TIME_WAIT: ropewalk_engine::Span = ropewalk_engine::Span::from_secs(1);

pub fn run(options: &Options) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let [mut one, mut other] = MemoryDevice::pair(1);
        let build = |device, host| {
            let mut config = default_config();
            config.tcp.time_wait = TIME_WAIT;
            Network::builder().path(Path::new(device, [10, 0, 0, host].into())).config(config).build()
        };
        let (server, client) = (build(one.remove(0), 1)?, build(other.remove(0), 2)?);
        let address: SocketAddr = ([10, 0, 0, 1], 80).into();
        let listener = MptcpListener::bind(&server, address)?;
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let mut request = [0; 100];
                    stream.read_exact(&mut request).await?;
                    stream.write_all(&request).await?;
                    stream.shutdown().await?;
                    stream.read(&mut request).await
                });
            }
        });
        let done = Arc::new(AtomicU64::new(0));
        let failures = Arc::new(Mutex::new(BTreeMap::new()));
        let (begin, used) = (Instant::now(), cpu());
        let mut tick = tokio::time::interval(Duration::from_millis(1));
        tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
        let mut sizes = Vec::new();
        let mut opened = 0;
        while begin.elapsed() < Duration::from_secs(options.seconds) {
            tick.tick().await;
            opened += 1;
            if u64::is_multiple_of(opened, EACH_SECOND) {
                sizes.push(memory("VmRSS:"));
            }
            let (client, done, failures) = (client.clone(), Arc::clone(&done), Arc::clone(&failures));
            tokio::spawn(async move {
                let talk = async {
                    let mut stream = MptcpStream::connect(&client, address).await?;
                    stream.write_all(&[7; 100]).await?;
                    let mut answer = Vec::new();
                    stream.read_to_end(&mut answer).await?;
                    Ok::<_, std::io::Error>(answer.len() == 100)
                };
                let why = match talk.await {
                    Ok(true) => {
                        done.fetch_add(1, Ordering::Relaxed);
                        return;
                    }
                    Ok(false) => "short".to_string(),
                    Err(error) => error.to_string(),
                };
                if let Ok(mut failures) = failures.lock() {
                    *failures.entry(why).or_insert(0_u64) += 1;
                }
            });
        }
        let time = begin.elapsed().as_secs_f64();
        let used = cpu() - used;
        let is_drained =
            client.drain(Duration::from_secs(70)).await && server.drain(Duration::from_secs(70)).await;
        let good = done.load(Ordering::Relaxed);
        let failures = failures.lock().map(|failures| failures.clone()).unwrap_or_default();
        let failed: u64 = failures.values().sum();
        // TIME-WAIT fills up first.
        let (early, late) = (sizes.get(2).copied().unwrap_or(0), sizes.last().copied().unwrap_or(0));
        println!(
            "{good} connections in {time:.1} s ({:.0} each second), {failed} failed, {:.0} us of CPU time \
             each (both ends); memory {early} KiB after 3 s, {late} KiB at the end; all gone afterwards: \
             {is_drained}",
            good as f64 / time,
            1e6 * used / good as f64
        );
        if failed > 0 || good < opened || !is_drained {
            return Err(format!("{} never ended, failures: {failures:?}", opened - good - failed).into());
        }
        Ok(())
    })
}
