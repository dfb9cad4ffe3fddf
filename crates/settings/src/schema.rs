//! The JSON Schema of a file, made from the same [`shape`](crate::shape) that the reader checks with.

use serde_json::{Map, Value, json};

use crate::name::LONGEST_NAME;
use crate::shape::{Field, Kind, Shape};
use crate::units::{BYTES, RATE, TIME, write_bytes, write_duration};

/// The schema (draft 2020-12) of a file with this title.
pub fn schema_of(file: &Shape, title: &str) -> Value {
    let mut whole = object(file, None);
    if let Value::Object(map) = &mut whole {
        map.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        map.insert("title".into(), json!(title));
    }
    whole
}

/// The schema of a table. `tag`: the key that has the shape's name.
pub fn object(shape: &Shape, tag: Option<&str>) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    if let Some(tag) = tag {
        properties.insert(tag.into(), json!({ "const": shape.name }));
        required.push(json!(tag));
    }
    for field in shape.fields {
        properties.insert(field.name.into(), value(field));
        if field.required {
            required.push(json!(field.name));
        }
    }
    json!({
        "type": "object",
        "description": shape.summary,
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

fn value(field: &Field) -> Value {
    let mut schema = kind(&field.kind);
    if let Value::Object(map) = &mut schema {
        map.insert("description".into(), json!(field.description()));
    }
    schema
}

/// A text of this pattern, spaces around it; `zero`: or the number 0, which needs no unit.
pub fn quantity(pattern: &str, example: &str, zero: bool) -> Value {
    let text = json!({ "type": "string", "pattern": format!(r"^\s*({pattern})\s*$"), "examples": [example] });
    if zero { any_of(vec![text, json!({ "const": 0 })]) } else { text }
}

/// The pattern of 0 % to 100 %.
pub fn probability() -> String {
    const UNIT: &str = r"\s*(%|[pP][eE][rR] ?[cC][eE][nN][tT])";
    let plain = r"0*(100(\.0*)?|[0-9]{1,2}(\.[0-9_]*)?|\.[0-9_]+)";
    format!(r"(\+?({plain}|[0-9.]+[eE]-[0-9]+){UNIT}|0[0._]*)")
}

/// A value of any of these schemas.
pub fn any_of(options: Vec<Value>) -> Value {
    json!({ "anyOf": options })
}

fn kind(kind: &Kind) -> Value {
    let tagged =
        |shapes: &[Shape]| shapes.iter().map(|shape| object(shape, Some("kind"))).collect::<Vec<_>>();
    match kind {
        Kind::Text | Kind::File | Kind::Address => json!({ "type": "string" }),
        Kind::Socket => json!({ "type": "string", "pattern": ":[0-9]+\\s*$", "examples": ["192.0.2.1:443"] }),
        Kind::Name => json!({ "type": "string", "minLength": 1, "maxLength": LONGEST_NAME }),
        Kind::TimeWithin(least, most) if !least.is_zero() => {
            quantity(&TIME.pattern(true), &write_duration(*most), false)
        }
        Kind::Time | Kind::TimeWithin(..) => quantity(&TIME.pattern(false), "20 ms", true),
        Kind::TimeWithSpread => {
            let time = TIME.pattern(false);
            quantity(&format!(r"{time}(\s*(\+-|\+/-|±)\s*{time})?"), "20 ms +-5 ms", true)
        }
        Kind::Rate => quantity(&format!("{}|unlimited", RATE.pattern(true)), "50 Mbit/s", false),
        Kind::Rates => {
            let rate = RATE.pattern(true);
            quantity(&format!(r"([0-9._]+\s*/\s*)?{rate}|unlimited"), "16/1 Mbit/s", false)
        }
        Kind::Price => quantity(r"[^0-9]*[0-9.]+[^0-9]*(/|per )GB", "2 EUR/GB", false),
        Kind::Bytes(0, most) | Kind::BytesOrNone(most) => {
            quantity(&BYTES.pattern(false), &write_bytes(*most), true)
        }
        Kind::Bytes(_, most) => quantity(&BYTES.pattern(true), &write_bytes(*most), false),
        Kind::Probability => quantity(&probability(), "0.5 %", true),
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Integer(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Number(least, most) => json!({ "type": "number", "minimum": least, "maximum": most }),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Table(shape) => object(shape, None),
        Kind::SomeTables(shape, most) => {
            json!({ "type": "array", "items": object(shape, None), "minItems": 1, "maxItems": most })
        }
        Kind::Tables(shape) => json!({ "type": "array", "items": object(shape, None) }),
        Kind::Tagged(shapes) => any_of(tagged(shapes)),
        Kind::TaggedTables(shapes) => json!({ "type": "array", "items": any_of(tagged(shapes)) }),
        Kind::Own(schema) => schema(),
        Kind::Any => json!(true),
        Kind::Anys => json!({ "type": "array" }),
        Kind::Texts => json!({ "type": "array", "items": { "type": "string" } }),
        Kind::Sizes => {
            let size = quantity(&format!("([0-9]+ x )?{}", BYTES.pattern(true)), "12 x 5 KiB", false);
            json!({ "type": "array", "items": size, "minItems": 1 })
        }
    }
}

#[cfg(test)]
mod tests {
    use ropewalk_time::Span;

    use super::*;
    use crate::diagnostic::Source;
    use crate::shape::key;
    use crate::written::Written;

    const LEAST: Span = Span::from_millis(1);
    const MOST: Span = Span::from_secs(3600);
    const SHAPE: Shape = Shape {
        name: "bounds",
        summary: "Values with bounds",
        fields: &[
            key("time-0", Kind::TimeWithin(Span::ZERO, MOST), "A time"),
            key("time-1", Kind::TimeWithin(LEAST, MOST), "A time"),
            key("bytes-0", Kind::Bytes(0, 1 << 20), "A size"),
            key("bytes-1", Kind::Bytes(1, 1 << 20), "A size"),
            key("none-0", Kind::BytesOrNone(1 << 20), "A size"),
            key("integer-0", Kind::Integer(0, 7), "A number"),
            key("integer-1", Kind::Integer(1, 7), "A number"),
            key("number-0", Kind::Number(0.0, 1.5), "A number"),
            key("number-1", Kind::Number(0.5, 1.5), "A number"),
        ],
    };

    /// Whether the reader takes the number 0.
    fn reads_zero(field: &'static Field) -> bool {
        let mut written = Written::default();
        written.table("[bounds]");
        written.key(&SHAPE, field.name, &[Source::new("value", "0")]);
        let found = written.read(|reader, document, _| {
            let table = reader.table(&SHAPE, document.get("bounds")?)?;
            match field.kind {
                Kind::TimeWithin(..) => reader.time(&table, field.name).map(|_| ()),
                Kind::Bytes(..) | Kind::BytesOrNone(_) => reader.bytes(&table, field.name).map(|_| ()),
                Kind::Integer(..) => reader.integer(&table, field.name).map(|_| ()),
                _ => reader.number(&table, field.name).map(|_| ()),
            }
        });
        found.is_ok()
    }

    /// Whether the JSON Schema accepts the number 0.
    fn offers_zero(schema: &Value) -> bool {
        let minimum = schema.get("minimum").map(|least| least.as_f64() == Some(0.0));
        let options = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
        minimum.unwrap_or_else(|| options.clone().any(|one| one.get("const") == Some(&json!(0))))
    }

    #[test]
    fn the_schema_has_the_readers_bounds() {
        for field in SHAPE.fields {
            let schema = value(field);
            assert_eq!(reads_zero(field), field.name.ends_with("-0"), "{}", field.name);
            assert_eq!(offers_zero(&schema), reads_zero(field), "{}: {schema}", field.name);
            let text = schema.to_string();
            let bounds = field.kind.bounds().unwrap();
            let has_bounds = text.contains("maximum") || text.contains(&bounds);
            assert!(has_bounds, "{}: {schema}", field.name);
            // A text may be 0 without a unit only where a number may.
            let has_pattern_of_zero = text.contains("|0[0._]*)");
            assert!(!has_pattern_of_zero || offers_zero(&schema), "{}: {schema}", field.name);
        }
    }
}
