//! The level of a log line, for any logger: glog and absl (`E1120 10:00:00.1 …]`), c10 (`[E Process…`), Python and
//! spdlog (`[ERROR]`, `| ERROR |`, `ERROR:`), Rust and Go (`ERROR target:`, `level=error`), JSON (`"level":"error"`),
//! syslog, NCCL (`NCCL WARN`), UCX (`UCX  ERROR`), libfabric (`<warn>`).

/// Severity of a line according to its logger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Trace.
    Trace,
    /// Debug.
    Debug,
    /// Info, notice.
    Info,
    /// Warning.
    Warning,
    /// `NCCL WARN`: most of NCCL's warnings report a failed call.
    NcclWarn,
    /// Error.
    Error,
    /// Fatal, critical, emergency, panic.
    Fatal,
}

/// Bytes at the start of a line that may contain its level.
const HEAD_BYTES: usize = 200;
/// Keys of structured logs.
const KEYS: &[&str] = &[
    "\"level\"",
    "\"severity\"",
    "\"levelname\"",
    "\"lvl\"",
    "\"log.level\"",
    "level=",
    "severity=",
    "lvl=",
];

/// The level that `line` names.
pub fn level(line: &str) -> Option<Level> {
    split(line).0
}

/// The level, and the line after it; the whole line if the level is a field of a structure.
pub(super) fn split(line: &str) -> (Option<Level>, &str) {
    let head = line.get(..line.floor_char_boundary(HEAD_BYTES)).unwrap_or(line);
    if let Some(at) = head.find("NCCL WARN") {
        return (Some(Level::NcclWarn), line.get(at + "NCCL WARN".len()..).unwrap_or_default());
    }
    if let Some(level) = structured(line) {
        return (Some(level), line);
    }
    if let Some(found) = glog(head) {
        return (Some(found), line);
    }
    for (at, end, word) in tokens(head) {
        let Some(level) = named(word) else { continue };
        if framed(head, at, end) && !super::words::is_nothing(head, end) {
            return (Some(level), line.get(end..).unwrap_or_default());
        }
    }
    (None, line)
}

fn structured(line: &str) -> Option<Level> {
    let first = line.trim_start().as_bytes().first().copied()?;
    let json = first == b'{';
    KEYS.iter().find_map(|key| {
        let at = line.find(key)?;
        if !json && at > HEAD_BYTES {
            return None;
        }
        let value = line.get(at + key.len()..)?.trim_start_matches([':', ' ', '"']);
        let end = value.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(value.len());
        let word = value.get(..end)?;
        named(&word.to_ascii_uppercase())
    })
}

/// `E1120 10:00:00.123456`, `[E Process…`, `[W1120 …`, and Ray's `… E 4242 4242]`.
fn glog(head: &str) -> Option<Level> {
    let bytes = head.as_bytes();
    let letter = |b: u8| match b {
        b'I' => Some(Level::Info),
        b'W' => Some(Level::Warning),
        b'E' => Some(Level::Error),
        b'F' | b'C' => Some(Level::Fatal),
        _ => None,
    };
    for (at, &byte) in bytes.iter().enumerate().take(120) {
        let Some(level) = letter(byte) else { continue };
        let before = at.checked_sub(1).and_then(|i| bytes.get(i)).copied();
        let rest = bytes.get(at + 1..).unwrap_or_default();
        let dated = rest
            .get(..5)
            .is_some_and(|r| r.iter().take(4).all(u8::is_ascii_digit) && r.get(4) == Some(&b' '))
            && rest
                .get(5..8)
                .is_some_and(|r| r.iter().take(2).all(u8::is_ascii_digit) && r.get(2) == Some(&b':'));
        if dated && before.is_none_or(|b| matches!(b, b' ' | b'[' | b':' | b']' | b')' | b'>')) {
            return Some(level);
        }
        if before == Some(b'[')
            && rest.first() == Some(&b' ')
            && rest.get(1).is_some_and(u8::is_ascii_alphabetic)
        {
            let file = rest.get(1..).unwrap_or_default();
            let end = file.iter().position(|b| matches!(b, b' ' | b']')).unwrap_or(file.len());
            if file.get(..end).is_some_and(|f| f.contains(&b':') || f.contains(&b'.')) {
                return Some(level);
            }
        }
        // TensorFlow and XLA: `2026-11-20 10:00:00.123456: E external/xla/…/rendezvous.cc:31] …`
        let timed =
            at >= 8 && bytes.get(at - 2) == Some(&b':') && bytes.get(at - 3).is_some_and(u8::is_ascii_digit);
        if timed && before == Some(b' ') && rest.first() == Some(&b' ') && names_source(rest) {
            return Some(level);
        }
        let ray = before == Some(b' ')
            && rest.first() == Some(&b' ')
            && rest.get(1).is_some_and(u8::is_ascii_digit);
        if ray && bytes.get(..at).is_some_and(|h| h.contains(&b',') && h.contains(&b':')) {
            return Some(level);
        }
    }
    None
}

/// ` path/file.cc:31] …`
fn names_source(rest: &[u8]) -> bool {
    let word = rest.get(1..).unwrap_or_default();
    let end = word.iter().position(|b| matches!(b, b' ' | b']')).unwrap_or(word.len());
    word.get(end) == Some(&b']') && word.get(..end).is_some_and(|w| w.contains(&b'.') && w.contains(&b':'))
}

/// Words of letters with their positions.
fn tokens(head: &str) -> impl Iterator<Item = (usize, usize, &str)> {
    let mut from = 0;
    std::iter::from_fn(move || {
        let rest = head.get(from..)?;
        let start = from + rest.find(|c: char| c.is_ascii_alphabetic())?;
        let tail = head.get(start..)?;
        let end = start + tail.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(tail.len());
        from = end;
        Some((start, end, head.get(start..end)?))
    })
}

fn named(word: &str) -> Option<Level> {
    Some(match word {
        "TRACE" | "VERBOSE" => Level::Trace,
        "DEBUG" | "DEBU" => Level::Debug,
        "INFO" | "NOTICE" | "INFORMATION" => Level::Info,
        "WARN" | "WARNING" | "WRN" => Level::Warning,
        "ERROR" | "ERR" | "EROR" | "SEVERE" => Level::Error,
        "FATAL" | "CRITICAL" | "CRIT" | "ALERT" | "EMERG" | "EMERGENCY" | "PANIC" => Level::Fatal,
        "error" | "err" => Level::Error,
        "fatal" | "critical" | "panic" => Level::Fatal,
        "warn" | "warning" => Level::Warning,
        "info" | "notice" => Level::Info,
        "debug" => Level::Debug,
        _ => return None,
    })
}

/// Whether a word is where loggers put the level: in brackets or bars, before a colon at the start of a message, or in
/// capitals between white space near the start.
fn framed(head: &str, at: usize, end: usize) -> bool {
    let before = head.get(..at).unwrap_or_default();
    let after = head.get(end..).unwrap_or_default();
    let (left, right) = (before.trim_end().chars().next_back(), after.trim_start().chars().next());
    let touches = |c: Option<char>| c.is_some_and(|c| matches!(c, '_' | '.' | '/' | '-' | '='));
    if touches(before.chars().next_back()) || touches(after.chars().next()) {
        return false;
    }
    let capital = head.get(at..end).is_some_and(|w| w.bytes().all(|b| b.is_ascii_uppercase()));
    match (left, right) {
        (Some('['), Some(']')) | (Some('<'), Some('>' | '.')) | (Some('('), Some(')')) => true,
        (Some('|'), Some('|')) => true,
        (Some('-'), Some('-')) => capital,
        // `ERROR: text`, `fatal: text`, `srun: error: text`, `node0: ERROR: text`
        (left, Some(':')) => {
            left.is_none_or(|c| matches!(c, ':' | ']' | '>' | ')' | '|')) || capital && at < 80
        }
        _ => {
            let spaced = before.chars().next_back().is_none_or(char::is_whitespace)
                && after.chars().next().is_none_or(char::is_whitespace);
            // After a date, a time, a bracket or nothing.
            capital
                && spaced
                && left.is_none_or(|c| {
                    c.is_ascii_digit() || matches!(c, ']' | 'Z' | ':' | ')' | '|' | '-' | 'X')
                })
        }
    }
}
