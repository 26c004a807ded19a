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
        assert!(!out(&output).contains("state "), "{other}: {}", out(&output));
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
    // Every head of a column that is more than a plain name.
    let columns = crate::root().join("crates/ringleader/src/watch/columns.rs");
    let columns = std::fs::read_to_string(columns).unwrap();
    let heads = columns.split("Column::").skip(1).filter_map(|call| {
        let (kind, rest) = call.split_once('(')?;
        ["text", "number", "sentence"].contains(&kind).then(|| rest.split('"').nth(1)).flatten()
    });
    let plain = ["communicator", "host", "pid", "cpu", "what"];
    let heads: Vec<&str> = heads.filter(|head| !plain.contains(head)).collect();
    assert!(heads.contains(&"in flight") && heads.len() > 6, "{heads:?}");
    for head in heads {
        let first = explained(head)["topics"][0].clone();
        assert_eq!(first["kind"], "term", "{head}: {first}");
    }
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
