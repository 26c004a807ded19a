//! Patterns: literal text with typed holes, matched anywhere in a line.
//!
//! There is almost no backtracking: a hole ends where the next literal begins, and a hole at the edge takes
//! what its class allows. The number of tries is bounded, so no line is slow.

use std::ops::Range;

/// Characters that may fill a hole, in the order of `CLASSES` of `build`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HoleClass {
    /// `0` to `9`.
    Digits,
    /// Digits with a sign.
    Int,
    /// A number with fraction, exponent or separators.
    Num,
    /// Hexadecimal digits, with or without `0x`.
    Hex,
    /// Numbers with commas, dashes and brackets: `[0, 2, 5-7]`.
    List,
    /// A host, node or domain name, or an address.
    Host,
    /// Anything but white space.
    Word,
    /// Anything, including nothing.
    Any,
}

/// One part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PatternPart {
    /// Exactly this text.
    Literal(&'static str),
    /// A hole: the number of its name, and its class.
    Hole(u8, HoleClass),
}

/// Places of the first literal that are tried in a line, and steps from one place.
const MAX_PLACES: usize = 32;
const MAX_STEPS: u32 = 256;
/// Longest content of a hole, bytes.
const MAX_HOLE_BYTES: usize = 4096;

/// A filled hole: the number of its name, and its bytes of the line.
pub(crate) type Filled = (u8, Range<usize>);

impl HoleClass {
    pub(crate) fn of(number: u32) -> Self {
        match number {
            0 => Self::Digits,
            1 => Self::Int,
            2 => Self::Num,
            3 => Self::Hex,
            4 => Self::List,
            5 => Self::Host,
            6 => Self::Word,
            _ => Self::Any,
        }
    }

    fn takes(self, c: char) -> bool {
        match self {
            Self::Digits => c.is_ascii_digit(),
            Self::Int => c.is_ascii_digit() || matches!(c, '-' | '+'),
            Self::Num => c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | ',' | 'e' | 'E'),
            Self::Hex => c.is_ascii_hexdigit() || c == 'x',
            Self::List => c.is_ascii_digit() || matches!(c, ',' | '-' | '[' | ']' | ' '),
            Self::Host => c.is_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']'),
            Self::Word => !c.is_whitespace(),
            Self::Any => true,
        }
    }

    /// Whether `text` may fill a hole of this class.
    fn fits(self, text: &str) -> bool {
        match self {
            Self::Any => true,
            Self::Digits | Self::Int | Self::Num | Self::Hex | Self::List => {
                text.bytes().any(|b| b.is_ascii_hexdigit()) && text.chars().all(|c| self.takes(c))
            }
            Self::Host | Self::Word => !text.is_empty() && text.chars().all(|c| self.takes(c)),
        }
    }

    /// Whether a character that closes a sentence is cut from a name or number at the edge of a pattern.
    fn trims(self, c: char) -> bool {
        match self {
            Self::Any => c.is_whitespace(),
            Self::Digits | Self::Int | Self::Hex => false,
            Self::Num => matches!(c, '.' | ',' | 'e' | 'E' | '+' | '-'),
            Self::List => matches!(c, ' ' | ',' | '-'),
            Self::Host => matches!(c, '.' | ':' | '-'),
            Self::Word => matches!(c, '.' | ',' | ';' | ':' | ')' | ']' | '\'' | '"' | '!' | '}' | '>'),
        }
    }

    /// Length of the text that a hole takes from the start of `text`, as far as its class allows.
    fn run(self, text: &str) -> Option<usize> {
        let end = text
            .char_indices()
            .take_while(|&(at, c)| at < MAX_HOLE_BYTES && self.takes(c))
            .last()
            .map_or(0, |(at, c)| at + c.len_utf8());
        let run = text.get(..end)?.trim_end_matches(|c| self.trims(c));
        self.fits(run).then_some(run.len())
    }

    /// Length of the text that a hole takes from the end of `text`.
    fn run_back(self, text: &str) -> Option<usize> {
        let start = text
            .char_indices()
            .rev()
            .take_while(|&(at, c)| text.len() - at < MAX_HOLE_BYTES && self.takes(c))
            .last()
            .map_or(text.len(), |(at, _)| at);
        let run = text.get(start..)?.trim_start_matches(['[', '(', '"', '\'', ' ']);
        self.fits(run).then_some(run.len())
    }
}

/// Finds the pattern in `line`: returns the range of the match and fills `filled`.
pub(crate) fn find(parts: &[PatternPart], line: &str, filled: &mut Vec<Filled>) -> Option<Range<usize>> {
    let (lead, rest) = match parts {
        [PatternPart::Hole(hole, class), rest @ ..] => (Some((*hole, *class)), rest),
        rest => (None, rest),
    };
    let [PatternPart::Literal(first), rest @ ..] = rest else { return None };
    let mut from = 0;
    for _ in 0..MAX_PLACES {
        let at = from + line.get(from..)?.find(first)?;
        filled.clear();
        let start = match lead {
            None => edge_before(line, at, first).then_some(at),
            Some((_, HoleClass::Any)) => Some(at),
            Some((hole, class)) => line.get(..at).and_then(|head| {
                let start = at - class.run_back(head)?;
                filled.push((hole, start..at));
                Some(start)
            }),
        };
        let mut steps = MAX_STEPS;
        if let Some(start) = start
            && let Some(end) = rest_from(rest, first, line, at + first.len(), filled, &mut steps)
        {
            return Some(start..end);
        }
        from = at + first.chars().next().map_or(1, char::len_utf8);
    }
    None
}

/// The end of the match of `parts` from `at` on; `before` is the preceding literal.
fn rest_from(
    parts: &[PatternPart],
    before: &str,
    line: &str,
    at: usize,
    filled: &mut Vec<Filled>,
    steps: &mut u32,
) -> Option<usize> {
    let Some((part, rest)) = parts.split_first() else {
        return edge_after(line, at, before).then_some(at);
    };
    let PatternPart::Hole(hole, class) = *part else { return None };
    let text = line.get(at..)?;
    let Some((PatternPart::Literal(next), rest)) = rest.split_first() else {
        let end = at + class.run(text)?;
        filled.push((hole, at..end));
        return Some(end);
    };
    let mut from = 0;
    while *steps > 0 && from <= MAX_HOLE_BYTES {
        *steps -= 1;
        let found = from + text.get(from..)?.find(next)?;
        let value = text.get(..found)?;
        if class.fits(value) {
            let kept = filled.len();
            filled.push((hole, at..at + found));
            if let Some(end) = rest_from(rest, next, line, at + found + next.len(), filled, steps) {
                return Some(end);
            }
            filled.truncate(kept);
        } else if !value.is_empty() && !value.chars().all(|c| class.takes(c)) {
            return None;
        }
        from = found + next.chars().next().map_or(1, char::len_utf8);
    }
    None
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

/// A pattern that begins with a letter or digit may not begin within a word.
fn edge_before(line: &str, at: usize, literal: &str) -> bool {
    let before = at.checked_sub(1).and_then(|i| line.as_bytes().get(i));
    !(literal.as_bytes().first().copied().is_some_and(is_word) && before.copied().is_some_and(is_word))
}

/// A pattern that ends with a letter or digit may not end within a word.
fn edge_after(line: &str, at: usize, literal: &str) -> bool {
    let after = line.as_bytes().get(at).copied();
    !(literal.as_bytes().last().copied().is_some_and(is_word) && after.is_some_and(is_word))
}
