//! Kinds of evidence that were not there, and what collects each.

use ringleader_model::{Case, Fact, SourceKind, TorchEvent};

use crate::json::NotLookedAt;

/// The usual reason.
pub(crate) const NOT_GIVEN: &str = "not in the evidence";

/// The reason for what only a living process can give, once the job has ended.
const ENDED: &str = "the job has ended: only while the next one hangs can it be taken";

/// A kind whose absence is worth telling, and how to get it.
struct Wanted {
    kind: SourceKind,
    /// Any of these will do in its place.
    also: &'static [SourceKind],
    command: &'static str,
}

/// In the order in which an operator would fetch them: what is lost first comes first.
const WANTED: &[Wanted] = &[
    Wanted {
        kind: SourceKind::Stacks,
        also: &[],
        // Without --nonblocking py-spy stops the process for milliseconds; a stuck rank does not mind.
        command: "py-spy dump --pid <pid of each rank> --json",
    },
    Wanted { kind: SourceKind::Ras, also: &[], command: "ncclras -v -f json" },
    Wanted {
        kind: SourceKind::Processes,
        also: &[],
        command: "ps -eo pid,ppid,stat,wchan:32,pcpu,etime,args",
    },
    Wanted { kind: SourceKind::NvidiaSmi, also: &[], command: "nvidia-smi" },
    Wanted { kind: SourceKind::KernelLog, also: &[], command: "dmesg -T" },
    Wanted {
        kind: SourceKind::FlightRecorder,
        also: &[],
        command: "TORCH_FR_BUFFER_SIZE=20000 TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun …",
    },
    Wanted {
        kind: SourceKind::NcclLog,
        also: &[],
        command: "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,COLL,GRAPH NCCL_DEBUG_FILE=/tmp/nccl_%h_%p.log torchrun …",
    },
    Wanted {
        kind: SourceKind::TorchLog,
        also: &[SourceKind::ElasticError],
        command: "torchrun … 2>&1 | tee stderr.log",
    },
];

/// Each kind that no source of the case holds.
pub(crate) fn not_looked_at(case: &Case) -> Vec<NotLookedAt> {
    let seen = |kind: &SourceKind| case.sources.iter().any(|source| source.kinds.contains(kind));
    WANTED
        .iter()
        .filter(|wanted| !seen(&wanted.kind) && !wanted.also.iter().any(seen))
        .map(|wanted| NotLookedAt {
            kind: wanted.kind.name().to_owned(),
            why: why(case, wanted.kind).to_owned(),
            command: wanted.command.to_owned(),
        })
        .collect()
}

fn why(case: &Case, kind: SourceKind) -> &'static str {
    let ended = || {
        case.observations.iter().any(|o| {
            matches!(o.fact, Fact::Torch(TorchEvent::ChildFailure { .. } | TorchEvent::LauncherFailed { .. }))
        })
    };
    match kind {
        SourceKind::Stacks | SourceKind::Ras | SourceKind::Processes if ended() => ENDED,
        _ => NOT_GIVEN,
    }
}
