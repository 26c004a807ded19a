//! Digests on their way to the analyser: of each node the newest alone, so that a slow reader costs no memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use ringleader_watch::digest::Digest;

use crate::wire::{self, Unreadable, Word};

/// Nodes that a feed keeps apart; more are left out, which [`Change::Surplus`] says.
const MAX_NODES: usize = 1 << 16;

/// What already stood in the hub when it was looked at may be of any age, which only its agent's clock could say; and who
/// joins digests compares clocks by their arrival. Living agents speak again within this time; of the others, what stood
/// there is handed out then.
const HOLD: Duration = Duration::from_secs(3);

/// News of the hub.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// A node's newest digest.
    Digest(Box<Digest>),
    /// A node has given no sign of life for its time: the agent is dead, stopped or cut off.
    Silent {
        /// Which.
        node: String,
    },
    /// A node's agent has left in good order.
    Left {
        /// Which.
        node: String,
    },
    /// What stands in the hub for a node is no digest.
    Unreadable {
        /// Which.
        node: String,
        /// What is wrong with it.
        why: Unreadable,
    },
    /// The hub does not answer: no news says nothing of the nodes from here on.
    Away {
        /// What failed.
        why: String,
    },
    /// It answers again; what changed meanwhile comes now.
    Back,
    /// More nodes than a feed keeps apart.
    Surplus,
}

/// All digests of the hub, as [`crate::Hub::follow`] opens it. Dropped, it follows no longer.
pub struct Feed {
    mailbox: Arc<Mailbox>,
}

impl Feed {
    /// What has changed since the last call; waits for something at most this long.
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
                Ok(Word::Bye) => Change::Left { node },
                // The key is who may write: a digest under another's name is not believed.
                Ok(Word::Digest(digest)) if digest.node == node => Change::Digest(digest),
                Ok(Word::Digest(_)) => {
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
    /// What is held back, and until when.
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
    /// A feed, and its writing end, which lives no longer than the feed.
    pub(crate) fn feed() -> (Feed, Weak<Self>) {
        let mailbox = Arc::new(Self::default());
        let weak = Arc::downgrade(&mailbox);
        (Feed { mailbox }, weak)
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A node's newest bytes. Old: they stood there before anybody looked.
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

    /// All that stands in the hub: the nodes it lacks are gone.
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
    /// Hands out what was held back, if its time has come.
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
