//! Training code and launch files, looked at before they run: Python, shell, YAML, Dockerfiles and files of variables to
//! findings.
//!
//! Nothing is imported and nothing executed. Files are values; what cannot be read is a note, and what is not known of
//! a program is assumed to be right.

mod drafting;
mod finding;
mod flow;
mod ignores;
mod language;
mod launch;
mod lookup;
mod python;
mod rule;
pub mod rules;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use rayon::prelude::*;
use ringleader_knowledge::version::NcclVersion;

pub use finding::{Fix, LintFinding, Location, Note, Related};
pub use language::{Language, tell};
pub use ringleader_model::{Confidence, Severity};
pub use rule::{Family, LintRule};

use flow::compare::{Tried, is_made_up_for, try_function};
use flow::facts::Facts;
use python::index::{ClassId, FuncId, Project};
use python::lower;

/// A file: its path as findings cite it, and its text.
#[derive(Clone, Debug)]
pub struct SourceFile {
    /// With `/` between folders.
    pub path: String,
    /// Content of the file.
    pub text: String,
}

/// Selection of rules and confidence.
#[derive(Clone, Debug)]
pub struct LintOptions {
    /// The least confidence of what is reported.
    pub least: Confidence,
    /// The least severity of what is reported: hygiene is info.
    pub least_severity: Severity,
    /// Rules that are reported; empty: all.
    pub select: Vec<String>,
    /// Ids of the rules to leave out.
    pub ignore: Vec<String>,
}

impl Default for LintOptions {
    fn default() -> Self {
        Self {
            least: Confidence::Medium,
            least_severity: Severity::Warning,
            select: Vec::new(),
            ignore: Vec::new(),
        }
    }
}

/// Findings and unread parts of one run.
#[derive(Clone, Debug, Default)]
pub struct LintReport {
    /// Findings in order of place.
    pub findings: Vec<LintFinding>,
    /// Parts of the input that were not read, or only partly.
    pub notes: Vec<Note>,
    /// Files that were read, by language.
    pub n_files: usize,
    /// Findings that a comment in the source ignores.
    pub n_ignored: usize,
}

/// Input of the rules.
pub(crate) struct Scan<'p, 's> {
    pub(crate) project: &'p Project<'s>,
    /// Launch files.
    pub(crate) launch: Vec<launch::Launch<'s>>,
    /// The releases of NCCL that files of requirements and images pin, with their folders.
    pub(crate) installed: BTreeMap<&'s str, NcclVersion>,
    /// Functions that were tried, with what they showed.
    pub(crate) tried: Vec<(FuncId, Tried)>,
}

impl Scan<'_, '_> {
    /// The release of NCCL that a launch file meets: its own image, or what is installed in its folder or the nearest above.
    pub(crate) fn nccl(&self, launch: &launch::Launch<'_>) -> Option<NcclVersion> {
        let mut folder = launch.path;
        let above = std::iter::from_fn(|| {
            let (next, _) = folder.rsplit_once('/').unwrap_or_default();
            (!folder.is_empty()).then(|| {
                folder = next;
                next
            })
        });
        launch.nccl.or_else(|| above.into_iter().find_map(|folder| self.installed.get(folder).copied()))
    }
}

/// Stack of a thread: the parser bounds how deep an expression nests, and the steps of a run how deep it is followed.
const STACK_BYTES: usize = 64 << 20;

/// Looks at the files of one project.
pub fn lint(sources: &[SourceFile], options: &LintOptions) -> LintReport {
    static POOL: OnceLock<Option<rayon::ThreadPool>> = OnceLock::new();
    let pool = POOL.get_or_init(|| rayon::ThreadPoolBuilder::new().stack_size(STACK_BYTES).build().ok());
    match pool {
        Some(pool) => pool.install(|| look(sources, options)),
        None => look(sources, options),
    }
}

fn look(sources: &[SourceFile], options: &LintOptions) -> LintReport {
    let mut report = LintReport::default();
    let told: Vec<(Language, &SourceFile)> =
        sources.par_iter().map(|source| (language::tell(&source.path, &source.text), source)).collect();
    report.n_files = told.iter().filter(|(language, _)| *language != Language::Other).count();
    let mut parsed: Vec<_> = told
        .par_iter()
        .filter(|(language, _)| *language == Language::Python)
        .map(|(_, source)| (*source, lower::parse(&source.text)))
        .collect();
    parsed.sort_by(|(a, _), (b, _)| a.path.cmp(&b.path));
    let mut files = Vec::new();
    for (source, tree) in parsed {
        match tree {
            Ok(tree) => {
                if tree.n_errors > 0 {
                    let n = tree.n_errors;
                    report.notes.push(Note {
                        path: source.path.clone(),
                        text: format!("{n} syntax errors: read around them"),
                    });
                }
                files.push((source.path.as_str(), source.text.as_str(), tree.body));
            }
            Err(refusal) => {
                report.notes.push(Note { path: source.path.clone(), text: refusal.words().to_owned() });
            }
        }
    }
    let sharded: Vec<String> = told
        .par_iter()
        .filter(|(language, source)| {
            matches!(language, Language::Yaml | Language::Json) && language::configures_sharding(&source.text)
        })
        .map(|(_, source)| language::configured_folder(&source.path).to_owned())
        .collect();
    let project = Project::new(files);
    let facts = Facts::new(&project, &sharded);
    let with_local = options.least == Confidence::Low;
    let tried = try_all(&project, &facts, with_local);
    let mut launch: Vec<_> =
        told.par_iter().filter_map(|(language, source)| launch::read(*language, source)).collect();
    launch.sort_by_key(|file| file.path);
    let lists =
        told.iter().filter(|(language, _)| matches!(language, Language::Requirements | Language::Dockerfile));
    let installed = lists
        .filter_map(|(_, source)| {
            let folder = source.path.rsplit_once('/').map_or("", |(folder, _)| folder);
            Some((folder, launch::release::pinned(&source.text)?))
        })
        .collect();
    let scan = Scan { project: &project, launch, installed, tried };
    let mut findings: Vec<LintFinding> =
        rules::ALL.par_iter().flat_map_iter(|rule| (rule.check)(&scan)).collect();
    findings.retain(|finding| {
        finding.confidence >= options.least
            && finding.severity >= options.least_severity
            && (options.select.is_empty() || options.select.iter().any(|id| id == finding.rule))
            && !options.ignore.iter().any(|id| id == finding.rule)
    });
    findings.sort_by(LintFinding::order);
    findings.dedup_by(|a, b| a.rule == b.rule && a.place == b.place);
    let (findings, n_ignored) = ignores::apply(&told, findings, options);
    report.n_ignored = n_ignored;
    report.findings = findings;
    report.findings.sort_by(LintFinding::order);
    report.notes.sort();
    drop((scan, facts));
    // Taking large trees apart costs a tenth of the whole.
    let Project { functions, files, .. } = project;
    files.into_par_iter().for_each(drop);
    functions.into_par_iter().for_each(drop);
    report
}

fn try_all(project: &Project<'_>, facts: &Facts<'_, '_>, with_local: bool) -> Vec<(FuncId, Tried)> {
    let mut candidates: Vec<(FuncId, Option<ClassId>)> = (0..project.functions.len())
        .filter(|id| is_worth_it(facts, *id, with_local) && !is_second_half(project, facts, *id))
        .map(|id| (id, None))
        .collect();
    candidates.extend(
        facts
            .inherited
            .iter()
            .filter(|(id, _)| (facts.decides[*id] && facts.branches[*id]) || with_local)
            .map(|(id, class)| (*id, Some(*class))),
    );
    let mut tried: Vec<(FuncId, Tried)> = candidates
        .into_par_iter()
        .map(|tested| (tested.0, try_function(project, facts, tested, with_local)))
        .collect();
    tried.sort_by_key(|(id, _)| *id);
    keep_nearest(&mut tried);
    tried.par_iter_mut().for_each(|(_, one)| {
        one.divergences.retain(|d| d.is_local || !is_made_up_for(project, facts, d));
    });
    tried
}

/// Whether a function can show anything that those it calls do not show on their own.
fn is_worth_it(facts: &Facts<'_, '_>, id: FuncId, with_local: bool) -> bool {
    let parts = facts.may[id] && facts.branches[id] && (facts.decides[id] || with_local);
    parts || facts.direct[id] || facts.looks[id] || (facts.may[id] && facts.loops[id])
}

/// Whether a function leaves a context manager whose first half communicates: both are tried as one.
fn is_second_half(project: &Project<'_>, facts: &Facts<'_, '_>, id: FuncId) -> bool {
    let func = &project.functions[id];
    func.def.name == "__exit__"
        && func
            .class
            .and_then(|class| project.method(class, "__enter__"))
            .is_some_and(|enter| facts.may[enter])
}

/// A condition that parts processes does so in all callers, too: the function that says most about it is kept.
fn keep_nearest(tried: &mut [(FuncId, Tried)]) {
    let key = |d: &flow::compare::Divergence| (d.decision.test, d.parting.kind(), d.is_local);
    let weight = |id: FuncId, d: &flow::compare::Divergence| {
        (
            !d.decision.is_known,
            !d.is_near,
            d.decision.func != id,
            d.op.at != d.op.from,
            !d.is_usual,
            id,
            d.op.at,
        )
    };
    let mut best = BTreeMap::new();
    for (id, one) in tried.iter() {
        for d in &one.divergences {
            let mine = weight(*id, d);
            let entry = best.entry(key(d)).or_insert(mine);
            *entry = (*entry).min(mine);
        }
    }
    for (id, one) in tried.iter_mut() {
        one.divergences.retain(|d| best.get(&key(d)) == Some(&weight(*id, d)));
    }
}
