//! Python as far as control flow, calls and values matter. Names borrow from the source.

use std::borrow::Cow;
use std::sync::Arc;

/// Bytes of the file, from and to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Span {
    /// First byte.
    pub(crate) at: u32,
    /// Byte after the last.
    pub(crate) end: u32,
}

impl Span {
    pub(crate) fn holds(self, other: Self) -> bool {
        self.at <= other.at && other.end <= self.end
    }
}

pub(crate) type Block<'s> = Vec<Stmt<'s>>;

#[derive(Debug)]
pub(crate) struct Stmt<'s> {
    pub(crate) kind: StmtKind<'s>,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum StmtKind<'s> {
    Expr(Expr<'s>),
    /// Several targets: `a = b = value`.
    Assign(Vec<Expr<'s>>, Expr<'s>),
    /// `target += value`.
    Augmented(Box<[Expr<'s>; 2]>),
    /// `target: annotation = value`.
    Annotated(Box<Annotated<'s>>),
    Return(Option<Expr<'s>>),
    Raise(Option<Expr<'s>>),
    Assert(Expr<'s>),
    Delete(Vec<Expr<'s>>),
    Break,
    Continue,
    /// Arms of if, elif, else; and of match, whose tests are opaque.
    If(Vec<Arm<'s>>),
    For(Box<For<'s>>),
    While(Box<While<'s>>),
    With(Vec<(Expr<'s>, Option<Expr<'s>>)>, Block<'s>),
    Try(Box<Try<'s>>),
    Function(Arc<Function<'s>>),
    Class(Arc<ClassDecl<'s>>),
    Import(Vec<Import<'s>>),
    Other,
}

#[derive(Debug)]
pub(crate) struct Annotated<'s> {
    pub(crate) target: Expr<'s>,
    pub(crate) annotation: Expr<'s>,
    pub(crate) value: Option<Expr<'s>>,
}

#[derive(Debug)]
pub(crate) struct Arm<'s> {
    /// The condition; None for `else`.
    pub(crate) test: Option<Expr<'s>>,
    pub(crate) body: Block<'s>,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct For<'s> {
    pub(crate) target: Expr<'s>,
    pub(crate) iter: Expr<'s>,
    pub(crate) body: Block<'s>,
    pub(crate) orelse: Block<'s>,
}

#[derive(Debug)]
pub(crate) struct While<'s> {
    pub(crate) test: Expr<'s>,
    pub(crate) body: Block<'s>,
    pub(crate) orelse: Block<'s>,
}

#[derive(Debug)]
pub(crate) struct Try<'s> {
    pub(crate) body: Block<'s>,
    pub(crate) handlers: Vec<Handler<'s>>,
    pub(crate) orelse: Block<'s>,
    pub(crate) finally: Block<'s>,
}

#[derive(Debug)]
pub(crate) struct Handler<'s> {
    pub(crate) class: Option<Expr<'s>>,
    pub(crate) name: Option<&'s str>,
    pub(crate) body: Block<'s>,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) struct Function<'s> {
    pub(crate) name: &'s str,
    pub(crate) params: Vec<Param<'s>>,
    pub(crate) body: Block<'s>,
    pub(crate) decorators: Vec<Expr<'s>>,
    pub(crate) span: Span,
    /// The name in its definition.
    pub(crate) name_span: Span,
    pub(crate) has_yield: bool,
}

#[derive(Debug)]
pub(crate) struct Param<'s> {
    pub(crate) name: &'s str,
    pub(crate) annotation: Option<Expr<'s>>,
    pub(crate) default: Option<Expr<'s>>,
    pub(crate) kind: ParamKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParamKind {
    Plain,
    KeywordOnly,
    Star,
    DoubleStar,
}

#[derive(Debug)]
pub(crate) struct ClassDecl<'s> {
    pub(crate) name: &'s str,
    pub(crate) bases: Vec<Expr<'s>>,
    pub(crate) body: Block<'s>,
}

#[derive(Debug)]
pub(crate) struct Import<'s> {
    /// Dots before the module: 0 is absolute.
    pub(crate) level: u32,
    /// Module; empty with `from . import x`.
    pub(crate) module: &'s str,
    /// The imported name; None for `import module`.
    pub(crate) name: Option<&'s str>,
    /// Name in this file.
    pub(crate) alias: &'s str,
}

#[derive(Debug)]
pub(crate) struct Expr<'s> {
    pub(crate) kind: ExprKind<'s>,
    pub(crate) span: Span,
}

#[derive(Debug)]
pub(crate) enum ExprKind<'s> {
    Name(&'s str),
    Attr(Box<Expr<'s>>, &'s str),
    Call(Box<CallExpr<'s>>),
    Int(i64),
    Float,
    Str(Cow<'s, str>),
    /// An f-string with its fields.
    Format(Vec<Expr<'s>>),
    Bool(bool),
    None,
    Compare(Box<Compare<'s>>),
    And(Vec<Expr<'s>>),
    Or(Vec<Expr<'s>>),
    Not(Box<Expr<'s>>),
    Binary(BinaryOp, Box<Expr<'s>>, Box<Expr<'s>>),
    Minus(Box<Expr<'s>>),
    /// Test, value if true, value if false.
    Choice(Box<[Expr<'s>; 3]>),
    Index(Box<Expr<'s>>, Box<Expr<'s>>),
    List(Vec<Expr<'s>>),
    Tuple(Vec<Expr<'s>>),
    Set(Vec<Expr<'s>>),
    /// Keys and values.
    Dict(Vec<(Option<Expr<'s>>, Expr<'s>)>),
    Lambda(Box<Expr<'s>>),
    Comprehension(Box<Comprehension<'s>>),
    /// `(name := value)`.
    Named(Box<[Expr<'s>; 2]>),
    Star(Box<Expr<'s>>),
    Await(Box<Expr<'s>>),
    Yield(Option<Box<Expr<'s>>>),
    /// Parts that are evaluated without another meaning.
    Other(Vec<Expr<'s>>),
}

#[derive(Debug)]
pub(crate) struct Compare<'s> {
    pub(crate) left: Expr<'s>,
    pub(crate) rest: Vec<(Cmp, Expr<'s>)>,
}

#[derive(Debug)]
pub(crate) struct CallExpr<'s> {
    pub(crate) func: Expr<'s>,
    pub(crate) args: Vec<Expr<'s>>,
    pub(crate) keywords: Vec<(Option<&'s str>, Expr<'s>)>,
}

#[derive(Debug)]
pub(crate) struct Comprehension<'s> {
    pub(crate) kind: ComprehensionKind,
    pub(crate) parts: Vec<Expr<'s>>,
    /// Target, iterable, conditions.
    pub(crate) loops: Vec<(Expr<'s>, Expr<'s>, Vec<Expr<'s>>)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ComprehensionKind {
    List,
    Set,
    Dict,
    Generator,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cmp {
    Eq,
    NotEq,
    Lt,
    LtE,
    Gt,
    GtE,
    Is,
    IsNot,
    In,
    NotIn,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BinaryOp {
    Add,
    Sub,
    Mul,
    FloorDiv,
    Mod,
    BitAnd,
    BitOr,
    Other,
}

impl<'s> Stmt<'s> {
    /// The target and the value of `target += value` and `target: annotation = value`.
    pub(crate) fn single_assignment(&self) -> Option<(&Expr<'s>, &Expr<'s>)> {
        match &self.kind {
            StmtKind::Augmented(parts) => Some((&parts[0], &parts[1])),
            StmtKind::Annotated(a) => Some((&a.target, a.value.as_ref()?)),
            _ => None,
        }
    }
}

impl<'s> Expr<'s> {
    /// `a.b.c` as text, if it is nothing but names.
    pub(crate) fn dotted(&self) -> Option<String> {
        match &self.kind {
            ExprKind::Name(name) => Some((*name).to_owned()),
            ExprKind::Attr(of, name) => {
                let mut text = of.dotted()?;
                text.push('.');
                text.push_str(name);
                Some(text)
            }
            _ => None,
        }
    }

    /// The last name of a name or attribute.
    pub(crate) fn last_name(&self) -> Option<&'s str> {
        match &self.kind {
            ExprKind::Name(name) | ExprKind::Attr(_, name) => Some(name),
            _ => None,
        }
    }
}

impl<'s> CallExpr<'s> {
    /// The argument with this name.
    pub(crate) fn keyword(&self, name: &str) -> Option<&Expr<'s>> {
        self.keywords.iter().find(|(key, _)| *key == Some(name)).map(|(_, value)| value)
    }
}
