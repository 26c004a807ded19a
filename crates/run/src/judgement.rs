//! The diagnosis of a failed attempt: the part of a verdict that decisions are based on.

use ringleader_knowledge::cause;
use ringleader_model::address::same_host;
use ringleader_model::{Category, Cause, Class, Confidence};
use serde::{Deserialize, Serialize};

use crate::named::Named;
use crate::words;

/// Longest citation, bytes: other nodes receive it.
const MAX_TEXT: usize = 400;

/// Cause, class and culprits of one failed attempt.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Judgement {
    /// The cause; `none` or `undecided` if the evidence shows none.
    pub cause: Named,
    /// Class of the cause, which selects the action.
    #[serde(with = "words::class")]
    pub class: Class,
    /// How certain the verdict is.
    #[serde(with = "words::confidence")]
    pub confidence: Confidence,
    /// One sentence.
    pub summary: String,
    /// Processes to blame.
    #[serde(default)]
    pub culprits: Vec<Culprit>,
    /// Evidence, the deciding finding first.
    #[serde(default)]
    pub evidence: Vec<Citation>,
    /// Path of the bundle with all evidence.
    #[serde(default)]
    pub bundle: Option<String>,
    /// A cause that the evidence names, but that cannot explain the failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub doubted: Option<Named>,
}

/// Evidence and its diagnosis.
#[derive(Clone, Debug)]
pub struct Diagnosed {
    /// The part that decisions are based on.
    pub judgement: Judgement,
    /// The report for people.
    pub text: String,
    /// The cause in that report; the verdict also rests on what is not in the evidence.
    pub cause: Cause,
    /// Ranks of this node that were observed running.
    pub ranks: Vec<u32>,
    /// Why the verdict does not explain the job's silence.
    pub doubt: Option<String>,
}

/// A process to blame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Culprit {
    /// Global rank.
    pub rank: Option<u32>,
    /// Host, up to the first dot.
    pub host: Option<String>,
    /// PCI address of its GPU.
    pub gpu: Option<String>,
    /// `FILE:LINE in FUNCTION` of the program's own code.
    pub place: Option<String>,
}

/// A quoted line of the evidence.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Citation {
    /// File.
    pub source: String,
    /// Line, counted from 1.
    pub line: Option<u32>,
    /// The quoted text.
    pub text: String,
}

impl Judgement {
    /// A judgement for a failure that could not be collected or judged, because of `why`.
    pub fn unjudged(why: &str) -> Self {
        Self {
            cause: Cause::Undecided.into(),
            class: Class::Unknown,
            confidence: Confidence::Low,
            summary: why.to_owned(),
            culprits: Vec::new(),
            evidence: Vec::new(),
            bundle: None,
            doubted: None,
        }
    }

    /// Hosts of the culprits, each once, sorted by name.
    pub fn hosts(&self) -> Vec<String> {
        let mut hosts: Vec<String> = self.culprits.iter().filter_map(|c| c.host.clone()).collect();
        hosts.sort();
        hosts.dedup();
        hosts
    }

    /// Identifies where a program failed: the culprit's place in the code, else the summary without numbers and names
    /// that differ between attempts.
    pub fn place(&self) -> String {
        let place = self.culprits.iter().find_map(|culprit| culprit.place.clone());
        place.map_or_else(
            || format!("{}: {}", self.cause, without_ids(&self.summary)),
            |place| format!("{}: {place}", self.cause),
        )
    }
}

/// The text without words that contain a digit: step numbers, process ids, hashes of communicators. A hash may also consist
/// of letters only.
fn without_ids(text: &str) -> String {
    let is_id = |word: &str| {
        let is_hex = word.len() >= 8 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex || word.bytes().any(|byte| byte.is_ascii_digit())
    };
    let is_in_word = |c: char| c.is_alphanumeric() || c == '_';
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(is_in_word) {
        let (before, from) = rest.split_at(at);
        let (word, behind) = from.split_at(from.find(|c| !is_in_word(c)).unwrap_or(from.len()));
        out.push_str(before);
        out.push_str(if is_id(word) { "" } else { word });
        rest = behind;
    }
    out + rest
}

/// The class of a cause among the nodes of a job. The table has the default. A setting or limit that is wrong on one
/// node only is a fault of that node; a fault on all nodes is a fault of the program.
pub fn class_of(cause: Cause, culprit_hosts: &[String], nodes: &[String]) -> Class {
    let row = cause::of(cause);
    // A verdict of slowness, or no verdict, does not explain why the job failed.
    let Some(class) = row.class else { return Class::Unknown };
    let hit: Vec<&String> =
        nodes.iter().filter(|node| culprit_hosts.iter().any(|host| same_host(host, node))).collect();
    match class {
        Class::Program if row.category == Category::Init && nodes.len() > 1 && hit.len() == 1 => Class::Node,
        Class::Node if nodes.len() > 1 && hit.len() == nodes.len() => Class::Program,
        other => other,
    }
}

/// Whether a cause can end a job. Slowness cannot, and has no class.
pub fn can_end(cause: Cause) -> bool {
    cause::of(cause).class.is_some()
}

/// Whether a cause is the end of a process, other than by a fault of its node: a process that lives has not had it.
pub fn ends_process(cause: Cause) -> bool {
    let row = cause::of(cause);
    row.category == Category::Crash && row.class != Some(Class::Node)
}

/// The beginning of a text, as much as a citation holds.
pub(crate) fn cut(text: &str) -> String {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    #[test]
    fn classes() {
        let four = names(&["n0", "n1", "n2.cluster", "n3"]);
        for (cause, hosts, expected) in [
            (Cause::ProcessKilled, &["n1"][..], Class::Transient),
            (Cause::GpuFallenOffBus, &["n1"], Class::Node),
            (Cause::ApplicationException, &["n1"], Class::Program),
            // A wrong limit on one node is that node's fault.
            (Cause::MemlockLimit, &["n2"], Class::Node),
            (Cause::MemlockLimit, &["n0", "n1", "n2", "n3"], Class::Program),
            (Cause::FabricManagerDown, &["n0", "n1", "n2", "n3"], Class::Program),
            // Slowness does not explain a failure.
            (Cause::Straggler, &["n1"], Class::Unknown),
            (Cause::None, &[], Class::Unknown),
            (Cause::Undecided, &[], Class::Unknown),
        ] {
            assert_eq!(class_of(cause, &names(hosts), &four), expected, "{cause} {hosts:?}");
        }
        let one = names(&["n0"]);
        assert_eq!(class_of(Cause::MemlockLimit, &one, &one), Class::Program);
        assert_eq!(class_of(Cause::GpuFallenOffBus, &one, &one), Class::Node);
    }

    #[test]
    fn what_can_end_a_job() {
        for (cause, can, ends) in [
            (Cause::ApplicationException, true, true),
            (Cause::SkippedCollective, true, false),
            (Cause::GpuFallenOffBus, true, false),
            (Cause::Straggler, false, false),
            (Cause::DataLoadingBound, false, false),
            (Cause::None, false, false),
        ] {
            assert_eq!((can_end(cause), ends_process(cause)), (can, ends), "{cause}");
        }
    }

    #[test]
    fn places() {
        let mut judgement = Judgement::unjudged("rank 3 failed at step 17");
        assert_eq!(judgement.place(), "undecided: rank  failed at step ");
        let of =
            |hash: &str| Judgement::unjudged(&format!("an extra call #9 of communicator {hash}, by rank 0"));
        assert_eq!(of("73d39ed7769f0a50").place(), of("dedfabca").place());
        assert_eq!(of("7adf").place(), "undecided: an extra call # of communicator , by rank ");
        judgement.culprits =
            vec![Culprit { place: Some("train.py:83 in step".to_owned()), ..Culprit::default() }];
        assert_eq!(judgement.place(), "undecided: train.py:83 in step");
    }
}
