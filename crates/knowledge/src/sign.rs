//! Signs: facts in a line of any output, and what follows from several of them together.
//!
//! A message states what failed. A sign states nothing: `ACSCtl: SrcValid+ … ReqRedir+` is ordinary, and so is a job that
//! hangs in its first collective; both together are a cause. The table is `data/signs.toml`.

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use ringleader_model::{Cause, Confidence};

use crate::blind::blind;
use crate::cause::Advice;
pub use crate::tables::signs as ids;
use crate::tables::{CONCLUSIONS, SIGNS};
use crate::withheld;

/// One sign.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SignRow {
    /// Kebab-case.
    pub id: &'static str,
    /// What it says, in a few words.
    pub says: &'static str,
    /// Stretches of text in their order, with `*` between them; any of these.
    pub(crate) patterns: &'static [&'static str],
    /// None of these may be in the line.
    pub(crate) without: &'static [&'static str],
    /// The line says that it works so, or that it fails so; may be empty.
    pub(crate) outcome: &'static str,
    /// The command whose output the line must be in; may be empty.
    pub under: &'static str,
    /// Sample lines; the command precedes a line feed.
    pub examples: &'static [&'static str],
}

/// What several signs mean together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Conclusion {
    /// Kebab-case.
    pub id: &'static str,
    /// The cause.
    pub cause: Cause,
    /// Low or medium.
    pub confidence: Confidence,
    /// Of each list one must be there: ids of signs, or `row:` and the id of a message.
    pub all: &'static [&'static [&'static str]],
    /// None of these may be there.
    pub none: &'static [&'static str],
    /// Causes whose findings are an echo of this one.
    pub over: &'static [Cause],
    /// It stands whatever other words resemble: each of its signs is rare, or measured.
    pub outright: bool,
    /// Title of its finding.
    pub title: &'static str,
    /// Why it follows.
    pub why: &'static str,
    /// The sign whose speaker is the culprit; may be empty.
    pub culprit: &'static str,
    /// Recommended actions.
    pub advice: &'static [Advice],
}

/// All signs.
pub fn all() -> &'static [SignRow] {
    SIGNS
}

/// All conclusions.
pub fn conclusions() -> impl Iterator<Item = &'static Conclusion> {
    CONCLUSIONS.iter().filter(|row| !withheld::is_withheld(row.id))
}

/// The sign with this id.
pub fn get(id: &str) -> Option<&'static SignRow> {
    SIGNS.iter().find(|row| row.id == id)
}

/// First stretches of all patterns, with their signs.
static FIRST: LazyLock<(Vec<u16>, Option<AhoCorasick>)> = LazyLock::new(|| {
    let mut rows = Vec::new();
    let mut words = Vec::new();
    for (number, row) in SIGNS.iter().enumerate() {
        for pattern in row.patterns {
            rows.push(number as u16);
            words.push(first_of(pattern));
        }
    }
    (rows, search(words.iter().map(|word| word.as_bytes().to_vec())))
});

/// The same without the values of their digits.
static BLIND: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let patterns = SIGNS.iter().filter(|row| !row.is_of_notes()).flat_map(|row| row.patterns);
    search(patterns.map(|pattern| first_of(pattern).bytes().map(blind).collect()))
});

fn search(words: impl Iterator<Item = Vec<u8>>) -> Option<AhoCorasick> {
    let mut search = AhoCorasick::builder();
    search.ascii_case_insensitive(true).kind(Some(AhoCorasickKind::DFA)).build(words).ok()
}

fn first_of(pattern: &'static str) -> &'static str {
    pattern.split('*').next().unwrap_or_default().trim_end_matches('$')
}

/// Whether a line whose digits are all 0 may give a sign.
pub fn wanted_blind(shape: &[u8]) -> bool {
    BLIND.as_ref().is_none_or(|search| search.is_match(shape))
}

/// The signs that a line gives; `under` is the last command before it, or None far behind the beginning of a source, where
/// nobody pastes the output of commands or notes what was tried.
pub fn of(line: &str, under: Option<&str>, out: &mut Vec<&'static SignRow>) {
    let (rows, search) = &*FIRST;
    let Some(search) = search else { return };
    let mut last = None;
    for found in search.find_overlapping_iter(line) {
        let Some(row) = rows.get(found.pattern().as_usize()).and_then(|n| SIGNS.get(usize::from(*n))) else {
            continue;
        };
        if last != Some(row.id)
            && row.stands(line, under)
            && !out.contains(&row)
            && !withheld::is_withheld(row.id)
        {
            out.push(row);
        }
        last = Some(row.id);
    }
}

impl SignRow {
    /// It is of pasted output or of notes, which are at the beginning of a source.
    fn is_of_notes(&self) -> bool {
        !self.under.is_empty() || !self.outcome.is_empty()
    }

    fn stands(&self, line: &str, under: Option<&str>) -> bool {
        let Some(under) = under.or(if self.is_of_notes() { None } else { Some("") }) else { return false };
        let lower = line.to_ascii_lowercase();
        let has = |word: &&str| lower.contains(&word.to_ascii_lowercase());
        if !self.under.is_empty() && !self.under.split('|').any(|command| under.contains(command)) {
            return false;
        }
        let words = match self.outcome {
            "works" => WORKS,
            "fails" => FAILS,
            _ => &[""],
        };
        if !words.iter().any(|w| lower.contains(w))
            || self.outcome == "works" && NOT_SO.iter().any(|w| lower.contains(w))
        {
            return false;
        }
        !self.without.iter().any(has) && self.patterns.iter().any(|pattern| fits(&lower, pattern))
    }
}

/// Words for what works.
const WORKS: &[&str] = &[
    " ok",
    "works",
    "worked",
    "trains",
    "passes",
    "fine",
    "starts",
    " runs",
    "ran ",
    "completes",
    "succeeds",
    "no hang",
    "is through",
    "no error",
    "steady",
];
/// Words that negate them.
const NOT_SO: &[&str] = &["not work", "n't work", "not ok", "never works", "not fine", "no longer works"];
/// Words for what fails.
const FAILS: &[&str] =
    &["hang", "fail", "never", "wrong", "stuck", "crash", "error", "garbage", "time out", "times out"];

/// Whether the stretches of a pattern are in a lower-case line, one behind the other. `^` at its beginning and `$` at
/// its end bind it to those of the line.
fn fits(lower: &str, pattern: &str) -> bool {
    let mut rest = lower.trim();
    let bound = pattern.ends_with('$');
    let pattern = pattern.strip_suffix('$').unwrap_or(pattern).to_ascii_lowercase();
    for (n, part) in pattern.split('*').enumerate() {
        let Some(at) = rest.find(part) else { return false };
        if n == 0 && is_inside_a_word(rest, at, part) {
            return false;
        }
        rest = rest.get(at + part.len()..).unwrap_or_default();
    }
    !bound || rest.is_empty()
}

/// A stretch that begins with a letter does not begin within a word.
fn is_inside_a_word(text: &str, at: usize, part: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric();
    part.starts_with(is_word) && text.get(..at).is_some_and(|head| head.ends_with(is_word))
}

/// The command of a line that begins like a shell's prompt; None for others.
///
/// ```text
/// $ ulimit -l          root@node3:/work# df -h          node3$ ip addr          host# lspci -vvv
/// ```
pub fn command(line: &str) -> Option<&str> {
    let line = line.trim_end();
    if let Some(command) = line.strip_prefix("$ ").or_else(|| line.strip_prefix("+ ")) {
        return Some(command);
    }
    let at = line.find(['$', '#'])?;
    let head = line.get(..at)?;
    let is_prompt = !head.is_empty()
        && head.len() <= MAX_PROMPT
        && head.chars().all(|c| c.is_ascii_alphanumeric() || "@:/~.-_() ".contains(c))
        && head.starts_with(|c: char| c.is_ascii_alphanumeric() || c == '(')
        && (head.contains('@') || !head.ends_with(['/', '=']))
        && head.split_whitespace().count() <= 2;
    line.get(at + 1..)?.strip_prefix(' ').filter(|command| is_prompt && !command.is_empty())
}

/// Whether a line is a command after a prompt, with any words: `$ dmesg | grep -ci oom`, `node3$ env`,
/// `root@node3:/work# df`. Stricter than [`command`]: a prompt is one word.
pub fn is_command(line: &str) -> bool {
    if line.starts_with("$ ") {
        return true;
    }
    let Some((head, command)) = line.split_once("$ ").or_else(|| line.split_once("# ")) else { return false };
    let is_root = line.as_bytes().get(head.len()) == Some(&b'#');
    !head.is_empty()
        && head.len() <= MAX_PROMPT
        && head.bytes().all(|b| b.is_ascii_alphanumeric() || b"@:/~.-_".contains(&b))
        && head.starts_with(|c: char| c.is_ascii_alphanumeric())
        && !head.ends_with(['/', '=', ':'])
        && (!is_root || head.contains('@'))
        && !command.is_empty()
}

/// Longest prompt, bytes.
const MAX_PROMPT: usize = 64;

#[cfg(test)]
mod tests {
    use super::{all, command, conclusions, is_command, of};

    #[test]
    fn prompts() {
        for line in
            ["$ dmesg | grep -ci oom", "node3$ env", "root@node3:/work# df -h", "u@h:~/x$ python t.py"]
        {
            assert!(is_command(line), "{line}");
        }
        for line in
            ["Error: it costs $ 5", "step 5 # failed", "rank3: error $ x", "# error", "epoch# 5 failed"]
        {
            assert!(!is_command(line), "{line}");
        }
    }

    #[test]
    fn every_example_gives_its_sign() {
        for row in all() {
            for example in row.examples {
                let (under, line) = example.split_once('\n').unwrap_or(("", example));
                let mut found = Vec::new();
                of(line, Some(command(under).unwrap_or(under)), &mut found);
                assert!(found.contains(&row), "{}: {example}", row.id);
                let shape: Vec<u8> = line.bytes().map(crate::blind::blind).collect();
                assert!(row.is_of_notes() || super::wanted_blind(&shape), "{}: {example}", row.id);
            }
        }
    }

    #[test]
    fn every_conclusion_can_be_told_from_the_others() {
        for (n, row) in conclusions().enumerate() {
            let twin = conclusions().take(n).find(|other| other.all == row.all && other.none == row.none);
            assert!(twin.is_none(), "{} and {:?}", row.id, twin.map(|t| t.id));
        }
    }

    #[test]
    fn prompts_of_shells() {
        assert_eq!(command("$ ulimit -l"), Some("ulimit -l"));
        assert_eq!(command("root@8f1c2a9be077:/# ls /dev/infiniband"), Some("ls /dev/infiniband"));
        assert_eq!(command("ib-a$ ibv_devinfo -d mlx5_0"), Some("ibv_devinfo -d mlx5_0"));
        assert_eq!(command("hal02# lspci -vvv"), Some("lspci -vvv"));
        assert_eq!(command("(opensora) root@7104522:/work# torchrun x"), Some("torchrun x"));
        assert_eq!(command("step 12 of 40 # loss 2.0"), None);
        assert_eq!(command("# a comment"), None);
        assert_eq!(command("loss 2.31"), None);
    }
}
