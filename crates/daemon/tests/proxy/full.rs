//! `priority` without stated rates: the next link is used while the one before it is full.

use std::time::Duration;

use ropewalk_host::clock::Clock;
use ropewalk_host::skip::skipped;

use crate::recording::{Emulated, parsed};

// So slow that the host's own delays are no queue: less than TCP's initial window is in flight for the 70 ms
// that a busy host may hold a program up, of what is sent below the link's rate.
const LINKS: &str = "name = 'links'\n\
    [[path]]\nname = 'first'\nrate = '4 Mbit/s'\nrtt = '20 ms'\nqueue = '200 ms'\n\
    [[path]]\nname = 'second'\nrate = '40 Mbit/s'\nrtt = '40 ms'\nqueue = '100 ms'\n";

#[test]
fn priority_goes_on_to_the_next_link_while_the_first_is_full() {
    // By a gateway, and by plain TCP, which can't move: its next connection opens on a link with room.
    for server in ["10.127.255.1:80", "10.127.255.1:8081"] {
        let Ok(emulated) = Emulated::new(&parsed(LINKS)).map_err(skipped) else { return };
        emulated.serve("127.0.0.1:8080");
        emulated.serve("10.127.255.1:8081");
        let gateway =
            ["gateway", "--listen", "10.127.255.1:80", "--to", "127.0.0.1:8080", "--status", "none"];
        let _gateway = emulated.daemon(&emulated.server, &gateway);
        let usage = emulated.folder.path().join("usage").display().to_string();
        let line = ["proxy", "--via", "first", "--via", "second", "--policy", "priority"];
        let more = ["--status", "none", "--usage", &usage];
        let _proxy = emulated.daemon(&emulated.client, &[&line[..], &more].concat());
        let received = || ["first", "second"].map(|link| emulated.received(link));
        // Less than the first carries: 1.2 Mbit/s for three seconds.
        let paced = || {
            let before = received();
            assert!(emulated.download(server, "paced-3").wait().success(), "{}", emulated.log());
            let carried = [0, 1].map(|link| received()[link] - before[link]);
            assert!(carried[0] > 350_000 && carried[1] < 60_000, "{carried:?}: {}", emulated.log());
        };
        paced();
        let clock = Clock::start();
        let first = emulated.download(server, "8000000");
        std::thread::sleep(Duration::from_millis(2500));
        let before = received();
        let second = emulated.download(server, "8000000");
        assert!(second.wait().success(), "{}", emulated.log());
        assert!(received()[1] - before[1] > 5_000_000, "{}", emulated.log());
        // The first link alone takes 32 s for both.
        assert!(first.wait().success(), "{}", emulated.log());
        let took = clock.now().as_secs_f64();
        assert!(took < 20.0, "{server}: {took:.1} s: {}", emulated.log());
        // Once it has room again, the next one stands by.
        std::thread::sleep(Duration::from_millis(4500));
        paced();
    }
}
