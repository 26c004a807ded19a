//! `ringleader explain` on letters of process states, words of `watch`, and exit codes.

use crate::cli::{out, ringleader};

fn explained(words: &str) -> serde_json::Value {
    let output = ringleader().args(["explain", "--format", "json", words]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{words}: {}", out(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn names(words: &str) -> Vec<String> {
    let topics = explained(words)["topics"].clone();
    topics.as_array().unwrap().iter().map(|topic| topic["name"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn letters_of_process_states_are_words() {
    for (asked, name) in [
        ("D", "state D"),
        ("state D", "state D"),
        ("state d", "state D"),
        ("process state R", "state R"),
        ("Ssl+", "state S"),
        ("STAT Dl", "state D"),
        ("T", "state T"),
        ("state t", "tracing stop"),
        ("t", "tracing stop"),
        ("Z", "state Z"),
        ("zombie", "state Z"),
        ("X", "state X"),
    ] {
        assert_eq!(names(asked), [name], "{asked}");
    }
    // Words of capitals are none.
    for other in ["RNN", "DL"] {
        let output = ringleader().args(["explain", other]).output().unwrap();
        assert!(!out(&output).contains("word of a report"), "{other}: {}", out(&output));
    }
}

/// What the screen, the page and the events of `watch` say.
#[test]
fn words_of_watch_are_words() {
    for word in [
        "waiting",
        "stalled",
        "stall",
        "patience",
        "never entered",
        "never-entered",
        "in flight",
        "slowest",
        "still",
        "late ms",
        "op/s",
        "bus GB/s",
        "waits for",
        "cannot see",
        "suspected",
        "recovered",
        "moves again",
        "over",
        "not-started",
        "different",
        "entered",
        "finished",
        "idle",
        "dead",
        "uninterruptible",
        "starting",
        "running",
        "rhythm",
        "seen by",
        "waits",
        "stopped",
    ] {
        let first = explained(word)["topics"][0].clone();
        assert_eq!(first["kind"], "term", "{word}: {first}");
    }
    assert_eq!(names("busbw")[0], "busbw");
}

/// A number may be a program's, a signal's, or this program's own.
#[test]
fn an_exit_code_is_also_that_of_ringleader() {
    for (asked, word) in [
        ("exit code 0", "Nothing was found"),
        ("exit code 1", "a fault of its own"),
        ("exit status 2", "An option or a path is wrong"),
        ("exitcode: 3", "does not run here"),
        ("exit code 4", "at or above --fail-on"),
        ("exit code 5", "does not show what"),
        ("exit code 6", "full disk"),
        ("exit code 69", "0 to 6"),
    ] {
        let answer = explained(asked);
        let topics = answer["topics"].as_array().unwrap();
        let own =
            topics.iter().find(|topic| topic["name"].as_str().unwrap().starts_with("ringleader exit code"));
        assert!(topics.len() > 1, "{asked}: {topics:?}");
        assert!(own.unwrap()["meaning"].as_str().unwrap().contains(word), "{asked}: {own:?}");
    }
    assert_eq!(names("ringleader exit code 4"), ["ringleader exit code 4"]);
    assert!(names("exit code 137").iter().all(|name| !name.starts_with("ringleader")));
}

/// What the program prints by itself, and what stands beside it on a node.
#[test]
fn what_the_program_prints_is_explained() {
    for word in [
        "nothing wrong found",
        "nothing readable",
        "nothing to read",
        "2 jobs or attempts in what was given",
        "watching",
        "progress",
        "verdict",
        "hold",
        "bundle",
        "note",
        "unjudged",
        "ok",
        "absent",
        "fail",
        "skip",
        "silent",
        "host",
        "pid",
        "GPU",
        "communicator",
        "cause",
        "Xid",
        "SXid",
        "compared with the good run (its own verdict: none)",
    ] {
        let first = explained(word)["topics"][0].clone();
        assert_eq!(first["kind"], "term", "{word}: {first}");
    }
    for (asked, name) in [
        ("Slurm state CG", "slurm COMPLETING"),
        ("squeue CG", "slurm COMPLETING"),
        ("CG", "slurm COMPLETING"),
        ("squeue PD", "slurm PENDING"),
        ("squeue F", "slurm FAILED"),
        ("squeue S", "slurm SUSPENDED"),
        ("squeue TO", "slurm TIMEOUT"),
        ("NF", "NODE_FAIL"),
        ("squeue OOM", "OUT_OF_MEMORY"),
        ("dmesg NVRM Xid 13", "xid 13"),
        ("torchrun hangs at start", "symptom init-hang"),
        ("DNS", "symptom name-resolution"),
    ] {
        assert_eq!(names(asked)[0], name, "{asked}");
    }
    for code in 3..=6 {
        let asked = format!("exit code {code}");
        assert_eq!(names(&asked)[0], format!("ringleader exit code {code}"));
    }
}

/// In a running job a peer that does not answer has died; at a start its address may be wrong.
#[test]
fn a_peer_that_does_not_answer_may_have_died() {
    let line = "n1:1:2 [0] NCCL WARN NET/IB : Got completion from peer 10.0.0.2<1> with status=12 opcode=0 len=0 vendor err 129 (Send)";
    let topic = explained(line)["topics"][0].clone();
    assert!(topic["title"].as_str().unwrap().contains("it died, a link is down, or the GID"), "{topic}");
    let actions = topic["actions"].to_string();
    assert!(actions.contains("named peer") && actions.contains("GID"), "{actions}");
}

/// A part within another word is no answer: `deallocated` holds `allocated`.
#[test]
fn whole_words_win() {
    for (asked, name) in [
        ("ALLOCATED", "slurm ALLOCATED"),
        ("IDLE", "slurm IDLE"),
        ("idle~", "slurm IDLE"),
        ("slurm MIXED", "slurm MIXED"),
        ("slurm Priority", "slurm Priority"),
        ("FUTURE", "slurm FUTURE"),
        ("UNDRAIN", "slurm UNDRAIN"),
        ("INVALID_REG", "slurm INVAL"),
        ("POWER_DOWN", "POWER_DOWN"),
        ("PENDING", "slurm PENDING"),
        ("Pending", "kubernetes Pending"),
        ("AssocGrpGRES", "AssocGrpGRES"),
        ("TopologyAffinityError", "TopologyAffinityError"),
        ("FI_EBUSY", "FI_EBUSY"),
        ("RDMA_CM_EVENT_REJECTED", "RDMA_CM_EVENT_REJECTED"),
    ] {
        let topics = explained(asked)["topics"].clone();
        let first = topics.as_array().unwrap().iter().find(|topic| topic["kind"] != "term");
        assert_eq!(first.unwrap()["name"], name, "{asked}: {topics}");
    }
    for part in ["eallocate", "mbryonic", "eadloc"] {
        let output = ringleader().args(["explain", part]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{part}: {}", out(&output));
    }
}
