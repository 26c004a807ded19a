//! Conditions: which branch this process takes, and what the others leave behind.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::machine::{Flow, Interpreter};
use super::scope::{Key, Values};
use super::trace::{ConditionValue, Decider, Decision, FlowEvent};
use super::value::{Cond, Locally, Origin, Taint, Val};
use crate::python::ast::{Arm, Expr, ExprKind, Span, Stmt, StmtKind};

impl<'p, 's> Interpreter<'_, 'p, 's> {
    pub(super) fn branch(&mut self, arms: &'p [Arm<'s>], span: Span) -> Flow {
        let matters = self.facts.file(self.file()).matters(span);
        for (n, arm) in arms.iter().enumerate() {
            let Some(test) = &arm.test else { return self.block(&arm.body) };
            let value = self.eval(test).counted();
            let cond = value.cond();
            let is_open = !matches!(*cond, Cond::Known(_));
            if is_open && !matters && value.taint.axes == 0 {
                return self.all_arms(arms.get(n..).unwrap_or_default(), &value);
            }
            if value.agreed
                && leaves_loop(&arm.body)
                && let Some(at) = self.loops.last()
            {
                self.settled.push(*at);
            }
            let usual = usually(test, arm, self.project.functions[self.func()].def.name);
            let holds = self.decide(&cond, &value, usual, span, test.span, arm_span(arm), Decider::If);
            if holds || arms.get(n + 1).is_none_or(|next| next.test.is_none()) {
                let taint = Taint { local: None, ..value.taint };
                let is_ranked = taint.axes != 0;
                if is_ranked {
                    self.frame().control.push(taint);
                }
                self.open_arms += usize::from(is_open && !is_ranked);
                let flow = if holds {
                    self.block(&arm.body)
                } else {
                    arms.get(n + 1).map_or(Flow::Next, |next| self.block(&next.body))
                };
                self.open_arms -= usize::from(is_open && !is_ranked);
                if is_ranked {
                    self.frame().control.pop();
                    let taken = if holds { n } else { n + 1 };
                    self.differ_elsewhere(arms, taken, taint);
                }
                return flow;
            }
        }
        Flow::Next
    }

    /// The branches of other ranks assign other values than this one.
    fn differ_elsewhere(&mut self, arms: &'p [Arm<'s>], taken: usize, taint: Taint) {
        for (_, arm) in arms.iter().enumerate().filter(|(n, _)| *n != taken) {
            crate::python::walk::stmts(&arm.body, &mut |stmt| {
                let StmtKind::Assign(targets, _) = &stmt.kind else { return };
                for target in targets {
                    if let ExprKind::Name(name) = &target.kind
                        && let Some(old) = self.frame().scope.name(name).filter(|old| !old.agreed)
                    {
                        let value = old.clone().tainted(taint);
                        self.frame().scope.set(name, value);
                    }
                }
            });
        }
    }

    /// Tries branches in which nothing communicates or leaves, and joins what they assign.
    fn all_arms(&mut self, arms: &'p [Arm<'s>], first: &Val) -> Flow {
        let mut ends: Vec<Values<'s>> = Vec::new();
        let mut has_else = false;
        for arm in arms {
            has_else |= arm.test.is_none();
            let mark = self.frame().scope.mark();
            let flow = self.block(&arm.body);
            ends.push(self.frame().scope.undo(mark));
            if let Flow::Cut = flow {
                return Flow::Cut;
            }
        }
        let touched: BTreeSet<Key<'s>> = ends.iter().flat_map(|end| end.keys().copied()).collect();
        for key in touched {
            let old = self.frame().scope.get(key).cloned();
            let in_arms = ends.iter().map(|end| end.get(&key).cloned().unwrap_or_else(|| old.clone()));
            let mut values = in_arms.chain((!has_else).then(|| old.clone()));
            let first_end = values.next().flatten();
            let joined = values.fold(first_end, |mine, other| match (mine, other) {
                (Some(mine), Some(other)) if mine.sym != other.sym => {
                    Some(mine.join(&other).tainted(first.taint))
                }
                (mine, other) => mine.or(other),
            });
            self.frame().scope.put(key, joined);
        }
        Flow::Next
    }

    #[expect(clippy::too_many_arguments, reason = "places of one decision")]
    pub(super) fn decide(
        &mut self,
        cond: &Arc<Cond>,
        value: &Val,
        usual: bool,
        at: Span,
        test: Span,
        arm: Span,
        kind: Decider,
    ) -> bool {
        self.guessed = false;
        let holds = self.outcome(cond, usual, test);
        let is_known = !self.guessed;
        if !value.taint.is_clean() {
            let decision = Decision {
                kind,
                at: self.origin(at),
                test: self.origin(test),
                arm: self.origin(arm),
                outcome: u64::from(holds),
                taint: value.taint,
                is_known,
                func: self.func(),
            };
            self.record(FlowEvent::Decision(decision));
            let frame = self.frame();
            frame.decided = frame.decided.join(Taint { local: None, ..value.taint });
        }
        holds
    }

    /// Result of a condition on this process.
    pub(crate) fn outcome(&mut self, cond: &Arc<Cond>, usual: bool, at: Span) -> bool {
        match &**cond {
            Cond::Known(value) => *value,
            Cond::Not(inner) => !self.outcome(inner, !usual, at),
            Cond::And(a, b) => self.outcome(a, usual, at) && self.outcome(b, usual, at),
            Cond::Or(a, b) => self.outcome(a, usual, at) || self.outcome(b, usual, at),
            Cond::Atom(key, taint) => {
                if let Some(value) = self.process.overrides.get(key) {
                    self.n_overridden += 1;
                    return *value;
                }
                if taint.axes != 0 {
                    // A progress bar that is switched off does not count.
                    self.guessed |= taint.local != Some(Locally::Signal);
                    return self.process.is_first_on(taint.axes);
                }
                if taint.local.is_some() {
                    self.note_local(*key, *taint, at);
                }
                let depth = self.depth();
                self.oracle.choose(ConditionValue { key: *key, usual, depth, holds: usual })
            }
        }
    }

    pub(super) fn note_local(&mut self, key: u64, taint: Taint, at: Span) {
        let at = self.origin(at);
        if self.muted == 0 {
            self.note_local_at(key, taint, at);
        }
    }

    pub(super) fn note_local_at(&mut self, key: u64, taint: Taint, at: Origin) {
        self.noted.push((key, taint, at));
        if !self.local.iter().any(|(known, ..)| *known == key) {
            self.local.push((key, taint, at));
        }
    }
}

/// Whether a branch ends with leaving the loop.
fn leaves_loop(block: &[Stmt<'_>]) -> bool {
    block.last().is_some_and(|stmt| matches!(stmt.kind, StmtKind::Break | StmtKind::Return(_)))
}

/// Result of a condition in the common run: no branch leaves, and optional values are present.
fn usually(test: &Expr<'_>, arm: &Arm<'_>, own_name: &str) -> bool {
    // A handler is written for the error that it names; a function that calls itself ends somewhere.
    if names_memory(test) {
        return true;
    }
    let again = |stmt: &Stmt<'_>| match &stmt.kind {
        StmtKind::Expr(Expr { kind: ExprKind::Call(call), .. }) => {
            matches!(call.func.kind, ExprKind::Name(name) if name == own_name)
        }
        _ => false,
    };
    if arm.body.iter().any(again) {
        return false;
    }
    let leaves = arm.body.last().is_some_and(|stmt| {
        matches!(stmt.kind, StmtKind::Return(_) | StmtKind::Raise(_) | StmtKind::Continue | StmtKind::Break)
    });
    let is_none_test = matches!(&test.kind, ExprKind::Compare(c)
        if c.rest.iter().any(|(op, right)| *op == crate::python::ast::Cmp::Is && matches!(right.kind, ExprKind::None)));
    !leaves && !is_none_test
}

/// Whether a condition looks for the words of an error about memory: `"out of memory" in str(error)`.
fn names_memory(test: &Expr<'_>) -> bool {
    let ExprKind::Compare(c) = &test.kind else { return false };
    matches!(&c.left.kind, ExprKind::Str(text) if text.to_ascii_lowercase().contains("out of memory"))
        && c.rest.iter().all(|(op, _)| *op == crate::python::ast::Cmp::In)
}

/// Where a branch's statements are.
fn arm_span(arm: &Arm<'_>) -> Span {
    let at = arm.body.first().map_or(arm.span.at, |stmt| stmt.span.at);
    let end = arm.body.last().map_or(arm.span.end, |stmt| stmt.span.end);
    Span { at, end }
}
