//! Behaviour that a directory and etcd share.

use std::time::{Duration, Instant};

use ringleader_hub::{
    Answer, Change, Hub, HubError, HubLink, Incident, MAX_INCIDENTS, Published, RequestState, Role,
};

use crate::{digest, is_digest, open, ttl, until, wait};

/// Digests arrive, and only the newest counts; a dead agent is silent, one that leaves has left, and one that
/// returns is present again.
pub(crate) fn digests(address: &str) {
    let a = open(address, "a");
    assert_eq!(a.publish(&digest("a", 1, 8)).unwrap(), Published::Sent);
    let b = open(address, "b");
    b.publish(&digest("b", 1, 8)).unwrap();
    wait("b's digest in the hub", || b.stats().sent == 1);
    let reader = open(address, "reader");
    let mut feed = reader.follow();
    let mut missing = vec!["a", "b"];
    until(&mut feed, "both digests", |change| {
        missing.retain(|node| !is_digest(change, node, 1));
        missing.is_empty()
    });
    // A digest without news is not sent, and still the agent is not silent.
    let same = digest("a", 1, 8);
    a.publish(&same).unwrap();
    assert_eq!(a.publish(&same).unwrap(), Published::Unchanged);
    assert!(feed.next(ttl(address)).iter().all(|change| matches!(change, Change::Digest(_))));
    assert_eq!(a.link(), HubLink::Up);
    for sequence in 2..=40 {
        a.publish(&digest("a", sequence, 8)).unwrap();
    }
    until(&mut feed, "the newest digest", |change| is_digest(change, "a", 40));
    assert!(a.stats().sent < 30, "not each one was sent: {:?}", a.stats());
    assert_eq!(a.publish(&digest("b", 41, 8)), Err(HubError::OtherNode("b".to_owned())));
    // One agent is killed, the other leaves in an orderly way.
    a.abandon();
    let killed = Instant::now();
    let all = until(&mut feed, "a's silence", |change| *change == Change::Silent { node: "a".to_owned() });
    assert!(!all.contains(&Change::Silent { node: "b".to_owned() }));
    assert!(killed.elapsed() < Duration::from_secs(30), "{:?}", killed.elapsed());
    drop(b);
    until(&mut feed, "b's goodbye", |change| *change == Change::Left { node: "b".to_owned() });
    let a = open(address, "a");
    a.publish(&digest("a", 1, 2)).unwrap();
    until(&mut feed, "a again", |change| is_digest(change, "a", 1));
    drop(a);
    let all = until(&mut feed, "a's goodbye", |change| *change == Change::Left { node: "a".to_owned() });
    assert!(!all.iter().any(|change| matches!(change, Change::Silent { .. })), "{all:?}");
    // The goodbye is the last change: no silence follows.
    assert_eq!(feed.next(ttl(address) * 7 / 5), []);
}

fn analysers(hubs: &[&Hub]) -> usize {
    hubs.iter().filter(|hub| hub.role().is_analyser()).count()
}

/// One agent is elected; one that dies or steps down is replaced.
pub(crate) fn election(address: &str) {
    let (a, b, c) = (open(address, "a"), open(address, "b"), open(address, "c"));
    a.campaign(true);
    wait("a's election", || a.role().is_analyser());
    b.campaign(true);
    let end = Instant::now() + ttl(address) * 8 / 5;
    while Instant::now() < end {
        assert_eq!(analysers(&[&a, &b, &c]), 1);
        std::thread::sleep(Duration::from_millis(50));
    }
    wait("c's knowledge", || c.role() == Role::Agent { analyser: Some("a".to_owned()) });
    a.campaign(false);
    wait("b's election", || b.role().is_analyser());
    assert_eq!(analysers(&[&a, &b, &c]), 1);
    c.campaign(true);
    b.abandon();
    let killed = Instant::now();
    wait("c's election", || c.role().is_analyser());
    assert!(killed.elapsed() < Duration::from_secs(30), "{:?}", killed.elapsed());
    drop(c);
    a.campaign(true);
    let left = Instant::now();
    wait("a's second term", || a.role().is_analyser());
    assert!(left.elapsed() < Duration::from_secs(5), "who leaves makes room at once: {:?}", left.elapsed());
}

/// Incidents, requests and answers.
pub(crate) fn records(address: &str) {
    let (a, b) = (open(address, "a"), open(address, "b"));
    let incident = |summary: &str| Incident { summary: summary.to_owned(), ..Incident::default() };
    wait("both up", || a.link() == HubLink::Up && b.link() == HubLink::Up);
    assert_eq!(b.record(incident("not mine to tell")), Err(HubError::NotAnalyser));
    assert_eq!(b.request_collect("why not"), Err(HubError::NotAnalyser));
    assert_eq!(b.incidents().unwrap(), []);
    a.campaign(true);
    wait("a's election", || a.role().is_analyser());
    for n in 1..=MAX_INCIDENTS as u64 + 3 {
        assert_eq!(a.record(incident(&format!("{n}"))).unwrap(), n);
    }
    let incidents = b.incidents().unwrap();
    assert_eq!(incidents.len(), MAX_INCIDENTS);
    assert_eq!(
        (incidents[0].number, incidents[0].summary.as_str(), incidents[0].node.as_str()),
        (4, "4", "a")
    );
    assert_eq!(a.record(incident(&"ä".repeat(10_000))).unwrap(), MAX_INCIDENTS as u64 + 4);
    assert_eq!(b.incidents().unwrap().last().unwrap().summary, "ä".repeat(2048));

    assert_eq!(b.request(), None);
    let number = a.request_collect("rank 3 stalls").unwrap();
    wait("the request", || b.request().is_some_and(|request| request.number == number));
    let request = b.request().unwrap();
    assert_eq!((request.node.as_str(), request.why.as_str()), ("a", "rank 3 stalls"));
    assert_eq!(a.answers(number).unwrap(), []);
    b.answer(Answer { request: number, ..Answer::default() });
    b.answer(Answer {
        request: number,
        outcome: RequestState::Done,
        bundle: Some("/tmp/x".to_owned()),
        ..Answer::default()
    });
    a.answer(Answer { request: number, outcome: RequestState::Failed, ..Answer::default() });
    wait("the answers", || {
        let answers = a.answers(number).unwrap();
        let said: Vec<_> = answers.iter().map(|answer| (answer.node.as_str(), answer.outcome)).collect();
        said == [("a", RequestState::Failed), ("b", RequestState::Done)]
    });
    assert_eq!(a.answers(number + 1).unwrap(), []);
    // A participant that starts later does not see earlier requests.
    let c = open(address, "c");
    wait("c up", || c.link() == HubLink::Up);
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(c.request(), None);
    assert_eq!(a.request_collect("again").unwrap(), number + 1);
    wait("the next request", || c.request().is_some_and(|request| request.number == number + 1));
}
