//! Explains a cause, a code, a variable, a message, or a pasted line: what it means, what it looks like and is not,
//! what to do, and where that is known from.
//!
//! All of it comes from the tables of `ringleader_knowledge`, the rules' own documentation, and the readers of
//! evidence. Nothing is judged here: a line is explained, not a job diagnosed.

pub mod answer;
mod catalog;
pub(crate) mod command;
mod kernel;
mod line;
mod nearest;
mod settings;
pub mod text;
mod topics;

use ringleader_knowledge::{
    cause, cuda_error, event, nccl_result, nccl_warn, rate, saying, sxid, variable, xid,
};
use ringleader_report::quote::{plain, shorten};
use ringleader_rules::rules;

use crate::explain::answer::{Explanation, Kind, Schema, Topic};
pub use crate::explain::catalog::{catalog, messages, names};

/// Text that is looked at; a log to be judged is a matter of `diagnose`.
const MAX_BYTES: usize = 64 << 10;
/// Characters of the question that the answer repeats.
const MAX_QUERY: usize = 400;
/// Topics of one answer.
const MAX_TOPICS: usize = 12;
/// Longest question that asks for a thing by a few of its words.
const MAX_ASKED: usize = 80;
/// Fewer letters than this are in every text.
const MIN_WORD: usize = 3;

/// Explains what `query` names or quotes.
pub fn explain(query: &str) -> Explanation {
    let text = bounded(query);
    let name = asked(text);
    let mut topics = by_name(&name);
    if topics.is_empty() {
        topics = settings::read(text);
    }
    if topics.is_empty() {
        topics = line::read(text);
        if text.trim().lines().count() == 1 {
            merge(&mut topics);
        }
    }
    if topics.is_empty() {
        topics = by_text(&name);
    }
    if topics.is_empty() {
        topics = by_words(&name);
    }
    topics.truncate(MAX_TOPICS);
    let nearest = if topics.is_empty() {
        let names = names();
        nearest::nearest(&name, names.iter().map(String::as_str))
    } else {
        Vec::new()
    };
    Explanation { schema: Schema::V1, query: shorten(&plain(&name), MAX_QUERY), topics, nearest }
}

/// The first part of a long text.
fn bounded(text: &str) -> &str {
    let mut end = text.len().min(MAX_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.get(..end).unwrap_or_default()
}

/// The question without the quotes and spaces around it, blanks within it as one.
fn asked(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    let inside = |quote: char| text.strip_prefix(quote).and_then(|rest| rest.strip_suffix(quote));
    let bare = ['\'', '"', '`'].into_iter().find_map(inside).unwrap_or(&text);
    bare.trim().trim_start_matches('$').to_owned()
}

/// One line has one subject: what else was seen in it is worth a look.
fn merge(topics: &mut Vec<Topic>) {
    let others = topics.split_off(topics.len().min(1));
    if let Some(first) = topics.first_mut() {
        for other in others {
            first.see(other.name);
        }
    }
}

/// Topics with exactly this name, whatever the case.
fn by_name(name: &str) -> Vec<Topic> {
    let lower = name.to_lowercase();
    let mut topics = by_number(&lower);
    let id = lower.replace([' ', '_'], "-");
    topics.extend(cause::get(&id).map(topics::of_cause));
    topics.extend(
        rules::ALL.iter().filter(|r| r.id == id && cause::get(r.id).is_none()).map(|r| topics::of_rule(r)),
    );
    topics.extend(ringleader_lint::rules::all().filter(|r| r.id == id).map(topics::of_lint));
    topics.extend(nccl_result::all().iter().filter(|r| is_result(r, &lower)).map(topics::result));
    topics.extend(
        cuda_error::all()
            .iter()
            .filter(|e| e.name.eq_ignore_ascii_case(name) || e.text.eq_ignore_ascii_case(name))
            .map(topics::cuda_error),
    );
    topics.extend(by_variable(name));
    topics.extend(xid::all().iter().filter(|x| has_name(x, name)).map(topics::xid));
    topics.extend(sxid::all().iter().filter(|s| s.symbol.eq_ignore_ascii_case(name)).map(topics::sxid));
    let rest = |prefix: &str| id.strip_prefix(prefix).map(str::to_owned).unwrap_or_default();
    topics.extend(variable::trap(&rest("trap-")).map(topics::trap));
    topics.extend(topics::of_event(&rest("event-")));
    topics.extend(rate::link(name).map(topics::link));
    topics.extend(topics::family(name));
    let measured = |b: &rate::Bandwidth| b.node.eq_ignore_ascii_case(name);
    if ["busbw", "bus bandwidth", "bandwidth", "nccl-tests"].contains(&&*lower)
        || rate::bandwidths().iter().any(measured)
    {
        topics.push(topics::bandwidth());
    }
    // A line of a log that holds such words is read as a line.
    let n_before = topics.len();
    if name.len() <= MAX_ASKED {
        topics.extend(event::asked(name).map(topics::event));
        // A shell's 128 + signal is also the number of some Xid.
        let number = name.parse::<u32>().ok().filter(|n| (129..160).contains(n));
        topics.extend(number.and_then(|n| event::asked(&format!("exit code {n}")).next()).map(topics::event));
    }
    let is_asked = topics.len() > n_before;
    topics.extend(nccl_warn::all().iter().find(|w| topics::warn_name(w) == name).map(topics::warn));
    if !is_asked {
        topics.extend(saying::all().iter().find(|s| topics::text_of(s) == name).map(topics::saying));
    }
    topics
}

fn is_result(result: &nccl_result::NcclResult, lower: &str) -> bool {
    // `unhandled system error (run with NCCL_DEBUG=INFO for details)`, `internal error - please report …`
    let words = lower.split(" (").next().and_then(|w| w.split(" - ").next()).unwrap_or_default();
    result.name.to_lowercase() == lower || result.text.to_lowercase() == words
}

fn has_name(x: &xid::Xid, name: &str) -> bool {
    let own = |mnemonic: &str| {
        mnemonic.eq_ignore_ascii_case(name)
            || mnemonic.strip_prefix("ROBUST_CHANNEL_").is_some_and(|short| short.eq_ignore_ascii_case(name))
    };
    own(x.mnemonic) || x.header_names.iter().any(|n| own(n)) || x.name.eq_ignore_ascii_case(name)
}

fn by_variable(name: &str) -> Vec<Topic> {
    let upper = name.to_uppercase();
    let mut topics: Vec<Topic> = Vec::new();
    if let Some(known) = variable::get(&upper) {
        let mut topic = topics::variable(known);
        if known.name != upper {
            topic.read("old name", format!("{upper} is still read, with a warning, as {}", known.name));
        }
        topics.push(topic);
    }
    topics.extend(variable::get_unread(&upper).map(topics::unread));
    topics
}

/// `79`, `xid 79`, `Xid: 79`, `sxid 11001`, `nccl 2`, `cuda error 700`.
fn by_number(lower: &str) -> Vec<Topic> {
    let word = |c: char| c.is_ascii_alphabetic();
    let Some((before, digits)) = lower.split_at_checked(lower.len() - digits_at_end(lower)) else {
        return Vec::new();
    };
    let Ok(number) = digits.parse::<u32>() else { return Vec::new() };
    let words: Vec<&str> = before.split(|c: char| !word(c)).filter(|w| !w.is_empty()).collect();
    if before.contains(|c: char| !word(c) && !matches!(c, ' ' | ':' | '=' | '#' | '-' | '.' | '(')) {
        return Vec::new();
    }
    let all = words.is_empty() && before.trim().is_empty();
    let is = |names: &[&str]| all || names.contains(&&*words.join(" "));
    let mut topics = Vec::new();
    let code = u16::try_from(number).ok();
    if is(&["xid", "nvrm xid", "nvidia xid", "gpu xid"]) {
        topics.extend(code.and_then(xid::get).map(topics::xid));
    }
    if is(&["sxid", "nvswitch sxid"]) {
        topics.extend(sxid::get(number).map(topics::sxid));
    }
    if is(&["nccl", "nccl error", "ncclresult", "nccl result", "result", "ncclresult t"]) {
        topics.extend(u8::try_from(number).ok().and_then(nccl_result::get).map(topics::result));
    }
    if is(&["cuda", "cuda error", "cudaerror", "cuda failure", "cudaerror t"]) {
        topics.extend(code.and_then(cuda_error::get).map(topics::cuda_error));
    }
    topics
}

fn digits_at_end(text: &str) -> usize {
    text.bytes().rev().take_while(u8::is_ascii_digit).count()
}

/// Texts of messages without the frame of a log line.
fn by_text(text: &str) -> Vec<Topic> {
    let mut topics: Vec<Topic> = Vec::new();
    match (saying::of(text, "", false), topics::warn_of(text)) {
        (_, Some(_)) => topics.push(line::said_by_nccl(text, "")),
        (Some(known), None) => topics.push(topics::saying(known)),
        (None, None) => topics.extend(saying::of(text, "", true).map(topics::saying)),
    }
    let lower = text.to_lowercase();
    // A few words of what the driver prints with an Xid.
    if lower.contains(' ') && lower.len() >= 10 {
        let prints = |x: &&xid::Xid| x.message.to_lowercase().contains(&lower);
        topics.extend(xid::all().iter().filter(prints).map(topics::xid));
    }
    topics.extend(nccl_result::in_text(text).map(topics::result));
    topics.extend(cuda_error::in_text(text).map(topics::cuda_error));
    topics
}

/// Topics that hold all words of the question, those with a word in their name first.
fn by_words(query: &str) -> Vec<Topic> {
    let lower = query.to_lowercase();
    let words: Vec<&str> = lower.split(' ').filter(|w| w.len() >= MIN_WORD).collect();
    if words.is_empty() || words.len() > 8 {
        return Vec::new();
    }
    let mut found: Vec<(usize, Topic)> = catalog::topics()
        .filter_map(|topic| {
            let name = topic.name.to_lowercase();
            let title = topic.title.to_lowercase();
            let meaning = topic.meaning.to_lowercase();
            let holds =
                |word: &&&str| name.contains(**word) || title.contains(**word) || meaning.contains(**word);
            if words.iter().filter(holds).count() < words.len() {
                return None;
            }
            let missing = words.iter().filter(|w| !name.contains(**w)).count();
            let shown = words.iter().filter(|w| !title.contains(**w)).count();
            Some((missing.min(shown), topic))
        })
        .collect();
    found.sort_by_key(|(missing, topic)| (*missing, topic.kind == Kind::Sxid));
    found.into_iter().map(|(_, topic)| topic).collect()
}
