//! # What it shows
//! Each rank looks at its own loss or gradients, and then all take the answer of one rank: what the others saw is lost.
//!
//! # Why it happens
//! A broadcast keeps the ranks together, and so the hang is gone. But a rank whose loss is not finite goes on where rank 0's is.
//!
//! # Evidence
//! The tensor that is broadcast is a condition on the process's own data, made on all ranks.
//!
//! # What looks like it but is not
//! A condition that rank 0 alone evaluates; one on a value that was reduced before; a clock.
//!
//! # What to do
//! all_reduce the flag: MAX to act where any rank asks for it, MIN where all must agree.
//!
//! # References
//! PyTorch documentation, torch.distributed. WeatherGenerator#2724.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{calls, finding, place};
use crate::flow::value::{Cond, Data, Locally};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Related, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "decided-by-one-rank",
    title: "one rank's data decides for all",
    family: Family::Code,
    predicts: Cause::SilentCorruption,
    severity: Severity::Warning,
    confidence: Confidence::Low,
    doc: include_str!("decided_by_one_rank.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let calls = calls(scan, |seen| seen.row.is_some_and(|row| row.call.name == "broadcast"));
    calls
        .filter_map(|(func, seen)| {
            let flag = seen.argument("tensor", 0)?;
            let Data::Cond(cond) = &flag.data else { return None };
            let is_own = flag.taint.local == Some(Locally::Data) && flag.taint.axes == 0 && !flag.agreed;
            if !is_own || matches!(**cond, Cond::Known(_)) {
                return None;
            }
            let title = "each rank looks at its own data, and all take the answer of one".to_owned();
            let mut finding = finding(scan, &RULE, func, seen.at, title);
            if let Some(origin) = flag.taint.origin() {
                let text = "each process finds this for itself".to_owned();
                finding.related.push(Related { place: place(scan.project, origin, None), text });
            }
            finding.help =
                "all_reduce the flag (MAX: any rank, MIN: all ranks) instead of broadcasting one rank's"
                    .into();
            finding.page =
                "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.all_reduce";
            Some(finding)
        })
        .collect()
}
