//! A rank that is late until the job ends in order.

use super::Job;

/// The verdicts on a job of two ranks, and the exit code.
fn judged(late: &str) -> (Vec<serde_json::Value>, Option<i32>) {
    let job = Job::start_with(2, 200, &[("PRETENDED_LATE", late)]);
    let watcher = job.watch(&["--pid", &job.pids()]);
    let (code, events) = watcher.end();
    let verdicts = events.iter().filter(|event| event["event"] == "verdict");
    (verdicts.map(|event| event["report"]["verdict"].clone()).collect(), code)
}

#[test]
fn a_rank_that_costs_the_other_most_of_its_time_is_named_at_the_end() {
    let (verdicts, code) = judged("1:80");
    let [verdict] = verdicts.as_slice() else { panic!("{verdicts:?}") };
    let said =
        (verdict["cause"].as_str(), verdict["confidence"].as_str(), verdict["culprits"][0]["rank"].as_u64());
    assert_eq!(said, (Some("straggler"), Some("high"), Some(1)), "{verdict}");
    assert_eq!(code, Some(4));
}

#[test]
fn a_rank_that_is_a_little_later_gets_no_verdict() {
    let (verdicts, code) = judged("1:4");
    assert_eq!((verdicts.len(), code), (0, Some(0)), "{verdicts:?}");
}
