//! A watched job whose agents, analysers and etcd are killed: zoo/hub.py with 64 nodes of 8 ranks. The full
//! size is run by hand; docs/hub.md has the numbers.

use std::path::Path;
use std::process::Command;

use crate::server::{is_etcd_here, not_tested};

#[test]
fn watching_goes_on() {
    if !is_etcd_here() {
        return;
    }
    // Cargo builds examples with the tests, in a folder next to theirs.
    let test = std::env::current_exe().unwrap();
    let agents = test.parent().and_then(Path::parent).unwrap().join("examples/agents");
    if !agents.is_file() {
        not_tested(
            "the example `agents` is not built: cargo test -p ringleader-hub without --test builds it",
        );
        return;
    }
    let zoo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zoo/hub.py");
    let mut command = Command::new("python3");
    // A busy machine delays digests and looks.
    command.arg(zoo).arg("--agents").arg(agents).args(["--nodes", "64", "--steady", "5", "--bound", "15"]);
    let Ok(output) = command.output() else {
        not_tested("python3 is not there");
        return;
    };
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    let last: serde_json::Value = serde_json::from_str(said.lines().last().unwrap()).unwrap();
    assert_eq!(last["ranks"], 512);
    let named: Vec<_> = last["faults"]
        .as_array()
        .unwrap()
        .iter()
        .map(|f| f["suspects"] == serde_json::json!([f["rank"]]))
        .collect();
    assert_eq!(named, [true, true, true], "{said}");
    assert_eq!(last["leases_lost"], 0, "etcd prolongs all leases when it starts");
}
