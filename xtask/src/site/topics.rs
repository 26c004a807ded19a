//! Pages of what `explain` knows, of messages, checks and commands.

use ringleader::explain::answer::{Kind, Topic};
use ringleader_knowledge::{errno, message, status, symptom};
use std::fmt::Write as _;

use super::markdown::inline;
use super::page::{Page, escape};

/// Every topic that has a name, and every text of NCCL.
pub(super) fn topics() -> Vec<Page> {
    let names = ringleader::explain::names().into_iter().chain(ringleader::explain::messages());
    let mut seen = std::collections::BTreeSet::new();
    let mut pages = Vec::new();
    for name in names {
        let found = ringleader::explain::explain(&name).topics;
        // A name may ask for several things; its own page shows what is called so.
        let own = found.iter().find(|topic| topic.name == name).or_else(|| found.first());
        if let Some(topic) = own.filter(|topic| seen.insert((section(topic.kind), topic.name.clone()))) {
            pages.push(page(topic));
        }
    }
    pages
}

fn section(kind: Kind) -> &'static str {
    match kind {
        Kind::Cause => "cause",
        Kind::Xid => "xid",
        Kind::Sxid => "sxid",
        Kind::NcclResult => "nccl-result",
        Kind::NcclMessage => "nccl-message",
        Kind::CudaError => "cuda-error",
        Kind::Message => "message",
        Kind::Variable => "variable",
        Kind::UnreadVariable => "unread-variable",
        Kind::ValueTrap => "value-trap",
        Kind::Symptom => "symptom",
        Kind::Status => "status",
        _ => "other",
    }
}

fn page(topic: &Topic) -> Page {
    let slug = match topic.kind {
        Kind::Xid | Kind::Sxid => topic.name.rsplit(' ').next().unwrap_or(&topic.name),
        _ => &topic.name,
    };
    let title = match topic.kind {
        Kind::Xid | Kind::Sxid => {
            format!("{} {}: {}", topic.kind.words(), slug, topic.title)
        }
        Kind::Message | Kind::NcclMessage => topic.title.clone(),
        _ => format!("{}: {}", topic.name, topic.title),
    };
    let mut body = format!("<p class=\"kind\">{}</p>\n<h1>{}</h1>\n", topic.kind.words(), escape(&title));
    paragraphs(&mut body, "", std::slice::from_ref(&topic.meaning));
    paragraphs(&mut body, "What it shows", &topic.shows);
    paragraphs(&mut body, "Why it happens", &topic.why);
    paragraphs(&mut body, "What looks like it but is not", &topic.is_not);
    paragraphs(&mut body, "Notes", &topic.notes);
    if !topic.advice.is_empty() || !topic.actions.is_empty() {
        body.push_str("<h2>What to do</h2>\n");
        for text in &topic.advice {
            let _ = writeln!(body, "<p>{}</p>", inline(text));
        }
        body.push_str("<ol>\n");
        for action in &topic.actions {
            let impact = serde_json::to_value(action.impact).ok();
            let impact = impact.as_ref().and_then(serde_json::Value::as_str).unwrap_or_default().to_owned();
            let _ = write!(body, "<li>{} <small>{impact}</small>", inline(&action.text));
            if let Some(command) = &action.command {
                let _ = write!(body, "<pre><code>{}</code></pre>", escape(command));
            }
            body.push_str("</li>\n");
        }
        body.push_str("</ol>\n");
    }
    if !topic.details.is_empty() {
        body.push_str("<h2>Facts</h2>\n<table>\n");
        for detail in &topic.details {
            let _ = writeln!(
                body,
                "<tr><th>{}</th><td>{}</td></tr>",
                escape(&detail.name),
                inline(&detail.value)
            );
        }
        body.push_str("</table>\n");
    }
    asked(&mut body, &topic.name);
    if !topic.see_also.is_empty() {
        let links: Vec<String> = topic.see_also.iter().map(|name| format!("{{{{see:{name}}}}}")).collect();
        let _ = write!(body, "<h2>See also</h2>\n<p>{}</p>\n", links.join(", "));
    }
    sources(&mut body, topic.sources.iter().map(String::as_str));
    Page::new(section(topic.kind), slug, &topic.name, &title, &topic.meaning, body).asked(phrases(topic))
}

/// What people type for it: a symptom's phrases, a status's number after the words that its library is asked for by.
fn phrases(topic: &Topic) -> Vec<String> {
    match topic.kind {
        Kind::Symptom => {
            let id = topic.name.strip_prefix("symptom ").unwrap_or(&topic.name);
            let asked = symptom::get(id).map(|symptom| symptom.asked).unwrap_or_default();
            asked.iter().map(|phrase| (*phrase).to_owned()).collect()
        }
        Kind::Status => {
            let of_library = status::named(&topic.name).filter_map(|status| {
                let words = status.family().asked.iter();
                status.number.map(|number| words.map(move |word| format!("{word} {}", number.unsigned_abs())))
            });
            let of_kernel = errno::named(&topic.name).map(|errno| errno.number).into_iter();
            let of_kernel =
                of_kernel.flat_map(|number| [format!("errno {number}"), format!("os error {number}")]);
            of_library.flatten().chain(of_kernel).collect()
        }
        _ => Vec::new(),
    }
}

fn paragraphs(body: &mut String, heading: &str, texts: &[String]) {
    let texts: Vec<&String> = texts.iter().filter(|text| !text.is_empty()).collect();
    if texts.is_empty() {
        return;
    }
    if !heading.is_empty() {
        let _ = writeln!(body, "<h2>{heading}</h2>");
    }
    for text in texts {
        let _ = writeln!(body, "<p>{}</p>", inline(text));
    }
}

/// The command that prints the same.
fn asked(body: &mut String, name: &str) {
    let is_plain = name.chars().all(|c| c.is_ascii_alphanumeric() || "_-./ ".contains(c));
    let word = if is_plain { name.to_owned() } else { format!("'{}'", name.replace('\'', "'\\''")) };
    let _ = write!(
        body,
        "<h2>On the command line</h2>\n<pre><code>ringleader explain {}</code></pre>\n",
        escape(&word)
    );
}

fn sources<'a>(body: &mut String, sources: impl Iterator<Item = &'a str>) {
    let list: Vec<String> = sources.map(|source| format!("<li>{}</li>\n", inline(source))).collect();
    if !list.is_empty() {
        let _ = write!(body, "<h2>Sources</h2>\n<ul>\n{}</ul>\n", list.concat());
    }
}

/// Messages of programs, by their texts.
pub(super) fn messages() -> Vec<Page> {
    message::all()
        .map(|row| {
            let pattern = row.pattern();
            let title =
                row.examples().next().map_or(pattern.as_str(), |line| line.lines().next().unwrap_or(line));
            let title: String = title.trim().chars().take(160).collect();
            let mut body = format!(
                "<p class=\"kind\">message</p>\n<h1>{}</h1>\n<p>{}</p>\n",
                escape(&title),
                inline(row.says())
            );
            if !row.is_not().is_empty() {
                paragraphs(&mut body, "What it is not", &[row.is_not().to_owned()]);
            }
            if !row.action().is_empty() {
                paragraphs(&mut body, "What to do", &[row.action().to_owned()]);
            }
            let candidates: Vec<String> = std::iter::once(row.cause())
                .chain(row.candidates())
                .filter(|cause| !cause.is_empty())
                .map(|cause| format!("{{{{see:{cause}}}}}"))
                .collect();
            if !candidates.is_empty() {
                let _ = write!(body, "<h2>Causes it may indicate</h2>\n<p>{}</p>\n", candidates.join(", "));
            }
            let _ = write!(
                body,
                "<h2>Facts</h2>\n<table>\n<tr><th>printed by</th><td>{}</td></tr>\n",
                escape(row.by())
            );
            let _ = writeln!(body, "<tr><th>pattern</th><td><code>{}</code></td></tr>", escape(&pattern));
            for (name, value) in [("since", row.since()), ("until", row.until())] {
                if !value.is_empty() {
                    let _ = writeln!(body, "<tr><th>{name}</th><td>{}</td></tr>", escape(value));
                }
            }
            body.push_str("</table>\n");
            let examples: Vec<String> = row.examples().map(escape).collect();
            if !examples.is_empty() {
                let _ =
                    write!(body, "<h2>Examples</h2>\n<pre class=\"sample\">{}</pre>\n", examples.join("\n"));
            }
            sources(&mut body, std::iter::once(row.source()));
            Page::new("message", row.id(), row.id(), &title, row.says(), body)
        })
        .collect()
}

/// Checks of a node.
pub(super) fn checks() -> Vec<Page> {
    ringleader::check::documents()
        .map(|(id, title, text)| {
            let mut body = format!("<p class=\"kind\">check</p>\n<h1>{id}: {}</h1>\n", escape(title));
            for line in text.split("\n\n").filter(|part| !part.trim().is_empty()) {
                match line.trim().strip_prefix("# ") {
                    Some(heading) => {
                        let _ = writeln!(body, "<h2>{}</h2>", escape(heading));
                    }
                    None => {
                        let _ = writeln!(body, "<p>{}</p>", inline(&line.replace('\n', " ")));
                    }
                }
            }
            let _ = write!(
                body,
                "<h2>On the command line</h2>\n<pre><code>ringleader check --only {id}</code></pre>\n"
            );
            Page::new("check", id, id, &format!("{id}: {title}"), title, body)
        })
        .collect()
}

/// The help of each command.
pub(super) fn commands() -> Vec<Page> {
    let mut program = ringleader::command();
    program.build();
    let mut out = Vec::new();
    for command in program.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        let name = command.get_name().to_owned();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        let help = command.render_long_help().to_string();
        let body = format!(
            "<p class=\"kind\">command</p>\n<h1>ringleader {name}</h1>\n<pre>{}</pre>\n",
            escape(&help)
        );
        out.push(Page::new(
            "command",
            &name,
            &format!("ringleader {name}"),
            &format!("ringleader {name}"),
            &about,
            body,
        ));
    }
    out
}
