//! The JSON Schema of scenario files says what the reader says: every scenario in the repository passes it,
//! and of a list of bad files it refuses all that a schema can know of.

use std::path::Path;

use regex_lite::Regex;
use ropewalk_algorithms::Registries;
use ropewalk_lab::scenario;
use ropewalk_settings::diagnostic::Source;
use serde_json::Value;

/// Whether a value fits; of JSON Schema, the keywords that ours has. Others make it fail.
fn fits(schema: &Value, whole: &Value, value: &Value) -> bool {
    let Some(schema) = schema.as_object() else { return schema == &Value::Bool(true) };
    schema.iter().all(|(keyword, wanted)| match keyword.as_str() {
        "$schema" | "$defs" | "title" | "description" | "examples" => true,
        "$ref" => {
            let name = wanted.as_str().unwrap().strip_prefix("#/$defs/").unwrap();
            fits(&whole["$defs"][name], whole, value)
        }
        "type" => match wanted.as_str().unwrap() {
            "string" => value.is_string(),
            "boolean" => value.is_boolean(),
            "integer" => value.is_u64() || value.is_i64(),
            "number" => value.is_number(),
            "array" => value.is_array(),
            "object" => value.is_object(),
            other => panic!("type {other}"),
        },
        "const" => value == wanted,
        "enum" => wanted.as_array().unwrap().contains(value),
        "anyOf" => wanted.as_array().unwrap().iter().any(|one| fits(one, whole, value)),
        "pattern" => {
            value.as_str().is_none_or(|text| Regex::new(wanted.as_str().unwrap()).unwrap().is_match(text))
        }
        "minLength" => {
            value.as_str().is_none_or(|text| text.chars().count() >= wanted.as_u64().unwrap() as usize)
        }
        "maxLength" => {
            value.as_str().is_none_or(|text| text.chars().count() <= wanted.as_u64().unwrap() as usize)
        }
        "minimum" => value.as_f64().is_none_or(|number| number >= wanted.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|number| number <= wanted.as_f64().unwrap()),
        "minItems" => value.as_array().is_none_or(|items| items.len() >= wanted.as_u64().unwrap() as usize),
        "maxItems" => value.as_array().is_none_or(|items| items.len() <= wanted.as_u64().unwrap() as usize),
        "items" => value.as_array().is_none_or(|items| items.iter().all(|item| fits(wanted, whole, item))),
        "required" => value.as_object().is_none_or(|object| {
            wanted.as_array().unwrap().iter().all(|key| object.contains_key(key.as_str().unwrap()))
        }),
        "properties" => value.as_object().is_none_or(|object| {
            object.iter().all(|(key, of)| wanted.get(key).is_none_or(|schema| fits(schema, whole, of)))
        }),
        "additionalProperties" => value
            .as_object()
            .is_none_or(|object| object.keys().all(|key| schema["properties"].get(key).is_some())),
        other => panic!("the keyword {other}"),
    })
}

fn accepted(text: &str) -> (bool, bool) {
    let schema = scenario::schema();
    let by_reader =
        scenario::parse(&Source::new("s.toml", text), "s", Path::new("."), &Registries::builtin());
    let table: toml::Table = toml::from_str(text).unwrap();
    let by_schema = fits(&schema, &schema, &serde_json::to_value(table).unwrap());
    (by_reader.is_ok(), by_schema)
}

#[test]
fn every_scenario_passes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folders = [
        "crates/lab/scenarios",
        "papers/5g-2019",
        "papers/blest-2016",
        "papers/cfs-2019",
        "papers/kim-choi",
        "papers/yang-2013",
    ];
    let schema = scenario::schema();
    let mut seen = 0;
    for folder in folders {
        for entry in std::fs::read_dir(root.join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let text = std::fs::read_to_string(&path).unwrap();
            let Ok(table) = toml::from_str::<toml::Table>(&text) else { continue };
            if table.contains_key("path") {
                assert!(fits(&schema, &schema, &serde_json::to_value(table).unwrap()), "{}", path.display());
                seen += 1;
            }
        }
    }
    assert!(seen >= 25, "{seen}");
}

const PATH: &str = "[[path]]\nname = 'a'\nrate = '10 Mbit/s'\nrtt = '20 ms'\n";

#[test]
fn whatever_the_reader_takes_passes() {
    for more in [
        "loss = 0",
        "loss = '0'",
        "loss = 'none'",
        "loss = '100 %'",
        "loss = '.5%'",
        "loss = '1e-3 %'",
        "loss = ' 12.25 percent '",
        "loss = '1 % in bursts of 5'",
        "loss = '1 % in bursts of 2.5 packets'",
        "queue = 'codel'",
        "queue = '64 KiB'",
        "queue = '200ms'",
        "queue = '1 packet'",
        "queue = { kind = 'drop-tail', limit = '10 p', ecn-threshold = '5 packets' }",
        "overhead = '38 B'",
        "overhead = 0",
        "mtu = '576 B'",
        "duplicate = '0.1 %'",
        "changes = [{ at = '1 min', rate = '2Mbps' }]",
        "up = { rate = '1_000 kbit/s', delay = '10 ms ± 1 ms' }",
        "changes = [{ at = '15 s', every = '15 s', link = 'down', for = '100 ms' }]",
        "changes = [{ at = '1 s', every = '4 s', rate = '2 Mbit/s' }, { at = '3 s', every = '4 s', rate = \
         '9 Mbit/s' }]",
        "metered = true",
        "price = '2 EUR/GB'",
        "price = '$0.50 per GB'",
    ] {
        assert_eq!(accepted(&format!("{PATH}{more}\n")), (true, true), "{more}");
    }
    for more in [
        "rate = 'unlimited'\nrtt = '250 µs'",
        "rate = '2.5 MB/s'\nrtt = '20 ms +/- 5 msec'",
        "rate = '1e3 kbps'\ndelay = 0",
        "rate = '40mbit'\nrtt = '20 MS'\nmtu = '1.4 KB'\nloss = '1 Percent'",
        "rate = '16/1 MByte/s'\nrtt = '20 ms'\nup = { rate = '5 MBps' }",
        "rate = '16/1 Mbit/s'\nrtt = '20 ms'",
        "rate = '16 / 0.5 Mbit/s'\nrtt = '20 ms'\nup = { queue = '20 packets' }",
        "preset = 'starlink'",
        "preset = 'dsl'\nrtt = '20 ms'\nup = { rate = '2 Mbit/s' }",
        "rate = '10 Mbit/s'\nrtt = '20 ms +-2 ms'\njitter-shape = 'normal'",
        "rate = '10 Mbit/s'\nrtt = '20 ms'\n[[background]]\nkind = 'udp-on-off'\npath = 'a'\nrate = '1 \
         Mbit/s'\n\
         on = '100 ms'\non-shape = 'exponential'\noff = '1 s'\noff-shape = 'pareto'",
    ] {
        assert_eq!(accepted(&format!("[[path]]\nname = 'a'\n{more}\n")), (true, true), "{more}");
    }
}

#[test]
fn whatever_the_schema_can_refuse_it_refuses() {
    for text in include_str!("bad-scenarios.txt").split("---\n").chain([""]) {
        assert_eq!(accepted(text), (false, false), "{text}");
    }
}
