//! `check --fix` asks on a terminal: here one of our own making, with somebody at it.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use crate::cli::{err, ringleader};

/// A node whose /dev/shm holds one stale segment; the real one holds a file of that name, which a fix would remove.
struct Stale {
    root: tempfile::TempDir,
    segment: PathBuf,
}

impl Stale {
    /// None where there is no /dev/shm that can be written to.
    fn new(name: &str) -> Option<Self> {
        let name = format!("nccl-test-of-ringleader-{name}-{}", std::process::id());
        let segment = Path::new("/dev/shm").join(&name);
        File::create_new(&segment).ok()?;
        let root = tempfile::tempdir().unwrap();
        for folder in ["proc", "dev/shm"] {
            std::fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        std::fs::write(root.path().join("proc/uptime"), "1000.00 1000.00\n").unwrap();
        let shown = File::create_new(root.path().join("dev/shm").join(&name)).unwrap();
        shown.set_modified(SystemTime::now() - Duration::from_hours(1)).unwrap();
        Some(Self { root, segment })
    }

    fn args(&self) -> Vec<String> {
        let root = self.root.path().to_str().unwrap();
        let words = ["check", "--only", "shm-stale", "--fail-on", "never", "--fix", "--unstable-root", root];
        words.map(str::to_owned).to_vec()
    }
}

impl Drop for Stale {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.segment);
    }
}

/// Runs it on a terminal at which `answer` is typed to the first question; what was on the screen.
fn on_a_terminal(args: &[String], answer: &str) -> String {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&master).unwrap();
    unlockpt(&master).unwrap();
    let name = ptsname(&master, Vec::new()).unwrap().into_string().unwrap();
    let terminal = || File::options().read(true).write(true).open(&name).unwrap();
    let mut child =
        ringleader().args(args).stdin(terminal()).stdout(terminal()).stderr(terminal()).spawn().unwrap();
    let mut master = File::from(master);
    let (mut screen, mut buffer, mut is_answered) = (String::new(), [0; 4096], false);
    // The read fails when the last one who has the terminal open is gone.
    while let Ok(n @ 1..) = master.read(&mut buffer) {
        screen.push_str(&String::from_utf8_lossy(&buffer[..n]));
        if !is_answered && screen.contains("run it? [y/N]") {
            is_answered = true;
            master.write_all(answer.as_bytes()).unwrap();
        }
    }
    assert!(child.wait().unwrap().success(), "{screen}");
    assert!(is_answered, "{screen}");
    screen
}

#[test]
fn a_fix_runs_if_the_answer_is_yes_and_not_otherwise() {
    let Some(stale) = Stale::new("asked") else { return };
    for answer in ["n\n", "\n", "yes please\n"] {
        let screen = on_a_terminal(&stale.args(), answer);
        assert!(screen.contains(&format!("rm -- {}", stale.segment.display())), "{screen}");
        assert!(stale.segment.exists() && !screen.contains("done"), "{answer:?}: {screen}");
    }
    let screen = on_a_terminal(&stale.args(), "y\n");
    assert!(!stale.segment.exists() && screen.contains("done"), "{screen}");
    // What cannot be done is said, and is no failure of the check.
    let screen = on_a_terminal(&stale.args(), "y\n");
    assert!(screen.contains("it failed: exit status: 1"), "{screen}");
}

#[test]
fn without_a_terminal_or_from_a_record_nothing_is_run() {
    let Some(stale) = Stale::new("not-asked") else { return };
    let output = ringleader().args(stale.args()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("no terminal to ask on"), "{}", err(&output));
    let record = stale.root.path().join("node.json");
    let mut command = ringleader();
    command.args(["check", "--only", "shm-stale", "--format", "node-json", "--unstable-root"]);
    let node = command.arg(stale.root.path()).output().unwrap();
    std::fs::write(&record, node.stdout).unwrap();
    // The record may be of another node, or of last week.
    let output = ringleader().args(["check", "--fix", "--from"]).arg(&record).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("--fix needs the node itself"), "{}", err(&output));
    assert!(stale.segment.exists());
}
