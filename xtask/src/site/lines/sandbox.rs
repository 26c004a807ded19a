//! Where command lines run: a folder with what they refer to, and the program first on the PATH.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};

use super::Outcome;

/// A line that is still busy after so many seconds is ended. That is how a line that follows a job ends here.
const SECONDS: &str = "90";
/// The same of a watcher, which never ends by itself.
const SECONDS_OF_WATCH: &str = "4";
/// What `timeout` ends with then.
const TIMED_OUT: i32 = 124;

/// Programs of other nodes and of clusters: name, and what stands in for it.
const STAND_INS: [(&str, &str); 4] = [
    // The program's own code, started by this one.
    ("ringleader", "XTASK_IS_RINGLEADER=1 exec \"$XTASK\" \"$@\""),
    // Two ranks that wait, unless the job is to end.
    (
        "torchrun",
        "for rank in 0 1; do\n  RANK=$rank LOCAL_RANK=$rank WORLD_SIZE=2 LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 \
         bash train.py &\ndone\nwait",
    ),
    ("kubectl", "cat logs/stderr-of-a-pod.log"),
    // Its options, a host, and the command for it.
    (
        "ssh",
        "while [ $# -gt 0 ]; do case \"$1\" in -[oiplFJ]) shift 2 ;; -*) shift ;; *) break ;; esac; done\nshift\nexec sh -c \"$*\"",
    ),
];

/// The folder.
pub(super) struct Sandbox {
    folder: PathBuf,
    /// A job of two ranks that wait, in a folder of its own.
    job: Child,
}

impl Sandbox {
    pub(super) fn new(root: &Path, folder: &Path) -> Result<Self> {
        let bin = folder.join("bin");
        let logs = folder.join("logs");
        for one in [&bin, &logs, &folder.join("ckpt"), &folder.join("home")] {
            fs::create_dir_all(one)?;
        }
        for (name, script) in STAND_INS {
            let path = bin.join(name);
            fs::write(&path, format!("#!/bin/bash\n{script}\n"))?;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        }
        // Evidence of a job that failed, its timelines, and a run before it that went well.
        for (case, name) in [
            ("skipped-allreduce", "logs"),
            ("skipped-allreduce", "today"),
            ("healthy", "yesterday"),
            ("trace-late-host", "profiles"),
            ("trace-control", "yesterday"),
        ] {
            fs::create_dir_all(folder.join(name))?;
            for entry in fs::read_dir(root.join("cases").join(case).join("evidence"))?.flatten() {
                fs::copy(entry.path(), folder.join(name).join(entry.file_name()))?;
            }
        }
        let failed = root.join("cases/kernel-memory-failure/evidence/agent.txt");
        fs::copy(&failed, folder.join("stderr.log"))?;
        fs::copy(&failed, logs.join("stderr-of-a-pod.log"))?;
        for name in ["cases", "deploy", "docs"] {
            symlink(root.join(name), folder.join(name))?;
        }
        // A script that `lint` finds nothing in, and that bash runs as a rank of the stand-in for torchrun.
        fs::write(folder.join("train.py"), "exit\n")?;
        fs::write(folder.join("policy.toml"), "version = 1\n")?;
        let waiting = folder.join("job");
        fs::create_dir_all(&waiting)?;
        fs::write(waiting.join("train.py"), "sleep 600; exit\n")?;
        let job = Command::new(bin.join("torchrun"))
            .current_dir(&waiting)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("bash")?;
        Ok(Self { folder: folder.to_owned(), job })
    }

    /// The launcher of the job that waits.
    pub(super) fn pid(&self) -> u32 {
        self.job.id()
    }

    fn bash(&self, text: &str) -> Result<Command> {
        // A file, so that the line is not among the arguments of processes that a line searches.
        let script = self.folder.join("home/line.sh");
        fs::write(&script, format!("{text}\n"))?;
        let mut command = Command::new("timeout");
        let path = std::env::var("PATH").unwrap_or_default();
        command
            .args([
                "--kill-after=5",
                if text.contains("ringleader watch") { SECONDS_OF_WATCH } else { SECONDS },
                "bash",
            ])
            .arg(script)
            .current_dir(&self.folder)
            .env("PATH", format!("{}:{path}", self.folder.join("bin").display()))
            .env("XTASK", std::env::current_exe()?)
            .env("HOME", self.folder.join("home"))
            .stdin(Stdio::null());
        Ok(command)
    }

    /// Runs a line and judges its end.
    pub(super) fn run(&self, text: &str, must_answer: bool) -> Outcome {
        let output = match self.bash(text).and_then(|mut command| Ok(command.output()?)) {
            Ok(output) => output,
            Err(error) => return Outcome::Failed(format!("{error:#}")),
        };
        let said = String::from_utf8_lossy(&output.stderr);
        let code = output.status.code().unwrap_or(-1);
        let missing = said.lines().find_map(|line| line.strip_suffix(": command not found"));
        if let Some(name) = missing {
            let name = name.rsplit(": ").next().unwrap_or(name);
            return Outcome::NotHere(format!("{name} is not installed"));
        }
        let is_ours = text.contains("ringleader ");
        let fits = match code {
            0 => true,
            _ if must_answer => false,
            // A watcher follows until it is ended.
            TIMED_OUT => text.contains("ringleader watch"),
            // Findings, no job to look at, undecided, refused by the system.
            3..=6 if is_ours => true,
            // What others' programs say of a machine without GPUs is not our concern, unless bash could not read the line.
            _ => !is_ours && !said.contains("syntax error"),
        };
        if fits { Outcome::Ran } else { Outcome::Failed(format!("code {code}: {}", said.trim_end())) }
    }

    /// Whether bash reads it.
    pub(super) fn parses(&self, text: &str) -> Result<(), String> {
        let script = self.folder.join("home/line.sh");
        fs::write(&script, format!("{text}\n")).map_err(|error| error.to_string())?;
        let output =
            Command::new("bash").arg("-n").arg(script).output().map_err(|error| error.to_string())?;
        if output.status.success() {
            Ok(())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// A line has left this file, with this text.
    pub(super) fn has(&self, name: &str, text: &str) -> Result<()> {
        let path = self.folder.join(name);
        let found = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
        ensure!(found.contains(text), "{name} lacks {text}");
        Ok(())
    }
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // The ranks are children of the launcher, and of nobody else.
        let children = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.job.id()));
        let mut all: Vec<u32> =
            children.unwrap_or_default().split_whitespace().flat_map(str::parse).collect();
        let of_ranks: Vec<u32> = all
            .iter()
            .flat_map(|pid| fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")))
            .flat_map(|text| text.split_whitespace().flat_map(str::parse).collect::<Vec<u32>>())
            .collect();
        all.extend(of_ranks);
        let _ = self.job.kill();
        let _ = self.job.wait();
        for pid in all {
            let _ = Command::new("kill").arg(pid.to_string()).stderr(Stdio::null()).status();
        }
    }
}
