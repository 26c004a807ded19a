//! Variables, names that no program reads, and misread values.

use ringleader_knowledge::variable::{Parse, Status, Trap, Unread, Variable};
use ringleader_model::Impact;

use crate::explain::answer::{Kind, Topic};
use crate::explain::topics::{action, sentence};

pub(in crate::explain) fn variable(v: &Variable) -> Topic {
    let mut topic = Topic::new(Kind::Variable, v.name, format!("read by {}", v.reader));
    topic.meaning = sentence(v.does);
    topic.notes.extend((!v.note.is_empty()).then(|| sentence(v.note)));
    let range = v.range.map(|(low, high)| (format!("{low}-{high}"), format!("{low} to {high}")));
    match (&range, v.values) {
        (Some(_), "bool") => topic.detail("values", "0 or 1"),
        (Some((short, long)), values) if short == values => topic.detail("values", long.as_str()),
        (_, values) => topic.detail("values", values),
    }
    topic.detail("default", v.default);
    if v.defaults.len() > 1 {
        let history: Vec<String> =
            v.defaults.iter().map(|(since, value)| format!("{value} since {since}")).collect();
        topic.detail("defaults over time", history.join(", "));
    }
    topic.detail("words it knows", v.words.join(", "));
    topic.detail("how it is read", parse(v.parse));
    topic.detail("ranks", v.agreement.words());
    topic.detail("versions", versions(v));
    topic.detail("status", status(v));
    topic.detail("old names", v.aliases.join(", "));
    if !v.documented {
        topic.detail("documented", "no: it may change or vanish without notice");
    }
    if !v.for_production {
        topic.detail("production", "no: for debugging only, do not leave it set");
    }
    if !v.replaced_by.is_empty() {
        topic.actions.push(action(format!("use {} instead", v.replaced_by), "", Impact::Harmless));
        topic.see(v.replaced_by.split('=').next().unwrap_or_default());
    } else if v.status == Status::Removed {
        topic.actions.push(action(
            format!("unset it: no current release reads {}", v.name),
            "",
            Impact::Harmless,
        ));
    }
    topic.sources.push(v.source.to_owned());
    topic
}

fn versions(v: &Variable) -> String {
    match (v.since, v.last) {
        (Some(since), Some(last)) => {
            let since = if v.since_or_before { format!("{since} or before") } else { since.to_string() };
            let last = if last >= ringleader_knowledge::variable::newest() {
                "today".to_owned()
            } else {
                last.to_string()
            };
            format!("NCCL {since} to {last}")
        }
        _ if !v.since_torch.is_empty() => format!("PyTorch {}", v.since_torch),
        _ => String::new(),
    }
}

fn status(v: &Variable) -> String {
    let since = if v.status_since.is_empty() { String::new() } else { format!(" since {}", v.status_since) };
    match v.status {
        Status::Current => String::new(),
        status => format!("{}{since}", status.name()),
    }
}

fn parse(parse: Parse) -> &'static str {
    match parse {
        Parse::Strtoll => "as a whole number; words become 0, units are dropped, a leading 0 means octal",
        Parse::ParamBool => "1, T, TRUE or 0, F, FALSE since NCCL 2.30.7; before, as a whole number",
        Parse::Word => "one word, case-insensitive; other words are ignored",
        Parse::ExactWord => "one word, case-sensitive; other words are ignored",
        Parse::WordList => "words with commas; ^ in front means all but these",
        Parse::Level => "one word in capitals; other words are ignored",
        Parse::TorchInt => "as a whole number; anything else raises",
        Parse::TorchBool => "1, true, yes or 0, false, no; anything else raises",
        Parse::TorchWord => "one word, case-insensitive; anything else raises",
        Parse::Text => "",
    }
}

pub(in crate::explain) fn unread(u: &Unread) -> Topic {
    let mut topic = Topic::new(Kind::UnreadVariable, u.name, "nothing reads this name");
    topic.meaning = format!("Setting {} has no effect: neither NCCL nor PyTorch reads it.", u.name);
    topic.notes.extend((!u.note.is_empty()).then(|| sentence(u.note)));
    topic.actions.push(action(format!("use instead: {}", u.meant), "", Impact::Harmless));
    for word in u.meant.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
        if ringleader_knowledge::variable::get(word).is_some() {
            topic.see(word);
        }
    }
    topic.sources.push(u.source.to_owned());
    topic
}

pub(in crate::explain) fn trap(trap: &Trap) -> Topic {
    let mut topic =
        Topic::new(Kind::ValueTrap, format!("trap {}", trap.id), "a value that is taken for another");
    topic.meaning = sentence(trap.means);
    topic.detail("written", trap.example);
    topic.detail("read as", trap.becomes);
    topic.actions.push(action(trap.instead, "", Impact::Harmless));
    topic.sources.push(trap.source.to_owned());
    topic
}
