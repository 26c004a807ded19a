//! Resource limits: `ulimit -a` of bash, zsh and dash, `/proc/PID/limits`, `prlimit`.
//!
//! ```text
//! max locked memory           (kbytes, -l) 8192
//! open files                          (-n) 1024
//! Max open files            1024                 1048576              files
//! ```

use ringleader_model::{Fact, Limit, LimitKind, SourceKind};

use super::TableReader;
use crate::ground::{Line, Sink, TableSpan};

/// Limits of one process or shell, as they are read.
pub(super) struct Limits {
    list: Vec<Limit>,
    span: TableSpan,
}

/// Lines of other limits between two that matter.
const MAX_GAP_LINES: u32 = 20;

impl TableReader {
    pub(super) fn limits_line(&mut self, body: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some((kind, soft, hard)) = limit(body.trim()) else { return false };
        let goes_on = self.limits.as_ref().is_some_and(|l| {
            line.number <= l.span.last_line.saturating_add(MAX_GAP_LINES)
                && l.list.iter().all(|known| known.kind != kind)
        });
        if !goes_on {
            self.close_limits(sink);
        }
        match &mut self.limits {
            Some(limits) => limits.span.add(line, sink),
            None => self.limits = Some(Limits { list: Vec::new(), span: TableSpan::begin(line, sink) }),
        }
        if let Some(limits) = &mut self.limits {
            limits.list.push(Limit { line: line.number, kind, soft, hard });
        }
        true
    }

    pub(super) fn close_limits(&mut self, sink: &mut Sink<'_>) {
        if let Some(Limits { list, span }) = self.limits.take() {
            span.push(SourceKind::Limits, Fact::Limits(list), sink);
        }
    }
}

/// What is limited, soft, hard.
type Stated = (LimitKind, Option<u64>, Option<u64>);

fn limit(body: &str) -> Option<Stated> {
    // Two numbers and a unit: the kernel's table, and prlimit's.
    for (label, kind) in [
        ("Max locked memory ", LimitKind::LockedMemory),
        ("Max open files ", LimitKind::OpenFiles),
        ("MEMLOCK ", LimitKind::LockedMemory),
        ("NOFILE ", LimitKind::OpenFiles),
    ] {
        if let Some(rest) = body.strip_prefix(label) {
            let words: Vec<&str> = rest.split_ascii_whitespace().collect();
            let [.., soft, hard, _unit] = words.as_slice() else { return None };
            return Some((kind, amount(soft, 1)?, amount(hard, 1)?));
        }
    }
    // One number: a shell's `ulimit -a`.
    let kbytes = |kind| (kind, 1024);
    let (label, value) = body.rsplit_once(char::is_whitespace)?;
    let (kind, unit) = match label.split_ascii_whitespace().collect::<Vec<_>>().join(" ").as_str() {
        "max locked memory (kbytes, -l)" | "-l: locked-in-memory size (kbytes)" | "locked memory(kbytes)" => {
            kbytes(LimitKind::LockedMemory)
        }
        "open files (-n)" | "-n: file descriptors" | "nofiles" => (LimitKind::OpenFiles, 1),
        _ => return None,
    };
    Some((kind, amount(value, unit)?, None))
}

/// A number in its unit, or `unlimited` (Some(None)); None if it is neither.
#[expect(clippy::option_option, reason = "three outcomes: no limit line, unlimited, a number")]
fn amount(word: &str, unit: u64) -> Option<Option<u64>> {
    if word == "unlimited" { Some(None) } else { word.parse::<u64>().ok()?.checked_mul(unit).map(Some) }
}
