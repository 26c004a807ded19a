//! A measurement against an earlier one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bench::{Report, SCHEMA};

/// A row differs beyond this share: repeated runs on one node differ by 1 to 3 % at large sizes.
pub const CHANGED: f64 = 0.05;
/// Small calls scatter more: their time is that of launches.
pub const CHANGED_SMALL: f64 = 0.25;
/// From here on a call is bound by bandwidth.
pub const LARGE_BYTES: u64 = 32 << 20;

/// What differs from the baseline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The collective.
    pub collective: String,
    /// Its size, bytes.
    pub size_bytes: u64,
    /// Time of a call then, µs.
    pub then_us: f64,
    /// Time of a call now, µs.
    pub now_us: f64,
    /// Slower than then.
    pub is_worse: bool,
}

/// Reads a saved report.
///
/// # Errors
/// What is wrong with it.
pub fn parse(text: &str) -> Result<Report, String> {
    let report: Report = serde_json::from_str(text).map_err(|error| error.to_string())?;
    if report.schema == SCHEMA {
        Ok(report)
    } else {
        Err(format!("its format is {}, not {SCHEMA}", report.schema))
    }
}

/// What changed since; and why the two may not be comparable.
pub fn compare(then: &Report, now: &Report) -> (Vec<Change>, Vec<String>) {
    let mut notes = Vec::new();
    let mut differs = |what: &str, a: &str, b: &str| {
        if a != b {
            notes.push(format!("the baseline has another {what}: {a}, now {b}"));
        }
    };
    differs("number of ranks", &then.n_ranks.to_string(), &now.n_ranks.to_string());
    differs("number of processes", &then.n_processes.to_string(), &now.n_processes.to_string());
    differs("type of elements", &then.method.dtype, &now.method.dtype);
    differs("number of graph launches", &then.method.graphs.to_string(), &now.method.graphs.to_string());
    differs("NCCL", &then.nccl.0, &now.nccl.0);
    let names = |report: &Report| {
        let mut names: Vec<&str> = report.gpus.iter().map(|gpu| gpu.name.as_str()).collect();
        names.dedup();
        names.join(", ")
    };
    differs("kind of GPU", &names(then), &names(now));
    let mut changes = Vec::new();
    for row in &now.rows {
        let same = |other: &&crate::bench::Row| {
            (&other.collective, &other.op, other.size_bytes) == (&row.collective, &row.op, row.size_bytes)
        };
        let Some(old) = then.rows.iter().find(same) else { continue };
        let (then_us, now_us) = (old.out_of_place.time_us, row.out_of_place.time_us);
        let bound = if row.size_bytes >= LARGE_BYTES { CHANGED } else { CHANGED_SMALL };
        if then_us > 0.0 && (now_us / then_us - 1.0).abs() > bound {
            changes.push(Change {
                collective: row.collective.clone(),
                size_bytes: row.size_bytes,
                then_us,
                now_us,
                is_worse: now_us > then_us,
            });
        }
    }
    (changes, notes)
}
