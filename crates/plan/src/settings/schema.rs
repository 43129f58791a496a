//! The JSON schema of the space file, for completion and checks in editors, made from the tables of [`super::format`].

use serde_json::{Map, Value, json};
use toml::de::DeValue;

use super::format::{Content, Key, Kind, Need, SECTIONS, Table, Variant};
use super::lengths::LENGTHS;
use super::parameters::{MOST_VALUES, PARAMETER};
use super::{measure, parameters, slo};

/// The JSON schema (draft 2020-12) of the space file.
///
/// It knows keys, types and bounds; what concerns several keys at once, such as constraints, only [`super::parse`]
/// checks.
pub fn schema() -> Value {
    let mut properties = Map::new();
    for section in SECTIONS {
        let mut content = match section.content {
            Content::Keys(table) => table_schema(table),
            Content::Limits => json!({
                "type": "object",
                "patternProperties": { slo::KEY_PATTERN: { "$ref": "#/$defs/positive_duration" } },
                "additionalProperties": false,
                "minProperties": 1,
            }),
            Content::Parameters => json!({
                "type": "object",
                "propertyNames": { "pattern": parameters::KEY_PATTERN },
                "additionalProperties": { "$ref": "#/$defs/parameter" },
                "minProperties": 1,
            }),
        };
        content["description"] = section.doc.into();
        properties.insert(section.name.to_owned(), content);
    }
    let required: Vec<&str> = SECTIONS.iter().filter(|section| section.required).map(|section| section.name).collect();
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "autotune space file",
        "description": "The whole job of one search: promises, engine, workload, parameters and budget.",
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
        "$defs": {
            "duration": { "type": "string", "pattern": measure::DURATION_PATTERN },
            "positive_duration": { "type": "string", "pattern": measure::POSITIVE_DURATION_PATTERN },
            "lengths": { "anyOf": [{ "type": "integer", "minimum": 1, "maximum": autotune_records::units::MOST_TOKENS }, table_schema(&LENGTHS)] },
            "parameter": table_schema(&PARAMETER),
        },
    })
}

fn table_schema(table: &Table) -> Value {
    let mut properties = Map::new();
    for key in table.keys() {
        // Rows of the same key differ in defaults and needs, which stand with their variants below.
        properties.entry(key.name).or_insert_with(|| {
            let rows = table.keys().filter(|row| row.name == key.name).count();
            let mut property = if rows == 1 { kind_schema(&key.kind) } else { json!({}) };
            property["description"] = key.doc.into();
            if rows == 1 {
                insert_default(&mut property, key);
            }
            property
        });
    }
    let mut schema = json!({ "type": "object", "properties": properties, "additionalProperties": false });
    let common = table.keys().filter(|key| key.variants.is_empty() && matches!(key.need, Need::Required));
    let common: Vec<&str> = common.map(|key| key.name).collect();
    if !common.is_empty() {
        schema["required"] = json!(common);
    }
    let variants: Vec<Value> = variants(table).into_iter().map(|(word, when)| variant(table, word, &when)).collect();
    if !variants.is_empty() {
        schema["allOf"] = json!(variants);
    }
    schema
}

fn variants(table: &Table) -> Vec<(&'static str, Value)> {
    match table.variant {
        Variant::None => Vec::new(),
        Variant::Word(decider) => {
            let when = |word: &str| json!({ "properties": { decider: { "const": word } }, "required": [decider] });
            table.words().iter().map(|word| (*word, when(word))).collect()
        }
        Variant::Presence { key, with, without } => {
            vec![(with, json!({ "required": [key] })), (without, json!({ "not": { "required": [key] } }))]
        }
    }
}

/// What holds for one variant alone: its required keys, its defaults, and the keys of the others, which are forbidden.
fn variant(table: &Table, word: &str, when: &Value) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for name in table.names(None) {
        let rows: Vec<&Key> = table.keys().filter(|key| key.name == name).collect();
        match rows.iter().find(|key| key.applies(Some(word))) {
            None => {
                properties.insert(name.to_owned(), json!(false));
            }
            Some(row) => {
                if !row.variants.is_empty() && matches!(row.need, Need::Required) {
                    required.push(name);
                }
                if rows.len() > 1 {
                    let mut property = kind_schema(&row.kind);
                    insert_default(&mut property, row);
                    properties.insert(name.to_owned(), property);
                }
            }
        }
    }
    let mut then = json!({ "properties": properties });
    if !required.is_empty() {
        then["required"] = json!(required);
    }
    json!({ "if": when, "then": then })
}

fn insert_default(property: &mut Value, key: &Key) {
    if let Need::Default(toml) = key.need
        && let Ok(default) = DeValue::parse(toml)
    {
        property["default"] = json_of(default.get_ref());
    }
}

/// A parsed TOML value as JSON; what JSON cannot say (dates, infinities) as null or text.
fn json_of(value: &DeValue) -> Value {
    match value {
        DeValue::String(text) => json!(text),
        DeValue::Integer(i) => json!(i64::from_str_radix(i.as_str(), i.radix()).ok()),
        DeValue::Float(f) => json!(f.as_str().parse::<f64>().ok()),
        DeValue::Boolean(on) => json!(on),
        DeValue::Datetime(time) => json!(time.to_string()),
        DeValue::Array(elements) => elements.iter().map(|element| json_of(element.get_ref())).collect(),
        DeValue::Table(table) => {
            let pairs = table.iter().map(|(key, value)| (key.get_ref().to_string(), json_of(value.get_ref())));
            Value::Object(pairs.collect())
        }
    }
}

fn kind_schema(kind: &Kind) -> Value {
    match kind {
        Kind::Word(words) => json!({ "enum": words }),
        Kind::Text => json!({ "type": "string", "minLength": 1 }),
        Kind::Texts { at_least } => json!({ "type": "array", "items": { "type": "string" }, "minItems": at_least }),
        Kind::TextTable => json!({ "type": "object", "additionalProperties": { "type": "string" } }),
        Kind::Switch => json!({ "type": "boolean" }),
        Kind::Integer { min, max } => json!({ "type": "integer", "minimum": min, "maximum": max }),
        Kind::Integers { min, max } => json!({
            "type": "array",
            "items": { "type": "integer", "minimum": min, "maximum": max },
            "minItems": 1,
        }),
        Kind::Positive => json!({ "type": "number", "exclusiveMinimum": 0 }),
        Kind::Share { min, max } => json!({ "anyOf": [
            { "type": "string", "pattern": measure::PERCENT_PATTERN },
            { "type": "number", "minimum": min, "maximum": max },
        ] }),
        Kind::Time { zero: true } => json!({ "$ref": "#/$defs/duration" }),
        Kind::Time { zero: false } => json!({ "$ref": "#/$defs/positive_duration" }),
        Kind::Lengths => json!({ "$ref": "#/$defs/lengths" }),
        Kind::Number => json!({ "type": "number" }),
        Kind::Value => json!({ "type": ["number", "string", "boolean"] }),
        Kind::Values => json!({
            "type": "array",
            "items": { "type": ["number", "string", "boolean"] },
            "minItems": 1,
            "maxItems": MOST_VALUES,
            "uniqueItems": true,
        }),
    }
}

#[cfg(test)]
mod tests {
    use toml::de::DeTable;

    use super::*;

    fn json_document(text: &str) -> Value {
        json_of(&DeValue::Table(DeTable::parse(text).unwrap().into_inner()))
    }

    #[test]
    fn the_schema_is_one() {
        assert!(jsonschema::meta::is_valid(&schema()));
    }

    #[test]
    fn what_is_valid_for_the_reader_is_valid_for_the_schema() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        for text in super::super::tests::every_kind() {
            super::super::parse("space.toml", &text).unwrap();
            let errors: Vec<String> = validator.iter_errors(&json_document(&text)).map(|e| e.to_string()).collect();
            assert_eq!(errors, Vec::<String>::new());
        }
    }

    #[test]
    fn the_schema_refuses_what_the_reader_refuses() {
        let validator = jsonschema::validator_for(&schema()).unwrap();
        for (from, to) in [
            ("stall_timeout", "stal_timeout"),
            ("[probe]", "[prob]"),
            ("tpot_p99 = \"60ms\"", "tpot_p99 = 60"),
            ("ramp = \"10s\"", "ramp = \"10 sec\""),
            ("window = \"60s\"", "window = \"0s\""),
            ("shared_prefixes = 4", "turns = 4"),
            ("output_tokens = 256\n", ""),
            ("port = 8011", "port = 70000"),
            ("values = [64, 32, 48]", "values = []"),
            ("{ min = 0.88, max", "{ values = [1], max"),
            ("gpu-memory-utilization", "--gpu-memory-utilization"),
            ("command = [\"vllm\", \"serve\", \"/models/x\"]", "command = []"),
            ("ttft_p99", "tft_p99"),
        ] {
            let broken = super::super::tests::FULL.replacen(from, to, 1);
            assert_ne!(broken, super::super::tests::FULL, "{from} stands in the file");
            assert!(!validator.is_valid(&json_document(&broken)), "{to}");
            assert!(super::super::parse("space.toml", &broken).is_err(), "{to}");
        }
    }
}
