//! One participant at etcd: its lease, the keys under it, its term as analyser.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::sync::{Notify, watch};

use super::client::{Client, EtcdFailure};
use super::proto::{Compare, DeleteRangeRequest, PutRequest, TxnOp};
use super::retry::{Backoff, chance};
use super::{AnalyserValue, Control, Keys, to_json};
use crate::seat::{Lead, Seat};
use crate::wire;

/// Candidates try at different moments: the first one wins, and the others hear of it before they try.
const CANDIDATES: Duration = Duration::from_millis(300);
/// The gap between digests is at least this multiple of the time that etcd takes to write one.
const SLOW: u32 = 4;
/// Deadline of a goodbye.
const BYE: Duration = Duration::from_millis(400);

pub(super) struct Participant {
    seat: Arc<Seat>,
    client: Client,
    keys: Keys,
    control: watch::Receiver<Control>,
    compact_after: Option<Duration>,
    /// Deadline of one call: short enough that the lease outlives three of them.
    deadline: Duration,
    lease: Option<EtcdLease>,
    /// Number of the digest that is in etcd, and when it was put there.
    digest: (u64, Option<Instant>),
    /// Time between two digests: longer than wanted while etcd is slow to take them.
    gap: Duration,
    answer: u64,
    /// Revision at which this participant became analyser.
    term: Option<i64>,
    /// When to stand for election.
    candidate_at: Option<Instant>,
    /// Revisions seen, and when: what etcd may compact.
    revisions: VecDeque<(Instant, i64)>,
}

struct EtcdLease {
    id: i64,
    ttl: Duration,
    /// Revision at which it was granted.
    given: i64,
    /// When the last successful renewal was sent.
    renewed: Instant,
}

impl Participant {
    pub(super) fn new(
        seat: Arc<Seat>,
        client: Client,
        keys: Keys,
        control: watch::Receiver<Control>,
        compact_after: Option<Duration>,
    ) -> Self {
        let deadline = seat.options.deadline.min(seat.options.ttl / 3).max(Duration::from_millis(500));
        Self {
            gap: seat.options.gap,
            seat,
            client,
            keys,
            control,
            compact_after,
            deadline,
            lease: None,
            digest: (0, None),
            answer: 0,
            term: None,
            candidate_at: None,
            revisions: VecDeque::new(),
        }
    }

    pub(super) async fn run(mut self, leave: Arc<Notify>, left: Sender<()>) {
        let mut backoff = Backoff::default();
        loop {
            if self.seat.is_abandoned() {
                return;
            }
            let pause = match self.turn().await {
                Ok(next) => {
                    self.seat.up();
                    backoff.reset();
                    Ok(next)
                }
                Err(failure) => {
                    self.seat.away(failure.why);
                    Err(backoff.next())
                }
            };
            let is_leaving = match pause {
                Ok(next) => tokio::select! {
                    () = tokio::time::sleep_until(next.into()) => false,
                    () = self.seat.wake.notified() => false,
                    changed = self.control.changed() => {
                        if changed.is_err() {
                            // The other end lives as long as the runtime.
                            return;
                        }
                        false
                    }
                    () = leave.notified() => true,
                },
                // What is published meanwhile is sent when the next attempt succeeds.
                Err(pause) => tokio::select! {
                    () = tokio::time::sleep(pause) => false,
                    () = leave.notified() => true,
                },
            };
            if is_leaving {
                if !self.seat.is_abandoned() {
                    self.bye().await;
                }
                left.send(()).ok();
                return;
            }
        }
    }

    /// Does everything that is due and returns when the next thing is due. A lost lease is replaced at once.
    async fn turn(&mut self) -> Result<Instant, EtcdFailure> {
        loop {
            match self.step().await {
                Err(failure) if failure.is_lease_lost() => self.lose_lease(),
                other => return other,
            }
        }
    }

    async fn step(&mut self) -> Result<Instant, EtcdFailure> {
        self.renew().await?;
        let now = Instant::now();
        let Some(held) = &self.lease else { return Ok(now) };
        let (lease, renew_at) = (held.id, held.renewed + held.ttl / 3);
        let mut next = renew_at;
        let outgoing = self.seat.outgoing();
        if let Some((number, bytes)) = &outgoing.digest
            && *number > self.digest.0
        {
            let at = self.digest.1.map_or(now, |last| last + self.gap);
            if at <= now {
                let key = self.keys.digest(&self.seat.options.node);
                let put = PutRequest { key, value: bytes.to_vec(), lease };
                self.client.put(put, self.deadline).await?;
                self.digest = (*number, Some(now));
                // With thousands of agents etcd may be busy: if a write takes long, digests are sent less often.
                let options = &self.seat.options;
                self.gap = options.gap.max((now.elapsed() * SLOW).min(options.ttl / 4));
                self.seat.taken(*number, bytes.len());
            } else {
                next = next.min(at);
            }
        }
        if let Some((number, answer)) = &outgoing.answer
            && *number > self.answer
        {
            let key = self.keys.answer(&self.seat.options.node);
            let put = PutRequest { key, value: to_json(&**answer)?, lease };
            self.client.put(put, self.deadline).await?;
            self.answer = *number;
        }
        if let Some(at) = self.election(lease, outgoing.wants).await? {
            next = next.min(at);
        }
        if let Some(at) = self.compact().await {
            next = next.min(at);
        }
        Ok(next)
    }

    /// Acquires a lease, or renews the current one when a third of it is over.
    async fn renew(&mut self) -> Result<(), EtcdFailure> {
        let sent = Instant::now();
        if let Some(held) = &mut self.lease {
            if sent.duration_since(held.renewed) < held.ttl / 3 {
                return Ok(());
            }
            // Even if it should be over by our clock: etcd prolongs all leases when it starts.
            if let Some(ttl) = self.client.renew(held.id, self.deadline).await? {
                (held.ttl, held.renewed) = (ttl, sent);
                return Ok(());
            }
            self.lose_lease();
        }
        let sent = Instant::now();
        let (id, ttl, given) = self.client.grant(self.seat.options.ttl, self.deadline).await?;
        self.lease = Some(EtcdLease { id, ttl, given, renewed: sent });
        Ok(())
    }

    fn lose_lease(&mut self) {
        self.seat.count(|stats| stats.leases_lost += 1);
        self.lease = None;
        // Everything under the lease is gone and must be put again.
        self.digest.0 = 0;
        self.answer = 0;
        self.end_term();
    }

    fn end_term(&mut self) {
        self.term = None;
        self.revisions.clear();
        self.seat.set_lead(None);
    }

    /// Compares the term with etcd's, then stands for election or steps down. Returns the time of the next call.
    async fn election(&mut self, lease: i64, wants: bool) -> Result<Option<Instant>, EtcdFailure> {
        let control = self.control.borrow_and_update().clone();
        let Some(revision) = control.revision else { return Ok(None) };
        self.seat.set_request(control.request);
        let analyser = control.analyser.as_ref();
        self.seat.set_analyser(analyser.and_then(|analyser| Some(analyser.value.as_ref()?.node.clone())));
        let ours = analyser
            .filter(|analyser| analyser.value.as_ref().is_some_and(|value| value.token == self.seat.token))
            .map(|analyser| analyser.created);
        match (self.term, ours) {
            // The answer to our candidacy was lost, but the key exists. A key older than the lease was under another
            // lease, which is gone.
            (None, Some(created)) if self.lease.as_ref().is_some_and(|held| created > held.given) => {
                self.term = Some(created);
            }
            // What is known is older than our term.
            (Some(term), _) if revision < term => {}
            (Some(term), ours) if ours != Some(term) => self.end_term(),
            _ => {}
        }
        let Some(term) = self.term else {
            if !wants || analyser.is_some() {
                self.candidate_at = None;
                return Ok(None);
            }
            let now = Instant::now();
            let at = *self.candidate_at.get_or_insert_with(|| now + chance(CANDIDATES));
            if at > now {
                return Ok(Some(at));
            }
            self.candidate_at = None;
            let value =
                AnalyserValue { node: self.seat.options.node.clone(), token: self.seat.token.clone() };
            let key = self.keys.analyser();
            let put = TxnOp::Put(PutRequest { key: key.clone(), value: to_json(&value)?, lease });
            let won = self.client.txn(vec![Compare::created_at(key, 0)], vec![put], self.deadline).await?;
            if let Some(term) = won {
                self.term = Some(term);
                self.lead(term);
            }
            // The watch reports the winner.
            return Ok(None);
        };
        if wants {
            self.lead(term);
        } else {
            self.resign(term, self.deadline).await?;
            self.end_term();
        }
        Ok(None)
    }

    fn lead(&self, term: i64) {
        if let Some(held) = &self.lease {
            self.seat.set_lead(Some(Lead { term, until: held.renewed + held.ttl }));
        }
    }

    async fn resign(&self, term: i64, deadline: Duration) -> Result<(), EtcdFailure> {
        let key = self.keys.analyser();
        let delete = TxnOp::DeleteRange(DeleteRangeRequest { key: key.clone(), range_end: Vec::new() });
        self.client.txn(vec![Compare::created_at(key, term)], vec![delete], deadline).await.map(drop)
    }

    /// The analyser lets etcd compact old versions; thousands of digests would otherwise make gigabytes of them.
    async fn compact(&mut self) -> Option<Instant> {
        let (Some(after), Some(_)) = (self.compact_after, self.term) else { return None };
        let now = Instant::now();
        let every = after / 4;
        if self.revisions.back().is_none_or(|(at, _)| now.duration_since(*at) >= every) {
            self.revisions.push_back((now, self.client.revision()));
        }
        let mut old = None;
        while let Some((at, revision)) = self.revisions.front().copied()
            && now.duration_since(at) >= after
        {
            old = Some(revision);
            self.revisions.pop_front();
        }
        if let Some(revision) = old.filter(|revision| *revision > 0) {
            // An etcd that refuses may compact in its own way; if it fills up, publishing reports it.
            self.client.compact(revision, self.deadline).await.ok();
        }
        Some(now + every)
    }

    async fn bye(&mut self) {
        let Some(held) = &self.lease else { return };
        if self.digest.0 > 0 {
            let key = self.keys.digest(&self.seat.options.node);
            let put = PutRequest { key, value: wire::bye(), lease: held.id };
            self.client.put(put, BYE).await.ok();
        }
        // Revoking also deletes every key under the lease.
        self.client.revoke(held.id, BYE).await.ok();
    }
}
