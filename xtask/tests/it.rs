//! The tasks as they are called.

use std::process::Command;

/// Numbers of a line such as `3637 of 3728 command lines ran`.
fn numbers(line: &str) -> Vec<usize> {
    line.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// The command lines of README.md, `docs/` and the site, as a reader pastes them. Those that only ask `explain` are thousands: here one
/// in fifty, by `.ci/run site` all.
#[test]
fn command_lines_on_the_pages_run() {
    let out = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["site", "--run-some"])
        .arg(out.path().join("site"))
        .output()
        .expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let line = said.lines().find(|line| line.contains(" command lines ran ")).expect("a summary");
    let [ran, of, _, of_docs, all_docs] = numbers(line)[..] else { panic!("{line}") };
    // What is not run is named with its reason, and most is not of our program.
    assert!(ran > 200 && of - ran < 140 && of_docs >= 45 && all_docs - of_docs <= 50, "{said}");
}
