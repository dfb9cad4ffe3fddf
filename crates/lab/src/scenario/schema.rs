//! The JSON Schema of scenario files, and of the values that only they have.

use ropewalk_settings::schema::{any_of, object, probability, quantity, schema_of};
use ropewalk_settings::units::{BYTES, PACKETS, TIME};
use serde_json::{Value, json};

use super::shape::{FILE, GENERATOR, LOSS, QUEUES};

/// The schema (draft 2020-12).
pub fn schema() -> Value {
    let mut whole = schema_of(&FILE, "Ropewalk scenario");
    // A queue's table holds limits that look like queues: named once, it needn't be endless.
    let tables = QUEUES.iter().map(|shape| object(shape, Some("kind")));
    let limits = [PACKETS.pattern(true), BYTES.pattern(true), TIME.pattern(true)];
    let text = format!("codel|{}", limits.join("|"));
    let text = quantity(&text, "100 packets", false);
    whole["$defs"] = json!({ "queue": any_of(std::iter::once(text).chain(tables).collect()) });
    whole
}

/// `"100 packets"`, `"64 KiB"`, `"200 ms"`, or a table.
pub(super) fn queue() -> Value {
    json!({ "$ref": "#/$defs/queue" })
}

/// `"0.5 %"`, `"1 % in bursts of 5"`, or a table.
pub(super) fn loss() -> Value {
    let text = format!(r"none|{}(\s+in bursts of\s+[0-9.]+(\s*packets)?)?", probability());
    any_of(vec![quantity(&text, "1 % in bursts of 5", true), object(&LOSS, None)])
}

/// A mahimahi file, or a table that generates one.
pub(super) fn trace() -> Value {
    any_of(vec![json!({ "type": "string", "minLength": 1 }), object(&GENERATOR, None)])
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
