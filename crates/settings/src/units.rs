//! Quantities with units: `20 ms`, `50 Mbit/s`, `64 KiB`, `100 packets`, `0.5 %`, `20 ms +-5 ms`.
//!
//! A number without a unit is refused, except `0`: a missing unit is how wrong factors of 8 or 1000 arise. Prefixes are
//! those of the SI (k = 1000) and IEC 80000-13 (Ki = 1024). The writing functions give the shortest text that parses to
//! the same value.

use std::ops::Range;

/// Nanoseconds.
pub type Nanos = u64;

/// A quantity that can't be parsed: what is wrong, where in the text, and what is allowed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnitError {
    /// What is wrong.
    pub message: String,
    /// Byte range in the text.
    pub span: Range<usize>,
    /// The label beside the caret.
    pub label: String,
    /// What is allowed.
    pub help: String,
}

/// One unit, with all that it is called.
#[derive(Debug)]
pub struct Unit {
    names: &'static [&'static str],
    factor: f64,
}

/// What units measure.
#[derive(Debug)]
pub struct Dimension {
    /// "time"
    name: &'static str,
    /// "an amount of time, such as `20 ms`"
    example: &'static str,
    units: &'static [Unit],
    /// The names worth listing.
    listed: &'static str,
    least: f64,
    greatest: f64,
    bounds: &'static str,
}

macro_rules! units {
    ($($factor:expr => $($name:literal)|+;)*) => { &[$(Unit { names: &[$($name),+], factor: $factor }),*] };
}

/// Times.
pub const TIME: Dimension = Dimension {
    name: "time",
    example: "20 ms",
    units: units! {
        1.0 => "ns" | "nanoseconds" | "nanosecond";
        1e3 => "us" | "\u{b5}s" | "\u{3bc}s" | "microseconds" | "microsecond";
        1e6 => "ms" | "msec" | "milliseconds" | "millisecond";
        1e9 => "s" | "sec" | "seconds" | "second";
        60e9 => "min" | "minutes" | "minute";
        3600e9 => "h" | "hours" | "hour";
    },
    listed: "ns, us, ms, s, min, h",
    least: 0.0,
    greatest: 86_400e9,
    bounds: "0 to 24 h",
};

/// Rates.
pub const RATE: Dimension = Dimension {
    name: "rate",
    example: "50 Mbit/s",
    units: units! {
        1.0 => "bit/s" | "bps" | "b/s" | "bits/s";
        1e3 => "kbit/s" | "kbps" | "Kbit/s" | "Kbps" | "kb/s" | "kbits/s";
        1e6 => "Mbit/s" | "Mbps" | "mbit/s" | "mbps" | "Mb/s" | "Mbits/s";
        1e9 => "Gbit/s" | "Gbps" | "gbit/s" | "gbps" | "Gb/s" | "Gbits/s";
        8.0 => "B/s" | "byte/s" | "bytes/s";
        8e3 => "kB/s" | "KB/s" | "kByte/s";
        8e6 => "MB/s" | "MByte/s";
        8e9 => "GB/s" | "GByte/s";
    },
    listed: "bit/s, kbit/s, Mbit/s, Gbit/s (or kbps, Mbps, Gbps; bytes: kB/s, MB/s, GB/s)",
    least: 1e3,
    greatest: 1e12,
    bounds: "1 kbit/s to 1000 Gbit/s",
};

/// Sizes.
pub const BYTES: Dimension = Dimension {
    name: "size",
    example: "64 KiB",
    units: units! {
        1.0 => "B" | "bytes" | "byte";
        1e3 => "kB" | "KB";
        1e6 => "MB";
        1e9 => "GB";
        1e12 => "TB";
        1024.0 => "KiB" | "kiB";
        1_048_576.0 => "MiB";
        1_073_741_824.0 => "GiB";
        1_099_511_627_776.0 => "TiB";
    },
    listed: "B, kB, MB, GB, TB (powers of 1000) and KiB, MiB, GiB, TiB (powers of 1024)",
    least: 0.0,
    greatest: 1_099_511_627_776.0,
    bounds: "0 to 1 TiB",
};

/// Numbers of packets.
pub const PACKETS: Dimension = Dimension {
    name: "number of packets",
    example: "100 packets",
    units: units! { 1.0 => "packets" | "packet" | "pkts" | "pkt" | "p"; },
    listed: "packets",
    least: 0.0,
    greatest: 10_000_000.0,
    bounds: "0 to 10000000 packets",
};

/// Probabilities.
pub const PROBABILITY: Dimension = Dimension {
    name: "probability",
    example: "0.5 %",
    units: units! { 0.01 => "%" | "percent" | "per cent"; },
    listed: "%",
    least: 0.0,
    greatest: 1.0,
    bounds: "0 % to 100 %",
};

impl Dimension {
    /// The accepted syntax as a regular expression for the JSON Schema; `some`: not 0. It can't express ranges.
    pub fn pattern(&self, some: bool) -> String {
        let names: Vec<&str> = self.units.iter().flat_map(|unit| unit.names.iter().copied()).collect();
        let names = names.join("|");
        let least = if some { "[1-9]" } else { "[0-9]" };
        let quantity = format!(r"\+?[0-9._]*{least}[0-9._]*([eE][+-]?[0-9]+)?\s*({names})");
        if some { quantity } else { format!(r"({quantity}|0[0._]*)") }
    }
}

/// The number and the unit that follows it, with their places.
struct Parts<'a> {
    number: f64,
    whole: Range<usize>,
    unit: &'a str,
    unit_span: Range<usize>,
}

fn split<'a>(text: &'a str, dimension: &Dimension) -> Result<Parts<'a>, UnitError> {
    let start = text.len() - text.trim_start().len();
    let body = text.trim();
    let whole = start..start + body.len();
    let help = format!("write {}, such as `{}`", article(dimension.name), dimension.example);
    if body.is_empty() {
        return Err(UnitError {
            message: format!("expected {}", article(dimension.name)),
            span: whole,
            label: "nothing found".into(),
            help,
        });
    }
    if body.starts_with(['-', '\u{2212}']) {
        return Err(UnitError {
            message: format!("a {} can't be negative", dimension.name),
            span: whole,
            label: format!("found `{body}`"),
            help: format!("allowed: {}", dimension.bounds),
        });
    }
    let unsigned = body.strip_prefix('+').unwrap_or(body);
    let mut end =
        unsigned.find(|c: char| !(c.is_ascii_digit() || c == '.' || c == '_')).unwrap_or(unsigned.len());
    if let Some(exponent) = unsigned[end..].strip_prefix(['e', 'E']) {
        let digits = exponent.strip_prefix(['+', '-']).unwrap_or(exponent);
        let count = digits.bytes().take_while(u8::is_ascii_digit).count();
        if count > 0 {
            end += 1 + (exponent.len() - digits.len()) + count;
        }
    }
    let digits = unsigned[..end].replace('_', "");
    let number: f64 = digits.parse().map_err(|_| UnitError {
        message: format!("expected {}", article(dimension.name)),
        span: whole.clone(),
        label: format!("found `{body}`"),
        help: help.clone(),
    })?;
    let rest = &unsigned[end..];
    let unit = rest.trim_start();
    let unit_start = whole.end - unit.len();
    Ok(Parts { number, whole: whole.clone(), unit, unit_span: unit_start..whole.end })
}

fn article(noun: &str) -> String {
    format!("a {noun}")
}

fn parse(text: &str, dimension: &Dimension) -> Result<f64, UnitError> {
    let parts = split(text, dimension)?;
    if parts.unit.is_empty() && parts.number == 0.0 && dimension.least == 0.0 {
        return Ok(0.0);
    }
    let Some(unit) = dimension.units.iter().find(|unit| unit.names.contains(&parts.unit)) else {
        let known = suggested(dimension);
        let found = text.trim();
        let (message, label) = if parts.unit.is_empty() {
            (format!("a {} needs a unit", dimension.name), format!("found `{found}`"))
        } else {
            (
                format!(
                    "`{}` is not a unit of {}",
                    parts.unit,
                    dimension.name.trim_start_matches("number of ")
                ),
                format!("found `{}`", parts.unit),
            )
        };
        let mut help = format!("allowed: {}", dimension.listed);
        if !parts.unit.is_empty()
            && let Some(near) = crate::diagnostic::nearest(parts.unit, known)
        {
            help = format!("did you mean `{near}`? {help}");
        }
        let span = if parts.unit.is_empty() { parts.whole } else { parts.unit_span };
        return Err(UnitError { message, span, label, help });
    };
    let value = parts.number * unit.factor;
    if !(value >= dimension.least && value <= dimension.greatest) {
        return Err(UnitError {
            message: format!("this {} is out of range", dimension.name),
            span: parts.whole,
            label: format!("found `{}`", text.trim()),
            help: format!("allowed: {}", dimension.bounds),
        });
    }
    Ok(value)
}

/// A time in nanoseconds, at most 24 hours.
///
/// # Errors
/// No number, a negative one, no unit or an unknown one, out of range.
pub fn duration(text: &str) -> Result<Nanos, UnitError> {
    Ok(parse(text, &TIME)?.round() as u64)
}

/// Bits per second, 1 kbit/s to 1000 Gbit/s.
///
/// # Errors
/// As [`duration`].
pub fn rate(text: &str) -> Result<u64, UnitError> {
    Ok(parse(text, &RATE)?.round() as u64)
}

/// Bytes, at most 1 TiB.
///
/// # Errors
/// As [`duration`]; half a byte is refused too.
pub fn bytes(text: &str) -> Result<u64, UnitError> {
    whole(text, parse(text, &BYTES)?, "byte")
}

/// Bytes, from the first to the second of `range`.
///
/// # Errors
/// As [`bytes`]; what is allowed is the range.
pub fn bytes_within(text: &str, range: (u64, u64)) -> Result<u64, UnitError> {
    let allowed = format!("allowed: {} to {}", write_bytes(range.0), write_bytes(range.1));
    let found = bytes(text).map_err(|mut error| {
        if error.help.ends_with(BYTES.bounds) {
            error.help.clone_from(&allowed);
        }
        error
    })?;
    if (range.0..=range.1).contains(&found) {
        return Ok(found);
    }
    let start = text.len() - text.trim_start().len();
    Err(UnitError {
        message: "this size is out of range".into(),
        span: start..start + text.trim().len(),
        label: format!("found `{}`", text.trim()),
        help: allowed,
    })
}

/// Packets, at most ten million.
///
/// # Errors
/// As [`duration`]; half a packet is refused too.
pub fn packets(text: &str) -> Result<u32, UnitError> {
    Ok(whole(text, parse(text, &PACKETS)?, "packet")? as u32)
}

fn whole(text: &str, value: f64, one: &str) -> Result<u64, UnitError> {
    // Ignore rounding errors of a decimal unit's factor.
    let whole = value.round();
    if (value - whole).abs() <= whole * 4.0 * f64::EPSILON {
        return Ok(whole as u64);
    }
    Err(UnitError {
        message: format!("part of a {one} can't be"),
        span: 0..text.len(),
        label: format!("found `{}`", text.trim()),
        help: format!("write a whole number of {one}s"),
    })
}

/// All units of rates and of times.
pub fn rates_and_times() -> impl Iterator<Item = &'static str> {
    suggested(&RATE).chain(suggested(&TIME))
}

/// Unit names to suggest; of names that differ only in case, the first.
fn suggested(dimension: &Dimension) -> impl Iterator<Item = &'static str> {
    dimension.units.iter().flat_map(|unit| {
        let names = unit.names;
        let first = |at: usize| !names[..at].iter().any(|before| before.eq_ignore_ascii_case(names[at]));
        (0..names.len()).filter(move |at| first(*at)).map(|at| names[at])
    })
}

/// Whether this is a unit of time.
pub fn is_time(unit: &str) -> bool {
    TIME.units.iter().any(|known| known.names.contains(&unit))
}

/// Whether this is a unit of size.
pub fn is_size(unit: &str) -> bool {
    BYTES.units.iter().any(|known| known.names.contains(&unit))
}

/// A probability, 0 to 1, written in per cent.
///
/// # Errors
/// As [`duration`].
pub fn probability(text: &str) -> Result<f64, UnitError> {
    let parts = split(text, &PROBABILITY)?;
    if parts.unit.is_empty() && parts.number > 0.0 && parts.number <= 100.0 {
        let as_fraction = if parts.number <= 1.0 {
            format!(
                "write `{} %` if you mean one in {}",
                trim_float(parts.number * 100.0),
                trim_float(1.0 / parts.number)
            )
        } else {
            format!("write `{} %`", parts.number)
        };
        return Err(UnitError {
            message: "a probability needs its `%`".into(),
            span: parts.whole,
            label: format!("found `{}`", text.trim()),
            help: as_fraction,
        });
    }
    parse(text, &PROBABILITY)?;
    // Neither 6.817 * 0.01 nor 6.817 / 100 is the double nearest to 0.06817; the decimal text is.
    Ok(format!("{}e-2", parts.number).parse().unwrap_or(parts.number / 100.0))
}

/// A time and, after `+-` or `±`, its spread.
///
/// # Errors
/// As [`duration`], for either part.
pub fn duration_with_spread(text: &str) -> Result<(Nanos, Option<Nanos>), UnitError> {
    let sign = ["+-", "+/-", "\u{b1}"].iter().find_map(|sign| text.find(sign).map(|at| (at, sign.len())));
    let Some((at, len)) = sign else {
        return Ok((duration(text)?, None));
    };
    let base = duration(&text[..at])?;
    let spread = duration(&text[at + len..]).map_err(|mut error| {
        error.span = error.span.start + at + len..error.span.end + at + len;
        error
    })?;
    Ok((base, Some(spread)))
}

/// Shortest decimal without trailing zeros, at most six digits after the point.
fn trim_float(value: f64) -> String {
    let text = format!("{value:.6}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    text.to_string()
}

/// `value / factor` in at most three decimals, if that is exact.
fn exact(value: u64, factor: u64) -> Option<String> {
    let (whole, rest) = (value / factor, value % factor);
    let thousandths = u128::from(rest) * 1000;
    if thousandths % u128::from(factor) != 0 || whole == 0 && rest != 0 {
        return None;
    }
    let text = format!("{whole}.{:03}", thousandths / u128::from(factor));
    Some(text.trim_end_matches('0').trim_end_matches('.').to_string())
}

fn write(value: u64, units: &[(u64, &str)]) -> String {
    for (factor, name) in units {
        if value >= *factor
            && let Some(number) = exact(value, *factor)
        {
            return format!("{number} {name}");
        }
    }
    let (factor, name) = units[units.len() - 1];
    format!("{} {name}", value / factor)
}

/// `20 ms`.
pub fn write_duration(nanos: Nanos) -> String {
    if nanos == 0 {
        return "0 ms".into();
    }
    write(nanos, &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")])
}

/// `50 Mbit/s`.
pub fn write_rate(bits_per_second: u64) -> String {
    if bits_per_second == u64::MAX {
        return "unlimited".into();
    }
    write(
        bits_per_second,
        &[(1_000_000_000, "Gbit/s"), (1_000_000, "Mbit/s"), (1_000, "kbit/s"), (1, "bit/s")],
    )
}

/// `64 KiB` or `64 kB`, whichever is shorter.
pub fn write_bytes(bytes: u64) -> String {
    let binary =
        write(bytes, &[(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B")]);
    let decimal = write(
        bytes,
        &[(1_000_000_000_000, "TB"), (1_000_000_000, "GB"), (1_000_000, "MB"), (1_000, "kB"), (1, "B")],
    );
    if decimal.len() < binary.len() { decimal } else { binary }
}

/// Three significant digits, and no fraction from 100 on.
pub fn short(value: f64) -> String {
    let digits = if value >= 99.95 {
        0
    } else if value >= 9.995 {
        1
    } else {
        2
    };
    format!("{value:.digits$}")
}

/// About so many bytes, to three significant digits: `1.39 KiB`.
pub fn short_bytes(value: f64) -> String {
    const KIB: f64 = 1024.0;
    if value < 0.5 {
        "0".into()
    } else if value < 999.5 {
        format!("{value:.0} B")
    } else if value < 999.5 * KIB {
        format!("{} KiB", short(value / KIB))
    } else if value < 999.5 * KIB * KIB {
        format!("{} MiB", short(value / KIB / KIB))
    } else {
        format!("{} GiB", short(value / KIB / KIB / KIB))
    }
}

/// `0.5 %`.
pub fn write_probability(probability: f64) -> String {
    // Twelve significant digits hide the rounding of the multiplication by 100.
    let text = format!("{:.12}", probability * 100.0);
    format!("{} %", text.trim_end_matches('0').trim_end_matches('.'))
}

/// `100 packets`.
pub fn write_packets(packets: u32) -> String {
    if packets == 1 { "1 packet".into() } else { format!("{packets} packets") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn usual_spellings() {
        assert_eq!(duration("20 ms"), Ok(20_000_000));
        assert_eq!(duration("20ms"), Ok(20_000_000));
        assert_eq!(duration(" 1.5 s "), Ok(1_500_000_000));
        assert_eq!(duration("250 µs"), Ok(250_000));
        assert_eq!(duration("250 us"), Ok(250_000));
        assert_eq!(duration("0"), Ok(0));
        assert_eq!(duration("1e3 ms"), Ok(1_000_000_000));
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
        assert_eq!(duration_with_spread("20 ms +-5 ms"), Ok((20_000_000, Some(5_000_000))));
        assert_eq!(duration_with_spread("20 ms ± 500 us"), Ok((20_000_000, Some(500_000))));
        assert_eq!(duration_with_spread("20 ms"), Ok((20_000_000, None)));
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
}
