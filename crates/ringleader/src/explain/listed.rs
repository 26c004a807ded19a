//! Everything of one kind, by name.

use ringleader_knowledge::{
    cause, cuda_error, errno, event, message, nccl_result, nccl_warn, rate, status, sxid, symptom, variable,
    xid,
};
use ringleader_report::TextStyle;
use ringleader_report::page::Page;
use ringleader_report::quote::{columns, plain};
use ringleader_rules::rules;

use crate::explain::answer::Topic;
use crate::explain::{terms, topics};

/// Widest name that titles are aligned behind.
const MAX_NAME: usize = 34;

/// The topics of a kind.
type Topics = fn() -> Vec<Topic>;

/// Kinds that can be listed, beside the families of statuses.
const KINDS: &[(&str, Topics)] = &[
    ("causes", || cause::all().iter().map(topics::of_cause).collect()),
    ("rules", || rules::ALL.iter().map(|r| topics::of_rule(r)).collect()),
    ("lint", || ringleader_lint::rules::all().map(topics::of_lint).collect()),
    ("checks", || ringleader_check::checks::ALL.iter().map(|c| topics::of_check(c)).collect()),
    ("symptoms", || symptom::all().iter().map(topics::symptom).collect()),
    ("words", || terms::all().collect()),
    ("xids", || xid::all().iter().map(topics::xid).collect()),
    ("sxids", || sxid::all().iter().map(topics::sxid).collect()),
    ("nccl-results", || nccl_result::all().iter().map(topics::result).collect()),
    ("nccl-messages", || nccl_warn::all().iter().map(topics::warn).collect()),
    ("cuda-errors", || cuda_error::all().iter().map(topics::cuda_error).collect()),
    ("messages", || message::all().map(topics::message).collect()),
    ("events", || event::all().iter().map(topics::event).collect()),
    ("variables", || variable::all().iter().map(topics::variable).collect()),
    ("unread", || variable::unread().iter().map(topics::unread).collect()),
    ("traps", || variable::traps().iter().map(topics::trap).collect()),
    ("links", || rate::links().iter().map(topics::link).collect()),
    ("errno", || errno::all().iter().map(topics::errno).collect()),
];

/// What `--list` takes: kinds, then families of statuses, each once.
pub fn kinds() -> Vec<&'static str> {
    let mut kinds: Vec<&str> = KINDS.iter().map(|(name, _)| *name).collect();
    for family in status::families() {
        if !kinds.contains(&family.list) {
            kinds.push(family.list);
        }
    }
    kinds
}

/// All topics of a kind; nothing if there is no such kind. The plural and the singular are the same.
pub fn listed(kind: &str) -> Option<Vec<Topic>> {
    let kind = kind.to_lowercase();
    let known = kinds();
    let name = known.iter().find(|name| **name == kind || name.strip_suffix('s') == Some(&*kind))?;
    if let Some((_, topics)) = KINDS.iter().find(|(kind, _)| kind == name) {
        return Some(topics());
    }
    Some(status::all().iter().filter(|s| s.family().list == *name).map(topics::status).collect())
}

/// One row a topic: its name, and what it means in a few words.
pub fn page(topics: &[Topic], look: &TextStyle) -> String {
    let mut page = Page::new(*look);
    let widest = topics.iter().map(|t| columns(&plain(&t.name))).max().unwrap_or(0).min(MAX_NAME);
    for topic in topics {
        let name = plain(&topic.name);
        // Of a status the title is its family.
        let text = if topic.title.is_empty() || topic.kind == super::answer::Kind::Status {
            &topic.meaning
        } else {
            &topic.title
        };
        if columns(&name) > widest {
            page.item("", &name);
            page.item(&" ".repeat(widest + 2), &plain(text));
        } else {
            page.item(&format!("{name}{}  ", " ".repeat(widest - columns(&name))), &plain(text));
        }
    }
    page.out
}
