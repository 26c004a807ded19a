//! State that a participant's calls and the hub's thread share: what to send and what is known.

use std::fmt::Write as _;
use std::io::Read;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ringleader_watch::digest::Digest;

use crate::records::{Answer, Request};
use crate::{HubError, HubOptions, OpenError, wire};

/// From this number of ranks on, completed operations are sent less often: they make up most of a digest.
const LARGE: u32 = 1024;
/// Their interval by the node's wall clock, so that all agents report the same steps.
const WHOLE_NS: i64 = 10_000_000_000;

/// Whether the hub answers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum HubLink {
    /// Not tried yet.
    #[default]
    Connecting,
    /// The last attempt succeeded.
    Up,
    /// The last attempt failed; more follow.
    Away {
        /// The first failure in a row.
        since: Instant,
        /// The newest failure.
        why: String,
    },
}

/// Result of [`crate::Hub::publish`] for a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// It will be sent.
    Sent,
    /// It contains no news; the digest in the hub remains.
    Unchanged,
}

/// The role of an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Role {
    /// This agent is the elected analyser.
    Analyser,
    /// Another agent is the analyser, as far as known.
    Agent {
        /// Node of the analyser.
        analyser: Option<String>,
    },
}

impl Role {
    /// Whether this agent is the analyser.
    pub fn is_analyser(&self) -> bool {
        *self == Self::Analyser
    }
}

/// Counts since the participant started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Digests that the hub has accepted.
    pub sent: u64,
    /// Their total length, bytes.
    pub sent_bytes: u64,
    /// Number of digests without news.
    pub unchanged: u64,
    /// Number of failed attempts.
    pub failed: u64,
    /// Leases that expired before they were renewed.
    pub leases_lost: u64,
}

pub(crate) struct Seat {
    pub(crate) options: HubOptions,
    /// Identifies this run of this participant.
    pub(crate) token: String,
    /// Notified when there is something to send.
    pub(crate) wake: tokio::sync::Notify,
    slot: Mutex<DigestSlot>,
}

#[derive(Default)]
struct DigestSlot {
    /// The last accepted digest, and when it was accepted.
    last: Option<(Digest, Instant)>,
    outgoing: Outgoing,
    /// Number of the last digest that the hub has accepted.
    taken: u64,
    /// Number of the last full digest of a large job, and the time (in [`WHOLE_NS`]) that it covers.
    whole: Option<(u64, i64)>,
    link: HubLink,
    stats: Stats,
    lead: Option<Lead>,
    analyser: Option<String>,
    request: Option<Request>,
    /// The request found when the hub first answered: it predates this agent.
    old_request: Option<u64>,
    is_abandoned: bool,
}

/// Entries that the hub should have for this participant.
#[derive(Clone, Default)]
pub(crate) struct Outgoing {
    /// Packed digest and its number; it is sent if the number is greater than that of the last one.
    pub(crate) digest: Option<(u64, std::sync::Arc<[u8]>)>,
    /// Answer and its number.
    pub(crate) answer: Option<(u64, std::sync::Arc<Answer>)>,
    /// Whether this participant stands for election.
    pub(crate) wants: bool,
}

/// This participant's term as analyser.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Lead {
    /// Proof of the term for the hub: etcd's create revision, otherwise 0.
    pub(crate) term: i64,
    /// When the term ends here unless renewed.
    pub(crate) until: Instant,
}

impl Seat {
    pub(crate) fn new(options: HubOptions) -> Result<Self, OpenError> {
        if options.node.is_empty() || options.node.len() > 128 {
            return Err(OpenError::Options("the node's name has 1 to 128 bytes"));
        }
        if options.ttl < Duration::from_secs(2) || options.ttl > Duration::from_hours(1) {
            return Err(OpenError::Options("the time to silence is 2 s to an hour"));
        }
        if options.deadline.is_zero() {
            return Err(OpenError::Options("the deadline is zero"));
        }
        Ok(Self { options, token: token(), wake: tokio::sync::Notify::new(), slot: Mutex::default() })
    }

    /// Plain data is consistent at every step: a panic of another thread does not corrupt it.
    fn slot(&self) -> MutexGuard<'_, DigestSlot> {
        self.slot.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn offer(&self, digest: &Digest) -> Result<Published, HubError> {
        if digest.node != self.options.node {
            return Err(HubError::OtherNode(digest.node.clone()));
        }
        let now = Instant::now();
        {
            let mut slot = self.slot();
            if let Some((last, at)) = &slot.last
                && now.duration_since(*at) < self.options.beat
                && !wire::is_news(last, digest)
            {
                slot.stats.unchanged += 1;
                return Ok(Published::Unchanged);
            }
        }
        let (number, is_whole) = self.slot().next(digest);
        let packed = if is_whole { wire::pack(digest) } else { wire::pack(&wire::thin(digest)) };
        let bytes = packed.map_err(|bytes| HubError::TooLong { bytes })?;
        let mut slot = self.slot();
        slot.last = Some((digest.clone(), now));
        slot.outgoing.digest = Some((number, bytes.into()));
        Ok(Published::Sent)
    }

    /// The hub has accepted a digest.
    pub(crate) fn taken(&self, number: u64, bytes: usize) {
        let mut slot = self.slot();
        slot.taken = number;
        slot.stats.sent += 1;
        slot.stats.sent_bytes += bytes as u64;
    }

    pub(crate) fn answer(&self, answer: Answer) {
        let mut slot = self.slot();
        let number = slot.outgoing.answer.as_ref().map_or(1, |(number, _)| number + 1);
        slot.outgoing.answer = Some((number, answer.into()));
    }

    pub(crate) fn campaign(&self, wants: bool) {
        self.slot().outgoing.wants = wants;
    }

    pub(crate) fn outgoing(&self) -> Outgoing {
        self.slot().outgoing.clone()
    }

    pub(crate) fn link(&self) -> HubLink {
        self.slot().link.clone()
    }

    pub(crate) fn stats(&self) -> Stats {
        self.slot().stats
    }

    pub(crate) fn count(&self, change: impl FnOnce(&mut Stats)) {
        change(&mut self.slot().stats);
    }

    pub(crate) fn up(&self) {
        self.slot().link = HubLink::Up;
    }

    pub(crate) fn away(&self, why: String) {
        let mut slot = self.slot();
        slot.stats.failed += 1;
        let since = match &slot.link {
            HubLink::Away { since, .. } => *since,
            _ => Instant::now(),
        };
        slot.link = HubLink::Away { since, why };
    }

    /// The current term, None once it is over.
    pub(crate) fn lead(&self) -> Option<Lead> {
        self.slot().lead.filter(|lead| Instant::now() < lead.until)
    }

    pub(crate) fn set_lead(&self, lead: Option<Lead>) {
        self.slot().lead = lead;
    }

    pub(crate) fn set_analyser(&self, node: Option<String>) {
        self.slot().analyser = node;
    }

    pub(crate) fn role(&self) -> Role {
        if self.lead().is_some() {
            return Role::Analyser;
        }
        // Its own name may still be in the hub after its term has ended here.
        let analyser = self.slot().analyser.clone().filter(|node| *node != self.options.node);
        Role::Agent { analyser }
    }

    pub(crate) fn request(&self) -> Option<Request> {
        self.slot().request.clone()
    }

    /// Sets the newest request that the hub holds.
    pub(crate) fn set_request(&self, request: Option<Request>) {
        let mut slot = self.slot();
        let old = *slot.old_request.get_or_insert(request.as_ref().map_or(0, |request| request.number));
        slot.request = request.filter(|request| request.number > old);
    }

    pub(crate) fn abandon(&self) {
        let mut slot = self.slot();
        slot.is_abandoned = true;
        slot.lead = None;
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.slot().is_abandoned
    }
}

impl DigestSlot {
    /// Number of the next digest, and whether it includes completed operations.
    fn next(&mut self, digest: &Digest) -> (u64, bool) {
        let number = self.outgoing.digest.as_ref().map_or(1, |(number, _)| number + 1);
        let n_ranks = digest.ranks.iter().filter_map(|rank| rank.world_size).max();
        let now = digest.at_ns.div_euclid(WHOLE_NS);
        // A full digest that still waits to be sent is replaced only by a full one.
        let is_done = self.whole.is_some_and(|(number, of)| of == now && number <= self.taken);
        let is_whole = n_ranks.is_none_or(|n| n < LARGE) || !is_done;
        if is_whole {
            self.whole = Some((number, now));
        }
        (number, is_whole)
    }
}

/// Current wall clock time, nanoseconds since 1970.
pub(crate) fn wall_ns() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as i64)
}

/// A name that no other run has.
fn token() -> String {
    let mut bytes = [0u8; 8];
    let random = std::fs::File::open("/dev/urandom").and_then(|mut file| file.read_exact(&mut bytes));
    if random.is_err() {
        bytes = wall_ns().to_ne_bytes();
    }
    format!("{:016x}-{}", u64::from_ne_bytes(bytes), std::process::id())
}

/// Node name as file name and key suffix: every byte except letters, digits, `-`, `_` and dots after the first byte
/// becomes `%xx`.
pub(crate) fn escape(node: &str) -> String {
    let mut text = String::with_capacity(node.len());
    for (at, byte) in node.bytes().enumerate() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_') || (byte == b'.' && at > 0) {
            text.push(byte as char);
        } else {
            let _ = write!(text, "%{byte:02x}");
        }
    }
    text
}

/// The reverse of [`escape`]; None for a name that `escape` never returns.
pub(crate) fn unescape(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        if *first == b'%' {
            let hex = std::str::from_utf8(after.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(hex, 16).ok()?);
            rest = after.get(2..)?;
        } else {
            bytes.push(*first);
            rest = after;
        }
    }
    let node = String::from_utf8(bytes).ok()?;
    (escape(&node) == text).then_some(node)
}

#[cfg(test)]
mod tests {
    use ringleader_watch::digest::RankDigest;

    use super::*;

    #[test]
    fn a_large_job_tells_rarely_of_what_has_ended() {
        let digest = |second: i64, world_size: u32| Digest {
            at_ns: second * 1_000_000_000,
            ranks: vec![RankDigest { world_size: Some(world_size), ..RankDigest::default() }],
            ..Digest::default()
        };
        let mut slot = DigestSlot::default();
        let mut next = |second, world_size, is_taken: bool| {
            let (number, is_whole) = slot.next(&digest(second, world_size));
            slot.outgoing.digest = Some((number, Vec::new().into()));
            if is_taken {
                slot.taken = number;
            }
            is_whole
        };
        // The first one was not sent.
        let said: Vec<bool> = (3..23).map(|second| next(second, 2048, second != 3)).collect();
        let whole: Vec<usize> = (0..20).filter(|at| said[*at]).collect();
        assert_eq!(whole, [0, 1, 7, 17]);
        assert!((23..40).all(|second| next(second, 512, true)));
    }

    #[test]
    fn names() {
        for node in ["n1", "a.b-c_d", ".hidden", "..", "a/b", "härte", "%41", "a b"] {
            let name = escape(node);
            assert!(!name.starts_with('.') && !name.contains('/'), "{name}");
            assert_eq!(unescape(&name).as_deref(), Some(node));
        }
        for name in ["%", "%4", "%zz", "a/b", ".x", "%41", "%ff"] {
            assert_eq!(unescape(name), None, "{name}");
        }
    }
}
