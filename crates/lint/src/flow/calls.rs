//! Calls: collectives, facts of the job, functions of the project.

use std::borrow::Cow;
use std::sync::Arc;

use ringleader_knowledge::collective::{Axis, Callers, When};

use super::catalog::{self, CatalogRow};
use super::machine::{CallFrame, Flow, Interpreter, SeenCall};
use super::recall::Done;
use super::scope::{Key, dotted};
use super::trace::{CollectiveOp, FlowEvent, WORLD};
use super::value::{Data, GroupValue, Locally, Origin, Taint, Val, chain, hash, hash_text};
use crate::python::ast::{CallExpr, Expr, ExprKind, ParamKind, Span};
use crate::python::index::{FuncId, Project};

/// Data for a rule on a collective that runs beside others.
pub(crate) const BACKGROUND: &str = "<collective in the background>";

/// One call, with what is known of its parts.
#[derive(Clone, Copy)]
pub(super) struct Site<'a, 'p, 's> {
    /// The last part of what is called.
    pub(super) name: &'s str,
    /// The receiver of a method, if it is no module.
    pub(super) base: Option<&'a Val>,
    pub(super) callee: &'a Val,
    pub(super) call: &'p CallExpr<'s>,
    pub(super) args: &'a [Val],
    pub(super) keywords: &'a [(&'s str, Val)],
    pub(super) origin: Origin,
    /// The number of the value that is returned.
    pub(super) sym: u64,
}

impl<'p, 's> Interpreter<'_, 'p, 's> {
    pub(crate) fn call(&mut self, call: &'p CallExpr<'s>, expr: &'p Expr<'s>) -> Val {
        let span = expr.span;
        let origin = self.origin(span);
        let name = call.func.last_name().unwrap_or_default();
        // The receiver of a method, if it is no module.
        let (base, callee) = self.callee(&call.func);
        let args: Vec<Val> = call.args.iter().map(|arg| self.eval(arg)).collect();
        let keywords: Vec<(&'s str, Val)> =
            call.keywords.iter().map(|(key, value)| (key.unwrap_or("**"), self.eval(value))).collect();
        self.feed(super::own::object(&call.func), base.as_ref().unwrap_or(&callee), &args, &keywords);
        let start = hash(&[70, hash_text(name), callee.sym, base.as_ref().map_or(0, |base| base.sym)]);
        let sym = args.iter().fold(start, |sym, value| chain(sym, value.sym));
        let sym = keywords.iter().fold(sym, |sym, (key, value)| chain(chain(sym, hash_text(key)), value.sym));
        // `getattr(args, "fsdp", False)` is `args.fsdp`.
        if name == "getattr"
            && base.is_none()
            && let [of, Expr { kind: ExprKind::Str(Cow::Borrowed(attribute)), .. }, ..] = call.args.as_slice()
            && let Some(held) = args.first()
        {
            return self.attribute(held, attribute, span, of);
        }
        if let Some(value) = self.of_job(name, base.as_ref(), &callee, call, &args, &keywords, origin) {
            return value;
        }
        if keywords.iter().any(|(key, _)| *key == "rank") && !matches!(callee.data, Data::External(_)) {
            self.look(name, origin, &args, &keywords, None);
        }
        if let Some(group) = named_group(name, call) {
            return Val::new(Data::Group(GroupValue::Axes(group)), sym);
        }
        if let Some((row, is_guess)) = self.row(name, base.as_ref(), &callee) {
            return self.collective(row, is_guess, base.as_ref(), call, &args, &keywords, span, sym);
        }
        if Self::helper(name, base.as_ref(), &callee)
            && let Some(row) = catalog::telling(name)
        {
            return self.collective(row, true, base.as_ref(), call, &[], &[], span, sym);
        }
        match &callee.data {
            Data::Func(func, this) => {
                let this = this.as_ref().map(|this| (**this).clone());
                let bound = bindings(self.project, *func, this.is_some(), &args, &keywords);
                let value = self.enter(*func, this, &bound, &call.args, span);
                let value = self.of_given(*func, &bound, value);
                if matches!(value.data, Data::Unknown | Data::None)
                    && value.taint.is_clean()
                    && let Some(class) = self.project.made_by(*func)
                {
                    return Val::new(Data::Instance(class), value.sym);
                }
                return value;
            }
            Data::Class(class) => {
                let class = *class;
                let mut this = Val::new(Data::Instance(class), sym);
                // A metric that hands on that it does not synchronise.
                if keywords.iter().any(|(key, value)| *key == "sync_on_compute" && value.as_int() == Some(0))
                {
                    this.shape.local = Some(Locally::Signal);
                }
                if let Some(init) = self.project.method(class, "__init__")
                    && self.facts.may[init]
                {
                    let bound = bindings(self.project, init, true, &args, &keywords);
                    self.enter(init, Some(this.clone()), &bound, &[], span);
                }
                for base in self.project.external_bases(class) {
                    if let Some(row) = catalog::method(base, "__init__") {
                        self.collective(row, false, None, call, &args, &keywords, span, sym);
                    }
                }
                return this;
            }
            Data::Object(kind) => {
                // An object that is called: the forward pass of a wrapped model.
                let is_quiet = kind.ends_with("DistributedDataParallel")
                    && self.process.overrides.is_empty()
                    && !self.facts.file(origin.file).has_buffers();
                if let Some(row) = catalog::method(kind, "__call__").filter(|_| !is_quiet) {
                    let mut value = self.collective(row, false, None, call, &args, &keywords, span, sym);
                    value = value.tainted(Taint::local(Locally::Data, origin));
                    return value;
                }
            }
            _ => {}
        }
        if let Some(value) = self.called_object(&callee, &args, &keywords, call, span) {
            return value;
        }
        // What only its name tells.
        if let Some(func) = self.by_name(name, base.as_ref(), &callee) {
            let class = self.project.class_of_self(func);
            let this = class.map(|class| Val::new(Data::Instance(class), sym));
            let bound = bindings(self.project, func, true, &args, &keywords);
            self.guessing += 1;
            let value = self.enter(func, this, &bound, &call.args, span);
            self.guessing -= 1;
            return value;
        }
        let (base, callee) = (base.as_ref(), &callee);
        let (args, keywords) = (args.as_slice(), keywords.as_slice());
        self.outside(Site { name, base, callee, call, args, keywords, origin, sym })
    }

    /// The receiver and what is called.
    fn callee(&mut self, func: &'p Expr<'s>) -> (Option<Val>, Val) {
        let ExprKind::Attr(of, name) = &func.kind else { return (None, self.eval(func)) };
        if let ExprKind::Call(inner) = &of.kind
            && matches!(inner.func.kind, ExprKind::Name("super"))
        {
            let class = self.project.class_of_self(self.func());
            let bases = class.map(|class| self.project.ancestry(class)).unwrap_or_default();
            let method = bases.iter().skip(1).find_map(|id| self.project.classes[*id].methods.get(name));
            let this = self.frames.last().and_then(|frame| frame.this.clone());
            if let Some(method) = method {
                let this = this.map(Arc::new);
                return (None, Val::new(Data::Func(*method, this), hash(&[13, *method as u64])));
            }
            let outer = class.and_then(|class| {
                let bases = self.project.external_bases(class);
                bases.iter().find(|base| catalog::method(base, name).is_some())
            });
            let kind = outer.map_or("object", String::as_str);
            let base = Val::object(kind, hash(&[71, hash_text(kind)]));
            return (Some(base.clone()), Val::unknown(hash(&[72, base.sym, hash_text(name)])));
        }
        let base = self.eval(of);
        let callee = match self.frame().scope.attr(func).cloned() {
            Some(value) => value,
            None => match &base.data {
                Data::External(_) | Data::Instance(_) | Data::Class(_) => {
                    self.attribute(&base, name, func.span, of)
                }
                _ => Val::unknown(hash(&[43, base.sym, hash_text(name)])),
            },
        };
        match callee.data {
            Data::External(_) if matches!(base.data, Data::External(_)) => (None, callee),
            _ => (Some(base), callee),
        }
    }

    /// The collective that a call is, and whether only the receiver's name says so.
    fn row(&self, name: &str, base: Option<&Val>, callee: &Val) -> Option<(CatalogRow, bool)> {
        match &callee.data {
            Data::External(path) => {
                if let Some(row) = catalog::at(path) {
                    return Some((row, false));
                }
                if catalog::method(path, "__init__").is_some() {
                    return catalog::method(path, "__init__").map(|row| (row, false));
                }
            }
            Data::Func(func, _) => {
                let class = match base.map(|base| &base.data) {
                    Some(Data::Instance(class)) => Some(*class),
                    _ => None,
                };
                let wrapped = || class.and_then(|class| catalog::wrapped_method(self.project, class, name));
                return catalog::of_function(self.project, *func).or_else(wrapped).map(|row| (row, false));
            }
            _ => {}
        }
        let base = base?;
        match &base.data {
            Data::Object(kind) => {
                if let Some(row) = catalog::method(kind, name) {
                    return Some((row, false));
                }
            }
            Data::Instance(class) => {
                let bases = self.project.external_bases(*class);
                if let Some(row) = bases.iter().find_map(|kind| catalog::method(kind, name)) {
                    return Some((row, false));
                }
            }
            Data::Group(_) => {
                if let Some(row) = catalog::method("mpi4py.MPI.Comm", name)
                    && self.facts.job.has_mpi
                {
                    return Some((row, false));
                }
            }
            Data::External(_) if !matches!(callee.data, Data::Unknown) => return None,
            _ => {}
        }
        catalog::distinctive(name).map(|row| (row, true))
    }

    /// A helper that is not there, known by a name that says what it does.
    fn helper(name: &str, base: Option<&Val>, callee: &Val) -> bool {
        let is_outside = match &callee.data {
            Data::External(path) => !["torch.", "numpy.", "jax.", "scipy.", "tensorflow.", "keras."]
                .iter()
                .any(|outer| path.starts_with(outer)),
            Data::Unknown => matches!(base, None | Some(Val { data: Data::Unknown | Data::Instance(_), .. })),
            _ => false,
        };
        is_outside && catalog::is_telling(name)
    }

    /// Facts on this process or the job from a call.
    #[expect(clippy::too_many_arguments, reason = "the parts of one call")]
    fn of_job(
        &mut self,
        name: &'s str,
        base: Option<&Val>,
        callee: &Val,
        call: &'p CallExpr<'s>,
        args: &[Val],
        keywords: &[(&'s str, Val)],
        origin: Origin,
    ) -> Option<Val> {
        let is_external = matches!(callee.data, Data::External(_));
        let text = |n: usize| call.args.get(n).and_then(Expr::dotted);
        if matches!(name, "get" | "getenv")
            && let Some(Val { data: Data::Str(key), .. }) = args.first()
            && let Data::External(path) = &callee.data
            && matches!(&**path, "os.environ.get" | "os.getenv" | "os.environ.setdefault")
        {
            let key = Arc::clone(key);
            return Some(self.variable(&key, origin));
        }
        if let Some(is_true) = catalog::fact(name)
            && !matches!(base.map(|base| &base.data), Some(Data::Items(..)))
        {
            if is_true {
                return Some(Val::truth(true));
            }
            let group = args.first().map(|value| Self::group(value, text(0).as_deref()));
            return Some(Val::int(group.map_or(WORLD, Self::size_of)));
        }
        // Whoever asks whether it is a member means a group by it: the members answer alike.
        if is_membership(name) {
            return Some(Val::unknown(hash(&[81, hash_text(name), callee.sym])));
        }
        let is_rank_method =
            name == "rank" && (is_external || matches!(base.map(|b| &b.data), Some(Data::Group(_))));
        let rank = catalog::rank_call(name);
        if rank.is_none() && !is_rank_method {
            return None;
        }
        // What a library that is no part of a job calls a rank.
        if let Data::External(path) = &callee.data
            && !is_of_job(path)
        {
            return None;
        }
        let of_group =
            args.first().or_else(|| keywords.iter().find(|(key, _)| *key == "group").map(|(_, v)| v));
        let (axis, value) = rank.unwrap_or((Axis::Global, ringleader_knowledge::collective::RankValue::Rank));
        if value == ringleader_knowledge::collective::RankValue::Rank {
            if let Some(Val { data: Data::Str(dim), sym, .. }) = of_group {
                let group = super::machine::group_of_name(dim, *sym);
                return Some(self.rank_in(group, origin));
            }
            if let Some(of) = of_group
                && matches!(axis, Axis::Global | Axis::Local)
            {
                let group = Self::group(of, text(0).as_deref());
                return Some(self.rank_in(group, origin));
            }
            if let Some(base) = base
                && let ExprKind::Attr(of, _) = &call.func.kind
            {
                let group = match &base.data {
                    Data::Group(group) => Some(*group),
                    _ if of.last_name().is_some_and(|n| n.contains("mesh")) => {
                        Some(super::machine::group_of_name(of.last_name().unwrap_or_default(), base.sym))
                    }
                    _ => None,
                };
                if let Some(group) = group {
                    return Some(self.rank_in(group, origin));
                }
            }
        }
        Some(self.rank_value((axis, value), origin))
    }

    /// Records a call of a collective.
    #[expect(clippy::too_many_arguments, reason = "the parts of one call")]
    fn collective(
        &mut self,
        row: CatalogRow,
        is_guess: bool,
        base: Option<&Val>,
        call: &'p CallExpr<'s>,
        args: &[Val],
        keywords: &[(&'s str, Val)],
        span: Span,
        sym: u64,
    ) -> Val {
        let origin = self.origin(span);
        let is_guess = is_guess || self.guessing > 0;
        let keyword = |name: &str| keywords.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
        let is_true = |value: Option<&Val>| value.is_some_and(|v| v.as_int() == Some(1));
        if self.with_seen {
            let path = format!("{}.{}", row.of.paths.first().unwrap_or(&""), row.call.name);
            self.look(&path, origin, args, keywords, Some(row));
        }
        let is_maybe = self.guessing > 0
            || (row.of.when == When::Sharded
                && (!self.facts.file(origin.file).is_sharded_in_code() || self.is_made_here(call)));
        let is_silent = match row.of.when {
            When::Always => {
                is_true(keyword("no_dist"))
                    || (row.call.name == "new_group" && is_true(keyword("use_local_synchronization")))
            }
            When::Sharded => {
                (!self.facts.file(origin.file).is_sharded() && !self.with_local)
                    || self.is_sharded_later(call, span)
            }
            When::Sync => !is_true(keyword("sync_dist")) || is_true(keyword("rank_zero_only")),
        };
        let is_local = row.of.framework == "torchmetrics" && Self::is_local_metric(base);
        let group = match row.of.who {
            Callers::World | Callers::Model => GroupValue::World,
            Callers::Group => {
                let at = row.call.group.map(usize::from);
                let names = ["group", "process_group"];
                let from_keyword =
                    call.keywords.iter().find(|(key, _)| key.is_some_and(|key| names.contains(&key)));
                let text = from_keyword.map(|(_, e)| e).or_else(|| at.and_then(|at| call.args.get(at)));
                let text = text.and_then(|e| match &e.kind {
                    ExprKind::Call(call) => call.func.dotted(),
                    _ => e.dotted(),
                });
                let value =
                    names.iter().find_map(|name| keyword(name)).or_else(|| at.and_then(|at| args.get(at)));
                match (value, base) {
                    (Some(value), _) => Self::group(value, text.as_deref()),
                    // The communicator of MPI is the receiver.
                    (None, Some(base)) if row.of.framework == "mpi4py" => match &base.data {
                        Data::Group(group) => *group,
                        _ => GroupValue::World,
                    },
                    _ => GroupValue::World,
                }
            }
        };
        // Some processes may make a world of their own.
        let is_start = matches!(row.call.name, "init_process_group" | "init_distributed" | "initialize");
        self.is_over &= !is_start;
        if !is_silent && !is_local && !is_start && !self.is_over {
            let dtype = tensor_of(row, args, keywords).and_then(|value| value.dtype);
            let op = self.op(row.matches(), Some(row), origin);
            // Who alone takes a branch may be the root by that.
            let root = root_of(row, args, keywords)
                .filter(|(_, taint)| taint.axes == 0 || (self.open_arms == 0 && !self.is_given(*taint)));
            self.record(FlowEvent::Op(CollectiveOp { group, is_guess, is_maybe, dtype, root, ..op }));
        }
        if row.call.name == "async_save" && keyword("process_group").is_none() {
            self.in_background = Some(origin);
        } else if group == GroupValue::World
            && !is_silent
            && !is_local
            && !is_maybe
            && row.of.who != Callers::Model
            && let Some(start) = self.in_background.take()
        {
            self.look(BACKGROUND, start, &[Val::text(row.call.name)], &[], None);
        }
        if let Some(n) = row.call.agreed {
            let target = call.args.get(usize::from(n)).or_else(|| call.keyword("tensor"));
            if let Some(target) =
                target.or_else(|| call.keyword("tensor_list")).or_else(|| call.keyword("object_list"))
            {
                self.agree(target, sym);
            }
        }
        if row.call.name == "__init__" {
            let kind = row.of.paths.first().copied().unwrap_or_default();
            return Val::object(kind, sym);
        }
        if row.call.name == "new_group" {
            return Val::new(Data::Group(GroupValue::Some(sym)), sym);
        }
        if let (Some(kind), Data::Unknown) = (
            catalog::made_by(&format!("{}.{}", row.of.paths.first().unwrap_or(&""), row.call.name)),
            Data::Unknown,
        ) {
            return Val::object(kind, sym);
        }
        if row.call.name.ends_with("state_dict") && !row.call.name.starts_with("load") {
            // It may be empty, and is never None.
            let one = Val::unknown(hash(&[76, sym]));
            return Val::new(Data::Many(std::sync::Arc::new(one)), sym);
        }
        if row.of.agrees {
            // The number of the call, not of what went in: all members hold the same.
            return Val { agreed: true, ..Val::unknown(hash(&[73, origin.file as u64, u64::from(span.at)])) };
        }
        Val::unknown(sym)
    }

    /// Whether a rank is a parameter, so that the caller knows whose rank it is.
    fn is_given(&self, rank: Taint) -> bool {
        let Some(origin) = rank.origin() else { return false };
        self.frames.iter().any(|frame| {
            let func = &self.project.functions[frame.func];
            func.file == origin.file && func.def.name_span == origin.span
        })
    }

    /// Whether the function itself makes the model that a call is about, in a file that shards nothing.
    fn is_made_here(&self, call: &CallExpr<'s>) -> bool {
        let Some(ExprKind::Name(model)) = call.args.first().map(|arg| &arg.kind) else { return false };
        let made = self.facts.assigned[self.func()]
            .get(model)
            .is_some_and(|values| values.iter().all(|(value, _)| matches!(value.kind, ExprKind::Call(_))));
        let text = self.slice(self.project.functions[self.func()].def.span);
        let is_wrapped = ["prepare(", "initialize(", "setup(", "boost(", "wrap(", "parallel"]
            .iter()
            .any(|name| text.contains(name));
        made && !is_wrapped && self.facts.file(self.file()).is_sharded_elsewhere()
    }

    /// Whether the model that a call is about is sharded further down in the function: there, it is not yet.
    fn is_sharded_later(&self, call: &CallExpr<'s>, span: Span) -> bool {
        let Some(model) = call.args.first().and_then(Expr::dotted) else { return false };
        let end = self.project.functions[self.func()].def.span.end.max(span.end);
        let rest = self.project.files[self.file()].slice(Span { at: span.end, end });
        ["shard(", "FSDP(", "FullyShardedDataParallel("].iter().any(|name| {
            rest.split(name).skip(1).any(|args| {
                args.trim_start()
                    .strip_prefix(model.as_str())
                    .is_some_and(|tail| tail.starts_with([',', ')']))
            })
        })
    }

    /// Whether a metric was made with `sync_on_compute=False`, or nothing shows that it is one of torchmetrics.
    fn is_local_metric(base: Option<&Val>) -> bool {
        base.is_none_or(|base| base.shape.local == Some(Locally::Signal))
    }

    /// A collective made this variable equal on all processes.
    pub(crate) fn agree(&mut self, target: &'p Expr<'s>, sym: u64) {
        let value = Val {
            agreed: true,
            ..Val::unknown(hash(&[74, sym, u64::from(target.span.at), self.file() as u64]))
        };
        match &target.kind {
            ExprKind::Name(name) => {
                let frame = self.frame();
                // Each process gets the value of the others: a condition that led here does not matter.
                frame.scope.set(name, value);
                frame.agreed.insert(name);
            }
            ExprKind::Attr(of, _) => {
                if let Some(path) = dotted(target) {
                    self.frame().scope.put(Key::Attr(path), Some(value));
                } else {
                    self.agree(of, sym);
                }
            }
            ExprKind::Index(of, _) => self.agree(of, sym),
            ExprKind::List(list) | ExprKind::Tuple(list) => {
                for part in list {
                    self.agree(part, sym);
                }
            }
            _ => {}
        }
    }

    pub(crate) fn look(
        &mut self,
        path: &str,
        at: Origin,
        args: &[Val],
        keywords: &[(&'s str, Val)],
        row: Option<CatalogRow>,
    ) {
        // A call further down matters for its order and for the sizes that it was given.
        let is_own =
            |arg: &Val| matches!(arg.shape.local, Some(Locally::Data | Locally::Loader)) && !arg.agreed;
        // So does a barrier in a helper: it may come too early.
        let is_sized = row.is_some_and(|row| row.matches() == "barrier" || args.iter().any(is_own));
        let is_far = self.frames.len() > 1;
        if !self.with_seen
            || self.muted > 0
            || (is_far && !is_sized && (self.order.is_empty() || row.is_none()))
        {
            return;
        }
        let keywords = keywords.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        let order = self.order.last().copied().unwrap_or_default();
        self.seen.push(SeenCall { path: path.to_owned(), at, args: args.to_vec(), keywords, row, order });
    }

    /// Follows a call into the project.
    pub(crate) fn enter(
        &mut self,
        func: FuncId,
        this: Option<Val>,
        bound: &[(&'s str, Val)],
        args: &'p [Expr<'s>],
        span: Span,
    ) -> Val {
        let origin = self.origin(span);
        let start = hash(&[75, func as u64]);
        let unknown = Val::unknown(bound.iter().fold(start, |sym, (_, value)| chain(sym, value.sym)));
        let f = &self.project.functions[func];
        // A function by the usual name says what the name says, however it finds out.
        if let Some(rank) = catalog::rank_call(f.def.name)
            && !self.facts.may[func]
        {
            return self.rank_value(rank, origin);
        }
        // What fits into memory each process finds for itself.
        let fits = |d: &Expr<'_>| match &d.kind {
            ExprKind::Call(call) => call.func.last_name() == Some("find_executable_batch_size"),
            _ => d.last_name() == Some("find_executable_batch_size"),
        };
        if f.def.decorators.iter().any(fits) {
            return unknown.tainted(Taint::local(Locally::Data, origin));
        }
        let has_rank_argument = bound.iter().any(|(_, value)| value.taint.axes != 0);
        let differs = if self.with_local { self.facts.differs[func] } else { self.facts.ranked[func] };
        let is_worth_it = if self.is_survey {
            self.facts.tells[func] || has_rank_argument
        } else {
            self.facts.may[func] || differs || has_rank_argument
        };
        if !is_worth_it || !self.can_enter(func) {
            return unknown;
        }
        if !self.passes_guards(func) {
            return Val::none();
        }
        let key = self.call_number(func, this.as_ref(), bound);
        let repeated = key.and_then(|key| self.repeat_call(key));
        let done = repeated.unwrap_or_else(|| {
            let mark = key.map(|key| self.start_call(key));
            let done = self.follow(func, this, bound);
            if let Some(mark) = mark {
                self.keep_call(mark, &done);
            }
            done
        });
        let Done { flow, agreed, decided } = done;
        // What the function made equal in place is equal here, too.
        let skip = usize::from(f.def.params.first().is_some_and(|p| matches!(p.name, "self" | "cls")));
        for (n, arg) in args.iter().enumerate() {
            if let Some(param) = f.def.params.get(n + skip)
                && agreed.contains(param.name)
            {
                self.agree(arg, unknown.sym);
            }
        }
        match flow {
            // What is returned at different ends differs as the decision for one of them.
            Flow::Return(value)
                if matches!(value.data, Data::Cond(_) | Data::Int(_) | Data::None | Data::Str(_)) =>
            {
                value.tainted(decided)
            }
            Flow::Return(value) => value,
            Flow::Cut => {
                self.steps = 0;
                unknown
            }
            _ => Val::none(),
        }
    }

    /// Executes a function of the project.
    fn follow(&mut self, func: FuncId, this: Option<Val>, bound: &[(&'s str, Val)]) -> Done<'s> {
        self.push_frame(func, this);
        let project = self.project;
        let def = &project.functions[func].def;
        for param in &def.params {
            let given = bound.iter().find(|(name, _)| *name == param.name).map(|(_, value)| value.clone());
            let value = match (given, &param.default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.eval(default),
                (None, None) => self.parameter(func, param),
            };
            self.frame().scope.set(param.name, value);
        }
        let flow = self.block(&def.body);
        let frame = self.frames.pop();
        let (agreed, decided) = frame.map(|frame| (frame.agreed, frame.decided)).unwrap_or_default();
        Done { flow, agreed, decided }
    }

    /// The function behind a context manager, with its arguments, if it is a generator of the project.
    pub(crate) fn manager(&mut self, call: &'p CallExpr<'s>) -> Option<(FuncId, CallFrame<'p, 's>)> {
        let (_, callee) = self.callee(&call.func);
        let Data::Func(func, this) = callee.data else { return None };
        let f = &self.project.functions[func];
        let is_manager =
            f.def.decorators.iter().any(|d| d.last_name().is_some_and(|n| n.contains("contextmanager")));
        if !is_manager || !f.def.has_yield || !self.facts.may[func] || !self.can_enter(func) {
            return None;
        }
        let args: Vec<Val> = call.args.iter().map(|arg| self.eval(arg)).collect();
        let keywords: Vec<(&'s str, Val)> =
            call.keywords.iter().map(|(key, value)| (key.unwrap_or("**"), self.eval(value))).collect();
        let this = this.map(|this| (*this).clone());
        let bound = bindings(self.project, func, this.is_some(), &args, &keywords);
        self.push_frame(func, this);
        for param in &f.def.params {
            let given = bound.iter().find(|(name, _)| *name == param.name).map(|(_, value)| value.clone());
            let value = match (given, &param.default) {
                (Some(value), _) => value,
                (None, Some(default)) => self.eval(default),
                (None, None) => self.parameter(func, param),
            };
            self.frame().scope.set(param.name, value);
        }
        self.frames.pop().map(|frame| (func, frame))
    }
}

/// The value of each parameter.
pub(super) fn bindings<'s>(
    project: &Project<'s>,
    func: FuncId,
    is_bound: bool,
    args: &[Val],
    keywords: &[(&'s str, Val)],
) -> Vec<(&'s str, Val)> {
    let def = &project.functions[func].def;
    let takes_self = def.params.first().is_some_and(|param| matches!(param.name, "self" | "cls"));
    let plain = def.params.iter().filter(|param| param.kind == ParamKind::Plain);
    let mut bound: Vec<(&'s str, Val)> = plain
        .skip(usize::from(takes_self && (is_bound || project.functions[func].class.is_some())))
        .zip(args)
        .map(|(param, value)| (param.name, value.clone()))
        .collect();
    for (key, value) in keywords {
        if let Some(param) = def.params.iter().find(|param| param.name == *key) {
            bound.push((param.name, value.clone()));
        }
    }
    bound
}

impl Val {
    pub(crate) fn shaped(mut self, shape: Taint) -> Self {
        self.shape = self.shape.join(shape);
        self
    }
}

/// The rank that a collective names as source or target, as torch takes it.
fn root_of(row: CatalogRow, args: &[Val], keywords: &[(&str, Val)]) -> Option<(i64, Taint)> {
    if row.of.framework != "torch.distributed" {
        return None;
    }
    let (name, at) = match row.call.name {
        "broadcast" | "broadcast_object_list" => ("src", 1),
        "reduce" => ("dst", 1),
        "gather" | "gather_object" => ("dst", 2),
        "scatter" | "scatter_object_list" => ("src", 2),
        _ => return None,
    };
    let named = keywords.iter().find(|(key, _)| *key == name).map(|(_, value)| value);
    let value = named.or_else(|| args.get(at))?;
    match value.data {
        Data::Int(n) => Some((n, value.taint)),
        _ => None,
    }
}

/// The tensor that a collective is given, if all members must give one like it.
fn tensor_of<'a>(row: CatalogRow, args: &'a [Val], keywords: &'a [(&str, Val)]) -> Option<&'a Val> {
    if row.of.framework != "torch.distributed" || row.call.name.contains("object") {
        return None;
    }
    let at = usize::from(row.call.name == "all_gather");
    let named = keywords.iter().find(|(key, _)| *key == "tensor").map(|(_, value)| value);
    args.get(at).or(named)
}

/// Whether a function answers if this process is in some group.
fn is_membership(name: &str) -> bool {
    name.contains("group")
        && (name.contains("not_in_group") || (name.contains("_in_") && name.ends_with("group")))
}

/// The axes of the group that a call such as `get_data_parallel_group(with_context_parallel=True)` returns.
fn named_group(name: &str, call: &CallExpr<'_>) -> Option<super::value::Axes> {
    if !name.starts_with("get_") || !super::machine::is_group_name(name) {
        return None;
    }
    let with = call.keywords.iter().filter(|(_, value)| matches!(value.kind, ExprKind::Bool(true)));
    let text = with.fold(name.to_owned(), |text, (key, _)| format!("{text}.{}", key.unwrap_or_default()));
    match super::machine::group_of_name(&text, 0) {
        GroupValue::Axes(axes) => Some(axes),
        _ => None,
    }
}

/// Whether a call that is named like a rank belongs to a library of distributed jobs.
fn is_of_job(path: &str) -> bool {
    const JOBS: &[&str] = &[
        "torch",
        "deepspeed",
        "megatron",
        "accelerate",
        "transformers",
        "lightning",
        "pytorch_lightning",
        "horovod",
        "jax",
        "mpi4py",
        "mlx",
        "mmengine",
        "mmcv",
        "detectron2",
        "composer",
        "orbax",
        "fairscale",
        "apex",
        "torch_xla",
        "colossalai",
        "verl",
        "nemo",
        "lightning_fabric",
        "dist",
        "utils",
        "xformers",
        "vllm",
        "sglang",
        "trl",
        "llmfoundry",
        "torchtitan",
        "olmo",
        "timm",
        "comm",
    ];
    let first = path.split('.').next().unwrap_or_default();
    JOBS.contains(&first)
        || !path.starts_with(|c: char| c.is_ascii_lowercase())
        || path.contains("dist")
        || path.contains("parallel")
}
