//! Explains a cause, a code, a variable, a message, or a pasted line: what it means, what it looks like and is not,
//! what to do, and where that is known from.
//!
//! All of it comes from the tables of `ringleader_knowledge`, the rules' own documentation, and the readers of
//! evidence. Nothing is judged here: a line is explained, not a job diagnosed.

pub mod answer;
mod catalog;
mod codes;
pub(crate) mod command;
mod kernel;
mod line;
mod listed;
mod nearest;
mod settings;
mod terms;
pub mod text;
mod topics;
mod words;

use ringleader_knowledge::{
    cause, cuda_error, errno, event, message, nccl_result, nccl_warn, rate, saying, status, sxid, symptom,
    variable, xid,
};
use ringleader_report::quote::{plain, shorten};
use ringleader_rules::rules;

use crate::explain::answer::{Explanation, Kind, Schema, Topic};
pub use crate::explain::catalog::{catalog, messages, names};
pub use crate::explain::listed::{kinds, listed, page};

/// Text that is looked at; a log to be judged is a matter of `diagnose`.
const MAX_BYTES: usize = 64 << 10;
/// Characters of the question that the answer repeats.
const MAX_QUERY: usize = 400;
/// Topics of one answer.
const MAX_TOPICS: usize = 12;
/// Longest question that asks for a thing by a few of its words.
const MAX_ASKED: usize = 80;
/// Most words of a question that may tell a symptom.
const MAX_PROSE: usize = 10;
/// Lines of a pasted text that are classified.
const MAX_LINES: usize = 200;
/// Words before the number of an Xid that say where it stood.
const PLACES: &[&str] =
    &["dmesg", "kernel", "log", "nvrm", "nvidia", "gpu", "nvswitch", "error", "in", "the", "syslog"];
/// Fewer letters than this are in every text.
const MIN_WORD: usize = 3;

/// Explains what `query` names or quotes.
pub fn explain(query: &str) -> Explanation {
    let text = bounded(query);
    let name = asked(text);
    let mut topics = by_name(&name);
    let symptom = by_symptom(&name, &topics);
    if let Some(mut symptom) = symptom {
        // One answer, with the command to run next; what has that name is worth a look.
        for other in topics.into_iter().filter(has_own_name) {
            symptom.see(other.name);
        }
        topics = vec![symptom];
    }
    if let Some((own, is_alone)) = codes::get(&name.to_lowercase()) {
        // Whoever asks has seen a number, and may have seen it from this program.
        topics.truncate(if is_alone { 0 } else { MAX_TOPICS - 1 });
        if topics.is_empty() && !is_alone {
            topics.extend(symptom::asked("exit code").map(topics::symptom));
        }
        // Few programs end with these by themselves.
        if codes::is_telling(&own) { topics.insert(0, own) } else { topics.push(own) }
    }
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
        topics = by_message(text);
    }
    if topics.is_empty() {
        topics = by_text(&name);
    }
    if topics.is_empty() {
        topics
            .extend((name.len() <= MAX_ASKED).then(|| symptom::asked(&name)).flatten().map(topics::symptom));
    }
    if topics.is_empty() {
        topics.extend(part_of_message(&name));
    }
    if topics.is_empty() {
        topics = words::find(&name);
    }
    topics.truncate(MAX_TOPICS);
    let nearest = if topics.is_empty() {
        let names = names();
        let names = || names.iter().map(String::as_str);
        let ways: [&dyn Fn() -> Vec<String>; 4] = [
            &|| nearest::misspelt_symptom(&name).into_iter().collect(),
            &|| nearest::nearest(&name, names()),
            &|| nearest::symptoms(&name),
            &|| nearest::with_word(&name, names()),
        ];
        ways.iter().map(|way| way()).find(|found| !found.is_empty()).unwrap_or_default()
    } else {
        Vec::new()
    };
    Explanation { schema: Schema::V1, query: shorten(&plain(&name), MAX_QUERY), topics, nearest }
}

/// Whether it can be asked for by its name. Some messages are called by their text alone.
fn has_own_name(topic: &Topic) -> bool {
    match topic.kind {
        Kind::NcclMessage => false,
        Kind::Message => ["message ", "event "].iter().any(|start| topic.name.starts_with(start)),
        _ => true,
    }
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

/// The symptom that a question in plain words describes. What has the very name that is asked for comes before it,
/// unless it is asked for in the symptom's own words.
fn by_symptom(name: &str, named: &[Topic]) -> Option<Topic> {
    if let Some(symptom) = symptom::exactly(name) {
        return Some(topics::symptom(symptom));
    }
    let lower = name.to_lowercase();
    let is_known =
        named.iter().any(|topic| topic.kind != Kind::Message || topic.name.eq_ignore_ascii_case(name))
            || event::all().iter().any(|event| event.asked.contains(&&*lower));
    // A line of a log is read as one.
    let is_prose =
        name.len() <= MAX_ASKED && name.chars().all(|c| c.is_alphanumeric() || " _-'?!,.%/".contains(c));
    if is_known || !is_prose || name.split(' ').count() > MAX_PROSE {
        return None;
    }
    // A text that programs print is that text.
    if message::best(name).is_some() {
        return None;
    }
    symptom::asked(name).map(topics::symptom)
}

/// What the table by which `diagnose` classifies lines knows of these.
fn by_message(text: &str) -> Vec<Topic> {
    let mut topics: Vec<Topic> = Vec::new();
    for line in text.lines().take(MAX_LINES) {
        if let Some(found) = message::best(line) {
            let topic = topics::message_read(&found, line);
            if !topics.iter().any(|t| t.name == topic.name) {
                topics.push(topic);
            }
        }
    }
    topics
}

/// Topics with exactly this name, in any case.
fn by_name(name: &str) -> Vec<Topic> {
    let lower = name.to_lowercase();
    let mut topics: Vec<Topic> = terms::letter(name).or_else(|| terms::get(&lower)).into_iter().collect();
    topics.extend(by_number(&lower));
    let id = lower.replace([' ', '_'], "-");
    topics.extend(cause::get(&id).map(topics::of_cause));
    topics.extend(
        rules::ALL.iter().filter(|r| r.id == id && cause::get(r.id).is_none()).map(|r| topics::of_rule(r)),
    );
    topics.extend(ringleader_lint::rules::all().filter(|r| r.id == id).map(topics::of_lint));
    topics
        .extend(ringleader_check::checks::ALL.iter().filter(|c| c.id == lower).map(|c| topics::of_check(c)));
    topics.extend(nccl_result::all().iter().filter(|r| is_result(r, &lower)).map(topics::result));
    topics.extend(
        cuda_error::all()
            .iter()
            .filter(|e| e.name.eq_ignore_ascii_case(name) || e.text.eq_ignore_ascii_case(name))
            .map(topics::cuda_error),
    );
    // A letter that stands alone is that of `ps`.
    if name.chars().count() > 1 || topics.is_empty() {
        topics.extend(by_status(name, &topics));
    }
    topics.extend(by_variable(name));
    topics.extend(xid::all().iter().filter(|x| has_name(x, name)).map(topics::xid));
    topics.extend(sxid::all().iter().filter(|s| s.symbol.eq_ignore_ascii_case(name)).map(topics::sxid));
    let rest = |prefix: &str| id.strip_prefix(prefix).map(str::to_owned).unwrap_or_default();
    topics.extend(variable::trap(&rest("trap-")).map(topics::trap));
    topics.extend(topics::of_event(&rest("event-")));
    topics.extend(symptom::get(&rest("symptom-")).map(topics::symptom));
    topics.extend(message::get(&rest("message-")).map(topics::message));
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
    // A word of a report is that word, whatever texts hold it.
    let is_term = topics.iter().any(|topic| topic.kind == Kind::Term);
    if name.len() <= MAX_ASKED && !is_term {
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

/// Statuses of this name that are not yet among the topics.
fn by_status(name: &str, known: &[Topic]) -> Vec<Topic> {
    let mut found: Vec<Topic> = Vec::new();
    let errno = errno::named(&name.to_uppercase()).map(topics::errno);
    for topic in status::named(name).map(topics::status).chain(errno) {
        if !known.iter().chain(&found).any(|t| t.name == topic.name) {
            found.push(topic);
        }
    }
    found
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
    // `dmesg NVRM Xid 13`: where it stood says no more.
    let words = match words[..] {
        [ref places @ .., kind @ ("xid" | "sxid")] if places.iter().all(|word| PLACES.contains(word)) => {
            vec![kind]
        }
        _ => words,
    };
    let is = |names: &[&str]| all || names.contains(&&*words.join(" "));
    let mut topics = Vec::new();
    let code = u16::try_from(number).ok();
    if is(&["xid", "nvrm xid", "nvidia xid", "gpu xid"]) {
        let known = code.and_then(xid::get).map(topics::xid);
        // Of a number that is called an Xid and is none that is said, before anything is offered in its place.
        topics.extend(known.or_else(|| (!all).then(|| topics::unknown_code("Xid", number))));
    }
    if is(&["sxid", "nvswitch sxid"]) {
        let known = sxid::get(number).map(topics::sxid);
        topics.extend(known.or_else(|| (!all).then(|| topics::unknown_code("SXid", number))));
    }
    if is(&["nccl", "nccl error", "ncclresult", "nccl result", "result", "ncclresult t"]) {
        topics.extend(u8::try_from(number).ok().and_then(nccl_result::get).map(topics::result));
    }
    let words = words.join(" ");
    // Verbs' completions are what `error 12` is asked for; a bare number is none of these.
    let of_families: Vec<Topic> = status::numbered(&words, number).map(topics::status).collect();
    // Of an error without a name all that it may be; verbs' completions, which it mostly is, come first.
    let is_any = words == "error";
    if is_any {
        topics.extend(of_families.iter().cloned());
        topics.extend(status::numbered("cuda error", number).map(topics::status));
        topics.extend(u8::try_from(number).ok().and_then(nccl_result::get).map(topics::result));
    }
    let errnos = is_any || ["errno", "os error"].contains(&&*words);
    if is_any || is(&["cuda", "cuda error", "cudaerror", "cuda failure", "cudaerror t"]) {
        topics.extend(code.and_then(cuda_error::get).map(topics::cuda_error));
    }
    topics.extend(
        of_families.into_iter().filter(|s| topics.iter().all(|t| t.name != s.name)).collect::<Vec<_>>(),
    );
    topics
        .extend(errnos.then(|| u8::try_from(number).ok().and_then(errno::get)).flatten().map(topics::errno));
    topics
}

fn digits_at_end(text: &str) -> usize {
    text.bytes().rev().take_while(u8::is_ascii_digit).count()
}

/// Texts of messages without the frame of a log line.
/// The message that a text is a part of: people paste what fits on a line.
fn part_of_message(text: &str) -> Option<Topic> {
    /// Fewer bytes are in many messages.
    const LEAST: usize = 24;
    let is_part = |example: &&str| example.contains(text);
    let example = message::all()
        .filter(|_| (LEAST..=MAX_QUERY).contains(&text.len()))
        .find_map(|row| row.examples().find(is_part))?;
    Some(topics::message_read(&message::best(example)?, example))
}

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
