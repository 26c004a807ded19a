use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Output of healthy jobs, written for this test: no row but harmless ones may match it.
const ORDINARY: &str = include_str!("../../data/messages/ordinary.txt");

fn found(line: &str) -> Vec<Match<'_>> {
    let mut out = Vec::new();
    classify(line, &mut out);
    out
}

#[test]
fn every_example_is_matched_by_its_own_row() {
    let mut missed = Vec::new();
    for row in all() {
        for example in row.examples() {
            if !example.lines().any(|line| found(line).iter().any(|m| m.row == row)) {
                missed.push(format!("{}: `{}` does not match {example:?}", row.id(), row.pattern()));
            }
        }
    }
    assert!(missed.is_empty(), "{} rows:\n{}", missed.len(), missed.join("\n"));
}

/// The first match of an example decides its meaning: a harmless row must not win over one that states a cause, nor
/// the other way round.
#[test]
fn harmless_and_stated_do_not_contradict() {
    let mut wrong = Vec::new();
    for row in all() {
        for example in row.examples() {
            let own = example.lines().find(|line| found(line).iter().any(|m| m.row == row));
            let Some(best) = own.and_then(best) else { continue };
            let (own, first) = (row.role(), best.row.role());
            if (own == Role::Harmless) != (first == Role::Harmless) {
                wrong.push(format!(
                    "{} ({own:?}) loses to {} ({first:?}): {example:?}",
                    row.id(),
                    best.row.id()
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn ordinary_output_says_nothing() {
    let mut wrong = Vec::new();
    for line in ORDINARY.lines() {
        if let Some(m) = found(line).iter().find(|m| m.row.role() != Role::Harmless) {
            wrong.push(format!("{} `{}`: {line}", m.row.id(), m.row.pattern()));
        }
    }
    assert!(wrong.is_empty(), "{} lines:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn rows_are_complete_and_found_by_id() {
    let ids: BTreeSet<&str> = all().map(MessageRow::id).collect();
    assert_eq!(ids.len(), all().len());
    for row in all() {
        assert_eq!(get(row.id()), Some(row));
        assert!(
            row.id().bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
            "{}",
            row.id()
        );
        assert!(!row.says().is_empty() && !row.by().is_empty() && !row.source().is_empty(), "{}", row.id());
        assert!(
            row.role() == Role::Harmless
                || row.role() == Role::Echo
                || row.candidates().next().is_some()
                || !row.cause().is_empty(),
            "{} fits no cause",
            row.id()
        );
    }
    assert_eq!(get("no-such-row"), None);
}

/// A report shows the meaning of a row below a line of the user's: what the example happens to hold must not be in it.
#[test]
fn a_meaning_holds_no_reading_of_its_example() {
    use Hole::{Host, Hosts, Node, Op, Pid, Rank, Ranks, Seq, Step, Task};
    let letters = |text: &str| -> String {
        text.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect()
    };
    let numbers = |text: &str| -> BTreeSet<String> {
        let digits = text.split(|c: char| !c.is_ascii_digit()).filter(|d| !d.is_empty() && *d != "0");
        digits.map(str::to_owned).collect()
    };
    let mut wrong = Vec::new();
    for row in all() {
        let meaning = format!("{} {}", row.says(), row.action());
        let own = numbers(&row.pattern());
        for line in row.examples().flat_map(str::lines) {
            for capture in found(line).iter().filter(|m| m.row == row).flat_map(|m| &m.captures) {
                let is_count = ["size", "joined", "enq", "done", "device"].contains(&capture.name);
                let is_identity =
                    matches!(capture.hole, Rank | Ranks | Host | Hosts | Node | Pid | Seq | Step | Task);
                let said = numbers(&meaning);
                let read = numbers(capture.text);
                let is_repeated = if matches!(capture.hole, Host | Hosts | Node) {
                    capture.text.len() > 1 && meaning.contains(capture.text)
                } else {
                    // A share, and one of something, are no counts of the example.
                    let is_general = |n: &str| is_count && (n == "1" || meaning.contains(&format!("{n}%")));
                    read.iter().any(|n| said.contains(n) && !own.contains(n) && !is_general(n))
                };
                let op = letters(capture.text);
                let is_same_op = capture.hole == Op
                    && capture.text.bytes().all(|b| b.is_ascii_uppercase() || b == b'_')
                    && op.len() > 3
                    && letters(&meaning).contains(&op);
                if (is_identity || is_count) && is_repeated || is_same_op {
                    wrong.push(format!("{}: {} of the example, in `{meaning}`", row.id(), capture.text));
                }
            }
        }
    }
    wrong.sort();
    wrong.dedup();
    assert!(wrong.is_empty(), "{} rows:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn identities_are_typed() {
    let line = "RuntimeError: Ranks 1, 3 failed to pass monitoredBarrier in 300000 ms";
    let named = found(line).into_iter().find(|m| !m.ranks(9).is_empty()).map(|m| (m.ranks(9), m.row.about()));
    assert_eq!(named, Some((vec![1, 3], About::Named)));
}

#[test]
fn lists_of_ranks_are_spelled_out_within_a_limit() {
    let ranks = |text: &str, limit| {
        let mut out = Vec::new();
        spans(text, limit, &mut out);
        out
    };
    assert_eq!(ranks("[0, 2, 5-7]", 99), [0, 2, 5, 6, 7]);
    assert_eq!(ranks("0-4294967295", 3), [0, 1, 2]);
    assert_eq!(ranks("-1", 3), [] as [u32; 0]);
}

/// A row is found at each of the four alignments of its window, in a line as in a block.
#[test]
fn places_do_not_depend_on_alignment() {
    for row in all() {
        let Some(line) = row.examples().flat_map(str::lines).find(|l| found(l).iter().any(|m| m.row == row))
        else {
            continue;
        };
        for shift in 0..4 {
            let moved = format!("{}{line}", &"   "[..shift]);
            assert!(found(&moved).iter().any(|m| m.row == row), "{} moved by {shift}", row.id());
            assert!(wanted(moved.as_bytes(), 0).is_some());
        }
    }
}

/// bash aligns the numbers of processes.
#[test]
fn numbers_behind_blanks() {
    for (word, pid) in [("Killed", 8156), ("Aborted", 81560), ("Segmentation fault", 81)] {
        let line = format!("run.sh: line 5: {pid:>5} {word}                  python3 -u train.py");
        let pids: Vec<i64> = found(&line).iter().filter_map(|m| m.number(Hole::Pid)).collect();
        assert_eq!(pids, [pid], "{line}");
    }
}

#[test]
fn rare_windows_lead_to_few_lines() {
    let mut of_row: BTreeMap<&str, u32> = BTreeMap::new();
    let n_lines = ORDINARY.lines().count() as u32;
    for line in ORDINARY.lines() {
        let mut candidates = Candidates::default();
        candidates.look(line.as_bytes());
        for row in candidates.rows() {
            *of_row.entry(row.id()).or_default() += 1;
        }
    }
    let common: Vec<_> = of_row.into_iter().filter(|(_, n)| *n > n_lines / 50 + 3).collect();
    assert!(common.is_empty(), "{common:?}");
}

proptest::proptest! {
    #[test]
    fn any_text_is_classified(line in ".{0,300}") {
        for m in found(&line) {
            proptest::prop_assert!(line.get(m.at.clone()).is_some());
        }
    }

    /// Pieces of real messages, combined at random.
    #[test]
    fn pieces_of_messages_are_classified(picks in proptest::collection::vec((0..4000usize, 0..60usize, 0..60usize), 0..6)) {
        let mut line = String::new();
        for (row, from, n) in picks {
            let example = all().nth(row).and_then(|r| r.examples().next()).unwrap_or_default();
            line.extend(example.chars().skip(from).take(n));
        }
        for m in found(&line) {
            proptest::prop_assert!(line.get(m.at.clone()).is_some());
        }
    }
}
