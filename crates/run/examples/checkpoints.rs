//! Lists the checkpoints in a folder: `cargo run -p ringleader-run --example checkpoints -- DIR`.
#![expect(clippy::print_stdout, reason = "an example prints")]

use ringleader_run::checkpoint::{CheckpointOptions, search};

fn main() -> std::io::Result<()> {
    for dir in std::env::args_os().skip(1) {
        let search = search(dir.as_ref(), &CheckpointOptions { hash: true, ..CheckpointOptions::default() })?;
        for found in &search.all {
            println!(
                "{} {} step {:?}: {}",
                found.path.display(),
                found.layout.name(),
                found.step,
                found.soundness.words()
            );
        }
        println!("chosen {:?}; notes {:?}", search.chosen().map(|found| &found.path), search.notes);
    }
    Ok(())
}
