//! An explanation for a terminal, in the manner of the report.

use ringleader_report::page::{Page, Style};
use ringleader_report::quote::{columns, plain, wrap, wrap_words};
use ringleader_report::{Detail as Amount, TextStyle};

use crate::explain::answer::{Detail, Explanation, Kind, Topic};

/// Widest name of a detail that its values are aligned behind.
const MAX_LABEL: usize = 22;

/// The whole answer as text, a newline at its end. Several topics are shown briefly unless everything is asked for.
pub fn render(explanation: &Explanation, look: &TextStyle) -> String {
    let mut page = Page::new(*look);
    if let [topic] = &explanation.topics[..] {
        whole(&mut page, topic);
    } else if look.detail == Amount::Everything {
        for (n, topic) in explanation.topics.iter().enumerate() {
            if n > 0 {
                page.out.push('\n');
            }
            whole(&mut page, topic);
        }
    } else {
        briefly(&mut page, explanation);
    }
    page.out
}

fn style(kind: Kind) -> Style {
    match kind {
        Kind::Cause | Kind::Rule | Kind::Xid | Kind::Sxid => Style::Red,
        Kind::UnreadVariable | Kind::ValueTrap => Style::Yellow,
        _ => Style::Bold,
    }
}

/// A word that a shell takes as one.
fn quoted(name: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | ' ' | '.' | '/');
    if name.chars().all(is_plain) { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) }
}

fn headline(page: &mut Page, topic: &Topic) {
    // A message is identified by what it says; its name is a text that was read or is a fact below.
    let text = match topic.kind {
        Kind::Message | Kind::NcclMessage | Kind::Symptom => {
            format!("{}: {}", topic.kind.words(), topic.title)
        }
        kind => format!("{} ({}): {}", topic.name, kind.words(), topic.title),
    };
    let text = plain(&text);
    for row in wrap(&text, page.look.width) {
        let row = page.paint(style(topic.kind), &row);
        page.row(&row);
    }
}

fn whole(page: &mut Page, topic: &Topic) {
    headline(page, topic);
    page.item("  ", &plain(&topic.meaning));
    if !topic.read.is_empty() {
        page.heading("what was read");
        details(page, &topic.read);
    }
    paragraphs(page, "what it shows", &topic.shows);
    paragraphs(page, "why it happens", &topic.why);
    paragraphs(page, "what it looks like and is not", &topic.is_not);
    paragraphs(page, "worth knowing", &topic.notes);
    if !topic.details.is_empty() {
        page.heading("facts");
        details(page, &topic.details);
    }
    if !topic.actions.is_empty() || !topic.advice.is_empty() {
        page.heading("what to do");
        for text in &topic.advice {
            page.item("  ", &plain(text));
        }
        for (n, action) in topic.actions.iter().enumerate() {
            page.action(&format!("  {}. ", n + 1), action);
        }
    }
    if !topic.see_also.is_empty() {
        page.heading("see also: ringleader explain …");
        let names: Vec<String> =
            topic.see_also.iter().map(|name| format!("{},", quoted(&plain(name)))).collect();
        for row in wrap_words(names.iter().map(String::as_str), page.look.width.saturating_sub(2)) {
            page.row(&format!("  {}", row.strip_suffix(',').unwrap_or(&row)));
        }
    }
    if !topic.sources.is_empty() {
        page.heading("sources");
        for source in &topic.sources {
            page.item("  ", &plain(source));
        }
    }
}

fn paragraphs(page: &mut Page, heading: &str, texts: &[String]) {
    if texts.is_empty() {
        return;
    }
    page.heading(heading);
    for text in texts {
        page.item("  ", &plain(text));
    }
}

fn details(page: &mut Page, details: &[Detail]) {
    let label = |d: &Detail| columns(&plain(&d.name));
    let widest = details.iter().map(label).max().unwrap_or(0).min(MAX_LABEL);
    for detail in details {
        let name = plain(&detail.name);
        if columns(&name) > widest {
            page.item("  ", &name);
            page.item(&" ".repeat(widest + 4), &plain(&detail.value));
        } else {
            let pad = " ".repeat(widest - columns(&name));
            page.item(&format!("  {name}{pad}  "), &plain(&detail.value));
        }
    }
}

fn briefly(page: &mut Page, explanation: &Explanation) {
    page.item("", &format!("{} may be {} things:", explanation.query, explanation.topics.len()));
    for topic in &explanation.topics {
        page.out.push('\n');
        headline(page, topic);
        for detail in
            topic.read.iter().filter(|d| matches!(&*d.name, "value" | "problem" | "text" | "result"))
        {
            page.item(&format!("  {}: ", detail.name), &plain(&detail.value));
        }
        page.item("  ", &plain(&topic.meaning));
        page.command("  ", &format!("ringleader explain {}", quoted(&topic.name)));
    }
}
