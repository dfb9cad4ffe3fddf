//! How connections end, and what streams say then.

use std::io::ErrorKind;
use std::time::Duration;

use ropewalk_tokio::{
    ConnectOptions, ListenOptions, MemoryDevice, MptcpListener, MptcpStream, Network, Path,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{assert_drained, connection, networks, server_address};

#[tokio::test(start_paused = true)]
async fn nobody_listens() {
    let (server, client) = networks(1, 1);
    let error = MptcpStream::connect(&client, server_address()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionRefused, "{error}");
    assert_drained(&server, &client).await;
}

#[tokio::test(start_paused = true)]
async fn nobody_answers() {
    let [mut one, _other] = MemoryDevice::pair(1);
    let client = Network::builder().path(Path::new(one.remove(0), [10, 0, 0, 2].into())).build().unwrap();
    let begin = tokio::time::Instant::now();
    let options = ConnectOptions::new().timeout(Duration::from_secs(3));
    let error = MptcpStream::connect_with(&client, server_address(), &options).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert_eq!(begin.elapsed().as_secs(), 3);
    assert_eq!(client.connections(), 0, "a connect that was given up is gone at once");
    // Without a limit SYN retransmissions decide.
    let error = MptcpStream::connect(&client, server_address()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut, "{error}");
    assert!((100..200).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert_eq!(client.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_connect_leaves_nothing() {
    let [mut one, _other] = MemoryDevice::pair(1);
    let client = Network::builder().path(Path::new(one.remove(0), [10, 0, 0, 2].into())).build().unwrap();
    {
        let connecting = MptcpStream::connect(&client, server_address());
        assert!(tokio::time::timeout(Duration::from_millis(10), connecting).await.is_err());
    }
    assert_eq!(client.connections(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_reset_is_an_error_of_its_kind() {
    let (server, client) = networks(1, 1);
    for reads_first in [true, false] {
        let (mut near, far) = connection(&server, &client).await;
        if reads_first {
            let reading = tokio::spawn(async move {
                let error = near.read(&mut [0; 8]).await.unwrap_err();
                (near, error)
            });
            tokio::time::sleep(Duration::from_millis(1)).await;
            far.abort();
            let (mut near, error) = reading.await.unwrap();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{error}");
            assert!(error.get_ref().is_some_and(|source| source.is::<ropewalk_tokio::CloseReason>()));
            assert_eq!(near.write(b"x").await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        } else {
            // Data that nobody reads resets the connection when its stream is dropped.
            near.write_all(b"unread").await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
            drop(far);
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert_eq!(near.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
        }
    }
    assert_drained(&server, &client).await;
}

#[tokio::test(start_paused = true)]
async fn what_came_before_a_reset_can_be_read() {
    let (server, client) = networks(1, 1);
    let (mut near, mut far) = connection(&server, &client).await;
    far.write_all(b"before").await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    far.abort();
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut text = [0; 6];
    near.read_exact(&mut text).await.unwrap();
    assert_eq!(&text, b"before");
    assert_eq!(near.read(&mut text).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop(near);
    assert_drained(&server, &client).await;
}

#[tokio::test(start_paused = true)]
async fn listeners_share_no_address_and_reset_what_they_leave() {
    let (server, client) = networks(1, 1);
    assert_eq!(
        MptcpListener::bind(&server, ([10, 0, 0, 1], 0).into()).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
    let listener = MptcpListener::bind(&server, server_address()).unwrap();
    let second = MptcpListener::bind(&server, server_address()).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::AddrInUse, "{second}");
    let mut waiting = MptcpStream::connect(&client, server_address()).await.unwrap();
    tokio::time::sleep(Duration::from_millis(1)).await;
    drop(listener);
    assert_eq!(waiting.read(&mut [0; 8]).await.unwrap_err().kind(), ErrorKind::ConnectionReset);
    drop(waiting);
    assert_drained(&server, &client).await;
    let refused = MptcpStream::connect(&client, server_address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "{refused}");
    // The address is free again.
    let (mut near, mut far) = connection(&server, &client).await;
    near.write_all(b"again").await.unwrap();
    far.read_exact(&mut [0; 5]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_full_backlog_resets() {
    let (server, client) = networks(1, 1);
    let options = ListenOptions::new().backlog(2);
    let _listener = MptcpListener::bind_with(&server, server_address(), &options).unwrap();
    let mut streams = Vec::new();
    for _ in 0..2 {
        streams.push(MptcpStream::connect(&client, server_address()).await.unwrap());
    }
    // The handshake and the reset come at once.
    let error = MptcpStream::connect(&client, server_address()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(server.driver_counters().backlog_full, 1);
}

#[test]
fn streams_hear_of_their_runtimes_end() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (first, second) = (runtime(), runtime());
    let (server, client) = first.block_on(async { networks(1, 1) });
    let (mut near, _far) = first.block_on(connection(&server, &client));
    drop(first);
    let error = second.block_on(near.read(&mut [0; 8])).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
    let error = second.block_on(MptcpStream::connect(&client, server_address())).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotConnected, "{error}");
    assert!(MptcpListener::bind(&server, server_address()).is_err());
}
