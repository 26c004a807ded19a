//! Calls of what is outside of the project and is no collective: values that tensors, containers and modules hand on.

use std::sync::Arc;

use super::calls::{BACKGROUND, Site, bindings};
use super::catalog::{self, CatalogRow};
use super::eval::names_usual_key;
use super::machine::{Interpreter, is_model_name};
use super::own::{may_agree, own_data};
use super::trace::{CollectiveOp, FlowEvent, Message};
use super::value::{Data, Dtype, GroupValue, Items, Locally, OUTPUT, Origin, PARTS, Taint, Val, hash};
use crate::python::ast::ExprKind;

/// Calls of torch and of Python whose value is made of their arguments alone.
const PURE: &[&str] = &[
    "int",
    "bool",
    "str",
    "float",
    "abs",
    "list",
    "tuple",
    "dict",
    "zip",
    "enumerate",
    "round",
    "reversed",
    "iter",
    "repr",
    "divmod",
    "map",
    "filter",
    "getattr",
];

/// Methods that hand a value on.
const HANDED_ON: &[&str] = &[
    "to",
    "cuda",
    "cpu",
    "float",
    "double",
    "half",
    "int",
    "long",
    "bool",
    "detach",
    "clone",
    "view",
    "reshape",
    "squeeze",
    "unsqueeze",
    "flatten",
    "mean",
    "sum",
    "max",
    "min",
    "norm",
    "abs",
    "strip",
    "lower",
    "keys",
    "values",
    "items",
    "copy",
    "numpy",
    "contiguous",
    "repeat",
    "expand",
    "sqrt",
    "pow",
    "get",
    "pop",
    "split",
    "chunk",
    "backward",
    "type",
    "bfloat16",
];

/// Methods whose value says what their object says, in another type or place.
const MOVED: &[&str] =
    &["to", "cuda", "cpu", "float", "double", "half", "int", "long", "bool", "detach", "clone", "type"];

impl Site<'_, '_, '_> {
    /// The dotted path of the called function; empty if unknown.
    fn path(&self) -> &str {
        match &self.callee.data {
            Data::External(path) => path,
            _ => "",
        }
    }

    fn keyword(&self, name: &str) -> Option<&Val> {
        self.keywords.iter().find(|(key, _)| *key == name).map(|(_, value)| value)
    }

    /// In what the arguments may differ, and in what their sizes may.
    fn joined(&self) -> (Taint, Taint) {
        let all = self.args.iter().chain(self.keywords.iter().map(|(_, value)| value));
        all.fold((Taint::NONE, Taint::NONE), |(taint, shape), value| {
            (taint.join(value.taint), shape.join(value.shape))
        })
    }
}

impl<'p, 's> Interpreter<'_, 'p, 's> {
    /// A call of something outside of the project that is no collective.
    pub(super) fn outside(&mut self, site: Site<'_, 'p, 's>) -> Val {
        let Site { name, base, callee, args, keywords, origin, sym, .. } = site;
        let path = site.path();
        self.look(if path.is_empty() { name } else { path }, origin, args, keywords, None);
        self.exchanged(site);
        if let Some(value) = self.of_framework(site).or_else(|| builtin(&site)) {
            return value;
        }
        self.started(site);
        if let Some(value) = self.of_list(site) {
            return value;
        }
        self.forward(&site);
        if let Some(loader) = made_loader(&site) {
            return loader;
        }
        if let Some(base) = base {
            let mut value = Val { dtype: dtype_of(&site), ..method(name, base, callee, args, origin, sym) };
            let is_open = self.with_local && matches!(value.data, Data::Unknown);
            if is_open && value.taint.is_clean() && !value.agreed && !may_agree(name) {
                value = value.tainted(own_data(args.iter()));
            }
            return value;
        }
        // The process's share of a graph or of a data set.
        if matches!(path.rsplit('.').next(), Some("node_split" | "edge_split" | "split_dataset_by_node")) {
            let share = Taint::local(Locally::Loader, origin);
            return Val::unknown(sym).tainted(share).shaped(share);
        }
        // A list of modules is what it lists.
        if let ("torch.nn.ModuleList" | "torch.nn.Sequential", [list]) = (path, args)
            && matches!(list.data, Data::Many(_) | Data::Items(..))
        {
            return list.clone();
        }
        // A device is its name.
        if let ("torch.device", [Val { data: Data::Str(_), .. }]) = (path, args) {
            return args[0].clone();
        }
        let (joined, shapes) = site.joined();
        if path.starts_with("torch.") || path.starts_with("numpy.") {
            let has_minimum = site.keyword("minlength").is_some();
            return Val {
                dtype: dtype_of(&site),
                ..of_tensor(path, joined, shapes, args, has_minimum, origin, sym)
            };
        }
        if path.starts_with("math.") {
            return Val::unknown(sym).tainted(joined);
        }
        if ["copy.", "itertools.", "functools.", "operator."].iter().any(|of| path.starts_with(of)) {
            return Val::unknown(sym).tainted(joined).shaped(shapes);
        }
        if let Some(last) = path.rsplit('.').next()
            && last.starts_with(|c: char| c.is_ascii_uppercase())
        {
            return made(&site);
        }
        // A loss or a model that nobody knows computes on what the batch holds.
        if ["loss", "criterion", "model", "forward"].iter().any(|word| says(name, word)) {
            let value = Val::unknown(sym).tainted(Taint::local(Locally::Data, origin));
            let is_model = says(name, "model") && !says(name, "loss");
            return if is_model {
                Val { data: Data::Object(OUTPUT.into()), ..value.shaped(shapes) }
            } else {
                value
            };
        }
        let own = if self.with_local && !may_agree(name) { own_data(args.iter()) } else { Taint::NONE };
        Val::unknown(sym).tainted(own)
    }

    /// What frameworks make, and the backward pass.
    fn of_framework(&mut self, site: Site<'_, 'p, 's>) -> Option<Val> {
        let Site { name, base, call, origin, sym, .. } = site;
        let path = site.path();
        if path.ends_with("distributed.destroy_process_group") && call.args.is_empty() && self.muted == 0 {
            self.is_over = true;
            self.trace.is_over = true;
        }
        if path.ends_with("distributed.init") {
            return Some(Val::new(Data::Group(GroupValue::World), sym));
        }
        if let Some(kind) = catalog::made_by(path) {
            if path.ends_with("fully_shard")
                && let Some(ExprKind::Name(target)) = call.args.first().map(|arg| &arg.kind)
            {
                self.frame().scope.set(target, Val::object(kind, sym));
            }
            return Some(Val::object(kind, sym));
        }
        if name == "backward" && base.is_some() {
            return Some(self.backward(origin, sym));
        }
        if matches!(name, "tqdm" | "trange" | "ProgressBar") {
            let disable = site.keyword("disable").map(|value| value.taint);
            let over = site.args.first().map(|value| value.shape.join(value.taint)).unwrap_or_default();
            return Some(Val::object("tqdm.tqdm", sym).tainted(disable.unwrap_or_default()).shaped(over));
        }
        if name == "prepare" || (name == "setup" && call.args.len() == 1) {
            return Some(Val::unknown(sym));
        }
        if matches!(path, "random.shuffle" | "numpy.random.shuffle") {
            return None;
        }
        if let Some(generator) = site.keyword("generator").filter(|value| !matches!(value.data, Data::None)) {
            // Seeded with the rank, it draws another order on each.
            let is_own = generator.taint.axes != 0 && catalog::local_call(path) == Some(Locally::Random);
            return is_own.then(|| Val::unknown(sym).tainted(Taint::local(Locally::Random, origin)));
        }
        let kind = catalog::local_call(path)?;
        // What is asked of a value that all hold alike is answered alike.
        if kind == Locally::Data && !site.args.is_empty() && site.args.iter().all(|arg| arg.agreed) {
            return Some(Val { agreed: true, ..Val::unknown(sym) });
        }
        let value = Val::unknown(hash(&[76, sym, u64::from(origin.span.at)]));
        let lists = ["listdir", "scandir", "glob", "iglob"].iter().any(|name| path.ends_with(name));
        if lists {
            let order = Taint::local(Locally::Order, origin);
            return Some(value.tainted(order).shaped(Taint::local(kind, origin)));
        }
        let own = Taint::local(kind, origin);
        let value = value.tainted(own);
        // As many as differ, or are not zero.
        let is_sized = path.ends_with(".unique") || path.ends_with(".nonzero");
        Some(if is_sized { value.shaped(own) } else { value })
    }

    /// A function that is started beside the caller, in a thread or by a pool, and what it calls on the default group.
    fn started(&mut self, site: Site<'_, 'p, 's>) {
        let Site { name, args, origin, .. } = site;
        if matches!(name, "result" | "wait" | "join") {
            self.in_background = None;
        }
        let target = match name {
            "Thread" | "Timer" => site.keyword("target").or_else(|| args.get(1)),
            "submit" | "to_thread" | "apply_async" => args.first(),
            "run_in_executor" => args.get(1),
            _ => None,
        };
        let Some(Val { data: Data::Func(func, this), .. }) = target else { return };
        if self.muted > 0 || !self.facts.may[*func] {
            return;
        }
        let n = self.trace.events.len();
        let this = this.as_ref().map(|this| (**this).clone());
        self.enter(*func, this, &[], &[], origin.span);
        let started = self.trace.events.split_off(n);
        let on_default = |event: &FlowEvent| match event {
            FlowEvent::Op(op) => (op.group == GroupValue::World && !op.is_maybe).then_some(*op),
            _ => None,
        };
        if let Some(op) = started.iter().find_map(on_default) {
            self.look(BACKGROUND, origin, &[Val::text(op.name)], &[], None);
        }
    }

    /// A tensor that is sent or received, and a loader whose iteration communicates.
    fn exchanged(&mut self, site: Site<'_, 'p, 's>) {
        let Site { name, args, origin, .. } = site;
        let sends = match site.path().strip_prefix("torch.distributed.") {
            Some("send" | "isend") => Some(true),
            Some("recv" | "irecv") => Some(false),
            _ => None,
        };
        if let Some(sends) = sends {
            let dtype = args.first().or_else(|| site.keyword("tensor")).and_then(|value| value.dtype);
            self.record(FlowEvent::Message(Message { sends, dtype, at: origin }));
        }
        if name == "iter"
            && let [value] = args
        {
            self.iterated(value, origin);
        }
    }

    /// Going over some loaders communicates: they share a seed, or what one process reads.
    pub(super) fn iterated(&mut self, value: &Val, origin: Origin) {
        if let Data::Object(kind) = &value.data
            && let Some(row) = catalog::method(kind, "__iter__")
        {
            let op = self.op(row.matches(), Some(row), origin);
            self.record(FlowEvent::Op(op));
        }
    }

    /// A call that all ranks must make.
    pub(super) fn op(&self, name: &'static str, row: Option<CatalogRow>, at: Origin) -> CollectiveOp {
        // The statement stands in the file of the function under test, wherever the call does.
        let from = match self.frames.as_slice() {
            [tested, _, ..] => Origin { file: tested.file, span: self.root },
            _ => at,
        };
        CollectiveOp {
            name,
            row,
            group: GroupValue::World,
            at,
            from,
            is_guess: row.is_none(),
            is_maybe: false,
            is_endless: self.endless > 0,
            dtype: None,
            root: None,
        }
    }

    /// Lists that are shuffled, grow, or are mapped.
    fn of_list(&mut self, site: Site<'_, 'p, 's>) -> Option<Val> {
        let Site { name, base, call, args, origin, sym, .. } = site;
        if matches!(site.path(), "random.shuffle" | "numpy.random.shuffle")
            && let Some(ExprKind::Name(list)) = call.args.first().map(|arg| &arg.kind)
        {
            let old = args[0].clone();
            let shuffled = Val { data: Data::Unknown, sym: hash(&[79, sym]), ..old };
            self.bind(list, shuffled.tainted(Taint::local(Locally::Random, origin)));
            return Some(Val::none());
        }
        // A generator that is seeded with the rank draws what is its own.
        if let Some(base) = base
            && let ExprKind::Attr(of, _) = &call.func.kind
        {
            if name == "manual_seed" {
                let by = args.first().map(|seed| Taint { local: None, ..seed.taint }).unwrap_or_default();
                let seeded = Val { sym: hash(&[86, sym]), ..base.clone() }.tainted(by);
                if let ExprKind::Name(generator) = of.kind {
                    self.bind(generator, seeded.clone());
                }
                return Some(seeded);
            }
            if name == "shuffle"
                && base.taint.axes != 0
                && let Some(ExprKind::Name(list)) = call.args.first().map(|arg| &arg.kind)
            {
                let shuffled = Val { data: Data::Unknown, sym: hash(&[79, sym]), ..args[0].clone() };
                self.bind(list, shuffled.tainted(Taint::local(Locally::Random, origin)));
                return Some(Val::none());
            }
        }
        if matches!(name, "append" | "extend" | "add" | "update" | "insert")
            && let ExprKind::Attr(of, _) = &call.func.kind
            && let ExprKind::Name(list) = &of.kind
        {
            self.grow(list, args);
        }
        if name == "map"
            && base.is_none()
            && let [Val { data: Data::Func(func, this), .. }, list, ..] = args
        {
            let one = match &list.data {
                Data::Many(one) => (**one).clone(),
                _ => Val::unknown(hash(&[17, list.sym, 0])).tainted(Taint { axes: 0, ..list.taint }),
            };
            let this = this.as_ref().map(|this| (**this).clone());
            let bound = bindings(self.project, *func, this.is_some(), &[one], &[]);
            let mapped = self.enter(*func, this, &bound, &[], origin.span);
            return Some(Val { data: Data::Many(Arc::new(mapped)), ..Val::unknown(sym) });
        }
        None
    }

    /// In a file about sharded models each forward pass gathers: enough to ask who leaves before the others. A model that
    /// such a file hands on gathers wherever it is called.
    fn forward(&mut self, site: &Site<'_, 'p, 's>) {
        let is_handed_on = match site.base {
            None => site.callee.is_sharded,
            Some(base) => base.is_sharded && matches!(site.name, "generate" | "forward"),
        };
        let is_here = site.base.is_none()
            && is_model_name(site.name)
            && !self.process.overrides.is_empty()
            && self.facts.file(site.origin.file).is_sharded();
        if is_here || (is_handed_on && self.with_local) {
            let op = self.op("forward", None, site.origin);
            self.record(FlowEvent::Op(CollectiveOp { is_maybe: !is_here, ..op }));
        }
    }

    /// A list that grows: what it holds, and how much, differs as what is added.
    fn grow(&mut self, list: &'s str, args: &[Val]) {
        let Some(old) = self.frame().scope.name(list).cloned() else { return };
        if !matches!(old.data, Data::Items(..) | Data::Unknown | Data::Many(_)) {
            return;
        }
        let added = args.iter().fold(Taint::NONE, |taint, arg| taint.join(arg.taint));
        let data = match args {
            [one] if matches!(&old.data, Data::Items(_, items) if items.is_empty()) => {
                Data::Many(Arc::new(one.clone()))
            }
            _ => match old.data {
                Data::Many(ref one) => Data::Many(Arc::clone(one)),
                _ => Data::Unknown,
            },
        };
        let local = Taint { axes: 0, ..added };
        let grown = Val { data, sym: hash(&[80, old.sym]), ..old };
        self.bind(list, grown.tainted(added).shaped(local));
    }

    /// The backward pass of a wrapped model reduces gradients.
    fn backward(&mut self, origin: Origin, sym: u64) -> Val {
        // Where files speak of ranks, who trains most likely trains together: enough to ask who leaves before the others.
        let file = self.facts.file(origin.file);
        let is_wrapped = file.is_wrapped() || (file.is_distributed() && !self.process.overrides.is_empty());
        if self.no_sync == 0 && is_wrapped {
            let op = self.op("backward", None, origin);
            self.record(FlowEvent::Op(op));
        }
        Val::unknown(sym)
    }
}

/// Whether a name has a word in it, in any case.
fn says(name: &str, word: &str) -> bool {
    let first = word.as_bytes().first().copied().unwrap_or_default();
    let starts = |part: &[u8]| part.first().is_some_and(|byte| byte.eq_ignore_ascii_case(&first));
    let mut parts = name.as_bytes().windows(word.len().max(1));
    parts.any(|part| starts(part) && part.eq_ignore_ascii_case(word.as_bytes()))
}

/// Calls of Python itself.
fn builtin(site: &Site<'_, '_, '_>) -> Option<Val> {
    let Site { name, base, args, origin, sym, .. } = *site;
    let (joined, shapes) = site.joined();
    match name {
        "len" => {
            let mut taint = args.first().map(|value| value.shape).unwrap_or_default();
            if taint.is_clean() {
                taint = joined;
            }
            Some(Val::unknown(sym).tainted(taint))
        }
        // The types of what processes hold are the same.
        "isinstance" | "issubclass" | "hasattr" | "callable" | "type" if base.is_none() => {
            let by_rank = Taint { local: None, ..joined };
            Some(Val::unknown(sym).tainted(if by_rank.axes == 0 { Taint::NONE } else { by_rank }))
        }
        "next" if base.is_none() => {
            let kind = if args.len() == 2 { Locally::End } else { Locally::Data };
            let kind = Taint::local(kind, origin);
            Some(Val::unknown(hash(&[77, sym, u64::from(origin.span.at)])).tainted(kind).shaped(kind))
        }
        "set" | "frozenset" if base.is_none() => {
            Some(Val::unknown(sym).tainted(Taint::local(Locally::Order, origin)).shaped(shapes))
        }
        "sorted" => {
            let is_order = joined.local == Some(Locally::Order);
            let taint = if is_order { Taint { local: None, ..joined } } else { joined };
            Some(Val::unknown(sym).tainted(taint).shaped(shapes))
        }
        "range" => {
            let mut value = Val::unknown(sym).tainted(joined);
            if let [Val { data: Data::Int(n), .. }] = args {
                value.data = Data::Range(0, *n);
            }
            Some(value)
        }
        // `float(loss > limit)` is still that condition.
        "float" if base.is_none() && matches!(args, [Val { data: Data::Cond(_), .. }]) => {
            Some(Val { shape: Taint::NONE, ..args[0].clone() })
        }
        "int" | "bool" | "str" if base.is_none() && args.len() == 1 => {
            let number = if name == "int" { args[0].as_int() } else { None };
            let data = match &args[0].data {
                Data::Str(_) if number.is_some() => Data::Int(number.unwrap_or_default()),
                data @ (Data::Int(_) | Data::Cond(_) | Data::Str(_)) => data.clone(),
                _ => Data::Unknown,
            };
            Some(Val { data, sym: args[0].sym, ..args[0].clone() })
        }
        // One number, or one of the parts.
        "sum" | "min" | "max" | "any" | "all" if base.is_none() => {
            let shape = match args {
                [Val { data: Data::Many(one), .. }] => one.shape,
                _ => Taint::NONE,
            };
            let agreed = args.iter().any(|arg| arg.agreed);
            Some(Val { agreed, ..Val::unknown(sym).tainted(joined).tainted(shapes).shaped(shape) })
        }
        _ if PURE.contains(&name) && base.is_none() => {
            let mut value = Val::unknown(sym).tainted(joined).shaped(shapes);
            value.agreed = args.iter().any(|arg| arg.agreed);
            Some(value)
        }
        _ => None,
    }
}

/// A loader that a helper makes, of what its process has of the data: `get_dataloader(...)`.
fn made_loader(site: &Site<'_, '_, '_>) -> Option<Val> {
    let makes =
        ["get_", "setup_", "build_", "make_", "create_", "prepare_"].iter().any(|w| site.name.starts_with(w));
    let is_loader = site.name.ends_with("loader") || site.name.ends_with("data_iterator");
    let is_even = site.keyword("drop_last").is_some_and(|value| value.as_int() == Some(1));
    if !makes || !is_loader || is_even {
        return None;
    }
    let taint = Taint::local(Locally::Loader, site.origin);
    Some(Val::unknown(site.sym).tainted(taint).shaped(taint))
}

/// An object of a class outside of the project.
fn made(site: &Site<'_, '_, '_>) -> Val {
    let path = site.path();
    // What runs on one device has no peers.
    let is_one = |name: &str| site.keyword(name).is_none_or(|n| n.as_int() == Some(1));
    if site.keyword("devices").is_some() && is_one("devices") && is_one("num_nodes") {
        return Val::unknown(site.sym);
    }
    let mut value = Val::object(path, site.sym);
    if site.keyword("sync_on_compute").is_some_and(|v| v.as_int() == Some(0)) {
        value.shape.local = Some(Locally::Signal);
    }
    // A loader of a part that each process has.
    if path.ends_with("Loader") {
        value.shape = Taint { axes: 0, ..site.joined().1 };
    }
    if path.starts_with("torchmetrics.") {
        value.data = Data::Object("torchmetrics.Metric".into());
    }
    value
}

/// A method of an unknown object.
fn method(name: &str, base: &Val, callee: &Val, args: &[Val], origin: Origin, sym: u64) -> Val {
    if base.agreed {
        return Val { agreed: true, ..Val::unknown(sym) };
    }
    if let Data::External(_) = callee.data {
        return Val::unknown(sym);
    }
    match name {
        "item" | "any" | "all" | "tolist" | "isnan" | "isfinite" | "isinf" => {
            return Val::unknown(sym).tainted(base.taint).tainted(Taint::local(Locally::Data, origin));
        }
        "get" if base.taint.local == Some(Locally::Data) && !args.first().is_some_and(names_usual_key) => {
            return Val::unknown(sym).tainted(Taint::local(Locally::Part, origin)).shaped(base.shape);
        }
        "numel" | "nelement" if base.shape.is_clean() && base.taint.is_clean() => {
            return Val::unknown(sym).tainted(Taint::local(Locally::Data, origin));
        }
        "numel" | "nelement" | "size" | "dim" => {
            let taint = if base.shape.is_clean() { base.taint } else { base.shape };
            return Val::unknown(sym).tainted(taint);
        }
        // A queue, and the judge of a trial.
        "empty" | "should_prune" if args.is_empty() => {
            return Val::unknown(hash(&[78, sym])).tainted(Taint::local(Locally::Time, origin));
        }
        "exists" | "is_file" | "is_dir" => {
            return Val::unknown(sym).tainted(Taint::local(Locally::File, origin));
        }
        "iterdir" | "glob" | "rglob" => {
            let taint = Taint::local(Locally::Order, origin);
            return Val::unknown(sym).tainted(taint).shaped(Taint::local(Locally::File, origin));
        }
        "nonzero" | "unique" => {
            let taint = Taint::local(Locally::Data, origin);
            return Val::unknown(sym).tainted(taint).shaped(taint);
        }
        // Texts end where they end.
        "generate" | "batch_generate" => {
            let taint = Taint::local(Locally::Data, origin);
            return Val::unknown(sym).tainted(taint).shaped(taint);
        }
        // An order drawn by a generator that each rank seeds with its number.
        "permutation" | "permuted" | "sample" | "choice" if base.taint.axes != 0 => {
            return Val::unknown(sym).tainted(Taint::local(Locally::Random, origin));
        }
        "t" | "transpose" | "permute" | "swapaxes" => {
            return Val { data: Data::View, sym, ..base.clone() };
        }
        "contiguous" => return Val { data: Data::Unknown, sym, ..base.clone() },
        "append" | "extend" | "add" | "update" | "insert" | "setdefault" => {
            return Val::none();
        }
        _ => {}
    }
    if matches!(base.data, Data::Unknown)
        && let Some(kind @ Locally::Time) = catalog::local_method(name)
    {
        return Val::unknown(hash(&[78, sym])).tainted(Taint::local(kind, origin));
    }
    // A module is moved in place.
    let is_module = match &base.data {
        Data::Object(kind) => !matches!(&**kind, PARTS | OUTPUT),
        Data::Instance(_) => true,
        _ => false,
    };
    if is_module
        && matches!(name, "to" | "cuda" | "cpu" | "half" | "float" | "double" | "bfloat16" | "eval" | "train")
    {
        return base.clone();
    }
    if HANDED_ON.contains(&name) {
        let mut value = Val::unknown(sym).tainted(base.taint);
        let reduces = matches!(name, "mean" | "sum" | "norm" | "max" | "min") && args.is_empty();
        value.shape = if reduces { Taint::NONE } else { base.shape };
        if let Data::View = base.data
            && matches!(name, "to" | "cuda" | "detach")
        {
            value.data = Data::View;
        }
        if let Data::Cond(_) = base.data
            && MOVED.contains(&name)
        {
            value.data = base.data.clone();
        }
        return value;
    }
    let mut value = Val::unknown(sym);
    if base.taint.local.is_some() && base.taint.axes == 0 {
        value = value.tainted(base.taint);
    }
    if ["loss", "criterion", "model"].iter().any(|word| says(name, word)) {
        value = value.tainted(Taint::local(Locally::Data, origin));
    }
    value
}

/// The type that a call says its tensor has.
fn dtype_of(site: &Site<'_, '_, '_>) -> Option<Dtype> {
    let told = |value: &Val| match &value.data {
        Data::External(path) => path.strip_prefix("torch.").and_then(Dtype::named),
        _ => None,
    };
    if let Some(value) = site.keyword("dtype") {
        return told(value);
    }
    let first = site.args.first();
    let Some(base) = site.base else {
        return match site.path().strip_prefix("torch.")? {
            "zeros" | "ones" | "empty" | "rand" | "randn" => Some(Dtype::Float32),
            "zeros_like" | "ones_like" | "empty_like" | "rand_like" | "randn_like" | "full_like" => {
                first?.dtype
            }
            _ => None,
        };
    };
    match site.name {
        "float" | "double" | "half" | "bfloat16" | "long" | "int" | "short" | "byte" | "bool" => {
            Dtype::named(site.name)
        }
        "to" | "type" => match first.map(|value| (told(value), &value.data)) {
            Some((Some(dtype), _)) => Some(dtype),
            // A device.
            Some((None, Data::Str(_) | Data::Int(_))) => base.dtype,
            _ => None,
        },
        "cuda" | "cpu" | "detach" | "clone" | "view" | "reshape" | "squeeze" | "unsqueeze" | "flatten"
        | "contiguous" | "repeat" | "expand" | "t" | "transpose" | "permute" | "new_empty" | "new_zeros" => {
            base.dtype
        }
        _ => None,
    }
}

/// A tensor that torch or numpy makes.
fn of_tensor(
    path: &str,
    joined: Taint,
    shapes: Taint,
    args: &[Val],
    has_minimum: bool,
    origin: Origin,
    sym: u64,
) -> Val {
    let last = path.rsplit('.').next().unwrap_or_default();
    let value = Val { agreed: args.iter().any(|arg| arg.agreed), ..Val::unknown(sym) };
    match last {
        "split" | "chunk" | "tensor_split" | "array_split" => {
            Val { data: Data::Object(PARTS.into()), ..value.tainted(joined).shaped(shapes) }
        }
        "zeros" | "ones" | "empty" | "full" | "rand" | "randn" | "arange" => {
            // A size is all that the arguments say.
            let shape = match args.first() {
                Some(Val { data: Data::Items(Items::Ordered, items), .. }) => {
                    items.iter().fold(Taint::NONE, |taint, item| taint.join(item.taint))
                }
                _ => args
                    .iter()
                    .take(if last == "full" { 1 } else { 4 })
                    .fold(Taint::NONE, |t, arg| t.join(arg.taint)),
            };
            value.shaped(shape)
        }
        "tensor" | "as_tensor" | "from_numpy" | "array" => {
            let is_scalar = args.first().is_some_and(|arg| {
                !matches!(arg.data, Data::Unknown | Data::Many(_)) || arg.shape.is_clean()
            });
            let data = match args.first().map(|arg| &arg.data) {
                Some(data @ Data::Cond(_)) => data.clone(),
                Some(Data::Items(Items::Ordered, items)) => match items.as_slice() {
                    [Val { data: data @ Data::Cond(_), .. }] => data.clone(),
                    _ => Data::Unknown,
                },
                _ => Data::Unknown,
            };
            let shape = if is_scalar { Taint::NONE } else { shapes };
            Val { data, ..value.tainted(joined).shaped(shape) }
        }
        "cat" | "stack" | "concat" | "concatenate" | "vstack" | "hstack" => {
            // As many parts as are written down.
            let parts = match args.first().map(|list| &list.data) {
                Some(Data::Items(_, items)) => items.iter().fold(Taint::NONE, |t, item| t.join(item.shape)),
                _ => shapes.join(joined),
            };
            value.tainted(joined).shaped(parts)
        }
        "where" | "argwhere" if args.len() == 1 => {
            value.tainted(Taint::local(Locally::Data, origin)).shaped(Taint::local(Locally::Data, origin))
        }
        // As long as the largest value, if nothing says how long at least.
        "bincount" if args.len() == 1 => {
            let is_short = !has_minimum;
            let own = Taint::local(Locally::Data, origin);
            if is_short { value.tainted(joined).shaped(own) } else { value.tainted(joined) }
        }
        "nonzero" | "unique" | "masked_select" => {
            value.tainted(Taint::local(Locally::Data, origin)).shaped(Taint::local(Locally::Data, origin))
        }
        // As long as the longest of the batch.
        "pad_sequence" | "pack_sequence" => {
            let data = Taint::local(Locally::Data, origin);
            value.tainted(joined).shaped(data)
        }
        "pad" => {
            let agreed = args.iter().any(|arg| match &arg.data {
                Data::Items(_, items) => items.iter().any(|item| item.agreed),
                _ => arg.agreed,
            });
            let value = Val { agreed: false, ..value.tainted(joined) };
            if agreed { value } else { value.shaped(shapes) }
        }
        "transpose" | "permute" => Val { data: Data::View, ..value.tainted(joined).shaped(shapes) },
        _ => value.tainted(joined).shaped(shapes),
    }
}
