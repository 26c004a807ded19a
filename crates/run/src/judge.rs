//! The judgement that decisions are based on: from the verdict on the evidence, and from what only the supervisor of a
//! launcher knows of its end.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ringleader_knowledge::errno;
use ringleader_knowledge::signal::{SIGKILL, SIGTERM};
use ringleader_model::{
    self as model, Case, Cause, Cite, Class, Confidence, Fact, Pid, PythonException, SourceId, TorchEvent,
    Verdict,
};

use crate::agree::{Announcement, together};
use crate::judgement::{Citation, Culprit, Judgement, class_of, cut};
use crate::state::LauncherEnd;

/// Number of citations that are kept.
const MAX_EVIDENCE: usize = 8;

/// The judgement by a verdict on the evidence, for the nodes of the job. `bundle`: where the evidence is.
pub fn judged(case: &Case, verdict: &Verdict, bundle: &Path, nodes: &[String]) -> Judgement {
    let culprits: Vec<Culprit> = verdict.culprits.iter().map(culprit).collect();
    let mut judgement = Judgement {
        cause: verdict.cause.into(),
        class: Class::Unknown,
        confidence: verdict.confidence,
        summary: verdict.summary.clone(),
        culprits,
        evidence: Vec::new(),
        bundle: Some(bundle.display().to_string()),
        doubted: None,
    };
    judgement.class = class_of(verdict.cause, &judgement.hosts(), nodes);
    if judgement.class == Class::Program && is_of_the_world(case, verdict) {
        // A failure outside of the program may be gone in the next attempt.
        judgement.class = Class::Unknown;
    }
    let deciding = verdict.findings.iter().filter(|finding| finding.cause == verdict.cause);
    let quoted = deciding.flat_map(|finding| &finding.evidence).take(MAX_EVIDENCE);
    let source = |id: SourceId| case.sources.get(id.0 as usize).map(|source| source.path.clone());
    judgement.evidence = quoted
        .map(|evidence| Citation {
            source: source(evidence.cite.source).unwrap_or_default(),
            line: (evidence.cite.line > 0).then_some(evidence.cite.line),
            text: cut(&evidence.text),
        })
        .collect();
    judgement
}

/// Whether the exception that decided reports an error of the file system, a server or another process: `[Errno 28] No space left on
/// device`. Where the deciding finding cites no exception with an errno, the summary may quote one: of a bare line, or of an
/// exception that led to the cited one.
fn is_of_the_world(case: &Case, verdict: &Verdict) -> bool {
    let decider = verdict.findings.first().filter(|finding| finding.cause == verdict.cause);
    let mut cited = decider.iter().flat_map(|finding| &finding.evidence).map(|evidence| evidence.cite);
    let raised = cited.find_map(|cite| raised_at(case, cite));
    let of_fact = raised.and_then(|exception| errno::in_python(exception.message.lines().next()?).next());
    match of_fact {
        Some(errno) => errno.is_of_the_world(),
        None => errno::in_python(&verdict.summary).any(errno::Errno::is_of_the_world),
    }
}

/// The exception at this place.
fn raised_at(case: &Case, cite: Cite) -> Option<&PythonException> {
    case.observations.iter().filter(|observation| observation.cite == cite).find_map(|observation| {
        match &observation.fact {
            Fact::Torch(TorchEvent::Exception(exception)) => Some(&**exception),
            _ => None,
        }
    })
}

fn culprit(blamed: &model::Culprit) -> Culprit {
    let place = blamed.place.as_ref().map(|place| {
        let line = if place.line > 0 { format!(":{}", place.line) } else { String::new() };
        let function =
            if place.function.is_empty() { String::new() } else { format!(" in {}", place.function) };
        format!("{}{line}{function}", place.file)
    });
    Culprit {
        rank: blamed.rank.map(|rank| rank.0),
        host: blamed.host.as_deref().filter(|host| !host.is_empty()).map(str::to_owned),
        gpu: blamed.gpu.map(|gpu| gpu.to_string()),
        place,
    }
}

/// If the launcher is the program itself, no evidence shows which signal ended it; its parent, the holder, knows. If
/// the evidence names no cause, that signal is the cause, and this node's rank, if it has only one, is the culprit.
pub fn with_exit(judgement: Judgement, exit: Option<&LauncherEnd>, node: &str, seen: &[u32]) -> Judgement {
    let Some(signal) = exit.and_then(|exit| exit.signal) else { return judgement };
    if !judgement.cause.says_nothing() {
        return judgement;
    }
    let is_kill = signal == i32::from(SIGKILL);
    let cause = if is_kill { Cause::ProcessKilled } else { Cause::ProcessCrashed };
    let summary = format!("the launcher was killed by signal {signal}, which its supervisor did not send");
    let citation = Citation { source: "holder.json".to_owned(), line: None, text: summary.clone() };
    let rank = if let [rank] = seen { Some(*rank) } else { None };
    let culprit = Culprit { rank, host: Some(node.to_owned()), ..Culprit::default() };
    Judgement {
        cause: cause.into(),
        class: class_of(cause, &[], &[]),
        confidence: Confidence::High,
        summary,
        culprits: vec![culprit],
        evidence: vec![citation],
        ..judgement
    }
}

/// A job that received a request to end ended because of it, unless the evidence names an earlier cause.
pub fn with_told(judgement: Judgement, told: &str) -> Judgement {
    if !judgement.cause.says_nothing() {
        return judgement;
    }
    let citation = Citation { source: "holder.json".to_owned(), line: None, text: told.to_owned() };
    Judgement {
        cause: Cause::StoppedFromOutside.into(),
        class: class_of(Cause::StoppedFromOutside, &[], &[]),
        confidence: Confidence::High,
        summary: format!("the job received a request to end: {told}"),
        evidence: vec![citation],
        ..judgement
    }
}

/// What one file of a launcher's output says of the ends of its ranks.
#[derive(Clone, Debug, Default)]
struct Ends {
    /// The rows of torchrun's last table: rank, exit code, and whether it is the first observed failure.
    table: Vec<(Option<u32>, i64, bool)>,
    /// Processes that the launcher asked to end.
    closed: BTreeSet<Pid>,
    /// The launcher says that a process failed.
    has_failed: bool,
}

impl Ends {
    /// Of each file of the output, in the order of their names.
    fn of(output: &Case) -> Vec<Self> {
        let mut found: BTreeMap<SourceId, Self> = BTreeMap::new();
        let mut observations: Vec<_> = output.observations.iter().collect();
        observations.sort_by_key(|observation| observation.cite);
        for observation in observations {
            let Fact::Torch(event) = &observation.fact else { continue };
            let ends = found.entry(observation.cite.source).or_default();
            match event {
                TorchEvent::ChildFailure { is_root, exit_code, .. } => {
                    // A table ends with its first observed failure.
                    if ends.table.last().is_some_and(|(.., was_root)| *was_root) {
                        ends.table.clear();
                    }
                    ends.table.push((observation.who.rank.map(|rank| rank.0), *exit_code, *is_root));
                }
                TorchEvent::ClosingSignal { pid, .. } => {
                    ends.closed.insert(*pid);
                }
                TorchEvent::ChildExit { exit_code, .. } => ends.has_failed |= *exit_code != 0,
                _ => {}
            }
        }
        found.into_values().collect()
    }

    /// Rank and code of the first observed failure, if that rank ended by itself.
    fn own_exit(&self) -> Option<(u32, i64)> {
        let (rank, code, _) = self.table.iter().find(|(.., is_root)| *is_root)?;
        // An exception exits with 1, and its traceback says more.
        rank.filter(|_| *code > 1).map(|rank| (rank, *code))
    }

    /// Ranks of this node that were observed running and are missing from the table. None if the table lists no rank or one that was
    /// not observed, or if the launcher ended a rank that is not listed, which may also have exited with 0.
    fn left_early(&self, seen: &[u32]) -> Option<Vec<u32>> {
        self.table.iter().any(|(.., is_root)| *is_root).then_some(())?;
        let listed: Vec<u32> = self.table.iter().filter_map(|(rank, ..)| *rank).collect();
        let left: Vec<u32> = seen.iter().copied().filter(|rank| !listed.contains(rank)).collect();
        let all_known = listed.iter().all(|rank| seen.contains(rank));
        // A listed rank that the launcher ended is counted; one that is not listed could be any rank.
        let is_ended = |code: i64| [SIGTERM, SIGKILL].iter().any(|signal| code == -i64::from(*signal));
        let n_ended_and_listed = self.table.iter().filter(|(_, code, _)| is_ended(*code)).count();
        let is_known = all_known && !listed.is_empty() && self.closed.len() <= n_ended_and_listed;
        (is_known && !left.is_empty()).then_some(left)
    }
}

/// A rank that exited with its own code and no message is a fault of the program. torchrun's table has the code:
///
/// ```text
/// Root Cause (first observed failure):
///   rank      : 1 (local_rank: 1)
///   exitcode  : 3 (pid: 4711)
/// ```
///
/// A rank that is missing from the table, and that the launcher did not end, exited with 0 before its peers failed. `output` reads
/// what the launcher printed; `seen` are the ranks of this node that were observed running.
pub fn with_table(judgement: Judgement, output: impl FnOnce() -> Case, seen: &[u32]) -> Judgement {
    if !says_no_cause(&judgement) {
        return judgement;
    }
    let ends = Ends::of(&output());
    let Some((rank, code)) = ends.iter().find_map(Ends::own_exit) else {
        let Some(ranks) = ends.iter().find_map(|ends| ends.left_early(seen)) else { return judgement };
        let names = numbers(&ranks);
        return exited_early(
            judgement,
            &ranks,
            format!("torchrun's table of failures does not list rank {names}"),
        );
    };
    let summary = format!("rank {rank} exited with code {code} and no traceback");
    let citation = Citation { text: format!("exitcode  : {code}"), ..Citation::default() };
    let culprit = judgement.culprits.iter().find(|culprit| culprit.rank == Some(rank)).cloned();
    Judgement {
        cause: Cause::ApplicationException.into(),
        class: class_of(Cause::ApplicationException, &[], &[]),
        confidence: Confidence::Medium,
        summary,
        culprits: vec![culprit.unwrap_or(Culprit { rank: Some(rank), ..Culprit::default() })],
        evidence: std::iter::once(citation).chain(judgement.evidence.iter().cloned()).collect(),
        ..judgement
    }
}

/// A rank of this node is gone, its peers wait, and the launcher still runs: torchrun and its like end all ranks as soon as
/// one fails, so this one exited with 0. A launcher that is already ending them says so in its output.
pub fn with_live_launcher(judgement: Judgement, output: impl FnOnce() -> Case, seen: &[u32]) -> Judgement {
    let ranks: Vec<u32> = judgement.culprits.iter().filter_map(|culprit| culprit.rank).collect();
    let are_ours = !ranks.is_empty() && ranks.iter().all(|rank| seen.contains(rank));
    if judgement.cause != Cause::PeerProcessDied || !are_ours {
        return judgement;
    }
    if Ends::of(&output()).iter().any(|ends| ends.has_failed || !ends.closed.is_empty()) {
        return judgement;
    }
    let names = numbers(&ranks);
    exited_early(
        judgement,
        &ranks,
        format!("rank {names} is gone and the launcher, which ends all ranks when one fails, still runs"),
    )
}

/// Nothing is known of the cause, or only that a rank is gone.
fn says_no_cause(judgement: &Judgement) -> bool {
    judgement.cause.says_nothing() || judgement.cause == Cause::PeerProcessDied
}

/// Of the judgement on the evidence of all nodes together and the most certain one of a node alone the one that counts.
pub fn weighed(joint: Judgement, members: &[Announcement]) -> Judgement {
    let apart = together(members);
    // A node's own verdict also rests on how its launcher ended, which no bundle shows.
    let is_weaker = says_no_cause(&joint) && !says_no_cause(&apart);
    // A node has seen that the job went on after it.
    let mut doubted = members.iter().filter_map(|member| member.judgement.as_ref()?.doubted.as_ref());
    let is_doubted = doubted.any(|cause| *cause == joint.cause);
    if is_weaker || is_doubted || joint.cause.says_nothing() { apart } else { joint }
}

fn numbers(ranks: &[u32]) -> String {
    ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// The judgement if ranks exited with 0 while others continued; `shown` is what shows it.
fn exited_early(judgement: Judgement, ranks: &[u32], shown: String) -> Judgement {
    let summary = format!("rank {} exited with code 0 while the others continued", numbers(ranks));
    let citation = Citation { text: shown, ..Citation::default() };
    let culprit = |rank: &u32| {
        let known = judgement.culprits.iter().find(|culprit| culprit.rank == Some(*rank)).cloned();
        known.unwrap_or(Culprit { rank: Some(*rank), ..Culprit::default() })
    };
    Judgement {
        cause: Cause::RankExitedEarly.into(),
        class: class_of(Cause::RankExitedEarly, &[], &[]),
        confidence: Confidence::Medium,
        summary,
        culprits: ranks.iter().map(culprit).collect(),
        evidence: std::iter::once(citation).chain(judgement.evidence.iter().cloned()).collect(),
        ..judgement
    }
}

#[cfg(test)]
mod tests;
