//! Exit codes of this program, which stand beside what a number means elsewhere.

use crate::exit::Code;
use crate::explain::answer::{Kind, Topic};

/// From here on a shell reports signals.
const SIGNALS: u8 = 128;

/// The exit code that is asked for, and whether it is asked for as ringleader's.
fn asked(lower: &str) -> Option<(u8, bool)> {
    let words: Vec<&str> =
        lower.split(|c: char| c.is_whitespace() || ":=()".contains(c)).filter(|w| !w.is_empty()).collect();
    let is_own = |word: &&&str| ["ringleader", "ringleader's"].contains(word);
    let is_named = words.iter().any(|word| is_own(&word));
    let rest: Vec<&str> =
        words.iter().filter(|word| !is_own(word) && !["of", "the"].contains(word)).copied().collect();
    let number = match rest[..] {
        ["exit" | "return", "code" | "status", number] => number,
        ["exitcode" | "exitstatus" | "returncode" | "rc", number] => number,
        ["code" | "status", number] if is_named => number,
        _ => return None,
    };
    let number = number.parse().ok().filter(|code| *code < SIGNALS)?;
    Some((number, is_named))
}

/// What ringleader means by it, and whether nothing else is asked for.
pub(super) fn get(lower: &str) -> Option<(Topic, bool)> {
    let (number, is_own) = asked(lower)?;
    let code = Code::ALL.into_iter().find(|code| *code as u8 == number);
    let name = format!("ringleader exit code {number}");
    let mut topic = Topic::new(Kind::Term, name, code.map_or("none of ringleader's own codes", title));
    topic.meaning = match code {
        Some(code) => means(code).to_owned(),
        None => format!(
            "ringleader itself ends with 0 to {}. `ringleader run` and `ringleader watch -- CMD` pass on the code of the command: {number} \
             is then what the command ended with.",
            Code::ALL.len() - 1
        ),
    };
    topic.sources.push("ringleader help exit-codes".to_owned());
    Some((topic, is_own))
}

/// Whether the number is first of all ringleader's: a program that fails ends with 1 or 2 as often.
pub(super) fn is_telling(topic: &Topic) -> bool {
    let telling = [Code::NoUsableEvidence, Code::Findings, Code::Undecided, Code::Refused];
    telling.iter().any(|code| topic.name.ends_with(&format!(" {}", *code as u8)))
}

fn title(code: Code) -> &'static str {
    match code {
        Code::NothingFound => "nothing found",
        Code::OurBug => "a bug of ringleader",
        Code::Usage => "the command line cannot be obeyed",
        Code::NoUsableEvidence => "no usable evidence",
        Code::Findings => "something was found",
        Code::Undecided => "undecided",
        Code::Refused => "the system refused",
    }
}

fn means(code: Code) -> &'static str {
    match code {
        Code::NothingFound => {
            "Nothing was found at or above --fail-on, or help was printed, or the reader of the output closed it."
        }
        Code::OurBug => "ringleader failed by a fault of its own, and nothing else has this code.",
        Code::Usage => "An option or a path is wrong, or `explain` does not know the word.",
        Code::NoUsableEvidence => {
            "ringleader knows nothing in the given paths, or the process or job of --pid or --job does not run here."
        }
        Code::Findings => {
            "The verdict, a finding or a check is at or above --fail-on: the report says which. It is no failure of ringleader."
        }
        Code::Undecided => {
            "Something is wrong, or may be, and the evidence does not show what; the report names the commands that would decide."
        }
        Code::Refused => "A full disk, no permission, or root is needed.",
    }
}
