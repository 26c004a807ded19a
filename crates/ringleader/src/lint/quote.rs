//! What the lint of the source says of the functions that a diagnosis names.

use std::path::{Path, PathBuf};

use ringleader_knowledge::cause;
use ringleader_lint::{Confidence, LintFinding, LintOptions, Severity, SourceFile, rules};
use ringleader_report::json::{
    self, Action, Category, Context, Evidence, Location, LookedAt, Note, Report, Stack,
};

use super::sources;
use crate::failure::Failure;

/// Findings of the lint that a report quotes.
const MAX_QUOTED: usize = 3;
/// Lines before and after a quoted one.
const N_AROUND: usize = 2;
/// Kind of evidence that the source is.
const KIND: &str = "source-code";

/// Adds the lint of the functions in which the ranks to blame stood, or else those of the ranks that wait for them, with the
/// condition in the source. These findings support the verdict; they change neither it nor the exit code.
///
/// # Errors
/// If the folder does not exist.
pub(crate) fn quote(report: &mut Report, folder: &Path) -> Result<(), Failure> {
    let mut sources = sources(&[PathBuf::from(folder)], false)?;
    for source in &mut sources {
        if let Ok(below) = Path::new(&source.path).strip_prefix(folder) {
            source.path = below.to_string_lossy().into_owned();
        }
    }
    let named = [blamed(report), waiting(report)];
    let options =
        LintOptions { least: Confidence::Low, least_severity: Severity::Warning, ..LintOptions::default() };
    let found = ringleader_lint::lint(&sources, &options).findings;
    let category = report.verdict.category;
    let quoted = named.iter().map(|places| about(&found, places, &sources, category)).find(|f| !f.is_empty());
    let quoted = quoted.unwrap_or_default();
    let mut files: Vec<String> = quoted.iter().map(|finding| finding.place.path.clone()).collect();
    files.dedup();
    let text = format!(
        "{} files of source: the lint quotes {} findings about the functions in which ranks stand",
        sources.len(),
        quoted.len()
    );
    let mut notes = vec![Note { kind: "remark".to_owned(), line: None, text, is_empty: false }];
    if files.is_empty() {
        files.push(folder.to_string_lossy().into_owned());
    }
    report.findings.extend(quoted.iter().filter_map(|finding| supporting(finding, &sources)));
    report.looked_at.extend(files.into_iter().map(|source| LookedAt {
        source,
        kind: KIND.to_owned(),
        notes: std::mem::take(&mut notes),
    }));
    Ok(())
}

/// Where the culprits stood: the place that the verdict names first, then the other frames of the program.
fn blamed(report: &Report) -> Vec<Location> {
    let culprits = &report.verdict.culprits;
    let mut places: Vec<Location> = culprits.iter().filter_map(|culprit| culprit.place.clone()).collect();
    let ranks: Vec<u32> = culprits.iter().filter_map(|culprit| culprit.rank).collect();
    report.stacks.iter().for_each(|stack| own_frames(stack, &|rank| ranks.contains(&rank), &mut places));
    places
}

/// Where anybody stood.
fn waiting(report: &Report) -> Vec<Location> {
    let mut places: Vec<Location> = report.ranks.iter().filter_map(|row| row.place.clone()).collect();
    report.stacks.iter().for_each(|stack| own_frames(stack, &|_| true, &mut places));
    places
}

/// The frames of the program through which some of the ranks go, innermost first.
fn own_frames(stack: &Stack, is_meant: &dyn Fn(u32) -> bool, places: &mut Vec<Location>) {
    if !numbers(&stack.ranks).any(is_meant) {
        return;
    }
    for child in &stack.children {
        own_frames(child, is_meant, places);
    }
    places.extend(stack.frames.iter().rev().filter(|frame| frame.own).map(|frame| frame.place.clone()));
}

/// `0-1,3`.
fn numbers(ranks: &str) -> impl Iterator<Item = u32> + '_ {
    let ranges = ranks.split(',').filter_map(|part| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse().ok()?..=to.parse().ok()?)
    });
    ranges.flatten()
}

/// Findings about these places, in the order of the places; of rules that predict what happened.
fn about<'f>(
    found: &'f [LintFinding],
    places: &[Location],
    sources: &[SourceFile],
    category: Category,
) -> Vec<&'f LintFinding> {
    let predicts = |finding: &LintFinding| {
        let rule = rules::all().find(|rule| rule.id == finding.rule);
        rule.is_some_and(|rule| Category::from(cause::category(rule.predicts)) == category)
    };
    let mut list: Vec<&LintFinding> = Vec::new();
    for place in places {
        let files = files_of(&place.file, sources);
        let mut near: Vec<&LintFinding> =
            found.iter().filter(|finding| predicts(finding) && is_about(finding, place, &files)).collect();
        near.sort_by_key(|finding| std::cmp::Reverse(finding.confidence));
        for finding in near {
            let is_known =
                list.iter().any(|other| other.place == finding.place && other.rule == finding.rule);
            if !is_known && list.len() < MAX_QUOTED {
                list.push(finding);
            }
        }
    }
    list
}

/// The files of the source that a file of the job may be: of those with its name, those whose folders agree longest.
fn files_of<'a>(file: &str, sources: &'a [SourceFile]) -> Vec<&'a str> {
    let parts = |path: &str| path.split(['/', '\\']).map(str::to_owned).collect::<Vec<_>>();
    let wanted = parts(file);
    let agreed =
        |path: &str| parts(path).iter().rev().zip(wanted.iter().rev()).take_while(|(a, b)| a == b).count();
    let most = sources.iter().map(|source| agreed(&source.path)).max().unwrap_or_default();
    let best = sources.iter().filter(|source| most > 0 && agreed(&source.path) == most);
    best.map(|source| source.path.as_str()).collect()
}

/// Whether a finding is about the function of a place, or cites its line.
fn is_about(finding: &LintFinding, place: &Location, files: &[&str]) -> bool {
    let name = place.function.as_deref().unwrap_or_default().rsplit('.').next().unwrap_or_default();
    let own = finding.place.function.rsplit('.').next().unwrap_or_default();
    let is_top = name == "<module>" && own.is_empty();
    let is_function =
        files.contains(&finding.place.path.as_str()) && (is_top || (!own.is_empty() && own == name));
    let spots = std::iter::once(&finding.place).chain(finding.related.iter().map(|related| &related.place));
    is_function
        || place.line.is_some_and(|line| {
            spots.into_iter().any(|spot| {
                files.contains(&spot.path.as_str()) && (spot.line..=spot.end_line).contains(&line)
            })
        })
}

fn supporting(finding: &LintFinding, sources: &[SourceFile]) -> Option<json::Finding> {
    let rule = rules::all().find(|rule| rule.id == finding.rule)?;
    let mut evidence = vec![cite(&finding.place, finding.place.text.clone(), sources)];
    evidence.extend(
        finding.related.iter().map(|related| {
            cite(&related.place, format!("{}: {}", related.text, related.place.text), sources)
        }),
    );
    Some(json::Finding {
        id: finding.rule.to_owned(),
        cause: rule.predicts.id().to_owned(),
        category: cause::category(rule.predicts).into(),
        severity: json::Severity::Info,
        confidence: finding.confidence.into(),
        title: format!("in the source: {}", finding.title),
        culprits: Vec::new(),
        evidence,
        actions: vec![Action { text: finding.help.clone(), command: None, impact: json::Impact::Harmless }],
        call: None,
    })
}

/// A line of the source with those around it.
fn cite(place: &ringleader_lint::Location, text: String, sources: &[SourceFile]) -> Evidence {
    let source = sources.iter().find(|source| source.path == place.path);
    let at = place.line.saturating_sub(1) as usize;
    let mut span = [0, 0];
    let context = source.map(|source| {
        let start: usize = source.text.split_inclusive('\n').take(at).map(str::len).sum();
        let lines: Vec<&str> = source.text.lines().collect();
        let end = start + lines.get(at).map_or(0, |line| line.len());
        span = [start as u64, end as u64];
        let own = |from: usize, to: usize| -> Vec<String> {
            lines.get(from..to.min(lines.len())).unwrap_or_default().iter().map(|l| (*l).to_owned()).collect()
        };
        let before = at.saturating_sub(N_AROUND);
        Context {
            line: place.line.max(1),
            before: own(before, at),
            lines: own(at, at + 1),
            after: own(at + 1, at + 1 + N_AROUND),
        }
    });
    Evidence { source: place.path.clone(), line: Some(place.line.max(1)), span, text, context }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "import torch.distributed as dist\n\ndef save(path):\n    if dist.get_rank() == 0:\n        dist.barrier()\n";

    fn source(path: &str) -> SourceFile {
        SourceFile { path: path.to_owned(), text: TEXT.to_owned() }
    }

    fn place(file: &str, line: u32, function: &str) -> Location {
        Location { file: file.to_owned(), line: Some(line), function: Some(function.to_owned()) }
    }

    fn n_about(place: Location, category: Category) -> usize {
        let sources = [source("src/train.py")];
        let found = ringleader_lint::lint(&sources, &LintOptions::default()).findings;
        assert_eq!(found.len(), 1);
        about(&found, &[place], &sources, category).len()
    }

    #[test]
    fn the_function_or_the_line_of_a_place_is_meant() {
        assert_eq!(n_about(place("/job/src/train.py", 9, "save"), Category::Hang), 1);
        assert_eq!(n_about(place("/job/src/train.py", 5, "<module>"), Category::Hang), 1);
        assert_eq!(n_about(place("/job/src/train.py", 9, "load"), Category::Hang), 0);
        assert_eq!(n_about(place("/job/src/other.py", 9, "save"), Category::Hang), 0);
        // What the rule predicts is no corruption.
        assert_eq!(n_about(place("/job/src/train.py", 9, "save"), Category::Corruption), 0);
    }

    #[test]
    fn of_files_with_one_name_the_nearest_is_meant() {
        let sources = [source("a/utils.py"), source("b/utils.py"), source("c/other.py")];
        assert_eq!(files_of("/srv/job/b/utils.py", &sources), ["b/utils.py"]);
        assert_eq!(files_of("/srv/job/utils.py", &sources), ["a/utils.py", "b/utils.py"]);
        assert!(files_of("/srv/job/main.py", &sources).is_empty());
    }

    #[test]
    fn the_condition_is_cited_with_its_lines() {
        let sources = [source("train.py")];
        let found = ringleader_lint::lint(&sources, &LintOptions::default()).findings;
        let quoted = found.first().and_then(|finding| supporting(finding, &sources));
        let Some(quoted) = quoted else { unreachable!("a rule of the list") };
        assert_eq!(quoted.cause, "skipped-collective");
        let condition = quoted.evidence.iter().find(|cited| cited.line == Some(4));
        let Some(condition) = condition else { unreachable!("{:?}", quoted.evidence) };
        assert!(condition.text.contains("the condition: dist.get_rank() == 0"), "{}", condition.text);
        assert_eq!(condition.raw().as_deref(), Some("    if dist.get_rank() == 0:"));
        assert_eq!(
            TEXT.get(condition.span[0] as usize..condition.span[1] as usize),
            condition.raw().as_deref()
        );
    }

    #[test]
    fn ranks_are_read_as_they_are_written() {
        assert_eq!(numbers("0-2,5").collect::<Vec<_>>(), [0, 1, 2, 5]);
        assert_eq!(numbers("").count(), 0);
    }
}
