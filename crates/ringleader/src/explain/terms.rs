//! The words of a report and of `watch`: what their lines and labels mean.

mod field;
mod kinds;
mod letters;
mod printed;
mod sections;
mod watching;

use crate::explain::answer::{Kind, Topic};

/// One word.
#[derive(Clone, Copy)]
struct Term {
    name: &'static str,
    /// Other forms by which it is asked for.
    also: &'static [&'static str],
    title: &'static str,
    means: &'static str,
    is_not: &'static str,
    see: &'static [&'static str],
    /// Where it is documented; empty for the README.
    source: &'static str,
}

/// The words of the README's first report.
const TERMS: &[Term] = &[
    Term {
        name: "culprit",
        also: &["culprits"],
        title: "whom the verdict names",
        means: "the rank, process, GPU or host to look at first: the fault is there, or what the others wait for is missing there",
        is_not: "it is usually not the rank that complains: who reports a timeout is a victim",
        see: &["victim", "proof"],
        source: "",
    },
    Term {
        name: "victim",
        also: &["victims"],
        title: "who suffers from the fault",
        means: "ranks that wait for the culprit or fail because of it; their own logs are full of errors, and nothing is wrong with them",
        is_not: "",
        see: &["culprit"],
        source: "",
    },
    Term {
        name: "proof",
        also: &["evidence", "citation"],
        title: "the lines that the verdict rests on",
        means: "each entry gives the file and line, then the text there behind a bar, and below it what it means, where that is not the text itself",
        is_not: "a guess has no proof: its report lists the lines whose words led to it",
        see: &["confidence", "guess"],
        source: "",
    },
    Term {
        name: "confidence",
        also: &[],
        title: "how sure the verdict is",
        means: "high, medium or low, by what shows the cause: how many independent kinds of evidence, and whether the failing rank says it itself",
        is_not: "it is no probability",
        see: &["high", "medium", "low"],
        source: "",
    },
    Term {
        name: "high",
        also: &["high confidence"],
        title: "the surest of three degrees of confidence",
        means: "two independent kinds of evidence agree, or the failing rank states the fault itself: act on it",
        is_not: "",
        see: &["confidence", "medium", "low"],
        source: "",
    },
    Term {
        name: "medium",
        also: &["medium confidence"],
        title: "the middle one of three degrees of confidence",
        means: "one kind of evidence points clearly at the cause: check it with the first command of the report before costly actions",
        is_not: "",
        see: &["confidence", "high", "low"],
        source: "",
    },
    Term {
        name: "low",
        also: &["low confidence"],
        title: "the least of three degrees of confidence",
        means: "an indirect sign, or a guess by the wording: do only what is harmless, and collect first what the report lists as not given",
        is_not: "it does not mean that little is wrong",
        see: &["confidence", "high", "medium"],
        source: "",
    },
    Term {
        name: "guess",
        also: &["guesses", "likeness"],
        title: "a verdict by the wording of the evidence alone",
        means: "no statement and no record shows a cause, but the words resemble those of known jobs with it; the report lists the candidates in order and the commands that would decide",
        is_not: "not a proof: the second candidate is often the right one",
        see: &["undecided", "low"],
        source: "",
    },
    Term {
        name: "harmless",
        also: &[],
        title: "an action that costs the job nothing",
        means: "it only reads, or changes the next run alone, as a corrected program, a setting or another version does; of a message: \
                healthy jobs print it, too",
        is_not: "",
        see: &["disruptive", "destructive"],
        source: "",
    },
    Term {
        name: "disruptive",
        also: &[],
        title: "an action that stops or restarts something",
        means: "the job or a service stops or starts anew: do it when you would restart anyway; a reboot or a reset is destructive",
        is_not: "",
        see: &["harmless", "destructive"],
        source: "",
    },
    Term {
        name: "destructive",
        also: &[],
        title: "an action that loses something",
        means: "state that cannot be had again is lost, as by a reboot or the reset of a GPU, which end every process on it: keep what \
                you need first",
        is_not: "",
        see: &["harmless", "disruptive"],
        source: "",
    },
    Term {
        name: "rank",
        also: &["local rank"],
        title: "the number of a process in the job",
        means: "each process of a job has one, from 0 on, and mostly drives one GPU; the local rank counts within its node",
        is_not: "a rank within a process group may be another number than that in the job",
        see: &["culprit"],
        source: "",
    },
];

/// All words.
fn terms() -> impl Iterator<Item = Term> {
    TERMS
        .iter()
        .chain(sections::TERMS)
        .chain(watching::TERMS)
        .chain(printed::TERMS)
        .chain(field::TERMS)
        .chain(letters::TERMS)
        .copied()
        .chain(watching::of_columns())
        .chain(kinds::all())
}

/// All words, as topics.
pub(super) fn all() -> impl Iterator<Item = Topic> {
    terms().map(|term| topic(&term))
}

/// The names of all words.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    terms().map(|term| term.name)
}

/// The letter of a process's state that is asked for; its case counts.
pub(super) fn letter(name: &str) -> Option<Topic> {
    letters::asked(name).map(topic)
}

/// The word that is asked for, in lower case; with the brackets, the colon or the hyphens of the report, or without.
pub(super) fn get(lower: &str) -> Option<Topic> {
    let bare = |text: &str| text.trim_matches([' ', ':', '[', ']', '`', '…']).replace('-', " ");
    let asked = bare(lower);
    // What was compared is in brackets behind the title. Brackets within a line are its own.
    let head = asked.strip_suffix(')').and_then(|text| text.split(" (").next());
    let asked = head.unwrap_or(&asked);
    let is_called = |term: &Term| {
        std::iter::once(&term.name).chain(term.also).any(|name| bare(name).eq_ignore_ascii_case(asked))
    };
    if let Some(term) = terms().find(is_called) {
        return Some(topic(&term));
    }
    // A line of the program may begin with a number.
    let asked = asked.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(' ')?;
    let is_line = |term: &Term| term.also.contains(&asked) && asked.contains(' ');
    terms().find(is_line).map(|term| topic(&term))
}

fn topic(term: &Term) -> Topic {
    let mut topic = Topic::new(Kind::Term, term.name, term.title);
    topic.meaning = super::topics::sentence(term.means);
    if !term.is_not.is_empty() {
        topic.is_not.push(super::topics::sentence(term.is_not));
    }
    for other in term.see {
        topic.see(*other);
    }
    let source = if term.source.is_empty() { "README.md, Understand the verdict" } else { term.source };
    topic.sources.push(source.to_owned());
    topic
}
