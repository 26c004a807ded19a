//! Signs of health: what shows that a job went on or ended well, each kind as much worth as experience says.

use std::collections::BTreeSet;

use ringleader_model::{Case, Fact, NcclComm, Source, SourceKind};

use crate::health::is_known;

/// A kind of sign, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum GoodSign {
    /// Tables of tools, node facts, settings: a state of the machine in which nothing is wrong.
    Machine,
    /// NCCL created its communicators, and nothing shows what the job did with them.
    Communicator,
    /// A measurement: nccl-tests, a profile.
    Measured,
    /// NCCL's log of operations.
    Calls,
    /// Steps of training, or answers of a server, advance.
    Steps,
    /// A program says that it is done.
    Ended,
    /// A collector looked at the job.
    Watched,
    /// A recorder kept its operations.
    Recorded,
}

impl GoodSign {
    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Machine => "state of the machine",
            Self::Communicator => "communicator created",
            Self::Measured => "measurement",
            Self::Steps => "steps advance",
            Self::Ended => "orderly end",
            Self::Watched => "job observed",
            Self::Calls => "NCCL's calls",
            Self::Recorded => "recorded operations",
        }
    }
}

/// The kinds of signs of health in a case.
pub fn good_signs(case: &Case) -> BTreeSet<GoodSign> {
    let mut signs = BTreeSet::new();
    for observation in &case.observations {
        match &observation.fact {
            Fact::Progress(progress) => {
                if progress.ended.is_some() {
                    signs.insert(GoodSign::Ended);
                }
                if progress.n_steps > 1 {
                    signs.insert(GoodSign::Steps);
                }
            }
            Fact::Flight(dump) if !dump.ops.is_empty() => {
                signs.insert(GoodSign::Recorded);
            }
            Fact::Ring(_) => {
                signs.insert(GoodSign::Recorded);
            }
            Fact::Nccl(log) => {
                if !log.calls.is_empty() {
                    signs.insert(GoodSign::Calls);
                }
                let is_made = |comm: &NcclComm| {
                    comm.n_ranks > 1 && (comm.completed.is_some() || comm.destroyed.is_some())
                };
                if log.comms.iter().any(is_made) {
                    signs.insert(GoodSign::Communicator);
                }
            }
            Fact::Bench(_) | Fact::Timeline(_) => {
                signs.insert(GoodSign::Measured);
            }
            _ => {}
        }
    }
    let has = |kind| case.sources.iter().any(|s| s.kinds.contains(&kind));
    if has(SourceKind::NodeSnapshot) || has(SourceKind::Watch) {
        signs.insert(GoodSign::Watched);
    }
    let is_table = |source: &Source| {
        is_known(source)
            && !source.kinds.iter().all(|kind| matches!(kind, SourceKind::NcclLog | SourceKind::TorchLog))
    };
    if case.sources.iter().any(is_table) {
        signs.insert(GoodSign::Machine);
    }
    signs
}
