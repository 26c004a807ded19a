//! The JSON Schemas of what `check` prints, as committed in `docs/`: generated from the types that print it.

use ringleader_check::NodeReport;
use ringleader_check::fleet::{FleetReport, SilentNode};

/// Of [`NodeReport`], `ringleader.check.v1`.
pub fn check() -> String {
    named(schemars::schema_for!(NodeReport), ringleader_check::SCHEMA)
}

/// Of [`FleetReport`], `ringleader.fleet.v1`.
pub fn fleet() -> String {
    named(schemars::schema_for!(FleetReport), ringleader_check::fleet::SCHEMA)
}

/// Of [`SilentNode`], `ringleader.silent.v1`.
pub fn silent() -> String {
    let schema = schemars::schema_for!(SilentNode);
    format!("{schema:#}\n", schema = schema.as_value())
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
