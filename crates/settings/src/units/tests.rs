//! Tests of quantities.

use super::*;
use proptest::prelude::*;

#[test]
fn usual_spellings() {
    let (ms, us) = (Span::from_millis, Span::from_micros);
    assert_eq!(duration("20 ms"), Ok(ms(20)));
    assert_eq!(duration("20ms"), Ok(ms(20)));
    assert_eq!(duration(" 1.5 s "), Ok(ms(1_500)));
    assert_eq!(duration("250 µs"), Ok(us(250)));
    assert_eq!(duration("250 us"), Ok(us(250)));
    assert_eq!(duration("0"), Ok(Span::ZERO));
    assert_eq!(duration("1e3 ms"), Ok(ms(1_000)));
    assert_eq!(rate("50 Mbit/s"), Ok(50_000_000));
    assert_eq!(rate("50Mbps"), Ok(50_000_000));
    assert_eq!(rate("2.5 MB/s"), Ok(20_000_000));
    assert_eq!(bytes("64 KiB"), Ok(65_536));
    assert_eq!(bytes("64 kB"), Ok(64_000));
    assert_eq!(bytes("1_000 B"), Ok(1000));
    assert_eq!(packets("100 packets"), Ok(100));
    assert_eq!(packets("1 packet"), Ok(1));
    assert_eq!(probability("0.5 %"), Ok(0.005));
    assert_eq!(probability("100%"), Ok(1.0));
    assert_eq!(duration_with_spread("20 ms +-5 ms"), Ok((ms(20), Some(ms(5)))));
    assert_eq!(duration_with_spread("20 ms ± 500 us"), Ok((ms(20), Some(us(500)))));
    assert_eq!(duration_with_spread("20 ms"), Ok((ms(20), None)));
}

#[test]
fn errors_point_at_the_wrong_part() {
    let error = rate("50 Mbyte").unwrap_err();
    assert_eq!(error.span, 3..8);
    assert!(error.help.contains("MByte/s"), "{}", error.help);
    assert!(rate("50 mbi/s").unwrap_err().help.starts_with("did you mean `Mbit/s`?"));
    assert_eq!(duration("20").unwrap_err().message, "a time needs a unit");
    assert_eq!(duration("-5 ms").unwrap_err().message, "a time can't be negative");
    assert_eq!(rate("-5 Mbit/s").unwrap_err().message, "a rate can't be negative");
    assert_eq!(rate("0 Mbit/s").unwrap_err().message, "this rate is out of range");
    assert_eq!(rate("9e99 Gbit/s").unwrap_err().message, "this rate is out of range");
    assert_eq!(duration("").unwrap_err().label, "nothing found");
    assert_eq!(duration("fast").unwrap_err().message, "expected a time");
    assert_eq!(probability("101 %").unwrap_err().message, "this probability is out of range");
    assert!(probability("0.005").unwrap_err().help.contains("0.5 %"));
    assert_eq!(bytes("64 K").unwrap_err().span, 3..4);
    assert_eq!(bytes("1.5 B").unwrap_err().message, "part of a byte can't be");
    assert_eq!(bytes("271382954.368 kB"), Ok(271_382_954_368));
    assert_eq!(bytes("271382954.3685 kB").unwrap_err().message, "part of a byte can't be");
    assert_eq!(duration_with_spread("20 ms +- 5 mss").unwrap_err().span, 11..14);
    assert_eq!(duration("1.2.3 ms").unwrap_err().message, "expected a time");
}

proptest! {
    #[test]
    fn durations_read_back(value in 1u64..86_400_000_000_000) {
        let value = Span::from_nanos(value);
        prop_assert_eq!(duration(&write_duration(value)), Ok(value));
    }

    #[test]
    fn rates_read_back(value in 1000u64..1_000_000_000_000) {
        prop_assert_eq!(rate(&write_rate(value)), Ok(value));
    }

    #[test]
    fn sizes_read_back(value in 0u64..(1 << 40)) {
        prop_assert_eq!(bytes(&write_bytes(value)), Ok(value));
    }

    #[test]
    fn probabilities_read_back(thousandths in 0u32..=100_000) {
        let value = f64::from(thousandths) / 100_000.0;
        prop_assert_eq!(probability(&write_probability(value)), Ok(value));
    }

    #[test]
    fn nothing_panics(text in "\\PC{0,24}") {
        let _ = (duration(&text), rate(&text), bytes(&text), packets(&text), probability(&text));
        let _ = duration_with_spread(&text);
    }
}
