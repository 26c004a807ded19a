//! Statements of failure from any program: every line that reports a failure by its form, and every line that the
//! message table knows, folded into templates with counts.
//!
//! ```text
//! [2026-11-20 08:21:34,113] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with return code = -9
//! (RayTrainWorker pid=4107, ip=10.0.0.7) RuntimeError: Gloo connectFullMesh failed with …
//! srun: error: node3: task 9: Exited with exit code 1
//! ```
//! Lines that another reader understood are statements as well: whether a finding accounts for them is decided later, by
//! citation. Nothing is judged here.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use memchr::memmem::Finder;
use ringleader_knowledge::form::{self, Form, Level};
use ringleader_knowledge::message::{self, About, Hole, Match};
use ringleader_knowledge::sign;
use ringleader_model::{
    Cite, Fact, FormWeight, Host, Named, NoteKind, Pid, Rank, Said, SaidForm, WallTime, Who,
};

use super::ends::Ends;
use super::not_a_number;
use crate::ground::{Line, Sink, host_of, lossy};
use crate::readers::Name;

/// Templates that are kept of one source; later ones are counted in a note.
const MAX_TEMPLATES: usize = 2_048;
/// Ranks, hosts and processes that one line may name.
const MAX_NAMED: usize = 64;
/// Rows of the table that are kept of one line.
const MAX_ROWS: usize = 6;
/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 16 << 10;
static WARN: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(b"WARN"));

/// The statements of one source.
#[derive(Default)]
pub(super) struct SaidReader {
    /// Places in `statements` of each template.
    index: BTreeMap<String, Vec<usize>>,
    statements: Vec<FoldedStatement>,
    ends: Ends,
    n_left_out: u64,
    first_left_out: Option<Cite>,
    /// The last row that covers lines below it, and its line.
    cover: Option<(u32, message::MessageRow)>,
}

struct FoldedStatement {
    first: Cite,
    at: Option<WallTime>,
    who: Who,
    text: Vec<u8>,
    said: Said,
}

impl SaidReader {
    /// Looks at a line that `taken` has read, or nobody.
    #[inline]
    pub(super) fn line(&mut self, line: &Line<'_>, taken: Option<Name>, sink: &mut Sink<'_>) {
        let body = line.body.get(..MAX_BYTES).unwrap_or(line.body);
        let is_offered = match Offered::of(taken) {
            Offered::All => true,
            Offered::Warnings => WARN.find(body).is_some(),
            Offered::Nothing => false,
        };
        let is_grave = line.tag.level.is_some_and(|level| level >= Level::Error);
        if !is_offered || !is_grave && message::wanted(body, 0).is_none() && !form::wanted_in_line(body) {
            return;
        }
        self.look(line, body, taken.is_some(), sink);
    }

    fn look(&mut self, line: &Line<'_>, body: &[u8], is_read: bool, sink: &mut Sink<'_>) {
        let text = lossy(body);
        // What a command looks for is no statement.
        if sign::is_command(&text) {
            return;
        }
        let text = &*levelled(last_update(&text), line.tag.level);
        if self.is_covered(line.number, text) {
            return;
        }
        let mut rows = Vec::new();
        message::classify(text, &mut rows);
        let covering = rows.iter().find(|m| m.row.covers().next().is_some());
        self.cover = covering.map(|m| (line.number, m.row)).or(self.cover);
        let form = form::of(text);
        if rows.is_empty() && form.is_none() {
            return;
        }
        self.ends.line(line, text, &rows, sink);
        let mut who = line.tag.who.clone();
        speaker(&rows, &mut who);
        let template = form::template(text);
        let cite = sink.cite(line.number, line.offset, line.end());
        let known = self.index.get(&template).into_iter().flatten();
        let known = known.copied().find(|at| self.statements.get(*at).is_some_and(|s| s.who == who));
        if let Some(known) = known.and_then(|at| self.statements.get_mut(at)) {
            let said = &mut known.said;
            said.count = said.count.saturating_add(1);
            add_named(&mut said.named, named(&rows));
            (said.last, said.last_at) = (cite, line.tag.at.or(said.last_at));
            return;
        }
        if self.statements.len() == MAX_TEMPLATES {
            self.n_left_out += 1;
            self.first_left_out.get_or_insert(cite);
            return;
        }
        self.index.entry(template.clone()).or_default().push(self.statements.len());
        let said = Said {
            form: form.map(|f| shown(&f, text, &template)).unwrap_or_default(),
            template: template.into(),
            count: 1,
            last: cite,
            last_at: line.tag.at,
            named: named(&rows),
            rows: rows.iter().take(MAX_ROWS).map(|m| m.row.id()).collect(),
            is_read,
        };
        self.statements.push(FoldedStatement {
            first: cite,
            at: line.tag.at,
            who,
            text: text.as_bytes().to_vec(),
            said,
        });
    }

    /// Whether a message that is known to be harmless accounts for the line, which therefore is like no fault.
    pub(super) fn explains(&self, line: &Line<'_>) -> bool {
        let is_near =
            self.cover.is_some_and(|(head, _)| line.number.saturating_sub(head) <= message::COVERED);
        let is_head = self.cover.is_some_and(|(head, _)| line.number == head);
        is_head || is_near && self.is_covered(line.number, &lossy(line.body))
    }

    /// Whether the line belongs to a message of several lines that has begun above.
    fn is_covered(&self, number: u32, text: &str) -> bool {
        self.cover.is_some_and(|(head, row)| {
            number.saturating_sub(head) <= message::COVERED
                && row.covers().any(|part| text.trim_start().starts_with(part))
        })
    }

    /// The source is no log: what it quotes never happened.
    pub(super) fn is_no_log(&mut self) {
        *self = Self::default();
    }

    /// End of the source.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        for s in std::mem::take(&mut self.statements) {
            sink.push(s.first, s.who, s.at, Fact::Said(Box::new(s.said)), &s.text);
        }
        if let Some(first) = self.first_left_out {
            let text = format!(
                "more than {MAX_TEMPLATES} different error statements: {} lines of others were left out",
                self.n_left_out
            );
            sink.note(first, NoteKind::LimitReached, text);
        }
    }
}

/// What of a line is looked at, by who has read it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Offered {
    /// Its form and the table.
    All,
    /// Its warnings alone: nearly all lines of NCCL's log say what is well, and there are very many of them.
    Warnings,
    /// Nothing: it is a table of values.
    Nothing,
}

impl Offered {
    fn of(taken: Option<Name>) -> Self {
        match taken {
            None | Some(Name::torch) => Self::All,
            Some(Name::nccl) => Self::Warnings,
            Some(
                // What a kernel or a scheduler says counts by process, job and time: rules of their own weigh that.
                Name::kernel
                | Name::system
                | Name::stacks
                | Name::ras
                | Name::metrics
                | Name::gpu
                | Name::tables
                | Name::environment
                | Name::bench
                | Name::fabric
                | Name::flight
                | Name::ring
                | Name::nsight
                | Name::xplane
                | Name::perfetto
                | Name::inspector
                | Name::node
                | Name::watch
                | Name::guard
                | Name::bundle,
            ) => Self::Nothing,
        }
    }
}

/// What a terminal shows of a line: what follows the last carriage return, or what speaks behind updates of a bar.
fn last_update(text: &str) -> &str {
    let Some((before, last)) = text.rsplit_once('\r') else { return text };
    if last.trim().is_empty() { last_update(before) } else { last }
}

/// The text with the level that a structured log keeps beside it, unless the text names one itself.
fn levelled(text: &str, level: Option<Level>) -> Cow<'_, str> {
    let word = match level {
        Some(level) if form::level(text).is_none() => match level {
            Level::Trace => "TRACE",
            Level::Debug => "DEBUG",
            Level::Info => "INFO",
            Level::Warning | Level::NcclWarn => "WARNING",
            Level::Error => "ERROR",
            Level::Fatal => "FATAL",
        },
        _ => return Cow::Borrowed(text),
    };
    Cow::Owned(format!("{word}: {text}"))
}

/// The rank that a line gives its own speaker.
fn speaker(rows: &[Match<'_>], who: &mut Who) {
    if who.rank.is_some() {
        return;
    }
    let own = rows.iter().find(|m| m.row.about() == About::Speaker);
    if let Some([rank]) = own.map(|m| m.ranks(2)).as_deref() {
        who.rank = Some(Rank(*rank));
    }
}

fn named(rows: &[Match<'_>]) -> Named {
    let Some(best) = rows.first() else { return Named::default() };
    if best.row.about() == About::Speaker {
        return Named::default();
    }
    let mut named =
        Named { ranks: best.ranks(MAX_NAMED).into_iter().map(Rank).collect(), ..Named::default() };
    for capture in best.captures.iter().take(MAX_NAMED) {
        match capture.hole {
            Hole::Host | Hole::Hosts => named.hosts.extend(hosts(capture.text)),
            Hole::Node if !capture.text.bytes().all(|b| b.is_ascii_digit()) => {
                named.hosts.extend(hosts(capture.text));
            }
            Hole::Pid => named.pids.extend(capture.text.trim().parse().map(Pid)),
            _ => {}
        }
    }
    named.hosts.truncate(MAX_NAMED);
    named
}

/// Processes and hosts that a later line of the same template names, those of the earlier lines first.
fn add_named(all: &mut Named, new: Named) {
    all.ranks.extend(new.ranks);
    all.ranks.sort_unstable();
    all.ranks.dedup();
    all.ranks.truncate(MAX_NAMED);
    for host in new.hosts {
        if all.hosts.len() < MAX_NAMED && !all.hosts.contains(&host) {
            all.hosts.push(host);
        }
    }
    for pid in new.pids {
        if all.pids.len() < MAX_NAMED && !all.pids.contains(&pid) {
            all.pids.push(pid);
        }
    }
}

fn hosts(text: &str) -> impl Iterator<Item = Host> {
    let words = text.split([',', ' ']).map(|w| w.trim_matches(['"', '\'', '[', ']', '(', ')', '.']));
    words.filter(|w| !w.is_empty()).map(host_of)
}

fn shown(form: &Form<'_>, text: &str, template: &str) -> SaidForm {
    SaidForm {
        weight: match form.weight() {
            form::Weight::Weak => FormWeight::Weak,
            form::Weight::Strong => FormWeight::Strong,
        },
        is_warning: form.level.is_some_and(|l| l < Level::Error),
        exception: form.exception.map(Into::into),
        exit: form.exit,
        signal: form.signal.map(|s| i32::from(s.number)),
        errno: form.errno.map(|e| i32::from(e.number)),
        nan: form.nan.map(|_| not_a_number::read(text, template)),
        is_wrong: form.wrong.is_some(),
        is_end: form.ended.is_some(),
    }
}

#[cfg(test)]
#[path = "said_tests.rs"]
mod tests;
