//! Expert knowledge as tables: compiled in from TOML (`data/`), each row with its source.
//!
//! `build.rs` generates static Rust from them, so the program parses nothing when it runs. It refuses an incomplete row,
//! and `explain` finds a new row at once.
//!
//! Two tables are learnt, not written: [`likeness`] and [`weighing`]. [`wording`] holds the forms in which programs name
//! ranks, GPUs and addresses, as code.

mod blind;
pub mod cause;
pub mod claim;
pub mod collecting;
pub mod collective;
pub mod command;
pub mod conflict;
pub mod cuda_error;
pub mod driver;
pub mod errno;
pub mod event;
pub mod export;
pub mod form;
pub mod interface;
pub mod kept;
pub mod likeness;
pub mod message;
pub mod nccl_result;
pub mod nccl_warn;
pub mod pace;
pub mod place;
pub mod port_counter;
pub mod program;
pub mod progress;
pub mod rate;
pub mod remedy;
pub mod saying;
pub mod sign;
pub mod signal;
pub mod status;
pub mod sxid;
pub mod symptom;
pub mod variable;
pub mod version;
pub mod weighing;
pub mod withheld;
pub mod wording;
pub mod xid;

#[expect(clippy::unreadable_literal, reason = "generated")]
mod tables {
    include!(concat!(env!("OUT_DIR"), "/tables.rs"));
}

#[cfg(test)]
mod machine_tests;
#[cfg(test)]
mod settings_tests;
#[cfg(test)]
mod status_names_tests;
#[cfg(test)]
mod tests;
