//! Several jobs on a node, and none; a watcher whose reader is gone; a command that fails.

use std::io::{Read as _, Write as _};
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::{Job, Watcher, count};
use crate::cli::ringleader;

/// One folder with the rings of all, as on a node.
pub(super) fn one_folder(jobs: &[Job]) -> tempfile::TempDir {
    let rings = tempfile::tempdir().unwrap();
    let link = |job: &Job| {
        for pid in job.ranks.iter().map(std::process::Child::id) {
            let is_its = |name: &str| name.starts_with(&format!("ring-{pid}-"));
            let until = Instant::now() + Duration::from_mins(1);
            loop {
                let found = ringleader_ring::rings_in(job.rings().as_ref());
                if let Some(ring) =
                    found.iter().find(|ring| is_its(&ring.file_name().unwrap().to_string_lossy()))
                {
                    std::fs::hard_link(ring, rings.path().join(ring.file_name().unwrap())).unwrap();
                    break;
                }
                assert!(Instant::now() < until, "no ring of {pid}");
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    };
    jobs.iter().for_each(link);
    rings
}

/// Where a watcher says that its page is.
pub(super) fn page_of(watcher: &mut Watcher) -> String {
    let note = watcher.until("note")["text"].as_str().unwrap().to_owned();
    let url = note.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    url.trim_end_matches(',').to_owned()
}

/// What the page of a watcher answers.
pub(super) fn asked(url: &str, path: &str) -> String {
    let host = url.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = std::net::TcpStream::connect(host).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Two jobs write into one folder of rings. Each is followed, and only one has an alarm.
#[test]
fn each_job_of_a_node_is_followed_and_has_its_own_alarm() {
    let jobs = [Job::start_with(2, u64::MAX, &[("PRETENDED_COMM", "77")]), Job::start(2, u64::MAX)];
    let rings = one_folder(&jobs);
    let (rings, out) = (rings.path().to_str().unwrap().to_owned(), jobs[0].out());
    let mut watcher = Watcher::start(&[
        "--json",
        "--interval",
        "0.1",
        "--stall-floor",
        "1",
        "--rings",
        &rings,
        "--out",
        &out,
        "--for",
        "60",
        "--until-verdict",
        "--serve",
        "0",
    ]);
    let url = page_of(&mut watcher);
    let until = Instant::now() + Duration::from_mins(1);
    let named = |watcher: &Watcher| {
        let names = watcher.seen.iter().filter(|event| event["event"] == "progress");
        names
            .filter_map(|event| event["job"].as_str().map(str::to_owned))
            .collect::<std::collections::BTreeSet<_>>()
    };
    while named(&watcher).len() < 2 && Instant::now() < until {
        watcher.until("progress");
    }
    assert_eq!(named(&watcher).len(), 2, "{:#?}", watcher.seen);
    jobs[0].signal(1, "-STOP");
    let stall = watcher.until("stall");
    assert_eq!(stall["suspects"], serde_json::json!([1]), "{stall}");
    let job = stall["job"].as_str().unwrap().to_owned();
    // Each has its series, and the one that stalls is told from the other.
    let all = || {
        let metrics = asked(&url, "/metrics");
        let lines = metrics.lines().filter(|line| line.starts_with("ringleader_stalled{job="));
        lines.map(str::to_owned).collect::<Vec<String>>()
    };
    while all().iter().all(|line| line.ends_with(" 0.0")) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    let series = all();
    let its = format!("ringleader_stalled{{job=\"{job}\"}} 1.0");
    assert!(series.len() == 2 && series.contains(&its), "{series:?}");
    assert_eq!(series.iter().filter(|line| line.ends_with(" 0.0")).count(), 1, "{series:?}");
    let (code, events) = watcher.end();
    assert_eq!(code, Some(4));
    let alarms = events
        .iter()
        .filter(|event| ["stall", "verdict", "bundle"].contains(&event["event"].as_str().unwrap()));
    assert!(alarms.clone().all(|event| event["job"] == job.as_str()), "{alarms:#?}");
    assert!(count(&events, "verdict") == 1, "{events:#?}");
}

#[test]
fn without_a_job_the_ways_to_start_are_told() {
    let rings = tempfile::tempdir().unwrap();
    let rings = rings.path().to_str().unwrap();
    let output =
        ringleader().args(["watch", "--rings", rings, "--for", "4", "--no-screen"]).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("three ways to start") && said.contains("watch -- torchrun"), "{said}");
    assert_eq!(output.status.code(), Some(0));
}

/// Whoever read it has gone: it ends, unless it is asked to stay.
#[test]
fn a_watcher_that_nobody_hears_ends() {
    let job = Job::start(2, u64::MAX);
    let (rings, out) = (job.rings(), job.out());
    let common = ["watch", "--json", "--interval", "0.1", "--rings", &rings, "--out", &out, "--for", "300"];
    let start = |more: &[&str]| {
        ringleader().args(common).args(more).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap()
    };
    let (mut ends, mut stays) = (start(&[]), start(&["--stay"]));
    drop((ends.stdout.take(), stays.stdout.take()));
    let until = Instant::now() + Duration::from_mins(1);
    while ends.try_wait().unwrap().is_none() {
        assert!(Instant::now() < until, "it goes on unheard");
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(stays.try_wait().unwrap().is_none(), "it was asked to stay");
    stays.kill().unwrap();
    stays.wait().unwrap();
}

#[test]
fn the_last_words_of_a_command_that_fails_are_quoted() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let script = "echo starting; echo \"ValueError: planted last words\" >&2; exit 7";
    let output = ringleader()
        .args(["watch", "--interval", "0.1", "--out", out, "--", "sh", "-c", script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(7));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("exit status: 7") && said.contains("its last words: ValueError: planted"),
        "{said}"
    );
}

/// Nothing fails and nothing stalls, and the loss is NaN: said at the end, and while a longer job runs.
#[test]
fn a_loss_that_is_nan_is_reported_although_the_command_succeeds() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let watch = |script: &str| {
        let args = ["watch", "--json", "--interval", "0.1", "--out", out, "--", "bash", "-c", script];
        let output = ringleader().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let steps = "for i in $(seq 1 30); do if [ $i -lt 12 ]; then echo \"step $i loss 1.$i\"; else echo \"step $i loss nan\"; fi; done";
    for script in [steps.to_owned(), format!("{steps}; sleep 6; echo goes on; sleep 1")] {
        let said = watch(&script);
        let events: Vec<serde_json::Value> =
            said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let at = |name: &str| events.iter().position(|event| event["event"] == name);
        let verdict = at("verdict").unwrap_or_else(|| panic!("{said}"));
        assert_eq!(events[verdict]["report"]["verdict"]["cause"], "nan-loss", "{said}");
        // A short command may have ended before anybody could look.
        assert!(verdict < at("ended").unwrap() || !script.contains("goes on"), "{said}");
        assert_eq!(events.iter().filter(|event| event["event"] == "verdict").count(), 1, "{said}");
    }
    // A loss scale that is found, and words that only look like it.
    let said = watch(
        "for i in $(seq 1 30); do echo \"step $i loss 2.$i nan_policy=skip\"; done; echo nan detected in 0 tensors",
    );
    assert!(!said.contains("\"verdict\""), "{said}");
}

/// A ring that a job has left, played once more.
#[test]
fn recorded_rings_are_shown_once_more() {
    let mut job = Job::start(2, 60);
    for rank in &mut job.ranks {
        assert!(rank.wait().unwrap().success());
    }
    let rings = job.rings();
    let output = ringleader().args(["watch", "--json", "--replay", &rings]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let events: Vec<serde_json::Value> =
        said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let has = |name: &str| events.iter().any(|event| event["event"] == name);
    assert!(has("progress") && has("ended") && !has("stall"), "{said}");
    assert!(events.iter().any(|event| event["event"] == "watching" && event["ranks"] == 2), "{said}");
    let output = ringleader().args(["watch", "--replay", "/nowhere"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{output:?}");
}
