//! # What it shows
//!
//! A rank's own program raised an exception and ended. What the other ranks and NCCL report afterwards (closed
//! connections, timeouts, aborts) is a consequence.
//!
//! # Why it happens
//!
//! A bug, bad data, a missing file, a version mix: anything that Python reports and that is no fault of
//! communication.
//!
//! # Evidence
//!
//! The first traceback that is not itself a consequence, with its innermost line in the user's code. Several ranks
//! that raise the same at once are all named.
//!
//! # What looks like it but is not
//!
//! A traceback of the launcher, without a frame of the user's program, is a launcher failure, since no rank raised it.
//! DistBackendError, a lost store, a watchdog's exception, SIGTERM, KeyboardInterrupt and the launcher's
//! ChildFailedError are echoes; out of memory, CUDA errors, a taken port and the like have rules of their own. An
//! exception that was only logged, in a job that ended in order, proves nothing.
//!
//! # What to do
//!
//! Fix the program at the named line; a restart without a change fails at the same place.
//!
//! # References
//!
//! pytorch/pytorch torch/distributed/elastic/multiprocessing/errors; the table of sayings holds what counts as an
//! echo.

use std::collections::BTreeMap;

use ringleader_knowledge::place;
use ringleader_model::{Cause, Cite, Confidence, Culprit, Evidence, FrameOwner, Impact, Severity, Weight};

use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::storage;
use ringleader_correlate::said::messages::{OwnException, names_cause};
use ringleader_correlate::who::culprits::{add_culprit, who};

/// See the module.
pub(crate) static RULE: Rule = Rule {
    id: "application-exception",
    title: "the program itself failed",
    since: "0.1",
    doc: include_str!("application_exception.rs"),
    check,
};

/// Findings at most: beyond a few different exceptions the later ones are noise of the first.
const EXCEPTIONS: usize = 4;
/// Characters of the exception in the title.
const TITLE_CHARS: usize = 300;
/// Citations of one exception.
const CITATIONS: usize = 4;

/// The same exception, maybe on several ranks.
struct SameException<'s, 'a> {
    members: Vec<&'s OwnException<'a>>,
    at_ns: Option<i64>,
    order: usize,
}

impl SameException<'_, '_> {
    /// The program went on after the exception at `cite`; or it did after the same one in the same source, and a step follows this
    /// one, too: whoever catches one catches it again.
    fn is_overcome(&self, scene: &Scene<'_>, cite: Cite) -> bool {
        let mut same =
            self.members.iter().map(|own| own.observation.cite).filter(|c| c.source == cite.source);
        let course = scene.course();
        course.was_overcome(cite) || course.text().was_followed(cite) && same.any(|c| course.was_overcome(c))
    }
}

/// The headline as far as a title has room, cut between words; the proof has all of it.
fn cut(headline: &str) -> String {
    let Some((end, _)) = headline.char_indices().nth(TITLE_CHARS) else { return headline.to_owned() };
    let kept = headline.get(..end).unwrap_or(headline);
    let kept = kept.rsplit_once(' ').map_or(kept, |(words, _)| words);
    format!("{}…", kept.trim_end_matches([' ', ',', ':', ';']))
}

fn check(scene: &Scene<'_>) -> Outcome {
    let mut groups: BTreeMap<String, SameException<'_, '_>> = BTreeMap::new();
    // A traceback that was cut before its last line does not say what was raised.
    let whole = |o: &&OwnException<'_>| o.exception.is_none_or(|e| !e.class.is_empty());
    for (order, own) in scene.claims().own_exceptions().iter().filter(whole).enumerate() {
        let at_ns = own.observation.at.map(|t| t.ns);
        let group = groups.entry(likeness(&own.headline())).or_insert_with(|| SameException {
            members: Vec::new(),
            at_ns,
            order,
        });
        group.at_ns = group.at_ns.into_iter().chain(at_ns).min();
        group.members.push(own);
    }
    // A traceback says more than a bare line: lines count only where there is no traceback at all.
    let has_traceback = |g: &SameException<'_, '_>| g.members.iter().any(|m| m.exception.is_some());
    let any_traceback = groups.values().any(has_traceback);
    let mut groups: Vec<SameException<'_, '_>> =
        groups.into_values().filter(|g| !any_traceback || has_traceback(g)).collect();
    groups.sort_by_key(|g| (g.at_ns.is_none(), g.at_ns, g.order));
    let findings = groups.iter().take(EXCEPTIONS).enumerate().filter_map(|(n, group)| {
        let mut culprits: Vec<Culprit> = Vec::new();
        for own in group.members.iter().filter(|o| !o.observation.who.is_nobody()) {
            let mut culprit = scene.culprit(&own.observation.who);
            culprit.place = own.place().cloned();
            add_culprit(&mut culprits, culprit);
        }
        let first = group.members.first()?;
        if culprits.is_empty() {
            // Nobody is named, but the place in the code is known.
            culprits.extend(first.place().map(|p| Culprit { place: Some(p.clone()), ..Culprit::default() }));
        }
        let all = |is: &dyn Fn(Cite) -> bool| group.members.iter().all(|own| is(own.observation.cite));
        let (weight, confidence, severity) = if all(&|cite| scene.course().closed_in_order(cite)) {
            (Weight::Symptom, Confidence::Low, Severity::Warning)
        } else if all(&|cite| group.is_overcome(scene, cite)) {
            (Weight::Symptom, Confidence::Low, Severity::Info)
        } else if n > 0 || explained_already(scene, group) {
            (Weight::Symptom, Confidence::Low, Severity::Error)
        } else if first.exception.is_none() {
            (Weight::Derived, Confidence::Medium, Severity::Error)
        } else if is_plain(first) {
            (Weight::Stated, Confidence::High, Severity::Error)
        } else {
            (Weight::Stated, Confidence::Medium, Severity::Error)
        };
        let headline = cut(&first.headline());
        let evidence: Vec<Evidence> = group.members.iter().take(CITATIONS).map(|m| m.evidence()).collect();
        if group.members.iter().all(|own| is_of_launcher(own)) {
            return Draft::new(
                RULE.id,
                Cause::LauncherFailure,
                format!("the launcher itself raised {headline}, no rank did"),
            )
            .weight(weight)
            .confidence(confidence.min(Confidence::Medium))
            .severity(severity)
            .at(group.at_ns)
            .evidence(evidence)
            .advise(
                Impact::Harmless,
                "compare the launcher's options, its host list and its version with its documentation",
            )
            .build();
        }
        Draft::new(RULE.id, Cause::ApplicationException, format!("{} raised {headline}", who(&culprits)))
            .weight(weight)
            .confidence(confidence)
            .severity(severity)
            .at(group.at_ns)
            .culprits(culprits)
            .evidence(evidence)
            .evidence(failed_storage(scene, group, &first.headline()))
            .advise(
                Impact::Harmless,
                "fix the program where the exception was raised: a restart alone fails again",
            )
            .build()
    });
    Outcome::from_findings(findings.collect())
}

/// Exceptions that the program itself causes, independent of the machine.
const PLAIN: [&str; 17] = [
    "KeyError",
    "IndexError",
    "TypeError",
    "AttributeError",
    "NameError",
    "UnboundLocalError",
    "ImportError",
    "ModuleNotFoundError",
    "SyntaxError",
    "IndentationError",
    "ValueError",
    "ZeroDivisionError",
    "FileNotFoundError",
    "NotImplementedError",
    "UnicodeDecodeError",
    "JSONDecodeError",
    "RecursionError",
];

/// Raised in the user's own code, or of a kind that no machine brings about.
fn is_plain(own: &OwnException<'_>) -> bool {
    let Some(exception) = own.exception else { return false };
    let class = exception.class.rsplit('.').next().unwrap_or_default();
    let in_own_code = exception.frames.first().is_some_and(|f| f.owner() == FrameOwner::User);
    PLAIN.contains(&class) || in_own_code && class != "AssertionError"
}

/// Raised in a program that starts ranks, by none of the user's code.
fn is_of_launcher(own: &OwnException<'_>) -> bool {
    let frames = own.exception.map(|e| e.frames.as_slice()).unwrap_or_default();
    frames.iter().any(|f| place::is_marked(place::marks::LAUNCHER, &f.function, &f.file))
        && frames.iter().all(|f| f.owner() != FrameOwner::User)
}

/// What the kernel says of the storage that an exception complains of.
fn failed_storage(scene: &Scene<'_>, group: &SameException<'_, '_>, headline: &str) -> Vec<Evidence> {
    let complains =
        ["Input/output error", "Read-only file system", "Stale file handle", "Transport endpoint"];
    if !complains.iter().any(|c| headline.contains(c)) {
        return Vec::new();
    }
    let host = group.members.iter().find_map(|m| scene.culprit(&m.observation.who).host);
    storage(scene.kernel(), host.as_ref(), |_| true).map_or_else(Vec::new, |(_, evidence)| evidence)
}

/// Equal for one exception on several ranks: numbers in its text differ (ranks, addresses, sizes).
fn likeness(headline: &str) -> String {
    headline.chars().filter(|c| !c.is_ascii_digit()).collect()
}

/// The same rank states a cause of its own elsewhere: this exception came out of that.
fn explained_already(scene: &Scene<'_>, group: &SameException<'_, '_>) -> bool {
    group.members.iter().any(|own| {
        let who = &own.observation.who;
        who.rank.is_some()
            && scene.claims().all().iter().any(|c| {
                names_cause(c.saying.role)
                    && c.who.rank == who.rank
                    && c.cite.source == own.observation.cite.source
                    && c.cite.start < own.observation.cite.start
            })
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    #[test]
    fn an_exception_of_the_launcher() {
        let of = |last: &str| {
            let packages = "/usr/lib/python3.8/dist-packages/";
            StagedCase::new().raised(
                None,
                "ValueError",
                "Invalid host input",
                &[
                    (last, 396, "run"),
                    (&format!("{packages}horovod/run/run.py"), 448, "run"),
                    ("/usr/local/bin/horovodrun", 21, "<module>"),
                ],
            )
        };
        of("/usr/lib/python3.8/dist-packages/horovod/run/util/hosts.py").expect(&RULE, &["launcher-failure"]);
        // The user's own program, which it called in the same process.
        of("/srv/job.py").expect(&RULE, &["application-exception"]);
    }

    #[test]
    fn an_exception_of_one_rank_with_its_place() {
        let stage = StagedCase::new()
            .raised(
                Some(1),
                "RuntimeError",
                "bad sample in shard 17",
                &[
                    ("/venv/lib/python3.12/site-packages/torch/x.py", 1, "call"),
                    ("/srv/job.py", 58, "load"),
                    ("/srv/job.py", 241, "<module>"),
                ],
            )
            .nccl_raised(Some(0), "socketProgress: Connection closed by remote peer node1<36118>");
        stage.expect(&RULE, &["application-exception 1"]);
        let finding = stage.finding(&RULE);
        let place = finding.culprits.first().and_then(|c| c.place.as_ref());
        assert_eq!(place.map(|p| &*p.function), Some("load"));
        assert_eq!(finding.weight, ringleader_model::Weight::Stated);
    }

    #[test]
    fn storage_that_the_kernel_complains_of_too() {
        use ringleader_model::{KernelEventKind, StorageTrouble};
        let kinds = |message: &str| {
            let trouble = StorageTrouble::IoError;
            let stage =
                StagedCase::new().raised(Some(0), "RuntimeError", message, &[("/srv/job.py", 58, "save")]);
            let stage = stage.kernel("", KernelEventKind::Storage { name: "nvme1n1".into(), trouble });
            stage.finding(&RULE).evidence.iter().any(|e| e.kind == ringleader_model::SourceKind::KernelLog)
        };
        assert!(kinds("/data/ckpt/model.pt: Input/output error"));
        assert!(!kinds("/data/ckpt/model.pt: No such file or directory"));
        // What the system refused is for the rule of that.
        let refused = "[Errno 5] Input/output error: '/data/ckpt/model.pt'";
        StagedCase::new().raised(Some(0), "OSError", refused, &[("/srv/job.py", 58, "save")]).silent(&RULE);
    }

    #[test]
    fn the_same_on_all_ranks_names_all() {
        let stage = (0..4).fold(StagedCase::new(), |s, r| {
            s.raised(Some(r), "ValueError", &format!("rank {r}: no such column"), &[])
        });
        stage.expect(&RULE, &["application-exception 0-3"]);
    }

    #[test]
    fn consequences_are_not_the_programs_fault() {
        StagedCase::new()
            .nccl_raised(Some(0), "socketProgress: Connection closed by remote peer node1<36118>")
            .raised(
                Some(1),
                "torch.distributed.DistNetworkError",
                "Failed to recv, got 0 bytes. Connection was likely closed.",
                &[],
            )
            .raised(Some(2), "KeyboardInterrupt", "", &[])
            .raised(None, "torch.distributed.elastic.multiprocessing.errors.ChildFailedError", "", &[])
            .raised(
                Some(3),
                "torch.distributed.elastic.multiprocessing.api.SignalException",
                "Process 12 got signal: 15",
                &[],
            )
            .silent(&RULE);
    }

    #[test]
    fn narrower_causes_are_left_to_their_rules() {
        StagedCase::new()
            .raised(Some(0), "torch.OutOfMemoryError", "CUDA out of memory.", &[])
            .raised(
                Some(1),
                "torch.AcceleratorError",
                "CUDA error: an illegal memory access was encountered",
                &[],
            )
            .raised(
                Some(2),
                "RuntimeError",
                "NCCL Error 2: unhandled system error (run with NCCL_DEBUG=INFO)",
                &[],
            )
            .silent(&RULE);
    }

    #[test]
    fn a_later_exception_is_weaker() {
        let stage = StagedCase::new()
            .raised(Some(1), "KeyError", "'labels'", &[])
            .at_s(10)
            .raised(Some(2), "OSError", "stale handle", &[])
            .at_s(20);
        stage.expect(&RULE, &["application-exception 1", "application-exception 2"]);
    }
}
