//! From rows of the tables to topics: one function for each table, nothing concluded.

mod machine;
mod rules;
mod settings;
mod spoken;

use ringleader_knowledge::cause::Advice;
use ringleader_knowledge::cuda_error::CudaError;
use ringleader_knowledge::event::EventForm;
use ringleader_knowledge::message::Role;
use ringleader_knowledge::nccl_result::{self, NcclResult};
use ringleader_knowledge::nccl_warn::{self, WarnText};
use ringleader_knowledge::rate::{self, LinkRate};
use ringleader_knowledge::saying::{self, Saying};
use ringleader_knowledge::{cause, event};
use ringleader_model::{Cause, Impact};
use ringleader_report::json::Action;

use crate::explain::answer::{Kind, Topic};

pub(super) use machine::{instead, sxid, unknown_code, xid};
pub(super) use rules::{of_cause, of_check, of_lint, of_rule};
pub(super) use settings::{trap, unread, variable};
pub(super) use spoken::{errno, message, message_read, status, symptom};

/// Causes shown as worth asking for.
const MAX_CAUSES: usize = 6;

fn action(text: impl Into<String>, command: &str, impact: Impact) -> Action {
    let command = (!command.is_empty()).then(|| command.to_owned());
    Action { text: text.into(), command, impact: impact.into() }
}

fn advice(list: &[Advice]) -> impl Iterator<Item = Action> + '_ {
    list.iter().map(|a| action(a.text, a.command, a.impact))
}

fn see_causes(topic: &mut Topic, causes: &[Cause]) {
    for cause in causes.iter().take(MAX_CAUSES) {
        topic.see(cause.id());
    }
}

/// What to do about the likeliest of several causes.
fn advice_of_first(topic: &mut Topic, causes: &[Cause]) {
    if let Some(first) = causes.first() {
        topic.actions.extend(advice(cause::of(*first).advice));
    }
}

/// What follows from something else is found from the evidence of all ranks.
fn ask_all_ranks(topic: &mut Topic) {
    topic.actions.push(action(
        "collect what all ranks printed and recorded, and diagnose it together",
        "ringleader diagnose FOLDER",
        Impact::Harmless,
    ));
}

/// A sentence with a capital first letter, and a full stop if it lacks one. A name keeps its own letters: `cuBLAS`.
pub(super) fn sentence(text: &str) -> String {
    let word = text.split(' ').next().unwrap_or_default();
    let is_name = word.contains(|c: char| c.is_uppercase() || c == '_' || c == '/');
    let mut chars = text.chars();
    let first: String = match chars.next() {
        Some(c) if is_name => c.to_string(),
        Some(c) => c.to_uppercase().collect(),
        None => String::new(),
    };
    let stop = if text.is_empty() || text.ends_with(['.', '!', '?', ':']) { "" } else { "." };
    format!("{first}{}{stop}", chars.as_str())
}

pub(super) fn result(result: &NcclResult) -> Topic {
    let mut topic = Topic::new(Kind::NcclResult, result.name, result.text);
    topic.meaning = sentence(result.meaning);
    topic.is_not.push(sentence(result.is_not));
    topic.detail("number", result.code.to_string());
    topic.detail("since NCCL", result.since);
    topic.actions.extend(advice(result.advice));
    see_causes(&mut topic, result.causes);
    topic.sources.push(result.source.to_owned());
    topic
}

pub(super) fn cuda_error(error: &CudaError) -> Topic {
    let mut topic = Topic::new(Kind::CudaError, format!("CUDA error {}", error.code), error.text);
    topic.meaning = sentence(error.meaning);
    topic.is_not.push(sentence(error.is_not));
    topic.detail("name", error.name);
    if error.sticky {
        topic.detail(
            "sticky",
            "every later CUDA call of the process fails with it: only the first one is informative",
        );
    }
    see_causes(&mut topic, error.causes);
    advice_of_first(&mut topic, error.causes);
    topic.sources.push(error.source.to_owned());
    topic
}

/// What NCCL means by one of its texts.
pub(super) fn warn(row: &WarnText) -> Topic {
    let known = saying::of(row.format, row.file, true);
    let title = known.map_or_else(|| row.group().map_or("a warning of NCCL", |g| g.meaning), row_title);
    let mut topic = Topic::new(Kind::NcclMessage, warn_name(row), title);
    topic.meaning = sentence(row.meaning());
    topic.is_not.extend(known.and_then(role_in_words).map(str::to_owned));
    let since = if row.since_or_before { format!("{} or before", row.since) } else { row.since.to_string() };
    let until = row.until.map_or("today".to_owned(), |v| v.to_string());
    topic.detail("format", warn_name(row));
    topic.detail("printed by", format!("NCCL {since} to {until}, src/{}", row.file));
    let results: Vec<&str> =
        row.results.iter().filter_map(|r| nccl_result::get(*r)).map(|r| r.name).collect();
    topic.detail("result that follows", results.join(", "));
    if let Some(group) = row.group() {
        topic.actions.push(action(group.action, "", group.impact));
    }
    let causes = row.causes();
    see_causes(&mut topic, &causes);
    // What is known of this very text is worth its own advice; of a group the first cause is a guess.
    if known.is_some() {
        advice_of_first(&mut topic, &causes);
    }
    if known.is_some_and(|saying| saying.role == Role::Echo) {
        ask_all_ranks(&mut topic);
    }
    for result in results {
        topic.see(result);
    }
    topic.sources.push(format!("NVIDIA/nccl src/{}", row.file));
    topic.sources.extend(known.map(|s| s.cite.to_owned()));
    topic.sources.dedup();
    topic
}

/// The text of a row as one line: what it is found by.
pub(super) fn warn_name(row: &WarnText) -> String {
    one_line(row.format)
}

fn one_line(format: &str) -> String {
    format.split("\\n").flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

fn role_in_words(saying: &Saying) -> Option<&'static str> {
    match saying.role {
        Role::Harmless => Some("It is harmless: no sign of a fault."),
        Role::Echo => {
            Some("It is a consequence, never the root: look for what came before it, on all ranks.")
        }
        Role::Suggests => Some("It proves nothing alone: other faults print it too."),
        Role::States => None,
    }
}

/// A text that a row of sayings knows.
pub(super) fn saying(row: &Saying) -> Topic {
    let title = if row.title.is_empty() { row_title(row) } else { row.title };
    let mut topic = Topic::new(Kind::Message, text_of(row), title);
    topic.meaning = sentence(row.means);
    topic.is_not.extend(role_in_words(row).map(str::to_owned));
    // What shows itself in a running job comes before what only a start shows.
    for cause in row.also.iter().chain(&row.cause) {
        see_causes(&mut topic, &[*cause]);
        advice_of_first(&mut topic, &[*cause]);
    }
    if row.role == Role::Echo {
        ask_all_ranks(&mut topic);
    }
    topic.sources.push(row.cite.to_owned());
    topic
}

/// A text that would be recognised as this row.
pub(super) fn text_of(row: &Saying) -> String {
    let mut parts: Vec<&str> = row.any.first().into_iter().chain(row.all).copied().collect();
    if parts.is_empty() {
        parts.extend(row.file.first());
    }
    one_line(&parts.iter().map(|part| part.trim()).collect::<Vec<_>>().join(" … "))
}

fn row_title(row: &Saying) -> &'static str {
    match row.role {
        Role::Harmless => "nothing is wrong",
        Role::Echo => "a consequence of something else",
        Role::Suggests | Role::States => row.cause.map_or("", cause::meaning),
    }
}

pub(super) fn of_event(id: &str) -> Option<Topic> {
    event::get(id).map(self::event)
}

pub(super) fn event(event: &EventForm) -> Topic {
    let mut topic = Topic::new(Kind::Message, format!("event {}", event.id), event.title);
    topic.meaning = sentence(event.means);
    topic.is_not.push(sentence(event.is_not));
    see_causes(&mut topic, event.causes);
    topic.actions.extend(advice(event.advice));
    if !event.causes.is_empty() {
        ask_all_ranks(&mut topic);
    }
    topic.sources.push(event.source.to_owned());
    topic
}

/// Gigabytes per second without useless digits.
fn gb_s(rate: f64) -> String {
    format!("{rate} GB/s")
}

pub(super) fn link(link: &LinkRate) -> Topic {
    let mut topic = Topic::new(Kind::Link, link.name, format!("{} rate", link.family));
    topic.meaning = format!(
        "{} carries {} in each direction, {} both ways together.",
        link.name,
        gb_s(link.one_way_gb_s),
        gb_s(link.one_way_gb_s * 2.0)
    );
    topic.detail("of", link.of);
    topic.detail("one direction", gb_s(link.one_way_gb_s));
    topic.detail("bits", format!("{} Gb/s", link.one_way_gb_s * 8.0));
    topic.detail("reached at best", link.reached_gb_s.map(gb_s).unwrap_or_default());
    topic.detail("also written", link.aliases.join(", "));
    topic.is_not.push(
        "A rate is no promise: 95 to 98 % of a network link and 75 to 80 % of NVLink by a ring is healthy. \
         The generation of a PCIe link drops when a GPU is idle; only the width must not."
            .to_owned(),
    );
    topic.see("busbw");
    topic.sources.extend(link.cite.iter().map(|c| (*c).to_owned()));
    topic
}

/// All links of a family on one page.
pub(super) fn family(family: &str) -> Option<Topic> {
    let links: Vec<&LinkRate> =
        rate::links().iter().filter(|l| l.family.eq_ignore_ascii_case(family)).collect();
    let first = links.first()?;
    let mut topic = Topic::new(Kind::Link, first.family, "rates by generation");
    topic.meaning.push_str("GB/s in one direction, as rated; both directions together are double.");
    for link in &links {
        let of = if link.of.is_empty() { String::new() } else { format!(" ({})", link.of) };
        topic.detail(link.name, format!("{}{of}", gb_s(link.one_way_gb_s)));
        for cite in link.cite {
            if !topic.sources.iter().any(|s| s == cite) {
                topic.sources.push((*cite).to_owned());
            }
        }
    }
    topic.see("busbw");
    Some(topic)
}

/// The names of link families.
pub(super) fn families() -> Vec<&'static str> {
    let mut names: Vec<&str> = rate::links().iter().map(|l| l.family).collect();
    names.dedup();
    names
}

/// Bus bandwidth: what nodes reach, and how it is counted.
pub(super) fn bandwidth() -> Topic {
    let mut topic = Topic::new(Kind::Bandwidth, "busbw", "bus bandwidth that nodes reach");
    topic.meaning.push_str(
        "What nccl-tests calls busbw: algorithm bandwidth times a factor that makes operations and numbers of ranks \
         comparable with the link. Measured at 4 GiB and more.",
    );
    for b in rate::bandwidths() {
        let range = if (b.high_gb_s - b.low_gb_s).abs() < 0.5 {
            gb_s(b.high_gb_s)
        } else {
            format!("{} to {}", b.low_gb_s, gb_s(b.high_gb_s))
        };
        let at = if b.at.is_empty() { String::new() } else { format!(" at {}", b.at) };
        topic.detail(b.node, format!("{} {}: {range}{at}", b.operation, b.way));
    }
    for f in rate::factors() {
        topic.detail(&format!("factor of {}", f.operation), format!("{}, size = {}", f.formula, f.counted));
    }
    let cites =
        rate::bandwidths().iter().flat_map(|b| b.cite).chain(rate::factors().iter().flat_map(|f| f.cite));
    for cite in cites {
        if !topic.sources.iter().any(|s| s == cite) {
            topic.sources.push((*cite).to_owned());
        }
    }
    topic.is_not.extend(
        [
            "Messages below 1 GiB do not reach it: that is no fault.",
            "With NVLink SHARP (NVLS) it may exceed the wire, since the switch adds up. NVLS starts above 4 GPUs on \
             H200 and above 5 on B200; below it expect the ring's value.",
            "Over several nodes it is no wire speed: each NIC carries busbw x (nodes-1)/(ranks-1) per GPU.",
        ]
        .map(str::to_owned),
    );
    topic.actions.push(action(
        "measure it alone, on an idle node; a GPU 10 % below its siblings is a clearer sign than any absolute value",
        "all_reduce_perf -b 8 -e 16G -f 2 -g 8",
        Impact::Disruptive,
    ));
    for name in ["bandwidth-below-expected", "slow-link", "wrong-transport"] {
        topic.see(name);
    }
    topic
}

/// The WARN text that a message was printed from, if enough of it is literal to be sure.
pub(super) fn warn_of(message: &str) -> Option<&'static WarnText> {
    /// Below this many literal characters a format fits anything.
    const MIN_LITERAL: usize = 12;
    nccl_warn::find(message)
        .filter(|row| row.pieces.iter().map(|p| p.trim().len()).sum::<usize>() >= MIN_LITERAL)
}
