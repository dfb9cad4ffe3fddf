//! Quantities with units: `20 ms`, `50 Mbit/s`, `64 KiB`, `100 packets`, `0.5 %`, `20 ms +-5 ms`.
//!
//! A number without a unit is refused, except `0`: a missing unit is how wrong factors of 8 or 1000 arise.
//! Prefixes are those of the SI (k = 1000) and IEC 80000-13 (Ki = 1024). The writing functions give the
//! shortest text that parses to the same value.

mod rate_unit;

use std::ops::Range;

use ropewalk_time::Span;

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
    // The names worth suggesting; `rate_unit` reads many more.
    units: units! {
        1.0 => "bit/s" | "bps";
        1e3 => "kbit/s" | "kbps";
        1e6 => "Mbit/s" | "Mbps";
        1e9 => "Gbit/s" | "Gbps";
        8.0 => "B/s";
        8e3 => "kB/s" | "kByte/s";
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
    /// The accepted syntax as a regular expression for the JSON Schema; `some`: not 0. It can't express
    /// ranges.
    pub fn pattern(&self, some: bool) -> String {
        let names = if self.is_rate() {
            rate_unit::PATTERN.to_string()
        } else {
            let names = self.units.iter().flat_map(|unit| unit.names.iter().copied());
            names.map(|name| self.any_case(name)).collect::<Vec<_>>().join("|")
        };
        let least = if some { "[1-9]" } else { "[0-9]" };
        let quantity = format!(r"\+?[0-9._]*{least}[0-9._]*([eE][+-]?[0-9]+)?\s*({names})");
        if some { quantity } else { format!(r"({quantity}|0[0._]*)") }
    }

    /// The pattern of a name in any case; bytes are a capital `B`.
    fn any_case(&self, name: &str) -> String {
        name.chars()
            .map(|c| match c {
                'B' => c.to_string(),
                _ if c.is_ascii_alphabetic() => {
                    format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase())
                }
                _ => c.to_string(),
            })
            .collect()
    }

    fn is_rate(&self) -> bool {
        self.name == RATE.name
    }

    /// What one of this unit is; capitals make no difference, except where they tell bytes from bits.
    fn factor(&self, unit: &str) -> Option<f64> {
        if self.is_rate() {
            return rate_unit::factor(unit);
        }
        let same =
            |name: &str| name.eq_ignore_ascii_case(unit) && (!name.contains('B') || unit.contains('B'));
        self.units.iter().find(|known| known.names.iter().any(|name| same(name))).map(|known| known.factor)
    }

    /// The unit that may be meant; never one that is off by eight.
    fn suggested(&self, unit: &str) -> Option<String> {
        if self.is_rate() {
            return rate_unit::suggested(unit, suggested(self));
        }
        crate::diagnostic::nearest(unit, suggested(self)).map(|near| format!("did you mean `{near}`?"))
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
    let Some(factor) = dimension.factor(parts.unit) else {
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
        let near = if parts.unit.is_empty() { None } else { dimension.suggested(parts.unit) };
        if dimension.name == BYTES.name && is_bits(parts.unit) {
            help = format!("`{}` are bits, and this counts bytes: {help}", parts.unit);
        } else if let Some(near) = near {
            help = format!("{near} {help}");
        }
        let span = if parts.unit.is_empty() { parts.whole } else { parts.unit_span };
        return Err(UnitError { message, span, label, help });
    };
    let value = parts.number * factor;
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

/// A span of time, at most 24 hours.
///
/// # Errors
/// No number, a negative one, no unit or an unknown one, out of range.
pub fn duration(text: &str) -> Result<Span, UnitError> {
    Ok(Span::from_nanos(parse(text, &TIME)?.round() as u64))
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

/// The unit of a rate or a time that may be meant, as a question.
pub fn suggested_rate_or_time(unit: &str) -> Option<String> {
    if rate_unit::counts(unit).is_some() {
        return rate_unit::suggested(unit, suggested(&RATE));
    }
    let all = suggested(&RATE).chain(suggested(&TIME));
    crate::diagnostic::nearest(unit, all).map(|near| format!("did you mean `{near}`?"))
}

/// `kb`, `Mbit`: a number of bits, not of bytes.
fn is_bits(unit: &str) -> bool {
    rate_unit::counts(unit) == Some(rate_unit::Counts::Bits)
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
    TIME.factor(unit).is_some()
}

/// Whether this is a unit of a rate, or one that means one of several.
pub fn is_rate(unit: &str) -> bool {
    rate_unit::is_one(unit)
}

/// Whether this is a unit of size.
pub fn is_size(unit: &str) -> bool {
    BYTES.factor(unit).is_some()
}

/// Whether this is a unit of probability.
pub fn is_probability(unit: &str) -> bool {
    PROBABILITY.factor(unit).is_some()
}

/// The unit of a quantity: what follows its number.
pub fn unit_of(text: &str) -> &str {
    let rest = text.trim().trim_start_matches(|c: char| c.is_ascii_digit() || "+-._ ".contains(c));
    // Of `1e3 ms` the exponent is the number's.
    let exponent = rest.strip_prefix(['e', 'E']).map(|rest| rest.trim_start_matches(['+', '-']));
    match exponent.filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
        Some(rest) => rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start(),
        None => rest,
    }
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
pub fn duration_with_spread(text: &str) -> Result<(Span, Option<Span>), UnitError> {
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
pub fn write_duration(span: Span) -> String {
    if span.is_zero() {
        return "0 ms".into();
    }
    write(span.as_nanos(), &[(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")])
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
mod tests;
