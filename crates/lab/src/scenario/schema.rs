//! The JSON Schema of scenario files.

use ropewalk_settings::schema::{any_of, object, quantity, schema_of};
use ropewalk_settings::units::{BYTES, PACKETS, TIME};
use serde_json::{Value, json};

use super::shape::{FILE, QUEUES};

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
