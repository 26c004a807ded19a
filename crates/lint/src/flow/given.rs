//! Results of calls that are not followed, from their arguments, and objects that receive a process's own data.

use super::calls::bindings;
use super::machine::Interpreter;
use super::own::own_data;
use super::value::{Data, Locally, Taint, Val};
use crate::python::ast::{CallExpr, Expr, ExprKind, Span};
use crate::python::index::{ClassId, FuncId};

/// Words of objects that watch what a process measures.
const WATCHERS: &[&str] = &["stop", "early", "patience", "monitor", "meter", "tracker", "watch", "detector"];

impl<'p, 's> Interpreter<'_, 'p, 's> {
    /// The call of an object of the project.
    pub(super) fn called_object(
        &mut self,
        callee: &Val,
        args: &[Val],
        keywords: &[(&'s str, Val)],
        call: &'p CallExpr<'s>,
        span: Span,
    ) -> Option<Val> {
        let Data::Instance(class) = &callee.data else { return None };
        let func = self.project.called(*class)?;
        let bound = bindings(self.project, func, true, args, keywords);
        let value = self.enter(func, Some(callee.clone()), &bound, &call.args, span);
        Some(self.of_given(func, &bound, value))
    }

    /// Result of a project function that does not communicate and received the process's own data.
    pub(super) fn of_given(&self, func: FuncId, bound: &[(&'s str, Val)], value: Val) -> Val {
        let is_open = matches!(value.data, Data::Unknown | Data::Cond(_))
            && value.taint.is_clean()
            && !value.agreed
            && self.with_local
            && !self.facts.may[func];
        if !is_open {
            return value;
        }
        let own = own_data(bound.iter().map(|(_, value)| value));
        value.tainted(own)
    }

    /// An object receives the process's own data: its later results depend on that.
    pub(super) fn feed(&mut self, of: &Expr<'s>, base: &Val, args: &[Val], keywords: &[(&'s str, Val)]) {
        if !self.with_local || self.muted > 0 {
            return;
        }
        let Some(name) = of.last_name().filter(|name| *name != "self") else { return };
        let is_watcher = match &base.data {
            Data::Instance(class) => !self.communicates(*class),
            Data::Unknown => WATCHERS.iter().any(|word| name.contains(word)),
            _ => false,
        };
        if !is_watcher {
            return;
        }
        let own = own_data(args.iter().chain(keywords.iter().map(|(_, value)| value)));
        let sym = base.sym;
        let fed = &mut self.frame().fed;
        fed.retain(|(known, _)| *known != sym);
        if !own.is_clean() {
            fed.push((sym, own));
        }
    }

    /// The axes on which an attribute may differ if its object received the process's own data.
    pub(super) fn fed(&self, base: &Val) -> Taint {
        let fed = self.frames.last().map(|frame| frame.fed.as_slice()).unwrap_or_default();
        fed.iter().find(|(sym, _)| *sym == base.sym).map(|(_, taint)| *taint).unwrap_or_default()
    }

    /// Whether some method of a class may communicate.
    fn communicates(&self, class: ClassId) -> bool {
        let classes = self.project.ancestry(class);
        !self.project.external_bases(class).is_empty()
            || classes
                .iter()
                .any(|id| self.project.classes[*id].methods.values().any(|id| self.facts.may[*id]))
    }
}

/// Names of values that a process measures or receives from its own environment.
const MEASURED: &[&str] =
    &["done", "terminated", "truncated", "finished", "residual", "loss", "score", "reward", "kl"];

impl<'s> Interpreter<'_, '_, 's> {
    /// A value with the name of a measurement, and nothing else known, is the process's own.
    pub(super) fn measured(&mut self, target: &Expr<'s>) {
        match &target.kind {
            ExprKind::Tuple(parts) => parts.iter().for_each(|part| self.measured(part)),
            ExprKind::Name(name) if MEASURED.contains(name) => {
                let origin = self.origin(target.span);
                let open = self.frame().scope.name(name).filter(|value| {
                    matches!(value.data, Data::Unknown) && value.taint.is_clean() && !value.agreed
                });
                if let Some(value) = open.cloned() {
                    self.frame().scope.set(name, value.tainted(Taint::local(Locally::Data, origin)));
                }
            }
            _ => {}
        }
    }
}
