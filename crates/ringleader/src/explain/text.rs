//! An explanation for a terminal, in the manner of the report.

use crate::explain::answer::{Detail, Explanation, Kind, Topic};
use crate::report::page::{Page, Style};
use crate::report::quote::{columns, plain, wrap, wrap_words};
use crate::report::{Detail as Amount, Look};

/// Widest name of a detail that its values are aligned behind.
const MAX_LABEL: usize = 22;

/// The whole answer as text, a newline at its end. Several topics are shown briefly unless everything is asked for.
pub fn render(explanation: &Explanation, look: &Look) -> String {
    let mut page = Page { out: String::new(), look: *look };
    if let [topic] = &explanation.topics[..] {
        page.topic(topic);
    } else if look.detail == Amount::Everything {
        for (n, topic) in explanation.topics.iter().enumerate() {
            if n > 0 {
                page.out.push('\n');
            }
            page.topic(topic);
        }
    } else {
        page.briefly(explanation);
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

impl Page {
    fn headline(&mut self, topic: &Topic) {
        // A message is told by what it says; its name is a text that was read or is a fact below.
        let text = match topic.kind {
            Kind::Message | Kind::NcclMessage => format!("{}: {}", topic.kind.words(), topic.title),
            kind => format!("{} ({}): {}", topic.name, kind.words(), topic.title),
        };
        let text = plain(&text);
        for row in wrap(&text, self.look.width) {
            let row = self.paint(style(topic.kind), &row);
            self.row(&row);
        }
    }

    fn topic(&mut self, topic: &Topic) {
        self.headline(topic);
        self.item("  ", &plain(&topic.meaning));
        if !topic.read.is_empty() {
            self.heading("what was read");
            self.details(&topic.read);
        }
        self.paragraphs("what it shows", &topic.shows);
        self.paragraphs("why it happens", &topic.why);
        self.paragraphs("what it looks like and is not", &topic.is_not);
        self.paragraphs("worth knowing", &topic.notes);
        if !topic.details.is_empty() {
            self.heading("facts");
            self.details(&topic.details);
        }
        if !topic.actions.is_empty() || !topic.advice.is_empty() {
            self.heading("what to do");
            for text in &topic.advice {
                self.item("  ", &plain(text));
            }
            for (n, action) in topic.actions.iter().enumerate() {
                self.action(&format!("  {}. ", n + 1), action);
            }
        }
        if !topic.see_also.is_empty() {
            self.heading("see also: ringleader explain …");
            let names: Vec<String> =
                topic.see_also.iter().map(|name| format!("{},", quoted(&plain(name)))).collect();
            for row in wrap_words(names.iter().map(String::as_str), self.look.width.saturating_sub(2)) {
                self.row(&format!("  {}", row.strip_suffix(',').unwrap_or(&row)));
            }
        }
        if !topic.sources.is_empty() {
            self.heading("sources");
            for source in &topic.sources {
                self.item("  ", &plain(source));
            }
        }
    }

    fn paragraphs(&mut self, heading: &str, texts: &[String]) {
        if texts.is_empty() {
            return;
        }
        self.heading(heading);
        for text in texts {
            self.item("  ", &plain(text));
        }
    }

    fn details(&mut self, details: &[Detail]) {
        let label = |d: &Detail| columns(&plain(&d.name));
        let widest = details.iter().map(label).max().unwrap_or(0).min(MAX_LABEL);
        for detail in details {
            let name = plain(&detail.name);
            if columns(&name) > widest {
                self.item("  ", &name);
                self.item(&" ".repeat(widest + 4), &plain(&detail.value));
            } else {
                let pad = " ".repeat(widest - columns(&name));
                self.item(&format!("  {name}{pad}  "), &plain(&detail.value));
            }
        }
    }

    fn briefly(&mut self, explanation: &Explanation) {
        self.item("", &format!("{} may be {} things:", explanation.query, explanation.topics.len()));
        for topic in &explanation.topics {
            self.out.push('\n');
            self.headline(topic);
            for detail in
                topic.read.iter().filter(|d| matches!(&*d.name, "value" | "problem" | "text" | "result"))
            {
                self.item(&format!("  {}: ", detail.name), &plain(&detail.value));
            }
            self.item("  ", &plain(&topic.meaning));
            self.command("  ", &format!("ringleader explain {}", quoted(&topic.name)));
        }
    }
}
