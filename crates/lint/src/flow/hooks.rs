//! What frameworks do beyond calls: flags that end their loops, metrics that are computed when they are read, the backward
//! pass after a step. And what only a name tells.

use super::catalog::CatalogRow;
use super::job::is_stop;
use super::machine::{Flow, Interpreter, SeenCall};
use super::trace::{CollectiveOp, FlowEvent, FlowExit};
use super::value::{Data, LOCAL, Origin, PLACE, Taint, Val};
use crate::python::ast::{Expr, ExprKind, Span};
use crate::python::index::FuncId;

/// Data for a rule on a local rank that is stored as the rank.
pub(crate) const KEPT: &str = "<local rank kept as the rank>";

impl<'p, 's> Interpreter<'_, 'p, 's> {
    /// A method that one class of the project alone has, or the call of a parameter that is named as the one class whose objects
    /// are called.
    pub(super) fn by_name(&self, name: &str, base: Option<&Val>, callee: &Val) -> Option<FuncId> {
        if !self.with_local || !matches!(callee.data, Data::Unknown) {
            return None;
        }
        match base.map(|base| &base.data) {
            Some(Data::Unknown) => self.facts.only.get(name).copied(),
            None => self.facts.job.called.get(name).copied().filter(|func| self.facts.may[*func]),
            _ => None,
        }
    }

    /// Whether a loop goes over a set that the object keeps.
    pub(super) fn is_kept_set(&self, over: &Expr<'s>) -> bool {
        let over = match &over.kind {
            ExprKind::Call(call)
                if matches!(call.func.last_name(), Some("list" | "tuple" | "enumerate" | "tqdm")) =>
            {
                call.args.first().unwrap_or(over)
            }
            _ => over,
        };
        let ExprKind::Attr(of, name) = &over.kind else { return false };
        if !matches!(of.kind, ExprKind::Name("self")) {
            return false;
        }
        let class = self.project.class_of_self(self.func());
        class.is_some_and(|class| {
            let classes = self.project.ancestry(class);
            let holder = classes.iter().find(|id| self.facts.attributes[**id].contains_key(name));
            holder.is_some_and(|id| self.facts.sets.contains(&(*id, *name)))
        })
    }

    /// Whether reading the metrics of a trainer reduces over all ranks here: in a hook at the end of an epoch they are not
    /// computed yet, and a second read returns the computed values.
    pub(super) fn computes_metrics(&self, row: CatalogRow) -> bool {
        let is_open = |name: &str| {
            matches!(name, "on_train_epoch_end" | "on_validation_epoch_end" | "on_test_epoch_end")
        };
        let is_read = |event: &FlowEvent| matches!(event, FlowEvent::Op(op) if op.name == row.matches());
        self.facts.job.syncs_logs
            && self.frames.iter().any(|frame| is_open(self.project.functions[frame.func].def.name))
            && !self.trace.events.iter().any(is_read)
    }

    /// New meaning of an attribute: a flag that ends a loop, or a wrong rank.
    pub(super) fn kept(&mut self, of: &'p Expr<'s>, name: &'s str, span: Span, value: &Val) {
        let origin = self.origin(span);
        if is_stop(name) {
            if value.agreed {
                self.stops.retain(|(known, _)| *known != name);
                return;
            }
            let by_rank = |taint: &Taint| taint.axes & PLACE != 0 && taint.local.is_none();
            let is_alone = self.frames.iter().any(|frame| frame.control.iter().any(by_rank));
            if is_alone && self.muted == 0 && value.as_int() == Some(1) && self.is_of_framework(of, name) {
                self.stops.push((name, origin));
            }
        }
        let is_self = matches!(of.kind, ExprKind::Name("self"));
        if is_self
            && matches!(name, "rank" | "global_rank" | "_rank")
            && value.taint.axes == LOCAL
            && value.as_int().is_some()
        {
            self.tell(KEPT, origin);
        }
    }

    /// Whether a flag belongs to the loop of a framework, which each process reads for itself.
    fn is_of_framework(&mut self, of: &'p Expr<'s>, name: &str) -> bool {
        let file = self.file();
        if name == "should_training_stop" {
            return of.last_name() == Some("control")
                && self.project.files[file].imports_any(&["transformers", "trl"]);
        }
        let held = self.eval(of);
        matches!(&held.data, Data::Object(kind) if kind.contains("lightning") && kind.ends_with("Trainer"))
    }

    /// Reports a place to the rules.
    fn tell(&mut self, path: &str, at: Origin) {
        if self.with_seen && self.muted == 0 {
            let order = Taint::NONE;
            let path = path.to_owned();
            self.seen.push(SeenCall { path, at, args: Vec::new(), keywords: Vec::new(), row: None, order });
        }
    }

    /// Flags that are left set on one rank alone when a hook of a framework ends.
    pub(super) fn stopped_alone(&mut self, func: FuncId) {
        let stops = std::mem::take(&mut self.stops);
        if !self.facts.callers[func].is_empty() {
            return;
        }
        for (name, at) in stops {
            let words = ["broadcast", "reduce", "gather"];
            let text = self.project.files[at.file].text;
            let is_agreed =
                text.lines().any(|line| line.contains(name) && words.iter().any(|word| line.contains(word)));
            if !is_agreed {
                self.left.push(at);
            }
        }
    }

    /// After a step that returns a loss Lightning runs the backward pass, in which ranks meet; after None it does not.
    pub(super) fn stepped(&mut self, func: FuncId, flow: &Flow) {
        let Flow::Return(_) = flow else { return };
        let f = &self.project.functions[func];
        if f.def.name != "training_step" || self.process.overrides.is_empty() || !self.facts.job.has_strategy
        {
            return;
        }
        let Some(class) = f.class else { return };
        let is_module =
            self.project.external_bases(class).iter().any(|base| base.ends_with("LightningModule"));
        let info = &self.project.classes[class];
        let is_manual = self.project.files[info.file].text.contains("automatic_optimization = False");
        if !is_module || is_manual {
            return;
        }
        let last = self.trace.events.iter().rev().find_map(|event| match event {
            FlowEvent::Exit(FlowExit::Return, at) if at.file == f.file && f.def.span.holds(at.span) => {
                Some(*at)
            }
            _ => None,
        });
        // What a name holds that is empty on some ranks, they may have agreed upon.
        let is_nothing = |at: Origin| {
            let text = self.project.files[at.file].slice(at.span);
            matches!(text.trim_start_matches("return").trim(), "" | "None")
        };
        if let Some(at) = last.filter(|at| !is_nothing(*at)) {
            let op = self.op("backward", None, at);
            self.record(FlowEvent::Op(CollectiveOp { from: at, ..op }));
        }
    }
}
