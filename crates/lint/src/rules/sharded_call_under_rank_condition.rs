//! # What it shows
//! A call that gathers parameters where they are sharded (FSDP, ZeRO-3, tensor parallelism) is made by some ranks
//! alone: saving a model, a state dict, a forward pass.
//!
//! # Why it happens
//! With plain data parallelism each rank has the whole model, and saving on rank 0 is right. With shards the same
//! code waits for the shards of the others.
//!
//! # Evidence
//! The file, or a configuration beside it, names FSDP, DeepSpeed or a sharded mode; the call is one that gathers in
//! that mode.
//!
//! # What looks like it but is not
//! torch.save of a state dict that all ranks gathered before; a trainer's method that writes on rank 0 by itself.
//!
//! # What to do
//! Call it on all ranks; the framework writes on one. Move only the file operations under the condition.
//!
//! # References
//! PyTorch documentation, FullyShardedDataParallel; DeepSpeed, ZeRO 3; transformers, Trainer with FSDP.

use ringleader_model::{Cause, Confidence, Severity};

use crate::drafting::partings;
use crate::flow::compare::Parting;
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "sharded-call-under-rank-condition",
    title: "a call that gathers shards is made on some ranks",
    family: Family::Code,
    predicts: Cause::SkippedCollective,
    severity: Severity::Error,
    confidence: Confidence::Medium,
    doc: include_str!("sharded_call_under_rank_condition.rs"),
    check,
};

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    partings(scan, &RULE, |d| !d.is_local && d.parting == Parting::Branch && d.op.is_sharded())
}
