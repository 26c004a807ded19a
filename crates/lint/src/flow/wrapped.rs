//! Calls of functions that a decorator of the project keeps from some processes.

use super::machine::Interpreter;
use super::trace::{Decider, Decision, FlowEvent};
use super::value::{Cond, Origin};
use crate::python::ast::StmtKind;
use crate::python::index::FuncId;

impl Interpreter<'_, '_, '_> {
    /// Whether a decorator of the project lets this process into a function.
    pub(super) fn passes_wrapper(&mut self, func: FuncId) -> bool {
        let Some(guarding) = self.facts.guarded.get(&func).copied() else { return true };
        let project = self.project;
        let wrapper = &project.functions[guarding.wrapper].def.body;
        let Some(StmtKind::If(arms)) = wrapper.get(guarding.statement).map(|stmt| &stmt.kind) else {
            return true;
        };
        let Some(test) = arms.first().and_then(|arm| arm.test.as_ref()) else { return true };
        self.push_frame(guarding.wrapper, None);
        self.muted += 1;
        let value = self.eval(test);
        self.muted -= 1;
        self.frames.pop();
        let Cond::Known(holds) = *value.cond() else { return true };
        if value.taint.axes == 0 {
            return true;
        }
        let passes = holds == guarding.enters;
        let f = &project.functions[func];
        let name = f.def.decorators.first().map_or(f.def.name_span, |decorator| decorator.span);
        let whole = Origin { file: f.file, span: f.def.span };
        self.record(FlowEvent::Decision(Decision {
            kind: Decider::Decorator,
            at: whole,
            test: Origin { file: f.file, span: name },
            arm: whole,
            outcome: u64::from(passes),
            taint: value.taint,
            is_known: true,
            func,
        }));
        passes
    }
}
