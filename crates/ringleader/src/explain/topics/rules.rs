//! Causes, and the rules that find them: what their documentation says, heading by heading.

use ringleader_knowledge::cause;
use ringleader_rules::{Rule, rules};

use crate::explain::answer::{Kind, Topic};
use crate::explain::topics::{advice, sentence};

/// The text below one heading of a rule's documentation, as paragraphs.
fn section(explanation: &str, heading: &str) -> Vec<String> {
    let mut paragraphs: Vec<String> = Vec::new();
    let mut inside = false;
    let mut open = false;
    for line in explanation.lines() {
        if let Some(title) = line.strip_prefix("# ") {
            inside = title == heading;
            open = false;
        } else if inside && line.trim().is_empty() {
            open = false;
        } else if inside {
            let line = line.trim();
            match paragraphs.last_mut() {
                // A list keeps its items apart.
                Some(last) if open && !line.starts_with("* ") && !line.starts_with("- ") => {
                    last.push(' ');
                    last.push_str(line);
                }
                _ => paragraphs.push(line.to_owned()),
            }
            open = true;
        }
    }
    paragraphs
}

fn document(topic: &mut Topic, rule: &Rule) {
    document_text(topic, &rule.explanation());
    topic.detail("rule since", rule.since);
}

fn document_text(topic: &mut Topic, text: &str) {
    topic.shows.extend(section(text, "What it shows"));
    topic.shows.extend(section(text, "Evidence"));
    topic.why.extend(section(text, "Why it happens"));
    topic.is_not.extend(section(text, "What looks like it but is not"));
    topic.advice.extend(section(text, "What to do"));
    topic.sources.extend(section(text, "References"));
}

pub(in crate::explain) fn of_cause(cause: &cause::CauseRow) -> Topic {
    let category =
        if cause.category.name() == "none" { String::new() } else { cause.category.name().to_owned() };
    let mut topic = Topic::new(Kind::Cause, cause.cause.id(), cause.section);
    topic.meaning = sentence(cause.meaning);
    topic.detail("what is seen", category);
    if let Some(rule) = rules::ALL.iter().find(|rule| rule.id == cause.cause.id()) {
        document(&mut topic, rule);
    } else {
        topic.shows.extend((!cause.shows.is_empty()).then(|| sentence(cause.shows)));
        topic.is_not.extend((!cause.is_not.is_empty()).then(|| sentence(cause.is_not)));
        topic.sources.extend((!cause.source.is_empty()).then(|| cause.source.to_owned()));
    }
    topic.actions.extend(advice(cause.advice));
    topic
}

/// A rule whose name is no cause.
pub(in crate::explain) fn of_rule(rule: &Rule) -> Topic {
    let mut topic = Topic::new(Kind::Rule, rule.id, rule.title);
    document(&mut topic, rule);
    topic.meaning = topic.shows.first().cloned().unwrap_or_default();
    topic.shows.drain(..usize::from(!topic.shows.is_empty()));
    topic
}

/// A check of a node.
pub(in crate::explain) fn of_check(check: &ringleader_check::Check) -> Topic {
    let mut topic = Topic::new(Kind::Check, check.id, check.title);
    let text = check.explanation();
    topic.meaning = section(&text, "What it checks").join(" ");
    topic.shows.extend(section(&text, "What fails"));
    topic.is_not.extend(section(&text, "What looks like it but is not"));
    topic.advice.extend(section(&text, "What to do"));
    topic.sources.extend(section(&text, "References"));
    topic.detail("area", check.area.name());
    topic.detail("since", check.since);
    let drains = if check.drains {
        "its failure justifies draining the node"
    } else {
        "a failure does not drain the node"
    };
    topic.detail("drains", drains);
    topic.detail("quick", if check.is_quick { "yes: part of check --quick" } else { "no" });
    topic
}

/// A rule of `lint`.
pub(in crate::explain) fn of_lint(rule: &ringleader_lint::LintRule) -> Topic {
    let mut topic = Topic::new(Kind::Rule, rule.id, rule.title);
    document_text(&mut topic, &rule.explanation());
    topic.meaning = topic.shows.first().cloned().unwrap_or_default();
    topic.shows.drain(..usize::from(!topic.shows.is_empty()));
    topic.detail("severity", rule.severity.name());
    topic.detail("confidence", rule.confidence.name());
    topic.see(rule.predicts.id().to_owned());
    topic
}
