//! All Python files of a project: modules, names, functions, classes, and what a dotted name refers to.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, OnceLock};

use rayon::prelude::*;

use super::ast::{Block, ClassDecl, Expr, ExprKind, Function, Span, StmtKind};
use super::walk;
use crate::lookup::LookupMap;

pub(crate) type FileId = usize;
pub(crate) type FuncId = usize;
pub(crate) type ClassId = usize;

/// Longest chain of re-exports that is followed.
const MAX_ALIASES: usize = 8;
/// Packages that a file of the same name deep in a project does not replace.
const EXTERNAL: &[&str] = &[
    "torch",
    "accelerate",
    "deepspeed",
    "transformers",
    "lightning",
    "pytorch_lightning",
    "jax",
    "horovod",
    "numpy",
    "os",
    "random",
    "time",
    "mpi4py",
    "mlx",
    "torchmetrics",
    "trl",
    "datasets",
    "math",
    "glob",
    "megatron",
    "mmengine",
    "detectron2",
    "composer",
    "orbax",
    "fairscale",
    "apex",
    "torch_xla",
    "logging",
    "types",
    "typing",
    "copy",
    "json",
    "io",
    "ray",
    "wandb",
    "peft",
    "diffusers",
];

#[derive(Debug)]
pub(crate) struct Project<'s> {
    pub(crate) files: Vec<PyFile<'s>>,
    pub(crate) functions: Vec<Func<'s>>,
    pub(crate) classes: Vec<ClassInfo<'s>>,
    /// Modules by each of the names by which they may be imported.
    modules: LookupMap<String, Vec<FileId>>,
    by_definition: LookupMap<usize, FuncId>,
    /// Functions within functions.
    nested: LookupMap<(FuncId, &'s str), FuncId>,
    /// By class; empty until all classes are known.
    families: Vec<Ancestry<'s>>,
    /// Methods of the classes at the top of each file, by name.
    methods: Vec<LookupMap<&'s str, FuncId>>,
}

/// Base classes of a class.
#[derive(Debug)]
struct Ancestry<'s> {
    /// The class and those it inherits from in the project, nearest first.
    classes: Vec<ClassId>,
    /// Classes outside of the project.
    external: Vec<String>,
    /// Methods by name, the nearest of each.
    methods: LookupMap<&'s str, FuncId>,
}

#[derive(Debug)]
pub(crate) struct PyFile<'s> {
    pub(crate) path: &'s str,
    pub(crate) text: &'s str,
    /// `pkg.mod`, without folders such as `src`.
    pub(crate) module: String,
    is_package: bool,
    pub(crate) names: BTreeMap<&'s str, Binding>,
    stars: Vec<String>,
    /// First names of what is imported.
    pub(crate) packages: BTreeSet<&'s str>,
    /// The module's statements as a function.
    pub(crate) main: FuncId,
    /// Starts of lines, computed at the first request.
    lines: OnceLock<Vec<u32>>,
}

#[derive(Clone, Debug)]
pub(crate) enum Binding {
    Func(FuncId),
    Class(ClassId),
    Import(String),
}

#[derive(Debug)]
pub(crate) struct Func<'s> {
    pub(crate) def: Arc<Function<'s>>,
    pub(crate) file: FileId,
    /// The class whose method it is.
    pub(crate) class: Option<ClassId>,
    /// The function in which it is defined.
    pub(crate) parent: Option<FuncId>,
    /// `Class.method`, `outer.inner`.
    pub(crate) qualified: String,
    /// Whether functions are defined in it.
    has_nested: bool,
}

#[derive(Debug)]
pub(crate) struct ClassInfo<'s> {
    pub(crate) def: Arc<ClassDecl<'s>>,
    pub(crate) file: FileId,
    pub(crate) methods: BTreeMap<&'s str, FuncId>,
    pub(crate) bases: Vec<Base>,
}

#[derive(Clone, Debug)]
pub(crate) enum Base {
    Class(ClassId),
    External(String),
}

/// Meaning of a dotted name.
#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    Func(FuncId),
    Class(ClassId),
    Module(FileId),
    /// A variable of a module.
    Var(FileId, String),
    /// A path outside of the project.
    External(String),
}

struct Collector<'p, 's> {
    project: &'p mut Project<'s>,
    file: FileId,
}

impl<'s> Project<'s> {
    /// Joins parsed files.
    pub(crate) fn new(files: Vec<(&'s str, &'s str, Block<'s>)>) -> Self {
        let mut project = Self {
            files: Vec::new(),
            functions: Vec::new(),
            classes: Vec::new(),
            modules: LookupMap::default(),
            by_definition: LookupMap::default(),
            nested: LookupMap::default(),
            families: Vec::new(),
            methods: Vec::new(),
        };
        for (path, text, body) in files {
            project.add(path, text, body);
        }
        project.link_bases();
        project
    }

    fn add(&mut self, path: &'s str, text: &'s str, body: Block<'s>) {
        let file = self.files.len();
        let stem = path.strip_suffix(".py").or_else(|| path.strip_suffix(".pyi")).unwrap_or(path);
        let is_package = stem.ends_with("/__init__") || stem == "__init__";
        let stem = stem.strip_suffix("__init__").unwrap_or(stem).trim_end_matches('/');
        let parts: Vec<&str> = stem.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
        let skip = usize::from(parts.first() == Some(&"src"));
        let module = parts.get(skip..).unwrap_or_default().join(".");
        for from in 0..parts.len() {
            let name = parts.get(from..).unwrap_or_default().join(".");
            let is_shadowed = parts.get(from).is_some_and(|first| EXTERNAL.contains(first)) && from > skip;
            if !is_shadowed {
                self.modules.entry(name).or_default().push(file);
            }
        }
        let main = self.functions.len();
        let end = u32::try_from(text.len()).unwrap_or(u32::MAX);
        let def = Arc::new(Function {
            name: "<module>",
            params: Vec::new(),
            body,
            decorators: Vec::new(),
            span: Span { at: 0, end },
            name_span: Span::default(),
            has_yield: false,
        });
        self.files.push(PyFile {
            path,
            text,
            module,
            is_package,
            names: BTreeMap::new(),
            stars: Vec::new(),
            packages: BTreeSet::new(),
            main,
            lines: OnceLock::new(),
        });
        let qualified = "<module>".to_owned();
        self.functions.push(Func {
            def: Arc::clone(&def),
            file,
            class: None,
            parent: None,
            qualified,
            has_nested: false,
        });
        let mut collector = Collector { project: self, file };
        collector.block(&def.body, None, None, "", true);
    }

    fn link_bases(&mut self) {
        let links: Vec<Vec<Base>> = self
            .classes
            .par_iter()
            .map(|class| class.def.bases.iter().filter_map(|base| self.base(class.file, base)).collect())
            .collect();
        for (class, bases) in self.classes.iter_mut().zip(links) {
            class.bases = bases;
        }
        self.families = (0..self.classes.len()).into_par_iter().map(|class| self.family(class)).collect();
        self.methods = self.files.par_iter().map(|file| self.methods_at_top(file)).collect();
    }

    fn base(&self, file: FileId, expr: &Expr<'s>) -> Option<Base> {
        let dotted = expr.dotted()?;
        match self.resolve(file, &dotted)? {
            Meaning::Class(id) => Some(Base::Class(id)),
            Meaning::External(path) => Some(Base::External(path)),
            _ => None,
        }
    }

    /// The function with this definition.
    pub(crate) fn function_of(&self, def: &Arc<Function<'s>>) -> Option<FuncId> {
        self.by_definition.get(&(Arc::as_ptr(def) as usize)).copied()
    }

    /// A function of this name that is defined within this one, or within one around it.
    pub(crate) fn nested(&self, func: FuncId, name: &str) -> Option<FuncId> {
        let mut at = Some(func);
        for _ in 0..8 {
            let id = at?;
            let outer = self.functions.get(id)?;
            if outer.has_nested
                && let Some(found) = self.nested.get(&(id, name))
            {
                return Some(*found);
            }
            at = outer.parent;
        }
        None
    }

    /// The full dotted name of a function.
    pub(crate) fn path_of(&self, func: FuncId) -> String {
        let f = &self.functions[func];
        format!("{}.{}", self.files[f.file].module, f.qualified)
    }

    /// Meaning of a dotted name at the top of a file.
    pub(crate) fn resolve(&self, file: FileId, dotted: &str) -> Option<Meaning> {
        self.resolve_in(file, dotted, MAX_ALIASES)
    }

    fn resolve_in(&self, file: FileId, dotted: &str, left: usize) -> Option<Meaning> {
        let left = left.checked_sub(1)?;
        let (first, rest) = dotted.split_once('.').map_or((dotted, ""), |(first, rest)| (first, rest));
        let entry = self.files.get(file)?;
        match entry.names.get(first) {
            Some(Binding::Func(id)) if rest.is_empty() => Some(Meaning::Func(*id)),
            Some(Binding::Func(_)) => None,
            Some(Binding::Class(id)) if rest.is_empty() => Some(Meaning::Class(*id)),
            Some(Binding::Class(id)) => self.method(*id, rest).map(Meaning::Func),
            Some(Binding::Import(path)) => {
                let path = if rest.is_empty() { path.clone() } else { format!("{path}.{rest}") };
                self.resolve_path(file, &path, left)
            }
            None => {
                for star in &entry.stars {
                    match self.resolve_path(file, &format!("{star}.{dotted}"), left) {
                        Some(Meaning::External(path)) if is_common(star) => {
                            return Some(Meaning::External(path));
                        }
                        None | Some(Meaning::External(_) | Meaning::Var(..)) => {}
                        found => return found,
                    }
                }
                None
            }
        }
    }

    /// Meaning of an absolute dotted path in a file.
    fn resolve_path(&self, from: FileId, path: &str, left: usize) -> Option<Meaning> {
        let mut end = path.len();
        loop {
            let module = path.get(..end)?;
            if let Some(files) = self.modules.get(module) {
                let file = self.nearest(from, files)?;
                let rest = path.get(end + 1..).unwrap_or_default();
                if rest.is_empty() {
                    return Some(Meaning::Module(file));
                }
                if file == from && !self.files.get(file)?.is_package {
                    return Some(Meaning::External(path.to_owned()));
                }
                return self
                    .resolve_in(file, rest, left)
                    .or_else(|| Some(Meaning::Var(file, rest.to_owned())));
            }
            match module.rfind('.') {
                Some(dot) => end = dot,
                None => return Some(Meaning::External(path.to_owned())),
            }
        }
    }

    /// The file whose path shares most with the importer's.
    fn nearest(&self, from: FileId, files: &[FileId]) -> Option<FileId> {
        let here = self.files.get(from)?.path;
        let shared = |file: &FileId| {
            let path = self.files.get(*file).map_or("", |f| f.path);
            path.bytes().zip(here.bytes()).take_while(|(a, b)| a == b).count()
        };
        files.iter().copied().max_by_key(|file| (shared(file), usize::MAX - file))
    }

    /// The class whose object a class method makes and keeps: `cls._instance = cls()`.
    pub(crate) fn made_by(&self, func: FuncId) -> Option<ClassId> {
        let f = self.functions.get(func)?;
        let class = f.class?;
        let mut is_made = false;
        walk::stmts(&f.def.body, &mut |stmt| {
            let (StmtKind::Return(Some(value)) | StmtKind::Assign(_, value)) = &stmt.kind else { return };
            is_made |= matches!(&value.kind, ExprKind::Call(call) if matches!(call.func.kind, ExprKind::Name("cls")));
        });
        is_made.then_some(class)
    }

    /// A method of this name of a class in a file.
    pub(crate) fn method_in(&self, file: FileId, name: &str) -> Option<FuncId> {
        self.methods.get(file)?.get(name).copied()
    }

    fn methods_at_top(&self, file: &PyFile<'s>) -> LookupMap<&'s str, FuncId> {
        let mut methods = LookupMap::default();
        for binding in file.names.values() {
            let Binding::Class(id) = binding else { continue };
            for (name, method) in self.classes.get(*id).into_iter().flat_map(|class| &class.methods) {
                methods.entry(*name).or_insert(*method);
            }
        }
        methods
    }

    /// A method by name, in the class or what it inherits from in the project.
    pub(crate) fn method(&self, class: ClassId, name: &str) -> Option<FuncId> {
        self.families.get(class)?.methods.get(name).copied()
    }

    /// The class whose `self` a function, or one around it, has.
    pub(crate) fn class_of_self(&self, id: FuncId) -> Option<ClassId> {
        let mut at = Some(id);
        for _ in 0..6 {
            let func = self.functions.get(at?)?;
            if func.class.is_some() {
                return func.class;
            }
            at = func.parent;
        }
        None
    }

    /// What runs when an object of a class is called: `__call__`, or `forward` of a module of torch.
    pub(crate) fn called(&self, class: ClassId) -> Option<FuncId> {
        self.method(class, "__call__").or_else(|| {
            let is_module = self.external_bases(class).iter().any(|base| base.ends_with("Module"));
            if is_module { self.method(class, "forward") } else { None }
        })
    }

    /// The class and those it inherits from in the project, nearest first.
    pub(crate) fn ancestry(&self, class: ClassId) -> &[ClassId] {
        self.families.get(class).map_or(&[], |family| family.classes.as_slice())
    }

    /// Classes outside of the project from which a class inherits.
    pub(crate) fn external_bases(&self, class: ClassId) -> &[String] {
        self.families.get(class).map_or(&[], |family| family.external.as_slice())
    }

    fn family(&self, class: ClassId) -> Ancestry<'s> {
        let classes = self.ancestors(class);
        let bases = classes.iter().filter_map(|id| self.classes.get(*id)).flat_map(|class| &class.bases);
        let external = bases.filter_map(|base| match base {
            Base::External(path) => Some(path.clone()),
            Base::Class(_) => None,
        });
        let mut methods = LookupMap::default();
        for info in classes.iter().filter_map(|id| self.classes.get(*id)) {
            for (name, method) in &info.methods {
                methods.entry(*name).or_insert(*method);
            }
        }
        Ancestry { external: external.collect(), classes, methods }
    }

    fn ancestors(&self, class: ClassId) -> Vec<ClassId> {
        let mut list = vec![class];
        let mut at = 0;
        while let Some(info) = list.get(at).and_then(|id| self.classes.get(*id)) {
            for base in &info.bases {
                if let Base::Class(id) = base
                    && !list.contains(id)
                    && list.len() < 64
                {
                    list.push(*id);
                }
            }
            at += 1;
        }
        list
    }
}

impl<'s> PyFile<'s> {
    /// Line and column of a byte, both from 1; the column in characters.
    pub(crate) fn position(&self, at: u32) -> (u32, u32) {
        let lines = self.lines.get_or_init(|| std::iter::once(0).chain(memchr_lines(self.text)).collect());
        let line = lines.partition_point(|start| *start <= at).max(1);
        let start = lines.get(line - 1).copied().unwrap_or_default();
        let before = self.text.get(start as usize..at as usize).unwrap_or_default();
        (line as u32, before.chars().count() as u32 + 1)
    }

    pub(crate) fn slice(&self, span: Span) -> &'s str {
        self.text.get(span.at as usize..span.end as usize).unwrap_or_default()
    }

    /// Imported names with their paths.
    pub(crate) fn imported(&self) -> impl Iterator<Item = (&'s str, &str)> {
        self.names.iter().filter_map(|(name, binding)| match binding {
            Binding::Import(path) => Some((*name, path.as_str())),
            _ => None,
        })
    }

    /// Whether it imports all names of some module.
    pub(crate) fn has_stars(&self) -> bool {
        !self.stars.is_empty()
    }

    pub(crate) fn imports_any(&self, packages: &[&str]) -> bool {
        packages.iter().any(|package| self.packages.contains(package))
    }
}

fn is_common(module: &str) -> bool {
    module.starts_with("torch.distributed") || module.starts_with("mpi4py")
}

fn memchr_lines(text: &str) -> impl Iterator<Item = u32> {
    text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at as u32 + 1)
}

impl<'s> Collector<'_, 's> {
    fn block(
        &mut self,
        block: &Block<'s>,
        parent: Option<FuncId>,
        class: Option<ClassId>,
        prefix: &str,
        is_top: bool,
    ) {
        walk::stmts(block, &mut |stmt| match &stmt.kind {
            StmtKind::Function(def) => {
                let id = self.function(def, parent, class, prefix);
                if let Some(class) = class {
                    if let Some(info) = self.project.classes.get_mut(class) {
                        // The getter of a property comes before its setter.
                        info.methods.entry(def.name).or_insert(id);
                    }
                } else if is_top {
                    self.bind(def.name, Binding::Func(id));
                }
            }
            StmtKind::Class(def) => {
                let id = self.project.classes.len();
                let (file, methods, bases) = (self.file, BTreeMap::new(), Vec::new());
                self.project.classes.push(ClassInfo { def: Arc::clone(def), file, methods, bases });
                if is_top {
                    self.bind(def.name, Binding::Class(id));
                }
                let qualified = format!("{prefix}{}.", def.name);
                self.block(&def.body, parent, Some(id), &qualified, false);
            }
            StmtKind::Import(imports) => {
                for import in imports {
                    self.import(import);
                }
            }
            _ => {}
        });
    }

    fn function(
        &mut self,
        def: &Arc<Function<'s>>,
        parent: Option<FuncId>,
        class: Option<ClassId>,
        prefix: &str,
    ) -> FuncId {
        let id = self.project.functions.len();
        let qualified = format!("{prefix}{}", def.name);
        let inner = format!("{qualified}.");
        let file = self.file;
        self.project.functions.push(Func {
            def: Arc::clone(def),
            file,
            class,
            parent,
            qualified,
            has_nested: false,
        });
        if let (Some(parent), None) = (parent, class) {
            self.project.nested.insert((parent, def.name), id);
            if let Some(outer) = self.project.functions.get_mut(parent) {
                outer.has_nested = true;
            }
        }
        self.project.by_definition.insert(Arc::as_ptr(def) as usize, id);
        self.block(&def.body, Some(id), None, &inner, false);
        id
    }

    fn bind(&mut self, name: &'s str, binding: Binding) {
        if let Some(file) = self.project.files.get_mut(self.file) {
            file.names.insert(name, binding);
        }
    }

    fn import(&mut self, import: &super::ast::Import<'s>) {
        let Some(file) = self.project.files.get_mut(self.file) else { return };
        let mut base = String::new();
        if import.level > 0 {
            let mut parts: Vec<&str> = file.module.split('.').collect();
            let up = import.level as usize - usize::from(file.is_package);
            parts.truncate(parts.len().saturating_sub(up));
            base = parts.join(".");
        } else if let Some(first) = import.module.split('.').next() {
            file.packages.insert(first);
        }
        let module = match (base.is_empty(), import.module.is_empty()) {
            (false, false) => format!("{base}.{}", import.module),
            (false, true) => base,
            (true, _) => import.module.to_owned(),
        };
        match import.name {
            Some("*") => file.stars.push(module),
            Some(name) => {
                let path = if module.is_empty() { name.to_owned() } else { format!("{module}.{name}") };
                file.names.entry(import.alias).or_insert(Binding::Import(path));
            }
            None if import.alias.is_empty() => {
                // `import a.b.c` binds `a`.
                let first = import.module.split('.').next().unwrap_or_default();
                file.names.entry(first).or_insert_with(|| Binding::Import(first.to_owned()));
            }
            None => {
                file.names.entry(import.alias).or_insert(Binding::Import(module));
            }
        }
    }
}
