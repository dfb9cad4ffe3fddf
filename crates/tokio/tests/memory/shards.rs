//! Several shards: connections are spread, joins find theirs.

use std::time::Duration;

use ropewalk_tokio::{Execution, MemoryDevice, MptcpListener, MptcpStream, Network, Path};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{assert_drained, config, networks, pattern, server_address};

const CONNECTIONS: usize = 24;

/// Each connection sends what it should, over every path; returns how many there were in each of the client's
/// shards.
async fn exchange(server: &Network, client: &Network, paths: usize) -> Vec<usize> {
    let listener = MptcpListener::bind(server, server_address()).unwrap();
    let serving = tokio::spawn(async move {
        let mut tasks = Vec::new();
        for _ in 0..CONNECTIONS {
            let (stream, _) = listener.accept().await.unwrap();
            tasks.push(tokio::spawn(async move {
                let (mut reader, mut writer) = stream.into_split();
                tokio::io::copy(&mut reader, &mut writer).await.unwrap();
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
    let mut shards = vec![0; client.shards()];
    let mut tasks = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut stream = MptcpStream::connect(client, server_address()).await.unwrap();
        shards[stream.shard()] += 1;
        tasks.push(tokio::spawn(async move {
            stream.write_all(b"x").await.unwrap();
            stream.read_exact(&mut [0]).await.unwrap();
            let begin = tokio::time::Instant::now();
            while stream.info().unwrap().measured_subflows() < paths {
                assert!(begin.elapsed().as_secs() < 20, "{:?}", stream.info());
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            let sent = pattern(300_000);
            let (mut reader, mut writer) = stream.into_split();
            let reading = tokio::spawn(async move {
                let mut received = Vec::new();
                reader.read_to_end(&mut received).await.unwrap();
                received
            });
            writer.write_all(&sent).await.unwrap();
            writer.shutdown().await.unwrap();
            assert!(reading.await.unwrap() == sent);
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    serving.await.unwrap();
    shards
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_are_spread_and_joins_find_their_shard() {
    let (server, client) = networks(2, 3);
    let shards = exchange(&server, &client, 2).await;
    assert_eq!(shards, [CONNECTIONS / 3; 3]);
    assert!(server.driver_counters().handed_over > 0, "no join had to be handed over");
    assert_drained(&server, &client).await;
    let noted = [&server, &client].map(Network::noted);
    assert_eq!(noted, [(0, 0); 2], "tokens or joined subflows stay noted");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drivers_run_on_threads_of_their_own() {
    let [one, other] = MemoryDevice::pair(2);
    let build = |device, host| {
        Network::builder()
            .path(Path::with_queues(device, [10, 0, 0, host].into()))
            .config(config())
            .execution(Execution::Threads)
            .build()
            .unwrap()
    };
    let (server, client) = (build(one, 1), build(other, 2));
    let shards = exchange(&server, &client, 1).await;
    assert_eq!(shards, [CONNECTIONS / 2; 2]);
    let name =
        client.shard_runtime(1).unwrap().spawn(async { std::thread::current().name().map(str::to_string) });
    assert_eq!(name.await.unwrap().as_deref(), Some("ropewalk-1"));
    assert_drained(&server, &client).await;
}

#[tokio::test]
async fn a_network_needs_devices_that_fit() {
    assert!(Network::builder().build().is_err());
    let [one, _] = MemoryDevice::pair(1);
    let [two, _] = MemoryDevice::pair(2);
    let error = Network::builder()
        .path(Path::with_queues(one, [10, 0, 0, 1].into()))
        .path(Path::with_queues(two, [10, 0, 1, 1].into()))
        .build()
        .unwrap_err();
    assert!(error.to_string().contains("same number of queues"), "{error}");
}
