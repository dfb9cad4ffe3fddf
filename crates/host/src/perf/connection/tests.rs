use super::*;
use crate::transfer::pattern;
use ropewalk_engine::{Span, Time};

fn hello(mode: Mode, milliseconds: u32, bytes: u64) -> Hello {
    Hello {
        mode,
        flow: 0,
        flows: 1,
        milliseconds,
        bytes,
        session: 1,
        echo: if mode == Mode::Echo { 64 } else { 0 },
        scheduler: String::new(),
        congestion: String::new(),
    }
}

/// Moves bytes between a client and a server, `most` per step of a millisecond, until both are over.
fn run(mut client: TestConnection, most: usize) -> (TestConnection, TestConnection) {
    let mut server = TestConnection::server(Time::ZERO, pattern());
    for step in 1..20_000u64 {
        let now = step * 1_000_000;
        for direction in 0..2 {
            let (from, to) =
                if direction == 0 { (&mut client, &mut server) } else { (&mut server, &mut client) };
            let mut room = most;
            loop {
                match from.output(Time::from_nanos(now)) {
                    Output::Write(_) if room == 0 => break,
                    Output::Write(bytes) => {
                        let len = bytes.len().min(room);
                        room -= len;
                        from.wrote(Time::from_nanos(now), len);
                        to.input(Time::from_nanos(now), &bytes[..len]);
                    }
                    Output::Shutdown => to.end_of_input(Time::from_nanos(now)),
                    Output::Wait => break,
                }
            }
        }
        if server.pending_hello().is_some() {
            server.reply(Time::from_nanos(now), true, None);
        }
        client.check(Time::from_nanos(now));
        server.check(Time::from_nanos(now));
        if client.is_over() && server.is_over() {
            break;
        }
    }
    assert!(client.is_over() && server.is_over(), "{client:?}\n{server:?}");
    (client, server)
}

#[test]
fn bytes_of_a_size_go_each_way_and_both_sides_agree() {
    for (mode, up, down) in [(Mode::Up, 300_000, 0), (Mode::Down, 0, 300_000), (Mode::Both, 300_000, 300_000)]
    {
        for most in [7, 1000, 1 << 20] {
            let bytes = if most == 7 { 3000 } else { 300_000 };
            let scale = |n: u64| n * bytes / 300_000;
            let (client, server) =
                run(TestConnection::client(Time::ZERO, hello(mode, 0, bytes), pattern()), most);
            assert_eq!((client.error(), server.error()), (None, None), "{mode:?}, {most}");
            assert_eq!((client.sent(), client.received()), (scale(up), scale(down)), "{mode:?}, {most}");
            assert_eq!(client.acknowledged(), scale(up), "{mode:?}, {most}");
            let trailer = client.trailer().expect("the server's words");
            assert_eq!((trailer.received, trailer.sent), (scale(up), scale(down)), "{mode:?}, {most}");
        }
    }
}

#[test]
fn the_trailer_counts_every_retransmission_of_data_and_takes_no_time_of_its() {
    let mut client = TestConnection::client(Time::ZERO, hello(Mode::Down, 0, 5000), pattern());
    let mut server = TestConnection::server(Time::ZERO, pattern());
    let info = |retransmitted, outstanding| StackInfo {
        retransmitted,
        outstanding,
        subflows: 1,
        ..StackInfo::default()
    };
    let Output::Write(ask) = client.output(Time::from_nanos(1)) else { panic!("no hello") };
    client.wrote(Time::from_nanos(1), ask.len());
    server.input(Time::from_nanos(1), &ask);
    server.reply(Time::from_nanos(1), true, None);
    // The answer and the data, which are in flight afterwards.
    loop {
        server.update_stack_info(Time::from_nanos(2), info(3, 5000));
        let Output::Write(bytes) = server.output(Time::from_nanos(2)) else { break };
        server.wrote(Time::from_nanos(2), bytes.len());
        client.input(Time::ZERO + Span::from_secs(2), &bytes);
    }
    assert_eq!(server.sent(), 5000);
    server.update_stack_info(Time::from_nanos(9), info(7, 0));
    let Output::Write(trailer) = server.output(Time::from_nanos(9)) else { panic!("no trailer") };
    server.wrote(Time::from_nanos(9), trailer.len());
    client.input(Time::ZERO + Span::from_secs(3), &trailer);
    client.end_of_input(Time::ZERO + Span::from_secs(3));
    assert_eq!(client.error(), None);
    assert_eq!(client.trailer().map(|trailer| trailer.retransmitted), Some(7));
    assert!(client.receiving() < Span::from_millis(2100), "{}", client.receiving());
    // What became of the trailer itself is no data's.
    server.update_stack_info(Time::from_nanos(10), info(9, 0));
    assert_eq!(server.stack_info().retransmitted, 7);
}

#[test]
fn a_time_ends_the_sending_and_echoes_come_at_their_pace() {
    let (client, _) = run(TestConnection::client(Time::ZERO, hello(Mode::Up, 200, 0), pattern()), 1000);
    assert_eq!(client.error(), None);
    assert!((199_000..=201_000).contains(&client.sent()), "{}", client.sent());
    let (client, server) =
        run(TestConnection::client(Time::ZERO, hello(Mode::Echo, 200, 0), pattern()), 1000);
    assert_eq!((client.error(), server.error()), (None, None));
    let echoes = client.echoes().expect("echoes").len();
    assert!((35..=41).contains(&echoes), "{echoes}");
}

#[test]
fn what_is_no_hello_is_refused_in_words_that_reach_the_client() {
    let mut server = TestConnection::server(Time::ZERO, pattern());
    server.input(Time::from_nanos(1), b"GET / HTTP/1.1\r\n");
    let Output::Write(answer) = server.output(Time::from_nanos(1)) else { panic!("no answer") };
    server.wrote(Time::from_nanos(1), answer.len());
    assert_eq!(server.output(Time::from_nanos(1)), Output::Shutdown);
    assert!(server.is_over() && server.error().is_some());
    let mut client = TestConnection::client(Time::ZERO, hello(Mode::Up, 100, 0), pattern());
    client.input(Time::from_nanos(2), &answer);
    assert!(client.is_over());
    let error = client.error().expect("refused");
    assert!(error.contains("the server refused") && error.contains("GET /"), "{error}");
    let mut client = TestConnection::client(Time::ZERO, hello(Mode::Up, 100, 0), pattern());
    client.input(Time::from_nanos(2), b"SSH-2.0-OpenSSH_9\r\n");
    assert!(client.error().is_some_and(|error| error.contains("SSH-2.0-")), "{:?}", client.error());
}

#[test]
fn a_peer_that_goes_or_cheats_is_found_out() {
    let served = |mode, bytes| {
        let mut server = TestConnection::server(Time::ZERO, pattern());
        server.input(Time::from_nanos(1), &hello(mode, 0, bytes).encode());
        server.reply(Time::from_nanos(2), true, None);
        server
    };
    let mut server = served(Mode::Up, 10);
    server.input(Time::from_nanos(3), &[0; 11]);
    assert!(server.error().is_some_and(|error| error.contains("more than it said")));
    let mut server = served(Mode::Down, 10);
    server.input(Time::from_nanos(3), &[0]);
    assert!(server.error().is_some_and(|error| error.contains("where none belong")));
    let mut server = served(Mode::Up, 10);
    server.check(Time::ZERO + SILENCE - Span::from_nanos(1));
    assert!(!server.is_over());
    server.check(Time::ZERO + SILENCE + Span::from_nanos(10));
    assert!(server.is_over() && server.error().is_some_and(|error| error.contains("15 s")));

    let mut server = TestConnection::server(Time::ZERO, pattern());
    assert_eq!(server.wake(Time::from_nanos(1)), Some(Time::ZERO + HELLO_PATIENCE));
    server.check(Time::ZERO + HELLO_PATIENCE);
    assert!(server.is_over() && server.error().is_some_and(|error| error.contains("within 5 s")));

    let mut client = TestConnection::client(Time::ZERO, hello(Mode::Down, 0, 1000), pattern());
    client.input(Time::from_nanos(1), &Answer { engine: false, refusal: None }.encode());
    client.input(Time::from_nanos(2), &[7; 500]);
    client.end_of_input(Time::from_nanos(3));
    assert!(client.error().is_some_and(|error| error.contains("after 500 bytes")), "{:?}", client.error());
    let mut client = TestConnection::client(Time::ZERO, hello(Mode::Down, 0, 1000), pattern());
    client.end_of_input(Time::from_nanos(3));
    assert!(client.error().is_some_and(|error| error.contains("before it answered")));
}
