//! What became of each error statement, what is known of the words in it, and the causes that come into question.

use std::collections::BTreeSet;

use ringleader_correlate::Scene;
use ringleader_correlate::said::likeness::Likely;
use ringleader_correlate::said::statements::Stated;
use ringleader_knowledge::{cause, cuda_error, errno, nccl_result, signal};
use ringleader_model::{
    Candidate, Cause, Finding, FormWeight, Host, PicturedStatement, Severity, SourceId, SourceKind,
    StatementRole, Verdict, Weight,
};

use crate::likeness;
use crate::unexplained::{self, Account};

/// Statements that are judged, and those that are kept.
const MAX_JUDGED: usize = 600;
const MAX_KEPT: usize = 200;
/// Sources and hosts of one statement.
const MAX_PLACES: usize = 16;
/// Characters of a line.
const MAX_TEXT: usize = 400;
/// Candidates that are kept.
const MAX_CANDIDATES: usize = 5;
/// More of the words that resemble a cause than this are of tools and the kernel.
const OF_TOOLS: f32 = 0.5;
/// Characters of a line that a candidate quotes.
const QUOTED: usize = 160;

/// The statements, unexplained ones first, then by time; and how many were left out.
pub(super) fn statements(scene: &Scene<'_>, findings: &[Finding]) -> (Vec<PicturedStatement>, usize) {
    let mut all: Vec<&Stated<'_>> = scene.stated().all().iter().collect();
    let n_all = all.len();
    all.sort_by_key(|s| {
        (s.weight() < FormWeight::Strong, s.is_warning(), s.at_ns().is_none(), s.at_ns(), s.count())
    });
    all.truncate(MAX_JUDGED);
    let mut kept: Vec<PicturedStatement> =
        all.into_iter().filter_map(|stated| pictured(scene, stated, findings)).collect();
    kept.sort_by_key(|s| (s.role, s.at.is_none(), s.at.map(|at| at.ns), s.first));
    kept.truncate(MAX_KEPT);
    let n_left_out = n_all.saturating_sub(kept.len());
    (kept, n_left_out)
}

fn pictured(scene: &Scene<'_>, stated: &Stated<'_>, findings: &[Finding]) -> Option<PicturedStatement> {
    let first = stated.first()?;
    let role = match unexplained::account(scene, stated, findings) {
        Account::Unexplained if is_consequence(scene, stated, findings) => StatementRole::Explained,
        Account::Unexplained => StatementRole::Unexplained,
        Account::Explained => StatementRole::Explained,
        Account::Harmless => StatementRole::Harmless,
    };
    let row = stated.row().map_or("", |row| row.id());
    let by = match role {
        StatementRole::Explained => explained_by(stated, findings).map_or(row, |f| f.rule),
        StatementRole::Unexplained | StatementRole::Harmless => row,
    };
    let sources: BTreeSet<SourceId> = stated.utterances.iter().map(|u| u.observation.cite.source).collect();
    let hosts: BTreeSet<&Host> =
        stated.utterances.iter().filter_map(|u| u.observation.who.host.as_ref()).collect();
    Some(PicturedStatement {
        template: first.said.template.clone(),
        text: stated.text().chars().take(MAX_TEXT).collect(),
        count: stated.count(),
        ranks: stated.ranks().into_iter().collect(),
        hosts: hosts.into_iter().take(MAX_PLACES).cloned().collect(),
        sources: sources.into_iter().take(MAX_PLACES).collect(),
        first: first.observation.cite,
        last: stated.utterances.iter().map(|u| u.said.last).max().unwrap_or(first.observation.cite),
        at: first.observation.at,
        role,
        by,
        words: words(stated),
    })
}

/// Something decided, and the statement came after the first sign that the job failed: by time, or below it.
fn is_consequence(scene: &Scene<'_>, stated: &Stated<'_>, findings: &[Finding]) -> bool {
    let decides = |f: &Finding| f.severity == Severity::Error && f.weight > Weight::Echo;
    if !findings.first().is_some_and(decides) {
        return false;
    }
    let sign = scene.failure().first().map(|(_, evidence)| evidence.cite);
    stated.utterances.iter().all(|u| {
        let cite = u.observation.cite;
        let below = sign.is_some_and(|sign| sign.source == cite.source && cite.start >= sign.start);
        below || scene.failure().after(u.observation.at).is_some_and(|(ahead_ns, _)| ahead_ns <= 0)
    })
}

/// The finding that cites a statement, else the one with a cause that the table lists for it, else the first.
fn explained_by<'f>(stated: &Stated<'_>, findings: &'f [Finding]) -> Option<&'f Finding> {
    let causes = stated.causes();
    let cites = |f: &&Finding| f.evidence.iter().any(|e| stated.is_within(e.cite));
    let names = |f: &&Finding| causes.contains(&f.cause);
    findings.iter().find(cites).or_else(|| findings.iter().find(names)).or(findings.first())
}

/// What is known of the words in a line: result codes, errno, signals, exit codes, and the line itself.
fn words(stated: &Stated<'_>) -> Vec<(String, String)> {
    let mut words: Vec<(String, String)> = Vec::new();
    let text = stated.text();
    if let Some(row) = stated.row() {
        words.push((row.by().to_owned(), row.says().to_owned()));
    }
    if let Some(result) = nccl_result::in_text(text) {
        words.push((result.name.to_owned(), result.meaning.to_owned()));
    }
    if let Some(error) = cuda_error::in_text(text) {
        words.push((error.name.to_owned(), error.meaning.to_owned()));
    }
    if let Some(errno) = errno::in_text(text) {
        words.push((errno.name.to_owned(), errno.text.to_owned()));
    }
    let forms = || stated.utterances.iter().map(|u| &u.said.form);
    let by_signal = forms().find_map(|form| signal::get(i64::from(form.signal?)));
    if let Some(signal) = by_signal {
        words.push((signal.name.to_owned(), signal.means.to_owned()));
    }
    if let Some(code) = forms().find_map(|form| form.exit) {
        match signal::exit(code) {
            signal::ExitStatus::Signal(signal) => {
                words.push((format!("exit code {code}"), format!("{}: {}", signal.name, signal.means)));
            }
            signal::ExitStatus::Known(_, means) => {
                words.push((format!("exit code {code}"), means.to_owned()));
            }
            signal::ExitStatus::Normal | signal::ExitStatus::Code(_) => {}
        }
    }
    words.dedup();
    words
}

/// Possible causes, most likely first, each with what points to it and what would decide.
pub(super) fn candidates(scene: &Scene<'_>, verdict: &Verdict) -> Vec<Candidate> {
    let open = unexplained::unexplained(scene, &verdict.findings);
    let mut all: Vec<Candidate> = Vec::new();
    for (cause, weight) in unexplained::candidates(&open) {
        let Some(stated) = open.iter().find(|s| s.causes().contains(&cause)) else { continue };
        let line: String =
            stated.text().lines().next().unwrap_or_default().trim().chars().take(QUOTED).collect();
        let why = stated.row().map_or_else(
            || format!("an unexplained line: {line}"),
            |row| format!("an unexplained line says that {}", row.says()),
        );
        all.push(candidate(cause, weight, why));
    }
    // A finding that is too weak to decide points somewhere, too.
    for finding in verdict.findings.iter().filter(|f| f.severity > Severity::Info) {
        if !all.iter().any(|c| c.cause == finding.cause) {
            all.push(candidate(finding.cause, 1, finding.title.clone()));
        }
    }
    // What the words of the evidence resemble comes behind what a line says.
    // Boot lines of what a collector took, in a bundle or loose, are words of every machine.
    let is_of_tools = |likely: &Likely| {
        let is_taken = |kind: &SourceKind| matches!(kind, SourceKind::Bundle | SourceKind::NodeSnapshot);
        let is_bundle = scene.case().sources.iter().any(|source| source.kinds.iter().any(is_taken));
        (is_bundle || likeness::is_collected(scene.case()))
            && likeness::share_of_tools(scene, &likely.because) > OF_TOOLS
    };
    if let Some(likely) = scene.likeness().likeliest().filter(|likely| !is_of_tools(likely)) {
        let words: Vec<&str> = likely.because.iter().map(|(word, _, _)| word.text()).collect();
        let why = |place: usize| match place {
            0 => format!("the words resemble those of this cause: {}", words.join(", ")),
            _ => "the words resemble those of this cause, less than those of the one before".to_owned(),
        };
        let causes = std::iter::once(likely.cause).chain(likely.next.iter().copied());
        for (place, cause) in causes.enumerate() {
            if !all.iter().any(|c| c.cause == cause) {
                all.push(candidate(cause, 1, why(place)));
            }
        }
    }
    all.truncate(MAX_CANDIDATES);
    all
}

fn candidate(cause: Cause, weight: u32, why: String) -> Candidate {
    let advice = cause::of(cause).advice.iter().find(|a| !a.command.is_empty());
    Candidate {
        cause,
        weight,
        why,
        needs: advice.map(|a| a.text.to_owned()).unwrap_or_default(),
        command: advice.map(|a| a.command.to_owned()).unwrap_or_default(),
    }
}
