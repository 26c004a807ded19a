//! What belongs to a job and what does not: its ports, which nothing connects to, and the evidence of its siblings.

use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::cli::ringleader;

/// A rank that keeps a store of its own at the master's port, and takes anybody who connects for a rank: counted in a file.
/// The other rank is connected to it, as ranks are.
const STORE: &str = r#"
import os, socket, sys, threading, time

rank, port, folder = int(os.environ["RANK"]), int(os.environ["MASTER_PORT"]), sys.argv[1]
if rank == 0:
    listener = socket.create_server(("127.0.0.1", port))
    print("ready", flush=True)
    held = []
    while True:
        held.append(listener.accept())
        with open(os.path.join(folder, "connections"), "a") as out:
            out.write(".")
else:
    held = socket.create_connection(("127.0.0.1", port))
    print("ready", flush=True)
    time.sleep(600)
"#;

/// Processes, which end with the test.
struct Ranks(Vec<Child>);

impl Drop for Ranks {
    fn drop(&mut self) {
        for rank in &mut self.0 {
            // Fails only if it has ended.
            let _ = rank.kill();
            let _ = rank.wait();
        }
    }
}

fn has_python() -> bool {
    Command::new("python3").arg("--version").stdout(Stdio::null()).status().is_ok()
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Starts it and waits until it says that it is ready.
fn ready(command: &mut Command) -> Child {
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "ready\n");
    child
}

#[test]
fn nothing_connects_to_a_port_of_the_job() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("store.py"), STORE).unwrap();
    // Somebody else's port, at the address where the job's RAS is said to be.
    let stranger = TcpListener::bind("127.0.0.1:0").unwrap();
    stranger.set_nonblocking(true).unwrap();
    let port = free_port().to_string();
    let start = |rank: u32| {
        let mut command = Command::new("python3");
        command.arg(at.join("store.py")).arg(at).current_dir(at);
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", "2");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port);
        command.env("NCCL_RAS_ADDR", stranger.local_addr().unwrap().to_string());
        ready(&mut command)
    };
    let mut ranks = Ranks(vec![start(0)]);
    ranks.0.push(start(1));
    let count = || std::fs::read_to_string(at.join("connections")).unwrap_or_default().len();
    while count() == 0 {
        std::thread::yield_now();
    }
    let pids = ranks.0.iter().map(|rank| rank.id().to_string()).collect::<Vec<_>>().join(",");
    let out = at.join("out");
    let out = out.to_str().unwrap();
    let bundle = at.join("bundle.tar.zst");
    let runs: [&[&str]; 4] = [
        &["collect", "--pid", &pids, "-o", bundle.to_str().unwrap()],
        &["diagnose", "--live", "--pid", &pids],
        &["check", "--pid", &pids],
        &["watch", "--pid", &pids, "--for", "4", "--no-screen", "--out", out],
    ];
    for arguments in runs {
        let output = ringleader().args(arguments).output().unwrap();
        assert_ne!(output.status.code(), Some(1), "{output:?}");
        assert_eq!(count(), 1, "{} connected to the job's store", arguments[0]);
        assert!(stranger.accept().is_err(), "{} connected to another's port", arguments[0]);
    }
    // And it is known all the same who listens and who is connected.
    let only = ["check", "--pid", &pids, "--only", "master-address,master-port", "--verbose"];
    let output = ringleader().args(only).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("a process listens"), "{said}");
    let pid = ranks.0[0].id();
    assert!(said.contains(&format!("port {port}: pid {pid} of the job listens")), "{said}");
    assert!(Path::new(out).parent().is_some_and(Path::exists));
}

/// A parent of two jobs: it holds the logs of both open and hands them down, and writes one of its own. Each job is a launcher
/// of two ranks, whose output goes to the job's own log.
const SWEEP: &str = r#"
import os, subprocess, sys, time

role, folder = sys.argv[1], sys.argv[2]
log = lambda name: open(os.path.join(folder, name), "a")
if role == "sweep":
    ports = sys.argv[3:5]
    own = log("sweep.log")
    own.write("RuntimeError: word-of-the-sweep: CUDA error: device-side assert triggered\n")
    own.flush()
    logs = [log("job-a.log"), log("job-b.log")]
    handed = [open_file.fileno() for open_file in [own, *logs]]
    for name, port, output in zip("ab", ports, logs):
        env = dict(os.environ, MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
        command = [sys.executable, __file__, "launcher", folder, name]
        subprocess.Popen(command, env=env, pass_fds=handed, stdout=output, stderr=output)
    time.sleep(600)
elif role == "launcher":
    name = sys.argv[3]
    ranks = []
    for rank in range(2):
        env = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", JOB=name)
        ranks.append(subprocess.Popen([sys.executable, __file__, "rank", folder, name], env=env, close_fds=False))
    with open(os.path.join(folder, "pids-" + name), "w") as out:
        out.write(" ".join(str(pid) for pid in [os.getpid(), *(rank.pid for rank in ranks)]) + "\n")
    time.sleep(600)
else:
    name = sys.argv[3]
    more = open(os.path.join(folder, f"rank-{name}-{os.environ['RANK']}.log"), "w")
    more.write(f"own-log-of-job-{name}\n")
    more.flush()
    print(f"RuntimeError: word-of-job-{name}: CUDA error: device-side assert triggered", flush=True)
    open(os.path.join(folder, f"ready-{name}-{os.environ['RANK']}"), "w").close()
    time.sleep(600)
"#;

/// The sweep, and all that it has started: one group of processes, which ends with the test.
struct Sweep {
    folder: tempfile::TempDir,
    child: Child,
}

impl Drop for Sweep {
    fn drop(&mut self) {
        let group = format!("-{}", self.child.id());
        let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
        let _ = self.child.wait();
    }
}

impl Sweep {
    fn start() -> Option<Self> {
        use std::os::unix::process::CommandExt as _;
        if !has_python() {
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let at = folder.path();
        std::fs::write(at.join("sweep.py"), SWEEP).unwrap();
        let child = Command::new("python3")
            .arg(at.join("sweep.py"))
            .arg("sweep")
            .arg(at)
            .args([free_port().to_string(), free_port().to_string()])
            .process_group(0)
            .spawn()
            .unwrap();
        let sweep = Self { folder, child };
        let is_ready = |name: &str| (0..2).all(|rank| sweep.at(&format!("ready-{name}-{rank}")).exists());
        while !(is_ready("a") && is_ready("b")) {
            std::thread::yield_now();
        }
        Some(sweep)
    }

    fn at(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    /// The launcher of a job and its ranks.
    fn pids(&self, name: &str) -> Vec<String> {
        let text = std::fs::read_to_string(self.at(&format!("pids-{name}"))).unwrap();
        text.split_whitespace().map(str::to_owned).collect()
    }
}

/// Everything that a bundle holds, and the names of its members.
fn content(bundle: &Path) -> (String, Vec<String>) {
    let file = std::fs::File::open(bundle).unwrap();
    let mut archive = tar::Archive::new(zstd::stream::read::Decoder::new(file).unwrap());
    let (mut text, mut names) = (String::new(), Vec::new());
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        names.push(entry.path().unwrap().to_str().unwrap().to_owned());
        let mut bytes = Vec::new();
        std::io::Read::read_to_end(&mut entry, &mut bytes).unwrap();
        text.push_str(&String::from_utf8_lossy(&bytes));
    }
    (text, names)
}

#[test]
fn nothing_of_a_sibling_job_and_nothing_of_their_parent_is_taken() {
    let Some(sweep) = Sweep::start() else { return };
    let launcher = sweep.pids("a").remove(0);
    let bundle = sweep.at("a.tar.zst");
    let output = ringleader()
        .args(["collect", "--no-stacks", "--pid", &launcher, "-o", bundle.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let (text, names) = content(&bundle);
    assert!(text.contains("word-of-job-a") && text.contains("own-log-of-job-a"), "{names:?}");
    for planted in ["word-of-job-b", "own-log-of-job-b", "word-of-the-sweep", "job-b.log", "sweep.log"] {
        assert!(!text.contains(planted), "{planted} in {names:?}");
    }
    let output = ringleader()
        .args(["diagnose", "--live", "--no-ras", "--pid", &launcher, "--format", "json"])
        .output()
        .unwrap();
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(report.contains("word-of-job-a"), "{report}");
    assert!(!report.contains("word-of-job-b") && !report.contains("word-of-the-sweep"), "{report}");
}

/// One rank is named, and the other is beside it: they meet at one address.
#[test]
fn ranks_outside_of_the_named_tree_are_found() {
    let Some(sweep) = Sweep::start() else { return };
    let pids = sweep.pids("b");
    let bundle = sweep.at("b.tar.zst");
    let output = ringleader()
        .args(["collect", "--no-stacks", "--no-ras", "--pid", &pids[1], "-o", bundle.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let (text, names) = content(&bundle);
    assert!(names.iter().any(|name| name.ends_with("logs/rank-b-1.log")), "{names:?}");
    assert!(!text.contains("word-of-job-a") && !text.contains("own-log-of-job-a"), "{names:?}");
}

/// Four ranks of any program; one is elsewhere.
const HUNG: &str = r#"
import os, sys, time

rank = int(os.environ["RANK"])

def load_batch():
    time.sleep(600)

def all_reduce():
    time.sleep(600)

def step():
    print("ready", flush=True)
    if rank == 3:
        load_batch()
    all_reduce()

step()
"#;

fn hung(folder: &Path, ranks: &[u32]) -> Ranks {
    std::fs::write(folder.join("hung.py"), HUNG).unwrap();
    let port = free_port().to_string();
    let start = |rank: &u32| {
        let mut command = Command::new("python3");
        command.arg(folder.join("hung.py")).current_dir(folder);
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", "4");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port).env("NCCL_RAS_ENABLE", "0");
        ready(&mut command)
    };
    Ranks(ranks.iter().map(start).collect())
}

fn diagnosed(pid: u32) -> (serde_json::Value, String) {
    let run = |format: &str| {
        let arguments = ["diagnose", "--live", "--no-ras", "--pid", &pid.to_string(), "--format", format];
        ringleader().args(arguments).output().unwrap()
    };
    (
        serde_json::from_slice(&run("json").stdout).unwrap(),
        String::from_utf8_lossy(&run("text").stdout).into_owned(),
    )
}

/// Without plugin and GPU: the stacks of two looks are the report.
#[test]
fn hung_ranks_are_told_one_by_one_and_the_one_that_stands_apart_is_named() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ranks = hung(folder.path(), &[0, 1, 2, 3]);
    // One is named, and the others are found.
    let (report, text) = diagnosed(ranks.0[1].id());
    assert_eq!(report["verdict"]["cause"], "stuck-outside-collective", "{report:#}");
    assert_eq!(report["verdict"]["culprits"][0]["rank"], 3, "{report:#}");
    let rows = report["ranks"].as_array().unwrap();
    assert_eq!(rows.len(), 4, "{rows:#?}");
    assert_eq!((&rows[0]["rank"], &rows[0]["place"]["function"]), (&3.into(), &"load_batch".into()));
    assert_eq!((&rows[0]["state"], &rows[0]["has_moved"]), (&"S".into(), &false.into()));
    assert!(rows[0]["pid"] == ranks.0[3].id() && rows[0]["since"].as_f64().unwrap() >= 2.0, "{rows:#?}");
    assert!(text.contains("load_batch (hung.py:7)") && text.contains("ranks 0-2"), "{text}");
}

#[test]
fn a_rank_that_is_missing_is_named() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let ranks = hung(folder.path(), &[0, 1, 2]);
    let (report, text) = diagnosed(ranks.0[0].id());
    assert_ne!(report["verdict"]["cause"], "none", "{report:#}");
    assert_eq!((&report["ranks"][0]["rank"], &report["ranks"][0]["state"]), (&3.into(), &"missing".into()));
    assert!(text.contains("not visible on this node"), "{text}");
    let pid = ranks.0[0].id().to_string();
    let only = ["check", "--pid", &pid, "--only", "job-processes"];
    let output = ringleader().args(only).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.code() == Some(4) && said.contains("rank 3"), "{said}");
}

/// A rank raises, and hangs in its own teardown; the other waits for it.
const RAISES: &str = r#"
import atexit, os, time

rank = int(os.environ["RANK"])

def destroy():
    open("ready", "w").close()
    time.sleep(600)

def all_reduce():
    open("waits", "w").close()
    time.sleep(600)

def train():
    if rank == 1:
        atexit.register(destroy)
        raise ValueError("planted bad sample")
    all_reduce()

train()
"#;

#[test]
fn an_exception_before_a_hang_in_the_teardown_is_the_cause_and_its_rank_is_named() {
    if !has_python() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::write(at.join("raises.py"), RAISES).unwrap();
    let port = free_port().to_string();
    let start = |rank: u32| {
        let log = std::fs::File::create(at.join(format!("rank-{rank}.out"))).unwrap();
        let mut command = Command::new("python3");
        command.arg(at.join("raises.py")).current_dir(at).stdout(log.try_clone().unwrap()).stderr(log);
        command.env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string()).env("WORLD_SIZE", "2");
        command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", &port).env("NCCL_RAS_ENABLE", "0");
        command.spawn().unwrap()
    };
    let ranks = Ranks((0..2).map(start).collect());
    while !at.join("ready").exists() || !at.join("waits").exists() {
        std::thread::yield_now();
    }
    let (report, _) = diagnosed(ranks.0[0].id());
    assert_eq!(report["verdict"]["cause"], "application-exception", "{report:#}");
    assert_eq!(report["verdict"]["culprits"][0]["rank"], 1, "{report:#}");
    assert_eq!(report["verdict"]["culprits"][0]["pid"], ranks.0[1].id(), "{report:#}");
}

/// Nobody names a process: each job has a bundle of its own, and a verdict of its own.
#[test]
fn without_a_pid_every_job_of_the_node_is_taken_by_itself() {
    let Some(sweep) = Sweep::start() else { return };
    let output = ringleader()
        .args(["collect", "--no-stacks", "--no-ras", "-o", sweep.at("node.tar.zst").to_str().unwrap()])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    for (name, other) in [("a", "b"), ("b", "a")] {
        let launcher = sweep.pids(name).remove(0);
        // Other tests have jobs of their own.
        assert!(said.contains(&format!("pid {launcher}\n")), "{said}");
        let (text, names) = content(&sweep.at(&format!("node-pid{launcher}.tar.zst")));
        assert!(text.contains(&format!("own-log-of-job-{name}")), "{names:?}");
        assert!(!text.contains(&format!("own-log-of-job-{other}")), "{names:?}");
    }
    // Jobs of other tests come and go meanwhile.
    let live = || ringleader().args(["diagnose", "--live", "--no-ras", "--format", "json"]).output().unwrap();
    let output = (0..2).map(|_| live()).find(|output| !output.stdout.is_empty()).unwrap_or_else(live);
    let report: serde_json::Value =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let jobs: Vec<&str> =
        report["jobs"].as_array().unwrap().iter().filter_map(|job| job["id"].as_str()).collect();
    for name in ["a", "b"] {
        let launcher = sweep.pids(name).remove(0);
        assert!(jobs.iter().any(|id| id.ends_with(&format!("pid {launcher}"))), "{jobs:?}");
    }
    assert_eq!(report["verdict"], report["jobs"][0]["verdict"]);
}

/// An epilog has the job's number in its environment, and so has everything that it starts.
#[test]
fn who_looks_is_not_of_the_job() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = crate::cli::ringleader();
    command.args(["collect", "--no-logs", "--no-stacks", "--no-ras", "--job", "918275", "-o"]);
    let output = command.arg(folder.path().join("b.tar.zst")).env("SLURM_JOB_ID", "918275").output().unwrap();
    assert_eq!(output.status.code(), Some(3), "{}", crate::cli::err(&output));
    assert!(
        crate::cli::err(&output).contains("no process of Slurm job 918275"),
        "{}",
        crate::cli::err(&output)
    );
}
