//! `watch` on jobs of real processes that write real rings: this test program started again, once for each rank.

mod early;
mod link;
mod page;
mod profiler;
mod several;
mod slow;
mod stay;
mod whom;

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use ringleader_ring::{CallDescriptor, NewComm, Reader, RingOptions, Writer, names};
use serde_json::Value;

use crate::cli::ringleader;

/// Operations a second that a pretended job runs.
const PACE: Duration = Duration::from_millis(20);

/// The id of a job's communicators by its folder: tests run beside each other, and ranks of one communicator are of one job.
fn own_id(folder: &Path) -> u64 {
    let mut hasher = DefaultHasher::new();
    folder.hash(&mut hasher);
    hasher.finish() >> 16
}

/// One rank: all_reduce after all_reduce. Each ends once all ranks have entered it, shown by a file of each that grows
/// by a byte with every step; or by the bytes of its neighbour, where ranks have a network. Ends after `steps`.
fn train(folder: &Path, rank: u32, size: u32, steps: u64) {
    let options = RingOptions {
        directories: vec![
            std::env::var_os("PRETENDED_RINGS").map_or_else(|| folder.join("rings"), Into::into),
        ],
        rank: Some(rank),
        local_rank: Some(rank),
        world_size: Some(size),
    };
    let mut network = std::env::var("PRETENDED_NET").ok().map(|net| link::Neighbours::meet(&net));
    let ring = Writer::create(&options).unwrap();
    ring.interface(6);
    let id = std::env::var("PRETENDED_COMM").ok().and_then(|id| id.parse().ok());
    let n_comms: u64 = std::env::var("PRETENDED_COMMS").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    let begin = |n: u64| {
        ring.comm_begins(&NewComm {
            id: id.unwrap_or_else(|| own_id(folder)) + n,
            name: b"default_pg",
            size,
            rank: Some(rank),
            nodes: if network.is_some() { size } else { 1 },
            sees_kernels: true,
            sees_channels: true,
        })
    };
    let comms: Vec<_> = (0..n_comms.max(1)).map(begin).collect();
    let told = CallDescriptor {
        function: ring.code(names::NameKind::Function, b"AllReduce"),
        datatype: ring.code(names::NameKind::Datatype, b"ncclFloat32"),
        channels: 1,
        count: 1 << 20,
        ..CallDescriptor::default()
    };
    if let Some(timelines) = std::env::var_os("PRETENDED_TIMELINES") {
        profiler::pretend(rank, Path::new(&timelines).join(format!("trace_rank{rank}.json.xz")));
    }
    let late_ms = std::env::var("PRETENDED_LATE")
        .ok()
        .and_then(|late| late.strip_prefix(&format!("{rank}:"))?.parse().ok())
        .unwrap_or(0);
    let file = |rank: u32| folder.join(format!("entered-{rank}"));
    let blind: Option<u64> = std::env::var("PRETENDED_BLIND").ok().and_then(|step| step.parse().ok());
    for step in 1..=steps {
        let is_blind = blind.is_some_and(|from| step >= from);
        if blind == Some(step) {
            ring.kernels_end();
        }
        // RANK:STEP, and seconds if it wakes again.
        let asleep = std::env::var("PRETENDED_SLEEP").unwrap_or_default();
        if let Some(rest) = asleep.strip_prefix(&format!("{rank}:{step}")) {
            let seconds = rest.strip_prefix(':').map(|seconds| seconds.parse().unwrap());
            if rest.is_empty() || seconds.is_some() {
                thread::sleep(seconds.map_or(Duration::from_hours(1), Duration::from_secs));
            }
        }
        thread::sleep(PACE + Duration::from_millis(late_ms));
        // Each communicator in its turn.
        let comm = comms[step as usize % comms.len()];
        let op = ring.launch(comm, ringleader_ring::Handle::NONE, ringleader_ring::Handle::NONE, &told);
        ring.handed_over(op);
        let kernel = if is_blind { ringleader_ring::Handle::NONE } else { ring.kernel_starts(op, 0, 0) };
        if let Some(network) = &mut network {
            network.reduce(size);
            ring.kernel_stops(kernel);
            continue;
        }
        std::fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(file(rank))
            .and_then(|mut file| std::io::Write::write_all(&mut file, b"."))
            .unwrap();
        while (0..size).any(|peer| std::fs::metadata(file(peer)).map_or(0, |data| data.len()) < step) {
            thread::sleep(Duration::from_millis(1));
        }
        ring.kernel_stops(kernel);
    }
    for comm in comms {
        ring.comm_ends(comm);
    }
}

/// What a rank of a pretended job runs. Called without a job it is one of a single rank, and its ring tells so.
#[test]
#[expect(clippy::print_stdout, reason = "a rank's own words go to its log")]
fn a_pretended_rank() {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let (Ok(folder), Some(rank)) = (std::env::var("PRETENDED_JOB"), number("RANK")) {
        let size = number("WORLD_SIZE").unwrap() as u32;
        train(folder.as_ref(), rank as u32, size, number("PRETENDED_STEPS").unwrap());
        if let (Ok(words), 1) = (std::env::var("PRETENDED_WORDS"), rank) {
            println!("{words}");
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("rings")).unwrap();
    train(folder.path(), 0, 1, 3);
    let path = ringleader_ring::rings_in(&folder.path().join("rings")).remove(0);
    let state = Reader::open(&path).unwrap().state().unwrap();
    assert_eq!((state.comms[0].collectives, state.comms[0].collectives_done), (3, 3));
}

/// Ranks, which end with the test.
struct Job {
    folder: tempfile::TempDir,
    ranks: Vec<Child>,
}

impl Drop for Job {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            // Fails only if it has ended.
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

impl Job {
    fn start(size: u32, steps: u64) -> Self {
        Self::start_with(size, steps, &[])
    }

    fn start_with(size: u32, steps: u64, more: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("rings")).unwrap();
        std::fs::create_dir(folder.path().join("out")).unwrap();
        let start =
            |rank| rank_command(folder.path(), rank, size, steps).envs(more.iter().copied()).spawn().unwrap();
        let ranks = (0..size).map(start).collect();
        Self { folder, ranks }
    }

    fn signal(&self, rank: usize, name: &str) {
        let pid = self.ranks[rank].id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn pids(&self) -> String {
        self.ranks.iter().map(|rank| rank.id().to_string()).collect::<Vec<_>>().join(",")
    }

    fn rings(&self) -> String {
        self.folder.path().join("rings").to_str().unwrap().to_owned()
    }

    fn out(&self) -> String {
        self.folder.path().join("out").to_str().unwrap().to_owned()
    }

    fn watch(&self, arguments: &[&str]) -> Watcher {
        self.watch_with_floor("1", arguments)
    }

    fn watch_with_floor(&self, seconds: &str, arguments: &[&str]) -> Watcher {
        let (rings, out) = (self.rings(), self.out());
        let mut all =
            vec!["--json", "--interval", "0.1", "--stall-floor", seconds, "--rings", &rings, "--out", &out];
        all.extend(arguments);
        Watcher::start(&all)
    }
}

fn rank_command(folder: &Path, rank: u32, size: u32, steps: u64) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "watch::a_pretended_rank", "--nocapture", "--test-threads=1"])
        .env("PRETENDED_JOB", folder)
        .env("PRETENDED_STEPS", steps.to_string())
        .env("RANK", rank.to_string())
        .env("LOCAL_RANK", rank.to_string())
        .env("WORLD_SIZE", size.to_string())
        .env("NCCL_RAS_ENABLE", "0")
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command
}

/// Longest time without an event: a watcher that falls silent fails a test, and does not hold up all of them.
const SILENCE: Duration = Duration::from_secs(150);

/// A watcher whose events are read as they come.
struct Watcher {
    child: Child,
    lines: mpsc::Receiver<String>,
    seen: Vec<Value>,
}

impl Drop for Watcher {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Watcher {
    fn start(arguments: &[&str]) -> Self {
        let command =
            ringleader().arg("watch").args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
        Self::of(command.unwrap())
    }

    /// Of a process whose standard output is a pipe.
    fn of(mut child: Child) -> Self {
        let (sender, lines) = mpsc::channel();
        let stdout = child.stdout.take().unwrap();
        thread::spawn(move || {
            // The receiver goes away with the test.
            BufReader::new(stdout).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        Self { child, lines, seen: Vec::new() }
    }

    /// The next event; none at the end.
    fn next(&mut self) -> Option<Value> {
        let line = match self.lines.recv_timeout(SILENCE) {
            Ok(line) => line,
            Err(mpsc::RecvTimeoutError::Disconnected) => return None,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("no event in {SILENCE:?}: {:#?}", self.seen),
        };
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["schema"], "ringleader.watch.v1");
        assert!(event["at"].as_f64().unwrap() > 1.7e9, "{event}");
        self.seen.push(event.clone());
        Some(event)
    }

    #[track_caller]
    fn until(&mut self, name: &str) -> Value {
        let began = Instant::now();
        while let Some(event) = self.next() {
            if event["event"] == name {
                return event;
            }
            assert!(began.elapsed() < 2 * SILENCE, "no {name} in {:?}: {:#?}", 2 * SILENCE, self.seen);
        }
        panic!("it ended without {name}: {:#?}", self.seen);
    }

    fn end(mut self) -> (Option<i32>, Vec<Value>) {
        while self.next().is_some() {}
        let code = self.child.wait().unwrap().code();
        (code, std::mem::take(&mut self.seen))
    }
}

fn count(events: &[Value], name: &str) -> usize {
    events.iter().filter(|event| event["event"] == name).count()
}

#[test]
fn a_stopped_rank_is_named_within_seconds_and_its_evidence_kept() {
    let job = Job::start(3, u64::MAX);
    let hook = job.folder.path().join("hook.json");
    let on_stall = format!("cat > {}", hook.display());
    let mut watcher =
        job.watch(&["--pid", &job.pids(), "--until-verdict", "--for", "120", "--on-stall", &on_stall]);
    let watching = watcher.until("watching");
    assert_eq!(watching["sees"], "plugin", "{watching}");
    let progress = watcher.until("progress");
    assert_eq!(progress["comms"][0]["name"], "default_pg", "{progress}");
    job.signal(1, "-STOP");
    let began = Instant::now();
    let stall = watcher.until("stall");
    // Two seconds by the engine's rule, and what a busy machine adds.
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
    assert_eq!(stall["suspects"], serde_json::json!([1]), "{stall}");
    let state = stall["states"].as_array().unwrap().iter().find(|state| state["rank"] == 1).unwrap();
    assert_eq!(state["state"], "stopped", "{stall}");
    let (code, events) = watcher.end();
    assert_eq!(code, Some(4));
    let verdict = &events.iter().find(|event| event["event"] == "verdict").unwrap()["report"]["verdict"];
    assert_eq!(verdict["cause"], "process-stopped", "{verdict}");
    assert_eq!(verdict["culprits"][0]["rank"], 1, "{verdict}");
    let bundle = events.iter().find(|event| event["event"] == "bundle").unwrap()["path"].as_str().unwrap();
    // The bundle says the same by itself, and holds the rings.
    let again = ringleader().args(["diagnose", "--format", "json", bundle]).output().unwrap();
    let report: Value = serde_json::from_slice(&again.stdout).unwrap();
    assert_eq!(&report["verdict"], verdict);
    let file = std::fs::File::open(bundle).unwrap();
    let mut archive = tar::Archive::new(zstd::stream::read::Decoder::new(file).unwrap());
    let names: Vec<String> = archive
        .entries()
        .unwrap()
        .map(|entry| entry.unwrap().path().unwrap().display().to_string())
        .collect();
    assert_eq!(names.iter().filter(|name| name.contains("/rings/ring-")).count(), 3, "{names:?}");
    // The hook was given the same report.
    let told: Value = serde_json::from_slice(&std::fs::read(&hook).unwrap()).unwrap();
    assert_eq!(&told["verdict"], verdict);
}

/// NCCL counts kernels wrongly after some broadcasts, and the plugin gives them up: calls are all that is seen.
#[test]
fn without_kernels_a_rank_is_named_all_the_same() {
    let job = Job::start_with(3, u64::MAX, &[("PRETENDED_BLIND", "20")]);
    let mut watcher = job.watch(&["--pid", &job.pids(), "--until-verdict", "--for", "120"]);
    // Ranks give kernels up one after the other: until all are named.
    let names_all = |told: &str| job.ranks.iter().all(|rank| told.contains(&rank.id().to_string()));
    loop {
        let watching = watcher.until("watching")["cannot_see"].to_string();
        if watching.contains("NCCL_ALLGATHERV_ENABLE=0") && names_all(&watching) {
            break;
        }
    }
    // A while in which nothing is wrong.
    let from = watcher.until("progress")["comms"][0]["ops_done"].as_u64();
    while watcher.until("progress")["comms"][0]["ops_done"].as_u64() < from.map(|ops| ops + 100) {}
    assert_eq!(count(&watcher.seen, "stall"), 0, "{:#?}", watcher.seen);
    job.signal(1, "-STOP");
    let stall = watcher.until("stall");
    assert_eq!(stall["suspects"], serde_json::json!([1]), "{stall}");
    let blamed = |watcher: Watcher| {
        let (code, events) = watcher.end();
        assert_eq!(code, Some(4));
        let verdict = &events.iter().find(|event| event["event"] == "verdict").unwrap()["report"]["verdict"];
        (verdict["cause"].clone(), verdict["culprits"][0]["rank"].clone())
    };
    assert_eq!(blamed(watcher), ("process-stopped".into(), 1.into()));

    let job = Job::start_with(3, u64::MAX, &[("PRETENDED_BLIND", "20"), ("PRETENDED_SLEEP", "2:150")]);
    // What lasts less than three seconds no ring calls a stall.
    let watcher = job.watch_with_floor("4", &["--pid", &job.pids(), "--until-verdict", "--for", "120"]);
    assert_eq!(blamed(watcher), ("stuck-outside-collective".into(), 2.into()));
}

#[test]
fn a_rank_that_comes_back_gets_no_verdict_and_what_follows_does() {
    let job = Job::start_with(3, u64::MAX, &[("PRETENDED_SLEEP", "2:150:14")]);
    let mut watcher = job.watch_with_floor("4", &["--pid", &job.pids(), "--until-verdict", "--for", "120"]);
    let stall = watcher.until("stall");
    assert_eq!(stall["suspects"], serde_json::json!([2]), "{stall}");
    watcher.until("recovered");
    // Within seconds of the first stall.
    let from = watcher.until("progress")["comms"][0]["ops_done"].as_u64();
    while watcher.until("progress")["comms"][0]["ops_done"].as_u64() < from.map(|ops| ops + 20) {}
    job.signal(1, "-STOP");
    watcher.until("stall");
    let (code, events) = watcher.end();
    assert_eq!(code, Some(4));
    let verdicts: Vec<_> = events.iter().filter(|event| event["event"] == "verdict").collect();
    let causes: Vec<_> = verdicts.iter().map(|v| v["report"]["verdict"]["cause"].as_str().unwrap()).collect();
    assert_eq!(causes, ["process-stopped"]);
    assert_eq!(std::fs::read_dir(job.out()).unwrap().count(), 1, "the bundle of the pause is gone");
}

/// The bundle goes where there is room, and the verdict is not lost.
#[test]
fn a_full_disk_costs_no_verdict() {
    let mut job = Job::start(3, u64::MAX);
    let (rings, out, room) = (job.rings(), job.out(), tempfile::tempdir().unwrap());
    let script = format!(
        "mount -t tmpfs -o size=8k none {out} && exec {} watch --json --interval 0.1 --stall-floor 1 --for 60 \
         --until-verdict --rings {rings} --out {out}",
        env!("CARGO_BIN_EXE_ringleader")
    );
    let child = Command::new("unshare")
        .args(["-m", "sh", "-c", &script])
        .env("TMPDIR", room.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn();
    // A machine that lets nobody mount.
    let Ok(child) = child else { return };
    let mut watcher = Watcher::of(child);
    if watcher.next().is_none() {
        return;
    }
    while watcher.until("progress")["comms"][0]["ops_done"].as_u64() < Some(60) {}
    job.signal(1, "-STOP");
    let (code, events) = watcher.end();
    assert_eq!(code, Some(4), "{events:#?}");
    let bundle = events.iter().find(|event| event["event"] == "bundle").unwrap()["path"].as_str().unwrap();
    assert!(Path::new(bundle).starts_with(room.path()), "{events:#?}");
    assert!(
        events.iter().any(
            |event| event["event"] == "note" && event["text"].as_str().unwrap().contains("No space left")
        ),
        "{events:#?}"
    );
    assert_eq!(count(&events, "verdict"), 1, "{events:#?}");
    job.ranks.iter_mut().for_each(|rank| drop(rank.kill()));
}

#[test]
fn a_signal_ends_the_watching_in_order() {
    let job = Job::start(2, u64::MAX);
    let mut watcher = job.watch(&["--pid", &job.pids(), "--for", "120"]);
    watcher.until("progress");
    let pid = watcher.child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    let (code, events) = watcher.end();
    assert_eq!(code, Some(0), "not killed by the signal: {events:#?}");
}

#[test]
fn a_job_that_ends_in_order_is_no_incident() {
    let mut job = Job::start(2, 150);
    let watcher = job.watch(&["--pid", &job.pids(), "--for", "120"]);
    // A parent collects its children, as a launcher does.
    job.ranks.iter_mut().for_each(|rank| assert!(rank.wait().unwrap().success()));
    let (code, events) = watcher.end();
    assert_eq!(code, Some(0), "{events:#?}");
    assert_eq!(
        (count(&events, "ended"), count(&events, "stall"), count(&events, "verdict")),
        (1, 0, 0),
        "{events:#?}"
    );
    assert!(std::fs::read_dir(job.out()).unwrap().next().is_none(), "nothing was written");
}

/// Of a job that is followed by its pid the exit code goes to somebody else.
#[test]
fn a_job_that_ends_its_communicators_after_an_error_is_judged_by_its_output() {
    let outcome = |words: &str| {
        let folder = tempfile::tempdir().unwrap();
        for name in ["rings", "out"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let log = std::fs::File::create(folder.path().join("train.log")).unwrap();
        let start = |rank| {
            let mut command = rank_command(folder.path(), rank, 2, 150);
            command.env("PRETENDED_WORDS", words).stdout(log.try_clone().unwrap()).spawn().unwrap()
        };
        let ranks = (0..2).map(start).collect();
        let mut job = Job { folder, ranks };
        let watcher = job.watch(&["--pid", &job.pids(), "--for", "120"]);
        job.ranks.iter_mut().for_each(|rank| assert!(rank.wait().unwrap().success()));
        let (_, events) = watcher.end();
        assert_eq!(count(&events, "ended"), 1, "{events:#?}");
        let verdict = events.iter().find(|event| event["event"] == "verdict");
        assert_eq!(count(&events, "bundle"), usize::from(verdict.is_some()), "{events:#?}");
        assert_eq!(std::fs::read_dir(job.out()).unwrap().count(), usize::from(verdict.is_some()));
        verdict.map(|event| event["report"]["verdict"].clone())
    };
    let traceback = "[rank1]: Traceback (most recent call last):\n[rank1]:   File \"/srv/tune.py\", line 40, in <module>\n\
                     [rank1]:     main()\n[rank1]:   File \"/srv/tune.py\", line 31, in main\n\
                     [rank1]: KeyError: 'dialogue'";
    let verdict = outcome(traceback).expect("a verdict");
    assert_eq!(verdict["cause"], "application-exception", "{verdict}");
    assert_eq!(verdict["culprits"][0]["rank"], 1, "{verdict}");
    // What a healthy job says is no reason to speak.
    assert_eq!(outcome("step 150 loss 1.92, 31 samples/s"), None);
    assert_eq!(outcome("WARNING: destroy_process_group() was not called before program exit"), None);
}

#[test]
fn a_job_killed_in_the_middle_leaves_its_last_word_in_the_rings() {
    let mut job = Job::start(2, u64::MAX);
    let mut watcher = job.watch(&["--for", "120", "--until-verdict"]);
    // Found by its rings alone.
    while watcher.until("progress")["comms"][0]["ranks_seen"] != 2 {}
    job.signal(1, "-STOP");
    thread::sleep(Duration::from_millis(300));
    for rank in &mut job.ranks {
        rank.kill().unwrap();
        rank.wait().unwrap();
    }
    let (_, events) = watcher.end();
    assert_eq!(count(&events, "verdict"), 1, "{events:#?}");
    let bundle = events.iter().find(|event| event["event"] == "bundle").unwrap()["path"].as_str().unwrap();
    let file = std::fs::File::open(bundle).unwrap();
    let mut archive = tar::Archive::new(zstd::stream::read::Decoder::new(file).unwrap());
    let mut in_flight = 0;
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        if entry.path().unwrap().to_string_lossy().contains("/rings/ring-") {
            let mut bytes = Vec::new();
            std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
            in_flight += ringleader_ring::State::parse(&bytes).unwrap().comms[0].in_flight.len();
        }
    }
    assert!(in_flight > 0, "rank 0 waited in an operation");
}

#[test]
fn the_command_is_started_with_the_plugin_and_its_exit_code_passed_on() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().to_str().unwrap();
    let run = |script: &str| {
        ringleader()
            .env("RINGLEADER_PLUGIN", "/opt/libringleader_nccl.so")
            .args(["watch", "--interval", "0.1", "--out", out, "--", "sh", "-c", script])
            .output()
            .unwrap()
    };
    let output = run("echo plugin is $NCCL_PROFILER_PLUGIN; echo oops >&2");
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "plugin is /opt/libringleader_nccl.so\n");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("oops\n") && said.contains("ended: the command ended with exit status: 0"),
        "{said}"
    );
    assert!(std::fs::read_dir(folder.path()).unwrap().next().is_none(), "what it printed is not kept");
    // One that fails leaves its output, and a bundle.
    let output = run("echo 'RuntimeError: no luck' >&2; exit 7");
    assert_eq!(output.status.code(), Some(7));
    let names: Vec<String> = std::fs::read_dir(folder.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(names.iter().any(|name| name.ends_with(".tar.zst")), "{names:?}");
    assert!(names.iter().any(|name| name.ends_with(".stderr.log")), "{names:?}");
    assert_eq!(run("kill -TERM $$").status.code(), Some(128 + 15));
    let output = ringleader().args(["watch", "--", "/nope/nothing"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn without_the_plugin_it_says_what_it_cannot_see() {
    let mut rank =
        Command::new("sleep").arg("600").env("RANK", "3").env("NCCL_RAS_ENABLE", "0").spawn().unwrap();
    let pid = rank.id().to_string();
    let output = ringleader()
        .args(["watch", "--json", "--for", "4", "--interval", "0.2", "--pid", &pid])
        .output()
        .unwrap();
    rank.kill().unwrap();
    rank.wait().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let events: Vec<Value> =
        output.stdout.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect();
    let watching = events.iter().rfind(|event| event["event"] == "watching").unwrap();
    assert_eq!((&watching["sees"], &watching["ranks"]), (&"processes".into(), &1.into()), "{watching}");
    let told = watching["cannot_see"].to_string();
    assert!(
        told.contains(&format!("no plugin in pid {pid}")) && told.contains("NCCL_PROFILER_PLUGIN="),
        "{told}"
    );
}

#[test]
fn once_is_a_table_of_how_the_job_stands() {
    let job = Job::start(2, u64::MAX);
    let rings = job.rings();
    // Until both have their ring.
    while ringleader_ring::rings_in(job.rings().as_ref()).len() < 2 {
        thread::sleep(Duration::from_millis(20));
    }
    let output = ringleader().args(["watch", "--once", "--rings", &rings]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(text.contains("2 ranks on 1 node, seen by the plugin"), "{text}");
    assert!(text.contains("default_pg"), "{text}");
}

/// Two nodes that meet in a folder: the one that is elected names a rank of the other, and both have collected.
#[test]
fn two_nodes_judge_together() {
    let job = Job::start(2, u64::MAX);
    let hub = format!("dir:{}", job.folder.path().join("hub").display());
    std::fs::create_dir(job.folder.path().join("hub")).unwrap();
    let bundles = job.folder.path().join("hub/bundles");
    let node = |name: &str, rank: usize| {
        let (pid, rings) = (job.ranks[rank].id().to_string(), job.rings());
        Watcher::start(&[
            "--json",
            "--interval",
            "0.2",
            "--stall-floor",
            "1",
            "--for",
            "120",
            "--rings",
            &rings,
            "--hub",
            &hub,
            "--unstable-node",
            name,
            "--pid",
            &pid,
        ])
    };
    let mut first = node("node-a", 0);
    while first.until("note")["text"] != "this node diagnoses for all" {}
    let mut second = node("node-b", 1);
    while first.until("watching")["ranks"] != 2 {}
    while second.until("note")["text"] != "node-a diagnoses for all" {}
    job.signal(1, "-STOP");
    let stall = first.until("stall");
    assert_eq!(stall["suspects"], serde_json::json!([1]), "{stall}");
    let verdict = first.until("verdict");
    assert_eq!(verdict["report"]["verdict"]["cause"], "process-stopped", "{verdict}");
    assert_eq!(verdict["report"]["verdict"]["culprits"][0]["rank"], 1, "{verdict}");
    second.until("bundle");
    assert_eq!(std::fs::read_dir(&bundles).unwrap().count(), 2);
    // The one that judges dies; the other takes over.
    drop(first);
    while second.until("note")["text"] != "this node diagnoses for all" {}
}

#[test]
fn what_cannot_be_watched_is_told() {
    for (arguments, code) in [
        // More than any kernel counts to, and a job that no Slurm has.
        (&["--pid", "4294967294"][..], 3),
        (&["--job", "4294967294"], 3),
        (&["--interval", "0"], 2),
        (&["--webhook", "nowhere"], 2),
        (&["--serve", "nonsense"], 2),
        (&["--hub", "carrier-pigeon"], 2),
        (&["--pid", "1", "--", "true"], 2),
    ] {
        let output = ringleader().arg("watch").args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}");
        assert!(output.stderr.starts_with(b"error: "), "{arguments:?}");
    }
}
