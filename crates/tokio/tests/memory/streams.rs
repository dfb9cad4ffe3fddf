//! What is written is read, whatever carries it.

use std::collections::BTreeSet;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use ropewalk_tokio::{
    BufferConfig, ConnectOptions, ListenOptions, MemoryDevice, MptcpListener, MptcpStream, Network, Path,
    PathId,
};
use tokio::io::{AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::{Lossy, assert_drained, config, connection, networks, networks_over, pattern, server_address};

/// Sends bytes through an echo server, and expects them back.
async fn echo(server: &Network, client: &Network, len: usize) {
    let listener = MptcpListener::bind(server, server_address()).unwrap();
    let serving = tokio::spawn(async move {
        let (stream, peer) = listener.accept().await.unwrap();
        assert_eq!((stream.peer_addr(), stream.local_addr()), (peer, server_address()));
        let (mut reader, mut writer) = stream.into_split();
        let copied = tokio::io::copy(&mut reader, &mut writer).await.unwrap();
        writer.shutdown().await.unwrap();
        copied
    });
    let stream = MptcpStream::connect(client, server_address()).await.unwrap();
    let sent = pattern(len);
    let (mut reader, mut writer) = stream.into_split();
    let received = tokio::spawn(async move {
        let mut received = Vec::new();
        reader.read_to_end(&mut received).await.unwrap();
        received
    });
    writer.write_all(&sent).await.unwrap();
    writer.shutdown().await.unwrap();
    let received = received.await.unwrap();
    assert_eq!(received.len(), len);
    assert!(received == sent, "other bytes came back");
    assert_eq!(serving.await.unwrap(), len as u64);
}

#[tokio::test(start_paused = true)]
async fn what_is_written_comes_back() {
    let (server, client) = networks(1, 1);
    echo(&server, &client, 4 << 20).await;
    assert_drained(&server, &client).await;
}

#[tokio::test(start_paused = true)]
async fn devices_without_offload_carry_the_same() {
    let (server, client) = networks_over(1, 1, |device| device.without_offload());
    echo(&server, &client, 1 << 20).await;
    assert_drained(&server, &client).await;
}

#[tokio::test(start_paused = true)]
async fn losses_are_repaired() {
    let (server, client) = networks_over(1, 1, |device| Lossy { device, every: 7, sent: 0 });
    echo(&server, &client, 1 << 20).await;
    assert_drained(&server, &client).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_uses_every_path() {
    let (server, client) = networks(3, 1);
    let (mut near, mut far) = connection(&server, &client).await;
    // The joins come with the first data.
    near.write_all(b"x").await.unwrap();
    far.read_exact(&mut [0]).await.unwrap();
    while near.info().unwrap().measured_subflows() < 3 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let sent = pattern(8 << 20);
    let copy = sent.clone();
    let writing = tokio::spawn(async move {
        near.write_all(&copy).await.unwrap();
        near.shutdown().await.unwrap();
        near
    });
    let mut received = Vec::new();
    far.read_to_end(&mut received).await.unwrap();
    assert!(received == sent);
    let info = writing.await.unwrap().info().unwrap();
    assert!(info.multipath);
    let paths: BTreeSet<u16> = info.subflows.iter().map(|one| one.path.0).collect();
    assert_eq!(paths, BTreeSet::from([0, 1, 2]));
    assert_eq!(info.stats.bytes_written, (8 << 20) + 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_joins_ipv4_and_ipv6() {
    let devices = [MemoryDevice::pair(1), MemoryDevice::pair(1)];
    let mut builders = [Network::builder().config(config()), Network::builder().config(config())];
    for (family, device) in devices.into_iter().enumerate() {
        let mut ends = device.into_iter().flatten().zip([1, 2]).map(|(queue, host)| match family {
            0 => Path::new(queue, [0xfd00, 0, 0, 0, 0, 0, 0, host].into()),
            _ => Path::new(queue, [10, 0, 0, host as u8].into()),
        });
        builders = builders.map(|builder| builder.path(ends.next().unwrap()));
    }
    let [server, client] = builders.map(|builder| builder.build().unwrap());
    let address = ([0xfd00, 0, 0, 0, 0, 0, 0, 1], 80).into();
    let listener = MptcpListener::bind(&server, address).unwrap();
    // Announced, the server's IPv4 address is what the client's can join.
    let _second = MptcpListener::bind(&server, ([10, 0, 0, 1], 80).into()).unwrap();
    let mut near = MptcpStream::connect(&client, address).await.unwrap();
    let (mut far, peer) = listener.accept().await.unwrap();
    assert_eq!((near.peer_addr(), near.local_addr()), (address, peer));
    near.write_all(b"x").await.unwrap();
    far.read_exact(&mut [0]).await.unwrap();
    tokio::time::timeout(Duration::from_secs(10), async {
        while near.info().unwrap().measured_subflows() < 2 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    })
    .await
    .expect("a join over IPv4");
    let sent = pattern(4 << 20);
    let copy = sent.clone();
    let writing = tokio::spawn(async move {
        near.write_all(&copy).await.unwrap();
        near.shutdown().await.unwrap();
        near.info().unwrap()
    });
    let mut received = Vec::new();
    far.read_to_end(&mut received).await.unwrap();
    assert!(received == sent);
    let info = writing.await.unwrap();
    assert!(info.stats.bytes_by_subflow.iter().filter(|bytes| **bytes > 0).count() == 2, "{info:?}");
}

#[tokio::test(start_paused = true)]
async fn bytes_pass_without_a_copy_and_plain_tcp_is_spoken_too() {
    let (server, client) = networks(1, 1);
    let options = ListenOptions::new().multipath(false);
    let listener = MptcpListener::bind_with(&server, server_address(), &options).unwrap();
    let near = MptcpStream::connect(&client, server_address()).await.unwrap();
    let (far, _) = listener.accept().await.unwrap();
    assert!(!near.info().unwrap().multipath && !far.info().unwrap().multipath);
    let data = Bytes::from(pattern(100_000));
    let mut left = data.clone();
    let mut received = Vec::new();
    while received.len() < data.len() {
        if !left.is_empty() {
            let taken = near.write_bytes(&left).await.unwrap();
            let _ = left.split_to(taken);
        }
        received.extend_from_slice(&far.read_bytes(usize::MAX).await.unwrap());
    }
    assert_eq!(received, data);
}

#[tokio::test(start_paused = true)]
async fn the_end_is_written_with_the_last_data_and_not_before() {
    let (server, client) = networks(1, 1);
    let (near, far) = connection(&server, &client).await;
    let data = Bytes::from(pattern(3_000_000));
    let (mut left, mut received, mut writes) = (data.clone(), Vec::new(), 0);
    let writing = async {
        while !left.is_empty() {
            let taken = near.write_last(&left).await.unwrap();
            let _ = left.split_to(taken);
            writes += 1;
        }
    };
    let reading = async {
        loop {
            match far.read_bytes(usize::MAX).await.unwrap() {
                end if end.is_empty() => break,
                data => received.extend_from_slice(&data),
            }
        }
    };
    tokio::join!(writing, reading);
    assert!(writes > 1 && received == data, "{writes} writes, {} bytes", received.len());
    assert!(near.write_bytes(&data).await.is_err(), "it is closed");
}

#[tokio::test(start_paused = true)]
async fn pieces_that_have_come_are_read_together_up_to_a_limit() {
    let (server, client) = networks(1, 1);
    let (mut near, far) = connection(&server, &client).await;
    let data = pattern(50_000);
    near.write_all(&data).await.unwrap();
    while far.readable_bytes() < data.len() as u64 {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
    }
    let mut pieces = Vec::new();
    assert_eq!(far.read_pieces(30_001, &mut pieces).await.unwrap(), 30_001);
    assert_eq!(far.read_pieces(usize::MAX, &mut pieces).await.unwrap(), 19_999, "appended");
    assert!(pieces.concat() == data);
    near.shutdown().await.unwrap();
    assert_eq!(far.read_pieces(10, &mut pieces).await.unwrap(), 0, "the end");
}

#[tokio::test(start_paused = true)]
async fn one_side_closes_and_the_other_still_talks() {
    let (server, client) = networks(1, 1);
    let (mut near, mut far) = connection(&server, &client).await;
    near.write_all(b"question").await.unwrap();
    near.shutdown().await.unwrap();
    assert_eq!(near.write(b"more").await.unwrap_err().kind(), std::io::ErrorKind::BrokenPipe);
    let mut text = String::new();
    far.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "question");
    far.write_all(b"answer").await.unwrap();
    drop(far);
    text.clear();
    near.read_to_string(&mut text).await.unwrap();
    assert_eq!(text, "answer");
    // The end stays the end.
    assert_eq!(near.read(&mut [0; 8]).await.unwrap(), 0);
    drop(near);
    assert_drained(&server, &client).await;
}

#[tokio::test(start_paused = true)]
async fn halves_become_a_stream_again() {
    let (server, client) = networks(1, 1);
    let (near, mut far) = connection(&server, &client).await;
    let (other, _far) = connection(&server, &client).await;
    let (reader, writer) = near.into_split();
    let (other_reader, other_writer) = other.into_split();
    let error = reader.reunite(other_writer).unwrap_err();
    let mut near = error.0.reunite(writer).unwrap();
    drop((other_reader, error.1));
    assert_eq!((near.writable_bytes() > 5, near.readable_bytes(), far.readable_bytes()), (true, 0, 0));
    near.write_all(b"whole").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!((near.readable_bytes(), far.readable_bytes()), (0, 5));
    let mut buffer = [0; 5];
    far.read_exact(&mut buffer).await.unwrap();
    assert_eq!(&buffer, b"whole");
}

#[tokio::test(start_paused = true)]
async fn a_writer_waits_for_its_reader() {
    let (server, client) = networks(1, 1);
    let (mut near, mut far) = connection(&server, &client).await;
    let piece = pattern(64 << 10);
    let mut written = 0;
    // Nobody reads: both buffers fill up, and no more.
    while let Ok(taken) = tokio::time::timeout(Duration::from_secs(5), near.write(&piece)).await {
        written += taken.unwrap();
        assert!(written < 32 << 20, "the writer is never told to wait");
    }
    let mut pending = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(Pin::new(&mut near).poll_write(&mut pending, &piece).is_pending());
    let mut buffer = vec![0; 1 << 20];
    let mut read = 0;
    while read < written / 2 {
        read += far.read(&mut buffer).await.unwrap();
    }
    tokio::time::timeout(Duration::from_secs(5), near.write(&piece)).await.expect("there is room").unwrap();
}

async fn connection_at(listener: &MptcpListener, client: &Network) -> (MptcpStream, MptcpStream) {
    let near = MptcpStream::connect(client, server_address()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

#[tokio::test(start_paused = true)]
async fn streams_have_settings_of_their_own() {
    let (server, client) = networks(2, 1);
    let listener = MptcpListener::bind(&server, server_address()).unwrap();
    for options in [
        ConnectOptions::new().scheduler("blest").congestion("olia").nodelay(false),
        ConnectOptions::new().path(PathId(1)).local(([10, 0, 1, 2], 0).into()),
        ConnectOptions::new().local(([10, 0, 0, 2], 4000).into()),
    ] {
        let mut near = MptcpStream::connect_with(&client, server_address(), &options).await.unwrap();
        let (mut far, peer) = listener.accept().await.unwrap();
        assert_eq!(peer, near.local_addr());
        near.write_all(b"ok").await.unwrap();
        far.read_exact(&mut [0; 2]).await.unwrap();
    }
    let (near, _far) = connection_at(&listener, &client).await;
    near.set_nodelay(false).unwrap();
    near.set_cork(true).unwrap();
    near.set_scheduler("blest").unwrap();
    near.set_congestion("lia").unwrap();
    near.set_send_buffer(BufferConfig::fixed(1 << 20)).unwrap();
    near.set_receive_buffer(BufferConfig::fixed(1 << 20)).unwrap();
    near.set_unsent_low_water(Some(100_000)).unwrap();
    near.set_dscp(46).unwrap();
    near.set_keep_alive(Some(Duration::from_secs(60))).unwrap();
    near.set_user_timeout(Some(Duration::from_secs(30))).unwrap();
    let info = near.info().unwrap().connection;
    assert_eq!((info.scheduler, info.congestion, info.sndbuf), ("blest", "lia", 1 << 20));
    assert_eq!(near.set_scheduler("quickest").unwrap_err().kind(), std::io::ErrorKind::InvalidInput);
    for (options, kind) in [
        (ConnectOptions::new().scheduler("quickest"), std::io::ErrorKind::InvalidInput),
        (ConnectOptions::new().local(([10, 9, 9, 9], 0).into()), std::io::ErrorKind::AddrNotAvailable),
    ] {
        let error = MptcpStream::connect_with(&client, server_address(), &options).await.unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    }
}
