//! Statements with a body: loops, `with`, `try`.

use std::sync::Arc;

use ringleader_knowledge::collective::FIRSTS;

use super::catalog;
use super::machine::{CallFrame, Flow, Interpreter};
use super::trace::{CollectiveOp, Decider, Decision, FlowEvent};
use super::value::{Cond, Data, GroupValue, Items, Locally, Taint, Val, hash};
use crate::python::ast::{Expr, ExprKind, For, Span, Stmt, StmtKind, Try, While};
use crate::python::index::FuncId;

/// Most iterations that are tried where the number is known.
const MAX_ITERATIONS: i64 = 4;

impl<'p, 's> Interpreter<'_, 'p, 's> {
    pub(super) fn for_loop(&mut self, f: &'p For<'s>, span: Span) -> Flow {
        let iter = self.iterable(&f.iter);
        let over = self.origin(f.iter.span);
        self.iterated(&iter, over);
        let matters = self.facts.file(self.file()).matters(span);
        let is_deep = self.frame().loops >= 2;
        let usual = if matters && !is_deep { 2 } else { 1 };
        let n = match &iter.data {
            Data::Range(from, to) => (to - from).clamp(0, MAX_ITERATIONS),
            Data::Items(_, items) if items.len() <= MAX_ITERATIONS as usize => items.len() as i64,
            _ if iter.taint.axes != 0 || iter.shape.axes != 0 => {
                let axes = iter.taint.axes | iter.shape.axes;
                if self.process.is_first_on(axes) { 2 } else { 1 }
            }
            _ => match iter.shape.local.or(iter.taint.local) {
                Some(kind) if kind != Locally::Order && self.joined == 0 && matters => {
                    let key = hash(&[16, u64::from(span.at), iter.sym]);
                    let taint = Taint { local: Some(kind), ..iter.taint };
                    self.note_local(key, taint, f.iter.span);
                    if self.process.overrides.get(&key) == Some(&false) { 1 } else { usual }
                }
                _ => usual,
            },
        };
        if iter.shape.axes != 0 && self.frames.len() == 1 && self.project.functions[self.func()].def.has_yield
        {
            let at = self.origin(f.iter.span);
            self.look("<share of a list>", at, std::slice::from_ref(&iter), &[], None);
        }
        let taint = iter.taint.join(iter.shape);
        let is_unordered = iter.taint.local == Some(Locally::Order)
            || self.is_kept_set(&f.iter)
            || matches!(&iter.data, Data::Items(Items::Set, items) if items.len() > 1);
        if matters && !taint.is_clean() {
            let whole = self.origin(span);
            self.record(FlowEvent::Decision(Decision {
                kind: Decider::For,
                at: whole,
                test: self.origin(f.iter.span),
                arm: whole,
                outcome: n as u64,
                taint,
                is_known: matches!(iter.data, Data::Range(..)),
                func: self.func(),
            }));
        }
        if is_unordered {
            let origin = self.origin(f.iter.span);
            self.order.push(Taint::local(Locally::Order, origin));
        }
        self.frame().loops += 1;
        self.loops.push(over);
        let flow = self.turns(f, &iter, n);
        self.loops.pop();
        self.frame().loops -= 1;
        if is_unordered {
            self.order.pop();
        }
        flow
    }

    fn turns(&mut self, f: &'p For<'s>, iter: &Val, n: i64) -> Flow {
        for turn in 0..n {
            let item = match &iter.data {
                Data::Range(from, _) => Val::int(from + turn).tainted(iter.taint),
                Data::Items(Items::Ordered, items) => items[turn as usize].clone(),
                Data::Many(one) => Val { sym: hash(&[17, iter.sym, turn as u64]), ..(**one).clone() },
                _ => {
                    let kind = iter.taint.local.map(|_| Locally::Data);
                    let taint = Taint { local: kind, axes: 0, ..iter.taint };
                    let mut item = Val::unknown(hash(&[17, iter.sym, turn as u64])).tainted(taint);
                    item.shape = taint;
                    item
                }
            };
            let is_open = matches!(item.data, Data::Unknown);
            self.assign(&f.target, item);
            if is_open && let Some(number) = counted(f) {
                // The number of a batch is the same on all.
                self.bind(number, Val::unknown(hash(&[88, iter.sym, turn as u64])));
            }
            match self.block(&f.body) {
                Flow::Next | Flow::Continue => {}
                Flow::Break => return Flow::Next,
                other => return other,
            }
        }
        self.block(&f.orelse)
    }

    pub(super) fn while_loop(&mut self, w: &'p While<'s>, span: Span) -> Flow {
        let matters = self.facts.file(self.file()).matters(span);
        let max = if matters && self.frame().loops < 2 { 2 } else { 1 };
        let is_endless = matches!(w.test.kind, ExprKind::Bool(true) | ExprKind::Int(1)) && self.is_parted();
        self.endless += usize::from(is_endless);
        self.frame().loops += 1;
        let mut flow = Flow::Next;
        let mut by_rank = Taint::NONE;
        for turn in 0..max {
            let value = self.eval(&w.test);
            if value.taint.axes != 0 {
                by_rank = by_rank.join(value.taint);
            }
            let mut cond = value.cond();
            if turn > 0
                && let Cond::Atom(key, taint) = &*cond
            {
                // Another look at the same flag may give another answer.
                cond = Arc::new(Cond::Atom(hash(&[18, *key, turn]), *taint));
            }
            if !self.decide(&cond, &value, true, span, w.test.span, span, Decider::While) {
                break;
            }
            match self.block(&w.body) {
                Flow::Next | Flow::Continue => {}
                Flow::Break => break,
                other => {
                    flow = other;
                    break;
                }
            }
        }
        self.endless -= usize::from(is_endless);
        self.frame().loops -= 1;
        if by_rank.axes != 0 {
            self.counted_by(w, by_rank);
        }
        flow
    }

    /// What a loop counts that ends on another turn on each rank.
    fn counted_by(&mut self, w: &'p While<'s>, by_rank: Taint) {
        for stmt in &w.body {
            if let StmtKind::Augmented(parts) = &stmt.kind
                && let ExprKind::Name(name) = &parts[0].kind
                && let Some(value) = self.frame().scope.name(name).cloned()
            {
                self.frame().scope.set(name, value.tainted(by_rank));
            }
        }
    }

    pub(super) fn with(&mut self, items: &'p [(Expr<'s>, Option<Expr<'s>>)], body: &'p [Stmt<'s>]) -> Flow {
        let Some(((manager, target), rest)) = items.split_first() else { return self.block(body) };
        let name = match &manager.kind {
            ExprKind::Call(call) => call.func.last_name().unwrap_or_default(),
            _ => manager.last_name().unwrap_or_default(),
        };
        if rest.is_empty()
            && let ExprKind::Call(call) = &manager.kind
            && let Some((func, frame)) = self.manager(call)
        {
            return self.run_manager(func, frame, target.as_ref(), body);
        }
        let value = self.eval(manager);
        // What gives its state in a certain form is sharded.
        if name == "state_dict_type"
            && let ExprKind::Call(call) = &manager.kind
            && let Some(ExprKind::Name(model)) = call.args.first().map(|arg| &arg.kind)
        {
            let sym = hash(&[23, value.sym]);
            self.frame()
                .scope
                .set(model, Val::object("torch.distributed.fsdp.FullyShardedDataParallel", sym));
        }
        if let Some(target) = target {
            // Each process gets its share.
            let value = if name == "split_between_processes" && !pads(manager) {
                let share = Taint::local(Locally::Loader, self.origin(manager.span));
                Val::unknown(hash(&[24, value.sym])).tainted(share).shaped(share)
            } else {
                value
            };
            self.assign(target, value);
        }
        if FIRSTS.contains(&name) {
            return self.first_then_others(name, manager.span, rest, body);
        }
        let (no_sync, join) = (name == "no_sync", matches!(name, "join" | "Join" | "join_uneven_inputs"));
        self.no_sync += usize::from(no_sync);
        self.joined += usize::from(join);
        let flow = self.with(rest, body);
        self.no_sync -= usize::from(no_sync);
        self.joined -= usize::from(join);
        flow
    }

    /// Some processes run the body before a barrier, the others after it.
    fn first_then_others(
        &mut self,
        name: &str,
        span: Span,
        rest: &'p [(Expr<'s>, Option<Expr<'s>>)],
        body: &'p [Stmt<'s>],
    ) -> Flow {
        use ringleader_knowledge::collective::{Axis, RankValue};
        let axis = if name.contains("local") { Axis::Local } else { Axis::Global };
        let goes_first = self.process.is(axis, RankValue::First);
        let at = self.origin(span);
        let barrier = CollectiveOp {
            name: "barrier",
            row: None,
            group: GroupValue::World,
            at,
            from: at,
            is_guess: false,
            is_maybe: false,
            is_endless: false,
            dtype: None,
            root: None,
        };
        let taint = Taint::rank(super::value::bit(axis), at);
        let func = self.func();
        self.record(FlowEvent::Decision(Decision {
            kind: Decider::Handler,
            at,
            test: at,
            arm: at,
            outcome: u64::from(goes_first),
            taint,
            is_known: true,
            func,
        }));
        if !goes_first {
            self.record(FlowEvent::Op(barrier));
        }
        let flow = self.with(rest, body);
        if goes_first {
            self.record(FlowEvent::Op(barrier));
        }
        flow
    }

    /// Runs a generator that is a context manager, and the body where it yields.
    fn run_manager(
        &mut self,
        func: FuncId,
        mut frame: CallFrame<'p, 's>,
        target: Option<&'p Expr<'s>>,
        body: &'p [Stmt<'s>],
    ) -> Flow {
        if let Some(target) = target {
            let sym = hash(&[19, func as u64, u64::from(target.span.at)]);
            self.assign(target, Val::unknown(sym));
        }
        if self.frames.len() >= self.max_frames || !self.passes_guards(func) {
            return self.block(body);
        }
        frame.hook = Some(body);
        self.frames.push(frame);
        let project = self.project;
        let flow = self.block(&project.functions[func].def.body);
        let done = self.frames.pop();
        match (flow, done) {
            (Flow::Cut, _) => Flow::Cut,
            (Flow::Raise, Some(frame)) => frame.after_hook.unwrap_or(Flow::Raise),
            (_, Some(CallFrame { after_hook: Some(flow), .. })) => flow,
            (_, Some(CallFrame { hook: Some(_), .. })) => self.block(body),
            _ => Flow::Next,
        }
    }

    /// The body of a `with`, where its context manager yields.
    pub(crate) fn at_yield(&mut self) {
        let Some(body) = self.frame().hook.take() else { return };
        let Some(frame) = self.frames.pop() else { return };
        let flow = if self.frames.is_empty() { Flow::Next } else { self.block(body) };
        self.frames.push(frame);
        self.frame().after_hook = Some(flow);
    }

    pub(super) fn attempt(&mut self, t: &'p Try<'s>, span: Span) -> Flow {
        let matters = self.facts.file(self.file()).matters(span);
        let mut flow = Flow::Next;
        let handler = t.handlers.first().filter(|handler| !is_import_error(handler.class.as_ref()));
        // Without a handler, what `finally` calls is called before the process ends.
        let cleans_up = t.handlers.is_empty()
            && t.finally.first().zip(t.finally.last()).is_some_and(|(first, last)| {
                let all = Span { at: first.span.at, end: last.span.end };
                self.facts.file(self.file()).communicates(all)
            });
        let place = handler.map(|handler| handler.span).or_else(|| t.finally.first().map(|stmt| stmt.span));
        let mut fails = false;
        if let Some(place) = place.filter(|_| handler.is_some() || cleans_up)
            && matters
            && may_fail(&t.body)
        {
            let key = hash(&[20, u64::from(span.at), self.file() as u64]);
            let origin = self.origin(place);
            let ends = handler.and_then(|handler| handler.class.as_ref()).and_then(Expr::last_name)
                == Some("StopIteration");
            let kind = if ends { Locally::Loader } else { Locally::Exception };
            let taint = Taint::local(kind, origin);
            self.note_local(key, taint, place);
            fails = self.process.overrides.get(&key).copied().unwrap_or_default();
            let decision = Decision {
                kind: Decider::Handler,
                at: self.origin(span),
                test: origin,
                arm: origin,
                outcome: u64::from(fails),
                taint,
                is_known: false,
                func: self.func(),
            };
            self.record(FlowEvent::Decision(decision));
        }
        if fails && handler.is_none() {
            flow = Flow::Raise;
        } else if !fails {
            flow = self.block(&t.body);
            if matches!(flow, Flow::Raise) && handler.is_some() {
                fails = true;
            } else if matches!(flow, Flow::Next) {
                flow = self.block(&t.orelse);
            }
        }
        if fails && let Some(handler) = handler {
            if let Some(name) = handler.name {
                self.bind(name, Val::unknown(hash(&[21, u64::from(span.at)])));
            }
            flow = self.block(&handler.body);
        }
        match self.block(&t.finally) {
            Flow::Next => flow,
            other => other,
        }
    }
}

/// The name that counts the turns of a loop: `for n, x in enumerate(...)`.
fn counted<'s>(f: &For<'s>) -> Option<&'s str> {
    let ExprKind::Call(call) = &f.iter.kind else { return None };
    let ExprKind::Tuple(parts) = &f.target.kind else { return None };
    match (call.func.last_name(), parts.first().map(|part| &part.kind)) {
        (Some("enumerate"), Some(ExprKind::Name(name))) => Some(name),
        _ => None,
    }
}

/// Whether shares are made equally long.
fn pads(manager: &Expr<'_>) -> bool {
    let ExprKind::Call(call) = &manager.kind else { return false };
    call.keyword("apply_padding").is_some_and(|value| matches!(value.kind, ExprKind::Bool(true)))
}

/// Whether anything but a collective may raise in a block.
fn may_fail(block: &[Stmt<'_>]) -> bool {
    block.iter().any(|stmt| match &stmt.kind {
        StmtKind::Expr(Expr { kind: ExprKind::Call(call), .. }) => {
            let name = call.func.last_name().unwrap_or_default();
            !catalog::is_name(name) && !matches!(name, "print" | "info" | "debug" | "destroy_process_group")
        }
        StmtKind::Import(_) | StmtKind::Other => false,
        _ => true,
    })
}

fn is_import_error(class: Option<&Expr<'_>>) -> bool {
    let name = class.and_then(Expr::last_name);
    matches!(name, Some("ImportError" | "ModuleNotFoundError" | "AttributeError" | "KeyboardInterrupt"))
}
