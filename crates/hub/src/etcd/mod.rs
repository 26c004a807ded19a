//! etcd as hub: one thread with its own runtime for all participants of a process.
//!
//! Keys below the prefix: `v1/digests/NODE` and `v1/answers/NODE` under the lease of their agent, so that they expire
//! with it; `v1/control/analyser` under the analyser's lease, created only if absent; `v1/control/request`;
//! `v1/incidents/NUMBER`.

mod client;
mod mirror;
mod participant;
mod proto;
pub(crate) mod register;
mod retry;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::sync::{Notify, watch};
use tonic::Code;

use crate::address::EtcdAddress;
use crate::feed::{Feed, Mailbox};
use crate::records::{Answer, Incident, MAX_INCIDENTS, Request};
use crate::seat::{Seat, escape, unescape};
use crate::{HubError, OpenError};

use client::{Client, EtcdFailure};
use mirror::{Sink, mirror};
use participant::Participant;
use proto::{Compare, KeyValue, PutRequest, TxnOp};

/// Attempts to write a number that others write at the same moment.
const MAX_RACES: usize = 16;

/// Names of the keys.
#[derive(Clone)]
struct Keys {
    prefix: Arc<str>,
}

impl Keys {
    fn below(&self, rest: &str) -> Vec<u8> {
        format!("{}/v1/{rest}", self.prefix).into_bytes()
    }

    fn digest(&self, node: &str) -> Vec<u8> {
        self.below(&format!("digests/{}", escape(node)))
    }

    fn answer(&self, node: &str) -> Vec<u8> {
        self.below(&format!("answers/{}", escape(node)))
    }

    fn analyser(&self) -> Vec<u8> {
        self.below("control/analyser")
    }

    fn request(&self) -> Vec<u8> {
        self.below("control/request")
    }

    fn incident(&self, number: u64) -> Vec<u8> {
        self.below(&format!("incidents/{number:020}"))
    }
}

/// The analyser and the newest request, as a watch reports them.
#[derive(Clone, Default)]
struct Control {
    /// The revision up to which this is current; None before etcd has answered.
    revision: Option<i64>,
    analyser: Option<AnalyserKey>,
    request: Option<Request>,
}

#[derive(Clone)]
struct AnalyserKey {
    created: i64,
    /// None if it cannot be parsed.
    value: Option<AnalyserValue>,
}

/// The value of the analyser's key.
#[derive(Clone, Serialize, Deserialize)]
struct AnalyserValue {
    node: String,
    token: String,
}

/// State shared by the participants of a process. The thread ends with the last of them.
struct Core {
    runtime: tokio::runtime::Handle,
    clients: Vec<Client>,
    next_client: AtomicUsize,
    control: watch::Receiver<Control>,
    keys: Keys,
    compact_after: Option<Duration>,
    end: Arc<Notify>,
}

impl Drop for Core {
    fn drop(&mut self) {
        self.end.notify_one();
    }
}

pub(crate) struct Etcd {
    core: Arc<Core>,
    seat: Arc<Seat>,
    client: Client,
    leave: Arc<Notify>,
    left: std::sync::Mutex<mpsc::Receiver<()>>,
}

impl Etcd {
    pub(crate) fn open(address: &EtcdAddress, seat: &Arc<Seat>) -> Result<Self, OpenError> {
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(OpenError::Thread)?;
        let clients = {
            // Connections are made on the runtime's thread, but their timers are bound to it here.
            let _entered = runtime.enter();
            Client::all(address)?
        };
        let handle = runtime.handle().clone();
        let end = Arc::new(Notify::new());
        let ended = end.clone();
        std::thread::Builder::new()
            .name("ringleader-hub".to_owned())
            .spawn(move || {
                runtime.block_on(ended.notified());
                runtime.shutdown_timeout(Duration::from_millis(200));
            })
            .map_err(OpenError::Thread)?;
        let keys = Keys { prefix: address.prefix.as_str().into() };
        let (sender, control) = watch::channel(Control::default());
        if let Some(client) = clients.first() {
            let sink = ControlSink { sender, keys: keys.clone() };
            handle.spawn(mirror(client.clone(), keys.below("control/"), sink));
        }
        let core = Arc::new(Core {
            runtime: handle,
            clients,
            next_client: AtomicUsize::new(0),
            control,
            keys,
            compact_after: address.compact_after,
            end,
        });
        Ok(Self::join(core, seat))
    }

    pub(crate) fn beside(&self, seat: &Arc<Seat>) -> Self {
        Self::join(self.core.clone(), seat)
    }

    fn join(core: Arc<Core>, seat: &Arc<Seat>) -> Self {
        let number = core.next_client.fetch_add(1, Ordering::Relaxed);
        // Never empty: Client::all makes at least one.
        let client = core.clients[number % core.clients.len()].clone();
        let leave = Arc::new(Notify::new());
        let (done, left) = mpsc::channel();
        let participant = Participant::new(
            seat.clone(),
            client.clone(),
            core.keys.clone(),
            core.control.clone(),
            core.compact_after,
        );
        core.runtime.spawn(participant.run(leave.clone(), done));
        Self { core, seat: seat.clone(), client, leave, left: std::sync::Mutex::new(left) }
    }

    pub(crate) fn follow(&self) -> Feed {
        let (feed, mailbox) = Mailbox::feed();
        let prefix = self.core.keys.below("digests/");
        let sink = DigestSink { skip: prefix.len(), mailbox };
        self.core.runtime.spawn(mirror(self.client.clone(), prefix, sink));
        feed
    }

    pub(crate) fn record(&self, incident: Incident) -> Result<u64, HubError> {
        let term = self.seat.lead().ok_or(HubError::NotAnalyser)?.term;
        let (client, keys, deadline) =
            (self.client.clone(), self.core.keys.clone(), self.seat.options.deadline);
        self.call(async move {
            let prefix = keys.below("incidents/");
            let (kvs, _) = client.list(&prefix, true, deadline).await?;
            let newest = kvs.iter().filter_map(|kv| number_of(&kv.key, prefix.len())).max();
            let mut number = newest.map_or(1, |newest| newest.saturating_add(1));
            for _ in 0..MAX_RACES {
                let key = keys.incident(number);
                let value = to_json(&Incident { number, ..incident.clone() })?;
                let compare =
                    vec![Compare::created_at(keys.analyser(), term), Compare::created_at(key.clone(), 0)];
                let mut ops = vec![TxnOp::Put(PutRequest { key, value, lease: 0 })];
                if let Some(last_to_go) = number.checked_sub(MAX_INCIDENTS as u64).filter(|last| *last > 0) {
                    ops.push(TxnOp::DeleteRange(proto::DeleteRangeRequest {
                        key: keys.incident(0),
                        range_end: keys.incident(last_to_go + 1),
                    }));
                }
                if client.txn(compare, ops, deadline).await?.is_some() {
                    return Ok(number);
                }
                still_analyser(&client, &keys, term, deadline).await?;
                number = number.saturating_add(1);
            }
            Err(races())
        })
    }

    pub(crate) fn incidents(&self) -> Result<Vec<Incident>, HubError> {
        let (client, keys, deadline) =
            (self.client.clone(), self.core.keys.clone(), self.seat.options.deadline);
        self.call(async move {
            let prefix = keys.below("incidents/");
            let (kvs, _) = client.list(&prefix, false, deadline).await?;
            let mut incidents: Vec<Incident> = kvs
                .iter()
                .filter_map(|kv| {
                    let number = number_of(&kv.key, prefix.len())?;
                    let incident: Incident = serde_json::from_slice(&kv.value).ok()?;
                    Some(Incident { number, ..incident })
                })
                .collect();
            incidents.sort_by_key(|incident| incident.number);
            incidents.drain(..incidents.len().saturating_sub(MAX_INCIDENTS));
            Ok(incidents)
        })
    }

    pub(crate) fn request(&self, request: Request) -> Result<u64, HubError> {
        let term = self.seat.lead().ok_or(HubError::NotAnalyser)?.term;
        let (client, keys, deadline) =
            (self.client.clone(), self.core.keys.clone(), self.seat.options.deadline);
        self.call(async move {
            for _ in 0..MAX_RACES {
                let old = client.get(&keys.request(), deadline).await?;
                let written = old.as_ref().map_or(0, |kv| kv.mod_revision);
                let newest: Option<Request> = old.and_then(|kv| serde_json::from_slice(&kv.value).ok());
                let number = newest.map_or(1, |newest| newest.number.saturating_add(1));
                let value = to_json(&Request { number, ..request.clone() })?;
                let compare = vec![
                    Compare::created_at(keys.analyser(), term),
                    Compare::written_at(keys.request(), written),
                ];
                let put = TxnOp::Put(PutRequest { key: keys.request(), value, lease: 0 });
                if client.txn(compare, vec![put], deadline).await?.is_some() {
                    return Ok(number);
                }
                still_analyser(&client, &keys, term, deadline).await?;
            }
            Err(races())
        })
    }

    pub(crate) fn answers(&self) -> Result<Vec<Answer>, HubError> {
        let (client, keys, deadline) =
            (self.client.clone(), self.core.keys.clone(), self.seat.options.deadline);
        self.call(async move {
            let prefix = keys.below("answers/");
            let (kvs, _) = client.list(&prefix, false, deadline).await?;
            Ok(kvs
                .iter()
                .filter_map(|kv| {
                    let node = node_of(&kv.key, prefix.len())?;
                    let answer: Answer = serde_json::from_slice(&kv.value).ok()?;
                    (answer.node == node).then_some(answer)
                })
                .collect())
        })
    }

    pub(crate) fn leave(&self) {
        self.leave.notify_one();
        if let Ok(left) = self.left.lock() {
            left.recv_timeout(Duration::from_secs(1)).ok();
        }
    }

    /// Runs `work` on the hub's thread and waits for it until the deadline at most.
    fn call<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, EtcdError>> + Send + 'static,
    ) -> Result<T, HubError> {
        let (reply, answer) = mpsc::channel();
        let task = self.core.runtime.spawn(async move { drop(reply.send(work.await)) });
        let deadline = self.seat.options.deadline;
        match answer.recv_timeout(deadline) {
            Ok(Ok(value)) => Ok(value),
            Ok(Err(EtcdError::Etcd(failure))) if failure.code == Code::DeadlineExceeded => {
                Err(HubError::Deadline(deadline))
            }
            Ok(Err(EtcdError::Etcd(failure))) => Err(HubError::Away(failure.why)),
            Ok(Err(EtcdError::NotAnalyser)) => Err(HubError::NotAnalyser),
            Err(RecvTimeoutError::Timeout) => {
                task.abort();
                Err(HubError::Deadline(deadline))
            }
            Err(RecvTimeoutError::Disconnected) => {
                Err(HubError::Away("the hub's thread has ended".to_owned()))
            }
        }
    }
}

enum EtcdError {
    Etcd(EtcdFailure),
    NotAnalyser,
}

impl From<EtcdFailure> for EtcdError {
    fn from(failure: EtcdFailure) -> Self {
        Self::Etcd(failure)
    }
}

fn races() -> EtcdError {
    EtcdError::Etcd(EtcdFailure {
        code: Code::Aborted,
        why: "others write the same record all the time".to_owned(),
    })
}

fn to_json(value: &impl Serialize) -> Result<Vec<u8>, EtcdFailure> {
    serde_json::to_vec(value).map_err(|error| EtcdFailure { code: Code::Internal, why: error.to_string() })
}

async fn still_analyser(
    client: &Client,
    keys: &Keys,
    term: i64,
    deadline: Duration,
) -> Result<(), EtcdError> {
    let analyser = client.get(&keys.analyser(), deadline).await?;
    if analyser.is_some_and(|kv| kv.create_revision == term) { Ok(()) } else { Err(EtcdError::NotAnalyser) }
}

fn number_of(key: &[u8], skip: usize) -> Option<u64> {
    std::str::from_utf8(key.get(skip..)?).ok()?.parse().ok()
}

fn node_of(key: &[u8], skip: usize) -> Option<String> {
    unescape(std::str::from_utf8(key.get(skip..)?).ok()?)
}

/// Passes digests to a feed.
struct DigestSink {
    /// Length of the key prefix.
    skip: usize,
    mailbox: Weak<Mailbox>,
}

impl Sink for DigestSink {
    fn list(&mut self, all: Vec<KeyValue>, _: i64) {
        if let Some(mailbox) = self.mailbox.upgrade() {
            let nodes = all.into_iter().filter_map(|kv| Some((node_of(&kv.key, self.skip)?, kv.value)));
            mailbox.list(nodes.collect());
        }
    }

    fn put(&mut self, kv: KeyValue, is_old: bool) {
        if let (Some(mailbox), Some(node)) = (self.mailbox.upgrade(), node_of(&kv.key, self.skip)) {
            mailbox.put(node, kv.value, is_old);
        }
    }

    fn delete(&mut self, key: Vec<u8>) {
        if let (Some(mailbox), Some(node)) = (self.mailbox.upgrade(), node_of(&key, self.skip)) {
            mailbox.gone(node);
        }
    }

    fn reached(&mut self, _: i64) {}

    fn away(&mut self, why: &str) {
        if let Some(mailbox) = self.mailbox.upgrade() {
            mailbox.away(why.to_owned());
        }
    }

    fn back(&mut self) {
        if let Some(mailbox) = self.mailbox.upgrade() {
            mailbox.back();
        }
    }

    fn is_closed(&self) -> bool {
        self.mailbox.strong_count() == 0
    }
}

/// Passes analyser and request to all participants.
struct ControlSink {
    sender: watch::Sender<Control>,
    keys: Keys,
}

impl ControlSink {
    fn set(&self, control: &mut Control, kv: &KeyValue) {
        if kv.key == self.keys.analyser() {
            let value = serde_json::from_slice(&kv.value).ok();
            control.analyser = Some(AnalyserKey { created: kv.create_revision, value });
        } else if kv.key == self.keys.request() {
            control.request = serde_json::from_slice(&kv.value).ok();
        }
    }
}

impl Sink for ControlSink {
    fn list(&mut self, all: Vec<KeyValue>, revision: i64) {
        self.sender.send_modify(|control| {
            *control = Control { revision: Some(revision), ..Control::default() };
            for kv in &all {
                self.set(control, kv);
            }
        });
    }

    fn put(&mut self, kv: KeyValue, _: bool) {
        self.sender.send_modify(|control| self.set(control, &kv));
    }

    fn delete(&mut self, key: Vec<u8>) {
        self.sender.send_modify(|control| {
            if key == self.keys.analyser() {
                control.analyser = None;
            } else if key == self.keys.request() {
                control.request = None;
            }
        });
    }

    fn reached(&mut self, revision: i64) {
        // A new revision alone need not wake anybody.
        self.sender.send_if_modified(|control| {
            control.revision = Some(revision);
            false
        });
    }

    fn away(&mut self, _: &str) {}

    fn back(&mut self) {}

    fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }
}
