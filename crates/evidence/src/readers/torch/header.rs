//! What precedes a message: torch's log prefixes in C++ and in Python, and those of loggers around it.
//!
//! `[rank3]:[E1120 08:21:34.879176503 ProcessGroupNCCL.cpp:689] [Rank 3] …` is written by c10's logging
//! (pytorch/pytorch `c10/util/Logging.cpp`), without the stamp up to 2.1; the month has no leading zero.
//! `E1120 08:21:51.212000 1330 torch/distributed/elastic/multiprocessing/api.py:986] …` is written by
//! `torch/_logging/_internal.py`, the number being the writer's pid (in 2.3 a thread).
//! `(Worker_TP1 pid=51220) ERROR 05-28 16:20:11 [multiproc_executor.py:962] …` is vLLM's logger.

use ringleader_model::{Date, GroupLabel, Pid, Rank, WallTime};

use super::scan::{after, between, digits};

/// A log prefix.
#[derive(Debug, PartialEq)]
pub(super) struct Header<'a> {
    /// `I`, `W`, `E`, `F`.
    pub(super) level: char,
    pub(super) at: Option<WallTime>,
    /// Process of the writer.
    pub(super) pid: Option<Pid>,
    /// File or module of the writer.
    pub(super) file: &'a str,
    /// The message.
    pub(super) rest: &'a str,
}

const SECOND_NS: i64 = 1_000_000_000;
/// Of stamps without a year.
const NO_YEAR: i64 = 1970;

/// Reads a log prefix at the start of `text`.
pub(super) fn parse(text: &str) -> Option<Header<'_>> {
    match text.as_bytes().first()? {
        b'[' => c10(text).or_else(|| old_elastic(text)),
        b'I' | b'W' | b'E' | b'F' | b'D' | b'V' | b'C' => python(text).or_else(|| root_logger(text)),
        _ => None,
    }
}

/// Finds torch's prefix within a line that begins with somebody's unfinished print. Gives the offset too, which is that
/// of its `[rank3]:` if it has one.
pub(super) fn find(text: &str) -> Option<usize> {
    let file = text.find(".cpp:").or_else(|| text.find(".hpp:"))?;
    let before = text.get(..file)?;
    let start = before.match_indices('[').rev().take(3).find_map(|(at, _)| {
        let tail = text.get(at..)?;
        c10(tail).map(|_| at)
    })?;
    let head = text.get(..start)?;
    let tagged = head.strip_suffix(':').and_then(|h| h.rfind("[rank"));
    Some(
        tagged
            .filter(|at| head.get(*at..).is_some_and(|t| rank_tag(t).is_some_and(|(_, r)| r.is_empty())))
            .unwrap_or(start),
    )
}

/// `[rank3]: `, `[rank3]:`, `[rank8] `. A print of the program such as `[rank 0]` is not torch's.
pub(super) fn rank_tag(text: &str) -> Option<(Rank, &str)> {
    let (figures, rest) = digits(text.strip_prefix("[rank")?);
    let rank = Rank(figures.parse().ok()?);
    let rest = rest.strip_prefix(']')?;
    let rest =
        rest.strip_prefix(": ").or_else(|| rest.strip_prefix(':')).or_else(|| rest.strip_prefix(' '))?;
    Some((rank, rest))
}

fn c10(text: &str) -> Option<Header<'_>> {
    let inner = text.strip_prefix('[')?;
    let mut chars = inner.chars();
    let level = chars.next().filter(|c| matches!(c, 'I' | 'W' | 'E' | 'F'))?;
    let inner = chars.as_str();
    let (stamp, place) = if let Some(place) = inner.strip_prefix(' ') {
        (None, place)
    } else {
        let (at, place) = month_day_stamp(inner, SECOND_NS)?;
        (Some(at), place)
    };
    let (place, rest) = place.split_once(']')?;
    let (file, line) = place.rsplit_once(':')?;
    if line.is_empty() || !digits(line).1.is_empty() || file.contains(' ') {
        return None;
    }
    Some(Header { level, at: stamp, pid: None, file, rest: rest.strip_prefix(' ').unwrap_or(rest) })
}

fn python(text: &str) -> Option<Header<'_>> {
    let mut chars = text.chars();
    let level = chars.next()?;
    // msecs are printed with six digits: the last three say nothing.
    let (at, rest) = month_day_stamp(chars.as_str(), 1_000_000)?;
    let (pid, rest) = digits(rest.trim_start());
    let (place, message) = rest.strip_prefix(' ')?.split_once(']')?;
    let (file, line) = place.rsplit_once(':')?;
    if line.is_empty() || !digits(line).1.is_empty() || file.contains(' ') {
        return None;
    }
    // Thread idents of older versions do not fit a pid.
    let pid = pid.parse().ok().filter(|p| *p < 1 << 22).map(Pid);
    Some(Header { level, at: Some(at), pid, file, rest: message.strip_prefix(' ').unwrap_or(message) })
}

/// `[2024-04-15 19:42:31,520] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (…` of 2.1 and 2.2.
fn old_elastic(text: &str) -> Option<Header<'_>> {
    let (stamp, rest) = text.strip_prefix('[')?.split_once("] ")?;
    let at = date_time(stamp, 1_000_000)?;
    let (file, rest) = rest.split_once(": [")?;
    let (level, rest) = rest.split_once(']')?;
    if !file.starts_with("torch") || file.contains(' ') {
        return None;
    }
    Some(Header { level: level_letter(level)?, at: Some(at), pid: None, file, rest: rest.trim_start() })
}

/// `ERROR:torch.distributed.elastic.multiprocessing.api:failed (…`, up to 2.0.
fn root_logger(text: &str) -> Option<Header<'_>> {
    let (level, rest) = text.split_once(':')?;
    let level = level_letter(level)?;
    let (file, rest) = rest.split_once(':')?;
    file.starts_with("torch.").then_some(Header { level, at: None, pid: None, file, rest })
}

fn level_letter(word: &str) -> Option<char> {
    Some(match word {
        "DEBUG" | "INFO" => 'I',
        "WARNING" => 'W',
        "ERROR" => 'E',
        "CRITICAL" => 'F',
        _ => return None,
    })
}

/// A prefix of a logger that goes before each line of a traceback: what it says and the rest.
pub(super) fn logger(text: &str) -> (Option<Pid>, Option<WallTime>, &str) {
    let (pid, text) = match text.strip_prefix('(').and_then(|t| t.split_once(") ")) {
        Some((name, rest)) if name.len() < 64 && name.contains("pid=") => {
            let pid = after(name, "pid=").and_then(|t| digits(t).0.parse().ok()).map(Pid);
            (pid, rest)
        }
        _ => (None, text),
    };
    let levelled =
        ["ERROR ", "WARNING ", "CRITICAL ", "INFO "].iter().find_map(|level| text.strip_prefix(level));
    let Some(rest) = levelled else { return (pid, None, text) };
    let stamp = || {
        let (date, rest) = rest.split_once(' ')?;
        let (time, rest) = rest.split_once(' ')?;
        let (month, day) = date.split_once('-')?;
        let days = days(NO_YEAR, month, day)?;
        let (ns, _) = time_of_day(time)?;
        let place = rest.strip_prefix('[')?;
        let (place, message) = place.split_once(']')?;
        place.contains(".py:").then_some(())?;
        let at = WallTime { ns: days * 86_400 * SECOND_NS + ns, error_ns: SECOND_NS, has_year: false };
        Some((at, message.strip_prefix(' ').unwrap_or(message)))
    };
    match stamp() {
        Some((at, message)) => (pid, Some(at), message),
        None => (pid, None, text),
    }
}

/// `1120 08:21:34.879176503 ` or `415 19:42:31.520170048 `. c10 takes seconds and fraction from two clocks, so that its
/// stamps may be a second off.
fn month_day_stamp(text: &str, error_ns: i64) -> Option<(WallTime, &str)> {
    let (date, rest) = digits(text);
    let split = match date.len() {
        3 => 1,
        4 => 2,
        _ => return None,
    };
    let (month, day) = date.split_at_checked(split)?;
    let days = days(NO_YEAR, month, day)?;
    let (ns, rest) = time_of_day(rest.strip_prefix(' ')?)?;
    Some((
        WallTime { ns: days * 86_400 * SECOND_NS + ns, error_ns, has_year: false },
        rest.strip_prefix(' ')?,
    ))
}

/// Days from the first of January 1970 to a date; without a year that year's, which has no leap day.
fn days(year: i64, month: &str, day: &str) -> Option<i64> {
    let (month, day) = (month.parse().ok()?, day.parse().ok()?);
    ((1..=12).contains(&month) && (1..=31).contains(&day)).then(|| Date { year, month, day }.days())
}

/// `08:21:34.879176503` or `08:21:34,879` as nanoseconds, and what follows.
fn time_of_day(text: &str) -> Option<(i64, &str)> {
    let (hour, rest) = digits(text);
    let (minute, rest) = digits(rest.strip_prefix(':')?);
    let (second, rest) = digits(rest.strip_prefix(':')?);
    let field = |text: &str, end: i64| text.parse::<i64>().ok().filter(|v| text.len() == 2 && *v < end);
    let seconds = field(hour, 24)? * 3_600 + field(minute, 60)? * 60 + field(second, 61)?;
    let (fraction, rest) = match rest.strip_prefix(['.', ',']) {
        Some(rest) => digits(rest),
        None => ("", rest),
    };
    let mut ns = 0;
    let mut unit = SECOND_NS / 10;
    for figure in fraction.bytes().take(9) {
        ns += i64::from(figure - b'0') * unit;
        unit /= 10;
    }
    Some((seconds * SECOND_NS + ns, rest))
}

/// `2026-11-20_08:21:51`, `2024-04-15 19:42:31,520`.
pub(super) fn date_time(text: &str, error_ns: i64) -> Option<WallTime> {
    let (date, time) = text.split_once(['_', ' ', 'T'])?;
    let mut parts = date.splitn(3, '-');
    let year: i64 = parts.next()?.parse().ok().filter(|y| (1970..2200).contains(y))?;
    let days = days(year, parts.next()?, parts.next()?)?;
    let (ns, _) = time_of_day(time)?;
    Some(WallTime { ns: days * 86_400 * SECOND_NS + ns, error_ns, has_year: true })
}

/// What the message's own prefix says: `[Rank 3] `, `[PG ID 0 PG GUID 0(default_pg) Rank 3] `, `[PG 0 Rank 3] `.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Speaker {
    /// Global rank, as far as it follows. A group's prefix counts within the group, so only the default group's does.
    pub(super) rank: Option<Rank>,
    pub(super) group: GroupLabel,
}

/// Takes such prefixes (some are doubled), `Warning: ` and `[c10d] ` off a message.
pub(super) fn speaker(mut text: &str) -> (Speaker, &str) {
    let mut speaker = Speaker::default();
    loop {
        text = text.trim_start();
        if let Some(rest) = text
            .strip_prefix("Warning: ")
            .or_else(|| text.strip_prefix("[c10d] "))
            .or_else(|| text.strip_prefix("[c10d - debug] "))
        {
            text = rest;
            continue;
        }
        let Some((inside, rest)) = text.strip_prefix('[').and_then(|t| t.split_once(']')) else { break };
        if let Some(rank) = inside.strip_prefix("Rank ") {
            let Ok(rank) = rank.parse() else { break };
            speaker.rank.get_or_insert(Rank(rank));
        } else if inside.starts_with("PG ") {
            let Some((label, rank)) = inside.rsplit_once(" Rank ") else { break };
            speaker.group = group_label(label);
            let is_default = speaker.group.desc.as_deref() == Some("default_pg")
                || speaker.group.guid.as_deref().or(speaker.group.id.as_deref()) == Some("0");
            if let (true, Ok(rank)) = (is_default, rank.parse()) {
                speaker.rank.get_or_insert(Rank(rank));
            }
        } else {
            break;
        }
        text = rest.strip_prefix(':').unwrap_or(rest);
    }
    (speaker, text)
}

fn group_label(label: &str) -> GroupLabel {
    let word = |t: &str| (!t.is_empty()).then(|| Box::from(t));
    let guid = after(label, "GUID ");
    GroupLabel {
        id: between(label, "PG ID ", " ").or_else(|| label.strip_prefix("PG ")).and_then(word),
        guid: guid.and_then(|t| t.split('(').next()).and_then(word),
        desc: guid.and_then(|t| between(t, "(", ")")).and_then(word),
    }
}
