//! A varied parameter and its values: a list, or a range, which a grid divides into steps and a Latin
//! hypercube samples. The ends of a range are plain numbers or quantities with units. Values between them are
//! rounded to five significant digits, so that `0 %` to `3 %` in four steps gives 1 % and not 0.9999999 %.

use ropewalk_engine::Span;
use ropewalk_settings::units;

/// A value that a parameter takes.
#[derive(Clone, PartialEq, Debug)]
pub struct Level {
    /// The value for the scenario.
    pub value: toml::Value,
    /// As text.
    pub shown: String,
    /// In the axis's unit, if all of the axis's values have one.
    pub number: Option<f64>,
}

/// The dimension of a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dimension {
    /// A plain number.
    Number,
    /// A plain whole number.
    Whole,
    /// Nanoseconds.
    Time,
    /// Bits per second.
    Rate,
    /// Bytes.
    Bytes,
    /// Packets.
    Packets,
    /// 0 to 1.
    Probability,
}

const QUANTITIES: [Dimension; 5] =
    [Dimension::Time, Dimension::Rate, Dimension::Bytes, Dimension::Packets, Dimension::Probability];

impl Dimension {
    fn read(self, text: &str) -> Option<f64> {
        match self {
            Dimension::Number | Dimension::Whole => None,
            Dimension::Time => units::duration(text).ok().map(|ns| ns.as_nanos() as f64),
            Dimension::Rate => units::rate(text).ok().map(|rate| rate as f64),
            Dimension::Bytes => units::bytes(text).ok().map(|bytes| bytes as f64),
            Dimension::Packets => units::packets(text).ok().map(f64::from),
            Dimension::Probability => units::probability(text).ok(),
        }
    }

    fn write(self, value: f64) -> toml::Value {
        let text = match self {
            Dimension::Number => return toml::Value::Float(value),
            Dimension::Whole => return toml::Value::Integer(value as i64),
            Dimension::Time => units::write_duration(Span::from_nanos(value as u64)),
            Dimension::Rate => units::write_rate(value as u64),
            Dimension::Bytes => units::write_bytes(value as u64),
            Dimension::Packets => units::write_packets(value as u32),
            Dimension::Probability => units::write_probability(value),
        };
        toml::Value::String(text)
    }

    fn round(self, value: f64) -> f64 {
        let short = format!("{value:.4e}").parse().unwrap_or(value);
        match self {
            Dimension::Number | Dimension::Probability => short,
            _ => f64::round(short),
        }
    }

    /// The unit of [`Level::number`]: none for plain numbers.
    pub fn unit(self) -> Option<&'static str> {
        match self {
            Dimension::Number | Dimension::Whole => None,
            Dimension::Time => Some("s"),
            Dimension::Rate => Some("bit/s"),
            Dimension::Bytes => Some("B"),
            Dimension::Packets => Some("packets"),
            Dimension::Probability => Some("1"),
        }
    }

    fn in_unit(self, value: f64) -> f64 {
        if self == Dimension::Time { value / 1e9 } else { value }
    }
}

/// The dimension that all of these values have, and their numbers in it.
pub fn common(values: &[toml::Value]) -> Option<(Dimension, Vec<f64>)> {
    let whole: Option<Vec<f64>> = values.iter().map(|v| v.as_integer().map(|i| i as f64)).collect();
    if let Some(numbers) = whole {
        return Some((Dimension::Whole, numbers));
    }
    let plain = |value: &toml::Value| value.as_float().or_else(|| value.as_integer().map(|i| i as f64));
    let numbers: Option<Vec<f64>> = values.iter().map(plain).collect();
    if let Some(numbers) = numbers {
        return Some((Dimension::Number, numbers));
    }
    QUANTITIES.into_iter().find_map(|dimension| {
        let numbers: Option<Vec<f64>> =
            values.iter().map(|value| value.as_str().and_then(|text| dimension.read(text))).collect();
        numbers.map(|numbers| (dimension, numbers))
    })
}

/// As text, without quotes.
pub fn show(value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A range of values.
#[derive(Clone, Debug)]
pub struct Range {
    /// The dimension.
    pub dimension: Dimension,
    /// The start, in the dimension's unit.
    pub from: f64,
    /// The end.
    pub to: f64,
    /// Whether steps are equal in ratio instead of difference.
    pub log: bool,
}

impl Range {
    /// The value at `part` of the range, 0 to 1.
    fn at(&self, part: f64) -> f64 {
        let value = if self.log {
            self.from * libm::pow(self.to / self.from, part)
        } else {
            self.from + (self.to - self.from) * part
        };
        self.dimension.round(value.clamp(self.from.min(self.to), self.from.max(self.to)))
    }
}

/// The values of an axis.
#[derive(Clone, Debug)]
pub enum Values {
    /// A list.
    Listed(Vec<Level>),
    /// A range.
    Range(Range),
}

/// One varied parameter, or several that are varied together.
#[derive(Clone, Debug)]
pub struct Axis {
    /// The parameter's name, the first one's if there are several.
    pub name: String,
    /// The targets to set.
    pub targets: Vec<super::target::Target>,
    /// Its values.
    pub values: Values,
    /// The dimension that all of them share.
    pub dimension: Option<Dimension>,
    /// Text around each value, `{}` standing for it.
    pub template: Option<String>,
}

impl Axis {
    /// The values, unless it is a range.
    pub fn levels(&self) -> Option<&[Level]> {
        match &self.values {
            Values::Listed(levels) => Some(levels),
            Values::Range(_) => None,
        }
    }

    /// The number of values, unless it is a range.
    pub fn count(&self) -> Option<usize> {
        match &self.values {
            Values::Listed(levels) => Some(levels.len()),
            Values::Range(_) => None,
        }
    }

    /// The value at `part` of the range, from 0 to less than 1.
    pub fn at(&self, part: f64) -> Level {
        match &self.values {
            Values::Listed(levels) => {
                let index = (part * levels.len() as f64) as usize;
                levels[index.min(levels.len() - 1)].clone()
            }
            Values::Range(range) => level(range.dimension, range.at(part), self.template.as_deref()),
        }
    }
}

/// The level with this number.
fn level(dimension: Dimension, number: f64, template: Option<&str>) -> Level {
    let value = dimension.write(number);
    let value = match template {
        Some(template) => toml::Value::String(template.replace("{}", &show(&value))),
        None => value,
    };
    Level { shown: show(&value), value, number: Some(dimension.in_unit(number)) }
}

/// A range cut into equal steps, both ends included.
pub fn steps(range: &Range, steps: usize, template: Option<&str>) -> Vec<Level> {
    let last = (steps - 1).max(1) as f64;
    (0..steps).map(|step| level(range.dimension, range.at(step as f64 / last), template)).collect()
}

/// Given values.
pub fn listed(values: Vec<toml::Value>, template: Option<&str>) -> (Option<Dimension>, Vec<Level>) {
    let common = common(&values);
    let dimension = common.as_ref().map(|(dimension, _)| *dimension);
    let numbers = common.map(|(dimension, numbers)| {
        numbers.into_iter().map(|number| dimension.in_unit(number)).collect::<Vec<_>>()
    });
    let levels = values.into_iter().enumerate().map(|(index, value)| {
        let value = match template {
            Some(template) => toml::Value::String(template.replace("{}", &show(&value))),
            None => value,
        };
        let number = numbers.as_ref().map(|numbers| numbers[index]);
        Level { shown: show(&value), value, number }
    });
    (dimension, levels.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> toml::Value {
        toml::Value::String(text.into())
    }

    fn shown(levels: &[Level]) -> Vec<&str> {
        levels.iter().map(|level| level.shown.as_str()).collect()
    }

    #[test]
    fn steps_are_round_numbers_with_units() {
        let (dimension, ends) = common(&[text("0 %"), text("3 %")]).unwrap();
        let range = Range { dimension, from: ends[0], to: ends[1], log: false };
        assert_eq!(shown(&steps(&range, 4, None)), ["0 %", "1 %", "2 %", "3 %"]);
        let (dimension, ends) = common(&[text("10 ms"), text("1 s")]).unwrap();
        let range = Range { dimension, from: ends[0], to: ends[1], log: true };
        let levels = steps(&range, 3, Some("{} +-5 ms"));
        assert_eq!(shown(&levels), ["10 ms +-5 ms", "100 ms +-5 ms", "1 s +-5 ms"]);
        assert_eq!(levels[1].number, Some(0.1));
    }

    #[test]
    fn a_list_has_numbers_only_if_all_its_values_share_a_dimension() {
        let (dimension, levels) = listed(vec![text("64 KiB"), text("1 MiB")], None);
        assert_eq!(dimension, Some(Dimension::Bytes));
        assert_eq!(levels[1].number, Some(1_048_576.0));
        let (dimension, levels) = listed(vec![text("64 KiB"), text("100 packets")], None);
        assert_eq!((dimension, levels[0].number), (None, None));
        let (dimension, _) = listed(vec![toml::Value::Integer(1), toml::Value::Float(0.5)], None);
        assert_eq!(dimension, Some(Dimension::Number));
    }
}
