//! The report of one node as a table for a terminal.

use std::fmt::Write as _;

use ringleader_check::ChangeKind;
use ringleader_check::{CheckResult, CheckState, Impact, NodeReport};
use ringleader_report::{Detail, TextStyle, quote};

/// One line for each check; under a bad one what is not well, and what to do.
pub fn render(report: &NodeReport, look: &TextStyle) -> String {
    let mut out = String::new();
    let n_of = |verdict| report.checks.iter().filter(|check| check.verdict == verdict).count();
    // A node that shows no GPU is not one whose GPUs are well.
    let is_unseen = |check: &CheckResult| check.id == "gpus-present" && check.verdict == CheckState::Skipped;
    let is_without_gpus = report.checks.iter().any(is_unseen);
    // Writing to a String does not fail.
    let _ = writeln!(
        out,
        "{}: {} fail, {} warn, {} ok, {} skipped{}; read in {} ms",
        quote::plain(&report.host),
        n_of(CheckState::Fail),
        n_of(CheckState::Warn),
        n_of(CheckState::Ok),
        n_of(CheckState::Skipped),
        if is_without_gpus { ", no GPU was checked" } else { "" },
        report.took_ms
    );
    let width = report.checks.iter().map(|check| check.id.len()).max().unwrap_or(0);
    let mut area = "";
    for check in &report.checks {
        if look.detail == Detail::Verdict && check.verdict <= CheckState::Ok {
            continue;
        }
        if check.area != area {
            area = &check.area;
            let _ = writeln!(out, "\n{area}");
        }
        let mark = mark(check.verdict, look);
        let room = look.width.saturating_sub(width + 12).max(20);
        // What several checks lack is said once, and whole.
        let mut others = report.checks.iter().filter(|other| lacks_the_same(other, check));
        let first = others.next().filter(|first| first.id != check.id);
        let is_shared = first.is_none() && others.next().is_some();
        let is_listed = check.verdict > CheckState::Ok && look.detail > Detail::Verdict
            || look.detail == Detail::Everything;
        // What stands below is not counted above.
        let shown = lead(check).filter(|_| is_listed).unwrap_or_else(|| check.summary.clone());
        let summary = first.map_or_else(|| quote::plain(&shown), |first| format!("as {}", first.id));
        // What is not well is said whole; of the rest as much as fits.
        let is_whole = check.verdict > CheckState::Ok || is_shared || look.detail == Detail::Everything;
        let mut rows = if is_whole { quote::wrap(&summary, room) } else { vec![clip(&summary, room)] };
        if rows.is_empty() {
            rows.push(String::new());
        }
        for (n, row) in rows.iter().enumerate() {
            if n == 0 {
                let _ = writeln!(out, "  {mark}  {:width$}  {row}", check.id);
            } else {
                let _ = writeln!(out, "        {:width$}  {row}", "");
            }
        }
        if is_listed {
            details(&mut out, check, look);
        }
    }
    if !report.changes.is_empty() {
        let _ = writeln!(out, "\nchanged since the baseline");
        for change in &report.changes {
            let what = match change.kind {
                ChangeKind::Gone => format!("was {}, could not be read now", change.before),
                ChangeKind::Restarted => {
                    format!("was reset: was {}, is {}", change.before, change.now)
                }
                ChangeKind::Grew => format!("has increased from {} to {}", change.before, change.now),
                ChangeKind::Worse | ChangeKind::Changed => {
                    format!("was {}, is {}", change.before, change.now)
                }
            };
            let line = format!("{}: {what}", change.key);
            for row in quote::wrap(&quote::plain(&line), look.width.saturating_sub(2).max(20)) {
                let _ = writeln!(out, "  {row}");
            }
        }
    }
    out
}

/// Whether two checks, or one with itself, could not be made for the same reason.
fn lacks_the_same(other: &CheckResult, check: &CheckResult) -> bool {
    let is_skipped = |check: &CheckResult| check.verdict == CheckState::Skipped;
    is_skipped(other) && is_skipped(check) && other.summary == check.summary
}

/// The first of several items, which begins the summary.
fn lead(check: &CheckResult) -> Option<String> {
    let first = check.items.first()?;
    let line = format!("{}: {}", first.subject, first.text);
    check.summary.starts_with(&line).then_some(line)
}

/// What is not well, unless the row of the check has said it.
fn details(out: &mut String, check: &CheckResult, look: &TextStyle) {
    let room = look.width.saturating_sub(12).max(20);
    let is_whole = look.detail == Detail::Everything;
    let said = lead(check).unwrap_or_else(|| check.summary.clone());
    for item in &check.items {
        let line = format!("{}: {}", item.subject, item.text);
        let rows = |text: &str, room: usize| {
            let text = quote::plain(text);
            // What is not well is said whole.
            let is_wrapped = is_whole || item.verdict > CheckState::Ok;
            if is_wrapped { quote::wrap(&text, room) } else { vec![clip(&text, room)] }
        };
        if line != said {
            for row in rows(&line, room) {
                let _ = writeln!(out, "          {row}");
            }
        }
        if !item.evidence.is_empty() && is_whole {
            for row in rows(&item.evidence, room - 2) {
                let _ = writeln!(out, "            {row}");
            }
        }
    }
    for fix in &check.fixes {
        let impact = match fix.impact {
            Impact::Harmless => "harmless",
            Impact::Disruptive => "disruptive",
            Impact::Destructive => "destructive",
        };
        let _ = writeln!(out, "          -> {} ({impact})", quote::plain(&fix.text));
        if let Some(command) = &fix.command {
            let _ = writeln!(out, "             {}", quote::plain(command));
        }
    }
}

fn mark(verdict: CheckState, look: &TextStyle) -> String {
    let (word, color) = match verdict {
        CheckState::Fail => ("FAIL", "31;1"),
        CheckState::Warn => ("warn", "33"),
        CheckState::Ok => ("ok  ", "32"),
        CheckState::Skipped => ("skip", "2"),
    };
    if look.color { format!("\x1b[{color}m{word}\x1b[0m") } else { word.to_owned() }
}

/// Cuts a line that is too wide; all of it is in the JSON.
fn clip(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return text.to_owned();
    }
    text.chars().take(width - 1).chain(['…']).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_item_that_is_not_well_stands_once_and_whole() {
        let item = |text: &str| ringleader_check::Item {
            subject: "all ranks".to_owned(),
            verdict: CheckState::Warn,
            text: text.to_owned(),
            evidence: String::new(),
        };
        let long = "no NCCL up to 2.30.7 and no PyTorch is known to read a variable with the name NCCL_FOO";
        let check = CheckResult {
            id: "job-environment".to_owned(),
            area: "job".to_owned(),
            verdict: CheckState::Warn,
            summary: "all ranks: yes reads as 0 (and 1 more)".to_owned(),
            drains: false,
            items: vec![item("yes reads as 0"), item(long)],
            fixes: Vec::new(),
        };
        let report = NodeReport { checks: vec![check], ..NodeReport::default() };
        let text = render(&report, &TextStyle { width: 80, color: false, detail: Detail::Usual });
        let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
        assert_eq!(words.matches("yes reads as 0").count(), 1, "{text}");
        assert!(!words.contains("more)") && words.contains(long), "{text}");
        let short = render(&report, &TextStyle { width: 80, color: false, detail: Detail::Verdict });
        assert!(short.contains("(and 1 more)"), "{short}");
    }

    #[test]
    fn what_several_checks_lack_is_said_once() {
        let check = |id: &str, summary: &str| CheckResult {
            id: id.to_owned(),
            area: "gpu".to_owned(),
            verdict: CheckState::Skipped,
            summary: summary.to_owned(),
            drains: false,
            items: Vec::new(),
            fixes: Vec::new(),
        };
        let lacks = "libnvidia-ml.so.1 cannot be loaded, and no NVIDIA GPU is on the PCI bus of this machine";
        let checks =
            vec![check("gpu-driver", lacks), check("gpu-ecc", lacks), check("rdma-ports", "no RDMA device")];
        let report = NodeReport { checks, ..NodeReport::default() };
        for detail in [Detail::Usual, Detail::Everything] {
            let look = TextStyle { width: 80, color: false, detail };
            let text = render(&report, &look);
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            assert_eq!(words.matches("libnvidia-ml").count(), 1, "{text}");
            assert!(words.contains(lacks) && words.contains("gpu-ecc as gpu-driver"), "{text}");
            assert!(words.contains("no RDMA device"), "{text}");
        }
    }
}
