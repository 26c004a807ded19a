//! The built program: options, exit codes, help, streams.

use std::io::{Read, Write};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use ringleader::exit::Code;

/// The program with nothing inherited that changes its output.
pub(crate) fn ringleader() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ringleader"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RINGLEADER_") {
            command.env_remove(name);
        }
    }
    command.env_remove("NO_COLOR").env_remove("COLUMNS").stdin(Stdio::null());
    command
}

pub(crate) fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub(crate) fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

fn case(name: &str) -> std::path::PathBuf {
    crate::root().join("cases").join(name).join("evidence")
}

#[track_caller]
fn help(args: &[&str]) -> String {
    let output = ringleader().args(args).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(output.stderr.is_empty());
    out(&output).to_owned()
}

#[test]
fn short_help() {
    insta::assert_snapshot!(help(&["--help"]));
}

#[test]
fn help_of_diagnose() {
    insta::assert_snapshot!(help(&["diagnose", "-h"]));
}

#[test]
fn help_topics() {
    insta::assert_snapshot!(help(&["help"]));
    for topic in ["evidence", "exit-codes", "diagnose"] {
        let text = help(&["help", topic]);
        assert!(text.lines().all(|row| row.chars().count() <= 100), "{topic}");
    }
    // The topic names every code by its number, and only these.
    let text = help(&["help", "exit-codes"]);
    let named: Vec<u8> = text.lines().filter_map(|row| row.get(..5)?.trim().parse().ok()).collect();
    assert_eq!(named, Code::ALL.map(|code| code as u8));
}

/// What there is help on is made of the list of subcommands: each is named, and each has a text.
#[test]
fn help_names_each_subcommand_once() {
    let output = ringleader().args(["help", "nothing"]).output().unwrap();
    let said = err(&output).lines().find_map(|row| row.split_once("there is help on: ")).unwrap().1;
    let shown = help(&["help"]).split_whitespace().collect::<Vec<_>>().join(" ");
    for name in said.split(", ") {
        assert!(!help(&["help", name]).is_empty(), "{name}");
        assert_eq!(shown.matches(&format!("`help {name}`")).count(), 1, "{name}: {shown}");
    }
    assert!(!said.contains("probe") && said.contains("diagnose"), "{said}");
}

/// Each kind that a report says is missing is explained, and the other way round.
#[test]
fn help_on_evidence_lists_what_reports_ask_for() {
    let text = help(&["help", "evidence"]);
    let empty = ringleader_model::Case::default();
    let report = ringleader_report::json::Report::new(&empty, &crate::hand_made::healthy());
    for missing in &report.not_looked_at {
        assert!(text.lines().any(|row| row.starts_with(&format!("  {} ", missing.kind))), "{}", missing.kind);
    }
}

#[test]
fn what_cannot_be_obeyed_is_2() {
    for args in [
        &["diagnose"][..],
        &["diagnose", "--format", "xml", "."],
        &["diagnose", "/nope/nowhere"],
        &["help", "nothing"],
        &["fly"],
    ] {
        let output = ringleader().args(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
        assert!(err(&output).starts_with("error: "), "{}", err(&output));
    }
    let output = ringleader().args(["diagnose", "/nope/nowhere"]).output().unwrap();
    insta::assert_snapshot!(err(&output), @r"
    error: failed to find /nope/nowhere: No such file or directory (os error 2)
      help: name a folder, files, or - for standard input: ringleader diagnose PATH…
    ");
}

/// `/dev/full` plays a full disk, wherever the report goes.
#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_6() {
    let full = || std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let log = case("skipped-allreduce").join("stderr.log");
    let log = log.to_str().unwrap();
    for args in [
        &["diagnose", log][..],
        &["diagnose", "--format", "json", log],
        &["explain", "xid", "79"],
        &["help", "exit-codes"],
        &["--help"],
        &["collect", "--no-stacks", "--no-ras", "--no-logs", "-o", "-"],
    ] {
        let output = ringleader().args(args).stdout(full()).output().unwrap();
        assert_eq!(output.status.code(), Some(Code::Refused as i32), "{args:?}: {}", err(&output));
        assert!(err(&output).contains("No space left"), "{args:?}: {}", err(&output));
    }
}

/// A command inside namespaces of its own; `None`, with a message, where they are not allowed.
#[cfg(target_os = "linux")]
#[expect(clippy::print_stderr, reason = "a test that is skipped says so")]
pub(crate) fn apart(options: &[&str], script: &str) -> Option<Command> {
    let make = |script: &str| {
        let mut command = Command::new("unshare");
        command
            .args(options)
            .args(["sh", "-c", script, env!("CARGO_BIN_EXE_ringleader")])
            .stdin(Stdio::null());
        command
    };
    let tried = make(&script.replace("exec \"$0\" \"$@\"", "true")).output();
    if tried.is_ok_and(|tried| tried.status.success()) {
        return Some(make(script));
    }
    eprintln!("skipped: no namespaces of one's own are allowed here");
    None
}

/// Without /proc nothing is known of any process: that is neither a bug nor a process that is missing.
#[cfg(target_os = "linux")]
#[test]
fn a_machine_without_proc_is_6() {
    let folder = tempfile::tempdir().unwrap();
    let commands = [
        "check --quick",
        "collect -o b.tar.zst",
        "diagnose --live",
        "watch --once --pid 1",
        "env --check 1",
        "run -- true",
    ];
    for command in commands {
        let script = "mount -t tmpfs none /proc && exec \"$0\" \"$@\"";
        let Some(mut apart) = apart(&["--user", "--map-root-user", "--mount"], script) else { return };
        let output = apart.args(command.split(' ')).current_dir(folder.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(Code::Refused as i32), "{command}: {}", err(&output));
        assert!(err(&output).contains("/proc mounted"), "{command}: {}", err(&output));
    }
}

/// Files that nobody lets us read are refused, not absent.
#[cfg(target_os = "linux")]
#[test]
fn files_without_permission_are_6() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("rank0.log");
    std::fs::write(&log, "NCCL WARN Call to connect returned Connection refused\n").unwrap();
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o000)).unwrap();
    // Root reads everything, but not from a namespace in which it is nobody.
    let Some(mut apart) = apart(&["--user"], "exec \"$0\" \"$@\"") else { return };
    let output = apart.arg("diagnose").arg(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(Code::Refused as i32), "{}{}", out(&output), err(&output));
    assert!(err(&output).contains("ermission denied"), "{}", err(&output));
}

/// `json` and `json-v1` are one format, whatever prints it.
#[test]
fn json_is_json_v1() {
    for args in [&["diagnose", case("segfault").to_str().unwrap()][..], &["explain", "xid", "79"]] {
        let print =
            |format: &str| ringleader().args(args).args(["--format", format]).output().unwrap().stdout;
        assert!(print("json").starts_with(b"{\n  \"schema\": \"ringleader."), "{args:?}");
        assert_eq!(print("json"), print("json-v1"), "{args:?}");
    }
    // A node has values of the moment: only that it is understood.
    let from = ["check", "--from", "/nowhere", "--format"];
    for format in ["json", "json-v1"] {
        let output = ringleader().args(from).arg(format).output().unwrap();
        assert!(err(&output).contains("read /nowhere"), "{}", err(&output));
    }
}

#[test]
fn no_usable_evidence_is_3_and_still_a_report() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("notes.txt"), "buy milk\n").unwrap();
    let output = ringleader().args(["diagnose", "--format", "json"]).arg(folder.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(3));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["looked_at"][0]["source"], "notes.txt");
    let verdict = &report["verdict"];
    assert_eq!((&verdict["cause"], &verdict["confidence"]), (&"undecided".into(), &"low".into()));
    let said =
        "nothing here was understood: no line reports a failure, and none shows a job that makes progress";
    assert_eq!(verdict["summary"], said);
    let message = err(&output).replace(&folder.path().display().to_string(), "FOLDER");
    insta::assert_snapshot!(message, @r"
    error: failed to find evidence in FOLDER: 1 file read, not of a known kind
      help: `ringleader help evidence` lists what is read and how to get it
    ");
}

/// The cause is the first line, whatever there was nothing of.
#[test]
fn where_nothing_can_be_read_the_first_line_says_why() {
    let folder = tempfile::tempdir().unwrap();
    let run = || ringleader().arg("diagnose").arg(folder.path()).output().unwrap();
    let empty = run();
    assert_eq!(empty.status.code(), Some(3));
    assert!(out(&empty).starts_with("nothing to read: there is no file"), "{}", out(&empty));
    std::fs::write(folder.path().join("x.bin"), [0xa5, 0x00, 0xff, 0x17, 0x9c, 0x00]).unwrap();
    let binary = run();
    assert_eq!(binary.status.code(), Some(3));
    assert!(out(&binary).starts_with("nothing readable: x.bin: binary content"), "{}", out(&binary));
    assert!(out(&binary).lines().count() < 10, "{}", out(&binary));
}

/// Frequent slips are answered with what was meant.
#[test]
fn slips_are_answered() {
    let folder = tempfile::tempdir().unwrap();
    let logs = case("segfault");
    let path = logs.to_str().unwrap();
    let page = folder.path().join("none/x.html");
    for (args, said) in [
        (vec!["logs/"], "ringleader diagnose logs/"),
        (vec!["diagnose", "--format", "html", path], "--html FILE"),
        (vec!["diagnose", "--html", page.to_str().unwrap(), path], "does the folder exist"),
        (vec!["diagnose"], "ringleader diagnose [OPTIONS] <PATH>..."),
    ] {
        let output = ringleader().args(&args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(err(&output).contains(said) && !err(&output).contains(" -o"), "{args:?}: {}", err(&output));
    }
    let listed = help(&["diagnose", "--help"]);
    assert!(listed.contains("json, json-v1"), "{listed}");
}

#[test]
fn without_utf_8_the_reports_own_signs_are_ascii() {
    let run = |locale: &str| {
        let mut command = ringleader();
        command.arg("diagnose").arg(case("missing-rank")).env("LC_ALL", locale);
        String::from_utf8(command.output().unwrap().stdout).unwrap()
    };
    assert!(!run("C").contains('…'));
    assert_eq!(run("C"), run("C.UTF-8").replace('…', "..."));
}

/// Jobs that have folders of their own are told first, each with its command; the job that the report is about leads.
#[test]
fn jobs_in_folders_are_told_first() {
    for (first, second) in
        [("skipped-allreduce", "kernel-memory-failure"), ("kernel-memory-failure", "skipped-allreduce")]
    {
        let folder = tempfile::tempdir().unwrap();
        for (name, job) in [("a", first), ("b", second)] {
            let to = folder.path().join(name);
            std::fs::create_dir(&to).unwrap();
            for entry in std::fs::read_dir(case(job)).unwrap().flatten() {
                std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
            }
        }
        let output = ringleader().arg("diagnose").arg(folder.path()).output().unwrap();
        let text = out(&output);
        assert!(text.starts_with("2 jobs or attempts in what was given\n"), "{text}");
        let words: String = text.split_whitespace().collect::<Vec<_>>().join(" ");
        for name in ["a", "b"] {
            let command = format!("$ ringleader diagnose {}/{name} ", folder.path().display());
            assert!(words.contains(&command), "{text}");
        }
        assert!(!text.contains("<the files of one attempt>"), "{text}");
        let output = ringleader().args(["diagnose", "--format", "json"]).arg(folder.path()).output().unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let cause = |verdict: &serde_json::Value| (verdict["cause"].clone(), verdict["summary"].clone());
        let jobs = report["jobs"].as_array().unwrap();
        assert_eq!(cause(&jobs[0]["verdict"]), cause(&report["verdict"]), "{report}");
        assert_ne!(cause(&jobs[1]["verdict"]), cause(&report["verdict"]), "{report}");
    }
}

#[test]
fn never_failing_is_0() {
    let run =
        |command: &mut Command| command.arg("diagnose").arg(case("skipped-allreduce")).output().unwrap();
    assert!(matches!(run(&mut ringleader()).status.code(), Some(4 | 5)));
    assert_eq!(run(ringleader().env("RINGLEADER_FAIL_ON", "never")).status.code(), Some(0));
    let output = ringleader()
        .args(["diagnose", "--fail-on", "never"])
        .arg(case("skipped-allreduce"))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0));
}

#[test]
fn options_are_variables_too() {
    let by_option =
        |args: &[&str]| ringleader().arg("diagnose").args(args).arg(case("segfault")).output().unwrap();
    let by_variable = |name: &str, value: &str| {
        ringleader().env(name, value).arg("diagnose").arg(case("segfault")).output().unwrap()
    };
    for (args, name, value) in [
        (&["--format", "json"][..], "RINGLEADER_FORMAT", "json-v1"),
        (&["--format", "markdown"], "RINGLEADER_FORMAT", "markdown"),
        (&["--color", "always"], "RINGLEADER_COLOR", "always"),
        (&["--width", "60"], "RINGLEADER_WIDTH", "60"),
        (&["--quiet"], "RINGLEADER_QUIET", "1"),
        (&["--verbose"], "RINGLEADER_VERBOSE", "yes"),
    ] {
        let (option, variable) = (by_option(args), by_variable(name, value));
        assert_eq!(out(&option), out(&variable), "{name}");
        assert_ne!(out(&option), out(&by_option(&[])), "{name} changes nothing");
    }
    assert_eq!(out(&by_variable("RINGLEADER_QUIET", "0")), out(&by_option(&[])));
}

#[test]
fn no_colour_but_where_asked_for() {
    let run = |args: &[&str], no_color: bool| {
        let mut command = ringleader();
        if no_color {
            command.env("NO_COLOR", "1");
        }
        command.arg("diagnose").args(args).arg(case("skipped-allreduce")).output().unwrap().stdout
    };
    assert!(!run(&[], false).contains(&0x1b), "standard output is no terminal");
    assert!(!run(&["--color", "never"], false).contains(&0x1b));
    assert!(run(&["--color", "always"], false).contains(&0x1b));
    assert!(!run(&[], true).contains(&0x1b));
}

#[test]
fn standard_input_is_a_path() {
    let log = std::fs::read(case("skipped-allreduce").join("stderr.log")).unwrap();
    let mut child = ringleader()
        .args(["diagnose", "--format", "json", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(&log).unwrap();
    let output = child.wait_with_output().unwrap();
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["looked_at"][0]["source"], "stdin");
}

#[test]
fn paths_are_shown_as_the_user_finds_them() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["a/x.log", "a/deep/y.log", "b/x.log"] {
        let path = folder.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "hello\n").unwrap();
    }
    let sources = |args: &[&str]| {
        let mut command = ringleader();
        let output = command
            .current_dir(folder.path())
            .args(["diagnose", "--format", "json"])
            .args(args)
            .output()
            .unwrap();
        let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        report["looked_at"]
            .as_array()
            .unwrap()
            .iter()
            .map(|e| e["source"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(sources(&["."]), ["a/deep/y.log", "a/x.log", "b/x.log"]);
    assert_eq!(sources(&["a"]), ["deep/y.log", "x.log"]);
    assert_eq!(sources(&["a/x.log"]), ["a/x.log"]);
    assert_eq!(sources(&["b/", "a"]), ["a/deep/y.log", "a/x.log", "b/x.log"]);
    // A file that is named twice is evidence once.
    assert_eq!(sources(&["a", "a/x.log", "./a"]), ["a/deep/y.log", "a/x.log"]);
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let folder = tempfile::tempdir().unwrap();
    // More report than a pipe holds.
    for n in 0..2_000 {
        std::fs::write(folder.path().join(format!("{n}.txt")), "x\n").unwrap();
    }
    let mut child = ringleader()
        .args(["diagnose", "--format", "json", "--fail-on", "never"])
        .arg(folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut some = [0; 16];
    child.stdout.take().unwrap().read_exact(&mut some).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert_eq!(err(&output), "");
}

#[test]
fn threads_change_no_byte() {
    let run = |threads: &str, path: &Path| {
        ringleader()
            .env("RAYON_NUM_THREADS", threads)
            .args(["diagnose", "--format", "json"])
            .arg(path)
            .output()
            .unwrap()
            .stdout
    };
    for name in ["skipped-allreduce", "nodes-healthy"] {
        let one = run("1", &case(name));
        assert!(!one.is_empty());
        assert!(one == run("7", &case(name)), "{name}");
    }
}
