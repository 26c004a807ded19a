//! ruff's syntax tree to ours. The only module that knows ruff: its crates promise no stability.
//!
//! Broken files are read as far as the parser recovers. Nesting is bounded before parsing, because both trees are
//! walked and freed by recursion.

use std::borrow::Cow;
use std::sync::Arc;

use ruff_python_ast as py;
use ruff_python_parser::{ParseOptions, parse_unchecked};
use ruff_text_size::{Ranged, TextRange};

use super::ast::{
    Annotated, Arm, BinaryOp, Block, CallExpr, ClassDecl, Cmp, Compare, Comprehension, ComprehensionKind,
    Expr, ExprKind, For, Function, Handler, Import, Param, ParamKind, Span, Stmt, StmtKind, Try, While,
};

/// Longest file that is read.
pub(crate) const MAX_BYTES: usize = 4 << 20;
/// Deepest nesting of brackets, and of blocks in columns.
const MAX_DEPTH: usize = 120;
/// Most operators in one statement: a chain of them nests as deeply. Generated sums of a few hundred terms exist.
const MAX_OPERATORS: usize = 3000;
/// Stack of the parser: the bounds above at some kilobytes a level.
const STACK_BYTES: usize = 64 << 20;
/// Stack that is enough: what the pool's threads have but for a few calls.
const LEFT_BYTES: usize = 62 << 20;

/// A file as syntax.
#[derive(Debug)]
pub(crate) struct SyntaxTree<'s> {
    pub(crate) body: Block<'s>,
    /// Places where the parser had to guess.
    pub(crate) n_errors: usize,
}

/// Why a file is not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refusal {
    TooLong,
    TooDeep,
}

impl Refusal {
    /// Why, as a note.
    pub(crate) fn words(self) -> &'static str {
        match self {
            Self::TooLong => "longer than 4 MiB: not read",
            Self::TooDeep => "nested deeper than code is: not read",
        }
    }
}

/// Parses a file.
pub(crate) fn parse(text: &str) -> Result<SyntaxTree<'_>, Refusal> {
    if text.len() > MAX_BYTES {
        return Err(Refusal::TooLong);
    }
    if is_deep(text) {
        return Err(Refusal::TooDeep);
    }
    Ok(stacker::maybe_grow(LEFT_BYTES, STACK_BYTES, || {
        let parsed = parse_unchecked(text, ParseOptions::from(py::PySourceType::Python));
        let n_errors = parsed.errors().len();
        let lower = Lower { text };
        let body = match parsed.syntax() {
            py::Mod::Module(module) => lower.block(&module.body),
            py::Mod::Expression(_) => Vec::new(),
        };
        SyntaxTree { body, n_errors }
    }))
}

/// The bytes that `is_deep` looks at.
const NESTS: [bool; 256] = {
    let mut table = [false; 256];
    let bytes = b"()[]{}+-*/%~.&|^<>@,\n ";
    let mut at = 0;
    while at < bytes.len() {
        table[bytes[at] as usize] = true;
        at += 1;
    }
    table
};

/// Whether brackets, indentation or operators nest deeper than any program that people write. Strings and comments count too:
/// this only errs towards refusal, and only for absurd files.
fn is_deep(text: &str) -> bool {
    let (mut depth, mut operators) = (0_usize, 0_usize);
    for line in text.split_inclusive('\n').map(str::as_bytes) {
        let blanks = line.iter().take_while(|byte| matches!(byte, b' ' | b'\t'));
        let (indent, n_blanks) = blanks
            .fold((0_usize, 0), |(indent, n), byte| (indent + if *byte == b'\t' { 4 } else { 1 }, n + 1));
        if indent > MAX_DEPTH * 8 {
            return true;
        }
        let code = line.get(n_blanks..).unwrap_or_default();
        for (at, byte) in code.iter().copied().enumerate() {
            if !NESTS[usize::from(byte)] {
                continue;
            }
            let before = at.checked_sub(1).map_or(b'\n', |at| code[at]);
            match byte {
                b'(' | b'[' | b'{' => depth += 1,
                b')' | b']' | b'}' => {
                    depth = depth.saturating_sub(1);
                    if before != byte {
                        operators = operators.saturating_sub(1);
                    }
                }
                b'+' | b'-' | b'*' | b'/' | b'%' | b'~' | b'.' | b'&' | b'|' | b'^' | b'<' | b'>' | b'@' => {
                    operators += 1;
                }
                b',' => operators = 0,
                b'\n' if depth == 0 && before != b'\\' => operators = 0,
                b' ' if matches!(before, b't' | b'r' | b'd' | b':' | b'f' | b'e' | b'n') => operators += 1,
                _ => {}
            }
            if depth > MAX_DEPTH * 2 || operators > MAX_OPERATORS {
                return true;
            }
        }
    }
    false
}

struct Lower<'s> {
    text: &'s str,
}

impl<'s> Lower<'s> {
    fn span(range: TextRange) -> Span {
        Span { at: range.start().to_u32(), end: range.end().to_u32() }
    }

    fn name(&self, name: &py::Identifier) -> &'s str {
        self.slice(name.range)
    }

    fn slice(&self, range: TextRange) -> &'s str {
        self.text.get(range.start().to_usize()..range.end().to_usize()).unwrap_or_default()
    }

    fn block(&self, body: &[py::Stmt]) -> Block<'s> {
        body.iter().map(|stmt| self.stmt(stmt)).collect()
    }

    fn stmt(&self, stmt: &py::Stmt) -> Stmt<'s> {
        Stmt { span: Self::span(stmt.range()), kind: self.stmt_kind(stmt) }
    }

    fn stmt_kind(&self, stmt: &py::Stmt) -> StmtKind<'s> {
        match stmt {
            py::Stmt::Expr(s) => StmtKind::Expr(self.expr(&s.value)),
            py::Stmt::Assign(s) => StmtKind::Assign(self.exprs(&s.targets), self.expr(&s.value)),
            py::Stmt::AugAssign(s) => {
                StmtKind::Augmented(Box::new([self.expr(&s.target), self.expr(&s.value)]))
            }
            py::Stmt::AnnAssign(s) => {
                let value = s.value.as_deref().map(|value| self.expr(value));
                let (target, annotation) = (self.expr(&s.target), self.expr(&s.annotation));
                StmtKind::Annotated(Box::new(Annotated { target, annotation, value }))
            }
            py::Stmt::Return(s) => StmtKind::Return(self.option(s.value.as_deref())),
            py::Stmt::Raise(s) => StmtKind::Raise(self.option(s.exc.as_deref())),
            py::Stmt::Assert(s) => StmtKind::Assert(self.expr(&s.test)),
            py::Stmt::Delete(s) => StmtKind::Delete(self.exprs(&s.targets)),
            py::Stmt::Break(_) => StmtKind::Break,
            py::Stmt::Continue(_) => StmtKind::Continue,
            py::Stmt::If(s) => StmtKind::If(self.arms(s)),
            py::Stmt::Match(s) => StmtKind::If(self.cases(s)),
            py::Stmt::For(s) => StmtKind::For(Box::new(For {
                target: self.expr(&s.target),
                iter: self.expr(&s.iter),
                body: self.block(&s.body),
                orelse: self.block(&s.orelse),
            })),
            py::Stmt::While(s) => StmtKind::While(Box::new(While {
                test: self.expr(&s.test),
                body: self.block(&s.body),
                orelse: self.block(&s.orelse),
            })),
            py::Stmt::With(s) => {
                let items = s.items.iter();
                let items = items
                    .map(|i| (self.expr(&i.context_expr), self.option(i.optional_vars.as_deref())))
                    .collect();
                StmtKind::With(items, self.block(&s.body))
            }
            py::Stmt::Try(s) => StmtKind::Try(Box::new(Try {
                body: self.block(&s.body),
                handlers: s.handlers.iter().map(|handler| self.handler(handler)).collect(),
                orelse: self.block(&s.orelse),
                finally: self.block(&s.finalbody),
            })),
            py::Stmt::FunctionDef(s) => StmtKind::Function(Arc::new(self.function(s))),
            py::Stmt::ClassDef(s) => StmtKind::Class(Arc::new(ClassDecl {
                name: self.name(&s.name),
                bases: s.arguments.iter().flat_map(|a| a.args.iter()).map(|base| self.expr(base)).collect(),
                body: self.block(&s.body),
            })),
            py::Stmt::Import(s) => StmtKind::Import(s.names.iter().map(|name| self.import(name)).collect()),
            py::Stmt::ImportFrom(s) => {
                let module = s.module.as_ref().map_or("", |module| self.name(module));
                let one = |alias: &py::Alias| {
                    let name = self.name(&alias.name);
                    let local = alias.asname.as_ref().map_or(name, |alias| self.name(alias));
                    Import { level: s.level, module, name: Some(name), alias: local }
                };
                StmtKind::Import(s.names.iter().map(one).collect())
            }
            _ => StmtKind::Other,
        }
    }

    fn import(&self, alias: &py::Alias) -> Import<'s> {
        let module = self.name(&alias.name);
        let local = alias.asname.as_ref().map(|alias| self.name(alias));
        Import { level: 0, module, name: None, alias: local.unwrap_or("") }
    }

    fn arms(&self, stmt: &py::StmtIf) -> Vec<Arm<'s>> {
        let span = Self::span(stmt.range);
        let mut arms = vec![Arm { test: Some(self.expr(&stmt.test)), body: self.block(&stmt.body), span }];
        for clause in &stmt.elif_else_clauses {
            arms.push(Arm {
                test: self.option(clause.test.as_ref()),
                body: self.block(&clause.body),
                span: Self::span(clause.range),
            });
        }
        arms
    }

    fn cases(&self, stmt: &py::StmtMatch) -> Vec<Arm<'s>> {
        let subject = &stmt.subject;
        stmt.cases
            .iter()
            .map(|case| {
                let span = Self::span(case.range);
                let test = match &case.pattern {
                    py::Pattern::MatchAs(p) if p.pattern.is_none() && case.guard.is_none() => None,
                    py::Pattern::MatchValue(p) => Some(Expr {
                        span,
                        kind: ExprKind::Compare(Box::new(Compare {
                            left: self.expr(subject),
                            rest: vec![(Cmp::Eq, self.expr(&p.value))],
                        })),
                    }),
                    other => Some(Expr {
                        span: Self::span(other.range()),
                        kind: ExprKind::Other(vec![self.expr(subject)]),
                    }),
                };
                Arm { test, body: self.block(&case.body), span }
            })
            .collect()
    }

    fn handler(&self, handler: &py::ExceptHandler) -> Handler<'s> {
        let py::ExceptHandler::ExceptHandler(handler) = handler;
        Handler {
            class: self.option(handler.type_.as_deref()),
            name: handler.name.as_ref().map(|name| self.name(name)),
            body: self.block(&handler.body),
            span: Self::span(handler.range),
        }
    }

    fn function(&self, def: &py::StmtFunctionDef) -> Function<'s> {
        let body = self.block(&def.body);
        Function {
            name: self.name(&def.name),
            params: self.params(&def.parameters),
            has_yield: super::walk::yields(&body),
            body,
            decorators: def.decorator_list.iter().map(|d| self.expr(&d.expression)).collect(),
            span: Self::span(def.range),
            name_span: Self::span(def.name.range),
        }
    }

    fn params(&self, params: &py::Parameters) -> Vec<Param<'s>> {
        let mut list = Vec::new();
        let mut add = |p: &py::Parameter, default: Option<&py::Expr>, kind| {
            list.push(Param {
                name: self.name(&p.name),
                annotation: self.option(p.annotation.as_deref()),
                default: self.option(default),
                kind,
            });
        };
        for p in params.posonlyargs.iter().chain(&params.args) {
            add(&p.parameter, p.default.as_deref(), ParamKind::Plain);
        }
        if let Some(p) = &params.vararg {
            add(p, None, ParamKind::Star);
        }
        for p in &params.kwonlyargs {
            add(&p.parameter, p.default.as_deref(), ParamKind::KeywordOnly);
        }
        if let Some(p) = &params.kwarg {
            add(p, None, ParamKind::DoubleStar);
        }
        list
    }

    fn option(&self, expr: Option<&py::Expr>) -> Option<Expr<'s>> {
        expr.map(|expr| self.expr(expr))
    }

    fn exprs(&self, exprs: &[py::Expr]) -> Vec<Expr<'s>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn boxed(&self, expr: &py::Expr) -> Box<Expr<'s>> {
        Box::new(self.expr(expr))
    }

    fn expr(&self, expr: &py::Expr) -> Expr<'s> {
        Expr { span: Self::span(expr.range()), kind: self.expr_kind(expr) }
    }

    fn expr_kind(&self, expr: &py::Expr) -> ExprKind<'s> {
        match expr {
            py::Expr::Name(e) => ExprKind::Name(self.slice(e.range)),
            py::Expr::Attribute(e) => ExprKind::Attr(self.boxed(&e.value), self.name(&e.attr)),
            py::Expr::Call(e) => ExprKind::Call(Box::new(CallExpr {
                func: self.expr(&e.func),
                args: self.exprs(&e.arguments.args),
                keywords: e
                    .arguments
                    .keywords
                    .iter()
                    .map(|k| (k.arg.as_ref().map(|name| self.name(name)), self.expr(&k.value)))
                    .collect(),
            })),
            py::Expr::NumberLiteral(e) => match &e.value {
                py::Number::Int(n) => n.as_i64().map_or(ExprKind::Float, ExprKind::Int),
                _ => ExprKind::Float,
            },
            py::Expr::StringLiteral(e) => ExprKind::Str(self.string(e)),
            py::Expr::BooleanLiteral(e) => ExprKind::Bool(e.value),
            py::Expr::NoneLiteral(_) => ExprKind::None,
            py::Expr::Compare(e) => {
                let rest = e.ops.iter().zip(&e.comparators);
                let rest = rest.map(|(op, value)| (cmp(*op), self.expr(value))).collect();
                ExprKind::Compare(Box::new(Compare { left: self.expr(&e.left), rest }))
            }
            py::Expr::BoolOp(e) => match e.op {
                py::BoolOp::And => ExprKind::And(self.exprs(&e.values)),
                py::BoolOp::Or => ExprKind::Or(self.exprs(&e.values)),
            },
            py::Expr::UnaryOp(e) => match e.op {
                py::UnaryOp::Not => ExprKind::Not(self.boxed(&e.operand)),
                py::UnaryOp::USub => ExprKind::Minus(self.boxed(&e.operand)),
                _ => ExprKind::Other(vec![self.expr(&e.operand)]),
            },
            py::Expr::BinOp(e) => ExprKind::Binary(op(e.op), self.boxed(&e.left), self.boxed(&e.right)),
            py::Expr::If(e) => {
                ExprKind::Choice(Box::new([self.expr(&e.test), self.expr(&e.body), self.expr(&e.orelse)]))
            }
            py::Expr::Subscript(e) => ExprKind::Index(self.boxed(&e.value), self.boxed(&e.slice)),
            py::Expr::List(e) => ExprKind::List(self.exprs(&e.elts)),
            py::Expr::Tuple(e) => ExprKind::Tuple(self.exprs(&e.elts)),
            py::Expr::Set(e) => ExprKind::Set(self.exprs(&e.elts)),
            py::Expr::Dict(e) => {
                let items = e.items.iter();
                ExprKind::Dict(items.map(|i| (self.option(i.key.as_ref()), self.expr(&i.value))).collect())
            }
            py::Expr::Lambda(e) => ExprKind::Lambda(self.boxed(&e.body)),
            py::Expr::ListComp(e) => {
                self.comprehension(ComprehensionKind::List, vec![self.expr(&e.elt)], &e.generators)
            }
            py::Expr::SetComp(e) => {
                self.comprehension(ComprehensionKind::Set, vec![self.expr(&e.elt)], &e.generators)
            }
            py::Expr::Generator(e) => {
                self.comprehension(ComprehensionKind::Generator, vec![self.expr(&e.elt)], &e.generators)
            }
            py::Expr::DictComp(e) => {
                let mut parts: Vec<Expr<'s>> = e.key.iter().map(|key| self.expr(key)).collect();
                parts.push(self.expr(&e.value));
                self.comprehension(ComprehensionKind::Dict, parts, &e.generators)
            }
            py::Expr::Named(e) => ExprKind::Named(Box::new([self.expr(&e.target), self.expr(&e.value)])),
            py::Expr::Starred(e) => ExprKind::Star(self.boxed(&e.value)),
            py::Expr::Await(e) => ExprKind::Await(self.boxed(&e.value)),
            py::Expr::Yield(e) => ExprKind::Yield(e.value.as_deref().map(|value| self.boxed(value))),
            py::Expr::YieldFrom(e) => ExprKind::Yield(Some(self.boxed(&e.value))),
            py::Expr::FString(e) => {
                let fields = e.value.elements().filter_map(|element| element.as_interpolation());
                ExprKind::Format(fields.map(|field| self.expr(&field.expression)).collect())
            }
            py::Expr::Slice(e) => {
                let parts = [&e.lower, &e.upper, &e.step].into_iter().flatten();
                ExprKind::Other(parts.map(|part| self.expr(part)).collect())
            }
            _ => ExprKind::Other(Vec::new()),
        }
    }

    fn string(&self, literal: &py::ExprStringLiteral) -> Cow<'s, str> {
        let text = literal.value.to_str();
        let source = self.slice(literal.range);
        // The common case borrows: one literal without escapes.
        let quoted = source.trim_start_matches(|c: char| c.is_ascii_alphabetic());
        let start = source.len() - quoted.len() + if is_tripled(quoted) { 3 } else { 1 };
        source
            .get(start..start + text.len())
            .filter(|literal| *literal == text)
            .or_else(|| source.find(text).and_then(|at| source.get(at..at + text.len())))
            .map_or_else(|| Cow::Owned(text.to_owned()), Cow::Borrowed)
    }

    fn comprehension(
        &self,
        kind: ComprehensionKind,
        parts: Vec<Expr<'s>>,
        generators: &[py::Comprehension],
    ) -> ExprKind<'s> {
        let loops = generators.iter();
        let loops = loops.map(|g| (self.expr(&g.target), self.expr(&g.iter), self.exprs(&g.ifs))).collect();
        ExprKind::Comprehension(Box::new(Comprehension { kind, parts, loops }))
    }
}

/// Whether a literal opens with three quotes.
fn is_tripled(quoted: &str) -> bool {
    matches!(quoted.as_bytes(), [a @ (b'\'' | b'"'), b, c, ..] if a == b && b == c)
}

fn cmp(op: py::CmpOp) -> Cmp {
    match op {
        py::CmpOp::Eq => Cmp::Eq,
        py::CmpOp::NotEq => Cmp::NotEq,
        py::CmpOp::Lt => Cmp::Lt,
        py::CmpOp::LtE => Cmp::LtE,
        py::CmpOp::Gt => Cmp::Gt,
        py::CmpOp::GtE => Cmp::GtE,
        py::CmpOp::Is => Cmp::Is,
        py::CmpOp::IsNot => Cmp::IsNot,
        py::CmpOp::In => Cmp::In,
        py::CmpOp::NotIn => Cmp::NotIn,
    }
}

fn op(op: py::Operator) -> BinaryOp {
    match op {
        py::Operator::Add => BinaryOp::Add,
        py::Operator::Sub => BinaryOp::Sub,
        py::Operator::Mult => BinaryOp::Mul,
        py::Operator::FloorDiv => BinaryOp::FloorDiv,
        py::Operator::Mod => BinaryOp::Mod,
        py::Operator::BitAnd => BinaryOp::BitAnd,
        py::Operator::BitOr => BinaryOp::BitOr,
        _ => BinaryOp::Other,
    }
}
