//! Formatting for `ropewalk perf`.

use std::net::SocketAddr;

use ropewalk_engine::Span;
use ropewalk_host::perf::protocol::{Hello, Mode};
use ropewalk_settings::units;

/// A transfer direction as text.
pub(super) fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Up => "upload",
        Mode::Down => "download",
        Mode::Both => "both ways",
        Mode::Echo => "latency",
    }
}

/// A stack as text.
pub(super) fn stack(engine: bool) -> &'static str {
    if engine { "engine" } else { "Linux kernel" }
}

/// An address as text; an IPv4 address on an IPv6 socket is shown as IPv4.
pub(super) fn address(address: SocketAddr) -> String {
    SocketAddr::new(address.ip().to_canonical(), address.port()).to_string()
}

/// Bits per second; 0 where no time has passed.
pub(super) fn bits_per_second(bytes: u64, time: Span) -> f64 {
    if time.is_zero() { 0.0 } else { bytes as f64 * 8e9 / time.as_nanos() as f64 }
}

/// As "49.7 Mbit/s".
pub(super) fn rate(bytes: u64, time: Span) -> String {
    let bits = bits_per_second(bytes, time);
    let (value, unit) = match bits {
        1e9.. => (bits / 1e9, "Gbit/s"),
        1e6.. => (bits / 1e6, "Mbit/s"),
        _ => (bits / 1e3, "kbit/s"),
    };
    let digits = if value < 10.0 { 2 } else { usize::from(value < 1000.0) };
    format!("{value:.digits$} {unit}")
}

/// As "6.21 MiB".
pub(super) fn bytes(count: u64) -> String {
    if count == 0 { "0 B".into() } else { units::short_bytes(count as f64) }
}

/// As "21.3 ms" or "85 us".
pub(super) fn time(time: Span) -> String {
    match time.as_nanos() {
        0 => "-".into(),
        1_000_000.. => format!("{:.1} ms", time.as_millis_f64()),
        nanos => format!("{:.0} us", nanos as f64 / 1e3),
    }
}

/// How much a hello asks for.
pub(super) fn amount(hello: &Hello) -> String {
    if hello.milliseconds > 0 {
        format!("{} s", f64::from(hello.milliseconds) / 1e3)
    } else {
        units::write_bytes(hello.bytes)
    }
}

/// The protocol that a connection uses.
pub(super) fn spoken(multipath: bool, subflows: u8) -> String {
    match (multipath, subflows) {
        (false, _) => "TCP".into(),
        (true, 1) => "Multipath TCP, 1 subflow".into(),
        (true, count) => format!("Multipath TCP, {count} subflows"),
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_engine::{NANOSECOND, SECOND, Span};

    use super::{bytes, rate, time};

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let rates = [(0, NANOSECOND), (125, SECOND), (1_250_000, SECOND), (6_212_500, SECOND)];
        let texts = rates.map(|(count, time)| rate(count, time));
        assert_eq!(texts, ["0.00 kbit/s", "1.00 kbit/s", "10.0 Mbit/s", "49.7 Mbit/s"]);
        assert_eq!(rate(5, Span::ZERO), "0.00 kbit/s");
        assert_eq!(rate(2_000_000_000, SECOND), "16.0 Gbit/s");
        assert_eq!([0, 999, 6_510_000, 123_400_000].map(bytes), ["0 B", "999 B", "6.21 MiB", "118 MiB"]);
        assert_eq!(
            [0, 85_400, 21_345_000].map(|nanos| time(Span::from_nanos(nanos))),
            ["-", "85 us", "21.3 ms"]
        );
    }
}
