//! Symptoms, statuses, and the field's messages: what people say and programs print.

use ringleader_knowledge::errno::Errno;
use ringleader_knowledge::message::{Match, MessageRow, Role};
use ringleader_knowledge::status::Status;
use ringleader_knowledge::symptom::Symptom;
use ringleader_knowledge::{cause, cuda_error};
use ringleader_model::{Cause, Impact};

use super::{action, advice_of_first, ask_all_ranks, one_line, see_causes, sentence};
use crate::explain::answer::{Kind, Topic};

/// Texts of a message that are shown.
const MAX_EXAMPLES: usize = 2;

pub(in crate::explain) fn symptom(symptom: &Symptom) -> Topic {
    let mut topic = Topic::new(Kind::Symptom, format!("symptom {}", symptom.id), symptom.title);
    topic.meaning = sentence(symptom.means);
    topic.is_not.push(sentence(symptom.is_not));
    for cause in symptom.causes {
        topic.why.push(format!("{cause}: {}", cause::meaning(*cause)));
        topic.see(cause.id());
    }
    topic.actions.push(action("run this next", symptom.next, Impact::Harmless));
    if !symptom.next.starts_with("ringleader diagnose") {
        ask_all_ranks(&mut topic);
    }
    topic.sources.push("the causes named here: each has its own sources".to_owned());
    topic
}

pub(in crate::explain) fn status(status: &Status) -> Topic {
    // An error of CUDA that has a row of its own is explained by that.
    let known = status.number.and_then(|n| u16::try_from(n).ok()).and_then(cuda_error::get);
    if let (Some(known), "cuda") = (known, status.family().id) {
        return super::cuda_error(known);
    }
    let family = status.family();
    let mut topic = Topic::new(Kind::Status, status.full_name(), family.title);
    topic.meaning = sentence(status.means);
    topic.is_not.extend((!status.is_not.is_empty()).then(|| sentence(status.is_not)));
    topic.detail("of", family.title);
    topic.detail("number", status.number.map(|n| n.to_string()).unwrap_or_default());
    topic.detail("also", status.names.get(1..).unwrap_or_default().join(", "));
    topic.actions.extend((!status.action.is_empty()).then(|| action(status.action, "", status.impact)));
    see_causes(&mut topic, status.causes);
    if topic.actions.is_empty() {
        advice_of_first(&mut topic, status.causes);
    }
    topic.sources.push(family.source.to_owned());
    topic
}

pub(in crate::explain) fn errno(errno: &Errno) -> Topic {
    let mut topic = Topic::new(Kind::Status, errno.name, "errno of Linux");
    topic.meaning = sentence(errno.text);
    topic.detail("number", errno.number.to_string());
    topic.is_not.push(
        "It is the kernel's answer to one call, not the reason: the call and its address are next to it."
            .to_owned(),
    );
    topic.sources.push("Linux, include/uapi/asm-generic/errno.h, errno-base.h".to_owned());
    topic
}

/// A row of the table by which `diagnose` classifies lines.
pub(in crate::explain) fn message(row: MessageRow) -> Topic {
    let title = match row.role() {
        Role::Harmless => "nothing is wrong",
        Role::Echo => "a consequence of something else",
        Role::Suggests | Role::States => {
            Cause::of_id(row.cause()).map_or("an error that fits several causes", cause::meaning)
        }
    };
    let mut topic = Topic::new(Kind::Message, format!("message {}", row.id()), title);
    topic.meaning = sentence(row.says());
    topic.is_not.extend((!row.is_not().is_empty()).then(|| sentence(row.is_not())));
    topic.is_not.extend(
        match row.role() {
            Role::Echo => {
                Some("It is a consequence, never the root: look for what came before it, on all ranks.")
            }
            Role::Suggests => Some("It proves nothing alone: other faults print it too."),
            Role::Harmless | Role::States => None,
        }
        .map(str::to_owned),
    );
    topic.detail("text", one_line(&row.pattern()));
    for example in row.examples().take(MAX_EXAMPLES) {
        topic.detail("example", one_line(&example.replace('\n', " ")));
    }
    topic.detail("printed by", row.by());
    topic.detail("since", row.since());
    topic.detail("until", row.until());
    let mut causes: Vec<Cause> = Cause::of_id(row.cause()).into_iter().collect();
    causes.extend(row.candidates().filter_map(Cause::of_id).filter(|c| c.id() != row.cause()));
    topic.actions.extend((!row.action().is_empty()).then(|| action(row.action(), "", row.impact())));
    see_causes(&mut topic, &causes);
    if topic.actions.is_empty() {
        advice_of_first(&mut topic, &causes);
    }
    if row.role() == Role::Echo {
        ask_all_ranks(&mut topic);
    }
    topic.sources.push(row.source().to_owned());
    topic
}

/// The row, with what the line says in its holes.
pub(in crate::explain) fn message_read(found: &Match<'_>, line: &str) -> Topic {
    let mut topic = message(found.row);
    topic.read("text", line.trim());
    for capture in found.captures.iter().filter(|c| !c.text.trim().is_empty()) {
        topic.read(capture.name, capture.text.trim());
    }
    topic
}
