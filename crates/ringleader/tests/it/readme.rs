//! The README's ten tasks, played through: each command line as written there, in a folder that has what it refers to.

use std::path::Path;
use std::process::{Command, Output};

/// Lines that need what a test does not have: other nodes, a cluster, or a job and time to follow it.
const NOT_HERE: &[&str] = &["kubectl ", "torchrun ", "torchrun ", "--hosts", "watch ", "--live"];

/// The commands of a section, without the remarks behind them.
fn commands(readme: &str, section: &str) -> Vec<String> {
    let (_, rest) = readme.split_once(&format!("## {section}\n")).unwrap();
    let text = rest.split("\n## ").next().unwrap();
    let lines = text.lines().filter_map(|line| line.strip_prefix("$ "));
    lines.map(|line| line.split("   #").next().unwrap_or(line).trim().to_owned()).collect()
}

fn run(folder: &Path, line: &str) -> Output {
    let program = Path::new(env!("CARGO_BIN_EXE_ringleader"));
    let path = format!("{}:{}", program.parent().unwrap().display(), std::env::var("PATH").unwrap());
    let line = line.replace(" PID", &format!(" {}", std::process::id()));
    Command::new("bash").args(["-c", &line]).current_dir(folder).env("PATH", path).output().unwrap()
}

#[test]
fn ten_tasks_of_a_newcomer() {
    let root = crate::root();
    let readme = std::fs::read_to_string(root.join("README.md")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let logs = folder.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    for entry in std::fs::read_dir(root.join("cases/skipped-allreduce/evidence")).unwrap().flatten() {
        std::fs::copy(entry.path(), logs.join(entry.file_name())).unwrap();
    }
    std::fs::copy(
        root.join("cases/kernel-memory-failure/evidence/agent.txt"),
        folder.path().join("stderr.log"),
    )
    .unwrap();
    std::os::unix::fs::symlink(root.join("cases"), folder.path().join("cases")).unwrap();
    let commands = commands(&readme, "Ten tasks");
    let (not_here, here): (Vec<_>, Vec<_>) =
        commands.iter().partition(|line| NOT_HERE.iter().any(|part| line.contains(part)));
    assert!(here.len() >= 14 && not_here.len() >= 4, "{here:#?}");
    for line in here {
        let output = run(folder.path(), line);
        let said = String::from_utf8_lossy(&output.stderr);
        // 4: findings; 3: `env --check` of a process that is no rank.
        let is_check = line.contains("--check");
        let fits = matches!(output.status.code(), Some(0 | 4)) || is_check && output.status.code() == Some(3);
        assert!(fits, "{line}: {:?} {said}", output.status);
        assert!(!said.contains("error:") || is_check, "{line}: {said}");
    }
    let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
    assert!(read("report.html").contains("skipped-collective"));
    assert!(read("node.prom").contains("# TYPE ringleader_"));
    // What cannot run here is at least taken by the command line.
    for line in not_here.iter().filter(|line| line.starts_with("ringleader ")) {
        let error = ringleader::command()
            .try_get_matches_from(line.replace("PID", "1").split_whitespace())
            .err()
            .filter(clap::Error::use_stderr);
        assert!(error.is_none(), "{line}: {}", error.unwrap());
    }
}

/// What the README says of accuracy is what the scoreboards hold.
#[test]
fn its_figures_are_those_of_the_scoreboards() {
    let read = |name: &str| std::fs::read_to_string(crate::root().join(name)).unwrap();
    let readme = read("README.md").replace('\n', " ");
    let board = read("docs/scoreboard.md");
    let row = |name: &str| board.lines().find(|line| line.starts_with(&format!("| {name} |"))).unwrap();
    let numbers = |line: &str| -> Vec<u32> {
        line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
    };
    let [ranks, of_ranks, ..] = numbers(row("right culprit rank"))[..] else { panic!("no ranks") };
    let [right, of, _, exact, ..] = numbers(row("right cause"))[..] else { panic!("no causes") };
    assert_eq!((ranks, right), (of_ranks, of));
    let claim = format!(
        "Of {of} faults planted on four H200 GPUs it named the cause of all ({exact} by the exact id), and the rank of all {ranks}"
    );
    assert!(readme.contains(&claim), "{claim}");
    let (mut n_right, mut n_cases) = (0, 0);
    for line in read("docs/unseen.md").lines() {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let round = cells.get(1).and_then(|name| name.split(',').next()?.parse::<u32>().ok());
        if let (Some(64..=103), [_, _, cases, _, before, ..]) = (round, &cells[..]) {
            n_cases += cases.parse::<u32>().unwrap();
            n_right += numbers(before)[0];
        }
    }
    assert!(
        readme.contains(&format!("about two thirds (rounds 64 to 103, {n_cases} cases)")),
        "{n_cases} cases"
    );
    assert!((60..=72).contains(&(n_right * 100 / n_cases)), "{n_right} of {n_cases}");
}
