//! # What it shows
//! Two calls that meet are given tensors of different types: the root sends float32 and the others receive into bfloat16.
//!
//! # Why it happens
//! The sender passes on what it computed, and the receiver allocates by the precision of the configuration, or by torch's
//! default.
//!
//! # Evidence
//! Both types are written down: a dtype, .float(), .to(torch.bfloat16), or torch.empty without a dtype.
//!
//! # What looks like it but is not
//! A conversion before the call; object collectives, which carry their types.
//!
//! # What to do
//! Allocate with the type that is sent. NCCL compares neither types nor sizes: the receiver hangs, or reads other numbers.
//!
//! # References
//! PyTorch documentation, torch.distributed. NeMo#7927.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::{finding, place};
use crate::rule::{Family, Rule};
use crate::{Finding, Related, Scan};

/// The rule.
pub(crate) static RULE: Rule = Rule {
    id: "type-by-rank",
    title: "ranks give one call tensors of different types",
    family: Family::Code,
    predicts: Cause::DtypeMismatch,
    severity: Severity::Warning,
    confidence: Confidence::Medium,
    doc: include_str!("type_by_rank.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<Finding> {
    let clashes =
        scan.tried.iter().flat_map(|(func, tried)| tried.clashes.iter().map(|clash| (*func, clash)));
    clashes
        .map(|(func, clash)| {
            let [(name, at, dtype), (peer_name, peer_at, peer)] = clash.sides;
            let title = format!(
                "{name} is given {}, and the {peer_name} that it meets on another rank {}",
                dtype.word(),
                peer.word()
            );
            let mut finding = finding(scan, &RULE, func, at, title);
            if !clash.is_near {
                finding.confidence = Confidence::Low;
            }
            if peer_at != at {
                let text = format!("{} here", peer.word());
                finding.related.push(Related { place: place(scan.project, peer_at, None), text });
            }
            finding.help =
                "give both sides one dtype: convert before the call, or send the type first".into();
            finding.page = "https://docs.pytorch.org/docs/stable/distributed.html";
            finding
        })
        .collect()
}
