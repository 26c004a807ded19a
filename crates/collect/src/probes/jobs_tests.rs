use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::*;
use crate::request::Roots;

/// A child that ends with the test.
struct Own(Child);

impl Own {
    fn shell(script: &str, variables: &[(&str, &str)]) -> Self {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]).env_clear().env("PATH", "/usr/bin:/bin").envs(variables.iter().copied());
        Self(command.stdout(Stdio::piped()).stdin(Stdio::piped()).process_group(0).spawn().unwrap())
    }

    /// Waits for the first byte it prints.
    fn ready(mut self) -> Self {
        self.0.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
        self
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        // Only its own group.
        let group = rustix::process::Pid::from_child(&self.0);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.0.wait();
    }
}

fn of(pid: u32) -> Jobs {
    take(&Request { target: Target { pids: vec![pid], ..Target::default() }, ..Request::default() }).unwrap()
}

/// Looks until a state has come, which takes the kernel a moment.
fn until(pid: u32, holds: impl Fn(&Jobs) -> bool) -> Jobs {
    let started = Instant::now();
    loop {
        let jobs = of(pid);
        if holds(&jobs) || started.elapsed() > Duration::from_secs(10) {
            return jobs;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn launcher(process: &Process) -> Option<&'static str> {
    program::launcher(&process.command, &process.arguments)
}

fn find(jobs: &Jobs, pid: u32) -> &Process {
    jobs.processes.iter().find(|process| process.pid == pid).unwrap()
}

#[test]
fn a_stopped_rank_of_this_machine() {
    let own = Own::shell(
        "echo r; kill -STOP $$; read line",
        &[("RANK", "1"), ("LOCAL_RANK", "1"), ("HF_TOKEN", "hf_x")],
    )
    .ready();
    let jobs = until(own.pid(), |jobs| jobs.processes.iter().any(|p| p.state == "T"));
    let rank = find(&jobs, own.pid());
    assert_eq!((rank.state.as_str(), rank.rank(), rank.local_rank()), ("T", Some(1), Some(1)));
    assert!(rank.cut_variables.iter().any(|name| name == "HF_TOKEN"));
    assert_eq!(rank.ppid, std::process::id());
    assert!(
        rank.arguments.iter().all(|word| !word.contains("STOP")),
        "code of -c is cut: {:?}",
        rank.arguments
    );
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    let age_s = now - rank.started_ns / 1_000_000_000;
    assert!((-5..120).contains(&age_s), "started {age_s} s ago");
    assert!(rank.net_namespace.is_some() && rank.n_cpus.is_some() && rank.n_open_files.is_some());
}

#[test]
fn a_zombie_below_its_launcher_is_told_with_it() {
    // The shell does not wait for what ends after it has turned into another program.
    let own = Own::shell("(sleep 0.5; exit 3) & echo r; exec sleep 60", &[("RANK", "0")]).ready();
    let jobs = until(own.pid(), |jobs| jobs.processes.iter().any(|p| p.state == "Z"));
    let zombie = jobs.processes.iter().find(|process| process.state == "Z").unwrap();
    assert_eq!((zombie.ppid, zombie.environment.as_ref(), zombie.exit_code), (own.pid(), None, Some(3)));
    assert_eq!(find(&jobs, own.pid()).exit_code, None);
}

#[test]
fn limits_of_the_process_itself_and_where_its_output_goes() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let script = format!("ulimit -l 64; ulimit -n 77; echo r; exec sleep 60 2>>{}", file.path().display());
    let variables = [
        ("RANK", "0"),
        ("NCCL_DEBUG_FILE", "/tmp/n_%h_%p_%%.log"),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "fr_"),
    ];
    let own = Own::shell(&script, &variables).ready();
    let jobs = until(own.pid(), |jobs| find(jobs, own.pid()).command == "sleep");
    let rank = find(&jobs, own.pid());
    assert_eq!(rank.limits["Max locked memory"].0, Some(65_536));
    assert_eq!(rank.limits["Max open files"].0, Some(77));
    assert_eq!(rank.stderr.as_deref(), file.path().to_str());
    let host = text(Path::new("/proc/sys/kernel/hostname")).unwrap();
    let log = format!("/tmp/n_{}_{}_%.log", host.split('.').next().unwrap(), own.pid());
    assert_eq!(rank.logs[0], log);
    let directory = std::env::current_dir().unwrap();
    assert_eq!(rank.logs[1], format!("{}/fr_0", directory.display()));
    assert_eq!(rank.logs[2], file.path().to_str().unwrap());
}

#[test]
fn a_process_that_is_not_there() {
    let target = Target { pids: vec![u32::MAX], ..Target::default() };
    assert!(matches!(take(&Request { target, ..Request::default() }), Err(ReadingError::Absent(_))));
    let target = Target { slurm_job: Some("no-such-job".to_owned()), ..Target::default() };
    assert!(matches!(take(&Request { target, ..Request::default() }), Err(ReadingError::Absent(_))));
}

/// A captured tree: pid, parent, state, command, command line, environment, files.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("proc")).unwrap();
        fs::write(root.path().join("proc/stat"), "cpu 1 2\nbtime 1700000000\n").unwrap();
        Self(root)
    }

    fn process(self, pid: u32, ppid: u32, state: &str, command: &str, line: &str, environment: &str) -> Self {
        let at = self.0.path().join(format!("proc/{pid}"));
        fs::create_dir_all(at.join("fd")).unwrap();
        let stat = format!(
            "{pid} ({command}) {state} {ppid} 1 1 0 -1 0 1 2 3 4 150 50 0 0 20 0 3 0 1000 999 50 0\n"
        );
        fs::write(at.join("stat"), stat).unwrap();
        fs::write(at.join("cmdline"), line.replace(' ', "\0")).unwrap();
        fs::write(at.join("environ"), environment.replace(' ', "\0")).unwrap();
        fs::write(
            at.join("status"),
            format!("Name:\t{command}\nUid:\t1000\t1000\t1000\t1000\nNSpid:\t{pid}\t7\n"),
        )
        .unwrap();
        self
    }

    fn file(self, pid: u32, number: u32, target: &str) -> Self {
        std::os::unix::fs::symlink(target, self.0.path().join(format!("proc/{pid}/fd/{number}"))).unwrap();
        self
    }

    /// The same, open for writing.
    fn log(self, pid: u32, number: u32, target: &str) -> Self {
        let folder = self.0.path().join(format!("proc/{pid}/fdinfo"));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join(number.to_string()), "pos:\t0\nflags:\t0100001\n").unwrap();
        self.file(pid, number, target)
    }

    fn take(&self, target: Target) -> Jobs {
        take(&Request { roots: Roots::under(self.0.path()), target, ..Request::default() }).unwrap()
    }
}

fn job() -> Tree {
    Tree::new()
        .process(1, 0, "S", "systemd", "/sbin/init", "")
        .process(50, 1, "S", "slurmstepd", "slurmstepd: [4711.0]", "")
        .process(60, 50, "S", "bash", "/bin/bash run.sh", "SLURM_JOB_ID=4711 SLURM_PROCID=0")
        .process(
            70,
            60,
            "S",
            "torchrun",
            "python3 /opt/bin/torchrun --nproc-per-node 2 train.py",
            "SLURM_JOB_ID=4711",
        )
        .process(80, 70, "R", "python3", "python3 train.py", "RANK=0 LOCAL_RANK=0 SLURM_JOB_ID=4711")
        .process(81, 70, "Z", "python3", "", "")
        .process(82, 80, "S", "pt_data_worker", "python3 train.py", "RANK=0 LOCAL_RANK=0 SLURM_JOB_ID=4711")
        .process(90, 1, "S", "sshd", "sshd", "")
        .process(91, 1, "S", "python3", "python3 other.py", "HOME=/root")
        .file(91, 9, "/dev/nvidia3")
        .file(91, 10, "/dev/nvidiactl")
        .file(80, 1, "/home/u/out.txt")
}

#[test]
fn ranks_with_their_parents_up_to_the_launcher_and_users_of_gpus() {
    let jobs = job().take(Target::default());
    let pids: Vec<u32> = jobs.processes.iter().map(|process| process.pid).collect();
    assert_eq!(pids, [1, 50, 60, 70, 80, 81, 82, 91]);
    assert_eq!((find(&jobs, 91).uses_gpu, find(&jobs, 91).gpu_minors.as_slice()), (true, [3].as_slice()));
    let rank = find(&jobs, 80);
    assert_eq!((rank.inner_pid, rank.uid, rank.cpu_s), (Some(7), 1000, 2.0));
    assert_eq!(rank.started_ns, 1_700_000_010_000_000_000);
    assert_eq!(launcher(find(&jobs, 70)), Some("torchrun"));
    assert_eq!(launcher(find(&jobs, 50)), Some("slurmstepd"));
    assert_eq!(launcher(rank), None);
}

#[test]
fn the_processes_of_one_target() {
    let pids = |jobs: Jobs| jobs.processes.iter().map(|process| process.pid).collect::<Vec<_>>();
    assert_eq!(pids(job().take(Target { pids: vec![80], ..Target::default() })), [50, 60, 70, 80, 81, 82]);
    assert_eq!(
        pids(job().take(Target { slurm_job: Some("4711".to_owned()), ..Target::default() })),
        [50, 60, 70, 80, 81, 82]
    );
}

#[test]
fn paths_with_ids_are_told_and_those_with_secrets_withheld_by_their_number() {
    let run = "/mnt/mlruns/0/5c3f1d0a9b7e4c2d8f6a1b3c5d7e9f01";
    let variables = format!(
        "RANK=0 NCCL_DEBUG_FILE={run}/nccl.log TORCH_FR_DUMP_TEMP_FILE=fr_ HF_HOME=/hf_0123456789abcdef"
    );
    let tree = Tree::new()
        .process(80, 1, "S", "python3", "python3 train.py", &variables)
        .file(80, 0, "/runs/token=hunter2/in.log")
        .file(80, 1, &format!("{run}/out.txt"))
        .file(80, 2, "/runs/token=hunter2/err.txt")
        .log(80, 5, &format!("{run}/rank.log"))
        .log(80, 6, "/runs/token=hunter2/model.bin")
        .log(80, 7, "/runs/Zx81mPq02LwKvT9aYd37RbNc5/rank.log")
        .log(80, 8, "/runs/two\nlines.log");
    std::os::unix::fs::symlink(run, tree.0.path().join("proc/80/cwd")).unwrap();
    let jobs = tree.take(Target::default());
    let rank = find(&jobs, 80);
    assert_eq!(rank.directory.as_deref(), Some(run));
    assert_eq!((rank.stdout.as_deref(), rank.stderr.as_deref()), (Some(&*format!("{run}/out.txt")), None));
    assert_eq!(rank.withheld_files, [2, 7]);
    let own = |name: &str| format!("{run}/{name}");
    assert_eq!(
        rank.logs,
        [own("nccl.log"), own("fr_0"), own("out.txt"), own("rank.log"), "/runs/two?lines.log".to_owned()]
    );
    let text = serde_json::to_string(rank).unwrap();
    assert!(!text.contains("hunter2") && !text.contains("Zx81mP") && !text.contains("hf_0"), "{text}");
}
