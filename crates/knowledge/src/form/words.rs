//! Words of failure within a message, except in configuration keys, options, identifiers, counts of zero, rates, and
//! statements about the future or a condition.

use super::lists::{ENDED, ERROR_DOES, ERROR_OF, FAILING, NAME_OF, NO, NOTHING, PAIRS, WRONG};
use crate::signal::{self, Signal};

/// One word with its positions.
#[derive(Clone, Copy)]
struct Word<'t> {
    start: usize,
    end: usize,
    text: &'t str,
}

fn words(text: &str) -> Vec<Word<'_>> {
    let mut out = Vec::new();
    let mut from = 0;
    let is_in = |c: char| c.is_alphanumeric() || matches!(c, '\'' | '’');
    while let Some(rest) = text.get(from..) {
        let Some(at) = rest.find(|c: char| c.is_alphanumeric()) else { break };
        let start = from + at;
        let tail = text.get(start..).unwrap_or_default();
        let end = start + tail.find(|c: char| !is_in(c)).unwrap_or(tail.len());
        from = end;
        if let Some(word) = text.get(start..end) {
            let trimmed = word.trim_end_matches(['\'', '’']);
            out.push(Word { start, end: start + trimmed.len(), text: trimmed });
        }
    }
    out
}

/// Part of a name, an option, a path or a file: `error_feedback`, `--error`, `on-error`, `errors.py`, `logs/error`.
fn is_named(text: &str, word: Word<'_>) -> bool {
    let head = text.get(..word.start).unwrap_or_default();
    let tail = text.get(word.end..).unwrap_or_default();
    let (before, after) = (head.chars().next_back(), tail.chars().next());
    let glued = |c: Option<char>| c.is_some_and(|c| matches!(c, '_' | '/' | '\\' | '$' | '@'));
    let joined = matches!(after, Some('.' | '-' | '(' | '='))
        && tail.chars().nth(1).is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '\'' | '"'))
        && !tail.get(1..).is_some_and(|t| t.starts_with(|c: char| c.is_ascii_digit() || c == '-'));
    glued(before)
        || glued(after)
        || joined
        || before == Some('-')
        || before == Some('.') && head.chars().rev().nth(1).is_some_and(char::is_alphanumeric)
}

/// Whether the value after `:` or `=` is none, zero or a boolean: `failed=0`, `error: None`, `fail: False`.
pub(super) fn is_nothing(text: &str, end: usize) -> bool {
    let tail = text.get(end..).unwrap_or_default().trim_start_matches(['"', '\'', ')']).trim_start();
    let Some(value) = tail.strip_prefix([':', '=']) else {
        return tail.split(|c: char| c.is_whitespace() || matches!(c, ',' | ';')).next() == Some("0");
    };
    let value = value.trim_start();
    let end = value
        .find(|c: char| c.is_whitespace() || matches!(c, ',' | ';' | '|' | '}' | ')'))
        .unwrap_or(value.len());
    let word = value.get(..end).unwrap_or_default().trim_matches(['"', '\'']).to_ascii_lowercase();
    word.is_empty() && !value.is_empty() || NOTHING.contains(&word.as_str()) || is_decimal(&word)
}

/// `0.0312`: a measurement.
fn is_decimal(word: &str) -> bool {
    word.contains('.') && word.parse::<f64>().is_ok()
}

/// Whether it is `key … value` of a configuration, or a count of zero precedes it.
fn is_taken_back(text: &str, all: &[Word<'_>], at: usize) -> bool {
    let word = |i: Option<usize>| i.and_then(|i| all.get(i)).map_or("", |w| w.text);
    let before = [word(at.checked_sub(1)), word(at.checked_sub(2))];
    let near = |w: &str| NO.iter().any(|no| no.eq_ignore_ascii_case(w));
    let after = word(Some(at + 1));
    let Some(own) = all.get(at) else { return true };
    // A word of another clause does not negate this one.
    let close = |i: usize| {
        at.checked_sub(i)
            .and_then(|i| all.get(i))
            .and_then(|w| text.get(w.end..own.start))
            .is_some_and(|gap| !gap.contains([':', '.', ';', '|', ']', '\t']))
    };
    let gap = all.get(at + 1).and_then(|next| text.get(own.end..next.start)).unwrap_or_default();
    near(before[0]) && close(1)
        || near(before[1]) && close(2)
        || before[0] == "0" && close(1)
        || matches!(before[0], "on" | "On" | "upon" | "in" | "of")
            && close(1)
            && !own.text.starts_with(char::is_uppercase)
            && matches!(own.text, "error" | "failure" | "errors" | "failures" | "fail" | "crash" | "abort")
        || gap.trim().is_empty() && NAME_OF.contains(&after.to_ascii_lowercase().as_str())
        || gap.trim().is_empty() && is_decimal_at(text, own.end)
        || is_nothing(text, own.end)
}

fn is_decimal_at(text: &str, end: usize) -> bool {
    let tail = text.get(end..).unwrap_or_default().trim_start();
    is_decimal(tail.split(|c: char| c.is_whitespace() || matches!(c, ',' | '|')).next().unwrap_or_default())
}

/// The first word that reports a failure.
pub(super) fn failing(message: &str) -> Option<&str> {
    let all = words(message);
    all.iter()
        .enumerate()
        .find_map(|(at, &word)| {
            let lower = word.text.to_ascii_lowercase();
            let next = all.get(at + 1).map_or(String::new(), |w| w.text.to_ascii_lowercase());
            let says = FAILING.contains(&lower.as_str())
                || PAIRS.iter().any(|(first, second)| {
                    *first == lower && (second.is_empty() || *second == next) && pair_holds(first, &all, at)
                })
                || matches!(lower.as_str(), "error" | "errors") && is_error(message, &all, at);
            (says
                && !is_named(message, word)
                && !is_taken_back(message, &all, at)
                && !is_option(message, word))
            .then_some(word.text)
        })
        .or_else(|| status(message))
}

/// The name of a library's status: `IBV_WC_LOC_PROT_ERR`, `CUBLAS_STATUS_ALLOC_FAILED`, `ncclSystemError`,
/// `cudaErrorIllegalAddress`. A variable assignment does not count.
fn status(message: &str) -> Option<&str> {
    message.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).find(|name| {
        let capital = name.len() >= 8 && name.contains('_') && !name.bytes().any(|b| b.is_ascii_lowercase());
        let fails =
            ["_ERR", "ERR_", "_FAILED", "_REJECTED", "_TIMEOUT"].iter().any(|part| name.contains(part))
                || name.contains("_STATUS_") && !name.ends_with("_SUCCESS");
        let is_set = || {
            message.find(name).and_then(|at| message.get(at + name.len()..)).is_some_and(|t| {
                t.trim_start().starts_with(['=', ':']) && !t.starts_with(": ") || t.starts_with(" set")
            }) || name.contains("_HANDLING")
                || name.starts_with("NCCL_")
                || name.starts_with("TORCH_")
        };
        let camel = name.len() > 9
            && (name.starts_with("nccl") && name.ends_with("Error") || name.starts_with("cudaError"));
        capital && fails && !is_set() || camel
    })
}

/// `out of` is a failure only with memory, resources and bounds; `does not` only with existence.
fn pair_holds(first: &str, all: &[Word<'_>], at: usize) -> bool {
    let third = all.get(at + 2).map_or("", |w| w.text);
    match first {
        "out" => matches!(third, "memory" | "Memory" | "resources" | "space" | "range" | "sync"),
        "does" => matches!(third, "exist" | "match" | "respond" | "support"),
        _ => true,
    }
}

/// Whether `error` has a text or a code, or is in words that make it a failure; the plural needs a count.
fn is_error(text: &str, all: &[Word<'_>], at: usize) -> bool {
    let Some(word) = all.get(at) else { return false };
    let before = at.checked_sub(1).and_then(|i| all.get(i)).map_or("", |w| w.text);
    let tail = text.get(word.end..).unwrap_or_default();
    if word.text.eq_ignore_ascii_case("errors") {
        return before.parse::<u64>().is_ok_and(|n| n > 0)
            || matches!(before, "uncorrectable" | "Uncorrectable" | "ECC");
    }
    let next = all.get(at + 1).map_or("", |w| w.text).to_ascii_lowercase();
    // `Error loading …` begins a message.
    if word.text == "Error"
        && text.get(..word.start).is_some_and(|h| h.trim().is_empty())
        && tail.starts_with(' ')
    {
        return true;
    }
    let spoken = tail.trim_start().starts_with([':', '=', '\'']) && !tail.trim_start().starts_with(":\n")
        || tail.starts_with(" -")
        || tail.starts_with(" (")
        || tail.starts_with(" [");
    spoken && !tail.trim().is_empty()
        || next.parse::<i64>().is_ok_and(|n| n != 0)
        || ERROR_DOES.contains(&next.as_str()) && tail.starts_with(' ')
        || ERROR_OF.contains(&before.to_ascii_lowercase().as_str())
}

/// `--max-failures`, `[--on-failure {abort,restart}]`, or `--x` shortly before in the help of a program.
fn is_option(text: &str, word: Word<'_>) -> bool {
    let head = text.get(..word.start).unwrap_or_default();
    let token = head.rsplit(char::is_whitespace).next().unwrap_or_default();
    token.contains("--") || token.starts_with('{') || head.trim_start().starts_with("--")
}

/// Whether a line is source code in a traceback, a shell's trace, or a program's help.
pub(super) fn is_code(line: &str) -> bool {
    const STARTS: &[&str] = &[
        "raise ",
        "except ",
        "except:",
        "def ",
        "import ",
        "from ",
        "class ",
        "assert ",
        "return ",
        "+ ",
        "++ ",
        "--",
        "usage:",
        "throw ",
        "panic(",
        "#include",
        "export ",
        "warnings.warn(",
    ];
    let line = line.trim_start();
    STARTS.iter().any(|s| line.starts_with(s))
        || (line.starts_with("if ") || line.starts_with("elif ") || line.starts_with("try:"))
            && line.ends_with(':')
        || line.starts_with("File \"") && line.contains(", line ")
}

/// Whether a line announces a change in a later version, which fails nothing now.
pub(super) fn is_deprecation(line: &str) -> bool {
    [
        "DeprecationWarning",
        "FutureWarning",
        "is deprecated",
        "are deprecated",
        "was deprecated",
        "being deprecated",
    ]
    .iter()
    .any(|text| line.contains(text))
}

/// Whether the name of an errno is a key or a value of a configuration.
pub(super) fn is_config(line: &str, name: &str) -> bool {
    line.find(name).is_some_and(|at| line.get(at + name.len()..).is_some_and(|t| t.starts_with('_')))
}

/// The name of an exception in the form that messages use: `RuntimeError: …`, `terminate called …`, `panicked at`.
pub(super) fn exception(message: &str) -> Option<&str> {
    const FIXED: &[&str] = &[
        "terminate called",
        "panicked at",
        "Exception in thread",
        "Traceback (most recent call last)",
        "Fatal Python error",
        "Unhandled exception",
        "Uncaught exception",
        "uncaught exception",
        "goroutine ",
        "Caused by: ",
        "std::terminate",
        "KeyboardInterrupt",
        "SystemExit",
    ];
    if let Some(at) = FIXED.iter().find_map(|text| message.find(text).map(|at| (at, text.len()))) {
        return message.get(at.0..at.0 + at.1).map(str::trim);
    }
    if message.starts_with("panic: ") {
        return message.get(..5);
    }
    let mut from = 0;
    while let Some(found) = message.get(from..).and_then(|rest| rest.find(ends_exception)) {
        let at = from + found;
        let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '.' | '$' | ':');
        let head = message.get(..at)?;
        let start =
            head.len() - head.chars().rev().take_while(|&c| is_part(c)).map(char::len_utf8).sum::<usize>();
        let tail = message.get(at..)?;
        let length = tail.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(tail.len());
        from = at + length.max(1);
        let name = message.get(start..at + length)?.trim_start_matches([':', '.']);
        let last = name.rsplit(['.', ':', '$']).next().unwrap_or(name);
        let after = message.get(at + length..)?;
        let named = (last.ends_with("Error") || last.ends_with("Exception") || last.ends_with("Interrupt"))
            && last.len() > 5
            && last.starts_with(|c: char| c.is_ascii_uppercase());
        let before = message.get(..start)?.trim_end();
        let spoken = after.is_empty()
            || after.starts_with(": ")
            || after.starts_with(':') && after.len() == 1
            || after.starts_with('\'') && before.ends_with('\'')
            || after.starts_with('(') && before.is_empty()
            || after.starts_with(", ") && before.is_empty();
        let quoted = before.ends_with("raise") || before.ends_with("except") || before.ends_with("import");
        if named && spoken && !quoted {
            return Some(name);
        }
    }
    None
}

fn ends_exception(c: char) -> bool {
    matches!(c, 'E' | 'I')
}

/// An exit code other than zero after the words for it.
pub(super) fn exit(message: &str) -> Option<i64> {
    const PHRASES: &[&str] = &[
        "exit code",
        "exitcode",
        "exit status",
        "exited with",
        "exit_code",
        "return code",
        "returncode",
        "errorcode",
        "rc=",
        "exitCode",
        "ended with code",
        "terminated with code",
        "died with code",
        "failed with code",
        "exits with return code",
        "non-zero status",
        "error code",
        "ExitCode",
        "code=exited, status=",
    ];
    let lower = message.to_ascii_lowercase();
    PHRASES.iter().find_map(|phrase| {
        let phrase = phrase.to_ascii_lowercase();
        lower.match_indices(&phrase).find_map(|(at, _)| {
            if phrase == "rc=" && lower.get(..at)?.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
                return None;
            }
            let mut rest = lower.get(at + phrase.len()..)?;
            loop {
                let trimmed = rest.trim_start_matches([' ', '\t', ':', '=', '\'', '"', '(', ',']);
                let trimmed = ["code", "status", "non-zero", "a ", "of "]
                    .iter()
                    .find_map(|w| trimmed.strip_prefix(w))
                    .unwrap_or(trimmed);
                if trimmed.len() == rest.len() {
                    break;
                }
                rest = trimmed;
            }
            let digits = rest.strip_prefix('-').unwrap_or(rest);
            let n = digits.bytes().take_while(u8::is_ascii_digit).count();
            let number: i64 = digits.get(..n)?.parse().ok()?;
            (number != 0).then_some(if rest.starts_with('-') { -number } else { number })
        })
    })
}

/// A signal that hit a process.
pub(super) fn signal(message: &str) -> Option<&'static Signal> {
    const TEXTS: &[(&str, i64)] = &[
        ("Segmentation fault", 11),
        ("segfault at", 11),
        ("Bus error", 7),
        ("Floating point exception", 8),
        ("Illegal instruction", 4),
        ("signal: killed", 9),
        ("signal: aborted", 6),
        ("signal: segmentation", 11),
        ("signal: terminated", 15),
        ("signal: bus error", 7),
    ];
    if let Some((_, number)) = TEXTS.iter().find(|(text, _)| message.contains(text)) {
        return signal::get(*number);
    }
    for (at, _) in message.match_indices("SIG") {
        let tail = message.get(at..)?;
        let end = tail.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(tail.len());
        let Some(found) = tail.get(..end).and_then(signal::named) else { continue };
        let glued = message.get(..at)?.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '-'))
            || tail.get(end..)?.starts_with('_');
        let lower = message.to_ascii_lowercase();
        let told =
            ["handler", "registering", "install", "send sig", "will "].iter().any(|w| lower.contains(w));
        let met = [
            "received",
            "caught",
            "killed",
            "died",
            "terminated",
            "signal",
            "got ",
            "by sig",
            "exited",
            "exitcode",
        ]
        .iter()
        .any(|w| lower.contains(w));
        let deadly = matches!(found.number, 4 | 6 | 7 | 8 | 9 | 11);
        if !glued && !told && (met || deadly) {
            return Some(found);
        }
    }
    let lower = message.to_ascii_lowercase();
    for (at, _) in lower.match_indices("signal") {
        if lower.get(..at)?.ends_with(|c: char| c.is_alphanumeric() || c == '_') {
            continue;
        }
        let rest = lower.get(at + 6..)?.trim_start_matches([' ', ':', '=', '#', '(']);
        let n = rest.bytes().take_while(u8::is_ascii_digit).count();
        if let Some(found) = rest.get(..n).and_then(|d| d.parse().ok()).and_then(signal::get) {
            return Some(found);
        }
    }
    // A shell's message about its child: `line 12:  4422 Killed   python`, `Aborted (core dumped)`, or the word
    // alone.
    [("Killed", 9), ("Aborted", 6), ("Terminated", 15)].into_iter().find_map(|(text, number)| {
        let at = message.find(text)?;
        let (head, tail) = (message.get(..at)?.trim_end(), message.get(at + text.len()..)?);
        let shell = head.is_empty() || head.ends_with(|c: char| c.is_ascii_digit() || c == ':');
        (shell && (tail.is_empty() || tail.starts_with("  ") || tail.starts_with(" (core")))
            .then(|| signal::get(number))?
    })
}

/// The metric that is not a number: its last words, or an empty text.
pub(super) fn not_a_number(message: &str) -> Option<&str> {
    const STATES: &[&str] = &[
        "found",
        "detected",
        "contains",
        "contain",
        "is",
        "are",
        "became",
        "has",
        "have",
        "encountered",
        "got",
        "or",
    ];
    let all = words(message);
    all.iter().enumerate().find_map(|(at, &word)| {
        let nan = word.text.eq_ignore_ascii_case("nan");
        let inf = word.text.eq_ignore_ascii_case("inf") || word.text.eq_ignore_ascii_case("infinity");
        let tail = message.get(word.end..).unwrap_or_default();
        let head = message.get(..word.start).unwrap_or_default().trim_end_matches(['"', '\'', '-', '+']);
        if !(nan || inf)
            || tail.starts_with(['_', '.', '/', '-'])
            || head.ends_with(['_', '/', '.'])
            || message.contains("no nan")
        {
            return None;
        }
        let head = head.trim_end();
        let key = head.strip_suffix([':', '=', '|', '(']).map(|h| h.trim_end().trim_end_matches(['"', '\'']));
        let of_key = |key: &'_ str| {
            let start = key
                .rfind(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '/' | ' ')))
                .map_or(0, |i| i + 1);
            // Two blanks part a value from the next name.
            (key.rfind("  ").map_or(start, |i| start.max(i + 2)), key.len())
        };
        let lower = head.to_ascii_lowercase();
        let is_metric = ["loss", "norm", "ppl", "perplexity", "grad", "acc", "score", "reward", "kl"]
            .iter()
            .any(|m| lower.ends_with(m) || key.is_some_and(|k| k.to_ascii_lowercase().ends_with(m)));
        // `grad norm: 0.31 | nan iterations: 0`: in a cell of its own it is a value only alone.
        let is_adjective = head.ends_with(['|', '(']) && tail.trim_start().starts_with(char::is_alphabetic);
        if let Some(key) = key.filter(|_| (nan || is_metric) && !is_adjective) {
            let (start, end) = of_key(key);
            return message.get(start..end).map(str::trim);
        }
        let previous = at.checked_sub(1).and_then(|i| all.get(i));
        if is_metric {
            return previous.map(|w| w.text);
        }
        if nan && is_value(message, &all, at) {
            return previous.map(|w| w.text);
        }
        let says =
            |w: Option<&Word<'_>>| w.is_some_and(|w| STATES.contains(&w.text.to_ascii_lowercase().as_str()));
        let proper = matches!(word.text, "NaN" | "nan" | "NAN") && !is_taken_back(message, &all, at);
        (proper && (says(previous) || says(all.get(at + 1)))).then_some("")
    })
}

/// Whether the word at `at` stands in a row of names and values: `critic nan generator nan accuracy 0.50`.
fn is_value(message: &str, all: &[Word<'_>], at: usize) -> bool {
    let own = |i: Option<usize>| i.and_then(|i| all.get(i)).map_or("", |w| w.text);
    let is_number = |text: &str| text.eq_ignore_ascii_case("nan") || text.parse::<f64>().is_ok();
    let is_name = |text: &str| text.starts_with(char::is_alphabetic) && !is_number(text);
    let (value, name) = (own(at.checked_sub(2)), own(at.checked_sub(1)));
    let gap = all.get(at).zip(at.checked_sub(1).and_then(|i| all.get(i)));
    let is_next =
        gap.and_then(|(nan, name)| message.get(name.end..nan.start)).is_some_and(|gap| gap.trim().is_empty());
    // A value before its name, and another pair or nothing behind it.
    let behind = all.get(at + 1).is_none() || is_name(own(Some(at + 1))) && is_number(own(Some(at + 2)));
    is_next && is_name(name) && is_number(value) && behind
}

/// Words that mark a result as wrong.
pub(super) fn wrong(message: &str) -> Option<&str> {
    if let Some(found) = WRONG.iter().find(|text| message.contains(**text)) {
        return Some(found);
    }
    let count = |mark: &str| {
        let rest = message.get(message.find(mark)? + mark.len()..)?.trim_start_matches([' ', ':', '=']);
        let n = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest.get(..n)?.parse::<u64>().ok().filter(|n| *n > 0)
    };
    if count("Out of bounds values").is_some() {
        return Some("Out of bounds values");
    }
    count("#wrong=").map(|_| "#wrong")
}

/// The words of a launcher for the end of a task.
pub(super) fn ended(line: &str) -> Option<&str> {
    ENDED.iter().copied().find(|text| {
        line.find(text).is_some_and(|at| {
            let before = line.get(..at).and_then(|h| h.chars().next_back());
            let after = line.get(at + text.len()..).and_then(|t| t.chars().next());
            !before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-'))
                && !after.is_some_and(|c| c.is_alphanumeric() || c == '_')
        })
    })
}
