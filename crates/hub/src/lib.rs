//! The meeting point for the agents of many nodes: a directory that all nodes see, or etcd.
//!
//! Each agent publishes its newest [`Digest`] under a lease. One agent is elected analyser and follows all digests; the
//! hub also holds incidents and requests to collect. A hub that is unreachable is a value ([`HubLink::Away`],
//! [`HubError`]), never fatal: the agent continues alone, and the hub's own thread retries until it is back. No call
//! blocks longer than the deadline of [`HubOptions`].

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

mod address;
mod directory;
mod etcd;
mod feed;
mod records;
pub mod register;
mod seat;
mod wire;

use std::sync::Arc;
use std::time::Duration;

use ringleader_watch::digest::Digest;

pub use address::{Address, EtcdAddress};
pub use feed::{Change, Feed};
pub use records::{Answer, Incident, MAX_INCIDENTS, MAX_TEXT_BYTES, Request, RequestState};
pub use seat::{HubLink, Published, Role, Stats};
pub use wire::{MAX_DIGEST_BYTES, MAX_UNPACKED_BYTES, Unreadable};

use seat::Seat;

/// Name and timing of a participant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubOptions {
    /// Name of this agent's node: unique within the job, the same as in its digests, 1 to 128 bytes.
    pub node: String,
    /// After this time without a sign of life an agent is silent, and an analyser is replaced. Must be the same on all
    /// nodes; at least 2 s.
    pub ttl: Duration,
    /// Longest duration of a call.
    pub deadline: Duration,
    /// Shortest time between two digests; only the newest of those in between is sent. It grows while the hub is slow.
    pub gap: Duration,
    /// Time after which a digest without news is sent. The analyser considers a node silent if its digests are missing
    /// for longer than a few of their usual intervals.
    pub beat: Duration,
}

impl HubOptions {
    /// Default timing: silent after 10 s, calls end after 5 s, one digest per second, one in 2 s without news.
    pub fn new(node: impl Into<String>) -> Self {
        Self {
            node: node.into(),
            ttl: Duration::from_secs(10),
            deadline: Duration::from_secs(5),
            gap: Duration::from_secs(1),
            beat: Duration::from_secs(2),
        }
    }
}

/// Why a hub cannot be opened: always an error of the call, never a state of the hub.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The address cannot be parsed.
    #[error("read the hub's address `{address}`: {why}")]
    Address {
        /// The address as given.
        address: String,
        /// The error in the address, as text.
        why: String,
    },
    /// A name or a time is out of its bounds.
    #[error("take part in the hub: {0}")]
    Options(&'static str),
    /// No thread could be started.
    #[error("start the hub's thread")]
    Thread(#[source] std::io::Error),
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HubError {
    /// The hub cannot be reached; the hub's thread keeps trying.
    #[error("reach the hub: {0}")]
    Away(String),
    /// No answer came within the deadline. Whether the hub did the work is unknown.
    #[error("hear from the hub within {0:?}")]
    Deadline(Duration),
    /// Only the elected analyser may do this, and this agent is not the analyser, or no longer.
    #[error("act as the analyser: another agent is, or none")]
    NotAnalyser,
    /// The digest is longer than [`MAX_DIGEST_BYTES`] even without all optional parts.
    #[error("publish a digest of {bytes} bytes, more than {MAX_DIGEST_BYTES}")]
    TooLong {
        /// Packed length.
        bytes: usize,
    },
    /// The digest names another node than [`HubOptions::node`].
    #[error("publish a digest of another node, `{0}`")]
    OtherNode(String),
}

/// One participant. When dropped it leaves in an orderly way, if that takes no longer than a second.
pub struct Hub {
    seat: Arc<Seat>,
    backend: Backend,
}

enum Backend {
    Directory(directory::Directory),
    Etcd(etcd::Etcd),
}

impl Hub {
    /// Opens `dir:/path` or `etcd://host:port[,host:port]/prefix`. Returns at once; [`Hub::link`] says whether the hub
    /// answers. Errors: a wrong address, a name or a time out of bounds, no thread could be started.
    pub fn open(address: &str, options: HubOptions) -> Result<Self, OpenError> {
        let address = Address::parse(address)?;
        let seat = Arc::new(Seat::new(options)?);
        let backend = match address {
            Address::Directory(path) => Backend::Directory(directory::Directory::open(path, &seat)?),
            Address::Etcd(address) => Backend::Etcd(etcd::Etcd::open(&address, &seat)?),
        };
        Ok(Self { seat, backend })
    }

    /// Adds another participant of the same hub, which shares thread and connections if there are any; its lease,
    /// digest and candidacy are its own. For one process that speaks for several nodes. Errors: as [`Hub::open`].
    pub fn beside(&self, options: HubOptions) -> Result<Self, OpenError> {
        let seat = Arc::new(Seat::new(options)?);
        let backend = match &self.backend {
            Backend::Directory(directory) => Backend::Directory(directory.beside(&seat)?),
            Backend::Etcd(etcd) => Backend::Etcd(etcd.beside(&seat)),
        };
        Ok(Self { seat, backend })
    }

    /// Passes on the newest digest and returns without waiting for the hub. A digest without news is sent only after
    /// [`HubOptions::beat`]. In jobs of 1,024 ranks and more, only one digest in 10 s includes completed operations.
    /// Errors: too long, or of another node.
    pub fn publish(&self, digest: &Digest) -> Result<Published, HubError> {
        let published = self.seat.offer(digest)?;
        if published == Published::Sent {
            self.wake();
        }
        Ok(published)
    }

    /// Whether the hub answers.
    pub fn link(&self) -> HubLink {
        self.seat.link()
    }

    /// Counts of what was sent and lost so far.
    pub fn stats(&self) -> Stats {
        self.seat.stats()
    }

    /// Stands for election as analyser, or steps down.
    pub fn campaign(&self, wants: bool) {
        self.seat.campaign(wants);
        self.wake();
    }

    /// The current role. It changes from analyser to agent by itself if the lease could not be renewed in time.
    pub fn role(&self) -> Role {
        self.seat.role()
    }

    /// Follows all digests from now on, beginning with those in the hub. Several feeds may be open.
    pub fn follow(&self) -> Feed {
        match &self.backend {
            Backend::Directory(directory) => directory.follow(),
            Backend::Etcd(etcd) => etcd.follow(),
        }
    }

    /// Records an incident and returns its number; only the newest [`MAX_INCIDENTS`] are kept. Errors: not the
    /// analyser, hub away, deadline.
    pub fn record(&self, incident: Incident) -> Result<u64, HubError> {
        let incident = Incident { node: self.seat.options.node.clone(), ..incident }.bounded();
        match &self.backend {
            Backend::Directory(directory) => directory.record(incident),
            Backend::Etcd(etcd) => etcd.record(incident),
        }
    }

    /// The incidents of this job, oldest first. Errors: hub away, deadline.
    pub fn incidents(&self) -> Result<Vec<Incident>, HubError> {
        match &self.backend {
            Backend::Directory(directory) => directory.incidents(),
            Backend::Etcd(etcd) => etcd.incidents(),
        }
    }

    /// Asks all agents to collect and returns the number of the request. Errors: not the analyser, hub away, deadline.
    pub fn request_collect(&self, why: &str) -> Result<u64, HubError> {
        let mut why = why.to_owned();
        records::cut(&mut why);
        let request =
            Request { number: 0, at_ns: seat::wall_ns(), node: self.seat.options.node.clone(), why };
        match &self.backend {
            Backend::Directory(directory) => directory.request(request),
            Backend::Etcd(etcd) => etcd.request(request),
        }
    }

    /// The newest request known here that is younger than this participant; does not ask the hub.
    pub fn request(&self) -> Option<Request> {
        self.seat.request()
    }

    /// Passes on this agent's answer to a request and returns without waiting. Only the newest answer is kept, and only
    /// while the agent lives.
    pub fn answer(&self, answer: Answer) {
        self.seat.answer(Answer { node: self.seat.options.node.clone(), ..answer }.bounded());
        self.wake();
    }

    /// The agents' answers to a request so far, by node. Errors: hub away, deadline.
    pub fn answers(&self, request: u64) -> Result<Vec<Answer>, HubError> {
        let mut answers = match &self.backend {
            Backend::Directory(directory) => directory.answers(),
            Backend::Etcd(etcd) => etcd.answers(),
        }?;
        answers.retain(|answer| answer.request == request);
        answers.sort_by(|a, b| a.node.cmp(&b.node));
        Ok(answers)
    }

    /// Leaves without a goodbye, as a killed process does: digest and candidacy remain until they expire.
    pub fn abandon(self) {
        self.seat.abandon();
    }

    fn wake(&self) {
        self.seat.wake.notify_one();
        if let Backend::Directory(directory) = &self.backend {
            directory.wake();
        }
    }
}

impl Drop for Hub {
    fn drop(&mut self) {
        match &self.backend {
            Backend::Directory(directory) => directory.leave(),
            Backend::Etcd(etcd) => etcd.leave(),
        }
    }
}
