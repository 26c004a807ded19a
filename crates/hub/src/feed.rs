//! Digests on their way to the analyser: only the newest of each node, so that a slow reader costs no memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ringleader_watch::digest::Digest;

use crate::wire::{self, NodeRecord, Unreadable};

/// Nodes that a feed keeps apart; [`Change::Surplus`] reports that more were left out.
const MAX_NODES: usize = 1 << 16;

/// How long digests that were already in the hub at the first look are held back. They may be of any age, known only by
/// their agent's clock, and the analyser compares clocks by arrival times. Live agents publish again within this time;
/// the digests of the others are passed on afterwards.
const HOLD: Duration = Duration::from_secs(3);

/// A change in the hub.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A node's newest digest.
    Digest(Box<Digest>),
    /// A node has given no sign of life for the time to silence: the agent is dead, stopped or cut off.
    Silent {
        /// Name of the silent node.
        node: String,
    },
    /// A node's agent has left in an orderly way.
    Left {
        /// Name of the node that left.
        node: String,
    },
    /// A node's entry in the hub is not a digest.
    Unreadable {
        /// Name of the node.
        node: String,
        /// Reason why the entry is unreadable.
        why: Unreadable,
    },
    /// The hub does not answer: from here on, missing news says nothing about the nodes.
    Away {
        /// The failure, as text.
        why: String,
    },
    /// The hub answers again; what changed meanwhile follows now.
    Back,
    /// There are more nodes than a feed keeps apart.
    Surplus,
}

/// All digests of the hub, opened by [`crate::Hub::follow`]. Following stops when it is dropped.
pub struct Feed {
    mailbox: Arc<Mailbox>,
}

impl Feed {
    /// Returns the changes since the last call; waits for one at most this long.
    pub fn next(&mut self, wait: Duration) -> Vec<Change> {
        let until = Instant::now() + wait;
        let mut inner = self.mailbox.inner();
        loop {
            let now = Instant::now();
            inner.release(now);
            if inner.link.is_some() || inner.is_surplus_news || !inner.news.is_empty() {
                break;
            }
            if until <= now {
                return Vec::new();
            }
            let left = inner.hold_until.unwrap_or(until).min(until).saturating_duration_since(now);
            inner = self.mailbox.rings.wait_timeout(inner, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        let link = inner.link.take();
        let news = std::mem::take(&mut inner.news);
        let is_surplus_news = std::mem::take(&mut inner.is_surplus_news);
        drop(inner);
        let mut changes: Vec<Change> = Vec::with_capacity(news.len() + 1);
        changes.extend(link);
        changes.extend(is_surplus_news.then_some(Change::Surplus));
        changes.extend(news.into_iter().map(|(node, news)| match news {
            News::Silent => Change::Silent { node },
            News::Left => Change::Left { node },
            News::Bytes(bytes) => match wire::unpack(&bytes) {
                Ok(NodeRecord::Bye) => Change::Left { node },
                // The key says who may write it: a digest under another node's name is rejected.
                Ok(NodeRecord::Digest(digest)) if digest.node == node => Change::Digest(digest),
                Ok(NodeRecord::Digest(_)) => {
                    Change::Unreadable { node, why: Unreadable::Damaged("it names another node".to_owned()) }
                }
                Err(why) => Change::Unreadable { node, why },
            },
        }));
        changes
    }
}

/// The writing end of a feed.
#[derive(Default)]
pub(crate) struct Mailbox {
    inner: Mutex<Inner>,
    rings: Condvar,
}

#[derive(Default)]
struct Inner {
    /// Nodes with a digest in the hub.
    present: BTreeSet<String>,
    news: BTreeMap<String, News>,
    /// Digests held back, and until when.
    old: BTreeMap<String, Vec<u8>>,
    hold_until: Option<Instant>,
    link: Option<Change>,
    is_away: bool,
    is_surplus: bool,
    is_surplus_news: bool,
}

enum News {
    Bytes(Vec<u8>),
    Silent,
    Left,
}

impl Mailbox {
    /// A feed and its writing end, which lives no longer than the feed.
    pub(crate) fn feed() -> (Feed, Weak<Self>) {
        let mailbox = Arc::new(Self::default());
        let weak = Arc::downgrade(&mailbox);
        (Feed { mailbox }, weak)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a node's newest bytes. `is_old`: they were in the hub before the first look.
    pub(crate) fn put(&self, node: String, bytes: Vec<u8>, is_old: bool) {
        let mut inner = self.inner();
        inner.put(node, bytes, is_old);
        drop(inner);
        self.rings.notify_all();
    }

    /// A node's bytes are gone: it is silent, unless it has said goodbye.
    pub(crate) fn gone(&self, node: String) {
        let mut inner = self.inner();
        inner.old.remove(&node);
        if inner.present.remove(&node) {
            inner.news.insert(node, News::Silent);
        }
        drop(inner);
        self.rings.notify_all();
    }

    /// Stores the whole content of the hub: nodes missing from it are gone.
    pub(crate) fn list(&self, all: Vec<(String, Vec<u8>)>) {
        let mut inner = self.inner();
        let listed: BTreeSet<String> = all.iter().map(|(node, _)| node.clone()).collect();
        let gone: Vec<String> = inner.present.difference(&listed).cloned().collect();
        for node in gone {
            inner.present.remove(&node);
            inner.old.remove(&node);
            inner.news.insert(node, News::Silent);
        }
        for (node, bytes) in all {
            inner.put(node, bytes, true);
        }
        drop(inner);
        self.rings.notify_all();
    }

    pub(crate) fn away(&self, why: String) {
        let mut inner = self.inner();
        if !inner.is_away {
            inner.is_away = true;
            inner.link = Some(Change::Away { why });
        }
        drop(inner);
        self.rings.notify_all();
    }

    pub(crate) fn back(&self) {
        let mut inner = self.inner();
        if inner.is_away {
            inner.is_away = false;
            inner.link = Some(Change::Back);
        }
        drop(inner);
        self.rings.notify_all();
    }
}

impl Inner {
    /// Passes on what was held back once its time has come.
    fn release(&mut self, now: Instant) {
        if self.hold_until.is_some_and(|until| until <= now) {
            self.hold_until = None;
            let old = std::mem::take(&mut self.old);
            self.news.extend(old.into_iter().map(|(node, bytes)| (node, News::Bytes(bytes))));
        }
    }

    fn put(&mut self, node: String, bytes: Vec<u8>, is_old: bool) {
        self.old.remove(&node);
        if wire::is_bye(&bytes) {
            if self.present.remove(&node) {
                self.news.insert(node, News::Left);
            }
            return;
        }
        if self.present.len() >= MAX_NODES && !self.present.contains(&node) {
            self.is_surplus_news |= !self.is_surplus;
            self.is_surplus = true;
            return;
        }
        self.present.insert(node.clone());
        if is_old {
            self.old.insert(node, bytes);
            self.hold_until = Some(Instant::now() + HOLD);
        } else {
            self.news.insert(node, News::Bytes(bytes));
        }
    }
}
