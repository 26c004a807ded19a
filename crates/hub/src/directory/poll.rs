//! The reading side of a directory: looks at every node's file repeatedly and reports changes.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use super::files::{self, Stamp};
use super::{DIGESTS, names};
use crate::feed::Mailbox;
use crate::seat::{Seat, unescape};
use crate::wire::{self, MAX_DIGEST_BYTES};

pub(super) fn start(root: &Path, seat: &Arc<Seat>, mailbox: &Weak<Mailbox>) {
    let mut poll = Poll {
        folder: root.join(DIGESTS),
        token: format!("{}-clock", seat.token),
        ttl: seat.options.ttl,
        files: BTreeMap::new(),
        last: None,
    };
    let pause = (poll.ttl / 20).min(Duration::from_secs(1));
    let weak = mailbox.clone();
    let thread = std::thread::Builder::new().name("ringleader-feed".to_owned()).spawn(move || {
        // A reader may start before the first agent.
        std::fs::create_dir_all(&poll.folder).ok();
        while let Some(mailbox) = weak.upgrade() {
            match poll.turn(Instant::now(), &mailbox) {
                Ok(()) => mailbox.back(),
                Err(error) => mailbox.away(error.to_string()),
            }
            drop(mailbox);
            std::thread::sleep(pause);
        }
    });
    if let (Err(error), Some(mailbox)) = (thread, mailbox.upgrade()) {
        mailbox.away(format!("no thread for the directory: {error}"));
    }
}

struct Poll {
    folder: PathBuf,
    token: String,
    ttl: Duration,
    files: BTreeMap<String, SeenFile>,
    /// The last successful look.
    last: Option<Instant>,
}

struct SeenFile {
    stamp: Stamp,
    /// Hash of the bytes: rewriting the same bytes is a sign of life but no news.
    hash: u64,
    since: Instant,
    /// Already reported as silent, or left by an earlier job: nothing to report until it changes.
    is_over: bool,
}

impl Poll {
    fn turn(&mut self, now: Instant, mailbox: &Mailbox) -> io::Result<()> {
        let names = names(&self.folder)?;
        // Who did not look cannot say who was silent.
        let was_absent = self.last.is_some_and(|last| now.duration_since(last) > self.ttl / 2);
        let mut clock: Option<Stamp> = None;
        for name in &names {
            let Some(node) = unescape(name) else { continue };
            // A file may be replaced between listing and opening, or be no regular file: the next look decides.
            let Ok((file, stamp)) = files::open(&self.folder.join(name)) else { continue };
            if self.files.get(&node).is_some_and(|seen| seen.stamp == stamp) {
                continue;
            }
            let Ok(bytes) = files::read(file, MAX_DIGEST_BYTES) else { continue };
            let mut is_over = wire::is_bye(&bytes);
            if !self.files.contains_key(&node) {
                // The file's age by the clock of the file system, which wrote both times.
                if clock.is_none() {
                    clock = Some(self.touch()?);
                }
                let age_s = clock.map_or(0, |clock| stamp.seconds_before(&clock));
                is_over |= age_s > 2 * self.ttl.as_secs() as i64;
            }
            let mut hasher = DefaultHasher::new();
            bytes.hash(&mut hasher);
            let hash = hasher.finish();
            let is_told = match self.files.get(&node) {
                Some(seen) => seen.hash != hash || seen.is_over != is_over,
                None => !is_over,
            };
            self.files.insert(node.clone(), SeenFile { stamp, hash, since: now, is_over });
            if is_told {
                mailbox.put(node, bytes, self.last.is_none() || was_absent);
            }
        }
        // This includes nodes whose file was removed.
        for (node, seen) in &mut self.files {
            if was_absent {
                seen.since = now;
            }
            if !seen.is_over && now.duration_since(seen.since) > self.ttl {
                seen.is_over = true;
                mailbox.gone(node.clone());
            }
        }
        self.last = Some(now);
        Ok(())
    }

    /// Writes a file and reads its time: the file system's current time.
    fn touch(&self) -> io::Result<Stamp> {
        let path = self.folder.join(format!(".{}", self.token));
        std::fs::write(&path, b"")?;
        let (_, stamp) = files::open(&path)?;
        std::fs::remove_file(&path)?;
        Ok(stamp)
    }
}
