//! etcd as hub: a real one that is killed, wiped, and cut off.

use std::process::Command;
use std::time::{Duration, Instant};

use ringleader_hub::{Change, Hub, HubError, HubLink, Incident};

use crate::server::{Server, Wire};
use crate::{both, digest, is_digest, open, until, wait};

fn address(server: impl std::fmt::Display, prefix: &str) -> String {
    format!("etcd://{server}/{prefix}?compact=no")
}

#[test]
fn digests_election_records() {
    let Some(server) = Server::start() else { return };
    // All tests at once, each under its own prefix.
    std::thread::scope(|scope| {
        scope.spawn(|| both::digests(&address(server.address(), "digests")));
        scope.spawn(|| both::election(&address(server.address(), "deep/er")));
        scope.spawn(|| both::records(&address(server.address(), "records")));
    });
}

#[test]
fn nobody_there() {
    let hub = open("etcd://127.0.0.1:1/x", "a");
    let mut feed = hub.follow();
    hub.publish(&digest("a", 1, 2)).unwrap();
    hub.campaign(true);
    wait("the link's loss", || matches!(hub.link(), HubLink::Away { .. }));
    until(&mut feed, "the loss", |change| matches!(change, Change::Away { .. }));
    assert!(matches!(hub.incidents(), Err(HubError::Away(_))), "{:?}", hub.incidents());
    assert_eq!(hub.record(Incident::default()), Err(HubError::NotAnalyser));
    let start = Instant::now();
    drop(hub);
    assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
}

#[test]
fn etcd_killed_and_started_again() {
    let Some(mut server) = Server::start() else { return };
    let address = address(server.address(), "job");
    let (a, b) = (open(&address, "a"), open(&address, "b"));
    a.campaign(true);
    wait("a's election", || a.role().is_analyser());
    assert_eq!(a.record(Incident::default()).unwrap(), 1);
    b.campaign(true);
    let mut feed = a.follow();
    b.publish(&digest("b", 1, 2)).unwrap();
    until(&mut feed, "b's digest", |change| is_digest(change, "b", 1));

    // Away for longer than any lease lasts.
    server.kill();
    until(&mut feed, "the loss", |change| matches!(change, Change::Away { .. }));
    wait("both links' loss", || {
        matches!(a.link(), HubLink::Away { .. }) && matches!(b.link(), HubLink::Away { .. })
    });
    wait("the end of a's term", || !a.role().is_analyser());
    for sequence in 2..60 {
        b.publish(&digest("b", sequence, 2)).unwrap();
        std::thread::sleep(Duration::from_millis(100));
    }
    assert!(matches!(b.incidents(), Err(HubError::Away(_) | HubError::Deadline(_))));
    server.resume();
    let all = until(&mut feed, "b's newest digest", |change| is_digest(change, "b", 59));
    assert!(all.contains(&Change::Back), "{all:?}");
    assert!(
        !all.iter().any(|change| matches!(change, Change::Silent { .. })),
        "etcd's silence is not b's: {all:?}"
    );
    wait("one analyser", || a.role().is_analyser() != b.role().is_analyser());
    assert_eq!(b.incidents().unwrap().len(), 1, "what was written down is still there");

    // Without its data it is a different etcd: every live participant registers again.
    server.wipe();
    until(&mut feed, "the second loss", |change| matches!(change, Change::Away { .. }));
    server.resume();
    until(&mut feed, "b's digest again", |change| is_digest(change, "b", 59));
    wait("one analyser again", || a.role().is_analyser() != b.role().is_analyser());
    assert_eq!(b.incidents().unwrap(), []);
    assert!(b.stats().leases_lost > 0);
}

#[test]
fn one_agent_cut_off() {
    let Some(server) = Server::start() else { return };
    let wire = Wire::to(server.address());
    let far = address(wire.address(), "job");
    let near = address(server.address(), "job");
    let (a, b) = (open(&far, "a"), open(&near, "b"));
    a.campaign(true);
    wait("a's election", || a.role().is_analyser());
    b.campaign(true);
    a.publish(&digest("a", 1, 2)).unwrap();
    let mut feed = b.follow();
    until(&mut feed, "a's digest", |change| is_digest(change, "a", 1));
    // No packet passes, and no connection ends.
    wire.silence();
    let start = Instant::now();
    assert!(matches!(a.incidents(), Err(HubError::Deadline(_))), "{:?}", a.incidents());
    assert!(start.elapsed() < Duration::from_secs(12), "{:?}", start.elapsed());
    until(&mut feed, "a's silence", |change| *change == Change::Silent { node: "a".to_owned() });
    wait("b's election", || b.role().is_analyser());
    assert!(!a.role().is_analyser(), "never two");
    wait("a's knowledge of it", || matches!(a.link(), HubLink::Away { .. }));
    for sequence in 2..5 {
        a.publish(&digest("a", sequence, 2)).unwrap();
    }
    wire.mend();
    until(&mut feed, "a's newest digest", |change| is_digest(change, "a", 4));
    wait("a's link", || a.link() == HubLink::Up);
    assert!(b.role().is_analyser() && !a.role().is_analyser());
}

/// The newest revision, from etcd's JSON gateway.
fn revision(server: &Server) -> Option<u64> {
    let url = format!("http://{}/v3/kv/range", server.address());
    let output = Command::new("curl").args(["-s", "-d", "{\"key\":\"YQ==\"}", &url]).output().ok()?;
    let answer: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    answer["header"]["revision"].as_str()?.parse().ok()
}

#[test]
fn a_watch_that_etcd_has_forgotten_is_listed_anew() {
    let Some(server) = Server::start() else { return };
    let wire = Wire::to(server.address());
    let near = address(server.address(), "job");
    let (a, b, c) = (open(&near, "a"), open(&near, "b"), open(&near, "c"));
    let reader = open(&address(wire.address(), "job"), "reader");
    let mut feed = reader.follow();
    for hub in [(&a, "a"), (&b, "b")] {
        hub.0.publish(&digest(hub.1, 1, 2)).unwrap();
        until(&mut feed, "a digest", |change| is_digest(change, hub.1, 1));
    }
    wire.cut();
    until(&mut feed, "the loss", |change| matches!(change, Change::Away { .. }));
    drop(b);
    for sequence in 2..12 {
        a.publish(&digest("a", sequence, 2)).unwrap();
        std::thread::sleep(Duration::from_millis(80));
    }
    wait("a's digests", || a.stats().sent > 5);
    c.publish(&digest("c", 1, 2)).unwrap();
    wait("c's digest", || c.stats().sent == 1);
    let Some(revision) = revision(&server) else {
        crate::server::not_tested("curl is not there to compact etcd");
        return;
    };
    let url = format!("http://{}/v3/kv/compaction", server.address());
    let body = format!("{{\"revision\":\"{revision}\"}}");
    assert!(Command::new("curl").args(["-sf", "-d", &body, &url]).output().unwrap().status.success());
    wire.mend();
    let mut missing = vec!["a's newest", "b gone", "c"];
    let all = until(&mut feed, "all that happened meanwhile", |change| {
        match change {
            Change::Digest(digest) if digest.node == "a" => assert_eq!(digest.sequence, 11),
            _ => {}
        }
        missing.retain(|what| match *what {
            "a's newest" => !is_digest(change, "a", 11),
            "b gone" => *change != Change::Silent { node: "b".to_owned() },
            _ => !is_digest(change, "c", 1),
        });
        missing.is_empty()
    });
    assert!(all.contains(&Change::Back), "{all:?}");
}

#[test]
fn the_analyser_lets_etcd_forget() {
    let Some(server) = Server::start() else { return };
    let address = format!("etcd://{}/job?compact=5", server.address());
    let a = open(&address, "a");
    a.campaign(true);
    wait("a's election", || a.role().is_analyser());
    a.publish(&digest("a", 1, 2)).unwrap();
    wait("the digest", || a.stats().sent == 1);
    if revision(&server).is_none() {
        crate::server::not_tested("curl is not there to ask etcd");
        return;
    }
    let url = format!("http://{}/v3/kv/range", server.address());
    wait("the first revision forgotten", || {
        let output =
            Command::new("curl").args(["-s", "-d", "{\"key\":\"YQ==\",\"revision\":\"2\"}", &url]).output();
        String::from_utf8_lossy(&output.unwrap().stdout).contains("compacted")
    });
}

#[test]
fn a_member_that_is_dead_gives_way_to_the_next() {
    let Some(server) = Server::start() else { return };
    let address = format!("etcd://127.0.0.1:1,{}/job?connections=2", server.address());
    let a = open(&address, "a");
    let b: Hub = a.beside(crate::options(&address, "b")).unwrap();
    let mut feed = b.follow();
    a.publish(&digest("a", 1, 2)).unwrap();
    b.publish(&digest("b", 1, 2)).unwrap();
    let mut missing = vec!["a", "b"];
    until(&mut feed, "both digests", |change| {
        missing.retain(|node| !is_digest(change, node, 1));
        missing.is_empty()
    });
}
