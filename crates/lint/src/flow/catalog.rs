//! The tables of `knowledge`, by name.

use std::sync::OnceLock;

use ringleader_knowledge::collective::{
    Axis, COLLECTIVES, Collective, CollectiveName, GUARDS, Guard, JOB_FACTS, LOCALS, MAKERS, RANKS,
    RECEIVERS, RankValue,
};

use super::value::{Locally, chain, hash_text};
use crate::lookup::{LookupMap, NameTable};
use crate::python::index::{ClassId, FuncId, Project};

/// A collective and the call that it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CatalogRow {
    pub(crate) of: &'static Collective,
    pub(crate) call: &'static CollectiveName,
}

impl CatalogRow {
    /// Name of the call that the other processes must make.
    pub(crate) fn matches(self) -> &'static str {
        match (self.of.same, self.call.name) {
            ("", "wait_for_everyone" | "synchronize" | "monitored_barrier" | "Barrier") => "barrier",
            ("", "__call__") => "forward",
            ("", "__init__") => "wrap",
            ("", "__iter__") => "iterate",
            ("", name) => name,
            (same, _) => same,
        }
    }
}

struct Tables {
    /// By the numbers of what a call belongs to and of its name.
    functions: LookupMap<u64, CatalogRow>,
    distinctive: NameTable<CatalogRow>,
    names: NameTable<()>,
}

fn number(of: &str, name: &str) -> u64 {
    chain(hash_text(of), hash_text(name))
}

fn tables() -> &'static Tables {
    static TABLES: OnceLock<Tables> = OnceLock::new();
    TABLES.get_or_init(|| {
        let calls =
            || COLLECTIVES.iter().flat_map(|of| of.calls.iter().map(move |call| CatalogRow { of, call }));
        let mut functions = LookupMap::default();
        for row in calls() {
            for path in row.of.paths {
                functions.entry(number(path, row.call.name)).or_insert(row);
            }
        }
        let telling = calls().filter(|row| row.of.distinctive.contains(&row.call.name));
        Tables {
            functions,
            distinctive: NameTable::first_of(telling.map(|row| (row.call.name, row))),
            names: NameTable::first_of(calls().map(|row| (row.call.name, ()))),
        }
    })
}

/// The collective at a dotted path.
pub(crate) fn at(path: &str) -> Option<CatalogRow> {
    let (of, name) = path.rsplit_once('.')?;
    method(of, name)
}

/// The method of a class outside of the project.
pub(crate) fn method(kind: &str, name: &str) -> Option<CatalogRow> {
    let tables = tables();
    tables.names.get(name)?;
    tables.functions.get(&number(kind, name)).copied()
}

/// The collective that a function of the project is, by its path.
pub(crate) fn of_function(project: &Project<'_>, func: FuncId) -> Option<CatalogRow> {
    tables().names.get(project.functions[func].def.name)?;
    at(&project.path_of(func))
}

/// A method that a library wraps in a collective wherever a class of the project defines it: `compute` of a metric.
pub(crate) fn wrapped_method(project: &Project<'_>, class: ClassId, name: &str) -> Option<CatalogRow> {
    if name != "compute" {
        return None;
    }
    let bases = project.external_bases(class);
    bases.iter().find_map(|base| self::method(base, name)).filter(|row| row.of.framework == "torchmetrics")
}

/// The collective that this name means on any object.
pub(crate) fn distinctive(name: &str) -> Option<CatalogRow> {
    tables().distinctive.get(name)
}

/// Whether a helper of this name can hardly do anything but communicate: what a file imports from a part of the project
/// that is not there is known by its name alone.
pub(crate) fn is_telling(name: &str) -> bool {
    const STARTS: &[&str] = &[
        "all_reduce",
        "allreduce",
        "all_gather",
        "allgather",
        "gather_all",
        "broadcast_object",
        "reduce_scatter",
        "reduce_across",
        "gather_across",
        "sync_across",
        "barrier",
        "dist_barrier",
        "distributed_barrier",
        "reduce_mean",
        "reduce_tensor",
        "reduce_dict",
        "gather_object",
        "broadcast_tensor",
        "dist_reduce",
        "gather_fn",
        "cross_replica",
    ];
    let name = name.trim_start_matches('_');
    if !matches!(name.as_bytes().first(), Some(b'a'..=b'd' | b'g' | b'r' | b's')) {
        return false;
    }
    STARTS.iter().any(|start| name.starts_with(start))
        && !name.ends_with("_size")
        && !name.contains("hook")
        && !name.contains("bucket")
}

/// The row that represents such a helper.
pub(crate) fn telling(name: &str) -> Option<CatalogRow> {
    let row = at(if name.contains("barrier") {
        "torch.distributed.barrier"
    } else {
        "torch.distributed.all_gather_object"
    })?;
    is_telling(name).then_some(row)
}

/// Whether reading an attribute of this name communicates on some objects.
pub(crate) fn is_property(name: &str) -> bool {
    name == "log_dir" || is_metrics(name)
}

/// Whether reading an attribute of this name computes what was logged, once.
pub(crate) fn is_metrics(name: &str) -> bool {
    matches!(name, "callback_metrics" | "logged_metrics")
}

/// Whether some collective has this name.
pub(crate) fn is_name(name: &str) -> bool {
    tables().names.get(name).is_some()
        || matches!(
            name,
            "send"
                | "recv"
                | "isend"
                | "irecv"
                | "batch_isend_irecv"
                | "DistributedSampler"
                | "set_device"
                | "shuffle"
        )
}

/// Whether a class has collectives among its methods.
pub(crate) fn is_class(kind: &str) -> bool {
    COLLECTIVES.iter().any(|of| of.paths.contains(&kind))
}

pub(crate) type Rank = (Axis, RankValue);

fn by_name(
    pick: impl Fn(&'static ringleader_knowledge::collective::RankSource) -> &'static [&'static str],
) -> NameTable<Rank> {
    let rows = RANKS.iter().rev();
    NameTable::first_of(
        rows.flat_map(|row| pick(row).iter().rev().map(move |name| (*name, (row.axis, row.value)))),
    )
}

pub(crate) fn rank_call(name: &str) -> Option<Rank> {
    static MAP: OnceLock<NameTable<Rank>> = OnceLock::new();
    MAP.get_or_init(|| by_name(|row| row.calls)).get(name)
}

pub(crate) fn rank_attribute(name: &str) -> Option<Rank> {
    static MAP: OnceLock<NameTable<Rank>> = OnceLock::new();
    MAP.get_or_init(|| by_name(|row| row.attributes)).get(name)
}

pub(crate) fn rank_name(name: &str) -> Option<Rank> {
    static MAP: OnceLock<NameTable<Rank>> = OnceLock::new();
    MAP.get_or_init(|| by_name(|row| row.names)).get(name)
}

pub(crate) fn rank_variable(name: &str) -> Option<Rank> {
    static MAP: OnceLock<NameTable<Rank>> = OnceLock::new();
    MAP.get_or_init(|| by_name(|row| row.variables)).get(name)
}

pub(crate) fn guard(name: &str) -> Option<&'static Guard> {
    static MAP: OnceLock<NameTable<&'static Guard>> = OnceLock::new();
    let rows = || GUARDS.iter().flat_map(|guard| guard.names.iter().map(move |name| (*name, guard)));
    MAP.get_or_init(|| NameTable::first_of(rows())).get(name)
}

/// True or a number of processes: what a call says of the job.
pub(crate) fn fact(name: &str) -> Option<bool> {
    static MAP: OnceLock<NameTable<bool>> = OnceLock::new();
    let rows = || JOB_FACTS.iter().flat_map(|(names, is_true)| names.iter().map(|name| (*name, *is_true)));
    MAP.get_or_init(|| NameTable::first_of(rows())).get(name)
}

pub(crate) fn local_call(path: &str) -> Option<Locally> {
    static MAP: OnceLock<NameTable<Locally>> = OnceLock::new();
    let rows = || LOCALS.iter().flat_map(|row| row.calls.iter().map(|call| (*call, row.kind.into())));
    if !path.contains('.') {
        return None;
    }
    MAP.get_or_init(|| NameTable::first_of(rows())).get(path)
}

pub(crate) fn local_method(name: &str) -> Option<Locally> {
    static MAP: OnceLock<NameTable<Locally>> = OnceLock::new();
    let rows = || LOCALS.iter().flat_map(|row| row.methods.iter().map(|name| (*name, row.kind.into())));
    MAP.get_or_init(|| NameTable::first_of(rows())).get(name)
}

/// The class that a variable of this name usually has.
pub(crate) fn receiver(name: &str, imports: impl Fn(&[&str]) -> bool) -> Option<&'static str> {
    static NAMES: OnceLock<NameTable<()>> = OnceLock::new();
    let names = || RECEIVERS.iter().flat_map(|row| row.names.iter().map(|name| (*name, ())));
    NAMES.get_or_init(|| NameTable::first_of(names())).get(name)?;
    RECEIVERS.iter().find(|row| row.names.contains(&name) && imports(row.imports)).map(|row| row.kind)
}

/// The class of what a call outside of the project returns.
pub(crate) fn made_by(path: &str) -> Option<&'static str> {
    static MAP: OnceLock<NameTable<&'static str>> = OnceLock::new();
    if !path.contains('.') {
        return None;
    }
    let rows = || MAKERS.iter().flat_map(|(calls, kind)| calls.iter().map(|call| (*call, *kind)));
    MAP.get_or_init(|| NameTable::first_of(rows())).get(path)
}
