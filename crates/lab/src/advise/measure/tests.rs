//! Tests of what several readers share.

use proptest::prelude::*;

use ropewalk_engine::Span;
use ropewalk_link::{Loss, Rate};
use ropewalk_settings::input::Opened;
use ropewalk_sim::PathSpec;

use super::likelihood::{Repeated, USUAL_LOSS, loss_after};
use super::refine::PAYLOAD_SHARE;
use super::*;
use crate::advise::belief::Doubt;
use crate::scenario;

pub(super) const PING: &str = include_str!("../../../tests/measured/ping.txt");
pub(super) const SS: &str = include_str!("../../../tests/measured/ss.txt");
pub(super) const IPERF: &str = include_str!("../../../tests/measured/iperf3.json");

#[test]
fn files_are_told_apart() {
    let lost = Counted { lost: 1, sent: 20, round_trip: true };
    assert_eq!(parse("ping.txt", PING).unwrap().loss, Some(lost));
    assert_eq!(parse("ss.txt", SS).unwrap().rates.len(), 1);
    assert_eq!(parse("iperf3.json", IPERF).unwrap().rates.len(), 1);
    assert!(parse("trace", "1\n1\n5\n").unwrap().traces[0].is_some());
    for nothing in ["", "hello", "{}", "{\"error\": \"unable to connect\"}", "{"] {
        assert!(parse("x", nothing).is_err(), "{nothing}");
    }
}

fn refined(
    name: &str,
    known: Option<PathSpec>,
    measured: &[Measured],
) -> Result<(PathSpec, Doubt, Vec<String>), Diagnostic> {
    refine(name, known, measured).map(|found| (found.path, found.doubt, found.notes))
}

fn one_way(lost: u64, sent: u64) -> Counted {
    Counted { lost, sent, round_trip: false }
}

#[test]
fn pings_are_lost_on_either_way() {
    // 2 % of round trips: 1 % each way.
    let (middle, _) = loss_after(USUAL_LOSS, &[Counted { lost: 80, sent: 4000, round_trip: true }], &[]);
    assert!((middle / 0.01005 - 1.0).abs() < 0.03, "{middle}");
}

#[test]
fn a_rate_that_is_at_least_something_opens_upward() {
    let slow = Throughput { bits: 1e6, sd: 0.1, direction: None, at_least: true };
    let measured = Measured { rates: vec![slow], ..Measured::default() };
    let ping = parse("ping.txt", PING).unwrap();
    let (path, doubt, _) = refined("x", None, &[measured.clone(), ping]).unwrap();
    let files = [("f".to_string(), measured.clone())];
    let reading = Reading::of(&path, &doubt, &files, &[], Direction::Download);
    assert!(reading.rate[1].0 < 1.1e6 && reading.rate[1].1 > 4e6, "{reading:?}");
    assert!(reading.text().contains("down at least 1.0 Mbit/s"), "{}", reading.text());
    // What is stated stays where it is more, and is raised where it is less; it is never less sure for that.
    let stated = |text| scenario::path(text).unwrap();
    let (path, doubt, _) =
        refined("a", Some(stated("a: 20 Mbit/s, 40 ms")), std::slice::from_ref(&measured)).unwrap();
    assert_eq!((&path.down.rate, doubt.rate[1]), (&Rate::Constant(20_000_000), Doubt::default().rate[1]));
    for text in ["a: 1 Mbit/s, 40 ms", "a: 100 kbit/s, 40 ms"] {
        let (path, doubt, _) = refined("a", Some(stated(text)), std::slice::from_ref(&measured)).unwrap();
        assert!(scenario::mean_rate(&path.down.rate) > 1_000_000, "{text}: {path:?}");
        assert!(doubt.rate[1] <= Doubt::default().rate[1], "{doubt:?}");
    }
}

#[test]
fn text_of_windows_is_read() {
    let utf16: Vec<u8> =
        std::iter::once(0xfeff).chain(PING.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    assert_eq!(decode(utf16.clone()).trim_start_matches('\u{feff}'), PING);
    assert_eq!(parse("x", &decode(utf16.clone())), parse("x", PING));
    // Without the mark.
    assert_eq!(decode(utf16[2..].to_vec()), PING);
    let big: Vec<u8> = PING.encode_utf16().flat_map(u16::to_be_bytes).collect();
    assert_eq!(decode(big), PING);
    assert!(parse("x", &format!("\u{feff}{IPERF}")).is_ok());
}

#[test]
fn thirty_clean_pings_are_not_several_per_cent_of_loss() {
    let (middle, sd) = loss_after(USUAL_LOSS, &[one_way(0, 30)], &[]);
    assert!(middle * libm::exp(1.645 * sd) < 0.01, "{middle} {sd}");
    // A transfer that retransmitted 3 of 20,000 rules out more.
    let repeated = |segments, sent| Repeated { segments, sent, congestion: 10.0 };
    let (middle, sd) = loss_after(USUAL_LOSS, &[one_way(0, 30)], &[repeated(3, 20_000)]);
    assert!(middle * libm::exp(1.645 * sd) < 0.0005, "{middle} {sd}");
    // A flow that retransmitted far more than congestion explains gives the loss rate.
    let (middle, sd) = loss_after((0.005, 0.7), &[one_way(0, 30)], &[repeated(400, 40_000)]);
    assert!((0.007..0.0102).contains(&middle) && sd < 0.4, "{middle} {sd}");
    // Where congestion may have cost as many, that is the most that is lost.
    let (middle, sd) = loss_after((0.001, 0.7), &[], &[repeated(12, 4000)]);
    assert!(middle < 0.002 && sd > 0.4, "{middle} {sd}");
    // Many counted ones outweigh what is usual; more of them are surer.
    let (middle, sd) = loss_after(USUAL_LOSS, &[one_way(20, 1000)], &[]);
    assert!((middle / 0.02 - 1.0).abs() < 0.15 && sd < 0.25, "{middle} {sd}");
    assert!(loss_after(USUAL_LOSS, &[one_way(200, 10_000)], &[]).1 < sd / 2.0);
}

#[test]
fn measurements_join_what_is_stated_and_only_narrow_it() {
    let ping = parse("ping.txt", PING).unwrap();
    let stated = || Some(scenario::path("lte: 20 Mbit/s, 60 ms, 0.1 %").unwrap());
    let (path, doubt, _) = refined("lte", stated(), std::slice::from_ref(&ping)).unwrap();
    let default = Doubt::default();
    assert!(doubt.rtt < default.rtt && doubt.loss < default.loss, "{doubt:?}");
    let iperf = parse("iperf.json", IPERF).unwrap();
    let (_, both, _) = refined("lte", stated(), &[ping, iperf]).unwrap();
    assert!(
        both.rate[1] < default.rate[1] && both.rtt <= 1.01 * doubt.rtt && both.loss <= doubt.loss,
        "{both:?}"
    );
    // Between what is stated and what was measured, nearer to what is surer.
    let rtt = (path.up.delay + path.down.delay).as_millis_f64();
    assert!((44.0..48.0).contains(&rtt), "{rtt}");
}

#[test]
fn what_a_file_cannot_tell_is_said() {
    let text = IPERF
        .replace("mean_rtt", "unused_rtt")
        .replace("min_rtt", "unused_min")
        .replace("max_rtt", "unused_max");
    let found = parse("iperf.json", &text).unwrap();
    assert!(found.rtt.is_none() && found.notes.iter().any(|note| note.contains("-R")));
    let message = |text: &str| parse("notes.txt", text).unwrap_err().message;
    assert!(message("hello").contains("no measurement of a known kind"));
    assert!(message("PING x (1.2.3.4)\n3 packets transmitted, 0 received").contains("not one answer"));
}

#[test]
fn measurements_make_a_path() {
    let all: Vec<Measured> = [PING, IPERF].iter().map(|text| parse("x", text).unwrap()).collect();
    let (path, doubt, _) = refined("lte", None, &all).unwrap();
    // ping: a mean of 44.6 ms, half each way; one of 20 lost.
    assert!((path.down.delay.as_millis_f64() - 22.3).abs() < 0.2, "{}", path.down.delay);
    // One of 20, where paths usually lose little: a per cent or so, surely not a quarter.
    let Loss::Bernoulli(loss) = path.down.loss else { panic!("no loss") };
    assert!((0.0005..0.05).contains(&loss) && loss * libm::exp(1.645 * doubt.loss) < 0.1, "{loss} {doubt:?}");
    // iperf3 -R: 18.9 Mbit/s of payload downwards.
    assert_eq!(path.down.rate, Rate::Constant((18_900_000.0 / PAYLOAD_SHARE) as u64));
    let missing = refine("lte", None, &all[..1]).unwrap_err();
    assert!(missing.message.contains("nothing says the rate of path `lte`"), "{missing:?}");
    let known = scenario::path("lte: 10 Mbit/s, 90 ms").unwrap();
    let (path, doubt, _) = refined("lte", Some(known), &all[..1]).unwrap();
    assert_eq!(path.down.rate, Rate::Constant(10_000_000));
    assert!(
        path.down.delay < Span::from_millis(30) && doubt.rtt < Doubt::default().rtt,
        "{path:?} {doubt:?}"
    );
}

#[test]
fn two_files_of_a_kind_are_joined_or_contradict_each_other_in_words() {
    let ping = |ms: u32| {
        let line = |n: u32| format!("64 bytes from x: icmp_seq={n} ttl=55 time={ms}.{} ms\n", n % 5);
        parse("ping.txt", &(1..=30).map(line).collect::<String>()).unwrap()
    };
    let stated = || Some(scenario::path("lte: 20/5 Mbit/s, 45 ms").unwrap());
    let (path, doubt, notes) = refined("lte", stated(), &[ping(40), ping(41)]).unwrap();
    let rtt = |path: &PathSpec| (path.up.delay + path.down.delay).as_millis_f64();
    assert!(notes.is_empty() && (rtt(&path) - 40.7).abs() < 1.0 && doubt.rtt < 0.03, "{notes:?} {path:?}");
    let (path, doubt, notes) =
        refined("lte", None, &[ping(40), ping(90), parse("i", IPERF).unwrap()]).unwrap();
    assert!(notes[0].contains("RTT 40.1 and 90.1 ms; are all of this path?"), "{notes:?}");
    let range = (rtt(&path) * libm::exp(-1.645 * doubt.rtt), rtt(&path) * libm::exp(1.645 * doubt.rtt));
    assert!(range.0 < 41.0 && range.1 > 89.0, "{range:?}");
    let other = parse("i", &IPERF.replace("18900000", "4100000")).unwrap();
    let (_, doubt, notes) = refined("lte", stated(), &[parse("i", IPERF).unwrap(), other]).unwrap();
    assert!(doubt.rate[1] <= Doubt::default().rate[1] && notes.len() <= 1, "{notes:?} {doubt:?}");
}

#[test]
fn what_is_stated_does_not_count_where_it_is_contradicted() {
    let bidir = r#"{"start":{"test_start":{"protocol":"TCP","reverse":0,"bidir":1}},"end":{
        "sum_received":{"seconds":10,"bits_per_second":950000},
        "sum_received_bidir_reverse":{"seconds":10,"bits_per_second":47200000}}}"#;
    let ss = "cubic rtt:60.2/22.6 mss:1448 bytes_sent:370 bytes_received:37339760 minrtt:60.2";
    let files = [parse("i", bidir).unwrap(), parse("s", ss).unwrap()];
    let stated = scenario::path("dsl: 16/1 Mbit/s, 30 ms").unwrap();
    let found = refine("dsl", Some(stated), &files).unwrap();
    let reading = Reading::of(&found.path, &found.doubt, &[], &found.notes, Direction::Download);
    let holds = |(low, high): (f64, f64), truth: f64| low < truth && truth < high;
    assert!(holds(reading.rate[1], 47.2e6) && holds(reading.rate[0], 1e6), "{reading:?}");
    assert!(holds(reading.rtt_ms, 60.2), "{reading:?}");
    let notes = found.notes.join("; ");
    assert!(notes.contains("down: 48.9 Mbit/s measured, 16.0 stated"), "{notes}");
    assert!(notes.contains("RTT: 60.2 ms measured, 30.0 stated") && found.notes.len() == 2, "{notes}");
}

#[test]
fn a_rate_without_a_direction_is_that_of_the_stated_rate_that_it_fits() {
    let said = |path: &str, mbit: f64| {
        let rate = Throughput { bits: mbit * 1e6, sd: 0.3, direction: None, at_least: false };
        let measured = Measured { rates: vec![rate], ..Measured::default() };
        let found = refine("dsl", Some(scenario::path(path).unwrap()), &[measured]).unwrap();
        let rate = |rate: &Rate| scenario::mean_rate(rate) as f64 / 1e6;
        ([rate(&found.path.up.rate), rate(&found.path.down.rate)], found.notes.join("; "))
    };
    let ([up, down], notes) = said("dsl: 16/1 Mbit/s, 30 ms", 15.5);
    assert!(up == 1.0 && (15.9..16.1).contains(&down), "{up} {down}");
    assert!(notes.contains("which way 15.5 Mbit/s are isn't said: taken as down"), "{notes}");
    let ([up, down], _) = said("dsl: 16/1 Mbit/s, 30 ms", 0.9);
    assert!(down == 16.0 && up < 1.0, "{up} {down}");
    // It may be either's, so it is both's.
    let ([up, down], notes) = said("lan: 16/14 Mbit/s, 30 ms", 15.0);
    assert!((14.0..15.5).contains(&up) && (15.5..16.0).contains(&down) && notes.is_empty(), "{notes}");
}

#[test]
fn a_transfer_that_filled_nothing_says_nothing_of_the_queue() {
    let stated = || Some(scenario::path("lte: 20/5 Mbit/s, 60 ms, queue 100 packets").unwrap());
    let limit = |measured: &Measured| match refine("lte", stated(), std::slice::from_ref(measured))
        .unwrap()
        .path
        .down
        .queue
    {
        ropewalk_link::Queue::Packets { limit, .. } => limit,
        other => panic!("{other:?}"),
    };
    let times = |max: f64, at_least: bool| Measured {
        rtt: Some(RoundTrip {
            min: 60.0,
            mean: 60.0,
            sd: 0.0,
            max,
            count: None,
            loaded: true,
            smoothed: false,
        }),
        rates: vec![Throughput { bits: 1e6, sd: 0.1, direction: Some(Direction::Download), at_least }],
        ..Measured::default()
    };
    assert_eq!(limit(&times(60.0, true)), 100);
    assert_eq!(limit(&times(60.5, true)), 100);
    // Half of what is stated was seen: it is at least that.
    assert_eq!(limit(&times(90.0, true)), 100);
    assert!(limit(&times(300.0, true)) > 300);
}

#[test]
fn traces_of_both_directions_make_a_path() {
    let csv = "second,download_mbit_per_s,upload_mbit_per_s\n0,17.6,12.35\n1,18.24,13.21\n\
               2,34.65,3.48\n3,52.74,0.0\n";
    let found = [parse("x.csv", csv).unwrap(), parse("ping.txt", PING).unwrap()];
    let path = refine("sky", None, &found).unwrap().path;
    let rate = |rate: &Rate| scenario::mean_rate(rate) as f64 / 1e6;
    assert!((rate(&path.down.rate) - 30.8).abs() < 0.1 && (rate(&path.up.rate) - 7.26).abs() < 0.1);
    let one = [parse("link.up", "1\n2\n3\n4\n").unwrap(), parse("link.down", "1\n2\n").unwrap()];
    let path = refine("lte", Some(scenario::path("lte: 1 Mbit/s, 60 ms").unwrap()), &one).unwrap().path;
    assert_ne!(path.up.rate, path.down.rate);
    let (Rate::Trace(up), Rate::Trace(down)) = (&path.up.rate, &path.down.rate) else { panic!("{path:?}") };
    assert_eq!((up.len(), down.len()), (4, 2));
}

#[test]
fn a_slow_links_round_trip_is_without_the_time_that_a_probe_is_sent() {
    // 84 bytes take 0.67 ms at 1 Mbit/s, and 1.34 ms at 500 kbit/s.
    let text: String =
        (1..=30).map(|n| format!("64 bytes from x: icmp_seq={n} ttl=55 time=12.0{} ms\n", n % 4)).collect();
    let ping = parse("ping.txt", &text).unwrap();
    let stated = Some(scenario::path("dsl: 1/0.5 Mbit/s, 10 ms").unwrap());
    let found = refine("dsl", stated, &[ping]).unwrap();
    let rtt = (found.path.up.delay + found.path.down.delay).as_millis_f64();
    assert!((rtt / 10.0 - 1.0).abs() < 0.01, "{rtt}");
    // It is as unsure as the rates: a fifth of 2 ms in 10 ms, mostly of the slower way.
    assert!((0.03..0.04).contains(&found.doubt.rtt), "{:?}", found.doubt);
}

#[test]
fn of_three_answers_the_mean_is_less_sure_than_of_thirty() {
    let sd = |count: u64| {
        let rtt = RoundTrip {
            min: 90.0,
            mean: 100.0,
            sd: 10.0,
            max: 110.0,
            count: Some(count),
            loaded: false,
            smoothed: false,
        };
        let ping = Measured { rtt: Some(rtt), ..Measured::default() };
        let rate = Throughput { bits: 1e8, sd: 0.1, direction: None, at_least: false };
        let iperf = Measured { rates: vec![rate], ..Measured::default() };
        refine("x", None, &[ping, iperf]).unwrap().doubt.rtt
    };
    // Besides, the link changes by 2 % until the measurement is used.
    assert!((sd(30) / libm::hypot(0.0189, 0.02) - 1.0).abs() < 0.02, "{}", sd(30));
    // Student's quantile with two degrees of freedom is 2.92, where the normal one is 1.645.
    assert!(
        (sd(3) / libm::hypot(0.1 / libm::sqrt(3.0) * 2.92 / 1.645, 0.02) - 1.0).abs() < 0.02,
        "{}",
        sd(3)
    );
}

#[test]
fn one_round_trip_under_load_is_the_most_that_the_link_takes() {
    // Ten kilobytes at once at 5 Mbit/s: 60 ms, and 66 ms until they are sent.
    let text = |least: u32, most: u32| {
        format!(
            r#"{{"start":{{"test_start":{{"protocol":"TCP","reverse":0}}}},"end":{{"streams":[{{"sender":{{
            "min_rtt":{least},"mean_rtt":{most},"max_rtt":{most}}}}}],"sum_received":{{"seconds":0.129,
            "bits_per_second":898444}}}}}}"#
        )
    };
    let stated = || Some(scenario::path("lte: 20/5 Mbit/s, 60 ms").unwrap());
    for (least, most) in [(126_459, 126_459), (61_000, 126_459)] {
        let found = refine("lte", stated(), &[parse("x", &text(least, most)).unwrap()]).unwrap();
        let rtt = (found.path.up.delay + found.path.down.delay).as_millis_f64();
        let range = (rtt * libm::exp(-1.645 * found.doubt.rtt), rtt * libm::exp(1.645 * found.doubt.rtt));
        assert!(range.0 < 60.0 && range.1 > 60.0, "{range:?}");
    }
}

#[test]
fn what_was_sent_again_was_lost_somehow() {
    let stated = scenario::path("lte: 20/5 Mbit/s, 60 ms").unwrap();
    let said = |files: &[Measured]| {
        let found = refine("lte", Some(stated.clone()), files).unwrap();
        let files: Vec<_> = files.iter().map(|one| ("f".to_string(), one.clone())).collect();
        Reading::of(&found.path, &found.doubt, &files, &found.notes, Direction::Download).text()
    };
    let again = |segments| Measured { retransmitted: Some((segments, 807)), ..Measured::default() };
    assert!(said(&[again(0)]).contains("no loss seen"), "{}", said(&[again(0)]));
    let nine = said(&[again(9)]);
    assert!(
        nine.contains("loss unknown") && nine.contains("9 of 807 segments (1.1 %) were sent again"),
        "{nine}"
    );
    let both = said(&[again(9), Measured { loss: Some(one_way(0, 30)), ..Measured::default() }]);
    assert!(both.contains("no loss seen") && both.contains("were sent again"), "{both}");
}

proptest! {
    #[test]
    fn nothing_panics_on_any_text(text in "\\PC*") {
        let _ = parse("x", &text);
        let _ = (ping::parse(&text), ss::parse(&text), iperf::parse(&text));
    }

    #[test]
    fn nothing_panics_on_damaged_output(at in 0usize..4000, with in "\\PC{0,6}", which in 0usize..3) {
        let mut text = [PING, SS, IPERF][which].to_string();
        let mut at = at % (text.len() + 1);
        while !text.is_char_boundary(at) { at -= 1; }
        text.insert_str(at, &with);
        if let Ok(found) = parse("x", &text) {
            let _ = refine("x", None, &[found]);
        }
        let _ = parse("x", &text[..at]);
    }
}

/// A log of three million bytes.
fn long(kind: &str) -> String {
    let line = |number: u64| match kind {
        "ping" => format!(
            "64 bytes from 192.0.2.1: icmp_seq={} ttl=55 time={}.{} ms\n",
            number % 65_536,
            40 + number % 3,
            number % 10
        ),
        "fping" => format!("192.0.2.1 : [{number}], 64 bytes, 20.{} ms (20.1 avg, 0% loss)\n", number % 10),
        "ss" => format!(
            "ESTAB 0 0 192.168.1.7:4{:04} 203.0.113.5:443\n\t cubic rtt:{}.5/2 mss:1448 bytes_sent:2000000 \
             bytes_retrans:2896 minrtt:31.2 delivery_rate {}Mbps\n",
            number % 10_000,
            33 + number % 9,
            10 + number % 5
        ),
        "lte.down" => format!("{}\n", number * 3 / 2),
        "rates.csv" if number == 0 => "time,download_mbps,upload_mbps\n".into(),
        "rates.csv" => format!("{},{}.5,{}\n", number, 10 + number % 7, number % 3),
        _ => format!("{{\"time\":{number},\"download_mbps\":{}.5,\"upload_mbps\":5}}\n", 10 + number % 7),
    };
    let mut text = String::new();
    (0..)
        .map(line)
        .take_while(|line| {
            text.push_str(line);
            text.len() < 3_000_000
        })
        .for_each(drop);
    text
}

#[test]
fn a_long_file_says_what_it_says_as_a_whole() {
    fn open(path: &Path, want: Want) -> Result<Opened, ReadError> {
        let kind = path.to_string_lossy().into_owned();
        if let Some(kind) = kind.strip_prefix("utf-16 ") {
            let bytes: Vec<u8> =
                std::iter::once(0xfeff).chain(long(kind).encode_utf16()).flat_map(u16::to_le_bytes).collect();
            return Ok(Opened::new(std::io::Cursor::new(bytes), want.most));
        }
        Ok(Opened::new(std::io::Cursor::new(long(&kind).into_bytes()), want.most))
    }
    for kind in ["ping", "fping", "ss", "lte.down", "rates.csv", "rates.jsonl"] {
        let text = long(kind);
        let whole = parse(kind, &text).unwrap();
        assert!(by_line(kind, &text[..text[..2_000_000].rfind('\n').unwrap() + 1]).is_some(), "{kind}");
        assert_eq!(read(Path::new(kind), open).unwrap(), whole, "{kind}");
        let name = format!("utf-16 {kind}");
        let windows = read(Path::new(&name), open).unwrap();
        assert_eq!(
            (windows.rtt, windows.loss, &windows.rates),
            (whole.rtt, whole.loss, &whole.rates),
            "{name}"
        );
    }
}

#[test]
fn what_is_read_as_a_whole_is_bounded() {
    fn open(path: &Path, want: Want) -> Result<Opened, ReadError> {
        let head: &[u8] =
            if path.ends_with("json") { b"{" } else { b"traceroute to 192.0.2.1, 30 hops max\n" };
        Ok(Opened::new(std::io::Read::chain(head, std::io::repeat(b' ')), want.most))
    }
    for name in ["json", "traceroute"] {
        let error = read(Path::new(name), open).unwrap_err();
        assert!(error.message.contains("larger than 256 MiB"), "{}", error.message);
    }
}
