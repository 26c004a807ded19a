//! What no finding explains. A clean bill needs that nothing is left here.
//!
//! Each statement of failure ends as one of three: explained by a finding (its cause, or its echo), known to be
//! harmless by a row of the message table, or unexplained.

use std::collections::BTreeMap;

use crate::drafting::QUOTED_CHARS;
use ringleader_correlate::Scene;
use ringleader_correlate::said::statements::Stated;
use ringleader_knowledge::message::Role;
use ringleader_model::{
    Asks, Category, Cause, Cite, Fact, Finding, FormWeight, NcclComm, NcclProcess, Need, Severity, Source,
    SourceKind, Weight,
};

/// Statements that a report shows.
const SHOWN: usize = 5;
/// Candidates that a report shows.
const CANDIDATES: usize = 5;

/// How a statement ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    /// A finding is its cause or cites it.
    Explained,
    /// A row says that healthy jobs print it.
    Harmless,
    /// No finding and no row explains it.
    Unexplained,
}

/// The unexplained statements, the most relevant first.
pub(crate) fn unexplained<'s, 'a>(scene: &'s Scene<'a>, findings: &[Finding]) -> Vec<&'s Stated<'a>> {
    let mut open: Vec<&Stated<'_>> =
        scene.stated().all().iter().filter(|s| account(scene, s, findings) == Account::Unexplained).collect();
    // The earliest, of the fewest ranks, of the rarest template, with a row before one without.
    open.sort_by_key(|s| {
        (
            s.causes().is_empty(),
            s.weight() < FormWeight::Strong,
            s.at_ns().is_none(),
            s.at_ns(),
            s.ranks().len(),
            s.count(),
        )
    });
    open
}

/// What is missing for a clean bill, in words.
pub(crate) fn unproven(scene: &Scene<'_>) -> &'static str {
    if scene.stacks().next().is_some() {
        "stacks were taken, but nothing shows that the job makes progress"
    } else if scene.nccl_logs().next().is_some() {
        "NCCL began to start, but nothing shows that a communicator was created or that the job made progress"
    } else {
        "nothing here was understood: no line reports a failure, and none shows a job that makes progress"
    }
}

/// Why signs of health do not suffice, in words.
pub(crate) fn doubtful(scene: &Scene<'_>) -> String {
    let seen = if scene.course().text().goes_on() {
        "steps advance and no line reports a failure"
    } else {
        "no line reports a failure"
    };
    let alike = scene
        .likeness()
        .likeliest()
        .map_or_else(String::new, |likely| format!(" (most of all one of {})", likely.cause.id()));
    format!("{seen}, but the evidence resembles that of faulty jobs{alike} more than that of healthy ones")
}

/// How one statement ends.
pub(crate) fn account(scene: &Scene<'_>, stated: &Stated<'_>, findings: &[Finding]) -> Account {
    let decisive = |f: &&Finding| f.weight > Weight::Echo && f.severity > Severity::Info;
    let role = stated.role();
    if role == Some(Role::Harmless) {
        return Account::Harmless;
    }
    if findings.iter().any(|f| f.evidence.iter().any(|e| stated.is_within(e.cite))) {
        return Account::Explained;
    }
    let causes = stated.causes();
    if findings.iter().filter(decisive).any(|f| role == Some(Role::Echo) || causes.contains(&f.cause)) {
        return Account::Explained;
    }
    // A word in a line of a low level that no row knows means nothing.
    let is_chatter = stated.rows.is_empty() && (stated.weight() < FormWeight::Strong || stated.is_warning());
    let is_late = scene.course().was_said_after_the_end(stated) && !stated.is_an_end();
    if is_chatter || is_late || benign_claim(scene, stated) || scene.course().was_outlived(stated) {
        return Account::Harmless;
    }
    if findings.iter().filter(decisive).any(|f| f.severity == Severity::Error && follows(scene, stated, f)) {
        return Account::Explained;
    }
    Account::Unexplained
}

/// The readers' own table calls the line harmless.
fn benign_claim(scene: &Scene<'_>, stated: &Stated<'_>) -> bool {
    use ringleader_knowledge::message::Role as Claimed;
    let mut claims = scene.claims().all().iter().filter(|c| stated.is_within(c.cite)).peekable();
    claims.peek().is_some() && claims.all(|c| c.saying.role == Claimed::Harmless)
}

/// Whether a statement comes after what a finding cites: by time, or later in the same source.
fn follows(scene: &Scene<'_>, stated: &Stated<'_>, finding: &Finding) -> bool {
    let Some(first) = stated.first() else { return false };
    let behind = |cite: Cite| {
        let place = first.observation.cite;
        place.source == cite.source && place.start >= cite.start
    };
    if finding.evidence.iter().any(|e| behind(e.cite)) {
        return true;
    }
    let cited = |cite: Cite| {
        let at = scene.case().observations.iter().find(|o| o.cite == cite).and_then(|o| o.at);
        at.map(|t| t.ns)
    };
    let at = finding.at_ns.or_else(|| finding.evidence.iter().filter_map(|e| cited(e.cite)).min());
    matches!((stated.at_ns(), at), (Some(said), Some(at)) if said >= at)
}

/// What statements without a finding suggest: causes with their weight, the likeliest first.
pub(crate) fn candidates(open: &[&Stated<'_>]) -> Vec<(Cause, u32)> {
    let mut weights: BTreeMap<Cause, u32> = BTreeMap::new();
    for stated in open {
        for (place, cause) in stated.causes().into_iter().enumerate() {
            // The first of a row's causes counts most.
            let weight = 12 / (place as u32 + 1);
            *weights.entry(cause).or_default() += weight;
        }
    }
    let mut all: Vec<(Cause, u32)> = weights.into_iter().collect();
    all.sort_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(&b.0)));
    all.truncate(CANDIDATES);
    all
}

/// The statements that matter as open questions: the line, and what is known of it.
pub(crate) fn needs(open: &[&Stated<'_>]) -> Vec<Need> {
    open.iter()
        .take(SHOWN)
        .map(|stated| {
            let known = stated.row().map_or_else(String::new, |row| format!(" - it means: {}", row.says()));
            let n = if stated.count() > 1 { format!(" ({} times)", stated.count()) } else { String::new() };
            // Advice is prose, no command.
            let action = stated.row().map(ringleader_knowledge::message::MessageRow::action);
            let action = action.filter(|a| !a.is_empty()).map(|a| format!("; {a}")).unwrap_or_default();
            let asked =
                stated.row().map_or_else(|| "'<the line>'".to_owned(), |row| format!("message {}", row.id()));
            Need {
                question: format!("no finding accounts for this line{n}: {}{known}{action}", line(stated)),
                command: format!("ringleader explain {asked}"),
                asks: Asks::Line,
            }
        })
        .collect()
}

/// The candidates as one open question.
pub(crate) fn likely(open: &[&Stated<'_>]) -> Option<Need> {
    let all = candidates(open);
    let (first, ..) = all.first()?;
    let command = format!("ringleader explain {}", first.id());
    let names: Vec<&str> = all.iter().map(|(cause, ..)| cause.id()).collect();
    Some(Need {
        question: format!("candidates that fit these lines, most likely first: {}", names.join(", ")),
        command,
        asks: Asks::Candidates,
    })
}

/// The first of them in words, for the summary.
pub(crate) fn summary(open: &[&Stated<'_>]) -> Option<String> {
    let first = open.first()?;
    let what = if open.len() == 1 {
        "one error statement is unexplained".to_owned()
    } else {
        format!("{} error statements are unexplained; the first", open.len())
    };
    Some(format!("{what}: {}", line(first)))
}

/// What the operator sees, by the statements' own words.
pub(crate) fn category(open: &[&Stated<'_>]) -> Option<Category> {
    open.iter().map(|s| s.category()).find(|c| *c != Category::None)
}

fn line(stated: &Stated<'_>) -> String {
    stated.text().lines().next().unwrap_or_default().trim().chars().take(QUOTED_CHARS).collect()
}

/// Signs that the job went on or ended well: steps that advance, or its own line that it is done; tables and logs of
/// known kinds count by themselves. Stacks do not: they are taken of a job that is thought to hang.
pub(crate) fn shows_health(scene: &Scene<'_>) -> bool {
    let case = scene.case();
    let has = |kind| case.sources.iter().any(|s| s.kinds.contains(&kind));
    // Records of operations show by themselves whether the job goes on; `has_records` counts any log of NCCL's.
    let has_calls = case.observations.iter().any(|o| match &o.fact {
        Fact::Flight(_) | Fact::Ring(_) => true,
        Fact::Nccl(log) => !log.calls.is_empty(),
        _ => false,
    });
    let is_watched = has(SourceKind::NodeSnapshot) || has(SourceKind::Ring);
    if has(SourceKind::Stacks) && !is_watched && !has_calls {
        return scene.course().text().is_done();
    }
    if scene.course().text().goes_on() {
        return true;
    }
    // Communicators without a recorded creation, and no operation in any of them.
    let is_made = |comm: &NcclComm| comm.completed.is_some() || comm.destroyed.is_some();
    let comms = || scene.nccl_logs().flat_map(|(_, log)| &log.comms).filter(|comm| comm.n_ranks > 1);
    let is_start_alone = if scene.nccl_logs().flat_map(|(_, log)| &log.comms).next().is_some() {
        comms().next().is_some() && !comms().any(is_made)
    } else {
        // Not even begun: its networks were looked for, and that is all there is.
        let has_begun = |p: &NcclProcess| p.bootstrap.is_some() || p.network.is_some();
        let is_of_nccl =
            |s: &Source| s.kinds.iter().all(|k| matches!(k, SourceKind::NcclLog | SourceKind::PlainText));
        scene.nccl_logs().flat_map(|(_, log)| &log.processes).any(has_begun)
            && case.sources.iter().all(is_of_nccl)
    };
    let measures = case.observations.iter().any(|o| matches!(o.fact, Fact::Bench(_) | Fact::Timeline(_)));
    let is_known = |source: &&Source| crate::health::is_known(source);
    case.sources.iter().any(|source| is_known(&source))
        && (!is_start_alone || measures || is_watched || has_calls)
}
