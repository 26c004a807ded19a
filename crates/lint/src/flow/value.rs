//! Knowledge of a value on one process, and how it may differ from the same value on another.

use std::num::NonZeroU32;
use std::sync::Arc;

use ringleader_knowledge::collective::{Axis, LocalKind};

use crate::python::ast::Span;
use crate::python::index::{ClassId, FileId, FuncId, Meaning};

/// Parts of a list; the last part may be smaller.
pub(super) const PARTS: &str = "<parts of a list>";
/// What a model returns: a tensor as long as its batch, or an object that holds some.
pub(super) const OUTPUT: &str = "<output of a model>";

/// A set of axes.
pub(crate) type Axes = u16;

pub(crate) const GLOBAL: Axes = bit(Axis::Global);
pub(crate) const LOCAL: Axes = bit(Axis::Local);
pub(crate) const NODE: Axes = bit(Axis::Node);
pub(crate) const GROUP: Axes = bit(Axis::Group);
/// Axes that say where in the whole job a process is, and so in which groups of any kind.
pub(crate) const PLACE: Axes = GLOBAL | LOCAL | NODE;

pub(crate) const fn bit(axis: Axis) -> Axes {
    1 << axis as u16
}

/// A place in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Origin {
    pub(crate) file: FileId,
    pub(crate) span: Span,
}

/// How a value may differ from process to process without a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Locally {
    /// Contents of tensors and batches.
    Data,
    File,
    Time,
    Random,
    /// The order of a set or of a listing of files.
    Order,
    /// The number of batches that a loader yields.
    Loader,
    /// The parts of its batch.
    Part,
    /// The parameters of the model that it has.
    Model,
    /// Whether an iterator has another element.
    End,
    Exception,
    /// A signal that only some processes get.
    Signal,
}

impl From<LocalKind> for Locally {
    fn from(kind: LocalKind) -> Self {
        match kind {
            LocalKind::File => Self::File,
            LocalKind::Time => Self::Time,
            LocalKind::Random => Self::Random,
            LocalKind::Data => Self::Data,
        }
    }
}

/// In what a value may differ between processes, and where that comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Taint {
    pub(crate) axes: Axes,
    pub(crate) local: Option<Locally>,
    pub(super) from: Option<PackedOrigin>,
}

/// An origin in twelve bytes, because values hold two and are copied all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PackedOrigin {
    /// The number of the file and 1.
    file: NonZeroU32,
    span: Span,
}

impl PackedOrigin {
    fn of(origin: Origin) -> Option<Self> {
        let file = u32::try_from(origin.file).ok()?.checked_add(1)?;
        Some(Self { file: NonZeroU32::new(file)?, span: origin.span })
    }
}

impl Taint {
    pub(crate) const NONE: Self = Self { axes: 0, local: None, from: None };

    pub(crate) fn rank(axes: Axes, origin: Origin) -> Self {
        Self { axes, local: None, from: PackedOrigin::of(origin) }
    }

    pub(crate) fn local(kind: Locally, origin: Origin) -> Self {
        Self { axes: 0, local: Some(kind), from: PackedOrigin::of(origin) }
    }

    /// The same, from another place.
    pub(crate) fn at(self, origin: Origin) -> Self {
        Self { from: PackedOrigin::of(origin), ..self }
    }

    /// Where it comes from.
    pub(crate) fn origin(self) -> Option<Origin> {
        self.from.map(|from| Origin { file: from.file.get() as usize - 1, span: from.span })
    }

    /// A fingerprint of the whole value.
    pub(crate) fn print(self) -> u64 {
        let at = self
            .origin()
            .map_or(0, |at| hash(&[at.file as u64, u64::from(at.span.at), u64::from(at.span.end)]));
        hash(&[u64::from(self.axes), self.local.map_or(0, |local| local as u64 + 1), at])
    }

    pub(crate) fn is_clean(self) -> bool {
        self.axes == 0 && self.local.is_none()
    }

    pub(crate) fn join(self, other: Self) -> Self {
        // The place of a rank is more telling than that of data.
        let from = match (self.axes != 0, other.axes != 0) {
            (false, true) => other.from,
            _ if self.is_clean() => other.from,
            _ => self.from,
        };
        // An order or a random draw says more than that a value is the process's own.
        let local = match (self.local, other.local) {
            (Some(Locally::Data), Some(more @ (Locally::Random | Locally::Order))) => Some(more),
            (own, more) => own.or(more),
        };
        Self { axes: self.axes | other.axes, local, from }
    }
}

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dtype {
    Float64,
    Float32,
    Float16,
    BFloat16,
    Int64,
    Int32,
    Int16,
    Int8,
    UInt8,
    Bool,
}

impl Dtype {
    /// By the last part of its name in torch.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name {
            "float64" | "double" => Self::Float64,
            "float32" | "float" => Self::Float32,
            "float16" | "half" => Self::Float16,
            "bfloat16" => Self::BFloat16,
            "int64" | "long" => Self::Int64,
            "int32" | "int" => Self::Int32,
            "int16" | "short" => Self::Int16,
            "int8" => Self::Int8,
            "uint8" | "byte" => Self::UInt8,
            "bool" => Self::Bool,
            _ => return None,
        })
    }

    /// Its name in torch.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Float64 => "float64",
            Self::Float32 => "float32",
            Self::Float16 => "float16",
            Self::BFloat16 => "bfloat16",
            Self::Int64 => "int64",
            Self::Int32 => "int32",
            Self::Int16 => "int16",
            Self::Int8 => "int8",
            Self::UInt8 => "uint8",
            Self::Bool => "bool",
        }
    }
}

/// A value.
#[derive(Clone, Debug)]
pub(crate) struct Val {
    pub(crate) data: Data,
    pub(crate) taint: Taint,
    /// In what the shape of a tensor, or the length of a list, may differ.
    pub(crate) shape: Taint,
    /// A collective made it equal on all processes.
    pub(crate) agreed: bool,
    /// The model of a file that shards models.
    pub(crate) is_sharded: bool,
    /// The type of a tensor's elements, where the program says it.
    pub(crate) dtype: Option<Dtype>,
    /// The same number for the same value, whatever the path.
    pub(crate) sym: u64,
}

#[derive(Clone, Debug)]
pub(crate) enum Data {
    Unknown,
    None,
    Cond(Arc<Cond>),
    Int(i64),
    Str(Arc<str>),
    /// A list, tuple, set or dict whose parts are known.
    Items(Items, Arc<Vec<Val>>),
    /// A list of any length whose parts are like this one.
    Many(Arc<Val>),
    Func(FuncId, Option<Arc<Val>>),
    Class(ClassId),
    /// An object of a class of the project.
    Instance(ClassId),
    /// A module, function or class outside of the project.
    External(Arc<str>),
    /// An object of a class outside of the project.
    Object(Arc<str>),
    Group(GroupValue),
    /// `range` to a known number.
    Range(i64, i64),
    /// A tensor seen through transpose or permute.
    View,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Items {
    Ordered,
    Set,
    Dict,
}

/// A communicator or process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupValue {
    World,
    /// Members differ in these axes alone.
    Axes(Axes),
    /// Some group, by the number of its value.
    Some(u64),
}

impl GroupValue {
    /// Another number for each group.
    pub(crate) fn number(self) -> u64 {
        match self {
            Self::World => 0,
            Self::Axes(axes) => hash(&[7, u64::from(axes)]),
            Self::Some(sym) => hash(&[8, sym]),
        }
    }
}

/// A truth value that is not known yet.
#[derive(Debug)]
pub(crate) enum Cond {
    Known(bool),
    Atom(u64, Taint),
    Not(Arc<Cond>),
    And(Arc<Cond>, Arc<Cond>),
    Or(Arc<Cond>, Arc<Cond>),
}

impl Cond {
    fn print(&self, left: &mut usize) -> Option<u64> {
        *left = left.checked_sub(1)?;
        Some(match self {
            Self::Known(value) => chain(1, u64::from(*value)),
            Self::Atom(key, taint) => hash(&[2, *key, taint.print()]),
            Self::Not(inner) => chain(3, inner.print(left)?),
            Self::And(a, b) => hash(&[4, a.print(left)?, b.print(left)?]),
            Self::Or(a, b) => hash(&[5, a.print(left)?, b.print(left)?]),
        })
    }
}

impl Val {
    pub(crate) fn unknown(sym: u64) -> Self {
        Self::new(Data::Unknown, sym)
    }

    pub(crate) fn new(data: Data, sym: u64) -> Self {
        Self {
            data,
            taint: Taint::NONE,
            shape: Taint::NONE,
            agreed: false,
            is_sharded: false,
            dtype: None,
            sym,
        }
    }

    pub(crate) fn tainted(mut self, taint: Taint) -> Self {
        self.taint = self.taint.join(taint);
        self
    }

    pub(crate) fn int(n: i64) -> Self {
        Self::new(Data::Int(n), hash(&[1, n as u64]))
    }

    pub(crate) fn truth(value: bool) -> Self {
        Self::new(Data::Cond(Arc::new(Cond::Known(value))), hash(&[2, u64::from(value)]))
    }

    pub(crate) fn none() -> Self {
        Self::new(Data::None, hash(&[3]))
    }

    pub(crate) fn text(text: &str) -> Self {
        Self::new(Data::Str(text.into()), hash(&[4, hash_text(text)]))
    }

    pub(crate) fn external(path: &str) -> Self {
        Self::new(Data::External(path.into()), hash(&[5, hash_text(path)]))
    }

    pub(crate) fn object(kind: &str, sym: u64) -> Self {
        Self::new(Data::Object(kind.into()), sym)
    }

    /// The number that it is, or that its text says.
    pub(crate) fn as_int(&self) -> Option<i64> {
        match &self.data {
            Data::Int(n) => Some(*n),
            Data::Str(text) => text.trim().parse().ok(),
            Data::Cond(cond) => match **cond {
                Cond::Known(value) => Some(i64::from(value)),
                _ => None,
            },
            _ => None,
        }
    }

    /// A number for all of it. None: it has more than `left` parts.
    pub(crate) fn print(&self, left: &mut usize) -> Option<u64> {
        *left = left.checked_sub(1)?;
        let data = match &self.data {
            Data::Unknown => 1,
            Data::None => 2,
            Data::Cond(cond) => chain(3, cond.print(left)?),
            Data::Int(n) => chain(4, *n as u64),
            Data::Str(text) => chain(5, hash_text(text)),
            Data::Items(kind, items) => {
                let mut state = chain(6, *kind as u64);
                for item in items.iter() {
                    state = chain(state, item.print(left)?);
                }
                state
            }
            Data::Many(one) => chain(7, one.print(left)?),
            Data::Func(id, None) => chain(8, *id as u64),
            Data::Func(id, Some(this)) => hash(&[9, *id as u64, this.print(left)?]),
            Data::Class(id) => chain(10, *id as u64),
            Data::Instance(id) => chain(11, *id as u64),
            Data::External(path) => chain(12, hash_text(path)),
            Data::Object(kind) => chain(13, hash_text(kind)),
            Data::Group(group) => chain(14, group.number()),
            Data::Range(from, to) => hash(&[15, *from as u64, *to as u64]),
            Data::View => 16,
        };
        let flags = u64::from(self.agreed) | u64::from(self.is_sharded) << 1;
        let dtype = self.dtype.map_or(0, |dtype| dtype as u64 + 1);
        Some(hash(&[self.sym, data, self.taint.print(), self.shape.print(), flags, dtype]))
    }

    /// This value as a condition.
    pub(crate) fn cond(&self) -> Arc<Cond> {
        let known = match &self.data {
            Data::Cond(cond) => return Arc::clone(cond),
            Data::Int(n) => Some(*n != 0),
            Data::None => Some(false),
            Data::Str(text) => Some(!text.is_empty()),
            Data::Items(_, items) => Some(!items.is_empty()),
            Data::Func(..)
            | Data::Class(_)
            | Data::Instance(_)
            | Data::External(_)
            | Data::Object(_)
            | Data::Group(GroupValue::World | GroupValue::Axes(_)) => Some(true),
            Data::Range(from, to) => Some(from < to),
            Data::Unknown | Data::View | Data::Many(_) | Data::Group(GroupValue::Some(_)) => None,
        };
        Arc::new(known.map_or(Cond::Atom(self.sym, self.taint), Cond::Known))
    }

    /// This value as a condition on whether a list holds anything.
    pub(crate) fn counted(self) -> Self {
        let (shape, sym) = (self.shape, self.sym);
        match self.data {
            Data::Many(_) => Self::unknown(sym).tainted(self.taint).tainted(shape),
            // A listing of files.
            Data::Unknown if shape.local == Some(Locally::File) => self.tainted(shape),
            _ => self,
        }
    }

    /// Two possible values as one.
    pub(crate) fn join(&self, other: &Self) -> Self {
        if self.sym == other.sym {
            return self.clone().tainted(other.taint);
        }
        let taint = self.taint.join(other.taint);
        let shape = self.shape.join(other.shape);
        // `x = None` before the real value is a declaration.
        let data = match (&self.data, &other.data) {
            (Data::None | Data::Unknown, kind) | (kind, Data::None | Data::Unknown) if is_kind(kind) => {
                kind.clone()
            }
            _ => Data::Unknown,
        };
        let dtype = self.dtype.filter(|dtype| Some(*dtype) == other.dtype);
        Self {
            data,
            taint,
            shape,
            agreed: self.agreed && other.agreed,
            is_sharded: self.is_sharded || other.is_sharded,
            dtype,
            sym: hash(&[6, self.sym, other.sym]),
        }
    }
}

/// Whether the data says what a value is, rather than how much.
fn is_kind(data: &Data) -> bool {
    matches!(
        data,
        Data::Instance(_)
            | Data::Object(_)
            | Data::Group(_)
            | Data::Class(_)
            | Data::External(_)
            | Data::Func(..)
    )
}

pub(crate) fn not(cond: &Arc<Cond>) -> Arc<Cond> {
    match &**cond {
        Cond::Known(value) => Arc::new(Cond::Known(!value)),
        Cond::Not(inner) => Arc::clone(inner),
        _ => Arc::new(Cond::Not(Arc::clone(cond))),
    }
}

/// A number for words: the same on every run and machine.
pub(crate) fn hash(words: &[u64]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |state, word| mix(state, *word))
}

/// The number of more words.
pub(crate) fn chain(state: u64, word: u64) -> u64 {
    mix(state, word)
}

pub(crate) fn hash_text(text: &str) -> u64 {
    let (words, rest) = text.as_bytes().as_chunks::<8>();
    let state = words.iter().fold(0x2545_f491_4f6c_dd1d, |state, word| mix(state, u64::from_le_bytes(*word)));
    let mut last = [0; 8];
    for (to, byte) in last.iter_mut().zip(rest) {
        *to = *byte;
    }
    mix(mix(state, u64::from_le_bytes(last)), text.len() as u64)
}

/// Both halves of a product: each bit of the word reaches each bit of the state.
fn mix(state: u64, word: u64) -> u64 {
    let product = u128::from(state ^ word) * 0x9e37_79b9_7f4a_7c15;
    (product as u64) ^ (product >> 64) as u64 ^ state.rotate_left(23)
}

/// Meaning of a name at the top of a file, as far as it is the same on all processes.
#[derive(Clone, Debug)]
pub(crate) enum Global {
    Known(Val),
    /// A variable of another module.
    Var(FileId, String),
}

impl Global {
    pub(crate) fn of(meaning: Meaning) -> Self {
        Self::Known(match meaning {
            Meaning::Func(id) => Val::new(Data::Func(id, None), hash(&[13, id as u64])),
            Meaning::Class(id) => Val::new(Data::Class(id), hash(&[38, id as u64])),
            Meaning::External(path) => Val::external(&path),
            Meaning::Module(file) => {
                Val::new(Data::External(module_path(file).into()), hash(&[39, file as u64]))
            }
            Meaning::Var(file, path) => return Self::Var(file, path),
        })
    }

    pub(crate) fn value(self) -> Option<Val> {
        match self {
            Self::Known(value) => Some(value),
            Self::Var(..) => None,
        }
    }
}

/// Modules of the project are known by a path that no outer module has.
fn module_path(file: FileId) -> String {
    format!("<{file}>")
}
