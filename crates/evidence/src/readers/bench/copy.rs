//! Known content copied from one GPU to another and compared: a Python session with torch, or CUDA's sample simpleP2P.
//!
//! ```text
//! >>> a = torch.arange(8, device="cuda:0")
//! >>> b = a.to("cuda:1")
//! >>> torch.equal(a.cpu(), b.cpu())
//! False
//! ```
//! ```text
//! Enabling peer access between GPU0 and GPU1...
//! Verification error @ element 1: val = 0.000000, ref = 4.000000
//! Test failed!
//! ```
//! Only comparisons of a tensor with its own copy on another GPU count. simpleP2P: NVIDIA/cuda-samples.

use std::collections::BTreeMap;

use ringleader_model::{CopyTest, Fact, SourceKind};

use crate::ground::{Line, Sink, TableSpan};

/// Names that are kept of one session.
const MAX_NAMES: usize = 1_000;
/// Characters that are kept of the statement that compares.
const STATEMENT_CHARS: usize = 200;

#[derive(Default)]
pub(super) struct Copies {
    tensors: BTreeMap<Box<str>, Tensor>,
    /// A comparison whose answer is on the next line.
    asked: Option<CopyRequest>,
    /// simpleP2P: the GPUs it is at.
    sample: Option<(u32, u32)>,
}

#[derive(Clone)]
struct Tensor {
    gpu: Option<u32>,
    /// What it was copied from.
    origin: Option<Box<str>>,
}

struct CopyRequest {
    test: CopyTest,
    line: u32,
    span: TableSpan,
}

impl Copies {
    /// The line on which an answer may be; 0 if nothing was asked.
    pub(super) fn awake_until(&self) -> u32 {
        self.asked.as_ref().map_or(0, |asked| asked.line.saturating_add(1))
    }

    pub(super) fn line(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some(statement) = text.strip_prefix(">>> ") {
            self.asked = None;
            return self.statement(statement, line, sink);
        }
        if let Some(asked) = self.asked.take()
            && asked.line.saturating_add(1) == line.number
            && let Some(is_right) = answer(text)
        {
            let CopyRequest { mut test, mut span, .. } = asked;
            test.is_right = is_right;
            span.add(line, sink);
            span.push(SourceKind::CopyTest, Fact::Copy(Box::new(test)), sink);
            return true;
        }
        self.sample(text, line, sink)
    }

    fn statement(&mut self, statement: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some((name, value)) = statement.split_once(" = ")
            && is_name(name)
        {
            if self.tensors.len() < MAX_NAMES || self.tensors.contains_key(name) {
                let origin = value.split_once('.').map(|(o, _)| o).filter(|o| self.tensors.contains_key(*o));
                let tensor = Tensor { gpu: gpu(value), origin: origin.map(Into::into) };
                self.tensors.insert(name.into(), tensor);
            }
            return true;
        }
        let Some(test) = self.comparison(statement) else { return false };
        self.asked = Some(CopyRequest { test, line: line.number, span: TableSpan::begin(line, sink) });
        true
    }

    /// A statement about a tensor and its copy on another GPU.
    fn comparison(&self, statement: &str) -> Option<CopyTest> {
        let words = statement.split(|c: char| !c.is_alphanumeric() && c != '_');
        let named: Vec<&str> = words.filter(|w| self.tensors.contains_key(*w)).collect();
        let copied = named.iter().find_map(|name| {
            let tensor = self.tensors.get(*name)?;
            let origin = tensor.origin.as_deref()?;
            let from = self.tensors.get(origin)?;
            let is_other = tensor.gpu.is_some() && from.gpu.is_some() && tensor.gpu != from.gpu;
            (is_other && named.contains(&origin)).then_some((from.gpu, tensor.gpu))
        })?;
        let compares = statement.contains("equal(")
            || statement.contains("allclose(")
            || statement.contains(" == ")
            || (statement.matches(".sum()").count() == 2 && statement.contains(", "));
        compares.then(|| CopyTest {
            from: copied.0,
            to: copied.1,
            is_right: false,
            compared: statement.chars().take(STATEMENT_CHARS).collect::<String>().into(),
        })
    }

    /// Lines of simpleP2P.
    fn sample(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let numbers = |text: &str| -> Option<(u32, u32)> {
            let (a, b) = text.trim_end_matches('.').split_once(" and GPU")?;
            Some((a.parse().ok()?, b.parse().ok()?))
        };
        if let Some(pair) = text.strip_prefix("Enabling peer access between GPU").and_then(numbers) {
            self.sample = Some(pair);
            return true;
        }
        let Some((from, to)) = self.sample else { return false };
        let is_right = match text {
            "Test passed" => true,
            _ if text.starts_with("Verification error @ element") => false,
            _ => return false,
        };
        self.sample = None;
        let test = CopyTest { from: Some(from), to: Some(to), is_right, compared: "simpleP2P".into() };
        let span = TableSpan::begin(line, sink);
        span.push(SourceKind::CopyTest, Fact::Copy(Box::new(test)), sink);
        true
    }
}

fn is_name(name: &str) -> bool {
    !name.is_empty() && name.len() < 64 && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
}

/// The GPU that `device="cuda:1"`, `.to("cuda:1")` or `.cuda(1)` names.
fn gpu(value: &str) -> Option<u32> {
    let after = value.rsplit_once("cuda:").or_else(|| value.rsplit_once(".cuda(")).map(|(_, after)| after)?;
    let digits = after.bytes().take_while(u8::is_ascii_digit).count();
    after.get(..digits)?.parse().ok()
}

/// `True`, `tensor(False, device='cuda:1')`, or two values that have to be equal.
fn answer(text: &str) -> Option<bool> {
    match text {
        "True" => return Some(true),
        "False" => return Some(false),
        _ => {}
    }
    if let Some(inside) = text.strip_prefix("tensor(") {
        return match inside.get(..4)? {
            "True" => Some(true),
            "Fals" => Some(false),
            _ => None,
        };
    }
    let (a, b) = text.strip_prefix('(')?.strip_suffix(')')?.split_once(", ")?;
    (a.parse::<f64>().is_ok() && b.parse::<f64>().is_ok()).then_some(a == b)
}
