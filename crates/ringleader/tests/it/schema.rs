//! Whether a value fits one of our schemas. Knows the keywords that the types of ours make and refuses every other one: a
//! whole validator was a minute of each build, for five schemas.

use regex::Regex;
use serde_json::Value;

/// A schema.
pub(crate) struct Schema(Value);

impl Schema {
    pub(crate) fn new(text: &str) -> Self {
        Self(serde_json::from_str(text).unwrap())
    }

    /// What does not fit, each with its place. Empty if all does.
    pub(crate) fn misfits(&self, value: &Value) -> Vec<String> {
        let mut out = Vec::new();
        self.check(&self.0, value, "", &mut out);
        out
    }

    pub(crate) fn fits(&self, value: &Value) -> bool {
        self.misfits(value).is_empty()
    }

    fn check(&self, schema: &Value, value: &Value, place: &str, out: &mut Vec<String>) {
        for (keyword, want) in schema.as_object().unwrap() {
            let mut fails = |does_fit: bool| {
                if !does_fit {
                    out.push(format!("{place}: {keyword} {want}: {value}"));
                }
            };
            match keyword.as_str() {
                // They say nothing of what fits. The formats are those of numbers.
                "$schema" | "$defs" | "title" | "description" | "format" => {}
                "type" => fails(match want {
                    Value::Array(names) => names.iter().any(|name| is_of(name, value)),
                    name => is_of(name, value),
                }),
                "const" => fails(want == value),
                "enum" => fails(want.as_array().unwrap().contains(value)),
                "minimum" => fails(value.as_f64().is_none_or(|number| number >= want.as_f64().unwrap())),
                "pattern" => {
                    let pattern = Regex::new(want.as_str().unwrap()).unwrap();
                    fails(value.as_str().is_none_or(|text| pattern.is_match(text)));
                }
                "minItems" => {
                    fails(value.as_array().is_none_or(|all| all.len() as u64 >= want.as_u64().unwrap()));
                }
                "maxItems" => {
                    fails(value.as_array().is_none_or(|all| all.len() as u64 <= want.as_u64().unwrap()));
                }
                "required" => {
                    let has = |name: &Value| value.get(name.as_str().unwrap()).is_some();
                    fails(!value.is_object() || want.as_array().unwrap().iter().all(has));
                }
                "anyOf" => fails(self.n_fitting(want, value) > 0),
                "oneOf" => fails(self.n_fitting(want, value) == 1),
                "$ref" => {
                    let path = want.as_str().and_then(|path| path.strip_prefix('#')).unwrap();
                    self.check(self.0.pointer(path).unwrap(), value, place, out);
                }
                "properties" => {
                    for (name, schema) in want.as_object().unwrap() {
                        if let Some(value) = value.get(name) {
                            self.check(schema, value, &format!("{place}/{name}"), out);
                        }
                    }
                }
                "additionalProperties" => {
                    let named = schema.get("properties").and_then(Value::as_object);
                    for (name, value) in value.as_object().into_iter().flatten() {
                        if !named.is_some_and(|named| named.contains_key(name)) {
                            self.check(want, value, &format!("{place}/{name}"), out);
                        }
                    }
                }
                "items" => {
                    for (at, value) in value.as_array().into_iter().flatten().enumerate() {
                        self.check(want, value, &format!("{place}/{at}"), out);
                    }
                }
                other => panic!("a schema says `{other}`, which is not known here"),
            }
        }
    }

    fn n_fitting(&self, schemas: &Value, value: &Value) -> usize {
        let fits = |schema: &&Value| {
            let mut misfits = Vec::new();
            self.check(schema, value, "", &mut misfits);
            misfits.is_empty()
        };
        schemas.as_array().unwrap().iter().filter(fits).count()
    }
}

fn is_of(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("no type is called {other}"),
    }
}

#[test]
fn each_keyword_refuses_something() {
    #[track_caller]
    fn check(schema: &str, good: &str, bad: &str) {
        let of = |text: &str| Schema::new(schema).misfits(&serde_json::from_str(text).unwrap());
        assert_eq!(of(good), Vec::<String>::new(), "{schema} {good}");
        assert_eq!(of(bad).len(), 1, "{schema} {bad}");
    }
    check(r#"{"type": "integer", "format": "uint32"}"#, "1", "1.5");
    check(r#"{"type": ["string", "null"]}"#, "null", "1");
    check(r#"{"const": "a"}"#, r#""a""#, r#""b""#);
    check(r#"{"enum": ["a", null]}"#, "null", r#""b""#);
    check(r#"{"minimum": 1}"#, "1", "0");
    check(r#"{"pattern": "^a+$"}"#, r#""aa""#, r#""ab""#);
    check(r#"{"minItems": 1}"#, "[0]", "[]");
    check(r#"{"maxItems": 1}"#, "[0]", "[0, 1]");
    check(r#"{"required": ["a"]}"#, r#"{"a": null}"#, r#"{"b": 1}"#);
    check(r#"{"properties": {"a": {"type": "boolean"}}}"#, r#"{"a": true}"#, r#"{"a": 1}"#);
    check(r#"{"items": {"type": "number"}}"#, "[1, 2.5]", r#"[1, "2"]"#);
    check(r#"{"anyOf": [{"type": "null"}, {"minimum": 3}]}"#, "3", "2");
    check(r#"{"oneOf": [{"const": 1}, {"type": "integer"}]}"#, "2", "1");
    check(r##"{"$defs": {"a": {"type": "object"}}, "$ref": "#/$defs/a"}"##, "{}", "[]");
}
