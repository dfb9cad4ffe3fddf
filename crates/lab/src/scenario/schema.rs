//! The JSON Schema of scenario files, made from the same [`shape`](super::shape) that the reader checks with.

use serde_json::{Map, Value, json};

use super::shape::{FILE, Field, GENERATOR, Kind, LOSS, QUEUES, Shape};

/// The schema (draft 2020-12).
pub fn schema() -> Value {
    let mut whole = object(&FILE, None);
    if let Value::Object(map) = &mut whole {
        map.insert("$schema".into(), json!("https://json-schema.org/draft/2020-12/schema"));
        map.insert("title".into(), json!("Ropewalk scenario"));
        // A queue's table holds limits that look like queues: named once, it needn't be endless.
        let tables = QUEUES.iter().map(|shape| object(shape, Some("kind")));
        let queue: Vec<Value> = std::iter::once(quantity(".", "100 packets")).chain(tables).collect();
        map.insert("$defs".into(), json!({ "queue": any_of(queue) }));
    }
    whole
}

fn object(shape: &Shape, tag: Option<&str>) -> Value {
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
        map.insert("description".into(), json!(field.summary));
    }
    schema
}

fn quantity(pattern: &str, example: &str) -> Value {
    json!({ "type": "string", "pattern": pattern, "examples": [example] })
}

fn any_of(options: Vec<Value>) -> Value {
    json!({ "anyOf": options })
}

fn kind(kind: &Kind) -> Value {
    const NUMBER: &str = r"^\s*[0-9][0-9_.]*\s*";
    let tagged =
        |shapes: &[Shape]| shapes.iter().map(|shape| object(shape, Some("kind"))).collect::<Vec<_>>();
    match kind {
        Kind::Text => json!({ "type": "string" }),
        Kind::Time => quantity(&format!("{NUMBER}(ns|us|µs|ms|s|min|h)\\s*$"), "20 ms"),
        Kind::TimeWithSpread => quantity(&format!("{NUMBER}(ns|us|µs|ms|s|min|h)"), "20 ms +-5 ms"),
        Kind::Rate => quantity(&format!("({NUMBER}[kMGT]?bit/s\\s*$|^unlimited$)"), "50 Mbit/s"),
        Kind::Bytes => quantity(NUMBER, "64 KiB"),
        Kind::Probability => quantity(&format!("{NUMBER}%\\s*$"), "0.5 %"),
        Kind::Queue => json!({ "$ref": "#/$defs/queue" }),
        Kind::Loss => any_of(vec![quantity(".", "1 % in bursts of 5"), object(&LOSS, None)]),
        Kind::Trace => any_of(vec![json!({ "type": "string" }), object(&GENERATOR, None)]),
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Integer(least, most) => json!({ "type": "integer", "minimum": least, "maximum": most }),
        Kind::Number(least, most) => json!({ "type": "number", "minimum": least, "maximum": most }),
        Kind::Choice(words) => json!({ "enum": words }),
        Kind::Table(shape) => object(shape, None),
        Kind::Tables(shape) => json!({ "type": "array", "items": object(shape, None) }),
        Kind::Tagged(shapes) => any_of(tagged(shapes)),
        Kind::TaggedTables(shapes) => json!({ "type": "array", "items": any_of(tagged(shapes)) }),
        Kind::Any => json!(true),
        Kind::Anys => json!({ "type": "array" }),
        Kind::Texts | Kind::Sizes => json!({ "type": "array", "items": { "type": "string" } }),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_schema_names_every_top_level_key() {
        let schema = super::schema();
        for key in ["path", "workload", "background", "experiment", "limit"] {
            assert!(schema["properties"][key].is_object(), "{key}");
        }
        assert_eq!(schema["required"], serde_json::json!(["path"]));
    }
}
