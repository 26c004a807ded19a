use proptest::prelude::*;

use super::*;
use crate::judgement::Culprit;
use crate::named::Named;

fn judged(cause: &str, class: Class, confidence: Confidence, host: Option<&str>) -> Judgement {
    let culprit = Culprit { host: host.map(str::to_owned), place: None, ..Culprit::default() };
    Judgement {
        cause: Named::of_id(cause),
        class,
        confidence,
        culprits: vec![culprit],
        ..Judgement::unjudged("it failed")
    }
}

fn four() -> Site {
    let nodes = ["n0", "n1", "n2", "n3"].map(str::to_owned).to_vec();
    Site { nodes, min_nodes: 2, n_given: 4, ..Site::default() }
}

/// Decisions for a job that fails with these verdicts, one minute apart, each at the given step.
fn run(policy: &Policy, failures: &[(Judgement, Option<u64>)], site: &Site) -> Vec<Decision> {
    let (mut past, mut site, mut out) = (Vec::new(), site.clone(), Vec::new());
    for (at, (judgement, step)) in failures.iter().enumerate() {
        let attempt = at as u32 + 1;
        let failure = AttemptFailure {
            attempt,
            at: 60.0 * at as f64,
            judgement,
            told: None,
            step: *step,
            resumed_from: Some(0),
        };
        let decision = decide(policy, &past, &failure, &site, 0.5);
        if let Action::Restart { without, .. } = &decision.action {
            site.nodes.retain(|node| !without.contains(node));
            site.excluded.extend(without.iter().cloned());
        }
        past.push(Failed {
            attempt,
            at: failure.at,
            judgement: judgement.clone(),
            charged: decision.charged,
            step: *step,
            resumed_from: Some(0),
        });
        out.push(decision);
    }
    out
}

fn without(decision: &Decision) -> Option<Vec<String>> {
    match &decision.action {
        Action::Restart { without, .. } => Some(without.clone()),
        Action::Requeue { .. } | Action::Stop => None,
    }
}

#[test]
fn a_scheduler_is_asked_only_where_too_few_are_left_and_as_often_as_it_may() {
    let lost = judged("gpu-fallen-off-bus", Class::Node, Confidence::High, Some("n1"));
    let mut policy = Policy::parse("version = 1\n[exclude]\nmax_share = 0.5\nrequeue = 1").unwrap();
    let site = Site { min_nodes: 4, requeued: Some(0), ..four() };
    let action =
        |policy: &Policy, site: &Site| run(policy, &[(lost.clone(), Some(3))], site)[0].action.clone();
    assert_eq!(action(&policy, &site), Action::Requeue { without: vec!["n1".to_owned()] });
    // A spare replaces it; enough nodes remain; already requeued; no scheduler; requeue not allowed; share exhausted.
    let spares = vec!["n9".to_owned()];
    let stays = |action: Action| matches!(action, Action::Restart { .. });
    assert!(stays(action(&policy, &Site { spares, ..site.clone() })));
    assert!(stays(action(&policy, &Site { min_nodes: 3, ..site.clone() })));
    for other in [Site { requeued: Some(1), ..site.clone() }, Site { requeued: None, ..site.clone() }] {
        assert_eq!(without(&run(&policy, &[(lost.clone(), Some(3))], &other)[0]), Some(Vec::new()));
    }
    policy.exclude.max_share = 0.1;
    assert!(stays(action(&policy, &site)));
    policy.exclude = Policy::default().exclude;
    assert!(stays(action(&policy, &site)));
}

#[test]
fn two_uncertain_verdicts_that_agree_on_line_and_step_are_certain() {
    let of = |confidence, place: Option<&str>| {
        let mut judgement = judged("shape-mismatch", Class::Program, confidence, Some("n0"));
        judgement.culprits[0].place = place.map(str::to_owned);
        judgement
    };
    let line = Some("train.py:72 in main");
    let is_stopped = |first: (Judgement, Option<u64>), second: (Judgement, Option<u64>)| {
        run(&Policy::default(), &[first, second], &four())[1].action == Action::Stop
    };
    let medium = of(Confidence::Medium, line);
    assert!(is_stopped((medium.clone(), Some(11)), (medium.clone(), Some(11))));
    // Unless the policy insists on the confidence of each verdict.
    let strict = Policy { stop_repeated: false, ..Policy::default() };
    let twice = [(medium.clone(), Some(11)), (medium.clone(), Some(11))];
    let decision = &run(&strict, &twice, &four())[1];
    assert!(
        decision.action != Action::Stop && decision.why[0].contains("stopping needs high"),
        "{decision:?}"
    );
    // Another line, another step, no step, no line, or a guess: restarted as an unknown failure.
    let other = of(Confidence::Medium, Some("train.py:90 in main"));
    assert!(!is_stopped((other, Some(11)), (medium.clone(), Some(11))));
    assert!(!is_stopped((medium.clone(), Some(11)), (medium.clone(), Some(14))));
    assert!(!is_stopped((medium.clone(), None), (medium.clone(), None)));
    let nowhere = of(Confidence::Medium, None);
    assert!(!is_stopped((nowhere.clone(), Some(11)), (nowhere, Some(11))));
    let guess = of(Confidence::Low, line);
    assert!(!is_stopped((guess.clone(), Some(11)), (guess.clone(), Some(11))));
    assert!(!is_stopped((guess, Some(11)), (medium, Some(11))));
}

#[test]
fn what_is_remembered_decides_as_the_failures_did() {
    let mut error = judged("application-exception", Class::Program, Confidence::Medium, Some("n0"));
    error.culprits[0].place = Some("train.py:72 in main".to_owned());
    error.evidence = vec![crate::judgement::Citation { text: "x".repeat(300), ..Default::default() }; 8];
    let failed = |attempt: u32, judgement: &Judgement| Failed {
        attempt,
        at: f64::from(attempt),
        judgement: judgement.clone(),
        charged: Class::Unknown,
        step: Some(11),
        resumed_from: None,
    };
    let past = remembered(&[], failed(1, &error));
    let again = AttemptFailure {
        attempt: 2,
        at: 2.0,
        judgement: &error,
        told: None,
        step: Some(11),
        resumed_from: None,
    };
    assert_eq!(decide(&Policy::default(), &past, &again, &four(), 0.5).action, Action::Stop);
    // Bounded: a decree has at most 256 KiB.
    let long = Judgement { summary: "ä".repeat(5_000), ..Judgement::unjudged("") };
    let past = (1..=MAX_PAST as u32 + 9).fold(past, |past, n| remembered(&past, failed(n, &long)));
    assert_eq!((past.len(), past[0].attempt), (MAX_PAST, 10));
    assert!(serde_json::to_vec(&past).unwrap().len() < 160 << 10);
}

#[test]
fn a_program_error_stops_at_the_second_time() {
    let error = judged("application-exception", Class::Program, Confidence::High, Some("n0"));
    let said = run(&Policy::default(), &[(error.clone(), Some(7)), (error.clone(), Some(7))], &four());
    assert_eq!(without(&said[0]), Some(vec![]));
    assert_eq!(said[1].action, Action::Stop);
    assert!(said[1].why[0].contains("second time"), "{:?}", said[1].why);
    // An error at changing steps uses the budget for unknown failures.
    let moving: Vec<_> = (1..=4).map(|step| (error.clone(), Some(step))).collect();
    let said = run(&Policy::default(), &moving, &four());
    let stops: Vec<bool> = said.iter().map(|decision| decision.action == Action::Stop).collect();
    assert_eq!(stops, [false, false, false, true]);
}

#[test]
fn a_doubtful_verdict_costs_one_restart_and_no_node() {
    let policy = Policy {
        exclude: policy::Exclude { max_share: 0.5, ..Policy::default().exclude },
        ..Policy::default()
    };
    for confidence in [Confidence::Low, Confidence::Medium] {
        for (cause, class) in [("gpu-fallen-off-bus", Class::Node), ("application-exception", Class::Program)]
        {
            let said = run(&policy, &[(judged(cause, class, confidence, Some("n1")), Some(7))], &four());
            assert_eq!(without(&said[0]), Some(vec![]), "{cause}");
            assert_eq!(said[0].charged, Class::Unknown);
            assert!(said[0].why[0].contains("confidence"), "{:?}", said[0].why);
        }
    }
    let sure = judged("gpu-fallen-off-bus", Class::Node, Confidence::High, Some("n1.cluster"));
    assert_eq!(without(&run(&policy, &[(sure, None)], &four())[0]), Some(vec!["n1".to_owned()]));
    // A culprit outside of the job's nodes.
    let false_one = judged("gpu-fallen-off-bus", Class::Node, Confidence::High, Some("other"));
    assert_eq!(without(&run(&policy, &[(false_one, None)], &four())[0]), Some(vec![]));
}

#[test]
fn the_breaker_holds_the_share_and_the_least_number() {
    let policy = |max_share| Policy {
        exclude: policy::Exclude { max_share, ..Policy::default().exclude },
        ..Policy::default()
    };
    let bad = |host| (judged("gpu-fallen-off-bus", Class::Node, Confidence::High, Some(host)), None);
    let said = run(&policy(0.25), &[bad("n1"), bad("n2")], &four());
    assert_eq!(without(&said[0]), Some(vec!["n1".to_owned()]));
    assert_eq!(without(&said[1]), Some(vec![]));
    assert!(said[1].why[0].contains("at most 1 of 4"), "{:?}", said[1].why);
    let said = run(&policy(1.0), &[bad("n1"), bad("n2"), bad("n3")], &four());
    assert!(said[2].why[0].contains("the job needs 2"), "{:?}", said[2].why);
    let spare = Site { spares: vec!["n4".to_owned()], min_nodes: 4, n_given: 5, ..four() };
    assert_eq!(without(&run(&policy(0.25), &[bad("n1")], &spare)[0]), Some(vec!["n1".to_owned()]));
    assert_eq!((allowed(0.05, 19), allowed(0.05, 20), allowed(0.1, 30)), (0, 1, 3));
}

#[test]
fn budgets_end_and_come_back() {
    let lost = judged("process-killed", Class::Transient, Confidence::High, Some("n0"));
    let said = run(&Policy::default(), &vec![(lost.clone(), None); 6], &four());
    let stops: Vec<bool> = said.iter().map(|decision| decision.action == Action::Stop).collect();
    assert_eq!(stops, [false, false, false, false, false, true]);
    // Seven hours later the window of the budget is empty.
    let past: Vec<Failed> = (0..5)
        .map(|n| Failed {
            attempt: n + 1,
            at: 0.0,
            judgement: lost.clone(),
            charged: Class::Transient,
            step: None,
            resumed_from: None,
        })
        .collect();
    let late = AttemptFailure {
        attempt: 6,
        at: 7.0 * 3600.0,
        judgement: &lost,
        told: None,
        step: None,
        resumed_from: None,
    };
    assert_ne!(decide(&Policy::default(), &past, &late, &four(), 0.5).action, Action::Stop);
}

#[test]
fn what_is_told_from_outside_is_never_restarted() {
    let lost = judged("process-killed", Class::Transient, Confidence::High, Some("n0"));
    let told = AttemptFailure {
        attempt: 1,
        at: 0.0,
        judgement: &lost,
        told: Some("SIGTERM"),
        step: None,
        resumed_from: None,
    };
    let decision = decide(&Policy::default(), &[], &told, &four(), 0.5);
    assert_eq!((decision.action, decision.charged), (Action::Stop, Class::External));
}

/// Whatever a single verdict says, unless it is certain that somebody outside ended the job.
#[test]
fn one_wrong_verdict_costs_at_most_one_restart() {
    let policy = Policy::parse("version = 1\n[exclude]\nmax_share = 0.25").unwrap();
    for class in [Class::Transient, Class::Node, Class::Program, Class::External, Class::Unknown] {
        for confidence in [Confidence::Low, Confidence::Medium, Confidence::High] {
            let wrong = judged("no-such-cause", class, confidence, Some("n2"));
            let decision = &run(&policy, &[(wrong, Some(7))], &four())[0];
            let is_sure = confidence == Confidence::High;
            let expected = match class {
                Class::External if is_sure => None,
                Class::Node if is_sure => Some(vec!["n2".to_owned()]),
                _ => Some(Vec::new()),
            };
            assert_eq!(without(decision), expected, "{class} {confidence} {:?}", decision.why);
            if class == Class::External && !is_sure {
                assert!(
                    decision.why.iter().any(|why| why.contains("stopping needs high")),
                    "{:?}",
                    decision.why
                );
            }
        }
    }
}

#[test]
fn memory_that_is_still_held_is_no_fault_of_the_program_once() {
    let oom = judged("cuda-oom", Class::Program, Confidence::High, Some("n0"));
    let lost = judged("process-killed", Class::Transient, Confidence::High, Some("n0"));
    let said = run(&Policy::default(), &[(lost, Some(9)), (oom.clone(), None), (oom, None)], &four());
    assert_eq!(said[1].charged, Class::Transient);
    assert_eq!((said[2].charged, &said[2].action), (Class::Program, &Action::Stop));
}

fn pauses(steps: &[Option<u64>]) -> Vec<f64> {
    let policy = Policy {
        budgets: vec![policy::Budget { class: Class::Transient, max: 99, per: Duration::from_secs(9_999) }],
        ..Policy::default()
    };
    let lost = judged("process-killed", Class::Transient, Confidence::High, None);
    let failures: Vec<_> = steps.iter().map(|step| (lost.clone(), *step)).collect();
    let pause = |decision: Decision| match decision.action {
        Action::Restart { pause_s, .. } => pause_s,
        Action::Requeue { .. } | Action::Stop => panic!("stopped"),
    };
    run(&policy, &failures, &four()).into_iter().map(pause).collect()
}

#[test]
fn pauses_grow_until_there_is_progress() {
    assert_eq!(pauses(&[None; 8]), [10.0, 20.0, 40.0, 80.0, 160.0, 320.0, 600.0, 600.0]);
    assert_eq!(pauses(&[Some(5), Some(5), Some(5), Some(9), Some(9)]), [10.0, 20.0, 40.0, 10.0, 20.0]);
}

proptest! {
    /// For all verdicts: the breaker holds, no budget is exceeded, pauses stay within bounds.
    #[test]
    fn laws(kinds in proptest::collection::vec((0..4_usize, 0..3_usize, 0..5_usize, proptest::option::of(0_u64..4)), 1..30),
            max_share in 0.0..1.0_f64, chance in 0.0..1.0_f64) {
        let policy = Policy { exclude: policy::Exclude { max_share, ..Policy::default().exclude }, ..Policy::default() };
        let causes = [("process-killed", Class::Transient), ("gpu-fallen-off-bus", Class::Node),
                      ("application-exception", Class::Program), ("undecided", Class::Unknown)];
        let confidences = [Confidence::Low, Confidence::Medium, Confidence::High];
        let failures: Vec<_> = kinds.iter().map(|(cause, confidence, host, step)| {
            let (cause, class) = causes[*cause];
            (judged(cause, class, confidences[*confidence], Some(&format!("n{host}"))), *step)
        }).collect();
        let _ = chance;
        let said = run(&policy, &failures, &four());
        let excluded: Vec<String> = said.iter().filter_map(without).flatten().collect();
        prop_assert!(excluded.len() as f64 <= max_share * 4.0 + 1e-6);
        prop_assert!(excluded.len() <= 2, "two nodes are needed");
        for class in [Class::Transient, Class::Node, Class::Unknown] {
            let n = said.iter().filter(|d| d.charged == class && d.action != Action::Stop).count() as u32;
            prop_assert!(n <= policy.budget(class).unwrap().max);
        }
        for decision in &said {
            prop_assert!(!decision.why.is_empty());
            if let Action::Restart { pause_s, .. } = decision.action {
                prop_assert!((0.0..=600.0).contains(&pause_s));
            }
        }
    }
}
