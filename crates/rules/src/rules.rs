//! One rule a file; one line here.

use crate::rule::Rule;

/// All rules, in the order of causes.toml. The order decides nothing: `verdict` does.
pub static ALL: &[&Rule] = &[];
