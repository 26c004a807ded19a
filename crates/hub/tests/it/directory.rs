//! A directory as hub.

use std::time::Duration;

use ringleader_hub::{Change, HubError, HubLink};

use crate::{both, digest, is_digest, open, ttl, until, wait};

fn folder() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let address = format!("dir:{}", folder.path().join("hub").display());
    (folder, address)
}

/// All tests at once, each in its own folder: they mostly wait.
#[test]
fn digests_election_records() {
    let folders = [folder(), folder(), folder()];
    let [digests, election, records] = folders.each_ref().map(|(_, address)| address);
    std::thread::scope(|scope| {
        scope.spawn(|| both::digests(digests));
        scope.spawn(|| both::election(election));
        scope.spawn(|| both::records(records));
    });
}

#[test]
fn hostile_files_cost_nothing() {
    let (folder, address) = folder();
    let root = folder.path().join("hub");
    for name in ["digests", "incidents", "requests", "answers"] {
        std::fs::create_dir_all(root.join(name)).unwrap();
    }
    let digests = root.join("digests");
    std::fs::write(digests.join("empty"), b"").unwrap();
    std::fs::write(digests.join("rubbish"), [0xffu8; 999]).unwrap();
    std::fs::write(digests.join("long"), vec![b'R'; 1 << 20]).unwrap();
    std::fs::create_dir(digests.join("folder")).unwrap();
    std::fs::write(digests.join("%zz"), b"x").unwrap();
    std::os::unix::fs::symlink("/dev/zero", digests.join("link")).unwrap();
    let pipe = digests.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    std::fs::write(root.join("analyser"), b"\xff").unwrap();
    std::fs::write(root.join("incidents").join(format!("{:020}.json", 7)), b"{\"number\":").unwrap();
    std::fs::write(root.join("incidents/x.json"), b"{}").unwrap();
    std::fs::write(root.join("requests").join(format!("{:020}.json", 3)), vec![b'['; 1 << 20]).unwrap();
    std::fs::write(root.join("answers/%zz.json"), b"{}").unwrap();

    let a = open(&address, "a");
    a.publish(&digest("a", 1, 2)).unwrap();
    wait("a's digest in the hub", || a.stats().sent == 1);
    // One digest is truncated, one is under a name that is not its own.
    let whole = std::fs::read(digests.join("a")).unwrap();
    std::fs::write(digests.join("cut"), &whole[..whole.len() / 2]).unwrap();
    std::fs::write(digests.join("thief"), &whole).unwrap();
    let mut feed = a.follow();
    let mut unreadable = Vec::new();
    let mut is_seen = false;
    until(&mut feed, "what can be read and what cannot", |change| {
        if let Change::Unreadable { node, .. } = change {
            unreadable.push(node.clone());
        }
        is_seen |= is_digest(change, "a", 1);
        is_seen && unreadable.len() == 5
    });
    unreadable.sort();
    assert_eq!(unreadable, ["cut", "empty", "long", "rubbish", "thief"]);
    a.campaign(true);
    wait("election over a rubbish lease", || a.role().is_analyser());
    assert_eq!(a.incidents().unwrap(), []);
    assert_eq!(a.record(ringleader_hub::Incident::default()).unwrap(), 8);
    assert_eq!(a.request(), None);
    assert_eq!(a.request_collect("").unwrap(), 4);
    assert_eq!(a.answers(4).unwrap(), []);
}

#[test]
fn a_digest_of_an_earlier_job_is_no_news() {
    let (folder, address) = folder();
    let a = open(&address, "a");
    a.publish(&digest("a", 1, 2)).unwrap();
    wait("a's digest in the hub", || a.stats().sent == 1);
    a.abandon();
    let file = std::fs::File::options().write(true).open(folder.path().join("hub/digests/a")).unwrap();
    file.set_modified(std::time::SystemTime::now() - Duration::from_mins(1)).unwrap();
    let b = open(&address, "b");
    let mut feed = b.follow();
    b.publish(&digest("b", 1, 2)).unwrap();
    let all = until(&mut feed, "b's digest", |change| is_digest(change, "b", 1));
    assert_eq!(all.len(), 1, "{all:?}");
    assert_eq!(feed.next(ttl(&address) * 7 / 5), []);
    let a = open(&address, "a");
    a.publish(&digest("a", 5, 2)).unwrap();
    until(&mut feed, "a's new life", |change| is_digest(change, "a", 5));
}

#[test]
fn a_directory_that_goes_comes_back() {
    let (folder, address) = folder();
    let a = open(&address, "a");
    let mut feed = a.follow();
    a.publish(&digest("a", 1, 2)).unwrap();
    until(&mut feed, "the digest", |change| is_digest(change, "a", 1));
    a.campaign(true);
    wait("a's election", || a.role().is_analyser());
    let root = folder.path().join("hub");
    std::fs::remove_dir_all(&root).unwrap();
    std::fs::write(&root, b"in the way").unwrap();
    until(&mut feed, "the loss", |change| matches!(change, Change::Away { .. }));
    wait("the link's loss", || matches!(a.link(), HubLink::Away { .. }));
    wait("the term's end", || !a.role().is_analyser());
    assert!(matches!(a.incidents(), Err(HubError::Away(_))));
    a.publish(&digest("a", 2, 2)).unwrap();
    std::fs::remove_file(&root).unwrap();
    let all = until(&mut feed, "the newest digest", |change| is_digest(change, "a", 2));
    assert!(all.contains(&Change::Back), "{all:?}");
    wait("a's second term", || a.role().is_analyser());
    assert_eq!(a.link(), HubLink::Up);
}
