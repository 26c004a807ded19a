//! `ringleader trace record -- COMMAND`: the command under Nsight Systems, where it is installed.
//!
//! Options are those of `nsys profile` since 2021: CUDA, NVTX (NCCL annotates its calls) and the OS runtime; no sampling of
//! the CPU; a bounded window; the command goes on after it.

use std::ffi::{OsStr, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;

use crate::command::print;
use crate::failure::Failure;

/// Recording with Nsight Systems.
#[derive(Debug, Args)]
pub(crate) struct NsysArgs {
    /// With a command: record from this many seconds after its start on
    #[arg(long, value_name = "S", default_value_t = 60, requires = "command")]
    nsys_delay: u32,
    /// With a command: record for this many seconds
    #[arg(long, value_name = "S", default_value_t = 5, requires = "command", value_parser = clap::value_parser!(u32).range(1..=600))]
    nsys_seconds: u32,
    /// Start this command under nsys instead of recording a running job; it goes on after the recording
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// Where nsys is when the search path lacks it.
const PLACES: [&str; 3] =
    ["/usr/local/cuda/bin/nsys", "/opt/nvidia/nsight-systems-cli/bin/nsys", "/usr/local/bin/nsys"];

impl NsysArgs {
    /// Starts the command, waits for its end, and answers with its exit code.
    pub(crate) fn run(&self, out: &Path) -> Result<ExitCode, Failure> {
        let Some(nsys) = find(std::env::var_os("PATH").as_deref()) else {
            let why = "nsys (Nsight Systems) is not installed here; without a command, ringleader trace record asks \
                       PyTorch's own profiler"
                .to_owned();
            return Err(Failure::Absent { why });
        };
        say(&format!(
            "{} records {} s, {} s after the start. It slows launches in that time; the report grows with their number \
             (some 100 bytes each).\n",
            nsys.display(),
            self.nsys_seconds,
            self.nsys_delay
        ));
        let failed = |source| Failure::Create { path: nsys.clone(), source };
        let status =
            Command::new(&nsys).args(self.options(out)).args(&self.command).status().map_err(failed)?;
        for report in reports(out, "nsys-rep") {
            if !report.with_extension("sqlite").exists() {
                // Versions before 2022 do not export by themselves.
                let arguments = [OsStr::new("export"), OsStr::new("--type=sqlite"), report.as_os_str()];
                Command::new(&nsys).args(arguments).status().map_err(failed)?;
            }
        }
        let n = reports(out, "sqlite").len();
        if n == 0 {
            say("nsys wrote no export: did the command end before the recording began?\n");
        } else {
            print(&format!("Now: ringleader trace {}\n", out.display()))?;
        }
        Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::from(128), ExitCode::from))
    }

    fn options(&self, out: &Path) -> Vec<OsString> {
        let mut options: Vec<OsString> = [
            "profile",
            "--trace=cuda,nvtx,osrt",
            "--sample=none",
            "--cpuctxsw=none",
            "--kill=none",
            "--wait=all",
            "--export=sqlite",
        ]
        .iter()
        .map(OsString::from)
        .collect();
        options.push(format!("--delay={}", self.nsys_delay).into());
        options.push(format!("--duration={}", self.nsys_seconds).into());
        let mut output = OsString::from("--output=");
        output.push(out.join("nsys-%h-%p"));
        options.push(output);
        options
    }
}

fn say(text: &str) {
    // The reader may be gone.
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The first nsys of a search path, else of its usual places.
fn find(path: Option<&OsStr>) -> Option<PathBuf> {
    let listed = path.into_iter().flat_map(std::env::split_paths).map(|folder| folder.join("nsys"));
    listed.chain(PLACES.iter().map(PathBuf::from)).find(|file| file.is_file())
}

/// Files of a folder with this ending.
fn reports(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).filter(|path| path.extension().is_some_and(|e| e == ending)).collect()
}
