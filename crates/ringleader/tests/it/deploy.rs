//! What `deploy/` promises to others, compared with what the program does: metrics that dashboards and alerts ask for
//! are exported, and scripts end as their callers expect.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::cli::ringleader;

fn read(path: &str) -> String {
    std::fs::read_to_string(crate::root().join("deploy").join(path)).unwrap()
}

/// Names of our metrics in an expression, without those that are recorded by rules.
fn metrics(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !c.is_ascii_alphanumeric() && c != '_' && c != ':');
    words.filter(|word| word.starts_with("ringleader_") && !word.contains(':')).map(str::to_owned).collect()
}

/// Names that the source registers, with the endings that Prometheus' format adds.
fn exported() -> BTreeSet<String> {
    let face = crate::root().join("crates/ringleader/src");
    let text = |path: &str| std::fs::read_to_string(face.join(path)).unwrap();
    let snapshot = text("watch/snapshots/ringleader__watch__metrics__tests__metrics_of_a_stalled_job.snap");
    let mut names: BTreeSet<String> = snapshot.lines().flat_map(metrics).collect();
    // It has no straggler, so that its family has no line.
    assert!(text("watch/metrics.rs").contains("\"straggler_late\""));
    names.insert("ringleader_straggler_late_seconds".to_owned());
    // `check` really prints its own.
    let output =
        ringleader().args(["check", "--format", "prometheus", "--fail-on", "never"]).output().unwrap();
    names.extend(metrics(crate::cli::out(&output)));
    for name in ["ringleader_node_clock_offset_seconds", "ringleader_node_clock_error_seconds"] {
        assert!(text("check/prometheus.rs").contains(name));
        names.insert(name.to_owned());
    }
    names
}

#[test]
fn dashboards_and_alerts_ask_for_metrics_that_are_exported() {
    let exported = exported();
    let mut asked = BTreeSet::new();
    for name in ["watch", "check"] {
        let board: serde_json::Value = serde_json::from_str(&read(&format!("grafana/{name}.json"))).unwrap();
        let ids: Vec<_> =
            board["panels"].as_array().unwrap().iter().map(|panel| panel["id"].clone()).collect();
        assert_eq!(ids.len(), ids.iter().map(ToString::to_string).collect::<BTreeSet<_>>().len(), "{name}");
        for target in
            board["panels"].as_array().unwrap().iter().flat_map(|panel| panel["targets"].as_array().unwrap())
        {
            asked.extend(metrics(target["expr"].as_str().unwrap()));
        }
        for variable in board["templating"]["list"].as_array().unwrap() {
            asked.extend(metrics(variable["query"]["query"].as_str().unwrap_or_default()));
        }
    }
    let rules = read("prometheus/rules.yml");
    asked.extend(rules.lines().filter_map(|line| line.trim().strip_prefix("expr:")).flat_map(metrics));
    let unknown: Vec<_> = asked.difference(&exported).collect();
    assert!(unknown.is_empty(), "not exported: {unknown:?}\nexported: {exported:?}");
    // And nothing of `watch` is left out.
    let unseen: Vec<_> = exported.iter().filter(|name| !asked.contains(*name)).collect();
    assert!(
        unseen.iter().all(|name| [
            "ringleader_communicators",
            "ringleader_comm_stalled",
            "ringleader_comm_bytes_per_second"
        ]
        .contains(&name.as_str())),
        "{unseen:?}"
    );
}

/// A program in place of ours that prints and ends as configured.
fn stand_in(folder: &Path, code: i32) -> std::path::PathBuf {
    use std::os::unix::fs::PermissionsExt as _;
    let path = folder.join(format!("ringleader-{code}"));
    std::fs::write(
        &path,
        format!("#!/bin/sh\necho \"$@\" >> {}/asked\necho gpu-ecc: FAIL\nexit {code}\n", folder.display()),
    )
    .unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn run(script: &str, folder: &Path, code: i32, env: &[(&str, &str)]) -> (Option<i32>, String) {
    let output = Command::new("sh")
        .arg(crate::root().join("deploy").join(script))
        .env("RINGLEADER", stand_in(folder, code))
        .env("RINGLEADER_EVIDENCE", folder.join("kept"))
        .envs(env.iter().copied())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr),
    )
}

/// A node is lost for findings alone, never because the tool fails.
#[test]
fn a_prolog_refuses_the_node_for_findings_alone() {
    let folder = tempfile::tempdir().unwrap();
    for (code, want) in [(0, 0), (4, 1), (1, 0), (2, 0), (3, 0), (5, 0), (6, 0), (127, 0)] {
        let (ended, said) = run("slurm/prolog.sh", folder.path(), code, &[]);
        assert_eq!(ended, Some(want), "{code}: {said}");
        assert_eq!(said.contains("gpu-ecc"), code == 4, "{said}");
    }
    for (code, want) in [(0, 0), (4, 1), (1, 2), (3, 2), (6, 2)] {
        let (ended, said) = run("node-problem-detector/npd-check.sh", folder.path(), code, &[]);
        assert_eq!(ended, Some(want), "{code}: {said}");
        assert!(said.len() <= 200 && said.trim_end().lines().count() == 1, "{said}");
    }
}

/// The reason of a drained node is what fails there, each check whole, and not how many were read.
#[test]
fn a_prolog_gives_the_failing_checks_as_the_reason() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ringleader");
    let failing = "PCI 0000:65:00.0: the GPU has fallen off the bus (Xid 79), 3 times since the start of the node, the last 4 min ago";
    let text = format!(
        "#!/bin/sh\nprintf '%s\\n' \"$@\" > {}/asked\ncat <<'END'\nn7: 1 fail, 0 warn, 9 ok, 1 skipped; read in 200 ms\n\ngpu\n  FAIL  \
         gpus-present         {failing}\nEND\nexit 4\n",
        folder.path().display()
    );
    std::fs::write(&program, text).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new("sh")
        .arg(crate::root().join("deploy/slurm/prolog.sh"))
        .env("RINGLEADER", &program)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), said.as_str()), (Some(1), &*format!("gpus-present: {failing}\n")));
    // Wide enough that the program cuts nothing.
    assert!(std::fs::read_to_string(folder.path().join("asked")).unwrap().contains("--width\n400\n"));
}

/// Slurm starts scripts with an empty environment, in which the program is rarely found.
#[test]
fn scripts_of_slurm_say_that_the_program_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    for script in ["prolog", "epilog", "task-prolog"] {
        let output = Command::new("sh")
            .arg(crate::root().join(format!("deploy/slurm/{script}.sh")))
            .env_clear()
            .env("RINGLEADER", folder.path().join("nowhere"))
            .env("RINGLEADER_EVIDENCE", folder.path().join("kept"))
            .envs([("SLURM_JOB_ID", "7"), ("SLURM_JOB_EXIT_CODE", "768")])
            .env("SLURM_SUBMIT_DIR", folder.path())
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(0), "{script}: {said}");
        assert!(said.contains("nowhere could not be started"), "{script}: {said}");
        // Slurm takes what a TaskProlog prints for orders.
        assert!(output.stdout.is_empty(), "{script}");
    }
}

#[test]
fn a_prolog_asks_for_the_gpus_that_slurm_gave() {
    let folder = tempfile::tempdir().unwrap();
    let asked = || std::fs::read_to_string(folder.path().join("asked")).unwrap_or_default();
    for (variables, want) in [
        (&[("SLURM_JOB_GPUS", "0,1,2")][..], " --gpus 3\n"),
        (&[("SLURM_JOB_GPUS", "0-3,6")], " --gpus 5\n"),
        (&[("SLURM_JOB_GPUS", "0"), ("RINGLEADER_GPUS", "8")], " --gpus 8\n"),
        (&[("SLURM_JOB_GPUS", "gpu")], " --width 400\n"),
        (&[], " --width 400\n"),
    ] {
        run("slurm/prolog.sh", folder.path(), 0, variables);
        assert!(asked().ends_with(want), "{variables:?}: {}", asked());
    }
}

/// Who writes the textfile and who is told to read it mean one folder.
#[test]
fn there_is_one_folder_of_textfiles() {
    const FOLDER: &str = "/var/lib/node_exporter/textfile_collector";
    for path in ["systemd/ringleader-check.service", "kubernetes/check.yaml", "prometheus/prometheus.yml"] {
        assert!(read(path).contains(FOLDER), "{path}");
    }
    let output = ringleader().args(["check", "--help"]).output().unwrap();
    assert!(crate::cli::out(&output).contains(FOLDER));
    // The alert on a watcher that is gone looks for a job that is scraped.
    let rules = read("prometheus/rules.yml");
    let job = rules.split("up{job=\"").nth(1).unwrap().split('"').next().unwrap();
    assert!(read("prometheus/prometheus.yml").contains(&format!("job_name: {job}\n")));
}

#[test]
fn an_epilog_keeps_evidence_of_failed_jobs_and_never_fails() {
    let folder = tempfile::tempdir().unwrap();
    let asked = || std::fs::read_to_string(folder.path().join("asked")).unwrap_or_default();
    let (ended, _) =
        run("slurm/epilog.sh", folder.path(), 0, &[("SLURM_JOB_EXIT_CODE", "0"), ("SLURM_JOB_ID", "7")]);
    assert_eq!((ended, asked().as_str()), (Some(0), ""));
    let (ended, _) =
        run("slurm/epilog.sh", folder.path(), 6, &[("SLURM_JOB_EXIT_CODE", "768"), ("SLURM_JOB_ID", "8")]);
    assert_eq!(ended, Some(0));
    // Of this job alone, and once.
    assert!(asked().contains("collect --job 8 -o") && asked().contains("job-8-"), "{}", asked());
    let host = Command::new("hostname").arg("-s").output().unwrap();
    let host = String::from_utf8_lossy(&host.stdout).trim().to_owned();
    std::fs::write(folder.path().join(format!("kept/job-9-{host}-pid7.tar.zst")), "").unwrap();
    run("slurm/epilog.sh", folder.path(), 0, &[("SLURM_JOB_EXIT_CODE", "768"), ("SLURM_JOB_ID", "9")]);
    assert!(!asked().contains("--job 9"), "{}", asked());
}

/// Lines of a TaskProlog that Slurm obeys, from the real program.
#[test]
fn a_task_prolog_prints_exports_alone() {
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new("sh")
        .arg(crate::root().join("deploy/slurm/task-prolog.sh"))
        .env("RINGLEADER", env!("CARGO_BIN_EXE_ringleader"))
        .env("SLURM_SUBMIT_DIR", folder.path())
        .env("SLURM_JOB_ID", "9")
        // What the user has set, well or not.
        .envs([("NCCL_DEBUG", "WARN"), ("TORCH_NCCL_TRACE_BUFFER_SIZE", "2000")])
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let is_set = |name: &str| text.contains(&format!("export {name}="));
    assert!(!is_set("NCCL_DEBUG") && !is_set("TORCH_NCCL_TRACE_BUFFER_SIZE"), "{text}");
    assert!(!is_set("TORCH_FR_BUFFER_SIZE") && is_set("NCCL_DEBUG_FILE"), "{text}");
    assert!(output.status.success() && text.lines().all(|line| line.starts_with("export ")), "{text}");
    assert!(text.contains("ringleader-9/") && folder.path().join("ringleader-9").is_dir(), "{text}");
}

/// `--webhook-template NAME` is the file that a reader of `deploy/` starts a template of his own from. The program has its own copy, since
/// a crate holds nothing but its own folder.
#[test]
fn templates_are_the_programs_own() {
    let own = crate::root().join("crates/ringleader/src/watch/templates");
    for entry in std::fs::read_dir(own).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert_eq!(read(&format!("templates/{name}")), std::fs::read_to_string(&path).unwrap(), "{name}");
    }
}

/// What the unit of systemd starts is a command line that the program takes.
#[test]
fn units_start_what_there_is() {
    for unit in ["ringleader.service", "systemd/ringleader-check.service"] {
        let text = read(unit);
        let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=/usr/bin/")).unwrap();
        let words = line.replace("${TEXTFILES}", "/tmp");
        let error = ringleader::command().try_get_matches_from(words.split(' ')).err();
        assert!(error.is_none(), "{unit}: {error:?}");
    }
    let pods = read("kubernetes/watch.yaml");
    let line =
        pods.lines().find_map(|line| line.trim().strip_prefix("args: [")).unwrap().trim_end_matches(']');
    let words = line.split(", ").map(|word| word.trim_matches('"'));
    let error = ringleader::command().try_get_matches_from(std::iter::once("ringleader").chain(words)).err();
    assert!(error.is_none(), "{error:?}");
}

/// The action's own line, and the hook's, find a collective that one rank alone calls.
#[test]
fn the_action_and_the_hook_run_lint() {
    let project = tempfile::tempdir().unwrap();
    let code = "import torch.distributed as dist\n\n\ndef main():\n    dist.init_process_group(\"nccl\")\n    \
                if dist.get_rank() == 0:\n        dist.barrier()\n\n\nmain()\n";
    std::fs::write(project.path().join("train.py"), code).unwrap();
    let root = crate::root();
    let of = |file: &str, key: &str| {
        let text = std::fs::read_to_string(root.join(file)).unwrap();
        text.lines().find_map(|line| line.trim().strip_prefix(key).map(str::to_owned)).unwrap()
    };
    for (line, want) in [
        (of("action.yml", "run: "), "::error file=train.py,line=7"),
        (of(".pre-commit-hooks.yaml", "entry: "), "train.py:7:9: error"),
    ] {
        let bin = Path::new(env!("CARGO_BIN_EXE_ringleader")).parent().unwrap().display().to_string();
        let output = Command::new("sh")
            .args(["-c", &line])
            .current_dir(project.path())
            .env("PATH", format!("{bin}:{}", std::env::var("PATH").unwrap_or_default()))
            .envs([("PATHS", "."), ("ARGUMENTS", "")])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(4), "{line}: {said}");
        assert!(said.contains(want), "{line}: {said}");
    }
}
