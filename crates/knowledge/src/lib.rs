//! What experts know, as tables: compiled in from TOML, each row with its source.

pub mod cause;
