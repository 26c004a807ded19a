//! What the lint of the source says of the places that a diagnosis names.

use std::path::{Path, PathBuf};

use ringleader_lint::{Confidence, Finding, Options, Severity, rules};
use ringleader_report::json::{self, Action, Evidence, Place, Report};

use super::sources;
use crate::failure::Failure;

/// Findings of the lint that a report quotes.
const MAX_QUOTED: usize = 3;

/// Adds the lint of the functions in which ranks to blame stood, with the condition in the source. Its findings support
/// the verdict; they change neither it nor the exit code.
///
/// # Errors
/// If the folder does not exist.
pub(crate) fn quote(report: &mut Report, folder: &Path) -> Result<(), Failure> {
    let culprits = report.verdict.culprits.iter().chain(report.findings.iter().flat_map(|f| &f.culprits));
    let mut places: Vec<Place> = culprits.filter_map(|culprit| culprit.place.clone()).collect();
    places.extend(report.ranks.iter().filter_map(|row| row.place.clone()));
    places.dedup();
    if places.is_empty() {
        return Ok(());
    }
    let sources = sources(&[PathBuf::from(folder)], false)?;
    let options = Options { least: Confidence::Low, least_severity: Severity::Warning, ..Options::default() };
    let found = ringleader_lint::lint(&sources, &options).findings;
    let named = found.iter().filter(|finding| places.iter().any(|place| is_about(finding, place)));
    let category = report.verdict.category;
    let quoted: Vec<json::Finding> =
        named.take(MAX_QUOTED).filter_map(|finding| supporting(finding, category)).collect();
    report.findings.extend(quoted);
    Ok(())
}

/// Whether a finding is about the function of a place, or cites its line.
fn is_about(finding: &Finding, place: &Place) -> bool {
    let name = |path: &str| path.rsplit(['/', '\\']).next().unwrap_or_default().to_owned();
    let file = name(&place.file);
    let spots =
        || std::iter::once(&finding.place).chain(finding.related.iter().map(|related| &related.place));
    let last = finding.place.function.rsplit('.').next().unwrap_or_default();
    let is_function = !last.is_empty() && place.function.as_deref() == Some(last);
    let is_line = spots().any(|spot| name(&spot.path) == file && Some(spot.line) == place.line);
    (name(&finding.place.path) == file && is_function) || is_line
}

fn supporting(finding: &Finding, category: json::Category) -> Option<json::Finding> {
    let rule = rules::all().find(|rule| rule.id == finding.rule)?;
    let cite = |path: &str, line: u32, text: String| Evidence {
        source: path.to_owned(),
        line: Some(line),
        span: [0, 0],
        text,
        context: None,
    };
    let own = &finding.place;
    let mut evidence = vec![cite(&own.path, own.line, own.text.clone())];
    evidence.extend(
        finding
            .related
            .iter()
            .map(|r| cite(&r.place.path, r.place.line, format!("{}: {}", r.text, r.place.text))),
    );
    Some(json::Finding {
        id: finding.rule.to_owned(),
        cause: rule.predicts.id().to_owned(),
        category,
        severity: json::Severity::Info,
        confidence: finding.confidence.into(),
        title: format!("the source says: {}", finding.title),
        culprits: Vec::new(),
        evidence,
        actions: vec![Action { text: finding.help.clone(), command: None, impact: json::Impact::Harmless }],
    })
}

#[cfg(test)]
mod tests {
    use ringleader_lint::Source;

    use super::*;

    const TEXT: &str = "import torch.distributed as dist\n\ndef save(path):\n    if dist.get_rank() == 0:\n        dist.barrier()\n";

    fn found() -> Vec<Finding> {
        let source = Source { path: "src/train.py".to_owned(), text: TEXT.to_owned() };
        ringleader_lint::lint(&[source], &Options::default()).findings
    }

    fn place(file: &str, line: u32, function: &str) -> Place {
        Place { file: file.to_owned(), line: Some(line), function: Some(function.to_owned()) }
    }

    #[test]
    fn the_function_of_a_place_is_quoted_with_its_condition() {
        let found = found();
        assert_eq!(found.len(), 1);
        assert!(is_about(&found[0], &place("/job/src/train.py", 9, "save")));
        assert!(is_about(&found[0], &place("/job/src/train.py", 5, "<module>")));
        assert!(!is_about(&found[0], &place("/job/src/train.py", 9, "load")));
        assert!(!is_about(&found[0], &place("/job/src/other.py", 9, "save")));
        let quoted = supporting(&found[0], json::Category::Hang);
        let said =
            quoted.map(|f| (f.cause, f.evidence.into_iter().map(|e| (e.line, e.text)).collect::<Vec<_>>()));
        let Some((cause, cited)) = said else { unreachable!("a rule of the list") };
        assert_eq!(cause, "skipped-collective");
        assert!(
            cited.iter().any(|(line, text)| *line == Some(4) && text.contains("the condition")),
            "{cited:?}"
        );
    }
}
