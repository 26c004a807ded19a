//! The JSON Schemas of the reports, as committed in `docs/`: generated from the types that print them.

use crate::{bench, verify};

/// Of [`bench::Report`].
pub fn bench() -> String {
    named(schemars::schema_for!(bench::Report), bench::SCHEMA)
}

/// Of [`verify::Report`].
pub fn verify() -> String {
    named(schemars::schema_for!(verify::Report), verify::SCHEMA)
}

/// The name of the format is in the types as text, and in the schema as the only text allowed.
fn named(schema: schemars::Schema, name: &str) -> String {
    let mut value = schema.to_value();
    if let Some(property) =
        value.pointer_mut("/properties/schema").and_then(|property| property.as_object_mut())
    {
        property.insert("const".to_owned(), name.into());
    }
    format!("{value:#}\n")
}
