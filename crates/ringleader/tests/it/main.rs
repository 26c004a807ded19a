//! Tests of the whole: the program as users meet it, its report, and the rules of the repository.
//!
//! Small tests are beside their module, laws over random jobs in the crates that they are about (`rules::laws`: order of
//! evidence, names of ranks, shift of clocks, healthy additions). Here `truth` asserts what each recorded case says of itself and
//! keeps the table of rules and cases; `variants` and `forms` alter cases; `tidy` and `modules` check the repository.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod blamed;
mod bundles;
mod cases;
mod cli;
mod collect_nodes;
#[cfg(unix)]
mod deploy;
mod explain;
#[cfg(target_os = "linux")]
mod fix;
mod fleet;
mod forms;
mod given;
mod hand_made;
mod hostile;
mod lint;
mod live;
mod machine_faults;
#[cfg(feature = "mcp")]
mod mcp;
mod modules;
mod readme;
mod recorded;
mod report;
#[cfg(target_os = "linux")]
mod run;
mod run_nodes;
mod run_sites;
mod run_worlds;
mod schema;
mod settings;
mod small;
mod stub;
mod tidy;
mod trace;
mod truth;
mod variants;
mod watch;
mod whose;
mod words;
mod zoo;

use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringleader::Diagnosis;

/// The root of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// A recorded case and what the program makes of it.
struct Judged {
    name: String,
    folder: PathBuf,
    diagnosis: Diagnosis,
}

/// The action resets GPUs, or takes a node down. What waits for that, or asks about it, does not.
fn restarts_a_machine(action: &str) -> bool {
    let action = action.to_lowercase();
    let does =
        ["reboot", "power-cycle", "power cycle", "reset the gpu", "reset all", "reset its", "reset it "];
    let waits = ["until", "after the", "waits for a reset", "check whether", "its reboot"];
    does.iter().any(|word| action.contains(word)) && !waits.iter().any(|word| action.contains(word))
}

/// All recorded cases, by name. They are read and judged once for all tests.
fn judged() -> &'static [Judged] {
    static JUDGED: LazyLock<Vec<Judged>> = LazyLock::new(|| {
        let folders: Vec<PathBuf> = std::fs::read_dir(root().join("cases"))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .filter(|folder| folder.join("evidence").is_dir())
            .collect();
        // Threads of their own: a worker of the pool that reads the files of one case would begin other cases while it waits,
        // one on top of the other, until its stack is full.
        let next = AtomicUsize::new(0);
        let judge = || {
            let mine = std::iter::from_fn(|| folders.get(next.fetch_add(1, Ordering::Relaxed)));
            mine.map(|folder| Judged {
                name: folder.file_name().unwrap().to_str().unwrap().to_owned(),
                diagnosis: ringleader::diagnose(&[folder.join("evidence")], false).unwrap(),
                folder: folder.clone(),
            })
            .collect::<Vec<Judged>>()
        };
        let n_threads = std::thread::available_parallelism().map_or(2, usize::from);
        let mut judged: Vec<Judged> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..n_threads).map(|_| scope.spawn(judge)).collect();
            threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
        });
        judged.sort_by(|a, b| a.name.cmp(&b.name));
        assert!(judged.len() > 40, "the recorded cases are gone");
        judged
    });
    &JUDGED
}
