//! Packages and their versions.

use ringleader_model::{SourceKind, SystemFact};

use super::{MAX_ROWS, SystemReader, SystemTable};
use crate::ground::{Line, Sink};

/// How a list is laid out.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum ListLayout {
    /// `torch==2.11.0`.
    Freeze,
    /// `torch    2.11.0` below `Package    Version`, or conda's heading.
    Columns,
}

impl SystemReader {
    pub(super) fn packages(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if let ["Package", "Version", ..] = words.as_slice() {
            self.open(SystemTable::Packages(ListLayout::Columns, Vec::new()), line, sink);
            return true;
        }
        if text.starts_with("# packages in environment at ") {
            self.open(SystemTable::Packages(ListLayout::Columns, Vec::new()), line, sink);
            return true;
        }
        if let Some((name, version)) = frozen(text) {
            self.open(
                SystemTable::Packages(ListLayout::Freeze, vec![(name.into(), version.into())]),
                line,
                sink,
            );
            return true;
        }
        let Some((name, version)) = single(text, &words) else { return false };
        let list = vec![(name.into(), version.into())];
        self.push(SourceKind::System, SystemFact::Packages(list), line, sink);
        true
    }
}

/// nvcc, dpkg's and rpm's lines, each complete by itself.
fn single<'a>(text: &'a str, words: &[&'a str]) -> Option<(&'a str, &'a str)> {
    if let Some(rest) = text.strip_prefix("Cuda compilation tools, release ") {
        return Some(("cuda-nvcc", rest.split(',').next()?));
    }
    if let ["ii", name, version, _architecture, ..] = words {
        return Some((name.split(':').next()?, version));
    }
    // `libnccl-2.9.9-1+cuda11.3.x86_64`.
    let stem = text.strip_suffix(".x86_64").or_else(|| text.strip_suffix(".aarch64"))?;
    let at = stem.match_indices('-').find_map(|(at, _)| {
        let digit = stem.as_bytes().get(at + 1).is_some_and(u8::is_ascii_digit);
        digit.then_some(at)
    })?;
    let (name, version) = stem.split_at_checked(at)?;
    (!stem.contains(' ')).then_some((name, version.strip_prefix('-')?))
}

fn frozen(text: &str) -> Option<(&str, &str)> {
    let (name, version) = text.split_once("==")?;
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b));
    let is_version = version.starts_with(|c: char| c.is_ascii_digit()) && !version.contains([' ', '=']);
    (is_name && is_version).then_some((name, version))
}

/// The next line of a list.
pub(super) fn goes_on(form: ListLayout, list: &mut Vec<(Box<str>, Box<str>)>, text: &str) -> bool {
    let found = match form {
        ListLayout::Freeze => frozen(text),
        ListLayout::Columns if text.starts_with(['#', '-']) => return true,
        ListLayout::Columns => {
            let mut words = text.split_ascii_whitespace();
            let pair = words.next().zip(words.next());
            pair.filter(|(name, v)| !name.ends_with(':') && v.starts_with(|c: char| c.is_ascii_digit()))
        }
    };
    let Some((name, version)) = found else {
        // `name @ file:///…`, `-e git+…`: a list goes on behind them.
        return form == ListLayout::Freeze && (text.contains(" @ ") || text.starts_with("-e "));
    };
    if list.len() < MAX_ROWS {
        list.push((name.into(), version.into()));
    }
    true
}
