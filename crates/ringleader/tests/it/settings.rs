//! `ringleader env` and configuration: the built program with files, variables and a fake installation.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use crate::cli::{err, out, ringleader};

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A folder that looks like a virtual environment with PyTorch and NCCL.
fn installed(root: &Path, torch: &str, nccl: &str) {
    let site = root.join("venv/lib/python3.11/site-packages");
    write(&root.join("venv/bin/python3"), "");
    write(&root.join("venv/pyvenv.cfg"), "home = /usr/bin\n");
    write(&site.join("torch/version.py"), &format!("__version__ = '{torch}'\n"));
    write(&site.join("nvidia/nccl/lib/libnccl.so.2"), &format!("\0NCCL version {nccl}+cuda12.4\0"));
}

fn env(root: &Path) -> Command {
    let mut command = ringleader();
    command.env_clear().env("PATH", "/usr/bin:/bin").env("VIRTUAL_ENV", root.join("venv")).current_dir(root);
    command.env("HOME", root).arg("env");
    command
}

#[test]
fn exports_fit_what_is_installed() {
    let root = tempfile::tempdir().unwrap();
    installed(root.path(), "2.7.1+cu126", "2.26.2");
    let output = env(root.path()).args(["--format", "json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer["schema"], "ringleader.env.v1");
    assert_eq!(answer["installed"]["torch"], "2.7.1+cu126");
    assert_eq!(answer["installed"]["nccl"], "2.26.2");
    let schema = fs::read_to_string(crate::root().join("docs/env-v1.schema.json")).unwrap();
    let misfits = crate::schema::Schema::new(&schema).misfits(&answer);
    assert!(misfits.is_empty(), "{misfits:?}");
    let names: Vec<&str> =
        answer["variables"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert!(
        names.contains(&"TORCH_NCCL_TRACE_BUFFER_SIZE") && !names.contains(&"TORCH_FR_BUFFER_SIZE"),
        "{names:?}"
    );
    assert!(names.contains(&"NCCL_DEBUG_TIMESTAMP_LEVELS"), "{names:?}");
}

/// A shell takes the lines: the variables are there, and the folder is.
#[test]
fn a_shell_takes_the_lines() {
    let root = tempfile::tempdir().unwrap();
    installed(root.path(), "2.9.1", "2.27.5");
    let output = env(root.path()).args(["--dir", "my runs/it's"]).env("NCCL_DEBUG", "WARN").output().unwrap();
    let script = format!(
        "set -eu\n{}\nprintf '%s\\n' \"$TORCH_FR_BUFFER_SIZE\" \"$NCCL_DEBUG\" \"$NCCL_DEBUG_FILE\"\nls -d \"my runs/it's\"\n",
        out(&output)
    );
    let shell = Command::new("sh").arg("-c").arg(script).current_dir(root.path()).output().unwrap();
    assert!(shell.status.success(), "{}\n{}", err(&shell), out(&output));
    let file = root.path().join("my runs/it's/nccl_%h_%p.log");
    assert_eq!(out(&shell), format!("20000\nINFO\n{}\nmy runs/it's\n", file.display()));
    assert!(out(&output).contains("(was WARN)"), "{}", out(&output));
    // What does already is left alone, and no form but the shell's has comments.
    for format in ["dotenv", "slurm", "k8s"] {
        let output = env(root.path()).args(["--format", format]).env("NCCL_DEBUG", "TRACE").output().unwrap();
        let text = out(&output);
        assert!(
            !text.contains('#') && !text.contains("NCCL_DEBUG=") && !text.contains("name: NCCL_DEBUG\n"),
            "{text}"
        );
        assert!(text.contains("TORCH_FR_BUFFER_SIZE"), "{text}");
        // The folder is only named.
        assert!(err(&output).contains("do not create") && err(&output).contains("--dir"), "{}", err(&output));
    }
}

/// The command at the end of `--check` names the job's Python where the one of this shell has other packages.
#[test]
#[cfg(target_os = "linux")]
fn the_next_command_names_the_python_of_the_job() {
    use std::os::unix::process::CommandExt as _;
    let root = tempfile::tempdir().unwrap();
    let other = root.path().join("of the job");
    installed(root.path(), "2.9.1", "2.27.5");
    installed(&other, "2.7.1", "2.26.2");
    let next = |python: &str, path: &Path, more: &[&str]| -> String {
        let mut job = Command::new("/bin/sleep");
        job.arg0(python).arg("60").env("RANK", "0").env("PATH", path);
        let mut child = job.spawn().unwrap();
        let output = env(root.path()).args(["--check", &child.id().to_string()]).args(more).output().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let said = out(&output);
        said.split_once("next start:").unwrap_or_else(|| panic!("{said}")).1.trim().to_owned()
    };
    let (own, bin) = (root.path().join("venv/bin/python3"), other.join("venv/bin"));
    let (own, python) = (own.to_str().unwrap(), bin.join("python3"));
    let named = format!("eval \"$(ringleader env --python '{}')\"", python.display());
    assert_eq!(next(python.to_str().unwrap(), Path::new("/bin"), &[]), named);
    assert_eq!(next("python3", &bin, &[]), named);
    assert_eq!(next(own, Path::new("/bin"), &[]), "eval \"$(ringleader env)\"");
    let asked = next(own, Path::new("/bin"), &["--python", own, "--dir", "/logs", "--full"]);
    assert_eq!(asked, format!("eval \"$(ringleader env --python {own} --dir /logs --full)\""));
}

/// A process that lacks them is reported, with what that costs; one that has them all is good.
#[test]
#[cfg(target_os = "linux")]
fn a_running_job_is_compared() {
    let root = tempfile::tempdir().unwrap();
    installed(root.path(), "2.9.1", "2.27.5");
    let check = |job: &mut Command| -> Output {
        let mut child = job.arg("60").spawn().unwrap();
        let output = env(root.path()).args(["--check", &child.id().to_string()]).output().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        output
    };
    let bare = check(Command::new("sleep").env("RANK", "0").env("NCCL_IB_DISABLE", "yes"));
    assert_eq!(bare.status.code(), Some(4), "{}", err(&bare));
    let said = out(&bare);
    assert!(
        said.contains("missing  TORCH_FR_BUFFER_SIZE") && said.contains("misread  NCCL_IB_DISABLE=yes"),
        "{said}"
    );
    assert!(said.lines().all(|line| line.chars().count() <= 80), "{said}");
    // No plugin is installed here, and the job has none: that lacks, too.
    let without = env(root.path()).output().unwrap();
    let has_plugin = !err(&without).contains("libringleader_nccl.so) was not found");
    assert!(said.contains("missing  NCCL_PROFILER_PLUGIN"), "{said}");
    let mut job = Command::new("sleep");
    if !has_plugin {
        job.env("NCCL_PROFILER_PLUGIN", "other");
    }
    let exports = env(root.path()).args(["--format", "dotenv"]).output().unwrap();
    for (name, value) in out(&exports).lines().filter_map(|line| line.split_once('=')) {
        job.env(name, value);
    }
    let good = check(job.env("RANK", "0"));
    assert_eq!(good.status.code(), Some(0), "{}", out(&good));
    let nowhere = env(root.path()).args(["--python", "/no/such/python"]).output().unwrap();
    assert_eq!((nowhere.status.code(), out(&nowhere)), (Some(2), ""), "{}", err(&nowhere));
    assert!(err(&nowhere).contains("/no/such/python"), "{}", err(&nowhere));
    // What is no rank is no job.
    let no_rank = check(Command::new("sleep").env_clear().env("PATH", std::env::var("PATH").unwrap()));
    assert_eq!(no_rank.status.code(), Some(3), "{}", out(&no_rank));
    assert!(err(&no_rank).contains("is no rank") && out(&no_rank).is_empty(), "{}", err(&no_rank));
    assert!(said.contains("A running job cannot be changed"), "{said}");
    // Behind `eval` only standard error is seen.
    let empty = root.path().join("empty/bin/python3");
    write(&empty, "");
    let none = env(root.path()).args(["--python", empty.to_str().unwrap()]).output().unwrap();
    assert!(
        err(&none).contains("note: PyTorch was not found") && err(&none).contains("--python"),
        "{}",
        err(&none)
    );
    let gone = env(root.path()).args(["--check", "4194305"]).output().unwrap();
    assert_eq!(gone.status.code(), Some(3), "{}", err(&gone));
}

fn diagnose(root: &Path) -> Command {
    let mut command = ringleader();
    command.env("XDG_CONFIG_HOME", root.join("user")).current_dir(root.join("project/deep"));
    command.arg("diagnose").arg(crate::root().join("cases/segfault/evidence"));
    command
}

/// flag > variable > project > user; each place is seen where no stronger one speaks.
#[test]
fn the_strongest_place_wins() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("project/deep")).unwrap();
    let form = |command: &mut Command| {
        let output = command.output().unwrap();
        match out(&output).chars().next() {
            Some('{') => "json",
            Some(_) if out(&output).starts_with("**") || out(&output).starts_with('#') => "markdown",
            _ => "text",
        }
    };
    assert_eq!(form(&mut diagnose(root.path())), "text");
    write(&root.path().join("user/ringleader/ringleader.toml"), "[diagnose]\nformat = \"json\"\n");
    assert_eq!(form(&mut diagnose(root.path())), "json");
    write(&root.path().join("project/ringleader.toml"), "format = \"markdown\"\n");
    assert_eq!(form(&mut diagnose(root.path())), "markdown");
    assert_eq!(form(diagnose(root.path()).env("RINGLEADER_FORMAT", "json")), "json");
    assert_eq!(
        form(diagnose(root.path()).env("RINGLEADER_FORMAT", "json").args(["--format", "text"])),
        "text"
    );
    assert_eq!(form(diagnose(root.path()).env("RINGLEADER_NO_CONFIG", "1")), "text");
    // Quiet by variable, verbose by flag: they contradict each other, and the flag was meant.
    let output = diagnose(root.path()).env("RINGLEADER_QUIET", "1").arg("--verbose").output().unwrap();
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
}

#[test]
fn a_mistake_is_shown_at_its_line() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir_all(root.path().join("project/deep")).unwrap();
    write(&root.path().join("project/ringleader.toml"), "# ours\n\n[watch]\non-stall = \"rm -rf /\"\n");
    let output = diagnose(root.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let said = err(&output);
    assert!(said.contains("ringleader.toml:4:1") && said.contains("may not set `on-stall`"), "{said}");
    fs::remove_file(root.path().join("project/ringleader.toml")).unwrap();
    let output = diagnose(root.path()).env("RINGLEADER_FORMAT", "xml").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("RINGLEADER_FORMAT: invalid value 'xml'"), "{}", err(&output));
}

/// Evidence is other people's: what is in it decides nothing.
#[test]
fn a_file_in_the_evidence_is_not_obeyed() {
    let root = tempfile::tempdir().unwrap();
    write(&root.path().join("ringleader.toml"), "format = \"json\"\n");
    write(&root.path().join("stderr.log"), "hello\n");
    let run = |path: &str| {
        ringleader()
            .current_dir(root.path())
            .env("XDG_CONFIG_HOME", root.path().join("none"))
            .args(["diagnose", path])
            .output()
            .unwrap()
    };
    assert!(!out(&run(".")).starts_with('{'));
    assert!(!out(&run("stderr.log")).starts_with('{'));
}

/// Each long option of each command has a variable: there are no exceptions by hand.
#[test]
fn version_tells_the_build() {
    let output =
        ringleader().args(["version", "--verbose"]).env("XDG_CONFIG_HOME", "/nonexistent").output().unwrap();
    let text = out(&output);
    for word in ["ringleader ", "build ", "features ", "formats ", "ringleader.report.v1", "ring 1."] {
        assert!(text.contains(word), "{text}");
    }
    assert_eq!(out(&ringleader().arg("version").output().unwrap()).lines().count(), 1);
}

/// A name that is spelt nearly as an option's is said so; names that anything of ours reads are not.
#[test]
fn a_misspelt_variable_is_named() {
    let root = tempfile::tempdir().unwrap();
    let run = |names: &[String]| {
        let mut command = ringleader();
        command.env_clear().current_dir(root.path()).arg("version");
        for name in names {
            command.env(name, "");
        }
        err(&command.output().unwrap()).to_owned()
    };
    let said = run(&["RINGLEADER_STALL_FACTER".to_owned(), "RINGLEADER_OF_MY_OWN".to_owned()]);
    assert_eq!(
        said,
        "note: nothing reads RINGLEADER_STALL_FACTER: RINGLEADER_STALL_FACTOR is spelt nearly so\n"
    );
    let mut names = Vec::new();
    for file in walkdir(&crate::root().join("crates")).chain(walkdir(&crate::root().join("python"))) {
        let Ok(text) = fs::read_to_string(&file) else { continue };
        let parts = text.match_indices("RINGLEADER_").map(|(at, _)| &text[at..]);
        let name = |part: &str| {
            part.split(|c: char| !c.is_ascii_uppercase() && c != '_').next().unwrap_or_default().to_owned()
        };
        names.extend(parts.map(name).filter(|name| !name.ends_with('_') && !name.contains("FACTER")));
    }
    names.sort_unstable();
    names.dedup();
    assert!(names.len() > 30, "{names:?}");
    assert_eq!(run(&names), "");
}

/// Sources below a folder.
fn walkdir(folder: &Path) -> impl Iterator<Item = std::path::PathBuf> {
    let mut open = vec![folder.to_owned()];
    let mut files = Vec::new();
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            let is_source = entry.extension().is_some_and(|ending| ending == "rs" || ending == "py");
            if entry.is_dir() {
                open.push(entry);
            } else if is_source {
                files.push(entry);
            }
        }
    }
    files.into_iter()
}
