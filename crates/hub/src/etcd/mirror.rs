//! Follows a prefix of etcd's keys: lists it once, then watches it. After an interruption it resumes at its position,
//! or lists again if etcd has compacted that revision.

use std::time::Duration;

use super::client::{Client, EtcdFailure};
use super::proto::{KeyValue, ResponseHeader};
use super::retry::Backoff;

/// Deadline of a list of thousands of keys.
const LIST: Duration = Duration::from_secs(30);
const WATCH: Duration = Duration::from_secs(5);

/// Receiver of the changes.
pub(super) trait Sink {
    /// All keys at this revision.
    fn list(&mut self, all: Vec<KeyValue>, revision: i64);
    /// A key was written; `is_old`: before the watch began.
    fn put(&mut self, kv: KeyValue, is_old: bool);
    fn delete(&mut self, key: Vec<u8>);
    /// All changes up to this revision have been passed on.
    fn reached(&mut self, revision: i64);
    fn away(&mut self, why: &str);
    fn back(&mut self);
    /// Whether the receiver is gone.
    fn is_closed(&self) -> bool;
}

/// Position up to which changes were passed on.
struct Position {
    /// The next revision to read from etcd.
    next: i64,
    cluster_id: u64,
}

pub(super) async fn mirror(client: Client, prefix: Vec<u8>, mut sink: impl Sink) {
    let mut position: Option<Position> = None;
    let mut backoff = Backoff::default();
    while !sink.is_closed() {
        if let Err(failure) = follow(&client, &prefix, &mut sink, &mut position, &mut backoff).await {
            sink.away(&failure.why);
            tokio::time::sleep(backoff.next()).await;
        }
    }
}

/// Lists if necessary, then watches until the watch ends. `Ok` asks for another turn at once.
async fn follow(
    client: &Client,
    prefix: &[u8],
    sink: &mut impl Sink,
    position: &mut Option<Position>,
    backoff: &mut Backoff,
) -> Result<(), EtcdFailure> {
    if position.is_none() {
        let (all, header) = client.list(prefix, false, LIST).await?;
        sink.list(all, header.revision);
        *position = Some(Position { next: header.revision + 1, cluster_id: header.cluster_id });
    }
    let Some(at) = position else { return Ok(()) };
    let (mut answers, first) = client.watch(prefix, at.next, WATCH).await?;
    let header = first.header.clone().unwrap_or_default();
    // An etcd whose revision is lower than ours is another one, or has lost its data: a watch from our position would
    // never report anything.
    if is_other(at, &header) {
        *position = None;
        return Ok(());
    }
    backoff.reset();
    sink.back();
    let mut answer = Some(first);
    loop {
        let Some(now) = answer else {
            return Err(EtcdFailure { code: tonic::Code::Unavailable, why: "etcd ended a watch".to_owned() });
        };
        client.saw(now.header.as_ref());
        if now.canceled {
            let is_forgotten = now.compact_revision > 0;
            *position = None;
            if is_forgotten {
                return Ok(());
            }
            return Err(EtcdFailure {
                code: tonic::Code::Cancelled,
                why: format!("etcd cancelled a watch: {}", now.cancel_reason),
            });
        }
        for event in now.events {
            let Some(kv) = event.kv else { continue };
            if kv.mod_revision > at.next {
                // Revisions in between belong to other keys.
                at.next = kv.mod_revision;
            }
            if event.kind == 0 {
                let is_old = kv.mod_revision <= header.revision;
                sink.put(kv, is_old);
            } else {
                sink.delete(kv.key);
            }
        }
        if !now.fragment && !now.created {
            let revision = now.header.map_or(0, |header| header.revision);
            at.next = at.next.max(revision + 1);
            sink.reached(at.next - 1);
        }
        // A closed sink must not keep the watch open until the next change.
        answer = loop {
            match tokio::time::timeout(Duration::from_secs(1), answers.message()).await {
                Ok(message) => break message?,
                Err(_) if sink.is_closed() => return Ok(()),
                Err(_) => {}
            }
        };
    }
}

fn is_other(at: &Position, header: &ResponseHeader) -> bool {
    header.cluster_id != at.cluster_id || header.revision + 1 < at.next
}
