//! `run` over small jobs of a shell: restarts, ends, signals, takeovers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// No restart is waited for, no node is examined: the tests are of other things.
const POLICY: &str = "version = 1\n[budget]\nunknown = { max = 2, per = \"1h\" }\n[backoff]\nfirst = \"0s\"\ncap = \"1s\"\n\
                      [preflight]\ncheck = false\n";

struct Job {
    folder: tempfile::TempDir,
}

impl Job {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("policy.toml"), POLICY).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, options: &[&str], script: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringleader"));
        command
            .args([
                "run",
                "--policy",
                "policy.toml",
                "--no-history",
                "--no-ras",
                "--state",
                "st",
                "--end-grace",
                "1",
            ])
            .args(options)
            .args(["--", "sh", "-c", script])
            .current_dir(self.folder.path())
            .stdin(Stdio::null());
        command
    }

    fn run(&self, options: &[&str], script: &str) -> Output {
        self.command(options, script).output().unwrap()
    }

    fn spawn(&self, options: &[&str], script: &str) -> Child {
        let out = || fs::File::options().create(true).append(true).open(self.path("said")).unwrap();
        self.command(options, script).stdout(out()).stderr(out()).spawn().unwrap()
    }

    fn journal(&self) -> Vec<Value> {
        let text = fs::read_to_string(self.path("st/journal.jsonl")).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn states(&self) -> Vec<String> {
        self.journal().iter().map(|record| record["to"].as_str().unwrap().to_owned()).collect()
    }

    fn held(&self) -> Value {
        let text = fs::read(self.path("st/holder.json")).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

fn wait(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_mins(1);
    while !is_so() {
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn signal(name: &str, pid: u64) {
    assert!(Command::new("kill").args([name, &pid.to_string()]).status().unwrap().success());
}

fn is_alive(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.trim_start().starts_with('Z'))
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_job_that_fails_once_is_restarted() {
    let job = Job::new();
    let script = "echo to-out; echo to-err >&2; echo \"attempt $RINGLEADER_ATTEMPT\"; test -e again || { touch again; exit 3; }";
    let output = job.run(&["--metrics", "run.prom"], script);
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert_eq!(out, "to-out\nattempt 1\nto-out\nattempt 2\n");
    assert_eq!(said.matches("to-err\n").count(), 2, "{said}");
    assert!(said.contains("unknown restart 1 of 2 in 1h"), "{said}");
    let states = job.states();
    let first = ["preflight", "launching", "running", "failing", "collecting", "deciding", "backoff"];
    let second = ["preflight", "launching", "running", "done"];
    assert_eq!(states, [&first[1..], &second[..]].concat(), "{states:?}");
    let decided = job.journal().into_iter().find(|record| record["to"] == "backoff").unwrap();
    assert_eq!(decided["schema"], "ringleader.run.v1");
    assert!(decided["verdict"]["bundle"].as_str().is_some_and(|path| Path::new(path).is_file()), "{decided}");
    assert_eq!(decided["decision"]["charged"], "unknown");
    let metrics = fs::read_to_string(job.path("run.prom")).unwrap();
    assert!(metrics.contains("state=\"done\"} 1.0"), "{metrics}");
    assert!(metrics.contains("ringleader_run_failures{") && !metrics.contains("EOF"), "{metrics}");
    // A second run has a journal of its own.
    assert!(job.run(&[], "true").status.success());
    assert_eq!(job.states(), second[1..]);
    assert!(job.path("st.1/journal.jsonl").exists());
}

#[test]
fn budgets_end_and_the_launchers_code_is_kept() {
    let job = Job::new();
    let output = job.run(&["--on-decision", "cat >> decisions"], "exit 3");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("the budget of 2 unknown restarts in 1h is exhausted"), "{said}");
    assert_eq!(job.states().iter().filter(|state| *state == "running").count(), 3);
    let decisions = fs::read_to_string(job.path("decisions")).unwrap();
    assert_eq!(decisions.matches("ringleader.run.v1").count(), 3, "{decisions}");
}

#[test]
fn signals_are_passed_on_and_nothing_is_left() {
    let job = Job::new();
    let script = "trap 'echo saved; exit 7' TERM; (sleep 300 & echo $! > child; setsid sleep 300 & echo $! > own; wait) & \
                  echo up; while :; do sleep 0.1; done";
    let mut run = job.spawn(&[], script);
    wait("the job's start", || {
        job.path("own").exists()
            && fs::read_to_string(job.path("said")).is_ok_and(|said| said.contains("up\n"))
    });
    signal("-TERM", u64::from(run.id()));
    assert_eq!(run.wait().unwrap().code(), Some(7));
    let said = fs::read_to_string(job.path("said")).unwrap();
    assert!(said.contains("saved\n") && said.contains("ended from outside (SIGTERM"), "{said}");
    // Cleaning up takes longer than the supervisor's exit: no other supervisor follows it.
    assert!(!said.contains("took over") && said.matches("ringleader: stopped: ").count() == 1, "{said}");
    for name in ["child", "own"] {
        let pid: u64 = fs::read_to_string(job.path(name)).unwrap().trim().parse().unwrap();
        assert!(!is_alive(pid), "{name} {pid} is left");
    }
    assert_eq!(job.states().last().map(String::as_str), Some("stopped"));
    let verdict =
        job.journal().into_iter().find_map(|record| record["verdict"]["cause"].as_str().map(str::to_owned));
    assert_eq!(verdict.as_deref(), Some("stopped-from-outside"), "{said}");
}

#[test]
fn what_a_signal_means_is_the_programs_matter() {
    let job = Job::new();
    let script = "trap 'echo saving' USR1; echo up; while ! test -e go; do sleep 0.1; done";
    let mut run = job.spawn(&[], script);
    let said = |words: &str| fs::read_to_string(job.path("said")).is_ok_and(|said| said.contains(words));
    wait("the job's start", || said("up\n"));
    signal("-USR1", u64::from(run.id()));
    wait("the program's answer", || said("saving\n"));
    fs::write(job.path("go"), "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    assert_eq!(job.states().last().map(String::as_str), Some("done"));
}

#[test]
fn every_signal_is_passed_on_and_a_suspended_job_is_no_stall() {
    let job = Job::new();
    let script = "for s in WINCH ALRM XCPU 40 64; do trap \"echo got-$s\" $s; done; i=0; \
                  while ! test -e go; do i=$((i+1)); echo step $i; sleep 0.1; done";
    let mut run = job.spawn(&["--silence-floor", "1"], script);
    let said = || fs::read_to_string(job.path("said")).unwrap_or_default();
    wait("the job's start", || said().contains("step 9\n"));
    for (name, words) in [
        ("-WINCH", "got-WINCH"),
        ("-ALRM", "got-ALRM"),
        ("-XCPU", "got-XCPU"),
        ("-40", "got-40"),
        ("-64", "got-64"),
    ] {
        signal(name, u64::from(run.id()));
        wait(words, || said().contains(words));
    }
    signal("-TSTP", u64::from(run.id()));
    let launcher = job.held()["launched"]["pid"].as_u64().unwrap();
    let is_stopped =
        || fs::read_to_string(format!("/proc/{launcher}/stat")).is_ok_and(|stat| stat.contains(") T "));
    wait("the stop", is_stopped);
    std::thread::sleep(Duration::from_secs(4));
    assert!(is_stopped() && !said().contains("no step for"), "{}", said());
    signal("-CONT", u64::from(run.id()));
    wait("its continuation", || !is_stopped());
    fs::write(job.path("go"), "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0), "{}", said());
}

/// Takes one request and answers it; what was posted. None if nobody calls within a minute.
fn listen(listener: std::net::TcpListener) -> std::thread::JoinHandle<Option<String>> {
    use std::io::{Read as _, Write as _};
    std::thread::spawn(move || {
        listener.set_nonblocking(true).ok()?;
        let until = Instant::now() + Duration::from_mins(1);
        let mut stream = loop {
            match listener.accept() {
                Ok((stream, _)) => break stream,
                Err(_) if Instant::now() < until => std::thread::sleep(Duration::from_millis(20)),
                Err(_) => return None,
            }
        };
        stream.set_nonblocking(false).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(20))).ok()?;
        let mut bytes = Vec::new();
        let mut part = [0; 4096];
        while !bytes.ends_with(b"}") {
            match stream.read(&mut part) {
                Ok(n @ 1..) => bytes.extend_from_slice(&part[..n]),
                _ => break,
            }
        }
        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").ok()?;
        Some(text(&bytes))
    })
}

#[test]
fn decisions_are_posted_and_nodes_remembered() {
    let job = Job::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let posted = listen(listener);
    let verdict = serde_json::json!({"cause": "gpu-fallen-off-bus", "class": "node", "confidence": "high", "summary": "planted",
                                     "culprits": [{"host": "n7", "gpu": "0000:07:00.0"}]});
    fs::write(job.path("verdict"), verdict.to_string()).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringleader"));
    command.args([
        "run",
        "--policy",
        "policy.toml",
        "--no-ras",
        "--state",
        "st",
        "--history",
        "nodes.db",
        "--node",
        "n7",
    ]);
    command.args(["--unstable-verdict", "verdict", "--webhook", &url, "--", "sh", "-c"]);
    command.arg("test -e again || { touch again; exit 1; }").current_dir(job.folder.path());
    let output = command.output().unwrap();
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("a failure every "), "{said}");
    let posted = posted.join().unwrap().unwrap_or_default();
    assert!(posted.starts_with("POST /hook") && posted.contains("gpu-fallen-off-bus: "), "{posted}{said}");
    let history = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ringleader"));
        let output = command
            .args(["history", "--file", "nodes.db"])
            .args(words)
            .current_dir(job.folder.path())
            .output();
        text(&output.unwrap().stdout)
    };
    assert!(history(&[]).contains("\nn7 "), "{}", history(&[]));
    let told = history(&["n7"]);
    assert!(told.contains("gpu-fallen-off-bus (node, high)") && told.contains("planted"), "{told}");
    let row: Value = serde_json::from_str(&history(&["--json"])).unwrap();
    assert_eq!(
        (row["nodes"][0]["of_node"].as_u64(), row["incidents"][0]["gpu"].as_str()),
        (Some(1), Some("0000:07:00.0"))
    );
}

#[test]
fn a_supervisor_that_dies_is_replaced_and_the_job_goes_on() {
    let job = Job::new();
    let mut run = job.spawn(&[], "echo first; while ! test -e go; do sleep 0.1; done; echo last; test -e again || { touch again; exit 5; }");
    wait("the job's start", || job.held()["launched"]["pid"].is_u64());
    wait("its first word", || {
        fs::read_to_string(job.path("said")).is_ok_and(|said| said.contains("first\n"))
    });
    let launcher = job.held()["launched"]["pid"].as_u64().unwrap();
    for n in 2..4 {
        wait("a supervisor", || job.held()["supervisor"].is_u64());
        signal("-KILL", job.held()["supervisor"].as_u64().unwrap());
        wait("another supervisor", || job.held()["n_supervisors"] == n && job.held()["supervisor"].is_u64());
    }
    assert!(is_alive(launcher), "the job was taken along");
    wait("the takeover", || {
        fs::read_to_string(job.path("said")).is_ok_and(|said| said.contains("took over"))
    });
    fs::write(job.path("go"), "").unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(0));
    let said = fs::read_to_string(job.path("said")).unwrap();
    assert_eq!(said.matches("last\n").count(), 2, "{said}");
    let launches = job.states().iter().filter(|state| *state == "launching").count();
    assert_eq!(launches, 2, "{:?}", job.states());
}

fn safetensors(n: usize) -> Vec<u8> {
    let header = format!("{{\"w\":{{\"dtype\":\"U8\",\"shape\":[{n}],\"data_offsets\":[0,{n}]}}}}");
    [&(header.len() as u64).to_le_bytes()[..], header.as_bytes(), &vec![1; n]].concat()
}

#[test]
fn a_cut_checkpoint_is_passed_over() {
    let job = Job::new();
    fs::create_dir(job.path("ckpt")).unwrap();
    fs::write(job.path("ckpt/step_10.safetensors"), safetensors(64)).unwrap();
    let script = "echo \"from $RINGLEADER_CHECKPOINT_STEP $0\"; test -e again && exit 0; touch again; echo step 25 loss 1; \
                  cp cut ckpt/step_20.safetensors; exit 1";
    fs::write(job.path("cut"), &safetensors(64)[..50]).unwrap();
    let mut command = job.command(&["--checkpoints", "ckpt"], script);
    command.args(["--resume", "{checkpoint}"]);
    let output = command.output().unwrap();
    let (out, said) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(out.matches("from 10 --resume\n").count(), 2, "{out}{said}");
    assert!(said.contains("step_20.safetensors: incomplete: "), "{said}");
    assert!(said.contains("step_10.safetensors, 15 steps to repeat"), "{said}");
    let decided = job.journal().into_iter().find(|record| record["to"] == "backoff").unwrap();
    assert_eq!((decided["step_lost"].as_u64(), decided["checkpoint"]["step"].as_u64()), (Some(15), Some(10)));
}

#[test]
fn a_cut_checkpoint_is_told_even_if_there_is_no_other() {
    let job = Job::new();
    fs::create_dir(job.path("ckpt")).unwrap();
    fs::write(job.path("cut"), &safetensors(64)[..50]).unwrap();
    let script =
        "test -e again && exit 0; touch again; echo step 5 loss 1; cp cut ckpt/step_5.safetensors; exit 1";
    let output = job.run(&["--checkpoints", "ckpt"], script);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(said.contains("checkpoint skipped: ckpt/step_5.safetensors: incomplete: "), "{said}");
    assert!(said.contains("next: from the beginning, 5 steps to repeat"), "{said}");
}

#[test]
fn a_wrong_verdict_costs_one_restart() {
    for (confidence, class, cause) in [
        ("low", "node", "gpu-fallen-off-bus"),
        ("medium", "program", "application-exception"),
        ("low", "external", "process-stopped"),
        ("medium", "external", "time-limit"),
        ("high", "node", "nvlink-error"),
    ] {
        let job = Job::new();
        let verdict = serde_json::json!({"cause": cause, "class": class, "confidence": confidence, "summary": "planted",
                                         "culprits": [{"host": "somebody-else"}]});
        fs::write(job.path("verdict"), verdict.to_string()).unwrap();
        let output = job.run(&["--unstable-verdict", "verdict"], "test -e again || { touch again; exit 1; }");
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{confidence}: {said}");
        assert_eq!(job.states().iter().filter(|state| *state == "running").count(), 2, "{said}");
    }
}

#[test]
fn what_cannot_be_obeyed_starts_nothing() {
    let job = Job::new();
    fs::write(job.path("policy.toml"), "version = 1\n[backoff]\nfactor = 0\n").unwrap();
    let output = job.run(&[], "touch started");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2));
    let lines: Vec<&str> = said.lines().collect();
    let first = "error: failed to read the policy policy.toml, line 3, backoff.factor: expected a number from 1 to 100, not 0";
    assert_eq!(lines[..3], [first, "    factor = 0", "             ^"], "{said}");
    let output = job.run(&["--set", "exclude.mode=on"], "touch started");
    assert_eq!(output.status.code(), Some(2));
    let absent = Command::new(env!("CARGO_BIN_EXE_ringleader"))
        .args(["run", "--state", "st", "--", "/absent/torchrun"])
        .current_dir(job.folder.path())
        .output()
        .unwrap();
    assert!(!absent.status.success() && text(&absent.stderr).contains("start /absent/torchrun"));
    assert!(!job.path("started").exists() && !job.path("st").exists());
}

#[test]
fn a_node_that_fails_its_examination_does_not_join() {
    let job = Job::new();
    let policy = format!("{POLICY}command = \"test -e well || {{ echo no fabric; exit 1; }}\"\n");
    fs::write(job.path("policy.toml"), policy).unwrap();
    let mut run = job.spawn(&[], "echo started");
    wait("the refusal", || {
        fs::read_to_string(job.path("said")).is_ok_and(|said| said.contains("cannot join an attempt: "))
    });
    let said = fs::read_to_string(job.path("said")).unwrap();
    assert!(said.contains("no fabric") && !said.contains("started"), "{said}");
    signal("-TERM", u64::from(run.id()));
    assert_eq!(run.wait().unwrap().code(), Some(6));
}

/// Runs a scene of four network namespaces and three members of etcd: zoo/run/nodes.py.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn scene(name: &str) {
    let script = crate::root().join("zoo/run/nodes.py");
    let output = Command::new("python3")
        .arg(script)
        .args(["--ringleader", env!("CARGO_BIN_EXE_ringleader"), "--only", name])
        .output()
        .unwrap();
    if output.status.code() == Some(69) {
        eprintln!("{}", text(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn a_rank_is_killed_on_one_of_four_nodes() {
    scene("rank");
}

#[test]
fn evidence_goes_through_the_hub_where_nodes_share_no_files() {
    scene("apart");
}

#[test]
fn supervisors_are_killed_on_four_nodes() {
    scene("supervisor");
}

#[test]
fn the_supervisor_of_the_node_that_prints_steps_is_stopped() {
    scene("stopped");
}

#[test]
fn etcd_is_unreachable_for_the_node_that_prints_steps() {
    scene("alone");
}

#[test]
fn the_leader_of_etcd_is_killed_and_comes_back() {
    scene("leader");
}

#[test]
fn etcd_is_full_while_a_rank_is_killed() {
    scene("full");
}

#[test]
fn the_link_of_one_of_four_nodes_is_cut() {
    scene("link");
}

#[test]
fn a_node_that_was_cut_off_joins_the_next_attempt() {
    scene("back");
}

#[test]
fn a_node_that_was_mended_joins_the_next_attempt() {
    scene("mended");
}

/// Runs one launcher with a rank killed, a program error and a signal: zoo/run/launchers.py. `ZOO_BIN` names a folder with more
/// launchers than the PATH has, such as that of a virtual environment.
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn launcher(name: &str) {
    let mut command = Command::new("python3");
    command.arg(crate::root().join("zoo/run/launchers.py"));
    command.args(["--ringleader", env!("CARGO_BIN_EXE_ringleader"), "--only", name]);
    if let Some(bin) = std::env::var_os("ZOO_BIN") {
        command.arg("--bin").arg(bin);
    }
    let output = command.output().unwrap();
    if output.status.code() == Some(69) {
        eprintln!("{}", text(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[test]
fn plain_python_is_supervised() {
    launcher("python");
}

#[test]
fn torchrun_is_supervised() {
    launcher("torchrun");
}

#[test]
fn accelerate_is_supervised() {
    launcher("accelerate");
}

#[test]
fn deepspeed_is_supervised() {
    launcher("deepspeed");
}

#[test]
fn mpirun_is_supervised() {
    launcher("mpirun");
}

#[test]
fn tasks_of_srun_are_supervised() {
    launcher("srun");
}

/// As PID 1 of a namespace of its own: orphans are reaped, signals passed on, and nothing is left.
#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn it_works_as_pid_1() {
    let job = Job::new();
    let inner = job.command(
        &[],
        "(sh -c 'sleep 0.2 & exit' & ); sleep 1; cat /proc/[0-9]*/status 2>/dev/null | grep -c \"^State:.Z\"; trap 'echo saved; exit 9' TERM; touch up; \
         while :; do sleep 0.1; done",
    );
    let words = std::iter::once(inner.get_program()).chain(inner.get_args());
    let said = fs::File::create(job.path("said")).unwrap();
    let mut outer = Command::new("unshare");
    outer.args(["--pid", "--fork", "--mount-proc", "--kill-child"]).args(words);
    outer.current_dir(job.folder.path()).stdin(Stdio::null());
    let allowed = Command::new("unshare").args(["--pid", "--fork", "--mount-proc", "true"]).output();
    if !allowed.is_ok_and(|output| output.status.success()) {
        eprintln!("NOT TESTED: no namespace of processes can be made here");
        return;
    }
    let mut run = outer.stdout(said.try_clone().unwrap()).stderr(said).spawn().unwrap();
    wait("the job's start", || job.path("up").exists());
    assert_eq!(job.held()["pid"], 1);
    // `unshare` waits for PID 1, which is its only child.
    let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", run.id())).unwrap();
    signal("-TERM", children.trim().parse().unwrap());
    assert_eq!(run.wait().unwrap().code(), Some(9));
    let said = fs::read_to_string(job.path("said")).unwrap();
    assert!(said.contains("saved\n") && said.contains("ended from outside (SIGTERM"), "{said}");
    // Cleaning up takes longer than the supervisor's exit: no other supervisor follows it.
    assert!(!said.contains("took over") && said.matches("ringleader: stopped: ").count() == 1, "{said}");
    assert!(said.lines().any(|line| line == "0"), "zombies are left: {said}");
}

#[test]
fn a_folder_has_one_run() {
    let job = Job::new();
    let mut first = job.spawn(&[], "touch up; while ! test -e go; do sleep 0.1; done");
    wait("the job's start", || job.path("up").exists());
    let second = job.run(&[], "touch other");
    assert_eq!(second.status.code(), Some(2), "{}", text(&second.stderr));
    assert!(text(&second.stderr).contains("another run is using it") && !job.path("other").exists());
    fs::write(job.path("go"), "").unwrap();
    assert_eq!(first.wait().unwrap().code(), Some(0));
    assert!(job.run(&[], "touch other").status.success() && job.path("other").exists());
}

#[test]
fn stalls_are_told_with_their_end() {
    let job = Job::new();
    // Steps, then silence beyond five times the pause, then it goes on.
    let script = "i=0; while [ $i -lt 12 ]; do i=$((i+1)); echo step $i; sleep 0.1; done; while ! grep -q collecting told; do \
                  sleep 0.1; done; while [ $i -lt 40 ]; do i=$((i+1)); echo step $i; sleep 0.1; done";
    fs::write(job.path("told"), "").unwrap();
    let output = job.run(&["--silence-floor", "1", "--on-decision", "cat >> told; echo >> told"], script);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = fs::read_to_string(job.path("told")).unwrap();
    let states: Vec<Value> = told
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .map(|record| record["to"].clone())
        .collect();
    assert_eq!(states, ["collecting", "running"], "{told}");
    assert!(told.contains("no step for") && told.contains("\"text\":"), "{told}");
}

/// A job that printed an exception, went on and is silent in an evaluation is not ended; neither is one that printed it
/// during the evaluation and lives.
#[test]
fn an_exception_that_was_handled_ends_no_attempt() {
    let trace = "printf 'Traceback (most recent call last):\\n  File \"/x/job.py\", line 6, in <module>\\n    open(1)\\n\
                 FileNotFoundError: [Errno 2] No such file or directory: x\\n' >&2";
    for (before, within) in [(trace, "true"), ("true", trace)] {
        let job = Job::new();
        let script = format!(
            "i=0; while [ $i -lt 14 ]; do i=$((i+1)); echo step $i; sleep 0.1; [ $i != 5 ] || {before}; done; \
             echo evaluating; {within}; sleep 15; echo step 15"
        );
        fs::write(job.path("policy.toml"), format!("{POLICY}[stall]\ngrace = \"1s\"\n")).unwrap();
        let mut run = job.spawn(&["--silence-floor", "1"], &script);
        assert_eq!(run.wait().unwrap().code(), Some(0));
        let said = fs::read_to_string(job.path("said")).unwrap();
        let runs = job.states().iter().filter(|state| *state == "launching").count();
        assert_eq!(runs, 1, "{said}");
        assert!(said.contains("collecting evidence") && said.contains("the job continues"), "{said}");
    }
}

#[test]
fn batches_that_are_counted_anew_in_each_epoch_are_progress() {
    let job = Job::new();
    let script = "for e in 1 2 3; do b=0; while [ $b -lt 20 ]; do b=$((b+1)); echo \"epoch $e batch $b/20 loss 1.0\"; \
                  sleep 0.1; done; done";
    let output = job.run(&["--silence-floor", "3"], script);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    assert!(!said.contains("no step for") && !said.contains("effective training time"), "{said}");
    assert!(job.states().iter().all(|state| state != "collecting"), "{said}");
}

#[test]
fn the_report_does_not_contradict_the_decision() {
    let job = Job::new();
    let output = job.run(&[], "kill -SEGV $$");
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(139), "{said}");
    assert!(said.contains("process-crashed (unknown): ") && !said.contains("undecided"), "{said}");
    let told = fs::read_to_string(job.path("st/attempts/3/decision.txt")).unwrap();
    assert!(told.contains("process-crashed (unknown, confidence high)"), "{told}");
    assert!(
        told.contains("  no further attempt") && told.contains("the evidence of this node alone shows;"),
        "{told}"
    );
}

#[test]
fn the_newest_checkpoint_is_printed() {
    let job = Job::new();
    let ask = || {
        Command::new(env!("CARGO_BIN_EXE_ringleader"))
            .args(["run", "--print-checkpoint", "--checkpoints", "ckpt"])
            .current_dir(job.folder.path())
            .output()
            .unwrap()
    };
    assert_eq!(ask().status.code(), Some(3));
    fs::create_dir(job.path("ckpt")).unwrap();
    fs::write(job.path("ckpt/step_10.safetensors"), safetensors(64)).unwrap();
    fs::write(job.path("ckpt/step_20.safetensors"), &safetensors(64)[..40]).unwrap();
    let output = ask();
    assert_eq!(
        (output.status.code(), text(&output.stdout).as_str()),
        (Some(0), "ckpt/step_10.safetensors\n")
    );
    assert!(text(&output.stderr).contains("checkpoint skipped: ckpt/step_20.safetensors: incomplete"));
}

/// Three supervisors of one machine meet in a folder; the job needs two nodes. One rank fails once; the planted verdict is certain
/// and blames the other node: the spare replaces an innocent node, and the job ends after one restart.
#[test]
fn a_false_culprit_costs_one_restart_and_a_spare() {
    let job = Job::new();
    fs::write(job.path("policy.toml"), format!("{POLICY}[exclude]\nmax_share = 0.5\n")).unwrap();
    let verdict = serde_json::json!({"cause": "gpu-fallen-off-bus", "class": "node", "confidence": "high", "summary": "planted",
                                     "culprits": [{"host": "a"}]});
    fs::write(job.path("verdict"), verdict.to_string()).unwrap();
    let hub = format!("dir:{}", job.path("hub").display());
    let script = "echo \"$RINGLEADER_GENERATION $NODE\" >> started; test \"$RINGLEADER_GENERATION\" = 1 || exit 0; \
                  sleep 4; test $NODE = b && exit 1; sleep 60";
    let start = |node: &str| {
        let said = fs::File::create(job.path(&format!("said-{node}"))).unwrap();
        Command::new(env!("CARGO_BIN_EXE_ringleader"))
            .args([
                "run",
                "--policy",
                "policy.toml",
                "--no-history",
                "--no-ras",
                "--end-grace",
                "1",
                "--hub",
                &hub,
            ])
            .args(["--node", node, "--nodes", "2", "--unstable-verdict", "verdict", "--", "sh", "-c", script])
            .env("NODE", node)
            .current_dir(job.folder.path())
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap()
    };
    let has_begun = |node: &str| {
        fs::read_to_string(job.path("started")).is_ok_and(|started| started.contains(&format!("1 {node}\n")))
    };
    let (a, b) = (start("a"), start("b"));
    wait("the first attempt", || has_begun("a") && has_begun("b"));
    let mut runs = [a, b, start("c")];
    let codes: Vec<Option<i32>> = runs.iter_mut().map(|run| run.wait().unwrap().code()).collect();
    let said = fs::read_to_string(job.path("said-b")).unwrap();
    let started = fs::read_to_string(job.path("started")).unwrap();
    let mut lines: Vec<&str> = started.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["1 a", "1 b", "2 b", "2 c"], "{said}");
    assert!(said.contains("excluded from the next attempt"), "{said}");
    assert_eq!(codes, [Some(0); 3], "{said}");
}

/// Two supervisors of one machine meet in a folder. One node is found bad: the launcher's range becomes the number that is left.
#[test]
fn an_elastic_range_is_narrowed_to_the_nodes_that_are_left() {
    let job = Job::new();
    fs::create_dir(job.path("bin")).unwrap();
    let torchrun = "#!/bin/sh\necho \"$NODE: $*\" >> started\ntest \"$RINGLEADER_GENERATION\" = 2 && exit 0\nsleep 2; exit 1\n";
    fs::write(job.path("bin/torchrun"), torchrun).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(job.path("bin/torchrun"), mode).unwrap();
    fs::write(job.path("policy.toml"), format!("{POLICY}[exclude]\nmax_share = 0.5\n")).unwrap();
    let verdict = serde_json::json!({"cause": "nvlink-error", "class": "node", "confidence": "high", "summary": "planted",
                                     "culprits": [{"host": "a"}]});
    fs::write(job.path("verdict"), verdict.to_string()).unwrap();
    let hub = format!("dir:{}", job.path("hub").display());
    let start = |node: &str| {
        let said = fs::File::create(job.path(&format!("said-{node}"))).unwrap();
        Command::new(env!("CARGO_BIN_EXE_ringleader"))
            .args([
                "run",
                "--policy",
                "policy.toml",
                "--no-history",
                "--no-ras",
                "--end-grace",
                "1",
                "--hub",
                &hub,
                "--node",
                node,
            ])
            .args([
                "--unstable-verdict",
                "verdict",
                "--address",
                "127.0.0.1",
                "--",
                "bin/torchrun",
                "--nnodes",
                "1:2",
            ])
            .args(["--rdzv-id", "x", "--rdzv-backend", "c10d", "--rdzv-endpoint", "a:29400", "t.py"])
            .env("NODE", node)
            .current_dir(job.folder.path())
            .stdin(Stdio::null())
            .stdout(said.try_clone().unwrap())
            .stderr(said)
            .spawn()
            .unwrap()
    };
    let mut runs = [start("a"), start("b")];
    let codes: Vec<Option<i32>> = runs.iter_mut().map(|run| run.wait().unwrap().code()).collect();
    let started = fs::read_to_string(job.path("started")).unwrap();
    let said = fs::read_to_string(job.path("said-b")).unwrap();
    let mut lines: Vec<&str> = started.lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        [
            "a: --nnodes 2 --rdzv-id x-1 --rdzv-backend c10d --rdzv-endpoint a:29400 t.py",
            "b: --nnodes 1 --rdzv-id x-2 --rdzv-backend c10d --rdzv-endpoint 127.0.0.1:29400 t.py",
            "b: --nnodes 2 --rdzv-id x-1 --rdzv-backend c10d --rdzv-endpoint a:29400 t.py",
        ],
        "{said}"
    );
    // The excluded node is not a failure of the job.
    assert_eq!(codes, [Some(0), Some(0)], "{said}");
}

/// The files of `--print-scripts` on a real Slurm: zoo/run/slurm.py. All of its scenes are run by hand; docs/run.md has what came of
/// them.
#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn sbatch_on_a_real_slurm() {
    let script = crate::root().join("zoo/run/slurm.py");
    let output = Command::new("python3")
        .arg(script)
        .args(["--ringleader", env!("CARGO_BIN_EXE_ringleader"), "--only", "spare", "--steps", "60"])
        .output()
        .unwrap();
    if output.status.code() == Some(69) {
        eprintln!("{}", text(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
