//! How the text of a variable is read.

use crate::variable::{Parse, Trap, Variable, trap};
use crate::version::NcclVersion;

/// A value that is read differently from what it says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misread {
    /// The kind of mistake.
    pub trap: &'static Trap,
    /// The effect on this value, in a few words: `reads as 0`.
    pub what: String,
}

/// First release whose debugging switches accept words for yes and no.
const TYPED: NcclVersion = NcclVersion { major: 2, minor: 30, patch: 7 };

/// How `raw` is misread as a value of `variable`; None if it is not. `version`: of NCCL, if known.
pub fn misread(variable: &Variable, raw: &str, version: Option<NcclVersion>) -> Option<Misread> {
    let say = |id, what: String| trap(id).map(|trap| Misread { trap, what });
    if raw.is_empty() {
        return None;
    }
    let quoted = raw.starts_with(['"', '\'']) || raw.ends_with(['"', '\'']);
    if quoted && variable.parse != Parse::Text {
        return say("quotes", format!("{raw} keeps its quotes"));
    }
    let text = raw.trim();
    match variable.parse {
        Parse::Text => None,
        Parse::ParamBool if version.is_none_or(|v| v >= TYPED) && is_nccl_bool(text) => None,
        Parse::ParamBool | Parse::Strtoll => number(variable, text),
        Parse::Word => (!has(variable.words, text, false)).then(|| unknown(variable, text)).flatten(),
        Parse::ExactWord => (!has(variable.words, text, true)).then(|| unknown(variable, text)).flatten(),
        Parse::Level if text.starts_with(|c: char| c.is_ascii_digit()) => None,
        Parse::Level => (!has(variable.words, text, true)).then(|| unknown(variable, text)).flatten(),
        Parse::WordList => words(variable, text),
        Parse::TorchWord if has(variable.words, text, false) => None,
        Parse::TorchWord => say("torch-refuses", format!("torch raises on {text}")),
        Parse::TorchBool => {
            let known = ["1", "t", "true", "y", "yes", "0", "f", "false", "n", "no"];
            (!has(&known, text, false))
                .then(|| say("torch-refuses", format!("torch raises on {text}")))
                .flatten()
        }
        Parse::TorchInt => match text.parse::<i64>() {
            Ok(n) => outside(variable, n),
            Err(_) => match strtoll(text) {
                Some(ParsedNumber { value, rest, .. }) if !rest.is_empty() => {
                    say("unit", format!("reads as {value}"))
                }
                _ => say("torch-refuses", format!("torch raises on {text}")),
            },
        },
    }
}

fn is_nccl_bool(text: &str) -> bool {
    has(&["1", "T", "TRUE", "0", "F", "FALSE"], text, false)
}

fn has(words: &[&str], text: &str, exact: bool) -> bool {
    words.iter().any(|w| if exact { *w == text } else { w.eq_ignore_ascii_case(text) })
}

fn say(id: &str, what: String) -> Option<Misread> {
    trap(id).map(|trap| Misread { trap, what })
}

fn unknown(variable: &Variable, text: &str) -> Option<Misread> {
    let what = match variable.words.iter().find(|w| w.eq_ignore_ascii_case(text)) {
        Some(word) => format!("{text} is not {word}: case counts"),
        None => format!("{text} is none of {}", variable.words.join(", ")),
    };
    say("unknown-word", what)
}

/// `^Ring,Tree` or, since 2.24, `allreduce:tree,ring;broadcast:ring`.
fn words(variable: &Variable, text: &str) -> Option<Misread> {
    let lists = text.split(';').map(|part| part.split_once(':').map_or(part, |(_, list)| list));
    let mut words = lists.flat_map(|list| list.trim_start_matches('^').split(',')).map(str::trim);
    words.find(|w| !w.is_empty() && !has(variable.words, w, false)).and_then(|word| unknown(variable, word))
}

fn number(variable: &Variable, text: &str) -> Option<Misread> {
    let Some(ParsedNumber { value, rest, octal, fits }) = strtoll(text) else {
        // A default that is a word (auto, unset) is not a number either, but it shows the intention.
        return say("word-for-number", format!("{text} reads as 0"));
    };
    if !fits {
        return say("too-large", format!("{text} is refused, the default is used"));
    }
    if !rest.is_empty() {
        return say("unit", format!("{text} reads as {value}"));
    }
    if octal {
        return say("leading-zero", format!("{text} reads as {value}"));
    }
    outside(variable, value)
}

fn outside(variable: &Variable, value: i64) -> Option<Misread> {
    let (low, high) = variable.range?;
    let default = |text: &str| text.split(' ').next().and_then(|t| t.parse::<i64>().ok()) == Some(value);
    let is_default = default(variable.default) || variable.defaults.iter().any(|(_, d)| default(d));
    // NCCL itself writes "not set" as -1 and -2.
    ((value < low || value > high) && !is_default && value != -1 && value != -2)
        .then(|| say("out-of-range", format!("{value} is not within {low} to {high}")))
        .flatten()
}

struct ParsedNumber<'a> {
    value: i64,
    /// The text after the number.
    rest: &'a str,
    /// Whether a leading zero makes it an octal number.
    octal: bool,
    /// Whether it fits in 64 bits.
    fits: bool,
}

/// C's `strtoll` with base 0; None if the text does not begin with a number.
fn strtoll(text: &str) -> Option<ParsedNumber<'_>> {
    let text = text.trim_start();
    let (negative, digits) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (radix, body) = match hex {
        Some(hex) if hex.starts_with(|c: char| c.is_ascii_hexdigit()) => (16, hex),
        _ if digits.starts_with('0') => (8, digits),
        _ => (10, digits),
    };
    let end = body.find(|c: char| !c.is_digit(radix)).unwrap_or(body.len());
    if end == 0 {
        return None;
    }
    let (number, rest) = body.split_at_checked(end)?;
    let magnitude = i128::from_str_radix(number, radix).unwrap_or(i128::MAX);
    let signed = if negative { -magnitude } else { magnitude };
    let value = i64::try_from(signed).unwrap_or(if negative { i64::MIN } else { i64::MAX });
    let octal = radix == 8 && digits.parse::<i128>().is_ok_and(|looks| looks != magnitude);
    Some(ParsedNumber { value, rest: rest.trim_end(), octal, fits: i128::from(value) == signed })
}
