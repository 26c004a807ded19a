//! The runner of the live fault zoo, without GPU or PyTorch: real processes, real faults, a stand-in for the watcher.

use std::process::Command;

#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn the_runner_of_the_live_zoo_scores_what_it_planted() {
    let new_enough = Command::new("python3")
        .args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"])
        .status()
        .is_ok_and(|status| status.success());
    if !new_enough {
        println!("SKIPPED: no python3 of 3.9 or newer here");
        return;
    }
    let script = crate::root().join("zoo/live.py");
    let done = Command::new("python3").arg(script).arg("--self-test").output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && said.contains("the zoo's runner is right"),
        "{said}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
