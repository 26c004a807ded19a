//! Attributes of objects, classes and modules.

use std::cell::RefCell;
use std::sync::Arc;

use super::catalog;
use super::eval::MAX_LOOKUPS;
use super::held::is_container;
use super::machine::Interpreter;
use super::trace::{FlowEvent, WORLD};
use super::value::{Data, GroupValue, Locally, Origin, Taint, Val, hash, hash_text};
use crate::lookup::LookupMap;
use crate::python::ast::{Expr, ExprKind, Span};
use crate::python::index::{ClassId, FuncId};

impl<'p, 's> Interpreter<'_, 'p, 's> {
    pub(super) fn attribute_expr(&mut self, expr: &'p Expr<'s>, of: &'p Expr<'s>, name: &'s str) -> Val {
        if let Some(value) = self.frame().scope.attr(expr) {
            return value.clone();
        }
        let base = self.eval(of);
        let value = self.attribute(&base, name, expr.span, of);
        if self.with_local
            && !value.agreed
            && value.taint.is_clean()
            && let Some(set) = self.facts.job.stops.get(name)
        {
            let sym = hash(&[87, base.sym, hash_text(name)]);
            return Val::unknown(sym).tainted(Taint::local(Locally::Data, *set));
        }
        let fed = self.fed(&base);
        if fed.is_clean() || value.agreed { value } else { value.tainted(fed) }
    }

    pub(crate) fn attribute(&mut self, base: &Val, name: &'s str, span: Span, of: &Expr<'s>) -> Val {
        let origin = self.origin(span);
        match &base.data {
            Data::External(path) => {
                if let Some(file) = path.strip_prefix('<').and_then(|p| p.strip_suffix('>')) {
                    let file = file.parse::<usize>().unwrap_or_default().min(self.project.files.len() - 1);
                    return self.global(file, name, span);
                }
                return outer(path, base.sym, name).tainted(base.taint);
            }
            Data::Instance(class) => {
                let class = *class;
                if let Some(value) = self.member(class, base, name, origin) {
                    return value;
                }
            }
            Data::Class(class) => {
                if let Some(method) = self.project.method(*class, name) {
                    return Val::new(Data::Func(method, None), hash(&[13, method as u64]));
                }
            }
            _ => {}
        }
        if let Data::Object(kind) = &base.data
            && catalog::is_property(name)
            && let Some(row) = catalog::method(kind, name)
            && (!catalog::is_metrics(name) || self.computes_metrics(row))
        {
            let op = self.op(row.matches(), Some(row), origin);
            self.record(FlowEvent::Op(op));
        }
        let sym = hash(&[43, base.sym, hash_text(name)]);
        if let Some(rank) = catalog::rank_attribute(name)
            && !self.is_matrix_rank(of, name)
            && !is_shared_state(of, name)
        {
            return self.rank_value(rank, origin);
        }
        if matches!(&base.data, Data::Object(kind) if &**kind == super::value::OUTPUT) {
            let is_long =
                matches!(name, "logits" | "last_hidden_state" | "hidden_states" | "sequences" | "shape");
            let value = Val::unknown(sym).tainted(base.taint);
            return match name {
                "shape" => Val::unknown(sym).tainted(base.shape),
                _ if is_long => value.shaped(base.shape),
                _ => value,
            };
        }
        if name == "module" && matches!(base.data, Data::Object(_)) {
            return Val::unknown(sym);
        }
        if matches!(name, "world_size" | "num_processes" | "process_count") {
            return Val::int(WORLD);
        }
        if matches!(name, "T" | "mT" | "H") {
            return Val { data: Data::View, sym, ..base.clone() };
        }
        if matches!(name, "device" | "dtype" | "ndim" | "requires_grad") {
            return Val::unknown(sym);
        }
        let mut value = self.conventional(self.file(), name, sym, origin);
        // Parts of a batch hold what it holds; where a counter of a progress bar is switched off, it does not count.
        let inherits =
            base.taint.local.is_some() || matches!(&base.data, Data::Object(kind) if &**kind == "tqdm.tqdm");
        value.agreed |= base.agreed;
        if inherits {
            value = value.tainted(base.taint);
            if base.taint.axes != 0 {
                value.taint.local = Some(Locally::Signal);
            }
            value.shape = value.shape.join(base.shape);
        }
        if name == "shape" {
            value.taint = base.shape;
        }
        value
    }

    /// Whether `.rank` is that of a matrix or tensor.
    pub(super) fn is_matrix_rank(&self, of: &Expr<'s>, name: &str) -> bool {
        if name != "rank" {
            return false;
        }
        let base = of.last_name().unwrap_or_default().to_ascii_lowercase();
        let is_parameter = [
            "hparams", "lora", "peft", "tensor", "matrix", "shape", "result", "item", "record", "entry",
            "doc",
        ];
        is_parameter.iter().any(|word| base.contains(word)) || self.is_low_rank(self.func())
    }

    /// A method, property or attribute of an object of the project.
    fn member(&mut self, class: ClassId, base: &Val, name: &'s str, origin: Origin) -> Option<Val> {
        if let Some(method) = self.project.method(class, name) {
            let def = &self.project.functions[method].def;
            let is_property = def.decorators.iter().any(|d| {
                matches!(d.last_name(), Some("property" | "cached_property" | "lru_cache_property"))
            });
            if !is_property {
                let this = Some(Arc::new(base.clone()));
                return Some(Val::new(Data::Func(method, this), hash(&[13, method as u64])));
            }
            if let Some(rank) = catalog::rank_attribute(name) {
                return Some(self.rank_value(rank, origin));
            }
            return Some(self.enter(method, Some(base.clone()), &[], &[], origin.span));
        }
        let values = self.project.ancestry(class).iter().find_map(|id| self.facts.attributes[*id].get(name));
        let values = values?;
        if self.muted >= MAX_LOOKUPS {
            return None;
        }
        let cached = hash(&[63, class as u64, base.sym, hash_text(name)]);
        if let Some(value) = self.known.get(&cached) {
            return Some(value.clone());
        }
        let n_answers = self.oracle.answers.len();
        let value = self.assigned_member(class, base, name, origin, values)?;
        if self.muted <= 1 && self.oracle.answers.len() == n_answers {
            self.known.insert(cached, value.clone());
        }
        Some(value)
    }

    /// Values that the methods of a class assign to an attribute.
    fn assigned_member(
        &mut self,
        class: ClassId,
        base: &Val,
        name: &'s str,
        origin: Origin,
        values: &'p [(FuncId, &'p Expr<'s>, Option<usize>)],
    ) -> Option<Val> {
        let number = hash(&[63, class as u64, base.sym, hash_text(name), base.taint.print()]);
        let value = self.known_value(number, &mut |machine| {
            let mut found: Option<Val> = None;
            for (method, value, n) in values.iter().take(4) {
                machine.push_frame(*method, Some(base.clone()));
                // Names that the method does not assign before are its parameters.
                let mut value = machine.eval_in(*method, value);
                if let Some(n) = n {
                    value = Self::part(&value, *n);
                }
                machine.frames.pop();
                found = Some(found.map_or(value.clone(), |old| old.join(&value)));
            }
            found
        })?;
        let classes = self.project.ancestry(class);
        if classes.iter().any(|id| self.facts.signalled.contains(&(*id, name))) {
            let sym = hash(&[82, class as u64, hash_text(name)]);
            return Some(Val::unknown(sym).tainted(Taint::local(Locally::Signal, origin)));
        }
        if values.iter().any(|(_, v, _)| is_container(v)) {
            // What is empty when the object is made is filled as the process runs.
            let order =
                self.project.ancestry(class).iter().any(|id| self.facts.unordered.contains(&(*id, name)));
            let kind = if order { Locally::Order } else { Locally::Data };
            let taint = Taint::local(kind, origin);
            let sym = hash(&[61, class as u64, hash_text(name)]);
            return Some(Val::unknown(sym).tainted(taint).shaped(Taint::local(Locally::Data, origin)));
        }
        if matches!(value.data, Data::Unknown | Data::None) && value.taint.is_clean() {
            // Nothing is known of what was assigned: the name may tell.
            if let Some(rank) = catalog::rank_attribute(name)
                && !self.is_low_rank(self.func())
            {
                return Some(self.rank_value(rank, origin));
            }
            let sym = hash(&[44, class as u64, hash_text(name)]);
            return Some(self.conventional(self.file(), name, sym, origin));
        }
        Some(value)
    }

    /// Evaluates an expression of a method whose other statements are not executed.
    fn eval_in(&mut self, method: FuncId, value: &'p Expr<'s>) -> Val {
        let mut names = Vec::new();
        crate::python::walk::exprs(value, &mut |e| {
            if let ExprKind::Name(name) = &e.kind {
                names.push(*name);
            }
        });
        for name in names {
            if self.frame().scope.name(name).is_none()
                && let Some(value) = self.lazily(method, name)
            {
                self.frame().scope.set(name, value);
            }
        }
        self.eval(value)
    }
}

thread_local! {
    /// Attributes of what is outside of the project, by the number of the whole and the name: each is asked for many times.
    static OUTER: RefCell<LookupMap<u64, Val>> = RefCell::new(LookupMap::default());
}
/// Attributes that a thread remembers.
const MAX_OUTER: usize = 50_000;

/// An attribute of something outside of the project.
fn outer(path: &str, sym: u64, name: &str) -> Val {
    let key = hash(&[84, sym, hash_text(name)]);
    let known = OUTER.with(|map| map.try_borrow().ok()?.get(&key).cloned());
    if let Some(value) = known {
        return value;
    }
    let path = format!("{path}.{name}");
    let is_world =
        ["group.WORLD", "GroupMember.WORLD", "MPI.COMM_WORLD"].iter().any(|end| path.ends_with(end));
    let value =
        if is_world { Val::new(Data::Group(GroupValue::World), hash(&[42])) } else { Val::external(&path) };
    OUTER.with(|map| {
        if let Ok(mut map) = map.try_borrow_mut() {
            if map.len() >= MAX_OUTER {
                map.clear();
            }
            map.insert(key, value.clone());
        }
    });
    value
}

/// Whether an attribute is a flag of a state that all processes step alike: `control.should_save`.
fn is_shared_state(of: &Expr<'_>, name: &str) -> bool {
    name == "should_save" && of.last_name().is_some_and(|base| matches!(base, "control" | "state"))
}
