//! # What it shows
//! A ring or a pipeline in which each rank first sends to a neighbour and then receives.
//!
//! # Why it happens
//! With Gloo or MPI small messages are buffered and the code works. NCCL's send ends when the peer takes the data,
//! so all wait for each other.
//!
//! # Evidence
//! No condition on the rank decides who sends first, and the receiver is computed from the rank.
//!
//! # What looks like it but is not
//! Even and odd ranks in opposite order; batch_isend_irecv; the first and last stage of a pipeline.
//!
//! # What to do
//! Alternate, or batch.
//!
//! # References
//! NCCL user guide, point-to-point communication; nccl#479.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::finding;
use crate::rule::{Family, Rule};
use crate::{Finding, Scan};

/// The rule.
pub(crate) static RULE: Rule = Rule {
    id: "all-send-first",
    title: "all ranks send before any receives",
    family: Family::Code,
    predicts: Cause::UnmatchedP2p,
    severity: Severity::Error,
    confidence: Confidence::Medium,
    doc: include_str!("all_send_first.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (func, tried) in &scan.tried {
        // Where the rank decides who sends first, somebody receives.
        if tried.has_rank_decision {
            continue;
        }
        let kind = |path: &str| match path {
            "torch.distributed.send" => Some((true, true)),
            "torch.distributed.isend" => Some((true, false)),
            "torch.distributed.recv" | "torch.distributed.irecv" => Some((false, true)),
            _ => None,
        };
        let mut calls = tried.seen.iter().filter_map(|seen| Some((seen, kind(&seen.path)?)));
        let Some((first, (true, is_blocking))) = calls.next() else { continue };
        let to = first.argument("dst", 1).map(|value| value.taint.axes).unwrap_or_default();
        if to == 0 || !calls.any(|(_, (sends, _))| !sends) {
            continue;
        }
        let title = "all ranks send first and then receive: with NCCL a send waits until its peer receives"
            .to_owned();
        let mut finding = finding(scan, &RULE, *func, first.at, title);
        if !is_blocking {
            finding.confidence = Confidence::Low;
        }
        finding.help =
            "let even ranks send first and odd ranks receive first, or use batch_isend_irecv".into();
        finding.page =
            "https://docs.pytorch.org/docs/stable/distributed.html#torch.distributed.batch_isend_irecv";
        findings.push(finding);
    }
    findings
}
