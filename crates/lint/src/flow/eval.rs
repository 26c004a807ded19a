//! Values of expressions on one process.

use std::sync::Arc;

use ringleader_knowledge::collective::{Axis, RankValue};

use super::catalog;
use super::forms::{cuts_data, is_keys, is_mask, is_number_of_ranks, is_part_of_model};
use super::machine::{Interpreter, group_of_name, is_group_name};
use super::trace::{Decider, Decision, FlowEvent, TriedProcess, WORLD};
use super::value::{
    Cond, Data, GLOBAL, GROUP, Global, GroupValue, Items, Locally, NODE, Origin, Taint, Val, bit, chain,
    hash, hash_text, not,
};
use crate::python::ast::{BinaryOp, Cmp, Comprehension, ComprehensionKind, Expr, ExprKind, Span};
use crate::python::index::{FileId, FuncId, Meaning};

/// Depth of names that are looked up through each other.
pub(super) const MAX_LOOKUPS: usize = 4;

impl<'p, 's> Interpreter<'_, 'p, 's> {
    pub(crate) fn eval(&mut self, expr: &'p Expr<'s>) -> Val {
        self.steps = self.steps.saturating_sub(1);
        if self.steps == 0 {
            return Val::unknown(hash(&[30, u64::from(expr.span.at)]));
        }
        match &expr.kind {
            ExprKind::Name(name) => self.name(name, expr.span),
            ExprKind::Attr(of, name) => self.attribute_expr(expr, of, name),
            ExprKind::Call(call) => self.call(call, expr),
            ExprKind::Int(n) => Val::int(*n),
            ExprKind::Str(text) => Val::text(text),
            ExprKind::Bool(value) => Val::truth(*value),
            ExprKind::None => Val::none(),
            ExprKind::Float => Val::new(Data::Unknown, hash(&[31, hash_text(self.slice(expr.span))])),
            ExprKind::Compare(c) => self.compare(&c.left, &c.rest),
            ExprKind::And(list) => self.fold(list, true),
            ExprKind::Or(list) => self.fold(list, false),
            ExprKind::Not(inner) => {
                let value = self.eval(inner).counted();
                let cond = not(&value.cond());
                Val { data: Data::Cond(cond), sym: hash(&[32, value.sym]), shape: Taint::NONE, ..value }
            }
            ExprKind::Minus(inner) => {
                let value = self.eval(inner);
                match value.data {
                    Data::Int(n) => Val::int(n.wrapping_neg()).tainted(value.taint),
                    _ => Val { data: Data::Unknown, sym: hash(&[33, value.sym]), ..value },
                }
            }
            ExprKind::Binary(op, left, right) => self.binary(*op, left, right),
            ExprKind::Choice(parts) => self.choice(parts),
            ExprKind::Index(of, at) => self.index(of, at, expr.span),
            ExprKind::List(list) | ExprKind::Tuple(list) => self.items(Items::Ordered, list),
            ExprKind::Set(list) => self.items(Items::Set, list),
            ExprKind::Dict(items) => {
                let mut values = Vec::new();
                for (key, value) in items {
                    if let Some(key) = key {
                        self.eval(key);
                    }
                    values.push(self.eval(value));
                }
                Self::of_items(Items::Dict, values)
            }
            ExprKind::Comprehension(c) => self.comprehension(c, expr.span),
            ExprKind::Named(parts) => {
                let value = self.eval(&parts[1]);
                if let ExprKind::Name(name) = &parts[0].kind {
                    self.bind(name, value.clone());
                }
                value
            }
            ExprKind::Star(inner) | ExprKind::Await(inner) => self.eval(inner),
            ExprKind::Yield(value) => {
                let value = value.as_ref().map(|value| self.eval(value));
                self.at_yield();
                value.unwrap_or_else(Val::none)
            }
            ExprKind::Format(list) | ExprKind::Other(list) => {
                let mut sym = hash(&[34, u64::from(expr.span.at)]);
                let mut taint = Taint::NONE;
                let mut shape = Taint::NONE;
                for part in list {
                    let value = self.eval(part);
                    sym = chain(sym, value.sym);
                    taint = taint.join(value.taint);
                    shape = shape.join(value.shape);
                }
                let mut value = Val::unknown(sym).tainted(taint);
                value.shape = shape;
                value
            }
            ExprKind::Lambda(_) => Val::unknown(hash(&[35, u64::from(expr.span.at)])),
        }
    }

    pub(crate) fn slice(&self, span: Span) -> &'s str {
        self.project.files[self.file()].slice(span)
    }

    fn items(&mut self, kind: Items, list: &'p [Expr<'s>]) -> Val {
        let values = list.iter().map(|part| self.eval(part)).collect();
        let is_open = list.iter().any(|part| matches!(part.kind, ExprKind::Star(_)));
        let value = Self::of_items(kind, values);
        if is_open { Val { data: Data::Unknown, ..value } } else { value }
    }

    fn of_items(kind: Items, values: Vec<Val>) -> Val {
        let mut sym = hash(&[36, kind as u64]);
        let mut taint = Taint::NONE;
        for value in &values {
            sym = chain(sym, value.sym);
            taint = taint.join(value.taint);
        }
        Val::new(Data::Items(kind, Arc::new(values)), sym).tainted(taint)
    }

    /// A place of this process, as a number or a truth value.
    pub(crate) fn rank_value(&mut self, (axis, value): catalog::Rank, origin: Origin) -> Val {
        let taint = Taint::rank(bit(axis), origin);
        match value {
            RankValue::Rank => Val::int(self.process.coordinate(axis)).tainted(taint),
            RankValue::First | RankValue::Last => Val::truth(self.process.is(axis, value)).tainted(taint),
        }
    }

    pub(crate) fn name(&mut self, name: &'s str, span: Span) -> Val {
        let func = self.func();
        if !self.facts.signalled_names.is_empty() && self.facts.signalled_names.contains(&(func, name)) {
            let taint = Taint::local(Locally::Signal, self.origin(span));
            return Val::unknown(hash(&[83, func as u64, hash_text(name)])).tainted(taint);
        }
        if let Some(value) = self.frame().scope.name(name) {
            return value.clone();
        }
        if let Some(nested) = self.project.nested(func, name) {
            return Val::new(Data::Func(nested, None), hash(&[13, nested as u64]));
        }
        // Names of the functions around this one.
        let mut at = self.project.functions[func].parent;
        for _ in 0..MAX_LOOKUPS {
            let Some(outer) = at else { break };
            if let Some(value) = self.lazily(outer, name) {
                return value;
            }
            at = self.project.functions[outer].parent;
        }
        let file = self.file();
        self.global(file, name, span)
    }

    /// A name at the top of a file.
    pub(super) fn global(&mut self, file: FileId, name: &'s str, span: Span) -> Val {
        let entry = &self.project.files[file];
        match self.facts.globals[file].get(name) {
            Some(Global::Known(value)) => return value.clone(),
            Some(Global::Var(of, path)) => return self.variable_of(*of, path, name),
            None => {}
        }
        if let Some(value) = self.lazily(entry.main, name) {
            return value;
        }
        if entry.has_stars()
            && let Some(meaning) = self.project.resolve(file, name)
        {
            return self.meaning(meaning, name);
        }
        let origin = self.origin(span);
        if let Some(rank) = catalog::rank_name(name)
            && !self.is_low_rank(self.func())
        {
            return self.rank_value(rank, origin);
        }
        self.conventional(file, name, hash(&[37, file as u64, hash_text(name)]), origin)
    }

    fn meaning(&mut self, meaning: Meaning, name: &str) -> Val {
        match meaning {
            Meaning::Var(file, path) => self.variable_of(file, &path, name),
            known => Global::of(known).value().unwrap_or_else(|| Val::unknown(hash(&[40, hash_text(name)]))),
        }
    }

    /// A variable of a module of the project.
    fn variable_of(&mut self, file: FileId, path: &str, name: &str) -> Val {
        let main = self.project.files[file].main;
        if !path.contains('.')
            && let Some((key, _)) = self.facts.assigned[main].get_key_value(path)
            && let Some(value) = self.lazily(main, key)
        {
            return value;
        }
        Val::unknown(hash(&[40, file as u64, hash_text(path), hash_text(name)]))
    }

    /// The value of a name of a function or module that is not being executed.
    pub(super) fn lazily(&mut self, func: FuncId, name: &str) -> Option<Val> {
        let facts = self.facts;
        let project = self.project;
        let (key, values) =
            facts.assigned[func].get_key_value(name).map_or((None, None), |(k, v)| (Some(*k), Some(v)));
        let parameter = project.functions[func].def.params.iter().find(|param| param.name == name);
        if key.is_none() && parameter.is_none() {
            return None;
        }
        if self.muted >= MAX_LOOKUPS {
            return Some(Val::unknown(hash(&[41, func as u64, hash_text(name)])));
        }
        let cached = hash(&[62, func as u64, hash_text(name)]);
        if let Some(value) = self.known.get(&cached) {
            return Some(value.clone());
        }
        if let Some(key) = key.filter(|key| facts.signalled_names.contains(&(func, *key))) {
            let span = project.functions[func].def.name_span;
            let taint = Taint::local(Locally::Signal, self.origin(span));
            return Some(Val::unknown(hash(&[83, func as u64, hash_text(key)])).tainted(taint));
        }
        let n_answers = self.oracle.answers.len();
        let found = self.known_value(cached, &mut |machine| {
            let class = project.class_of_self(func);
            let this = class.map(|class| Val::new(Data::Instance(class), hash(&[10, class as u64])));
            machine.push_frame(func, this);
            let mut found: Option<Val> = parameter.map(|param| machine.parameter(func, param));
            for (value, n) in values.into_iter().flatten().take(3) {
                let mut value = machine.eval(value);
                if let Some(n) = n {
                    value = Self::part(&value, *n);
                }
                found = Some(found.map_or(value.clone(), |old| old.join(&value)));
            }
            machine.frames.pop();
            found
        });
        // Deeper down names are only looked up in part, and other answers may give another value.
        let is_whole = self.muted <= 1 && self.oracle.answers.len() == n_answers;
        if let (Some(value), true) = (&found, is_whole) {
            self.known.insert(cached, value.clone());
        }
        found
    }

    fn compare(&mut self, left: &'p Expr<'s>, rest: &'p [(Cmp, Expr<'s>)]) -> Val {
        let mut a = self.eval(left);
        let mut all = Arc::new(Cond::Known(true));
        let mut taint = Taint::NONE;
        let mut sym = hash(&[45]);
        let mut agreed = false;
        for (op, right) in rest {
            let b = self.eval(right);
            agreed |= a.agreed || b.agreed;
            let is_key = matches!(op, Cmp::In | Cmp::NotIn) && self.with_local && names_usual_key(&a);
            let joined = if is_key { Taint { local: None, ..b.taint } } else { compared_taint(*op, &a, &b) };
            let joined = if joined.axes == 0 && joined.local.is_none() { Taint::NONE } else { joined };
            let cond = compare_two(*op, &a, &b, joined);
            taint = taint.join(joined);
            sym = chain(sym, hash(&[*op as u64, a.sym, b.sym]));
            all = and(&all, &cond);
            a = b;
        }
        Val { agreed, ..Val::new(Data::Cond(all), sym).tainted(taint) }
    }

    fn fold(&mut self, list: &'p [Expr<'s>], is_and: bool) -> Val {
        let mut result: Option<Val> = None;
        for part in list {
            let value = self.eval(part);
            result = Some(match result {
                None => value,
                Some(old) => {
                    let sym = hash(&[46, u64::from(is_and), old.sym, value.sym]);
                    let taint = old.taint.join(value.taint);
                    let (a, b) = (old.cond(), value.cond());
                    match (&*a, is_and) {
                        // `x or default`, `x and x.y`
                        (Cond::Known(false), false) | (Cond::Known(true), true) => {
                            // The rank has spoken: what is left does not depend on it.
                            let data = match value.data {
                                Data::Unknown if old.taint.axes != 0 => Data::Cond(value.cond()),
                                ref data => data.clone(),
                            };
                            Val { data, ..value }.tainted(old.taint)
                        }
                        (Cond::Known(_), _) => old,
                        _ if matches!(value.data, Data::Group(_) | Data::Object(_) | Data::Instance(_)) => {
                            old.join(&value)
                        }
                        _ => {
                            let a_agreed = old.agreed || value.agreed;
                            let cond = if is_and { and(&a, &b) } else { or(&a, &b) };
                            Val { agreed: a_agreed, ..Val::new(Data::Cond(cond), sym).tainted(taint) }
                        }
                    }
                }
            });
            // What follows a known answer is not evaluated.
            if let Some(value) = &result
                && let Cond::Known(known) = *value.cond()
            {
                let rest =
                    list.last().map_or(part.span, |last| Span { at: part.span.end, end: last.span.end });
                self.choose_by_rank(value, u64::from(known), part.span, rest);
                if known == is_and {
                    continue;
                }
                break;
            }
        }
        result.unwrap_or_else(Val::none)
    }

    fn binary(&mut self, op: BinaryOp, left: &'p Expr<'s>, right: &'p Expr<'s>) -> Val {
        let (a, b) = (self.eval(left), self.eval(right));
        let mut taint = a.taint.join(b.taint);
        // `rank // size` is one number for each of the blocks of ranks.
        if op == BinaryOp::FloorDiv && taint.axes & GLOBAL != 0 && b.as_int().is_none() {
            taint.axes = taint.axes & !GLOBAL | NODE;
        }
        // What is divided among the ranks is what all of them hold.
        if matches!(op, BinaryOp::FloorDiv | BinaryOp::Mod) && is_number_of_ranks(right) && taint.axes == 0 {
            taint = Taint::NONE;
        }
        let a_agreed = a.agreed || b.agreed;
        if let (Data::Int(x), Data::Int(y)) = (&a.data, &b.data) {
            let number = match op {
                BinaryOp::Add => x.checked_add(*y),
                BinaryOp::Sub => x.checked_sub(*y),
                BinaryOp::Mul => x.checked_mul(*y),
                BinaryOp::FloorDiv => x.checked_div_euclid(*y),
                BinaryOp::Mod => x.checked_rem_euclid(*y),
                BinaryOp::BitAnd => Some(x & y),
                BinaryOp::BitOr => Some(x | y),
                BinaryOp::Other => None,
            };
            if let Some(number) = number {
                return Val::int(number).tainted(taint);
            }
        }
        // `[None] * world_size`
        if let (Data::Items(..), BinaryOp::Mul) = (&a.data, op) {
            return Val::unknown(hash(&[47, a.sym, b.sym])).tainted(taint).shaped(b.taint);
        }
        if let (Data::Items(..), BinaryOp::Add) = (&a.data, op)
            && let Data::Items(kind, _) = b.data
        {
            let mut value = Val::unknown(hash(&[48, kind as u64, a.sym, b.sym])).tainted(taint);
            value.shape = a.shape.join(b.shape);
            return value;
        }
        // Keys of one dict and not of another are a set.
        if matches!(op, BinaryOp::Sub | BinaryOp::BitAnd | BinaryOp::BitOr)
            && (is_keys(left) || is_keys(right))
        {
            taint = taint.join(Taint::local(Locally::Order, self.origin(left.span)));
        }
        let sym = hash(&[49, op as u64, a.sym, b.sym]);
        if let (BinaryOp::BitAnd | BinaryOp::BitOr, Data::Cond(x), Data::Cond(y)) = (op, &a.data, &b.data) {
            let cond = if op == BinaryOp::BitAnd { and(x, y) } else { or(x, y) };
            return Val { agreed: a_agreed, ..Val::new(Data::Cond(cond), sym).tainted(taint) };
        }
        Val { agreed: a_agreed, ..Val::unknown(sym).tainted(taint).shaped(a.shape.join(b.shape)) }
    }

    /// A condition on the rank within an expression, where a call may follow that others do not make.
    fn choose_by_rank(&mut self, value: &Val, outcome: u64, test: Span, rest: Span) {
        if value.taint.axes == 0 || !self.facts.file(self.file()).communicates(rest) {
            return;
        }
        // What is called further down stands at the statement.
        let whole = if self.frames.len() == 1 && self.root.holds(rest) { self.root } else { rest };
        let decision = Decision {
            kind: Decider::If,
            at: self.origin(whole),
            test: self.origin(test),
            arm: self.origin(rest),
            outcome,
            taint: value.taint,
            is_known: matches!(*value.cond(), Cond::Known(_)),
            func: self.func(),
        };
        self.record(FlowEvent::Decision(decision));
    }

    fn choice(&mut self, [test, yes, no]: &'p [Expr<'s>; 3]) -> Val {
        let value = self.eval(test).counted();
        let cond = value.cond();
        if matches!(*cond, Cond::Known(_)) || value.taint.axes != 0 {
            let holds = self.outcome(&cond, true, test.span);
            self.choose_by_rank(
                &value,
                u64::from(holds),
                test.span,
                Span { at: yes.span.at.min(no.span.at), end: yes.span.end.max(no.span.end) },
            );
            let taint = Taint { local: None, ..value.taint };
            return self.eval(if holds { yes } else { no }).tainted(taint);
        }
        let (a, b) = (self.eval(yes), self.eval(no));
        let joined = a.join(&b);
        let sym = hash(&[50, value.sym, a.sym, b.sym]);
        Val { sym, ..joined }.tainted(value.taint)
    }

    fn index(&mut self, of: &'p Expr<'s>, at: &'p Expr<'s>, span: Span) -> Val {
        let base = self.eval(of);
        let origin = self.origin(span);
        if let (Data::External(path), ExprKind::Str(key)) = (&base.data, &at.kind)
            && &**path == "os.environ"
        {
            return self.variable(key, origin);
        }
        let index = self.eval(at);
        // `info["rank"]`
        if let (ExprKind::Str(key), Data::Unknown) = (&at.kind, &base.data)
            && let Some(rank) = catalog::rank_name(key)
            && !self.is_matrix_rank(of, key)
            && !self.is_low_rank(self.func())
        {
            return self.rank_value(rank, origin);
        }
        if let (Data::Items(Items::Ordered, items), Some(n)) = (&base.data, index.as_int())
            && let Some(item) = usize::try_from(n).ok().and_then(|n| items.get(n))
        {
            return item.clone().tainted(index.taint);
        }
        if of.last_name().is_some_and(|name| name.contains("mesh"))
            && let ExprKind::Str(key) = &at.kind
        {
            let sym = hash(&[51, base.sym, hash_text(key)]);
            return Val::new(Data::Group(group_of_name(key, sym)), sym);
        }
        if of.last_name().is_some_and(is_group_name) && matches!(base.data, Data::Group(_)) {
            return base;
        }
        let sym = hash(&[52, base.sym, index.sym]);
        let mut value = Val::unknown(sym).tainted(base.taint).tainted(Taint { local: None, ..index.taint });
        if matches!(&base.data, Data::Object(kind) if &**kind == super::value::PARTS) && index.taint.axes != 0
        {
            return Val { shape: Taint::local(Locally::Loader, origin), ..value };
        }
        // A mask takes as many rows as hold.
        let is_slice = matches!(at.kind, ExprKind::Other(_));
        if let (Data::Many(one), false) = (&base.data, is_slice) {
            return Val { sym, ..(**one).clone() };
        }
        if is_slice && index.taint.axes != 0 && base.taint.local == Some(Locally::Random) {
            self.look("<part of a shuffled list>", origin, std::slice::from_ref(&base), &[], None);
        }
        value.agreed = base.agreed;
        value.shape = base.shape;
        if is_slice && matches!(base.data, Data::View) {
            value.data = Data::View;
        }
        // So does a comparison that is written there.
        if self.with_local && is_mask(at) && !base.agreed {
            value.shape = value.shape.join(Taint::local(Locally::Data, origin));
        }
        if is_slice || index.taint.local == Some(Locally::Data) {
            value.shape = value.shape.join(index.taint);
        }
        value
    }

    /// A variable of the environment.
    pub(crate) fn variable(&mut self, name: &str, origin: Origin) -> Val {
        if let Some(rank) = catalog::rank_variable(name) {
            // A text: "0" is true.
            let value = self.rank_value(rank, origin);
            return match value.data {
                Data::Int(n) => Val::text(&n.to_string()).tainted(value.taint),
                _ => value,
            };
        }
        if matches!(name, "WORLD_SIZE" | "SLURM_NTASKS" | "OMPI_COMM_WORLD_SIZE" | "PMI_SIZE") {
            return Val::int(WORLD);
        }
        Val::unknown(hash(&[53, hash_text(name)]))
    }

    fn comprehension(&mut self, c: &'p Comprehension<'s>, span: Span) -> Val {
        let (mut taint, mut shape) = (Taint::NONE, Taint::NONE);
        let mut sym = hash(&[54, u64::from(span.at)]);
        let mark = self.frame().scope.mark();
        let mut is_unordered = false;
        for (target, iter_expr, ifs) in &c.loops {
            let iter = self.iterable(iter_expr);
            sym = chain(sym, iter.sym);
            shape = shape.join(iter.shape);
            // A list of the process's own is as long as it is.
            if self.with_local && iter.taint.local == Some(Locally::Data) && !iter.agreed {
                shape = shape.join(Taint { axes: 0, ..iter.taint });
            }
            taint = taint.join(Taint { axes: 0, ..iter.taint });
            is_unordered |=
                iter.taint.local == Some(Locally::Order) || matches!(&iter.data, Data::Items(Items::Set, _));
            let item = match &iter.data {
                Data::Items(Items::Ordered, items) if items.len() == 1 => items[0].clone(),
                Data::Many(one) => Val { sym: hash(&[17, iter.sym, 0]), ..(**one).clone() },
                _ => Val::unknown(hash(&[17, iter.sym, 0])).tainted(Taint { axes: 0, ..iter.taint }),
            };
            self.bind_target(target, item);
            if !ifs.is_empty() && is_part_of_model(iter_expr, ifs) {
                shape = shape.join(Taint::local(Locally::Model, self.origin(iter_expr.span)));
            }
            for test in ifs {
                let value = self.eval(test);
                sym = chain(sym, value.sym);
                shape = shape.join(value.taint);
            }
        }
        let mut one = None;
        for part in &c.parts {
            let value = self.eval(part);
            sym = chain(sym, value.sym);
            taint = taint.join(value.taint);
            one = Some(value);
        }
        self.frame().scope.undo_names(mark);
        if is_unordered && c.kind != ComprehensionKind::Set {
            taint = taint.join(Taint::local(Locally::Order, self.origin(span)));
        }
        let mut value = Val::unknown(sym).tainted(taint);
        if let (ComprehensionKind::List | ComprehensionKind::Generator, Some(one)) = (c.kind, one) {
            value.data = Data::Many(Arc::new(one));
        }
        value.shape = shape;
        if c.kind == ComprehensionKind::Set {
            value.taint = Taint { local: Some(Locally::Order), ..value.taint };
            value.taint = value.taint.at(self.origin(span));
        }
        value
    }

    fn bind_target(&mut self, target: &'p Expr<'s>, item: Val) {
        match &target.kind {
            ExprKind::Name(name) => self.bind(name, item),
            ExprKind::Tuple(parts) => {
                for (n, part) in parts.iter().enumerate() {
                    let one = Self::part(&item, n);
                    self.bind_target(part, one);
                }
            }
            _ => {}
        }
    }

    /// The iterable of a loop: the loader within `enumerate(tqdm(loader))`.
    pub(crate) fn iterable(&mut self, expr: &'p Expr<'s>) -> Val {
        if let ExprKind::Call(call) = &expr.kind {
            let name = call.func.last_name().unwrap_or_default();
            match name {
                "tqdm" | "enumerate" | "iter" | "list" | "tuple" | "track" | "reversed" | "islice"
                | "cycle" | "trange" | "ProgressBar" | "progress_bar" | "prefetch"
                    if !call.args.is_empty() =>
                {
                    // A number after it says how often, whatever the loader holds.
                    if name == "cycle" {
                        return Val::unknown(hash(&[55, u64::from(expr.span.at)]));
                    }
                    let inner = self.iterable(&call.args[0]);
                    if name == "enumerate" {
                        let data = match &inner.data {
                            Data::Many(one) => {
                                let index = Val::unknown(hash(&[85, inner.sym]));
                                Data::Many(Arc::new(Self::of_items(
                                    Items::Ordered,
                                    vec![index, (**one).clone()],
                                )))
                            }
                            _ => Data::Unknown,
                        };
                        return Val { data, sym: hash(&[56, inner.sym]), ..inner };
                    }
                    return inner;
                }
                "sorted" if !call.args.is_empty() => {
                    let inner = self.iterable(&call.args[0]);
                    let taint =
                        if inner.taint.local == Some(Locally::Order) { Taint::NONE } else { inner.taint };
                    let data = Data::Unknown;
                    return Val { data, taint, sym: hash(&[57, inner.sym]), ..inner };
                }
                "zip" if !call.args.is_empty() => {
                    let mut joined = Val::unknown(hash(&[58, u64::from(expr.span.at)]));
                    for arg in &call.args {
                        let value = self.iterable(arg);
                        joined.shape = joined.shape.join(value.shape);
                        joined = joined.tainted(value.taint);
                    }
                    return joined;
                }
                "range" => return self.range(&call.args),
                _ => {}
            }
        }
        let value = self.eval(expr);
        // A generator of batches yields what its process has.
        if let ExprKind::Call(call) = &expr.kind
            && value.taint.is_clean()
            && matches!(value.data, Data::Unknown | Data::None)
            && (call.func.last_name().is_some_and(super::names::is_local_name) || cuts_data(call))
        {
            let taint = Taint::local(Locally::Loader, self.origin(expr.span));
            return Val::unknown(hash(&[64, u64::from(expr.span.at)])).tainted(taint).shaped(taint);
        }
        if let Data::Instance(class) = &value.data
            && let Some(func) = self.project.method(*class, "__iter__")
            && super::job::packs(self.project, func)
        {
            let taint = Taint::local(Locally::Loader, self.origin(expr.span));
            return Val::unknown(value.sym).tainted(taint).shaped(taint);
        }
        if matches!(&value.data, Data::Object(kind) if &**kind == "tqdm.tqdm") {
            return Val::unknown(value.sym).shaped(value.shape);
        }
        value
    }

    pub(crate) fn range(&mut self, args: &'p [Expr<'s>]) -> Val {
        let values: Vec<Val> = args.iter().map(|arg| self.eval(arg)).collect();
        let mut taint = Taint::NONE;
        let mut sym = hash(&[59]);
        for value in &values {
            taint = taint.join(value.taint);
            sym = chain(sym, value.sym);
        }
        let number = |n: usize| {
            values.get(n).and_then(|value| match value.data {
                Data::Int(n) => Some(n),
                _ => None,
            })
        };
        let data = match (values.len(), number(0), number(1)) {
            (1, Some(to), _) => Data::Range(0, to),
            (2, Some(from), Some(to)) => Data::Range(from, to),
            _ => Data::Unknown,
        };
        let mut value = Val::new(data, sym).tainted(taint);
        value.shape = taint;
        value
    }

    /// The group that an argument names.
    pub(crate) fn group(value: &Val, text: Option<&str>) -> GroupValue {
        match &value.data {
            Data::Group(group) => *group,
            Data::None => GroupValue::World,
            Data::External(path) if path.ends_with(".WORLD") => GroupValue::World,
            _ => text.map_or(GroupValue::Some(value.sym), |text| group_of_name(text, value.sym)),
        }
    }

    /// The rank of this process in a group.
    pub(crate) fn rank_in(&mut self, group: GroupValue, origin: Origin) -> Val {
        match group {
            GroupValue::World => self.rank_value((Axis::Global, RankValue::Rank), origin),
            GroupValue::Axes(axes) => {
                let n = i64::from(!self.process.is_first_on(axes));
                Val::int(n).tainted(Taint::rank(axes, origin))
            }
            GroupValue::Some(_) => {
                let n = i64::from(!self.process.is_first_on(GROUP | bit(Axis::Global)));
                Val::int(n).tainted(Taint::rank(GROUP, origin))
            }
        }
    }

    pub(crate) fn size_of(group: GroupValue) -> i64 {
        if group == GroupValue::World { WORLD } else { TriedProcess::size(Axis::Group) }
    }
}

/// Whether a value is a key that all batches have or none: not one of pictures or sounds, which some samples come with.
pub(super) fn names_usual_key(key: &Val) -> bool {
    matches!(&key.data, Data::Str(text) if !super::names::is_of_some_samples(text))
}

/// Axes on which the result of a comparison may differ.
fn compared_taint(op: Cmp, a: &Val, b: &Val) -> Taint {
    let is_none = |value: &Val| matches!(value.data, Data::None);
    match op {
        // Whether something is there does not depend on what it holds.
        Cmp::Is | Cmp::IsNot if is_none(b) && a.taint.axes == 0 => match a.taint.local {
            Some(Locally::Data | Locally::Loader) => Taint::NONE,
            _ => a.taint,
        },
        _ => a.taint.join(b.taint),
    }
}

fn compare_two(op: Cmp, a: &Val, b: &Val, taint: Taint) -> Arc<Cond> {
    let known = |value: bool| Arc::new(Cond::Known(value));
    let atom = |kind: u64, x: u64, y: u64| Arc::new(Cond::Atom(hash(&[60, kind, x, y]), taint));
    match op {
        Cmp::NotEq => not(&compare_two(Cmp::Eq, a, b, taint)),
        Cmp::IsNot => not(&compare_two(Cmp::Is, a, b, taint)),
        Cmp::NotIn => not(&compare_two(Cmp::In, a, b, taint)),
        Cmp::Gt => compare_two(Cmp::Lt, b, a, taint),
        Cmp::GtE => not(&compare_two(Cmp::Lt, a, b, taint)),
        Cmp::LtE => not(&compare_two(Cmp::Lt, b, a, taint)),
        Cmp::Eq => match (a.as_int(), b.as_int(), &a.data, &b.data) {
            (Some(x), Some(y), ..) => known(x == y),
            (_, _, Data::Str(x), Data::Str(y)) => known(x == y),
            (_, _, Data::None, Data::None) => known(true),
            _ if a.sym == b.sym => known(true),
            _ => atom(1, a.sym.min(b.sym), a.sym.max(b.sym)),
        },
        Cmp::Lt => match (a.as_int(), b.as_int()) {
            (Some(x), Some(y)) => known(x < y),
            // `rank > n`: the first is below, whatever n is.
            _ if b.taint.axes != 0 && a.taint.axes == 0 && b.as_int().is_some() => {
                not(&atom(2, b.sym, a.sym))
            }
            _ => atom(2, a.sym, b.sym),
        },
        Cmp::Is => match (&a.data, &b.data) {
            (Data::None, Data::None) => known(true),
            (Data::Unknown | Data::Cond(_) | Data::Group(GroupValue::Some(_)) | Data::View, Data::None) => {
                // What a branch of this rank assigned is there.
                if a.taint.axes != 0 && a.taint.local.is_none() {
                    not(&atom(3, a.sym, b.sym))
                } else {
                    atom(3, a.sym, b.sym)
                }
            }
            (_, Data::None) => known(false),
            _ => compare_two(Cmp::Eq, a, b, taint),
        },
        Cmp::In => match &b.data {
            Data::Items(_, items) => in_items(a, items).map_or_else(|| atom(4, a.sym, b.sym), known),
            Data::External(path) if &**path == "os.environ" => match &a.data {
                Data::Str(name) if catalog::rank_variable(name).is_some() || &**name == "WORLD_SIZE" => {
                    known(true)
                }
                _ => atom(4, a.sym, b.sym),
            },
            Data::Range(from, to) => match a.as_int() {
                Some(n) => known(*from <= n && n < *to),
                None => atom(4, a.sym, b.sym),
            },
            _ => atom(4, a.sym, b.sym),
        },
    }
}

/// Whether a value is one of several, if all are known.
fn in_items(value: &Val, items: &[Val]) -> Option<bool> {
    let mut is_open = false;
    for item in items {
        match (value.as_int(), item.as_int(), &value.data, &item.data) {
            (Some(x), Some(y), ..) if x == y => return Some(true),
            (Some(_), Some(_), ..) => {}
            (_, _, Data::Str(x), Data::Str(y)) if x == y => return Some(true),
            (_, _, Data::Str(_), Data::Str(_)) | (Some(_), _, _, Data::None) => {}
            _ => is_open = true,
        }
    }
    (!is_open).then_some(false)
}

pub(crate) fn and(a: &Arc<Cond>, b: &Arc<Cond>) -> Arc<Cond> {
    match (&**a, &**b) {
        (Cond::Known(true), _) | (_, Cond::Known(false)) => Arc::clone(b),
        (Cond::Known(false), _) | (_, Cond::Known(true)) => Arc::clone(a),
        _ => Arc::new(Cond::And(Arc::clone(a), Arc::clone(b))),
    }
}

fn or(a: &Arc<Cond>, b: &Arc<Cond>) -> Arc<Cond> {
    match (&**a, &**b) {
        (Cond::Known(false), _) | (_, Cond::Known(true)) => Arc::clone(b),
        (Cond::Known(true), _) | (_, Cond::Known(false)) => Arc::clone(a),
        _ => Arc::new(Cond::Or(Arc::clone(a), Arc::clone(b))),
    }
}
