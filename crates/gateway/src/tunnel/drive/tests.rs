use ropewalk_host::netns::Namespace;
use ropewalk_host::skip::skipped;
use tokio::runtime::Handle;
use tokio::sync::mpsc::channel;

use super::*;

/// Lets everything pass.
struct Open;

impl Gate for Open {
    fn admits(&mut self, _: &FlowKey, _: bool) -> bool {
        true
    }

    fn lane(&mut self, _: &Summary) -> Option<usize> {
        None
    }
}

/// A device in a namespace of its own, which goes with it; `None` where none may be made.
fn device() -> Option<(Namespace, Device)> {
    let namespace = Namespace::new("drive").inspect_err(|error| skipped(error)).ok()?;
    let runtime = Handle::current();
    let made = namespace.run(|| {
        let _entered = runtime.enter();
        Device::create("drive0")
    });
    made.inspect_err(|error| skipped(error)).ok().map(|device| (namespace, device))
}

fn word(how: LinkUse, scheduler: u8) -> Word {
    Word { most: 125_000, lanes: vec![Use::default(), Use { how, scheduler }] }
}

#[tokio::test]
async fn what_is_said_of_a_link_holds_for_its_connection_alone() {
    let Some((_namespace, device)) = device() else { return };
    let mut drive = Drive {
        tunnel: Tunnel::new(SCHEDULERS[0].2()),
        connections: BTreeMap::new(),
        far: None,
        schedulers: vec![0],
        device: &device,
        start: Instant::now(),
    };
    let (queue, mut sent) = channel(64);
    let up = |link| Event::Up { link, carrier: Carrier::Stream(queue.clone()), far: 7 };
    let shut = LinkUse { is_shut: true, ..LinkUse::default() };
    let said = |drive: &Drive<'_>, link| drive.connections.get(&link).map(|(_, word)| word.clone());
    // Before the link is connected nothing comes of it, but for the lane's scheduler: that is all links'.
    drive.take(0, Event::Word { link: 3, word: word(shut, 3) }, &mut Open);
    assert_eq!((said(&drive, 3), &drive.schedulers), (None, &vec![0, 3]));
    drive.take(0, up(3), &mut Open);
    let first = said(&drive, 3).unwrap();
    assert!(first.most == 0 && first.lanes.len() == 1 && first.lanes[0].how.is_backup, "{first:?}");
    // It is used at once.
    tokio::time::sleep(Duration::from_millis(30)).await;
    drive.carry_out(&mut Open);
    assert!(sent.try_recv().is_ok());
    drive.take(0, Event::Word { link: 3, word: word(shut, 3) }, &mut Open);
    assert_eq!(said(&drive, 3), Some(word(shut, 3)));
    // What was said of another link, or of an earlier connection, doesn't hold.
    drive.take(0, up(4), &mut Open);
    drive.take(0, up(3), &mut Open);
    assert_eq!([3, 4].map(|link| said(&drive, link)), [Some(first.clone()), Some(first)]);
    // Nor does what comes after its end.
    let (ended, _) = channel(1);
    drive.take(0, Event::Up { link: 3, carrier: Carrier::Stream(ended), far: 7 }, &mut Open);
    assert_eq!(said(&drive, 3), None, "a stream that has ended");
    drive.take(0, Event::Word { link: 3, word: word(shut, 1) }, &mut Open);
    assert_eq!((said(&drive, 3), &drive.schedulers), (None, &vec![0, 1]));
    // A scheduler that isn't known leaves the lane's as it is.
    drive.take(0, Event::Word { link: 4, word: word(shut, 200) }, &mut Open);
    assert_eq!(drive.schedulers, [0, 1]);
}
