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
    assert!(said.contains("the budget of 2 unknown restarts in 1h is used up"), "{said}");
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
    for name in ["child", "own"] {
        let pid: u64 = fs::read_to_string(job.path(name)).unwrap().trim().parse().unwrap();
        assert!(!is_alive(pid), "{name} {pid} is left");
    }
    assert_eq!(job.states().last().map(String::as_str), Some("stopped"));
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
    assert!(said.contains("step_10.safetensors, 15 steps to be done again"), "{said}");
    let decided = job.journal().into_iter().find(|record| record["to"] == "backoff").unwrap();
    assert_eq!((decided["step_lost"].as_u64(), decided["checkpoint"]["step"].as_u64()), (Some(15), Some(10)));
}

#[test]
fn a_wrong_verdict_costs_one_restart() {
    for (confidence, class, cause) in [
        ("low", "node", "gpu-fallen-off-bus"),
        ("medium", "program", "application-exception"),
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
    assert!(said.contains("line 3, backoff.factor: expected a number from 1 to 100"), "{said}");
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

/// Four network namespaces and three members of etcd: zoo/run/nodes.py. All of its scenes are run by hand; docs/run.md has
/// what came of them.
#[test]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
fn nodes_agree_over_etcd() {
    let script = crate::root().join("zoo/run/nodes.py");
    let output = Command::new("python3")
        .arg(script)
        .args(["--ringleader", env!("CARGO_BIN_EXE_ringleader"), "--only", "rank", "--steps", "60"])
        .output()
        .unwrap();
    if output.status.code() == Some(69) {
        eprintln!("{}", text(&output.stderr));
        return;
    }
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}
