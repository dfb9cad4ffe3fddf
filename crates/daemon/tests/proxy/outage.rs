//! The only uplink goes down and comes up: how soon connections go on that were asking, or being answered.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ropewalk_engine::{Span, Time};
use ropewalk_host::clock::Clock;

use crate::encrypted::keys;
use crate::far::{Far, gateway};
use crate::stage::{self, PROXY, SERVER, Stage};

const MIB: usize = 1 << 20;
/// How long the uplink is away: a retransmission timer of 200 ms has doubled to 3.2 s shortly before it is
/// back.
const AWAY: Span = Span::from_millis(3_300);

/// How the uplink goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Way {
    /// Its interface is down; its routes come back so long after it.
    Down(Duration),
    /// Nothing gets through.
    Cut,
}

/// A connection to the server by SOCKS5.
fn open(stage: &Stage) -> TcpStream {
    let mut one = stage.van.run(|| TcpStream::connect(PROXY)).unwrap();
    one.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let address: std::net::Ipv4Addr = SERVER.parse().unwrap();
    one.write_all(&[5, 1, 0]).unwrap();
    let mut heard = [0; 10];
    one.read_exact(&mut heard[..2]).unwrap();
    one.write_all(&[&[5, 1, 0, 1][..], &address.octets(), &[0, 80]].concat()).unwrap();
    one.read_exact(&mut heard).unwrap();
    assert_eq!(heard[1], 0, "the proxy's answer");
    one
}

/// Asks for a file, and returns the times at which data came, and how much that was.
fn fetch(mut one: TcpStream, name: &str, clock: Clock) -> io::Result<Vec<(Time, usize)>> {
    one.write_all(format!("GET /{name} HTTP/1.0\r\n\r\n").as_bytes())?;
    let (mut times, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        let len = one.read(&mut buffer)?;
        times.push((clock.now(), len));
        if len == 0 {
            return Ok(times);
        }
    }
}

fn sleep_until(clock: Clock, at: Time) {
    std::thread::sleep(at.saturating_sub(clock.now()).into());
}

/// Downloads that begin at these moments, milliseconds after the uplink goes: how long after its return each
/// has gone on, seconds.
fn outage(stage: &Stage, way: Way, moments: &[(i64, &str, usize)]) -> Vec<(i64, f64)> {
    let opened: Vec<TcpStream> = moments.iter().map(|_| open(stage)).collect();
    let lead = moments.iter().map(|(at, ..)| -at).max().unwrap_or(0).max(0);
    let clock = Clock::start();
    let start = clock.now() + Span::from_millis(300);
    let gone = start + Span::from_millis(lead as u64);
    std::thread::scope(|scope| {
        let running: Vec<_> = moments
            .iter()
            .zip(opened)
            .map(|((at, name, len), one)| {
                let begin = start + Span::from_millis((lead + at) as u64);
                scope.spawn(move || {
                    sleep_until(clock, begin);
                    (*at, fetch(one, name, clock), *len)
                })
            })
            .collect();
        sleep_until(clock, gone);
        match way {
            Way::Down(_) => stage::ip(&stage.van, "link set up0 down").unwrap(),
            Way::Cut => stage.cut(0),
        }
        sleep_until(clock, gone + AWAY);
        match way {
            Way::Down(without_routes) => {
                stage::ip(&stage.van, "link set up0 up").unwrap();
                std::thread::sleep(without_routes);
                stage::ip(&stage.van, "-6 address replace fd01:0::2/64 dev up0 nodad").unwrap();
                stage::add_route(&stage.van, 0).unwrap();
            }
            Way::Cut => stage.mend(0),
        }
        let back = clock.now();
        let ended: Vec<_> = running.into_iter().map(|one| one.join().unwrap()).collect();
        let late = |(at, fetched, len): (i64, io::Result<Vec<(Time, usize)>>, usize)| {
            let times = fetched.unwrap_or_else(|error| panic!("{at} ms: {error}: {}", stage.log()));
            let bytes: usize = times.iter().map(|(_, len)| len).sum();
            assert!(bytes >= len, "{at} ms: {bytes} of {len} bytes: {}", stage.log());
            let first = times.iter().map(|(at, _)| *at).find(|at| *at > gone + AWAY / 2);
            (at, first.map_or(0.0, |first| first.saturating_sub(back).as_secs_f64()))
        };
        ended.into_iter().map(late).collect()
    })
}

#[test]
fn connections_go_on_at_once_when_the_only_uplink_is_up_again() {
    let Some(stage) = Stage::new() else { return };
    stage.serve("small", 200_000);
    stage.serve("large", 4 * MIB);
    let _server = stage.nginx(false);
    let file = |name: &str| stage.path().join("keys").join(name).display().to_string();
    keys(&stage.path().join("keys").display().to_string(), &[]);
    let (own, proxys, server) = (file("gateway.key"), file("proxy.pub"), format!("{SERVER} 80"));
    let far = gateway(&stage, &["--key", &own, "--proxy", &proxys, "--convert", &server]);
    let line = ["--json", "--verbose", "--via", "up0", "--listen", PROXY, "--gateway", "10.1.0.1:5124"];
    let known = ["--gateway-key", &file("proxy.key"), "--gateway-certificate", &file("gateway.pub")];
    let proxy = stage.start(&[&line[..], &known].concat());
    // Before the uplink goes, in mid-answer, and after it.
    let mut moments: Vec<(i64, &str, usize)> =
        (-60..60).step_by(5).map(|at| (at, "small", 200_000)).collect();
    moments.extend([(-400, "large", 4 * MIB), (-300, "large", 4 * MIB), (-200, "large", 4 * MIB)]);
    for way in [0, 60, 400].map(|after| Way::Down(Duration::from_millis(after))).into_iter().chain([Way::Cut])
    {
        let found = outage(&stage, way, &moments);
        let worst = found.iter().map(|one| one.1).fold(0.0, f64::max);
        println!("{way:?}: {worst:.2} s at most of {found:.2?}");
        assert!(worst < 1.8, "{way:?}: {worst:.2} s of {found:.2?}: {} {}", stage.log(), Far::log(&stage));
    }
    assert!(proxy.terminate().success() && far.terminate().success());
}
