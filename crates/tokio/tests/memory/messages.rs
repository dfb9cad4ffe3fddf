//! Messages that a program marks in its stream reach the scheduler.

use std::sync::Mutex;
use std::time::Duration;

use ropewalk_engine::registry::Entry;
use ropewalk_engine::scheduler::{Decision, Message, Rationale, Scheduler, View};
use ropewalk_tokio::{ConnectOptions, MptcpListener, MptcpStream};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::{assert_drained, config, networks, pattern, server_address};

/// The message of each decision's first byte, where it changes.
static SEEN: Mutex<Vec<Option<Message>>> = Mutex::new(Vec::new());

#[derive(Debug)]
struct Noting;

impl Scheduler for Noting {
    fn name(&self) -> &'static str {
        "noting"
    }

    fn select(&mut self, view: &View<'_>, _: &mut Rationale) -> Decision {
        match view.sendable().then(|| view.fastest_available()).flatten() {
            Some(subflow) => {
                let found = view.message(view.next_offset);
                let mut seen = SEEN.lock().unwrap();
                if seen.last() != Some(&found) {
                    seen.push(found);
                }
                Decision::Send { subflow: subflow.id, bytes: subflow.mss }
            }
            None => Decision::Wait { until: None },
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_sees_messages_and_their_deadlines() {
    let (server, client) = networks(1, 1);
    let listener = MptcpListener::bind(&server, server_address()).unwrap();
    let entry = Entry::<dyn Scheduler> {
        name: "noting",
        summary: "minrtt that notes the messages it sees",
        source: "this test",
        ..Entry::<dyn Scheduler>::of(|_| Box::new(Noting))
    };
    let mut config = config();
    config.scheduler = entry.spec();
    let options = ConnectOptions::new().config(config);
    let mut near = MptcpStream::connect_with(&client, server_address(), &options).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();

    let sent = pattern(6000);
    // One that is announced, one whose end is said when it is written, and bytes that belong to none.
    near.begin_message(3000, Some(Duration::from_millis(150))).unwrap();
    near.write_all(&sent[..3000]).await.unwrap();
    let mut received = vec![0; 3000];
    far.read_exact(&mut received).await.unwrap();
    near.begin_message(2000, None).unwrap();
    near.write_all(&sent[3000..]).await.unwrap();
    near.shutdown().await.unwrap();
    far.read_to_end(&mut received).await.unwrap();
    assert!(received == sent, "other bytes arrived");
    drop((near, far));
    assert_drained(&server, &client).await;

    let seen = SEEN.lock().unwrap().clone();
    let ranges: Vec<_> = seen.iter().map(|found| found.map(|message| (message.start, message.end))).collect();
    assert_eq!(ranges, [Some((0, 3000)), Some((3000, 5000)), None], "{seen:?}");
    let deadlines: Vec<_> = seen.iter().flatten().map(|message| message.deadline.is_some()).collect();
    assert_eq!(deadlines, [true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_message_can_end_where_the_stream_stands() {
    let (server, client) = networks(1, 1);
    let (mut near, mut far) = super::connection(&server, &client).await;
    near.write_all(b"frame").await.unwrap();
    near.end_message(Some(Duration::from_millis(20))).unwrap();
    far.read_exact(&mut [0; 5]).await.unwrap();
    // Nothing new was written: there is no message to end.
    near.end_message(None).unwrap();
    near.shutdown().await.unwrap();
    assert_eq!(far.read(&mut [0]).await.unwrap(), 0);
    // Its peer has gone and the connection is forgotten: the call says so.
    drop(far);
    while near.info().is_some() {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    near.end_message(None).unwrap_err();
    near.begin_message(1, None).unwrap_err();
}
