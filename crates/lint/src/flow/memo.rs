//! Calls that were followed before: the same call under the same answers does the same again.
//!
//! A function is tried on many paths, which differ in a few conditions. What a call further down did is kept with the answers
//! that it asked for; where the answers are the same, what it did is repeated and not executed.

use std::collections::BTreeSet;

use super::trace::{ConditionValue, FlowEvent};
use super::value::{Origin, Taint, Val};
use crate::lookup::LookupMap;
use crate::python::index::FuncId;

/// Calls with fewer steps are executed again.
pub(super) const MIN_STEPS: usize = 16;
/// Ways through one call that are kept.
pub(super) const MAX_WAYS: usize = 6;
/// Parts of the arguments of a call that are compared.
pub(super) const MAX_PARTS: usize = 400;

/// One recorded execution of a call.
#[derive(Debug)]
pub(super) struct Way<'s> {
    pub(super) answers: Vec<ConditionValue>,
    pub(super) events: Vec<FlowEvent>,
    pub(super) noted: Vec<(u64, Taint, Origin)>,
    pub(super) settled: Vec<Origin>,
    /// Functions that were entered.
    pub(super) entered: Vec<FuncId>,
    pub(super) steps: usize,
    pub(super) is_over: bool,
    pub(super) has_ended: bool,
    pub(super) in_background: Option<Origin>,
    /// The returned value, if any.
    pub(super) value: Option<Val>,
    pub(super) agreed: BTreeSet<&'s str>,
    pub(super) decided: Taint,
}

/// The calls of the runs of one function.
#[derive(Debug, Default)]
pub(crate) struct Memo<'s> {
    pub(super) ways: LookupMap<u64, Vec<Way<'s>>>,
}
