//! The words of `watch`: of its screen, its page, its lines and its events. Those of its columns are with the columns.

use super::Term;
use crate::watch::columns;

/// A word whose explanation is in docs/watch.md.
const fn word(
    name: &'static str,
    also: &'static [&'static str],
    title: &'static str,
    means: &'static str,
    see: &'static [&'static str],
) -> Term {
    Term { name, also, title, means, is_not: "", see, source: "docs/watch.md" }
}

/// States of the job first, then states of a rank, and events.
pub(super) const TERMS: &[Term] = &[
    word(
        "stalled",
        &["stall", "stalls"],
        "a communicator, or the job, has stood still for longer than its patience",
        "its operation is in flight and nothing has moved; the line below names the operation, who waits and who is suspected, and the \
         evidence is collected and judged",
        &["patience", "suspected", "moves again", "over"],
    ),
    word(
        "starting",
        &[],
        "the rhythm of the job is not yet known",
        "its communicators are being made, or have done too little to tell what pause is usual",
        &["rhythm", "stalled"],
    ),
    word(
        "running",
        &[],
        "the job has a rhythm and keeps it",
        "operations begin and end; of a rank: it is in no operation that is seen",
        &["rhythm"],
    ),
    word(
        "patience",
        &["patience_s", "expected", "expected_s"],
        "how long a communicator may stand still",
        "a multiple (`--stall-factor`) of its longest usual pause and no less than `--stall-floor`; before the first operations it is \
         longer, and where a process that is waited for is stopped or gone it is 2 s",
        &["rhythm", "still", "stalled"],
    ),
    word(
        "rhythm",
        &[],
        "the usual pauses of a communicator",
        "learnt while the job runs, with the pauses for evaluation and checkpoints; what is much longer breaks it",
        &["patience"],
    ),
    word(
        "slowest",
        &["always last", "at times last", "sometimes last"],
        "the rank that keeps the others waiting most",
        "it enters collectives last, by so many milliseconds in the mean; `always`: in nearly all of them, for good",
        &["late ms"],
    ),
    word(
        "waiting for",
        &["waiting_for"],
        "ranks that have not come to the operation in flight",
        "all others of the communicator wait in it for these",
        &["waiting", "never entered"],
    ),
    word(
        "cannot see",
        &["cannot_see"],
        "what the watcher has no sight of",
        "each line says why, and often what to set for the next start: without the plugin single operations are not seen",
        &["seen by"],
    ),
    word(
        "seen by",
        &["sees"],
        "how the watcher sees the job",
        "by the plugin (every operation), by NCCL RAS (counts of operations), or by its processes alone",
        &["cannot see"],
    ),
    word(
        "suspected",
        &["suspect", "suspects"],
        "ranks to look at first",
        "those for which, through all communicators, the others wait. The verdict that follows names the culprit",
        &["culprit", "stalled"],
    ),
    Term {
        name: "waiting",
        also: &[],
        title: "a rank is inside its operation and waits for others",
        means: "on the screen the state of a rank that has entered. As an event: ranks have waited for 15 s, and no alarm is due yet; the \
                line says for whom, and what those do",
        is_not: "it is a victim, mostly: look at the rank that it waits for",
        see: &["waiting for", "waits", "stalled"],
        source: "docs/watch.md",
    },
    word(
        "never entered",
        &["has not entered", "have not entered"],
        "it has not come to the call in which the others wait",
        "the rank is suspected first: it works, waits elsewhere, has skipped the call, or has ended",
        &["suspected", "behind"],
    ),
    word(
        "not-started",
        &[],
        "it has entered, and its kernel does not start",
        "something earlier on the same GPU is stuck: an older kernel, or another communicator",
        &["never entered", "held"],
    ),
    word(
        "different",
        &[],
        "it has made another call than the others",
        "in the same place of the communicator's order: another operation, size or type",
        &["shape-mismatch", "skipped-collective"],
    ),
    word(
        "entered",
        &[],
        "it is in the operation",
        "whether its kernel has started is not seen",
        &["waiting"],
    ),
    word(
        "finished",
        &[],
        "it has ended the operation in which others are",
        "the front of its communicator has passed it",
        &["waiting"],
    ),
    word(
        "idle",
        &[],
        "no operation of it is in flight",
        "it computes, loads data, or waits outside of NCCL",
        &["in flight"],
    ),
    word(
        "dead",
        &[],
        "its process is no longer there",
        "how it ended is in the evidence, if it was seen",
        &["gone", "state X"],
    ),
    word(
        "uninterruptible",
        &[],
        "its process waits in the kernel and cannot be ended",
        "state D for longer than a moment: mostly for storage or a driver; the function of the kernel stands beside it",
        &["state D", "process-uninterruptible"],
    ),
    word(
        "moves again",
        &["recovered"],
        "a stall is over",
        "its communicator goes on, and 2 s later no rank of it has ended",
        &["stalled", "over"],
    ),
    word(
        "over",
        &["until ranks of it ended"],
        "a stall is over, and nothing moves again",
        "ranks of the stall have ended: somebody ended the job, or its launcher did",
        &["stalled", "moves again"],
    ),
];

/// The words that columns explain.
pub(super) fn of_columns() -> impl Iterator<Item = Term> {
    columns::words().map(|own| word(own.name, own.also, own.title, own.means, own.see))
}

#[cfg(test)]
mod tests {
    use crate::explain::answer::Kind;
    use crate::watch::columns::explained_heads;

    #[test]
    fn what_is_more_than_a_plain_name_is_explained() {
        for head in explained_heads() {
            let topics = crate::explain::explain(head).topics;
            assert!(topics.first().is_some_and(|topic| topic.kind == Kind::Term), "{head}");
        }
    }
}
