//! Units of rates: `Mbit/s`, `Mbps`, `Mb/s`, `Mbits/sec`, `mbit`; of bytes `MB/s`, `MBps`, `MByte/s`,
//! `MiB/s`.
//!
//! Capitals make no difference, except one: `b` is a bit, `B` is a byte. Written all in capitals (`MBPS`) it
//! may be either, and is refused. Prefixes are powers of 1000; with an `i` (`Mi`) of 1024.

/// What a unit counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Counts {
    Bits,
    Bytes,
    /// `MBPS`.
    Either,
}

/// The units that [`factor`] takes, and those that it refuses because they may mean two things.
pub(super) const PATTERN: &str = concat!(
    "([kKmMgG][iI]?)?",
    "([bB][iI][tT][sS]?(/([sS]|[sS][eE][cC]|[sS][eE][cC][oO][nN][dD])|[pP][sS])?",
    "|([bB]|[bB][yY][tT][eE][sS]?)(/([sS]|[sS][eE][cC]|[sS][eE][cC][oO][nN][dD])|[pP][sS]))"
);

/// Takes a unit apart: the factor of its prefix, what it counts, whether it says that it is per second.
fn parts(unit: &str) -> Option<(f64, Counts, bool)> {
    let lower = unit.to_ascii_lowercase();
    let (of, per_second) = ["/second", "/sec", "/s", "ps"]
        .iter()
        .find_map(|end| Some((lower.strip_suffix(end)?, true)))
        .unwrap_or((lower.as_str(), false));
    let bits = ["bits", "bit"].iter().find_map(|word| of.strip_suffix(word));
    let bytes = ["bytes", "byte"].iter().find_map(|word| of.strip_suffix(word));
    let (prefix, counts) = match (bits, bytes) {
        (Some(prefix), _) => (prefix, Counts::Bits),
        (_, Some(prefix)) => (prefix, Counts::Bytes),
        _ => {
            let prefix = of.strip_suffix('b')?;
            let letter = unit.as_bytes()[prefix.len()];
            let all_capitals = per_second && !unit[prefix.len()..].contains(|c: char| c.is_ascii_lowercase());
            let counts = match letter {
                b'b' => Counts::Bits,
                _ if all_capitals => Counts::Either,
                _ => Counts::Bytes,
            };
            (prefix, counts)
        }
    };
    let factor = match prefix {
        "" => 1.0,
        "k" => 1e3,
        "m" => 1e6,
        "g" => 1e9,
        "ki" => 1024.0,
        "mi" => 1_048_576.0,
        "gi" => 1_073_741_824.0,
        _ => return None,
    };
    Some((factor, counts, per_second))
}

/// Bits per second in one of this unit. Without `/s`, bits are meant to be per second, as `tc` writes them;
/// bytes are a size.
pub(super) fn factor(unit: &str) -> Option<f64> {
    // A lone letter is not enough.
    match parts(unit)? {
        (factor, Counts::Bits, true) => Some(factor),
        (factor, Counts::Bits, false) if unit.len() > 2 => Some(factor),
        (factor, Counts::Bytes, true) => Some(8.0 * factor),
        _ => None,
    }
}

/// Whether it is one, or may be one of two.
pub(super) fn is_one(unit: &str) -> bool {
    factor(unit).is_some() || matches!(parts(unit), Some((_, Counts::Either, _)))
}

/// Whether bits or bytes are meant, as far as that is known.
pub(super) fn counts(unit: &str) -> Option<Counts> {
    parts(unit).map(|(_, counts, _)| counts)
}

/// The unit that may be meant, as a question: none that counts bytes for bits, or bits for bytes.
pub(super) fn suggested<'a>(unit: &str, known: impl Iterator<Item = &'a str>) -> Option<String> {
    let lower = unit.to_ascii_lowercase();
    let meant = counts(unit).or_else(|| {
        let bytes =
            lower.contains("by") || lower.contains("oct") || unit.contains('B') && !lower.contains("bi");
        Some(if bytes { Counts::Bytes } else { Counts::Bits })
    })?;
    if meant == Counts::Either {
        let prefix = unit[..unit.len() - 3].trim_end_matches(['B', '/']).to_ascii_uppercase();
        let prefix = if prefix == "K" { "k" } else { prefix.as_str() };
        return Some(format!("did you mean `{prefix}bit/s` (bits) or `{prefix}B/s` (bytes)?"));
    }
    let same = known.filter(|name| counts(name) == Some(meant));
    crate::diagnostic::nearest(unit, same).map(|near| format!("did you mean `{near}`?"))
}

#[cfg(test)]
mod tests {
    use crate::units::{bytes, rate};

    #[test]
    fn in_any_case_and_never_off_by_eight() {
        for (text, bits) in [
            ("35 MB/s", 280e6),
            ("2.5 Gb/s", 2.5e9),
            ("50 Mb/s", 50e6),
            ("50 mb/s", 50e6),
            ("50 Mbits/s", 50e6),
            ("900 kb/s", 900e3),
            ("900 Kb/s", 900e3),
            ("10mbit", 10e6),
            ("10Mbit", 10e6),
            ("10 MBIT/S", 10e6),
            ("10 mbit/sec", 10e6),
            ("10 Mbits/second", 10e6),
            ("10 kbits", 10e3),
            ("1gbit", 1e9),
            ("10 Mbps", 10e6),
            ("10 mbps", 10e6),
            ("10 MBps", 80e6),
            ("10 KB/s", 80e3),
            ("10 MBytes/sec", 80e6),
            ("10 mbyte/s", 80e6),
            ("1 MiB/s", 8_388_608.0),
            ("1 Mibit/s", 1_048_576.0),
            ("1200 bytes/s", 9600.0),
        ] {
            assert_eq!(rate(text), Ok(bits as u64), "{text}");
        }
        for (text, help) in [
            ("50 MBPS", "did you mean `Mbit/s` (bits) or `MB/s` (bytes)?"),
            ("50 KB/S", "did you mean `kbit/s` (bits) or `kB/s` (bytes)?"),
            ("50 MB", "did you mean `MB/s`?"),
            ("50 Mbyte", "did you mean `MByte/s`?"),
            ("50 MByt/s", "did you mean `MByte/s`?"),
            ("50 Mbi/s", "did you mean `Mbit/s`?"),
            ("50 Mbiit/s", "did you mean `Mbit/s`?"),
        ] {
            let error = rate(text).unwrap_err();
            assert!(error.help.starts_with(help), "{text}: {}", error.help);
        }
        assert!(rate("50 b").is_err() && rate("50 kb").is_err() && rate("50 m").is_err());
        let error = bytes("64 kb").unwrap_err();
        assert!(error.help.starts_with("`kb` are bits, and this counts bytes"), "{}", error.help);
        assert_eq!(
            (bytes("64 Kb").is_err(), bytes("64 KB"), bytes("1 mB")),
            (true, Ok(64_000), Ok(1_000_000))
        );
    }
}
