//! Chores of this repository: `cargo xtask gen` renews what is generated.

use std::io::{self, Write as _};
use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    let task = std::env::args().nth(1);
    let done = match task.as_deref() {
        Some("gen") => generate(),
        _ => Err(io::Error::other("usage: cargo xtask gen")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(io::stderr(), "xtask: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Writes every generated file. A test of the face demands that this changes nothing.
fn generate() -> io::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    std::fs::write(root.join("docs/report-v1.schema.json"), ringleader::report::json::schema())
}
