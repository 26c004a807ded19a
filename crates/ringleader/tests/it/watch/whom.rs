//! Whom it follows, and whom it calls dead.

use std::net::TcpStream;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ringleader_ring::{Reader, rings_in};
use serde_json::{Value, json};

use super::{Job, Watcher, count, rank_command};
use crate::cli::ringleader;

/// Ranks that are started by shells, which would outlive the test with them.
struct Shells {
    job: Job,
    folders: Vec<PathBuf>,
}

impl Drop for Shells {
    fn drop(&mut self) {
        let rings = self.folders.iter().flat_map(|folder| rings_in(&folder.join("rings")));
        for pid in rings.filter_map(|ring| Some(Reader::open(&ring).ok()?.state().ok()?.process.pid)) {
            // Fails only if it has ended.
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
        }
    }
}

/// Each rank below a shell of its own, as `srun bash run.sh` starts them.
fn wrapped(size: u32) -> Shells {
    let folder = tempfile::tempdir().unwrap();
    for name in ["rings", "out"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let shell = |rank: u32| {
        let program = rank_command(folder.path(), rank, size, u64::MAX);
        let mut command = Command::new("sh");
        command.args(["-c", "\"$0\" \"$@\"; true"]).arg(program.get_program()).args(program.get_args());
        command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    };
    let ranks = (0..size).map(shell).collect();
    let folders = vec![folder.path().to_owned()];
    Shells { job: Job { folder, ranks }, folders }
}

fn remarks(watching: &Value) -> String {
    watching["cannot_see"].to_string()
}

#[test]
fn a_shell_around_each_rank_makes_neither_more_jobs_nor_more_ranks() {
    let shells = wrapped(3);
    for named in [false, true] {
        let pids = shells.job.pids();
        let arguments = if named { vec!["--pid", &pids, "--for", "60"] } else { vec!["--for", "60"] };
        let mut watcher = shells.job.watch(&arguments);
        while watcher.until("progress")["comms"][0]["ranks_seen"] != 3 {}
        watcher.until("progress");
        let told = |event: &&Value| event["event"] == "watching";
        let ranks: Vec<_> = watcher.seen.iter().filter(told).map(|event| event["ranks"].clone()).collect();
        assert!(ranks.iter().all(|ranks| ranks.as_u64() <= Some(3)), "{ranks:?}");
        let last = watcher.seen.iter().rfind(told).unwrap();
        assert_eq!((&last["ranks"], remarks(last)), (&json!(3), "[]".to_owned()), "named: {named}");
        assert_eq!(count(&watcher.seen, "stall"), 0, "{:#?}", watcher.seen);
    }
}

/// The process of a rank, by the rings of a folder.
fn pid_of(folder: &Path, rank: u32) -> Option<u32> {
    let states =
        rings_in(&folder.join("rings")).into_iter().filter_map(|ring| Reader::open(&ring).ok()?.state().ok());
    states.map(|state| state.process).find(|process| process.rank == Some(rank)).map(|process| process.pid)
}

#[test]
fn of_a_job_that_was_started_again_the_newest_process_is_named() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("out")).unwrap();
    let folders: Vec<PathBuf> = (1..=3).map(|attempt| folder.path().join(attempt.to_string())).collect();
    for folder in &folders {
        std::fs::create_dir_all(folder.join("rings")).unwrap();
    }
    let script = "for attempt in 1 2 3; do for rank in 0 1 2; do export PRETENDED_JOB=$JOB/$attempt PRETENDED_COMM=$attempt; \
                  [ $attempt = 3 ] && export PRETENDED_STEPS=99999999; RANK=$rank LOCAL_RANK=$rank \"$0\" \"$@\" & done; wait; done";
    let program = rank_command(&folders[0], 0, 3, 60);
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(program.get_program()).args(program.get_args());
    command.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.env_remove("RANK").env_remove("LOCAL_RANK").env("JOB", folder.path());
    let launcher = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let job = Job { folder, ranks: vec![launcher] };
    let shells = Shells { job, folders };
    let mut watcher = shells.job.watch(&["--pid", &shells.job.pids(), "--until-verdict", "--for", "120"]);
    let is_third = |event: &Value| event["comms"].as_array().unwrap().iter().any(|comm| comm["id"] == "3");
    while !is_third(&watcher.until("progress")) {}
    watcher.until("progress");
    let pid = pid_of(&shells.folders[2], 1).unwrap();
    assert!(Command::new("kill").args(["-STOP", &pid.to_string()]).status().unwrap().success());
    let verdict = watcher.until("verdict")["report"]["verdict"].clone();
    assert_eq!(verdict["cause"], "process-stopped", "{verdict}");
    assert_eq!(
        (&verdict["culprits"][0]["rank"], &verdict["culprits"][0]["pid"]),
        (&json!(1), &json!(pid)),
        "{verdict}"
    );
}

/// With every descriptor of the watcher taken by connections that ask nothing.
#[test]
fn without_a_descriptor_left_nobody_is_dead() {
    let mut job = Job::start(2, u64::MAX);
    let (rings, pids) = (job.rings(), job.pids());
    let child = Command::new("sh")
        .args(["-c", "ulimit -n 40; exec \"$0\" \"$@\""])
        .arg(ringleader().get_program())
        .args([
            "watch",
            "--json",
            "--interval",
            "0.1",
            "--for",
            "120",
            "--serve",
            "0",
            "--rings",
            &rings,
            "--pid",
            &pids,
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut watcher = Watcher::of(child);
    let note = watcher.until("note")["text"].as_str().unwrap().to_owned();
    let at = note.split_once("http://").unwrap().1.split('/').next().unwrap().to_owned();
    while watcher.until("progress")["comms"][0]["ranks_seen"] != 2 {}
    let idle: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(&at).unwrap()).collect();
    while !remarks(&watcher.until("watching")).contains("whether processes are alive") {}
    watcher.until("progress");
    drop(idle);
    watcher.until("progress");
    for rank in &mut job.ranks {
        rank.kill().unwrap();
        rank.wait().unwrap();
    }
    watcher.until("ended");
}

#[test]
fn a_ring_whose_file_was_removed_is_read_all_the_same() {
    let job = Job::start(2, u64::MAX);
    while rings_in(job.rings().as_ref()).len() < 2 {
        thread::sleep(Duration::from_millis(20));
    }
    for ring in rings_in(job.rings().as_ref()) {
        std::fs::remove_file(ring).unwrap();
    }
    let mut watcher = job.watch(&["--pid", &job.pids(), "--for", "60"]);
    let watching = watcher.until("watching");
    let told = remarks(&watching);
    assert_eq!(watching["sees"], "plugin", "{watching}");
    assert!(told.contains("was removed") && !told.contains("NCCL_PROFILER_PLUGIN"), "{told}");
    while watcher.until("progress")["comms"][0]["ranks_seen"] != 2 {}
}

#[test]
fn a_ring_that_breaks_is_told_of_and_its_rank_not_seen_until_it_can_be_read() {
    let job = Job::start(3, u64::MAX);
    let mut watcher = job.watch(&["--pid", &job.pids(), "--for", "60"]);
    while watcher.until("progress")["comms"][0]["ranks_seen"] != 3 {}
    let name = format!("ring-{}-", job.ranks[1].id());
    let is_it = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(&name);
    let path = rings_in(job.rings().as_ref()).into_iter().find(is_it).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    let mut magic = [0; 8];
    file.read_exact_at(&mut magic, 0).unwrap();
    file.write_all_at(&[0; 8], 0).unwrap();
    let told = loop {
        let told = remarks(&watcher.until("watching"));
        if told.contains("cannot be read") {
            break told;
        }
    };
    assert!(told.contains(&format!("pid {}", job.ranks[1].id())) && told.contains("rank 1"), "{told}");
    assert!(!told.contains("no plugin"), "{told}");
    while watcher.until("progress")["comms"][0]["ranks_seen"] != 2 {}
    file.write_all_at(&magic, 0).unwrap();
    while remarks(&watcher.until("watching")).contains("cannot be read") {}
    while watcher.until("progress")["comms"][0]["ranks_seen"] != 3 {}
    assert_eq!(count(&watcher.seen, "stall"), 0, "{:#?}", watcher.seen);
}
