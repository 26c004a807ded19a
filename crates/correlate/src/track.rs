//! One rank's operations in one group, as a recorder saw them: the types of the ledger.

use std::fmt::Write as _;

use ringleader_model::{Cite, FlightDump, Frame, NcclLog, OpKind, Rank, RingRecord, SourceId, SourceKind};

/// Which recorder saw a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GroupRecorder {
    /// Flight Recorder dumps, completed by watchdog lines of ranks without a dump.
    Flight,
    /// Rings of NCCL's plugin.
    Ring,
    /// COLL lines of NCCL logs.
    Nccl,
    /// RAS launch counts.
    Ras,
}

impl GroupRecorder {
    /// Whether its recorder sees operations end, and numbers them itself: a track then shows what is unfinished.
    pub fn knows_ends(self) -> bool {
        matches!(self, Self::Flight | Self::Ring)
    }
}

/// What was called, comparable across ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Call {
    /// Kind.
    pub kind: OpKind,
    /// Elements in; 0 where sizes may differ between ranks of a healthy call, or are unknown.
    pub elements_in: u64,
    /// Elements out; likewise.
    pub elements_out: u64,
    /// Type; empty = unknown.
    pub dtype: Box<str>,
    /// Root of a rooted collective; -1 = unknown or none.
    pub root: i32,
    /// Reduction; empty = unknown.
    pub redop: &'static str,
}

impl Call {
    /// Whether two ranks may call these together. What one view does not record is no difference.
    pub fn fits(&self, other: &Self) -> bool {
        self.kind == other.kind && self.difference(other).is_none()
    }

    /// The first thing that differs, or None.
    pub fn difference(&self, other: &Self) -> Option<Difference> {
        let text_differs = |a: &str, b: &str| !a.is_empty() && !b.is_empty() && a != b;
        if self.kind != other.kind {
            Some(Difference::Kind)
        } else if self.root >= 0 && other.root >= 0 && self.root != other.root {
            Some(Difference::Root)
        } else if text_differs(self.redop, other.redop) {
            Some(Difference::Reduction)
        } else if text_differs(&self.dtype, &other.dtype) {
            Some(Difference::Type)
        } else if !self.kind.sizes_may_differ()
            && (self.elements_in != other.elements_in || self.elements_out != other.elements_out)
        {
            Some(Difference::Size)
        } else {
            None
        }
    }

    /// Bytes of the larger side; None where the number of elements or the size of one is unknown.
    pub fn bytes(&self) -> Option<u64> {
        let of_one = match &*self.dtype {
            "Char" | "Byte" | "Bool" | "Float8_e4m3fn" | "Float8_e5m2" => 1,
            "Half" | "BFloat16" | "Short" | "UInt16" => 2,
            "Int" | "UInt32" | "Float" => 4,
            "Long" | "UInt64" | "Double" => 8,
            _ => return None,
        };
        let elements = self.elements_in.max(self.elements_out);
        (elements > 0).then(|| elements.saturating_mul(of_one))
    }

    /// `all_reduce of 1048576 Float`.
    pub fn describe(&self) -> String {
        let elements = self.elements_in.max(self.elements_out);
        let mut text = self.kind.name().to_owned();
        if elements > 0 {
            let _ = write!(text, " of {elements}");
            if !self.dtype.is_empty() {
                let _ = write!(text, " {}", self.dtype);
            }
        } else if !self.dtype.is_empty() {
            let _ = write!(text, " ({})", self.dtype);
        }
        if self.root >= 0
            && matches!(self.kind, OpKind::Broadcast | OpKind::Reduce | OpKind::Gather | OpKind::Scatter)
        {
            let _ = write!(text, " root {}", self.root);
        }
        text
    }
}

/// How two calls at the same place differ.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Difference {
    /// Kind of operation.
    Kind,
    /// Root.
    Root,
    /// Reduction.
    Reduction,
    /// Data type.
    Type,
    /// Number of elements.
    Size,
}

/// Where a track's operations come from.
#[derive(Clone, Copy, Debug)]
pub enum Origin<'a> {
    /// A dump; operation indices point into its `ops`.
    Dump(&'a FlightDump),
    /// A ring; operation indices point into its `ops`.
    Ring(&'a RingRecord),
    /// An NCCL log; operation indices point into its `calls`.
    Log(&'a NcclLog),
    /// Counts or watchdog lines: no operations behind the calls.
    Lines,
}

/// One rank's operations in one group.
#[derive(Clone, Debug)]
pub struct Track<'a> {
    /// Global rank, if known.
    pub rank: Option<Rank>,
    /// What proves it.
    pub cite: Cite,
    /// Kind of that source.
    pub kind: SourceKind,
    /// Behind the calls.
    pub origin: Origin<'a>,
    /// Sequence number of `calls[0]`.
    pub first_seq: u32,
    /// Calls by sequence number, contiguous: indices into [`Ledger::calls`](crate::calls::ledger::Ledger::calls);
    /// [`Track::GAP`] where unknown.
    pub calls: Vec<u32>,
    /// Index of the operation behind each call in its origin.
    pub ops: Vec<u32>,
    /// Highest sequence number entered; 0 = none.
    pub entered: u32,
    /// All up to here are known to be finished; None = this view does not record completion.
    pub finished: Option<u32>,
    /// Sends and receives, in order: (peer's group rank, is_send, op index).
    pub p2p: Vec<P2pCall>,
    /// The first operation is in the record (a ring that rolled over, or a log that begins late, has lost it).
    pub from_start: bool,
    /// The record may end before the rank did: what it does not show may still have happened.
    pub open_end: bool,
    /// The same for sends and receives, which the watchdog's lines do not number.
    pub p2p_open: bool,
    /// Lines that back the calls of a track without operations.
    pub lines: Vec<(u32, Cite, String)>,
}

/// One send or receive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct P2pCall {
    /// Peer's group rank.
    pub peer: u32,
    /// Send or receive.
    pub is_send: bool,
    /// Finished; None = unknown.
    pub done: Option<bool>,
    /// Index of the operation in its origin.
    pub op: u32,
    /// Elements.
    pub elements: u64,
}

impl Track<'_> {
    /// A call that is not known.
    pub const GAP: u32 = u32::MAX;

    /// Call with this sequence number.
    pub fn call(&self, seq: u32) -> Option<u32> {
        let at = seq.checked_sub(self.first_seq)?;
        self.calls.get(at as usize).copied().filter(|c| *c != Self::GAP)
    }

    /// Operation with this sequence number, as the recorder kept it.
    pub fn op(&self, seq: u32) -> Option<u32> {
        let at = seq.checked_sub(self.first_seq)?;
        self.ops.get(at as usize).copied().filter(|c| *c != Self::GAP)
    }

    /// Last sequence number in `calls`.
    pub fn last_seq(&self) -> u32 {
        self.first_seq.saturating_add(self.calls.len() as u32).saturating_sub(1)
    }

    /// Stack of an operation, innermost first.
    pub fn frames(&self, op: u32) -> Vec<Frame> {
        let Origin::Dump(dump) = self.origin else { return Vec::new() };
        let Some(stack) = dump.ops.get(op as usize).and_then(|op| dump.stacks.get(op.stack as usize)) else {
            return Vec::new();
        };
        stack.iter().filter_map(|f| dump.frames.get(*f as usize)).cloned().collect()
    }

    /// Time at which an operation was enqueued, on its host's clock; None where the view has none.
    pub fn created_ns(&self, op: u32) -> Option<i64> {
        match self.origin {
            Origin::Dump(dump) => dump.ops.get(op as usize).map(|o| o.created_ns).filter(|t| *t > 0),
            Origin::Log(log) => {
                log.calls.get(op as usize).map(|c| i64::from(c.at_s) * 1_000_000_000).filter(|t| *t > 0)
            }
            Origin::Ring(ring) => ring.ops.get(op as usize).map(|o| o.enqueued_ns).filter(|t| *t > 0),
            Origin::Lines => None,
        }
    }

    /// Cites an operation: line of a log, bytes of a ring, or the dump as a whole.
    pub fn cite_op(&self, op: u32) -> Cite {
        match self.origin {
            Origin::Log(log) => log.calls.get(op as usize).map_or(self.cite, |call| Cite {
                source: self.cite.source,
                line: call.line,
                start: call.offset,
                end: call.offset,
            }),
            Origin::Ring(ring) => ring.ops.get(op as usize).map_or(self.cite, |op| Cite {
                source: self.cite.source,
                line: 0,
                start: op.span.0,
                end: op.span.1,
            }),
            _ => self.cite,
        }
    }
}

/// A group as one view sees it.
#[derive(Clone, Debug)]
pub struct Group<'a> {
    /// View.
    pub view: GroupRecorder,
    /// Name for people: `default_pg`, `dp`, or a communicator hash.
    pub name: String,
    /// Nobody gave it a name: that is its communicator's number.
    pub is_unnamed: bool,
    /// Global ranks by group rank; None where unknown.
    pub ranks: Vec<Option<Rank>>,
    /// Tracks; `tracks[i]` belongs to group rank `i`; None = nothing recorded for it.
    pub tracks: Vec<Option<Track<'a>>>,
    /// All ranks of the job.
    pub is_world: bool,
    /// RAS only: counts per function, since it keeps no order.
    pub counts: Vec<Option<Vec<(OpKind, u64)>>>,
    /// RAS only: group ranks that gave no answer. (A rank that a cut report does not list is not among them.)
    pub silent: Vec<usize>,
}

impl Group<'_> {
    /// Global rank of a group rank.
    pub fn rank(&self, at: usize) -> Option<Rank> {
        self.ranks.get(at).copied().flatten()
    }
}

/// A rank, or a record whose rank is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RankOrSource {
    /// A rank.
    Rank(Rank),
    /// The owner of this source.
    Source(SourceId),
}

impl RankOrSource {
    /// The rank, if known.
    pub fn rank(self) -> Option<Rank> {
        match self {
            Self::Rank(rank) => Some(rank),
            Self::Source(_) => None,
        }
    }
}

/// The node of a group rank.
pub fn node(group: &Group<'_>, at: usize) -> Option<RankOrSource> {
    if let Some(rank) = group.rank(at) {
        return Some(RankOrSource::Rank(rank));
    }
    group
        .tracks
        .get(at)?
        .as_ref()
        .map(|t| t.rank.map_or(RankOrSource::Source(t.cite.source), RankOrSource::Rank))
}
