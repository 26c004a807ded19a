//! Settings as people paste them: `NCCL_IB_DISABLE=true`, `export NCCL_ALGO=Ring`, a line of NCCL's log.

use ringleader_knowledge::variable::{self, misread};
use ringleader_knowledge::version::NcclVersion;
use ringleader_report::json::{Action, Impact};

use crate::explain::answer::Topic;
use crate::explain::topics;

/// Settings in one text.
const MAX_SETTINGS: usize = 40;
/// What precedes a setting on a command line or in a script.
const BEFORE: [&str; 8] = ["export", "declare", "-x", "-e", "--env", "env", "set", "ENV"];

/// Topics for all settings of a text that consists of settings (and a command after them); empty if it does not.
pub(super) fn read(text: &str) -> Vec<Topic> {
    if let Some((name, value)) = text.split_once(" set by environment to ") {
        let name = name.rsplit(' ').next().unwrap_or_default();
        return explained(name, value.trim_end().trim_end_matches('.'), None).into_iter().collect();
    }
    let mut topics = Vec::new();
    for word in words(text) {
        let Some((name, value)) = word.split_once('=') else {
            if topics.is_empty() && !BEFORE.contains(&word.as_str()) {
                return topics;
            }
            continue;
        };
        topics.extend(explained(name.trim_start_matches('$'), value, None));
        if topics.is_empty() || topics.len() == MAX_SETTINGS {
            return topics;
        }
    }
    topics
}

/// A variable with this value: what it does, and whether the value is read as it is meant.
pub(super) fn explained(name: &str, value: &str, version: Option<NcclVersion>) -> Option<Topic> {
    let known = variable::get(name);
    let mut topic = match (known, variable::get_unread(name)) {
        (Some(known), _) => topics::variable(known),
        (None, Some(unread)) => topics::unread(unread),
        (None, None) => return None,
    };
    topic.read("value", if value.is_empty() { "(empty)" } else { value });
    let Some(known) = known else { return Some(topic) };
    if known.name != name {
        topic.read("old name", format!("{name} is still read, with a warning, as {}", known.name));
    }
    match misread(known, value, version) {
        Some(misread) => {
            topic.read("problem", format!("{}: {}", misread.what, misread.trap.means));
            let fix =
                Action { text: misread.trap.instead.to_owned(), command: None, impact: Impact::Harmless };
            topic.actions.insert(0, fix);
            topic.see(format!("trap {}", misread.trap.id));
            topic.sources.push(misread.trap.source.to_owned());
        }
        None => topic.read("check", "nothing wrong with this value by itself"),
    }
    Some(topic)
}

/// Words as a shell splits them, quotes taken away.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word = String::new();
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            Some(_) => word.push(c),
            None if c == '"' || c == '\'' => quote = Some(c),
            None if c.is_whitespace() || c == ';' => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            None => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}
