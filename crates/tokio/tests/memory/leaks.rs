//! Nothing leaks, and nothing runs while nothing happens.

use std::time::Duration;

use ropewalk_tokio::{MptcpListener, MptcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{Lossy, assert_drained, connection, networks, networks_over, server_address};

#[tokio::test(start_paused = true)]
async fn aborted_and_panicking_tasks_leave_nothing() {
    let (server, client) = networks(2, 1);
    for kind in ["aborted", "panics", "dropped"] {
        let (mut near, mut far) = connection(&server, &client).await;
        near.write_all(b"x").await.unwrap();
        far.read_exact(&mut [0]).await.unwrap();
        let task = tokio::spawn(async move {
            if kind == "panics" {
                // Without the message that the default hook prints.
                std::panic::resume_unwind(Box::new(kind));
            }
            if kind == "aborted" {
                panic!("nothing is sent: {:?}", near.read(&mut [0; 8]).await);
            }
            drop(near);
        });
        tokio::time::sleep(Duration::from_millis(1)).await;
        task.abort();
        let _ = task.await;
        // The other side hears of it, and is dropped in turn.
        assert_eq!(far.read(&mut [0; 8]).await.unwrap(), 0, "{kind}");
        drop(far);
        assert_drained(&server, &client).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_peer_that_never_closes_cant_keep_a_dropped_connection() {
    let (server, client) = networks(1, 1);
    let (near, far) = connection(&server, &client).await;
    drop(near);
    assert!(!client.drain(Duration::from_secs(50)).await, "the peer may still close");
    assert!(client.drain(Duration::from_secs(20)).await, "a connection without a stream stays for ever");
    drop(far);
    assert_drained(&server, &client).await;
}

#[tokio::test(start_paused = true)]
async fn connections_come_and_go() {
    let (server, client) = networks(1, 1);
    let listener = MptcpListener::bind(&server, server_address()).unwrap();
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut text = [0; 4];
                stream.read_exact(&mut text).await.unwrap();
                stream.write_all(&text).await.unwrap();
                stream.shutdown().await.unwrap();
                assert_eq!(stream.read(&mut text).await.unwrap(), 0);
            });
        }
    });
    for round in 0..20 {
        let clients = (0..50).map(|_| {
            let client = client.clone();
            tokio::spawn(async move {
                let mut stream = MptcpStream::connect(&client, server_address()).await.unwrap();
                stream.write_all(b"ping").await.unwrap();
                let mut text = String::new();
                stream.read_to_string(&mut text).await.unwrap();
                assert_eq!(text, "ping");
            })
        });
        for one in clients.collect::<Vec<_>>() {
            one.await.unwrap();
        }
        assert!(client.connections() <= 50 * (round + 1));
    }
    serving.abort();
    let _ = serving.await;
    assert_drained(&server, &client).await;
}

#[tokio::test(start_paused = true)]
async fn connections_end_where_every_third_packet_is_lost() {
    let (server, client) = networks_over(1, 1, |device| Lossy { device, every: 3, sent: 0 });
    let listener = MptcpListener::bind(&server, server_address()).unwrap();
    let serving = tokio::spawn(async move {
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
    let clients = (0..300).map(|_| {
        let client = client.clone();
        tokio::spawn(async move {
            let mut stream = MptcpStream::connect(&client, server_address()).await?;
            stream.write_all(&[7; 100]).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            Ok::<_, std::io::Error>(answer.len())
        })
    });
    let mut answered = 0;
    for one in clients.collect::<Vec<_>>() {
        answered += usize::from(one.await.unwrap().is_ok_and(|len| len == 100));
    }
    assert!(answered > 200, "{answered} of 300 were answered");
    serving.abort();
    let _ = serving.await;
    assert_drained(&server, &client).await;
}

#[tokio::test(start_paused = true)]
async fn idle_connections_cost_no_work() {
    let (server, client) = networks(1, 1);
    let listener = MptcpListener::bind(&server, server_address()).unwrap();
    let mut streams = Vec::new();
    for _ in 0..200 {
        streams.push(MptcpStream::connect(&client, server_address()).await.unwrap());
        streams.push(listener.accept().await.unwrap().0);
    }
    tokio::time::sleep(Duration::from_secs(60)).await;
    let before = (server.driver_counters().polls, client.driver_counters().polls);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let after = (server.driver_counters().polls, client.driver_counters().polls);
    assert_eq!(before, after, "drivers ran in an hour in which nothing happened");
}

#[tokio::test(start_paused = true)]
async fn drivers_end_with_the_last_handle_but_deliver_first() {
    let (server, client) = networks(1, 1);
    let (mut near, mut far) = connection(&server, &client).await;
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let before = tasks();
    near.write_all(&[7; 100_000]).await.unwrap();
    drop((near, client));
    let mut received = Vec::new();
    far.read_to_end(&mut received).await.unwrap();
    assert_eq!(received.len(), 100_000);
    drop((far, server));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(tasks(), before - 2);
}
