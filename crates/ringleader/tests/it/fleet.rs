//! `check` on many nodes: a stub in place of ssh, real sshds, a real Slurm. The last two say so and pass where their
//! programs are not installed.

use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use ringleader_check::answer::{Value, ValueKind};
use ringleader_check::{CheckResult, CheckState, NodeReport, SCHEMA};

use crate::cli::{err, out, ringleader};
use crate::schema::Schema;

fn report(host: &str, driver: &str, bad: bool) -> NodeReport {
    let check = |id: &str, verdict, summary: &str| CheckResult {
        id: id.to_owned(),
        area: "gpu".to_owned(),
        verdict,
        summary: summary.to_owned(),
        drains: id == "gpu-ecc",
        items: Vec::new(),
        fixes: Vec::new(),
    };
    let ecc = if bad { (CheckState::Fail, "GPU 3: 2 <errors> & \"more\"") } else { (CheckState::Ok, "none") };
    NodeReport {
        schema: SCHEMA.to_owned(),
        tool_version: "0.2.0".to_owned(),
        host: host.to_owned(),
        at_ns: 1,
        took_ms: 400,
        checks: vec![check("gpu-ecc", ecc.0, ecc.1), check("shm-space", CheckState::Skipped, "not\u{1}read")],
        values: vec![Value {
            key: "driver\\\"version".to_owned(),
            value: driver.to_owned(),
            kind: ValueKind::Same,
        }],
        ..NodeReport::default()
    }
}

/// A program in place of ssh that plays recorded answers: the report of `HOST` is in `HOST.json`, and what is said of
/// `HOST.sh` is a script to run.
pub(crate) fn player(folder: &Path) -> PathBuf {
    let path = folder.join("ssh");
    let script = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\nD={}\n[ -e \"$D/$2.sh\" ] && exec sh \"$D/$2.sh\"\n\
         IFS= read -r line < \"$D/$2.json\"\nprintf '%s\\n' \"$line\"\n",
        folder.display()
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

fn plays(folder: &Path, host: &str, report: &NodeReport) {
    let text = serde_json::to_string(report).unwrap();
    std::fs::write(folder.join(format!("{host}.json")), text + "\n").unwrap();
}

pub(crate) fn script(folder: &Path, host: &str, text: &str) {
    std::fs::write(folder.join(format!("{host}.sh")), text).unwrap();
}

fn check(folder: &Path, args: &[&str]) -> Output {
    ringleader().args(["check", "--unstable-ssh"]).arg(folder.join("ssh")).args(args).output().unwrap()
}

#[test]
fn many_nodes_are_one_table() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    player(folder);
    for n in 1..=120 {
        let driver = if n == 17 { "565.57" } else { "570.12" };
        plays(folder, &format!("node{n:03}"), &report(&format!("node{n:03}"), driver, (40..44).contains(&n)));
    }
    script(folder, "node118", "exec sleep 60");
    script(
        folder,
        "node119",
        "echo 'ssh: connect to host node119 port 22: Connection refused' >&2; exit 255",
    );
    script(folder, "node120", "echo 'sh: 1: ringleader: not found' >&2; exit 127");
    let started = Instant::now();
    let output = check(folder, &["--hosts", "node[001-120]", "--node-deadline-secs", "20", "--width", "100"]);
    assert_eq!(output.status.code(), Some(4), "{}", err(&output));
    assert!(started.elapsed() < Duration::from_mins(2));
    let text = out(&output);
    // Not dependent on the size of the fleet: the same faults on thirty nodes give as many lines.
    assert!(text.lines().count() < 30, "{text}");
    let mut shown = text.to_owned();
    if let Some(at) = shown.find("\nclocks:") {
        shown.truncate(at);
    }
    insta::assert_snapshot!(shown);
}

#[test]
fn answers_stream_as_lines_and_the_silent_are_lines_too() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    player(folder);
    plays(folder, "a", &report("a", "570", false));
    // A login shell that greets, and a host that calls itself otherwise.
    plays(folder, "other", &report("self", "570", false));
    script(folder, "b", &format!("echo welcome; cat {}/other.json", folder.display()));
    script(folder, "c", "echo 'error: unrecognized subcommand' >&2; exit 2");
    std::fs::write(folder.join("hosts"), "# ours\na slots=8\n\nb:4  # no such name\n").unwrap();
    let hosts = format!("@{}", folder.join("hosts").display());
    let output = check(folder, &["--hosts", &hosts, "--hosts", "b,c,a", "--format", "jsonl"]);
    assert_eq!(output.status.code(), Some(5), "{}", err(&output));
    let lines: Vec<serde_json::Value> =
        out(&output).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 5, "{}", out(&output));
    let of = |name: &str| {
        lines
            .iter()
            .find(|line| line["target"] == name || (line["target"].is_null() && line["host"] == name))
            .unwrap()
    };
    assert_eq!(of("a")["schema"], "ringleader.check.v1");
    assert_eq!(of("b")["host"], "self");
    assert_eq!(
        (of("c")["schema"].as_str(), of("c")["kind"].as_str()),
        (Some("ringleader.silent.v1"), Some("no-report"))
    );
    assert!(of("c")["why"].as_str().unwrap().contains("unrecognized subcommand"));
    assert_eq!(of("b:4")["schema"], "ringleader.silent.v1");
    assert_eq!(lines[4]["schema"], "ringleader.fleet.v1");
    assert_eq!(lines[4]["n_asked"], 4);
    assert!(err(&output).contains("4 nodes: "), "the table stands beside the stream: {}", err(&output));
    // What is printed is what the schemas say.
    for (line, schema) in [
        (of("a"), ringleader::check::schema::check()),
        (of("c"), ringleader::check::schema::silent()),
        (&lines[4], ringleader::check::schema::fleet()),
    ] {
        assert_eq!(Schema::new(&schema).misfits(line), Vec::<String>::new());
    }
}

#[test]
fn the_committed_schemas_are_those_of_the_types() {
    for (name, schema) in [
        ("check", ringleader::check::schema::check()),
        ("fleet", ringleader::check::schema::fleet()),
        ("silent", ringleader::check::schema::silent()),
    ] {
        let path = crate::root().join(format!("docs/{name}-v1.schema.json"));
        let committed = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(committed == schema, "cargo xtask gen renews {}", path.display());
    }
}

#[test]
fn exit_codes_tell_a_fault_from_a_silence() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    player(folder);
    plays(folder, "well", &report("well", "570", false));
    plays(folder, "ill", &report("ill", "570", true));
    script(folder, "gone", "exit 255");
    let code = |args: &[&str]| check(folder, args).status.code();
    assert_eq!(code(&["--hosts", "well"]), Some(0));
    assert_eq!(code(&["--hosts", "well,ill,gone"]), Some(4));
    assert_eq!(code(&["--hosts", "well,gone"]), Some(5));
    assert_eq!(code(&["--hosts", "gone"]), Some(3));
    assert_eq!(code(&["--hosts", "ill,gone", "--fail-on", "never"]), Some(0));
    for args in [
        &["--hosts", "n[1-"][..],
        &["--hosts", "-oProxyCommand=x"],
        &["--hosts", ""],
        &["--hostfile", "/nope"],
        &["--hosts", "a", "--slurm", "1"],
        &["--hosts", "a", "--format", "node-json"],
        &["--hosts", "a", "--fix"],
        &["--hosts", "a", "--only", "no-such-check"],
        &["--hosts", "a", "--parallel", "0"],
    ] {
        assert_eq!(code(args), Some(2), "{args:?}");
    }
}

#[test]
fn junit_is_well_formed_whatever_a_node_says() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    player(folder);
    plays(folder, "well", &report("well", "570", false));
    plays(folder, "ill", &report("ill", "570", true));
    script(folder, "gone", "echo 'ssh: <&>\\001' >&2; exit 255");
    let file = folder.join("check.xml");
    let output =
        check(folder, &["--hosts", "well,ill,gone", "--format", "junit", "--output", file.to_str().unwrap()]);
    assert_eq!((output.status.code(), out(&output)), (Some(4), ""));
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(!text.contains('\u{1}'));
    let mut reader = quick_xml::Reader::from_str(&text);
    let (mut n_open, mut n_cases, mut n_failures, mut n_errors, mut n_skipped) = (0, 0, 0, 0, 0);
    let mut message = String::new();
    loop {
        use quick_xml::events::Event;
        let event = reader.read_event().unwrap();
        if let Event::Start(start) | Event::Empty(start) = &event {
            match start.name().as_ref() {
                b"testcase" => n_cases += 1,
                b"failure" => {
                    n_failures += 1;
                    let attribute = start.try_get_attribute("message").unwrap().unwrap();
                    message = attribute.unescape_value().unwrap().into_owned();
                }
                b"error" => n_errors += 1,
                b"skipped" => n_skipped += 1,
                _ => {}
            }
        }
        match event {
            Event::Start(_) => n_open += 1,
            Event::End(_) => n_open -= 1,
            Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!((n_open, n_cases, n_failures, n_errors, n_skipped), (0, 5, 1, 1, 2), "{text}");
    assert_eq!(message, "GPU 3: 2 <errors> & \"more\"");
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains(".new.")), "{left:?}");
}

#[test]
fn metrics_escape_what_nodes_say() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    player(folder);
    plays(folder, "a", &report("a", "570\n", true));
    plays(folder, "b", &report("b", "570.5", false));
    script(folder, "gone", "exit 255");
    let output = check(folder, &["--hosts", "a,b,gone", "--format", "prometheus"]);
    let text = out(&output);
    for line in [
        "ringleader_check{node=\"a\",check=\"gpu-ecc\"} 2",
        "ringleader_check{node=\"b\",check=\"gpu-ecc\"} 0",
        "ringleader_check{node=\"b\",check=\"shm-space\"} 3",
        r#"ringleader_value{node="b",key="driver\\\"version"} 570.5"#,
        r#"ringleader_value_info{node="a",key="driver\\\"version",value="570\n"} 1"#,
        "ringleader_node_answered{node=\"gone\"} 0",
        "ringleader_node_answered{node=\"a\"} 1",
    ] {
        assert!(text.lines().any(|row| row == line), "{line} is not in:\n{text}");
    }
    // All samples of a metric are together, under its type.
    let mut seen: Vec<&str> = Vec::new();
    for row in text.lines().filter(|row| !row.starts_with('#')) {
        let name = row.split('{').next().unwrap();
        if seen.last() != Some(&name) {
            assert!(!seen.contains(&name), "{name} stands in two places");
            assert!(text.contains(&format!("# TYPE {name} gauge\n")));
            seen.push(name);
        }
    }
}

#[test]
fn a_baseline_tells_what_has_changed() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    player(folder);
    for host in ["a", "b", "c"] {
        plays(folder, host, &report(host, "570", false));
    }
    let file = folder.join("good.json");
    let file = file.to_str().unwrap();
    let output = check(folder, &["--hosts", "a,b,c", "--save-baseline", file]);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(err(&output).contains("baseline of 3 nodes"), "{}", err(&output));
    let against =
        |extra: &[&str]| check(folder, &[&["--hosts", "a,b,c,d", "--against", file], extra].concat());
    plays(folder, "d", &report("d", "575", false));
    for host in ["a", "b", "c"] {
        plays(folder, host, &report(host, "575", host == "c"));
    }
    let output = against(&["--format", "json"]);
    let report: serde_json::Value = serde_json::from_str(out(&output)).unwrap();
    let changes: Vec<_> = report["changes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|c| (c["key"].as_str().unwrap(), c["hosts"].as_str().unwrap()))
        .collect();
    assert_eq!(changes, [("gpu-ecc", "c"), ("driver\\\"version", "a,b,c")]);
    assert_eq!(report["without_baseline"], "d");
    assert!(out(&against(&[])).contains("not in the baseline"));
    std::fs::write(file, "{}").unwrap();
    assert_eq!(against(&[]).status.code(), Some(2));
}

/// The same on one node, and what is not for machines is not done without a terminal.
#[test]
fn one_node_has_the_same_outputs() {
    let folder = tempfile::tempdir().unwrap();
    let node = ringleader().args(["check", "--only", "shm-space", "--format", "node-json"]).output().unwrap();
    let recorded = folder.path().join("node.json");
    std::fs::write(&recorded, &node.stdout).unwrap();
    let run = |args: &[&str]| {
        let mut command = ringleader();
        command
            .args(["check", "--only", "shm-space", "--fail-on", "never", "--from"])
            .arg(&recorded)
            .args(args);
        command.output().unwrap()
    };
    for (format, start) in [
        ("jsonl", "{\"schema\":\"ringleader.check.v1\""),
        ("junit", "<?xml"),
        ("prometheus", "# HELP ringleader_check "),
        ("json", "{\n  \"schema\": \"ringleader.check.v1\""),
    ] {
        let output = run(&["--format", format]);
        assert!(out(&output).starts_with(start), "{format}: {}{}", out(&output), err(&output));
    }
    let baseline = folder.path().join("b.json");
    let baseline = baseline.to_str().unwrap();
    assert_eq!(run(&["--save-baseline", baseline]).status.code(), Some(0));
    let same = run(&["--against", baseline, "--format", "json"]);
    assert!(!out(&same).contains("\"changes\""), "{}", out(&same));
    let refused = run(&["--kill-orphans", "1"]);
    assert_eq!(refused.status.code(), Some(2), "{}", err(&refused));
}

/// Starts something of `zoo/`, and ends it however the test ends. None if its programs are not installed here.
pub(crate) struct Zoo {
    script: PathBuf,
    pub(crate) folder: tempfile::TempDir,
}

fn not_tested(why: &str) {
    use std::io::Write as _;
    // Nobody is left to tell if standard error is gone.
    let _ = writeln!(std::io::stderr(), "not tested: {why}");
}

impl Zoo {
    pub(crate) fn start(name: &str, args: &[&str]) -> Option<Self> {
        let script = crate::root().join("zoo").join(name);
        let folder = tempfile::tempdir().unwrap();
        let zoo = Self { script, folder };
        let output = zoo.run("start", args);
        match output.status.code() {
            Some(0) => Some(zoo),
            Some(69) => {
                not_tested(err(&output).trim());
                None
            }
            _ => panic!("{}{}", out(&output), err(&output)),
        }
    }

    fn run(&self, verb: &str, args: &[&str]) -> Output {
        Command::new(&self.script).arg(verb).arg(self.folder.path()).args(args).output().unwrap()
    }
}

impl Drop for Zoo {
    fn drop(&mut self) {
        let _ = self.run("stop", &[]);
    }
}

/// The program without what is for debuggers alone, half a gigabyte that copying would have to carry; as it is, where
/// there is no tool for that.
pub(crate) fn small(folder: &Path) -> PathBuf {
    let (built, small) = (env!("CARGO_BIN_EXE_ringleader"), folder.join("ringleader"));
    let strip = Command::new("strip").arg("-s").arg("-o").arg(&small).arg(built).status();
    if !strip.is_ok_and(|status| status.success()) {
        std::fs::copy(built, &small).unwrap();
    }
    small
}

fn silent(report: &serde_json::Value) -> Vec<(String, String)> {
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    report["silent"]
        .as_array()
        .unwrap()
        .iter()
        .map(|silent| (text(&silent["kind"]), text(&silent["hosts"])))
        .collect()
}

#[test]
fn real_sshds() {
    let scratch = tempfile::tempdir().unwrap();
    let program = small(scratch.path());
    let Some(zoo) = Zoo::start("ssh.sh", &[program.to_str().unwrap()]) else { return };
    let config = zoo.folder.path().join("ssh_config");
    let run = |extra: &[&str]| {
        let mut command = Command::new(&program);
        command.args([
            "check",
            "--only",
            "shm-space",
            "--hosts",
            "n[1-6]",
            "--fail-on",
            "never",
            "--format",
            "json",
        ]);
        command.args(["--ssh-config", config.to_str().unwrap(), "--node-deadline-secs", "25"]).args(extra);
        let output = command.output().unwrap();
        serde_json::from_str::<serde_json::Value>(out(&output)).unwrap_or_else(|_| panic!("{}", err(&output)))
    };
    let report = run(&[]);
    let pair = |kind: &str, hosts: &str| (kind.to_owned(), hosts.to_owned());
    assert_eq!(
        silent(&report),
        [pair("unreachable", "n3"), pair("refused", "n6"), pair("timed-out", "n4"), pair("no-program", "n5")],
        "{report:#}"
    );
    assert_eq!(report["n_answered"], 2);
    assert_eq!(report["clocks"]["n_measured"], 2);
    assert!(
        report["clocks"]["outliers"].as_array().unwrap().is_empty(),
        "one clock agrees with itself: {report:#}"
    );
    // With --copy the node without the program has it, and so it stays.
    let copied = run(&["--copy"]);
    assert_eq!(
        silent(&copied),
        [pair("unreachable", "n3"), pair("refused", "n6"), pair("timed-out", "n4")],
        "{copied:#}"
    );
    assert_eq!(copied["n_answered"], 3);
    let cache = zoo.folder.path().join("home5/.cache/ringleader");
    let folders: Vec<_> = std::fs::read_dir(&cache).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(folders.len(), 1);
    let files: Vec<_> = std::fs::read_dir(&folders[0]).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert_eq!(files, [folders[0].join("ringleader")], "nothing half-written stays");
    assert_eq!(std::fs::read(&files[0]).unwrap().len() as u64, std::fs::metadata(&program).unwrap().len());
    let written = std::fs::metadata(&files[0]).unwrap().modified().unwrap();
    assert_eq!(run(&["--copy"])["n_answered"], 3);
    assert_eq!(std::fs::metadata(&files[0]).unwrap().modified().unwrap(), written, "not copied again");
}

#[test]
fn a_real_slurm() {
    if !rustix::process::geteuid().is_root() {
        not_tested("a Slurm of network namespaces needs root");
        return;
    }
    let Some(zoo) = Zoo::start("slurm.sh", &["5"]) else { return };
    let job = out(&zoo.run("job", &["5"])).trim().to_owned();
    assert!(job.parse::<u32>().is_ok(), "{job}");
    // n5 is slow: the program itself sleeps there.
    let wrapper = zoo.folder.path().join("slow");
    let mut text = "#!/bin/sh\n[ \"$(uname -n)\" = n5 ] && sleep 40\n".to_owned();
    writeln!(text, "exec {} \"$@\"", env!("CARGO_BIN_EXE_ringleader")).unwrap();
    std::fs::write(&wrapper, text).unwrap();
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = env!("CARGO_BIN_EXE_ringleader");
    let fixed = ["check", "--only", "shm-space", "--fail-on", "never", "--format", "json", "--slurm", &job];
    let parse = |text: &str, said: &str| -> serde_json::Value {
        serde_json::from_str(text).unwrap_or_else(|_| panic!("{text}{said}"))
    };
    // The job starts in its own time.
    let until = Instant::now() + Duration::from_secs(30);
    let report = loop {
        let output = zoo.run("in", &[&[program][..], &fixed].concat());
        if output.status.success() || Instant::now() > until {
            break parse(out(&output), err(&output));
        }
        assert!(err(&output).contains("holds no nodes"), "{}", err(&output));
        std::thread::sleep(Duration::from_millis(200));
    };
    assert_eq!((&report["n_answered"], silent(&report)), (&5.into(), vec![]), "{report:#}");
    assert_eq!(report["notes"].as_array().unwrap().len(), 0, "each node has a name of its own");

    // Inside of the allocation: from the batch script of a job, on one of its nodes.
    let written = zoo.folder.path().join("inside.json");
    let line = format!(
        "{program} check --only shm-space --fail-on never --format json --slurm $SLURM_JOB_ID --output {}",
        written.display()
    );
    zoo.run("in", &["scancel", &job]);
    let job =
        zoo.run("in", &["sbatch", "--parsable", "-D", "/", "-o", "/dev/null", "-N", "3", "--wrap", &line]);
    assert!(job.status.success(), "{}", err(&job));
    let until = Instant::now() + Duration::from_mins(1);
    while !written.exists() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(200));
    }
    let inside = parse(&std::fs::read_to_string(&written).unwrap_or_default(), "nothing was written inside");
    assert_eq!(inside["n_answered"], 3, "{inside:#}");

    // A dead slurmd, one that takes connections and does not answer, and a slow program.
    let job = out(&zoo.run("job", &["5"])).trim().to_owned();
    std::thread::sleep(Duration::from_secs(3));
    zoo.run("kill", &["n3"]);
    zoo.run("hang", &["n4"]);
    let output = zoo.run(
        "in",
        &[
            &[program][..],
            &["check", "--only", "shm-space", "--fail-on", "never", "--format", "json", "--slurm", &job],
            &["--node-deadline-secs", "15", "--remote-program", wrapper.to_str().unwrap()],
        ]
        .concat(),
    );
    let report = parse(out(&output), err(&output));
    assert_eq!(report["n_answered"], 2, "{report:#}");
    let mut told = silent(&report);
    told.sort();
    let named: Vec<&str> = told.iter().map(|(_, hosts)| hosts.as_str()).collect();
    assert!(told.contains(&("unreachable".to_owned(), "n3".to_owned())), "{report:#}");
    let slow: String =
        told.iter().filter(|(kind, _)| kind == "timed-out").map(|(_, hosts)| hosts.as_str()).collect();
    assert!(slow.contains('4') && slow.contains('5'), "{named:?} {report:#}");
}

/// A stand-in for the API of Kubernetes, ended with the test.
#[cfg(feature = "kube")]
pub(crate) struct Api {
    child: std::process::Child,
    pub(crate) folder: tempfile::TempDir,
}

#[cfg(feature = "kube")]
impl Api {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new("python3")
            .arg(crate::root().join("zoo/kube_api.py"))
            .arg(folder.path())
            .arg(env!("CARGO_BIN_EXE_ringleader"))
            .spawn()
            .unwrap();
        let api = Self { child, folder };
        let until = Instant::now() + Duration::from_secs(20);
        while !api.config().exists() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
        api
    }

    pub(crate) fn config(&self) -> PathBuf {
        self.folder.path().join("kubeconfig")
    }
}

#[cfg(feature = "kube")]
impl Drop for Api {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Pods through a stand-in for the API: who answers, who lacks the program, who is slow, whom we may not enter.
#[cfg(feature = "kube")]
#[test]
fn pods_through_the_api() {
    let api = Api::start();
    let run = |args: &[&str]| {
        let mut command = ringleader();
        command.env("KUBECONFIG", api.config()).args(["check", "--only", "shm-space", "--fail-on", "never"]);
        command
            .args(["--node-deadline-secs", "10", "--format", "json", "--kube"])
            .args(args)
            .output()
            .unwrap()
    };
    let output = run(&["app=ringleader"]);
    let none = run(&["app=none"]);
    let report: serde_json::Value =
        serde_json::from_str(out(&output)).unwrap_or_else(|_| panic!("{}", err(&output)));
    let mut told = silent(&report);
    told.sort();
    let pair = |kind: &str, hosts: &str| (kind.to_owned(), hosts.to_owned());
    assert_eq!(
        told,
        [pair("no-program", "bare"), pair("refused", "forbidden"), pair("timed-out", "slow")],
        "{report:#}"
    );
    assert_eq!((&report["n_asked"], &report["n_answered"]), (&4.into(), &1.into()), "one has ended");
    assert_eq!(none.status.code(), Some(2), "{}", err(&none));
    assert!(err(&none).contains("no running pod"), "{}", err(&none));
}

/// Every node gets the peers that were named, and some of the others of its fleet.
#[test]
fn peers_are_handed_on_and_nodes_try_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let at = folder.display();
    let stub = format!(
        "#!/bin/sh\nwhile [ \"$1\" != -- ]; do shift; done\necho \"$2 $3\" >> {at}/asked\ncat {at}/any.json\n"
    );
    std::fs::write(folder.join("ssh"), stub).unwrap();
    std::fs::set_permissions(folder.join("ssh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    plays(folder, "any", &report("any", "570", false));
    let asked = |args: &[&str]| {
        let _ = std::fs::remove_file(folder.join("asked"));
        let output = check(folder, args);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let text = std::fs::read_to_string(folder.join("asked")).unwrap();
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    let lines = asked(&["--hosts", "root@n1,n2,n3", "--peer", "store:29500,gw"]);
    assert_eq!(lines.len(), 3);
    for (line, others) in lines.iter().zip([["n1", "n3"], ["n1", "n2"], ["n2", "n3"]]) {
        assert!(line.contains("--peer store:29500 --peer gw"), "{line}");
        for other in others {
            assert!(line.contains(&format!("--fleet-peer {other}")), "{line}");
        }
        assert_eq!(line.matches("--fleet-peer").count(), 2, "{line}");
    }
    // Nobody waits for connections where they are not asked about, and a thousand nodes are not tried by each.
    assert!(asked(&["--hosts", "n1,n2", "--only", "limits"]).iter().all(|line| !line.contains("fleet-peer")));
    let lines = asked(&["--hosts", "n[01-20]"]);
    assert!(lines.iter().all(|line| line.matches("--fleet-peer").count() == 4), "{lines:?}");
}

/// What cannot be looked at is no health, and what was asked for and is not so is said.
#[test]
fn one_node_that_is_asked_for_what_is_not_there() {
    let folder = tempfile::tempdir().unwrap();
    let run =
        |args: &[&str]| ringleader().current_dir(folder.path()).arg("check").args(args).output().unwrap();
    let code = |args: &[&str]| run(args).status.code();
    assert_eq!(code(&["--only", "limits", "--for", "prolog", "--format", "junit"]), Some(2));
    assert_eq!(code(&["--only", "peers-reachable", "--peer", ""]), Some(2));
    let gone = run(&["--only", "job-processes", "--pid", "4000000"]);
    assert_eq!(gone.status.code(), Some(3), "{}", out(&gone));
    assert!(err(&gone).contains("there is no process 4000000"), "{}", err(&gone));
    let refused = run(&["--only", "job-orphans", "--kill-orphans", "4000000"]);
    assert_eq!(refused.status.code(), Some(4), "{}", err(&refused));
    assert!(err(&refused).contains("left alone"), "{}", err(&refused));
    for args in
        [["--from", "/nonexistent/x"], ["--against", "/nonexistent/x"], ["--hosts", "@/nonexistent/x"]]
    {
        let output = run(&args);
        assert_eq!(output.status.code(), Some(2));
        assert!(!err(&output).contains("diagnose"), "{}", err(&output));
    }
    let many = ringleader().current_dir(folder.path()).args(["collect", "--hosts", "n1", "-o", "-"]).output();
    assert_eq!(many.unwrap().status.code(), Some(2));
    assert!(!folder.path().join("-").exists());
}

#[test]
fn a_recorded_node_from_standard_input_is_told_once_and_cleanly() {
    let recorded = crate::root().join("crates/check/tests/recorded/stopped-rank.json");
    let mut node: serde_json::Value = serde_json::from_slice(&std::fs::read(recorded).unwrap()).unwrap();
    node["host"] = "n\u{1b}]0;x\u{7}".into();
    let run = |args: &[&str]| {
        let mut command = ringleader();
        command.args(["check", "--only", "job-processes", "--from", "-", "--width", "300"]).args(args);
        command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), node.to_string().as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    };
    let text = run(&[]);
    assert_eq!(text.status.code(), Some(4), "{}", err(&text));
    assert_eq!(out(&text).matches("is stopped").count(), 1, "{}", out(&text));
    let metrics = run(&["--format", "prometheus"]);
    assert!(out(&metrics).contains("ringleader_check{node=\"n"), "{}", out(&metrics));
    assert!(!out(&metrics).contains(['\u{1b}', '\u{7}']), "{}", out(&metrics));
}
