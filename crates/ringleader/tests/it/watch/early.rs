//! Jobs that never come to a communicator: processes with a rank that wait, or that say why they end.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use super::{Job, Watcher, count};
use crate::cli::ringleader;

/// Ranks of one node, as a launcher starts them, each a shell. `script` and the variables that differ are by rank; none: that
/// rank is not started.
fn job(size: u32, script: impl Fn(u32) -> Option<(String, Vec<(&'static str, &'static str)>)>) -> Job {
    let folder = tempfile::tempdir().unwrap();
    for name in ["rings", "out"] {
        std::fs::create_dir(folder.path().join(name)).unwrap();
    }
    let log = File::create(folder.path().join("job.log")).unwrap();
    // Jobs that meet at one place are one.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string();
    let started = (0..size).filter_map(|rank| Some((rank, script(rank)?)));
    let ranks = started
        .map(|(rank, (script, differs))| {
            Command::new("sh")
                .args(["-c", &script])
                .env("RANK", rank.to_string())
                .env("LOCAL_RANK", rank.to_string())
                .env("WORLD_SIZE", size.to_string())
                .env("LOCAL_WORLD_SIZE", size.to_string())
                .env("MASTER_ADDR", "127.0.0.1")
                .env("MASTER_PORT", &port)
                .env("NCCL_RAS_ENABLE", "0")
                .env("NCCL_PROFILER_PLUGIN", "/opt/libringleader_nccl.so")
                .envs(differs)
                .stdin(Stdio::null())
                .stdout(log.try_clone().unwrap())
                .stderr(log.try_clone().unwrap())
                .spawn()
                .unwrap()
        })
        .collect();
    Job { folder, ranks }
}

/// Waits, as one does in the store.
const WAITS: &str = "exec sleep 600";

fn waits() -> (String, Vec<(&'static str, &'static str)>) {
    (WAITS.to_owned(), Vec::new())
}

/// The stall, and the verdict.
fn watched(job: &Job) -> (Value, Value) {
    let arguments = ["--pid", &job.pids(), "--until-verdict", "--for", "120", "--unstable-first-floor", "3"];
    let mut watcher = job.watch(&arguments);
    let stall = watcher.until("stall");
    let bundle = watcher.until("bundle")["path"].as_str().unwrap().to_owned();
    let verdict = watcher.until("verdict")["report"]["verdict"].clone();
    assert_eq!(verdict_of(Path::new(&bundle)), verdict, "the bundle says the same by itself");
    // Its loose files do too.
    let loose = job.folder.path().join("loose");
    let file = File::open(&bundle).unwrap();
    tar::Archive::new(zstd::stream::read::Decoder::new(file).unwrap()).unpack(&loose).unwrap();
    let said = verdict_of(&loose);
    assert_eq!((&said["cause"], &said["culprits"]), (&verdict["cause"], &verdict["culprits"]), "{said}");
    (stall, verdict)
}

fn verdict_of(path: &Path) -> Value {
    let output = ringleader().args(["diagnose", "--format", "json"]).arg(path).output().unwrap();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    report["verdict"].clone()
}

fn ranks(verdict: &Value) -> Vec<u64> {
    verdict["culprits"].as_array().unwrap().iter().filter_map(|one| one["rank"].as_u64()).collect()
}

#[test]
fn a_rank_that_was_never_started_is_named() {
    let job = job(4, |rank| (rank != 1).then(waits));
    let (stall, verdict) = watched(&job);
    assert_eq!((&stall["shape"], &stall["suspects"]), (&json!("start"), &json!([1])), "{stall}");
    assert!(stall["states"][0]["detail"].as_str().unwrap().contains("idle: "), "{stall}");
    assert_eq!((&verdict["cause"], ranks(&verdict)), (&json!("missing-rank"), vec![1]), "{verdict}");
}

#[test]
fn contradictions_of_the_launch_are_named() {
    let differs = |name, value| {
        let job = job(3, move |rank| {
            Some((WAITS.to_owned(), if rank == 2 { vec![(name, value)] } else { Vec::new() }))
        });
        let (stall, verdict) = watched(&job);
        assert_eq!(stall["shape"], "start", "{stall}");
        (verdict["cause"].as_str().unwrap().to_owned(), ranks(&verdict))
    };
    // The process whose local rank is 2, which nobody is.
    assert_eq!(differs("RANK", "1"), ("rank-env-misconfigured".to_owned(), vec![2]));
    assert_eq!(differs("WORLD_SIZE", "4"), ("rank-env-misconfigured".to_owned(), vec![2]));
    assert_eq!(differs("MASTER_ADDR", "127.0.0.9"), ("missing-rank".to_owned(), vec![2]));
}

/// Nothing but processes is there to see, and nobody has named them: the job is followed as long as it lives.
#[test]
fn a_job_without_rings_that_nobody_named_is_followed() {
    let job = job(2, |_| Some(waits()));
    let out = job.out();
    // It stays over jobs that end meanwhile: tests run beside each other.
    let mut watcher =
        Watcher::start(&["--json", "--stay", "--interval", "0.2", "--for", "120", "--out", &out, "--no-ras"]);
    watcher.until("watching");
    std::thread::sleep(std::time::Duration::from_secs(4));
    job.signal(1, "-STOP");
    let stopped = job.ranks[1].id();
    let stall = loop {
        let stall = watcher.until("stall");
        if stall["states"][0]["pid"] == stopped {
            break stall;
        }
    };
    assert_eq!(stall["suspects"], json!([1]), "{stall}");
    assert_eq!(
        (&stall["text"], &stall["expected_s"]),
        (&json!("rank 1 is stopped, while the others live"), &json!(0.0))
    );
    let ended = watcher.seen.iter().filter(|event| event["event"] == "ended" && event["job"] == stall["job"]);
    assert_eq!(ended.count(), 0, "{:#?}", watcher.seen);
}

#[test]
fn ranks_that_work_and_single_processes_are_left_alone() {
    for job in [
        // One of them is busy.
        job(3, |rank| Some(if rank == 1 { ("while :; do :; done".to_owned(), Vec::new()) } else { waits() })),
        job(1, |_| Some(waits())),
    ] {
        let arguments = ["--pid", &job.pids(), "--for", "12", "--unstable-first-floor", "3"];
        let (_, events) = job.watch(&arguments).end();
        assert_eq!((count(&events, "stall"), count(&events, "verdict")), (0, 0), "{events:#?}");
    }
}

/// What NCCL 2.28.9 prints, and the exception that follows it.
fn says(line: &str, rank: u32, last: &str) -> String {
    format!(
        "sleep 3; printf '\\n%s:%s:%s [0] {line}\\n' $(uname -n) $$ $$; printf '%s\\n' \
         'Traceback (most recent call last):' '  File \"/srv/train.py\", line 48, in start' \
         'torch.distributed.DistBackendError: NCCL error in: /pytorch/torch/csrc/distributed/c10d/NCCLUtils.cpp:93, invalid \
         usage (run with NCCL_DEBUG=WARN for details), NCCL version 2.28.9' 'ncclInvalidUsage: This usually reflects invalid \
         usage of NCCL library.' 'Last error:' '{last}'; : rank {rank}; exit 1"
    )
}

/// The one verdict on a job that ends by itself.
fn ended(mut job: Job) -> Value {
    let watcher: Watcher = job.watch(&["--pid", &job.pids(), "--for", "120"]);
    for rank in &mut job.ranks {
        rank.wait().unwrap();
    }
    let (_, events) = watcher.end();
    assert_eq!((count(&events, "ended"), count(&events, "verdict")), (1, 1), "{events:#?}");
    events.iter().find(|event| event["event"] == "verdict").unwrap()["report"]["verdict"].clone()
}

#[test]
fn a_job_that_ends_before_its_first_communicator_is_judged_by_its_log() {
    // The others wait in the store and end with the server.
    let others = "sleep 4; exit 1";
    let verdict = ended(job(3, |rank| {
        let script = match rank {
            0 => says(
                "bootstrap.cc:114 NCCL WARN Bootstrap : no socket interface found",
                rank,
                "Bootstrap : no socket interface found",
            ),
            _ => others.to_owned(),
        };
        Some((script, Vec::new()))
    }));
    assert_eq!((&verdict["cause"], ranks(&verdict)), (&json!("wrong-interface"), vec![0]), "{verdict}");
    let verdict = ended(job(4, |rank| {
        let script = match rank {
            0 | 1 => {
                let last = format!(
                    "Duplicate GPU detected : rank {rank} and rank {} both on CUDA device 60",
                    1 - rank
                );
                says(&format!("init.cc:904 NCCL WARN {last}"), rank, &last)
            }
            _ => others.to_owned(),
        };
        Some((script, Vec::new()))
    }));
    assert_eq!((&verdict["cause"], ranks(&verdict)), (&json!("duplicate-gpu"), vec![0, 1]), "{verdict}");
    // Nothing went wrong: nothing is reported.
    let mut quiet = job(2, |_| Some(("sleep 3; echo done".to_owned(), Vec::new())));
    let watcher = quiet.watch(&["--pid", &quiet.pids(), "--for", "120"]);
    quiet.ranks.iter_mut().for_each(|rank| assert!(rank.wait().unwrap().success()));
    let (_, events) = watcher.end();
    assert_eq!((count(&events, "ended"), count(&events, "verdict")), (1, 0), "{events:#?}");
}
