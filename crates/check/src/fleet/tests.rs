use super::{Fleet, Silence, SilenceKind, Timing};
use crate::answer::{CheckState, Value, ValueKind};
use crate::baseline::Baseline;
use crate::report::{ChangeKind, CheckResult, NodeReport};

const SECOND: i64 = 1_000_000_000;

fn report(host: &str) -> NodeReport {
    NodeReport { host: host.to_owned(), tool_version: "0.2.0".to_owned(), ..NodeReport::default() }
}

fn check(id: &str, verdict: CheckState, summary: &str) -> CheckResult {
    CheckResult {
        id: id.to_owned(),
        area: "gpu".to_owned(),
        verdict,
        summary: summary.to_owned(),
        drains: id == "gpu-ecc",
        items: Vec::new(),
        fixes: Vec::new(),
    }
}

#[expect(clippy::needless_pass_by_value, reason = "numbers and texts alike, without a mark at each call")]
fn value(key: &str, value: impl ToString, kind: ValueKind) -> Value {
    Value { key: key.to_owned(), value: value.to_string(), kind }
}

/// A fleet of nodes with one value each.
fn of_values(kind: ValueKind, values: &[&str]) -> Fleet {
    let mut fleet = Fleet::default();
    for (n, text) in values.iter().enumerate() {
        let mut report = report(&format!("n{n:02}"));
        report.values.push(value("x", text, kind));
        fleet.answered(&report, None);
    }
    fleet
}

#[test]
fn a_failing_check_is_one_line_however_many_nodes() {
    let mut fleet = Fleet::default();
    // In arbitrary order, as answers arrive.
    for n in (0..1000).map(|n| n * 7 % 1000) {
        let mut report = report(&format!("node{n:04}"));
        let bad = n == 17 || (100..104).contains(&n);
        report.checks.push(if n == 17 {
            check("gpu-ecc", CheckState::Fail, "GPU 3: 2 errors")
        } else if bad {
            check("gpu-ecc", CheckState::Fail, "GPU 0: 1 errors")
        } else {
            check("gpu-ecc", CheckState::Ok, "no errors")
        });
        report.checks.push(match n {
            5 => check("shm-space", CheckState::Skipped, "no answer within 900 ms"),
            _ => check("shm-space", CheckState::Ok, ""),
        });
        report.checks.push(check("absent-everywhere", CheckState::Skipped, "no such thing"));
        fleet.answered(&report, None);
    }
    let report = fleet.report();
    assert_eq!((report.n_asked, report.n_answered, report.n_fail, report.n_ok), (1000, 1000, 5, 995));
    assert_eq!(report.failing.len(), 1);
    let failing = &report.failing[0];
    assert_eq!(failing.hosts, "node[0017,0100-0103]");
    let ways: Vec<_> = failing.ways.iter().map(|way| (way.summary.as_str(), way.hosts.as_str())).collect();
    assert_eq!(ways, [("GPU 0: 1 errors", "node[0100-0103]"), ("GPU 3: 2 errors", "node0017")]);
    assert_eq!(report.drain, failing.hosts);
    assert_eq!(report.not_judged.len(), 1, "what nobody could judge is no difference");
    assert_eq!((report.not_judged[0].hosts.as_str(), report.not_judged[0].n_judged), ("node0005", 999));
    assert!(report.differences.is_empty());
    assert_eq!(report.verdict(), CheckState::Fail);
}

#[test]
fn the_order_of_arrival_does_not_show() {
    let build = |order: &[usize]| {
        let mut fleet = Fleet::default();
        for n in order {
            let mut report = report(&format!("n{n}"));
            report.checks.push(check("b", CheckState::Warn, &format!("way {}", n % 3)));
            report.checks.push(check("a", CheckState::Fail, "bad"));
            report.values.push(value("v", n % 2, ValueKind::Same));
            report.values.push(value("t", n * 10, ValueKind::Near));
            fleet.answered(&report, None);
        }
        serde_json::to_string(&fleet.report()).unwrap()
    };
    assert_eq!(build(&[0, 1, 2, 3, 4, 5, 6]), build(&[6, 2, 4, 0, 5, 3, 1]));
}

#[test]
fn a_majority_blames_who_differs() {
    let report = of_values(ValueKind::Same, &["570", "570", "565", "570"]).report();
    let difference = &report.differences[0];
    assert!(difference.is_blamed);
    assert_eq!(difference.usual.as_deref(), Some("570"));
    assert_eq!(difference.holders.len(), 1);
    assert_eq!((difference.holders[0].value.as_str(), difference.holders[0].hosts.as_str()), ("565", "n02"));
    assert_eq!(report.verdict(), CheckState::Warn);
}

#[test]
fn nobody_is_blamed_without_a_majority() {
    for (values, says) in [
        (&["a", "b"][..], "too few"),
        (&["a", "a", "b", "b"], "two equal halves of 2"),
        (&["a", "b", "c"], "none holds more than half"),
        (&["a", "a", "b", "c"], "none holds more than half"),
    ] {
        let report = of_values(ValueKind::Same, values).report();
        let difference = &report.differences[0];
        assert!(!difference.is_blamed, "{values:?}");
        assert!(difference.text.contains(says), "{values:?}: {}", difference.text);
        let n_shown: usize = difference.holders.iter().map(|holder| holder.n_hosts).sum();
        assert_eq!(n_shown, values.len(), "all are shown");
        assert_eq!(report.verdict(), CheckState::Skipped);
    }
    assert!(of_values(ValueKind::Same, &["a", "a"]).report().differences.is_empty());
    assert!(of_values(ValueKind::Counter, &["1", "900", "2"]).report().differences.is_empty());
}

#[test]
fn a_reading_far_from_its_peers_is_named() {
    let named = |values: &[&str]| {
        let report = of_values(ValueKind::Near, values).report();
        let blamed = report.differences.into_iter().filter(|difference| difference.is_blamed);
        blamed.flat_map(|difference| difference.holders).map(|holder| holder.hosts).collect::<Vec<_>>()
    };
    assert_eq!(named(&["41", "40", "43", "42", "91", "39"]), ["n04"]);
    assert_eq!(named(&["100", "100", "100", "100", "52"]), ["n04"]);
    assert!(named(&["100", "100", "100", "100", "95"]).is_empty(), "within a tenth");
    assert!(named(&["30", "45", "60", "38", "52", "41"]).is_empty(), "all over the place");
    assert!(named(&["0", "0", "0", "1"]).is_empty());
    assert!(named(&["40", "90"]).is_empty(), "two are too few");
    assert_eq!(of_values(ValueKind::Near, &["40", "90"]).report().differences.len(), 1, "but shown");
    assert!(of_values(ValueKind::Near, &["40", "41"]).report().differences.is_empty());
    assert!(named(&["nan", "inf", "-", "5", "5", "5"]).is_empty());
}

fn with_clocks(ahead_and_trip: &[(i64, i64)]) -> super::FleetReport {
    let mut fleet = Fleet::default();
    for (n, (ahead, trip)) in ahead_and_trip.iter().enumerate() {
        let mut report = report(&format!("n{n}"));
        let sent_ns = 1000 * SECOND + n as i64;
        report.took_ms = 100;
        report.at_ns = sent_ns + trip / 3 + ahead;
        fleet.answered(&report, Some(Timing { sent_ns, arrived_ns: sent_ns + trip + SECOND / 10 }));
    }
    fleet.report()
}

#[test]
fn a_clock_that_is_off_is_named_with_its_error() {
    let fast = SECOND / 5;
    let clocks = with_clocks(&[(0, fast), (0, fast), (3 * SECOND, fast), (0, fast)]).clocks.unwrap();
    assert!(clocks.has_majority);
    assert_eq!(clocks.outliers.len(), 1);
    let outlier = &clocks.outliers[0];
    assert_eq!(outlier.host, "n2");
    assert!((outlier.ahead_ms - 3000.0).abs() <= outlier.error_ms, "{outlier:?}");
    assert!(clocks.own_ahead_ms.is_none());
}

#[test]
fn a_slow_answer_is_no_wrong_clock() {
    // A round trip of 8 s hides an offset of 3 s.
    let clocks = with_clocks(&[(0, SECOND / 5), (0, SECOND / 5), (3 * SECOND, 8 * SECOND)]).clocks.unwrap();
    assert!(clocks.outliers.is_empty(), "{clocks:?}");
    assert!(with_clocks(&[(0, SECOND)]).clocks.is_none());
}

#[test]
fn clocks_without_a_majority_blame_nobody() {
    let trip = SECOND / 10;
    let clocks = with_clocks(&[(0, trip), (9 * SECOND, trip)]).clocks.unwrap();
    assert!(clocks.outliers.is_empty() && !clocks.has_majority, "{clocks:?}");
    let halves = [(0, trip), (0, trip), (9 * SECOND, trip), (9 * SECOND, trip)];
    let clocks = with_clocks(&halves).clocks.unwrap();
    assert!(clocks.outliers.is_empty() && clocks.text.contains("no majority"), "{clocks:?}");
    // All nodes agree, and the asking machine is off.
    let clocks = with_clocks(&[(9 * SECOND, trip), (9 * SECOND, trip), (9 * SECOND, trip)]).clocks.unwrap();
    assert!(clocks.outliers.is_empty());
    assert!((clocks.own_ahead_ms.unwrap() + 9000.0).abs() < 100.0, "{clocks:?}");
}

#[test]
fn silent_nodes_are_named_by_reason_in_bounded_lines() {
    let mut fleet = Fleet::default();
    let silence = |kind, why: &str| Silence { kind, why: why.to_owned(), next: "look".to_owned() };
    for n in 0..500 {
        fleet.silent(&format!("n{n:03}"), silence(SilenceKind::Unreachable, "Connection refused"));
    }
    for n in 500..700 {
        fleet.silent(&format!("n{n:03}"), silence(SilenceKind::NoReport, &format!("odd {n}")));
    }
    fleet.answered(&report("n000"), None);
    let report = fleet.report();
    assert_eq!((report.n_asked, report.n_answered, report.n_silent()), (700, 1, 699));
    assert!(report.silent.len() < 70, "{}", report.silent.len());
    assert_eq!(report.silent[0].hosts, "n[001-499]");
    assert_eq!(report.silent.iter().map(|silent| silent.n_hosts).sum::<usize>(), 699);
}

#[test]
fn nodes_are_held_against_their_own_past() {
    let at = |n: usize, count: u64, driver: &str| {
        let mut report = report(&format!("n{n}"));
        report.values.push(value("gpu.replays", count, ValueKind::Counter));
        report.values.push(value("gpu.driver", driver, ValueKind::Same));
        report
    };
    let mut baseline = Baseline::new("0.2.0");
    (0..4).for_each(|n| baseline.add(&at(n, 100 * n as u64, "570")));
    let mut fleet = Fleet::new(Some(baseline));
    for n in 0..5 {
        let grown = if n == 2 { 7 } else { 0 };
        fleet.answered(&at(n, 100 * n as u64 + grown, "575"), None);
    }
    let report = fleet.report();
    let told: Vec<_> = report.changes.iter().map(|c| (c.key.as_str(), c.kind, c.hosts.as_str())).collect();
    assert_eq!(
        told,
        [("gpu.replays", ChangeKind::Grew, "n2"), ("gpu.driver", ChangeKind::Changed, "n[0-3]")]
    );
    assert_eq!(report.changes[0].text, "has increased by 7");
    assert_eq!(report.changes[1].text, "was 570, is 575");
    assert_eq!(report.without_baseline, "n4");
    assert_eq!(report.verdict(), CheckState::Warn);
}

#[test]
fn one_node_under_two_names_is_said() {
    let mut fleet = Fleet::default();
    for name in ["a", "b"] {
        fleet.answered(&NodeReport { target: Some(name.to_owned()), ..report("same") }, None);
    }
    assert!(fleet.report().notes[0].contains("a,b call themselves 'same'"), "{:?}", fleet.report().notes);
}

/// A hostile node's report costs bounded memory.
#[test]
fn a_report_without_end_is_cut() {
    let mut huge = report("x");
    for n in 0..10_000 {
        huge.values.push(value(&format!("k{n}"), "v".repeat(5000), ValueKind::Same));
        huge.checks.push(check(&format!("c{n}"), CheckState::Fail, &"é".repeat(3000)));
    }
    let mut fleet = Fleet::default();
    fleet.answered(&huge, None);
    assert!(fleet.nodes["x"].values.len() <= super::MAX_VALUES);
    assert!(fleet.nodes["x"].checks.len() <= super::MAX_CHECKS);
    let report = fleet.report();
    assert!(report.failing.iter().all(|failing| failing.ways[0].summary.len() <= super::MAX_TEXT + 4));
    assert!(report.notes.iter().any(|note| note.contains("too long")));
}
