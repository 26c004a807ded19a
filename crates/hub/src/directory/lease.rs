//! Election by one file, with atomic rename and link only: no lock, and no clock that two machines share.
//!
//! The file holds the token of its owner and a counter that the owner raises through its own open file. A candidate
//! that has seen the same bytes for one and a half leases, by its own clock, moves the file away and links its own in
//! its place. The owner considers its term over after one lease without a successful beat, so it gives up first. If
//! two candidates move at once, one may remove the file of the other, who has just won: the winner notices at its next
//! beat and steps down. Two analysers for a third of a lease cost a second bundle and nothing else.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use super::files;

/// Bytes of the file that are read.
const MAX_BYTES: usize = 1024;

pub(super) struct Lease {
    path: PathBuf,
    node: String,
    token: String,
    ttl: Duration,
    held: Option<HeldLease>,
    /// The last content of another's file, and since when it is unchanged.
    seen: Option<(Vec<u8>, Instant)>,
}

struct HeldLease {
    file: File,
    beat: u64,
}

/// The holder of the lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LeaseOwner {
    /// This participant, until then.
    Us(Instant),
    /// Another node holds it; None if no node does.
    Other(Option<String>),
}

impl Lease {
    pub(super) fn new(path: PathBuf, node: &str, token: &str, ttl: Duration) -> Self {
        Self { path, node: node.to_owned(), token: token.to_owned(), ttl, held: None, seen: None }
    }

    /// Reads the file once and acts on it. Errors: the file system's.
    pub(super) fn step(&mut self, wants: bool, now: Instant) -> io::Result<LeaseOwner> {
        let found = self.read()?;
        if let Some(held) = &mut self.held {
            if found
                .as_deref()
                .is_some_and(|bytes| owner(bytes).is_some_and(|(token, _)| token == self.token))
            {
                if !wants {
                    self.release();
                    return Ok(LeaseOwner::Other(None));
                }
                held.beat += 1;
                held.file.write_all_at(&content(&self.token, held.beat, &self.node), 0)?;
                held.file.sync_data()?;
                return Ok(LeaseOwner::Us(now + self.ttl));
            }
            self.held = None;
        }
        let Some(found) = found else {
            self.seen = None;
            return if wants { self.take(now) } else { Ok(LeaseOwner::Other(None)) };
        };
        let since = match &self.seen {
            Some((bytes, since)) if *bytes == found => *since,
            _ => {
                self.seen = Some((found.clone(), now));
                now
            }
        };
        if wants && now.duration_since(since) > self.ttl + self.ttl / 2 {
            self.seen = None;
            if self.evict(&found)? {
                return self.take(now);
            }
        }
        Ok(LeaseOwner::Other(owner(&found).map(|(_, node)| node.to_owned())))
    }

    /// Whether the file still names us.
    pub(super) fn is_held(&self) -> bool {
        self.held.is_some()
            && self
                .read()
                .ok()
                .flatten()
                .is_some_and(|bytes| owner(&bytes).is_some_and(|(token, _)| token == self.token))
    }

    /// Gives up the lease if it is ours.
    pub(super) fn release(&mut self) {
        if self.is_held() {
            std::fs::remove_file(&self.path).ok();
        }
        self.held = None;
    }

    fn read(&self) -> io::Result<Option<Vec<u8>>> {
        match files::open(&self.path) {
            Ok((file, _)) => Ok(Some(files::read(file, MAX_BYTES)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn take(&mut self, now: Instant) -> io::Result<LeaseOwner> {
        if !files::create(&self.path, &self.token, &content(&self.token, 0, &self.node))? {
            return Ok(LeaseOwner::Other(None));
        }
        let file = OpenOptions::new().read(true).write(true).open(&self.path)?;
        // The name may belong to another file by now: write only to a file that holds our token.
        let mut bytes = [0; MAX_BYTES];
        let n = file.read_at(&mut bytes, 0)?;
        if bytes.get(..n).and_then(owner).is_none_or(|(token, _)| token != self.token) {
            return Ok(LeaseOwner::Other(None));
        }
        self.held = Some(HeldLease { file, beat: 0 });
        Ok(LeaseOwner::Us(now + self.ttl))
    }

    /// Moves the dead owner's file away; returns false if another file was there.
    fn evict(&self, dead: &[u8]) -> io::Result<bool> {
        let aside = self.path.with_file_name(format!(".dead-{}", self.token));
        match std::fs::rename(&self.path, &aside) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        }
        let moved = files::open(&aside).and_then(|(file, _)| files::read(file, MAX_BYTES));
        let is_dead = moved.is_ok_and(|bytes| bytes == dead);
        if !is_dead {
            // We moved a live file: put it back, unless there is another one already.
            std::fs::hard_link(&aside, &self.path).ok();
        }
        std::fs::remove_file(&aside).ok();
        Ok(is_dead)
    }
}

/// The length is the same at every beat, so that overwriting leaves nothing of the previous one.
fn content(token: &str, beat: u64, node: &str) -> Vec<u8> {
    format!("ringleader-lease-1 {token} {beat:020} {node}\n").into_bytes()
}

/// Token and node of the owner; None if the file has another format.
fn owner(bytes: &[u8]) -> Option<(&str, &str)> {
    let text = std::str::from_utf8(bytes).ok()?;
    let mut parts = text.strip_suffix('\n')?.splitn(4, ' ');
    (parts.next()? == "ringleader-lease-1").then_some(())?;
    let token = parts.next()?;
    parts.next()?;
    Some((token, parts.next()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TTL: Duration = Duration::from_secs(10);

    struct Race {
        folder: tempfile::TempDir,
        start: Instant,
    }

    impl Race {
        fn new() -> Self {
            Self { folder: tempfile::tempdir().unwrap(), start: Instant::now() }
        }

        fn path(&self) -> PathBuf {
            self.folder.path().join("analyser")
        }

        fn lease(&self, node: &str) -> Lease {
            Lease::new(self.path(), node, &format!("token-{node}"), TTL)
        }

        fn at(&self, seconds: u64) -> Instant {
            self.start + Duration::from_secs(seconds)
        }

        fn names(&self) -> usize {
            std::fs::read_dir(self.folder.path()).unwrap().count()
        }
    }

    fn other(node: &str) -> LeaseOwner {
        LeaseOwner::Other(Some(node.to_owned()))
    }

    #[test]
    fn one_has_it_until_it_is_silent() {
        let race = Race::new();
        let (mut a, mut b) = (race.lease("a"), race.lease("b"));
        assert_eq!(b.step(false, race.at(0)).unwrap(), LeaseOwner::Other(None));
        assert_eq!(a.step(true, race.at(0)).unwrap(), LeaseOwner::Us(race.at(10)));
        for second in [1, 5, 9, 13] {
            assert_eq!(a.step(true, race.at(second)).unwrap(), LeaseOwner::Us(race.at(second + 10)));
            assert_eq!(b.step(true, race.at(second)).unwrap(), other("a"));
        }
        // From here on, a is dead.
        assert_eq!(b.step(true, race.at(27)).unwrap(), other("a"));
        assert_eq!(b.step(true, race.at(29)).unwrap(), LeaseOwner::Us(race.at(39)));
        assert!(b.is_held());
        // a returns and sees that it has lost, although it took no step in between.
        assert!(!a.is_held());
        assert_eq!(a.step(true, race.at(29)).unwrap(), other("b"));
        assert_eq!(race.names(), 1, "nothing lies about");
    }

    #[test]
    fn it_is_given_back() {
        let race = Race::new();
        let (mut a, mut b) = (race.lease("a"), race.lease("b"));
        a.step(true, race.at(0)).unwrap();
        assert_eq!(a.step(false, race.at(1)).unwrap(), LeaseOwner::Other(None));
        assert_eq!(b.step(true, race.at(1)).unwrap(), LeaseOwner::Us(race.at(11)));
        a.release();
        assert!(b.is_held(), "another's is not taken away");
    }

    #[test]
    fn a_living_one_is_put_back() {
        let race = Race::new();
        let (mut a, mut b) = (race.lease("a"), race.lease("b"));
        a.step(true, race.at(0)).unwrap();
        // c judged by the content before a's last beat.
        let c = race.lease("c");
        assert!(!c.evict(&content("token-dead", 7, "dead")).unwrap());
        assert!(a.is_held());
        assert_eq!(b.step(true, race.at(1)).unwrap(), other("a"));
        assert_eq!(race.names(), 1);
    }

    #[test]
    fn rubbish_is_evicted_like_a_dead_owner() {
        for rubbish in [&b""[..], b"\xff\xfe", b"ringleader-lease-1 x", &[b'a'; 5000]] {
            let race = Race::new();
            std::fs::write(race.path(), rubbish).unwrap();
            let mut a = race.lease("a");
            assert_eq!(a.step(true, race.at(0)).unwrap(), LeaseOwner::Other(None));
            assert_eq!(
                a.step(true, race.at(16)).unwrap(),
                LeaseOwner::Us(race.at(26)),
                "{} bytes",
                rubbish.len()
            );
        }
    }
}
