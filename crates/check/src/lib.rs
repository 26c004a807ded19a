//! The first-response checklist: judges snapshots of nodes.
//!
//! A check is a pure function of one node's snapshot; [`fleet`] compares the values that checks publish across nodes.
//! Nothing here reads a node: a live judgement can be repeated from a bundle, with the same answer.
#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test may panic"))]

pub mod answer;
pub mod baseline;
pub mod checks;
pub mod fleet;
mod gpus;
pub mod jobs;
mod report;
pub mod rule;
#[cfg(test)]
mod staging_gpus;
#[cfg(test)]
mod staging_jobs;
mod view;
mod wiring;
mod xids;

use ringleader_node::Node;

pub use crate::answer::{CheckAnswer, CheckState, Fix, Impact, Item, Value};
pub use crate::report::{Change, ChangeKind, CheckResult, NodeReport, SCHEMA};
pub use crate::rule::{Area, Check, Probe};
pub use crate::view::{Expectations, NodeView};

/// Judges one node with the given checks, in their order.
pub fn judge(node: &Node, checks: &[&'static Check], options: &Expectations) -> NodeReport {
    let view = NodeView::new(node, options);
    let mut report = NodeReport {
        schema: SCHEMA.to_owned(),
        tool_version: node.tool_version.clone(),
        host: node.host.clone(),
        at_ns: node.at_ns,
        took_ms: node.took_ms,
        ..NodeReport::default()
    };
    for check in checks {
        let answer = (check.run)(&view);
        report.values.extend(answer.values.iter().cloned());
        report.checks.push(CheckResult::new(check, answer));
    }
    report
}
