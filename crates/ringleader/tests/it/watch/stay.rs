//! A watcher that stays: the next job is taken up, what it writes and what it holds is bounded; and what it costs.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{Job, Watcher, count};

/// Longest time in which a job is seen at work.
const LIMIT: Duration = Duration::from_mins(2);

/// Memory in use, KiB.
fn resident_kib(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Processor time so far of a process and its children that it has waited for, seconds.
fn processor_s(pid: u32) -> f64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let behind = stat.rsplit_once(')').unwrap().1;
    let ticks: u64 = behind.split_whitespace().skip(11).take(4).map(|n| n.parse::<u64>().unwrap()).sum();
    ticks as f64 / 100.0
}

fn bundles(out: &Path) -> usize {
    let all = std::fs::read_dir(out).unwrap().flatten();
    all.filter(|entry| entry.file_name().to_string_lossy().ends_with(".tar.zst")).count()
}

/// Four jobs, one after the other, each with a stall of its own.
#[test]
fn a_watcher_that_stays_takes_up_the_next_job_and_is_bounded() {
    const JOBS: u64 = 4;
    let folder = tempfile::tempdir().unwrap();
    let (rings, out) = (folder.path().join("rings"), folder.path().join("out"));
    std::fs::create_dir(&rings).unwrap();
    std::fs::create_dir(&out).unwrap();
    let (rings, text) = (rings.to_str().unwrap(), out.to_str().unwrap());
    let mut watcher = Watcher::start(&[
        "--json",
        "--stay",
        "--keep",
        "2",
        "--interval",
        "0.1",
        // Long enough that no pause of a busy machine is a stall.
        "--stall-floor",
        "3",
        "--rings",
        rings,
        "--out",
        text,
    ]);
    let pid = watcher.child.id();
    let mut memory = Vec::new();
    for n in 1..=JOBS {
        let id = (1000 * n).to_string();
        let job = Job::start_with(2, u64::MAX, &[("PRETENDED_RINGS", rings), ("PRETENDED_COMM", &id)]);
        // Its own alarm, not that of a job before.
        let began = Instant::now();
        while watcher.until("progress")["comms"]
            .as_array()
            .is_none_or(|comms| comms.iter().all(|comm| comm["ops_done"].as_u64() < Some(30)))
        {
            assert!(began.elapsed() < LIMIT, "job {n} makes no progress: {:#?}", watcher.seen);
        }
        job.signal(1, "-STOP");
        watcher.until("verdict");
        let stall = watcher.seen.iter().rfind(|event| event["event"] == "stall").unwrap();
        assert_eq!(stall["suspects"], serde_json::json!([1]), "{stall}");
        drop(job);
        memory.push(resident_kib(pid));
        assert!(bundles(&out) <= 2, "{} bundles after {n} jobs", bundles(&out));
    }
    assert_eq!(count(&watcher.seen, "verdict") as u64, JOBS);
    assert!(watcher.child.try_wait().unwrap().is_none(), "it was to stay");
    let (second, last) = (memory[1], memory[memory.len() - 1]);
    // The rings of dead jobs are in the folder still, and are read.
    assert!(last < second + (96 << 10), "it grows: {memory:?} KiB");
}

/// What a watcher takes of these jobs: the share of one core, and memory in KiB.
fn cost(jobs: &[Job], rings: &str, seconds: u64) -> (f64, u64) {
    let out = tempfile::tempdir().unwrap();
    let child = crate::cli::ringleader()
        .args([
            "watch",
            "--json",
            "--stay",
            "--no-ras",
            "--rings",
            rings,
            "--out",
            out.path().to_str().unwrap(),
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut child = Ends(child);
    // Its start is not counted.
    std::thread::sleep(Duration::from_secs(3));
    let (began, before) = (Instant::now(), processor_s(child.0.id()));
    std::thread::sleep(Duration::from_secs(seconds));
    let taken = processor_s(child.0.id()) - before;
    let memory = resident_kib(child.0.id());
    assert!(child.0.try_wait().unwrap().is_none(), "it ended over {} jobs", jobs.len());
    (taken / began.elapsed().as_secs_f64(), memory)
}

struct Ends(std::process::Child);

impl Drop for Ends {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The watcher's own cost. `RINGLEADER_COST=60` measures that long over twelve jobs of two ranks and over eight ranks with fifty
/// communicators each; by default over few and short, to see that it is bounded.
#[test]
#[expect(clippy::print_stderr, reason = "the numbers are what it is for")]
fn the_watchers_own_cost() {
    let seconds: Option<u64> = std::env::var("RINGLEADER_COST").ok().and_then(|n| n.parse().ok());
    let (n_jobs, n_ranks, n_comms) = if seconds.is_some() { (12, 8, 50) } else { (3, 2, 10) };
    let scene = |jobs: Vec<(u32, u64)>| {
        let rings = tempfile::tempdir().unwrap();
        let path = rings.path().to_str().unwrap();
        let start = |(at, (size, comms)): (usize, (u32, u64))| {
            let (id, comms) = ((10_000 * (at + 1)).to_string(), comms.to_string());
            let more = [("PRETENDED_RINGS", path), ("PRETENDED_COMM", &id), ("PRETENDED_COMMS", &comms)];
            Job::start_with(size, u64::MAX, &more)
        };
        let jobs: Vec<Job> = jobs.into_iter().enumerate().map(start).collect();
        cost(&jobs, path, seconds.unwrap_or(3))
    };
    let many = scene(vec![(2, 1); n_jobs]);
    eprintln!("{n_jobs} jobs of 2 ranks: {:.2} % of a core, {} MiB", 100.0 * many.0, many.1 >> 10);
    let wide = scene(vec![(n_ranks, n_comms)]);
    eprintln!(
        "a job of {n_ranks} ranks and {n_comms} communicators: {:.2} % of a core, {} MiB",
        100.0 * wide.0,
        wide.1 >> 10
    );
    for (share, memory) in [many, wide] {
        assert!(share < 0.9 && memory < 400 << 10, "{share} of a core, {memory} KiB");
    }
}
