//! Whether a text is a log at all: programs and documents name errors that never happened.
//!
//! ```text
//!     raise RuntimeError("CUDA out of memory. lower the batch")
//! - `RuntimeError: CUDA out of memory`: lower the batch.
//! ```
//! The rule: what torch's reader found in a source counts, unless no line of the source has a sign of a log and most of
//! its lines look like program text, or it has the marks of Markdown and is prose besides. One sign suffices for a log:
//! a launcher's prefix, a time stamp, a line of NCCL or c10, a header or frame of a traceback; and, outside of a fenced
//! block, a line that begins with an exception's class or with what a shell or a scheduler says. So a pasted issue or a
//! bare `RuntimeError: …` stays evidence, and a document that quotes a whole traceback is taken for one that shows it.

use super::prefix;
use crate::ground::Line;
use crate::readers;

/// Fewer lines of code than this are a print.
const MIN_CODE: u32 = 3;
/// Lines of a source that are looked at; a program or document that is longer is rare, a log is not.
const MAX_LINES: u32 = 20_000;

/// Judges a source, line by line.
#[derive(Debug, Default)]
pub(super) struct Genre {
    /// A sign of a log was seen: nothing more is asked.
    is_log: bool,
    n_lines: u32,
    n_code: u32,
    /// Marks of Markdown, and comments that look like them.
    n_marks: u32,
    n_prose: u32,
    /// Headings and fences, without which nothing is taken for Markdown.
    has_frame: bool,
    is_fenced: bool,
}

/// What a line without any sign of a log counts for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    n_lines: u8,
    n_code: u8,
    n_marks: u8,
    n_prose: u8,
    is_frame: bool,
}

/// What a line looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineLook {
    Blank,
    Code,
    Heading,
    Mark,
    Other,
}

impl Genre {
    /// Looks at a line. `by_nccl`: NCCL's reader took it.
    #[inline]
    pub(super) fn line(&mut self, line: &Line<'_>, by_nccl: bool) {
        if !self.is_log {
            self.look_at(line, by_nccl);
        }
    }

    /// The source is a log: an object of a structured one was read.
    pub(super) fn is_of_log(&mut self) {
        self.is_log = true;
    }

    /// Whether nothing more is asked.
    #[inline]
    pub(super) fn is_settled(&self) -> bool {
        self.is_log
    }

    /// What each line counts for that is this one but for its digits; None where it is a sign of a log or a fence.
    pub(super) fn counts_of(line: &Line<'_>) -> Option<Counts> {
        let mut genre = Self::default();
        genre.look_at(line, false);
        let count = |n: u32| u8::try_from(n).unwrap_or(u8::MAX);
        (!genre.is_log && !genre.is_fenced).then(|| Counts {
            n_lines: count(genre.n_lines),
            n_code: count(genre.n_code),
            n_marks: count(genre.n_marks),
            n_prose: count(genre.n_prose),
            is_frame: genre.has_frame,
        })
    }

    /// Counts a line that was looked at before.
    #[inline]
    pub(super) fn count(&mut self, counts: Counts) {
        self.n_lines += u32::from(counts.n_lines);
        self.n_code += u32::from(counts.n_code);
        self.n_marks += u32::from(counts.n_marks);
        self.n_prose += u32::from(counts.n_prose);
        self.has_frame |= counts.is_frame;
        self.is_log |= self.n_lines > MAX_LINES;
    }

    /// At the end: whether what its lines say of errors is to be left alone.
    pub(super) fn is_no_log(&self) -> bool {
        let is_program = self.n_code >= MIN_CODE && (self.n_code + self.n_marks) * 2 > self.n_lines;
        let is_document = self.has_frame
            && self.n_marks >= 2
            && (self.n_marks + self.n_code + self.n_prose) * 2 > self.n_lines;
        !self.is_log && (is_program || is_document)
    }

    fn look_at(&mut self, line: &Line<'_>, by_nccl: bool) {
        if by_nccl || line.raw.len() != line.body.len() || line.tag.at.is_some() {
            self.is_log = true;
            return;
        }
        let text = String::from_utf8_lossy(line.body.get(..512).unwrap_or(line.body));
        if text.trim_start().starts_with("```") {
            self.is_fenced = !self.is_fenced;
            self.has_frame = true;
            self.n_marks += 1;
            self.n_lines += 1;
            return;
        }
        let look = look(&text);
        self.n_lines += u32::from(look != LineLook::Blank);
        self.n_code += u32::from(look == LineLook::Code);
        self.n_marks += u32::from(matches!(look, LineLook::Heading | LineLook::Mark));
        self.has_frame |= look == LineLook::Heading;
        if look == LineLook::Other {
            self.n_prose += u32::from(is_prose(&text));
            self.is_log = prefix::begins_known(line.body) || !self.is_fenced && readers::begins_error(&text);
        }
        // A message may hold a `command` or two.
        self.is_log |= look == LineLook::Mark && prefix::begins_known(line.body) || is_native_frame(&text);
        self.is_log |= self.n_lines > MAX_LINES || is_of_nccl_tests(&text);
    }
}

/// `    @     0x7fbe32f0d7d4  std::function()`, of a native stack as glog and absl print it.
fn is_native_frame(text: &str) -> bool {
    text.trim_start().strip_prefix("@ ").is_some_and(|rest| rest.trim_start().starts_with("0x"))
}

/// nccl-tests puts `#` before all that it says.
fn is_of_nccl_tests(text: &str) -> bool {
    ["# nThread", "# nccl-tests", "# Using devices", "#  Rank", "#       size"]
        .iter()
        .any(|s| text.starts_with(s))
}

fn look(line: &str) -> LineLook {
    let text = line.trim();
    if text.chars().all(|c| "{}()[];,".contains(c)) {
        return LineLook::Blank;
    }
    if let Some(rest) = text.strip_prefix('#') {
        return match rest.trim_start_matches('#').chars().next() {
            Some(' ') if line.starts_with('#') => LineLook::Heading,
            Some('[' | '!' | 'i' | 'd' | 'e' | 'p') => LineLook::Code,
            _ => LineLook::Mark,
        };
    }
    if is_code(text) {
        LineLook::Code
    } else if is_mark(text) {
        LineLook::Mark
    } else {
        LineLook::Other
    }
}

/// A bullet, a numbered point, a quotation, or a `span of code`.
fn is_mark(text: &str) -> bool {
    let figures = text.trim_start_matches(|c: char| c.is_ascii_digit());
    ["- ", "* ", "+ ", "> "].iter().any(|bullet| text.starts_with(bullet))
        || figures.len() < text.len() && figures.starts_with(". ")
        || text.matches('`').count() >= 2
}

/// Words as people write them.
fn is_prose(text: &str) -> bool {
    let n_words = text.split_whitespace().count();
    let is_word = |word: &&str| {
        let word = word.trim_matches(|c: char| c.is_ascii_punctuation());
        !word.is_empty() && word.chars().all(char::is_alphabetic)
    };
    n_words >= 4 && text.split_whitespace().filter(is_word).count() * 4 >= n_words * 3
}

/// A line of Python, Rust, C, shell or TOML, as most lines of such a file are and hardly one of a log.
fn is_code(text: &str) -> bool {
    // Alone.
    const WORDS: [&str; 12] = [
        "try:", "else:", "finally:", "except:", "pass", "break", "continue", "return", "fi", "done", "then",
        "do",
    ];
    // Whatever follows.
    const STARTS: [&str; 26] = [
        "//",
        "/*",
        "*/",
        "@",
        "&& ",
        "|| ",
        "def ",
        "raise ",
        "assert ",
        "async def ",
        "pub ",
        "pub(",
        "fn ",
        "let ",
        "impl ",
        "impl<",
        "use crate::",
        "use std::",
        "export ",
        "set -",
        "echo ",
        "#!",
        "r#\"",
        "[[",
        "return ",
        "elif ",
    ];
    // Before a colon or an opening bracket at the end.
    const HEADS: [&str; 8] = ["if ", "for ", "while ", "with ", "class ", "except ", "match ", "async "];
    let ends = |ends: &[char]| text.ends_with(ends);
    WORDS.contains(&text)
        || STARTS.iter().any(|s| text.starts_with(s))
        || HEADS.iter().any(|s| text.starts_with(s)) && ends(&[':', '{', '(', '\\'])
        || ends(&[';', '{'])
        || text.ends_with(" \\")
        || text.contains(" => ")
        || is_import(text)
        || is_call(text)
        || is_literal(text)
        || is_assignment(text)
        || ends(&[',']) && !text.contains([' ', '='])
}

/// `import torch`, `from torch import nn`.
fn is_import(text: &str) -> bool {
    let mut words = text.split_whitespace();
    match words.next() {
        Some("import") => words.clone().count() == 1 || text.contains(" as ") || text.contains(", "),
        Some("from") => words.nth(1) == Some("import"),
        _ => false,
    }
}

/// `step(`, `torch.cuda.synchronize()`, `.build()`, `println!("…")`, to the end of the line.
fn is_call(text: &str) -> bool {
    let rest = text.trim_start_matches(|c: char| c.is_alphanumeric() || "_.:!&*?".contains(c));
    rest.len() < text.len() && rest.starts_with('(') && text.ends_with([')', '(', ',', ':', '[', '?', '.'])
}

/// A string that fills the line, but no key of JSON.
fn is_literal(text: &str) -> bool {
    let bare = text.strip_prefix(['f', 'b', 'r']).unwrap_or(text);
    bare.starts_with(['"', '\''])
        && !bare.contains("\": ")
        && !bare.contains("': ")
        && ["\"", "'", "\",", "',", "\\", "\")", "')", "\"),", "'),"].iter().any(|end| bare.ends_with(end))
}

/// `name = value`, where the value is no figure (programs print those), also within `{ … }` of TOML.
fn is_assignment(text: &str) -> bool {
    let inner = text.strip_prefix("{ ").unwrap_or(text);
    let Some((name, value)) = [" = ", " += ", " := "].iter().find_map(|by| inner.split_once(by)) else {
        return false;
    };
    let is_name = !name.is_empty() && name.chars().all(|c| c.is_alphanumeric() || "_.[]\"'".contains(c));
    is_name && value.trim_matches(|c: char| c.is_ascii_digit() || " .,-+e%".contains(c)).len() > 1
}

#[cfg(test)]
#[path = "genre_tests.rs"]
mod tests;
