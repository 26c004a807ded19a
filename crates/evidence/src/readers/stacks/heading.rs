//! Lines above a stack that say whose it is: the command that took it, or a heading that people and scripts write.
//!
//! ```text
//! $ py-spy dump --pid 44120   # rank 0, 09:50
//! === node3 rank 2 pid 8117 ===
//! --- rank 3 (pid 8118) ---
//! == 8119 (rank 4)
//! ```

use ringleader_model::{Host, Pid, Rank};

use super::Announced;
use crate::ground::host_of;

/// Programs whose command names the process that they look into.
const TOOLS: [&str; 3] = ["py-spy dump", "pystack remote", "gdb -p"];
/// Longest heading, bytes, and words of one.
const MAX_BYTES: usize = 160;
const MAX_WORDS: usize = 14;
/// Smaller numbers count something else than processes.
const LEAST_PID: u32 = 100;

/// Whether a line may be one; a digit more or less does not matter.
pub(super) fn may_begin(line: &[u8]) -> bool {
    line.len() <= MAX_BYTES
        && (matches!(line.first(), Some(b'#' | b'=' | b'-' | b'*' | b'$' | b'>' | b'<'))
            || line.starts_with(b"rank ") && memchr::memmem::find(line, b"pid").is_some())
        && (memchr::memmem::find(line, b"ank").is_some()
            || memchr::memmem::find(line, b"dump").is_some()
            || bare_pid(line).is_some())
}

/// The number of a heading that is nothing else, `== 30210 ==`: scripts print the process before its stack.
fn bare_pid(line: &[u8]) -> Option<Pid> {
    let is_mark = |b: &u8| matches!(b, b'=' | b'-' | b'*' | b'#');
    let n_marks = line.iter().take_while(|b| is_mark(b)).count();
    let rest = line.get(n_marks..).filter(|_| n_marks > 1)?.trim_ascii_start();
    let n_digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
    let (number, tail) = rest.split_at_checked(n_digits)?;
    let is_alone = tail.iter().all(|b| is_mark(b) || *b == b' ');
    let number: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
    (is_alone && number >= LEAST_PID).then_some(Pid(number))
}

/// Whose stack comes next.
pub(super) fn heading(body: &str, line: u32) -> Option<Announced> {
    if body.len() > MAX_BYTES || body.split_whitespace().nth(MAX_WORDS).is_some() {
        return None;
    }
    if let Some(pid) = bare_pid(body.as_bytes()) {
        return Some(Announced { pid: Some(pid), rank: None, host: None, line });
    }
    let lower = body.to_ascii_lowercase();
    let rank = ["rank", "proc"].iter().find_map(|name| number_behind(&lower, name));
    let rank = rank.and_then(|n| n.try_into().ok()).map(Rank);
    let pid = ["--pid", "-p", "pid"].iter().find_map(|name| number_behind(&lower, name));
    let pid = pid.and_then(|n| n.try_into().ok()).map(Pid);
    let (first, named) = first_word(body, &lower);
    let pid = pid.or(first.filter(|_| rank.is_some()));
    let host = named.filter(|_| rank.is_some());
    let is_command = TOOLS.iter().any(|tool| lower.contains(tool));
    let is_heading = lower.starts_with(['#', '=', '-', '*', '>', '<']) && rank.is_some();
    // `rank 0  pid 8801  cn20`, without a mark: the two, and no words.
    let is_bare = rank.is_some() && pid.is_some() && is_bare(&lower);
    let is_said = is_heading || is_bare || is_command && (rank.is_some() || pid.is_some());
    is_said.then_some(Announced { pid, rank, host, line })
}

/// Whether a line has the rank and the process in front, and at most one word more.
fn is_bare(lower: &str) -> bool {
    let mut words = lower.split_whitespace();
    let mut pair =
        |name: &str| words.next() == Some(name) && words.next().is_some_and(|w| w.parse::<u32>().is_ok());
    pair("rank") && pair("pid") && words.nth(1).is_none()
}

/// What follows the marks of a heading: a process, `== 968 (rank 0)`, or a machine, `--- node3 pid 8117 rank 2`.
fn first_word(body: &str, lower: &str) -> (Option<Pid>, Option<Host>) {
    let is_mark = |c: char| matches!(c, '=' | '-' | '*' | '#');
    let (Some(word), Some(next)) = (
        body.trim_start_matches(is_mark).split_whitespace().next(),
        lower.trim_start_matches(is_mark).split_whitespace().nth(1),
    ) else {
        return (None, None);
    };
    // `--- node3, rank 1 (pid 8117) ---`.
    let word = word.trim_end_matches(',');
    let is_known = ["rank", "pid", "(rank", "(pid"].iter().any(|name| next.starts_with(name));
    if !is_known || !body.starts_with(is_mark) {
        return (None, None);
    }
    if let Ok(number) = word.parse::<u32>() {
        return ((number >= LEAST_PID).then_some(Pid(number)), None);
    }
    // `rank 3`, `pid 12` and the like begin with no machine.
    let is_host = word.len() > 1
        && word.starts_with(|c: char| c.is_ascii_alphanumeric())
        && word.contains(|c: char| c.is_ascii_digit() || c == '.' || c == '-')
        && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b))
        && !["rank", "pid", "proc", "tp", "dp", "pp", "ep", "gpu", "worker"]
            .iter()
            .any(|name| word.to_ascii_lowercase().trim_end_matches(|c: char| c.is_ascii_digit()) == *name);
    (None, is_host.then(|| host_of(word)))
}

/// The number behind a name that is a word of its own: `rank 3`, `rank=3`, `rank3`, `--pid 44120`.
fn number_behind(lower: &str, name: &str) -> Option<u64> {
    lower.match_indices(name).find_map(|(at, _)| {
        let head = lower.get(..at)?;
        let is_word = !head.ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
        if !is_word || head.trim_end().ends_with("local") {
            return None;
        }
        let tail = lower.get(at + name.len()..)?.trim_start_matches([' ', '=', ':', '#']);
        let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
        // `rank 0 then 1, 2, 3` is of all that follow.
        let behind = tail.get(end..)?.trim_start();
        if ["then ", "and "].iter().any(|word| behind.starts_with(word)) {
            return None;
        }
        let is_end = !tail
            .get(end..)?
            .starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '/'));
        is_end.then(|| tail.get(..end)?.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::heading;

    #[test]
    fn whose_it_is() {
        let told = |text: &str| heading(text, 1).map(|a| (a.rank.map(|r| r.0), a.pid.map(|p| p.0)));
        assert_eq!(told("$ py-spy dump --pid 44120   # rank 0, 09:50"), Some((Some(0), Some(44120))));
        assert_eq!(told("$ py-spy dump -p 44121"), Some((None, Some(44121))));
        assert_eq!(told("node3$ sudo py-spy dump --pid=44121"), Some((None, Some(44121))));
        assert_eq!(told("=== node3 rank 2 pid 8117 ==="), Some((Some(2), Some(8117))));
        assert_eq!(told("--- Rank 3 (pid 8118) ---"), Some((Some(3), Some(8118))));
        assert_eq!(told("# rank1"), Some((Some(1), None)));
        assert_eq!(told("$ py-spy dump --pid 20420   # proc 3"), Some((Some(3), Some(20420))));
        assert_eq!(told("== 30210"), Some((None, Some(30210))));
        assert_eq!(told("--- 30210 ---"), Some((None, Some(30210))));
        assert_eq!(told("== 968 (rank 0)"), Some((Some(0), Some(968))));
        let host = |text: &str| heading(text, 1).and_then(|a| a.host).map(|host| host.to_string());
        assert_eq!(host("--- 10.60.8.11 pid 30110 rank 0").as_deref(), Some("10.60.8.11"));
        assert_eq!(host("=== node3 rank 2 pid 8117 ===").as_deref(), Some("node3"));
        assert_eq!(host("--- node3, rank 2 (pid 8117), state S ---").as_deref(), Some("node3"));
        assert_eq!(host("# TP3 rank 3"), None);
        assert_eq!(host("# rank 3 pid 12"), None);
        // Words of a log, other ranks, ranges.
        assert_eq!(told("rank 0  pid 8801  cn20"), Some((Some(0), Some(8801))));
        assert_eq!(told("rank 0 pid 8801: model on cuda:0"), None);
        assert_eq!(told("rank 3 is ready"), None);
        assert_eq!(told("=== local rank 3 ==="), None);
        assert_eq!(told("# ranks 1-7 the same"), None);
        assert_eq!(told("# rank 1-7 the same"), None);
        assert_eq!(told("# 40 minutes after the last log line, rank 0 then 1, 2, 3"), None);
        assert_eq!(told("------------"), None);
        assert_eq!(told("== 30210 steps"), None);
        assert_eq!(told("== 12 =="), None);
        assert_eq!(told("# 30210"), None);
    }
}
