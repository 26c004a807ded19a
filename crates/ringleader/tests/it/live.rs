//! `collect` and `diagnose --live` on real processes of this machine: what a bundle holds, and what it must not.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use ringleader_bundle::{Item, ItemOutcome, Manifest};

/// A rank of a job: says what NCCL says, has a second thread, and waits in `step`.
const RANK: &str = r#"
import mmap, os, socket, sys, threading, time

rank, pid = int(os.environ["RANK"]), os.getpid()
host = socket.gethostname().split(".")[0]
log = open(os.environ["NCCL_DEBUG_FILE"].replace("%h", host).replace("%p", str(pid)), "w")
head = f"{host}:{pid}:{pid} [{rank}] NCCL INFO "
comm = f"comm 0x55d0c0de{rank}000 rank {rank} nranks 2 cudaDev {rank} nvmlDev {rank} busId {0x1b000 + rank * 0x1000:x} commId 0x7c4f041386568a79"
log.write(head + "NCCL version 2.28.9+cuda13.0\n")
log.write(head + f"ncclCommInitRankConfig {comm} - Init START\n")
log.write(head + f"ncclCommInitRankConfig {comm} - Init COMPLETE\n")
log.flush()

def loader():
    time.sleep(600)

def step():
    print("ready", flush=True)
    time.sleep(600)

def ras(listener, report):
    # A RAS service of NCCL before 2.28.7 that gives this report.
    while True:
        stream = listener.accept()[0]
        lines = stream.makefile("rw")
        for line in lines:
            if line.startswith("CLIENT PROTOCOL"):
                lines.write("SERVER PROTOCOL 2\n")
            elif line.startswith("SET FORMAT"):
                lines.write("ERROR: Unknown command SET\n")
            elif line.startswith("VERBOSE STATUS"):
                lines.write(report)
                lines.flush()
                break
            else:
                lines.write("OK\n")
            lines.flush()
        lines.close()
        stream.close()

if rank == 0 and "RAS_REPORT" in os.environ:
    # It asks only who has loaded an NCCL that has the service.
    with open("libnccl.so.2.27.3", "wb") as out:
        out.write(bytes(4096))
    library = mmap.mmap(os.open("libnccl.so.2.27.3", os.O_RDONLY), 4096, prot=mmap.PROT_READ)
    port = int(os.environ["NCCL_RAS_ADDR"].split(":")[1])
    report = open(os.environ["RAS_REPORT"]).read()
    listener = socket.create_server(("127.0.0.1", port))
    threading.Thread(target=ras, args=(listener, report), name="loader", daemon=True).start()

threading.Thread(target=loader, name="loader", daemon=True).start()
step()
"#;
/// In environment and on command lines; nowhere else.
const SECRETS: [&str; 3] = ["planted-in-the-environment", "planted-after-a-flag", "planted-in-a-flag"];

/// Two ranks, which end with the test.
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
    /// None where there is no Python.
    fn start(variables: &[(&str, &str)]) -> Option<Self> {
        Command::new("python3").arg("--version").stdout(Stdio::null()).status().ok()?;
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("train.py"), RANK).unwrap();
        let mut job = Self { folder, ranks: Vec::new() };
        for rank in 0..2 {
            let at = job.folder.path();
            let errors = std::fs::File::create(at.join(format!("stderr_{rank}.log"))).unwrap();
            let mut child = Command::new("python3")
                .args(["train.py", "--api-key", SECRETS[1], &format!("--token={}", SECRETS[2])])
                .current_dir(at)
                .env("RANK", rank.to_string())
                .env("LOCAL_RANK", rank.to_string())
                .env("WORLD_SIZE", "2")
                .env("NCCL_DEBUG_FILE", at.join("nccl.%h.%p.log"))
                .env("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", at.join("nccl_trace_rank_"))
                .env("WANDB_API_KEY", SECRETS[0])
                .envs(variables.iter().copied())
                .stdout(Stdio::piped())
                .stderr(errors)
                .spawn()
                .unwrap();
            let mut line = String::new();
            BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
            job.ranks.push(child);
            assert_eq!(line, "ready\n");
        }
        Some(job)
    }

    fn stop(&self, rank: usize) {
        let pid = self.ranks[rank].id().to_string();
        assert!(Command::new("kill").args(["-STOP", &pid]).status().unwrap().success());
        // It is stopped once the kernel says so; a signal is delivered at the next chance.
        while !std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap().contains(") T ") {
            thread::yield_now();
        }
    }

    fn pids(&self) -> String {
        self.ranks.iter().map(|rank| rank.id().to_string()).collect::<Vec<_>>().join(",")
    }
}

fn ringleader(arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(env!("CARGO_BIN_EXE_ringleader")).args(arguments).output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).unwrap())
}

/// Members by their name without the host's folder, and the manifest.
fn open(bundle: &Path) -> (BTreeMap<String, String>, Manifest) {
    let file = std::fs::File::open(bundle).unwrap();
    let mut members = BTreeMap::new();
    let mut archive = tar::Archive::new(zstd::stream::read::Decoder::new(file).unwrap());
    for entry in archive.entries().unwrap() {
        let mut entry = entry.unwrap();
        let name = entry.path().unwrap().to_str().unwrap().to_owned();
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        let name = name.split_once('/').map_or(name.as_str(), |(_, name)| name).to_owned();
        members.insert(name, String::from_utf8_lossy(&content).into_owned());
    }
    let manifest = serde_json::from_str(&members["manifest.json"]).unwrap();
    (members, manifest)
}

#[test]
fn a_bundle_of_a_live_job_holds_what_it_should_and_no_secret() {
    const REPORT: &str = include_str!("../../../../cases/sigstop/evidence/ras_verbose.txt");
    // Nobody has it but, in a moment, rank 0.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let report = crate::root().join("cases/sigstop/evidence/ras_verbose.txt");
    let variables = [("NCCL_RAS_ADDR", address.as_str()), ("RAS_REPORT", report.to_str().unwrap())];
    let Some(job) = Job::start(&variables) else { return };
    job.stop(1);
    let bundle = job.folder.path().join("bundle.tar.zst");
    let (code, said) = ringleader(&["collect", "--pid", &job.pids(), "-o", bundle.to_str().unwrap()]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("logs are as the job wrote them"), "{said}");
    let (members, manifest) = open(&bundle);
    let names: Vec<&String> = members.keys().collect();
    for (rank, child) in job.ranks.iter().enumerate() {
        let pid = child.id();
        let stacks = &members[&format!("stacks/rank-{rank}-pid-{pid}.txt")];
        assert!(stacks.contains(&format!("Process {pid}: ")), "{stacks}");
        assert!(
            stacks.contains("    step (train.py:") && stacks.contains("    loader (train.py:"),
            "{stacks}"
        );
        let log = names.iter().find(|n| n.starts_with("logs/nccl.") && n.ends_with(&format!(".{pid}.log")));
        assert!(members[*log.unwrap()].contains("Init COMPLETE"));
        assert!(members.contains_key(&format!("logs/stderr_{rank}.log")), "{names:?}");
    }
    let stopped = job.ranks[1].id();
    assert!(members[&format!("threads/rank-1-pid-{stopped}.txt")].contains("state T"));
    assert_eq!(members["ras/status.txt"], REPORT);
    let item = |kind: &str, end: &str| -> &Item {
        manifest.items.iter().find(|i| i.kind == kind && format!("{:?}", i.origin).contains(end)).unwrap()
    };
    let json = manifest.items.iter().filter(|i| i.kind == "ras").nth(1).unwrap();
    assert!(matches!(&json.outcome, ItemOutcome::Skipped(why) if why.contains("2.28.7")), "{json:?}");
    // Its dump was never written, and that is said.
    let dump = item("dump", "nccl_trace_rank_0");
    assert_eq!(dump.outcome, ItemOutcome::Skipped("there is no such file".to_owned()));
    for (name, content) in &members {
        for secret in SECRETS {
            assert!(!content.contains(secret), "{secret} in {name}");
        }
    }
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        assert_eq!(std::fs::metadata(&bundle).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let (code, said) = ringleader(&["collect", "--pid", &job.pids(), "-o", bundle.to_str().unwrap()]);
    assert_eq!(code, Some(2), "a file that is there is not overwritten: {said}");
}

#[test]
fn a_stopped_rank_is_named_live_and_again_from_the_bundle_that_was_kept() {
    let Some(job) = Job::start(&[("NCCL_RAS_ENABLE", "0")]) else { return };
    job.stop(1);
    let bundle = job.folder.path().join("kept.tar.zst");
    let kept = bundle.to_str().unwrap();
    let (code, live) =
        ringleader(&["diagnose", "--live", "--pid", &job.pids(), "--keep", kept, "--format", "json"]);
    assert_eq!(code, Some(4), "{live}");
    let report: serde_json::Value = serde_json::from_str(&live).unwrap();
    assert_eq!(report["verdict"]["cause"], "process-stopped", "{live}");
    assert_eq!(report["verdict"]["culprits"][0]["rank"], 1, "{live}");
    let (code, again) = ringleader(&["diagnose", kept, "--format", "json"]);
    assert_eq!((code, again), (Some(4), live));
}

#[test]
fn who_is_not_there_is_not_healthy() {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("b.tar.zst");
    // More than any kernel counts to.
    let (code, said) = ringleader(&["diagnose", "--live", "--pid", "4194999"]);
    assert_eq!(code, Some(3), "{said}");
    assert!(said.contains("failed to find what was asked for: there is no process 4194999"), "{said}");
    assert!(!said.contains("nothing wrong"), "{said}");
    let arguments = ["collect", "--no-logs", "--no-stacks", "--no-ras", "--job", "none-such", "-o"];
    let (code, said) = ringleader(&[&arguments[..], &[bundle.to_str().unwrap()]].concat());
    assert_eq!(code, Some(3), "{said}");
    assert!(
        said.contains("error: failed to find what was asked for: no process of Slurm job none-such"),
        "{said}"
    );
    // What was taken of the node is kept, and is no health either.
    let (code, said) = ringleader(&["diagnose", bundle.to_str().unwrap()]);
    assert!(code != Some(0) && said.starts_with("undecided\n"), "{said}");
}

#[test]
fn a_path_that_is_not_there_is_an_error_and_the_rest_is_collected() {
    let folder = tempfile::tempdir().unwrap();
    let (bundle, absent) = (folder.path().join("b.tar.zst"), folder.path().join("absent"));
    let pid = std::process::id().to_string();
    let plain = ["collect", "--no-logs", "--no-stacks", "--no-ras", "--pid", &pid, "-o"];
    let (code, said) =
        ringleader(&[&plain[..], &[bundle.to_str().unwrap(), absent.to_str().unwrap()]].concat());
    assert!(code == Some(2) && bundle.exists(), "{said}");
    assert!(said.contains(&format!("error: failed to find {}", absent.display())), "{said}");
}

#[test]
fn without_logs_a_bundle_has_none_and_paths_that_are_named_go_in() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("extra")).unwrap();
    std::fs::write(folder.path().join("extra/a.log"), "a line\n").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", folder.path().join("extra/link")).unwrap();
    let bundle = folder.path().join("b.tar.zst");
    let extra = folder.path().join("extra");
    let pid = std::process::id().to_string();
    let (code, said) = ringleader(&[
        "collect",
        "--no-logs",
        "--no-stacks",
        "--no-ras",
        "--pid",
        &pid,
        "-o",
        bundle.to_str().unwrap(),
        extra.to_str().unwrap(),
    ]);
    assert_eq!(code, Some(0), "{said}");
    let (members, manifest) = open(&bundle);
    assert_eq!(members["files/extra/a.log"], "a line\n");
    assert!(members.keys().all(|name| !name.starts_with("logs/") && !name.contains("link")), "{members:?}");
    assert!(members["node.json"].starts_with("{\n  \"schema\": \"ringleader.node.v1\""));
    assert_eq!(manifest.hosts.len(), 1);
    assert!(!manifest.hosts[0].versions["kernel"].is_empty());
}

/// A rank that does nothing, with its output in these files; ends with the test.
struct Idle(Child);

impl Idle {
    fn start(rank: u32, output: &Path, errors: &Path) -> Self {
        let open = |path: &Path| std::fs::File::options().create(true).append(true).open(path).unwrap();
        let mut command = Command::new("sleep");
        command.arg("600").env("RANK", rank.to_string()).env("LOCAL_RANK", rank.to_string());
        command.env("TORCH_FR_DUMP_TEMP_FILE", errors.with_file_name("fr_"));
        Self(command.stdout(open(output)).stderr(open(errors)).spawn().unwrap())
    }
}

impl Drop for Idle {
    fn drop(&mut self) {
        // Fails only if it has ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What a run's folder is called costs no log: ids are shown, a secret is not, and what is there is taken.
#[test]
fn logs_are_taken_from_folders_of_any_name_and_the_name_of_a_secret_is_not_told() {
    let folder = tempfile::tempdir().unwrap();
    let run = folder.path().join("mlruns/0/5c3f1d0a9b7e4c2d8f6a1b3c5d7e9f01");
    let secret = folder.path().join("token=planted-in-a-path");
    for at in [&run, &secret] {
        std::fs::create_dir_all(at).unwrap();
        std::fs::write(at.join("out.log"), format!("output of {}\n", at.display().to_string().len()))
            .unwrap();
    }
    let known = Idle::start(0, &run.join("out.log"), &run.join("two\nlines.log"));
    let hidden = Idle::start(1, &secret.join("out.log"), &run.join("err.log"));
    std::fs::write(run.join("two\nlines.log"), "a last word\n").unwrap();
    let bundle = folder.path().join("b.tar.zst");
    let pids = format!("{},{}", known.0.id(), hidden.0.id());
    let to = bundle.to_str().unwrap();
    let (code, said) =
        ringleader(&["collect", "--no-stacks", "--no-ras", "--ask-dump", "--pid", &pids, "-o", to]);
    assert_eq!(code, Some(0), "{said}");
    let (members, manifest) = open(&bundle);
    assert!(members["logs/out.log"].starts_with("output of "), "{:?}", members.keys());
    assert_eq!(members["logs/two_lines.log"], "a last word\n");
    let pid = hidden.0.id();
    assert!(
        members[&format!("logs/rank-1-pid-{pid}-fd-1")].starts_with("output of "),
        "{:?}",
        members.keys()
    );
    let withheld = format!("path withheld (fd 1 of pid {pid})");
    assert!(members["manifest.json"].contains(&withheld), "{}", members["manifest.json"]);
    assert!(members["manifest.json"].contains("5c3f1d0a9b7e4c2d8f6a1b3c5d7e9f01/out.log"));
    for (name, content) in &members {
        assert!(!content.contains("planted-in-a-path"), "{name}: {content}");
    }
    let asked = manifest.items.iter().find(|item| item.kind == "ask-dump").unwrap();
    assert!(matches!(&asked.outcome, ItemOutcome::Skipped(why) if why.contains("no signal")), "{asked:?}");
}

/// A log of many MiB, behind the hole that logrotate has torn, takes no room from what is small or cannot be cut.
#[test]
fn one_huge_log_leaves_room_for_the_others() {
    use std::io::{Seek as _, SeekFrom};

    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let mut huge = std::fs::File::create(at("a_huge.log")).unwrap();
    huge.seek(SeekFrom::Start(40 << 20)).unwrap();
    huge.write_all(&b"a line of a huge log\n".repeat(400_000)).unwrap();
    huge.write_all(b"the last word\n").unwrap();
    std::fs::write(at("b_small.log"), b"a line of a small log\n".repeat(30_000)).unwrap();
    let first = Idle::start(0, &at("a_huge.log"), &at("a_huge.log"));
    let second = Idle::start(1, &at("b_small.log"), &at("b_small.log"));
    // Written since they began.
    std::fs::write(at("fr_1"), [b"\x80\x02}q\x00".as_slice(), &vec![7; 1 << 20]].concat()).unwrap();
    let bundle = at("b.tar.zst");
    let pids = format!("{},{}", first.0.id(), second.0.id());
    let to = bundle.to_str().unwrap();
    let (code, said) =
        ringleader(&["collect", "--no-stacks", "--no-ras", "--max-mib", "6", "--pid", &pids, "-o", to]);
    assert_eq!(code, Some(0), "{said}");
    let (members, manifest) = open(&bundle);
    let item = |name: &str| manifest.items.iter().find(|item| item.name.ends_with(name)).unwrap();
    assert_eq!((item("dumps/fr_1").bytes, item("dumps/fr_1").cut), ((1 << 20) + 5, None), "{said}");
    assert_eq!((item("b_small.log").bytes, item("b_small.log").cut), (660_000, None), "{said}");
    let log = &members["logs/a_huge.log"];
    assert!(log.starts_with("a line of a huge log\n") && log.ends_with("the last word\n"));
    assert_eq!(item("a_huge.log").hole_bytes, 40 << 20);
    assert!(item("a_huge.log").cut.is_some() && log.len() < 6 << 20);
}

/// A shell above the ranks leads to them; one without ranks is said to have none, with what was looked at.
#[test]
fn the_pid_of_a_shell_leads_to_the_ranks_below_it() {
    let diagnose = |pid: u32| {
        let output = Command::new(env!("CARGO_BIN_EXE_ringleader"))
            .args(["diagnose", "--live", "--no-ras", "--format", "json", "--pid", &pid.to_string()])
            .env("TMPDIR", std::env::temp_dir())
            .output()
            .unwrap();
        (
            output.status.code(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    };
    let below = |script: &str| {
        // It reads what nobody writes, and ends with its last child.
        let mut shell = Command::new("bash");
        shell.args(["-c", script]).env_remove("RANK").stdin(Stdio::null()).stdout(Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let mut pids = String::new();
        BufReader::new(shell.stdout.as_mut().unwrap()).read_line(&mut pids).unwrap();
        (shell, pids)
    };
    let end = |mut shell: Child, pids: &str| {
        for pid in pids.split_whitespace() {
            // Fails only if it has ended.
            let _ = Command::new("kill").arg(pid).status();
        }
        shell.wait().unwrap();
    };
    let (shell, pids) = below("sleep 300 & echo $!; wait; true");
    let (code, _, said) = diagnose(shell.id());
    end(shell, &pids);
    assert_eq!(code, Some(3), "{said}");
    let started = format!("{} (sleep)", pids.trim());
    assert!(said.contains("(bash) has no rank below it") && said.contains(&started), "{said}");
    assert!(said.contains("give the pid of a rank"), "{said}");
    let (shell, pids) = below(
        "for r in 0 1; do RANK=$r WORLD_SIZE=2 sleep 300 & all=\"$all $!\"; done; echo $all; wait; true",
    );
    let (code, report, said) = diagnose(shell.id());
    end(shell, &pids);
    let report: serde_json::Value =
        serde_json::from_str(&report).unwrap_or_else(|_| panic!("{code:?} {said}"));
    let found: Vec<u64> =
        report["ranks"].as_array().unwrap().iter().filter_map(|rank| rank["pid"].as_u64()).collect();
    let expected: Vec<u64> = pids.split_whitespace().map(|pid| pid.parse().unwrap()).collect();
    assert_eq!(found, expected, "{report:#}");
}

#[test]
fn a_live_diagnosis_without_room_says_which_folder() {
    let output = Command::new(env!("CARGO_BIN_EXE_ringleader"))
        .args(["diagnose", "--live", "--pid", &std::process::id().to_string()])
        .env("TMPDIR", "/nowhere/at/all")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("/nowhere/at/all") && said.contains("TMPDIR names another folder"), "{said}");
    assert!(!said.contains("standard output"), "{said}");
}

/// A real mount whose server goes away while a log is read, or before: the bundle is there in seconds, holds what was
/// read, and says what hung; after two logs without an answer the third is not waited for.
#[test]
fn a_file_system_that_stops_to_answer_costs_its_files_alone() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let extra = folder.path().join("well.log");
    std::fs::write(&extra, "a line\n").unwrap();
    for answered in [131_072, 0] {
        let bundle = folder.path().join(format!("{answered}.tar.zst"));
        let started = std::time::Instant::now();
        let output = std::process::Command::new(crate::root().join("zoo/hung_mount.py"))
            .arg(&mount)
            .arg(answered.to_string())
            .arg(env!("CARGO_BIN_EXE_ringleader"))
            .args(["collect", "--no-logs", "--no-stacks", "--no-ras", "--pid"])
            .arg(std::process::id().to_string())
            .arg("-o")
            .args([&bundle, &mount, &extra])
            .output();
        // 69: a machine that lets nobody mount.
        let Some(output) = output.ok().filter(|output| output.status.code() != Some(69)) else { return };
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
        let (members, manifest) = open(&bundle);
        assert_eq!(members["files/well.log"], "a line\n");
        let item = |name: &str| -> &Item {
            manifest
                .items
                .iter()
                .find(|item| item.kind == "file" && format!("{:?}", item.origin).contains(name))
                .unwrap()
        };
        let why = match (&item("job.log").outcome, answered) {
            (ItemOutcome::Partial(why), 131_072) => {
                assert!(why.starts_with("131072 of 1048576 bytes"), "{why}");
                let log = &members["files/mount/job.log"];
                assert!(log.starts_with("line 0000000 of") && log.trim_end().len() > 131_000);
                why.clone()
            }
            (ItemOutcome::Failed(why), 0) => why.join(" "),
            other => panic!("{other:?}"),
        };
        assert!(why.contains("no answer within"), "{why}");
        // The kernel's place, as it calls it.
        assert!(why.contains("request_wait_answer") || why.contains("fuse"), "{why}");
        let ItemOutcome::Failed(why) = &item("third.log").outcome else { panic!("{:?}", item("third.log")) };
        assert!(why[0].contains("does not answer") && why[0].contains("other.log timed out"), "{why:?}");
    }
}

/// Where the pipe is and where the dump would be nobody answers: that rank's request is given up within its deadline and
/// named, and the rest of the bundle is there.
#[test]
fn a_pipe_on_a_file_system_that_does_not_answer_costs_its_deadline() {
    let folder = tempfile::tempdir().unwrap();
    let mount = folder.path().join("mount");
    std::fs::create_dir(&mount).unwrap();
    let bundle = folder.path().join("bundle.tar.zst");
    let script = "RANK=0 LOCAL_RANK=0 WORLD_SIZE=1 TORCH_NCCL_DEBUG_INFO_PIPE_FILE=\"$1/gone_pipe_\" \
                  TORCH_NCCL_DEBUG_INFO_TEMP_FILE=\"$1/gone_trace_\" sleep 600 & \
                  \"$2\" collect --ask-dump --no-logs --no-stacks --no-ras --pid $! -o \"$3\"; code=$?; kill $!; exit $code";
    let started = std::time::Instant::now();
    let output = Command::new(crate::root().join("zoo/hung_mount.py"))
        .arg(&mount)
        .args(["0", "sh", "-c", script, "sh"])
        .args([mount.as_path(), Path::new(env!("CARGO_BIN_EXE_ringleader")), &bundle])
        .output();
    // 69: a machine that lets nobody mount.
    let Some(output) = output.ok().filter(|output| output.status.code() != Some(69)) else { return };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(started.elapsed() < Duration::from_secs(30), "{:?}", started.elapsed());
    let (members, manifest) = open(&bundle);
    assert!(members.contains_key("node.json"));
    let item = manifest.items.iter().find(|item| item.kind == "ask-dump").unwrap();
    let ItemOutcome::Failed(why) = &item.outcome else { panic!("{item:?}") };
    let why = why.join(" ");
    assert!(why.contains("no answer within") && why.contains("request_wait_answer"), "{why}");
}
