//! The field's messages: what programs print on failure, including harmless messages.
//!
//! There is one table and one classifier, so `explain` and `diagnose` know the same rows. A row has a pattern (literal
//! text with typed holes), the program that prints it and since when, its meaning, whom it is about, and the causes
//! that it may indicate. The rows are in `data/messages/*.toml`; `build.rs` pools their texts and chooses the stretch
//! that finds each row, so nothing is built when the program starts.
//!
//! The table judges single lines. Rules decide whether a line is cause or consequence in a job.

pub(crate) mod hash;
pub(crate) mod holes;
pub(crate) mod pattern;
mod scan;

use std::ops::Range;

use ringleader_model::{Category, Impact};

pub use pattern::HoleClass;
pub use scan::{Candidates, wanted, wanted_blind};

use crate::tables::{MESSAGE_LISTS, MESSAGE_PARTS, MESSAGE_ROWS, MESSAGE_STARTS, MESSAGE_TEXT};
use crate::withheld;
use pattern::PatternPart;

/// Longer lines are classified by their first bytes.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// Bit of a part of a pattern that is a hole.
const HOLE_BIT: u32 = 1 << 31;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageRow(u16);

/// How much a message or a saying tells about the cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Healthy jobs print it, too: no sign of a fault.
    Harmless,
    /// A consequence of something else: it names no cause.
    Echo,
    /// Usually one cause, but others print it, too.
    Suggests,
    /// The fault itself.
    States,
}

/// Whom a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// Nobody: a fact unrelated to the job.
    Nobody,
    /// The process that prints it.
    Speaker,
    /// The rank, host or process that it names.
    Named,
    /// The job or a group as a whole.
    Group,
}

/// What a message says of the life of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessPart {
    /// It names the process; a line after it says how that ended.
    Named,
    /// `{code}` is its exit code.
    ExitCode,
    /// `{signal}` ended it.
    Signal,
    /// It ended with this code; negative: by this signal.
    EndedWith(i64),
    /// Its launcher started it.
    Started,
    /// It says which rank of the job it is.
    Joins,
}

/// What a hole of a pattern contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Hole {
    /// A rank of the job.
    Rank,
    /// Several ranks.
    Ranks,
    /// A local rank.
    Local,
    /// A node, by number or name.
    Node,
    /// A host.
    Host,
    /// Several hosts.
    Hosts,
    /// A process id.
    Pid,
    /// A GPU of a node.
    Gpu,
    /// A code: of an exit or of a library.
    Code,
    /// A signal, by number or name.
    Signal,
    /// An errno, by number.
    Errno,
    /// An address.
    Addr,
    /// A path.
    Path,
    /// A span of time in seconds.
    Seconds,
    /// A span of time in milliseconds.
    Milliseconds,
    /// The sequence number of an operation in its group.
    Seq,
    /// A training step.
    Step,
    /// A kind of operation.
    Op,
    /// A process group.
    Group,
    /// A launcher's task, by the launcher's name for it.
    Task,
    /// Something else.
    Other,
}

/// The text of one hole in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture<'t> {
    /// What it contains.
    pub hole: Hole,
    /// Its name in the pattern.
    pub name: &'static str,
    /// Its text.
    pub text: &'t str,
}

/// A row that matches a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match<'t> {
    /// The row.
    pub row: MessageRow,
    /// The bytes of the line that the pattern covers.
    pub at: Range<usize>,
    /// The texts of its holes, in order.
    pub captures: Vec<Capture<'t>>,
}

/// All rows, by id.
pub fn all() -> impl ExactSizeIterator<Item = MessageRow> {
    (0..MESSAGE_ROWS.len()).map(|number| MessageRow(number as u16))
}

/// Rows whose pattern or meaning holds all of these words, which are in lower case.
pub fn holding<'w>(words: &'w [&'w str]) -> impl Iterator<Item = MessageRow> + 'w {
    // Mostly a word that occurs nowhere settles it.
    let pool = MESSAGE_TEXT.to_ascii_lowercase();
    let occur = words.iter().all(|word| pool.contains(word));
    let holds = |row: &MessageRow| {
        let text = format!("{} {}", row.pattern(), row.says()).to_ascii_lowercase();
        words.iter().all(|word| text.contains(word))
    };
    all().take(if occur { usize::MAX } else { 0 }).filter(holds)
}

/// The row with this id.
pub fn get(id: &str) -> Option<MessageRow> {
    let at = MESSAGE_ROWS.partition_point(|row| string(row[0]) < id);
    let row = MessageRow(at as u16);
    (at < MESSAGE_ROWS.len() && row.id() == id).then_some(row)
}

/// Appends all rows that match `line`, the one with most literal text first.
pub fn classify<'t>(line: &'t str, out: &mut Vec<Match<'t>>) {
    let line = line.get(..line.floor_char_boundary(MAX_LINE_BYTES)).unwrap_or(line);
    let mut candidates = Candidates::default();
    candidates.look(line.as_bytes());
    let first = out.len();
    let (mut parts, mut filled) = (Vec::new(), Vec::new());
    for row in candidates.rows() {
        parts.clear();
        parts.extend(row.parts());
        let Some(at) = pattern::find(&parts, line, &mut filled) else { continue };
        if !row.stands(line, &at) || withheld::is_withheld(row.id()) {
            continue;
        }
        let captures = filled
            .iter()
            .map(|(hole, at)| {
                let name = holes::HOLES.get(usize::from(*hole)).map_or("", |(name, _)| name);
                Capture { hole: Hole::named(name), name, text: line.get(at.clone()).unwrap_or_default() }
            })
            .collect();
        out.push(Match { row, at, captures });
    }
    if let Some(found) = out.get_mut(first..) {
        found.sort_by_key(|m| (std::cmp::Reverse(m.row.literal_bytes()), m.row));
    }
}

/// Lines below a row within which [`MessageRow::covers`] counts: the longest help text of Open MPI has fewer.
pub const COVERED: u32 = 24;

/// The matching row with most literal text.
pub fn best(line: &str) -> Option<Match<'_>> {
    let mut found = Vec::new();
    classify(line, &mut found);
    (!found.is_empty()).then(|| found.swap_remove(0))
}

impl MessageRow {
    fn data(self) -> &'static [u32; 18] {
        &MESSAGE_ROWS[usize::from(self.0)]
    }

    /// Kebab-case.
    pub fn id(self) -> &'static str {
        string(self.data()[0])
    }

    /// Its meaning, in one sentence.
    pub fn says(self) -> &'static str {
        string(self.data()[1])
    }

    /// Programs and versions that print it.
    pub fn by(self) -> &'static str {
        string(self.data()[2])
    }

    /// Its source: repository and path, or a manual.
    pub fn source(self) -> &'static str {
        string(self.data()[3])
    }

    /// The cause, if this line alone decides it; otherwise empty.
    pub fn cause(self) -> &'static str {
        string(self.data()[4])
    }

    /// What to do next; may be empty.
    pub fn action(self) -> &'static str {
        string(self.data()[5])
    }

    /// What that does to the job.
    pub fn impact(self) -> Impact {
        match self.data()[11] >> 24 & 3 {
            0 => Impact::Harmless,
            1 => Impact::Disruptive,
            _ => Impact::Destructive,
        }
    }

    /// What it is commonly mistaken for; may be empty.
    pub fn is_not(self) -> &'static str {
        string(self.data()[6])
    }

    /// First version that prints it, if known.
    pub fn since(self) -> &'static str {
        string(self.data()[7])
    }

    /// Last version that prints it, if known.
    pub fn until(self) -> &'static str {
        string(self.data()[8])
    }

    /// How much it says about the cause.
    pub fn role(self) -> Role {
        match self.data()[11] & 3 {
            0 => Role::Harmless,
            1 => Role::Echo,
            2 => Role::Suggests,
            _ => Role::States,
        }
    }

    /// Whom it is about.
    pub fn about(self) -> About {
        match self.data()[11] >> 2 & 3 {
            0 => About::Nobody,
            1 => About::Speaker,
            2 => About::Named,
            _ => About::Group,
        }
    }

    /// The symptom that the operator sees; `Category::None` for harmless rows and for echoes of any failure.
    pub fn category(self) -> Category {
        match self.data()[11] >> 4 & 15 {
            1 => Category::Hang,
            2 => Category::Error,
            3 => Category::Crash,
            4 => Category::Corruption,
            5 => Category::Performance,
            6 => Category::Init,
            _ => Category::None,
        }
    }

    /// What it says of the life of the process that it names.
    pub fn process(self) -> Option<ProcessPart> {
        let bits = self.data()[11] >> 11;
        match bits & 7 {
            1 => Some(ProcessPart::Named),
            2 => Some(ProcessPart::ExitCode),
            3 => Some(ProcessPart::Signal),
            4 => Some(ProcessPart::EndedWith(i64::from(bits >> 3 & 0x1ff) - 256)),
            5 => Some(ProcessPart::Started),
            6 => Some(ProcessPart::Joins),
            _ => None,
        }
    }

    /// The process that it names ended before the others that its launcher watched.
    pub fn is_first_end(self) -> bool {
        self.data()[11] >> 10 & 1 == 1
    }

    /// Causes that it may indicate, most likely first.
    pub fn candidates(self) -> impl Iterator<Item = &'static str> {
        strings(self.data()[12])
    }

    /// Sample lines; line feeds separate the lines of one message.
    pub fn examples(self) -> impl Iterator<Item = &'static str> {
        strings(self.data()[15])
    }

    /// The pattern as the table writes it.
    pub fn pattern(self) -> String {
        let part = |part: PatternPart| match part {
            PatternPart::Literal(text) => text.to_owned(),
            PatternPart::Hole(hole, _) => {
                format!("{{{}}}", holes::HOLES.get(usize::from(hole)).map_or("", |(name, _)| name))
            }
        };
        self.parts().map(part).collect()
    }

    /// How lines below it begin that belong to the same message: within [`COVERED`] lines they state nothing of their own.
    pub fn covers(self) -> impl Iterator<Item = &'static str> {
        strings(self.data()[17])
    }

    /// Bytes of literal text: the more, the narrower the row.
    pub fn literal_bytes(self) -> u32 {
        self.data()[16]
    }

    fn parts(self) -> impl Iterator<Item = PatternPart> {
        let data = self.data();
        let parts = MESSAGE_PARTS.get(data[9] as usize..(data[9] + data[10]) as usize).unwrap_or_default();
        parts.iter().map(|&part| {
            if part & HOLE_BIT == 0 {
                PatternPart::Literal(string(part))
            } else {
                PatternPart::Hole((part >> 8) as u8, HoleClass::of(part & 0xff))
            }
        })
    }

    /// Whether the line meets the row's conditions on the surrounding text.
    fn stands(self, line: &str, at: &Range<usize>) -> bool {
        let data = self.data();
        let (head, tail) = (line.get(..at.start).unwrap_or_default(), line.get(at.end..).unwrap_or_default());
        let mut after = strings(data[13]).peekable();
        (after.peek().is_none() || after.any(|text| head.contains(text)))
            && !strings(data[14]).any(|text| line.contains(text))
            && (data[11] >> 8 & 1 == 0 || head.trim().is_empty() && tail.trim().is_empty())
            && (data[11] >> 9 & 1 == 0 || begins_message(head))
    }
}

impl Hole {
    fn named(name: &str) -> Self {
        match name {
            "rank" => Self::Rank,
            "ranks" => Self::Ranks,
            "local" => Self::Local,
            "node" => Self::Node,
            "host" => Self::Host,
            "hosts" => Self::Hosts,
            "pid" => Self::Pid,
            "gpu" => Self::Gpu,
            "code" => Self::Code,
            "signal" => Self::Signal,
            "errno" => Self::Errno,
            "addr" => Self::Addr,
            "path" => Self::Path,
            "seconds" => Self::Seconds,
            "ms" => Self::Milliseconds,
            "seq" => Self::Seq,
            "step" => Self::Step,
            "op" => Self::Op,
            "group" => Self::Group,
            "task" => Self::Task,
            _ => Self::Other,
        }
    }
}

impl<'t> Match<'t> {
    /// The text of the first hole of this kind.
    pub fn of(&self, hole: Hole) -> Option<&'t str> {
        self.captures.iter().find(|c| c.hole == hole).map(|c| c.text)
    }

    /// The text of the first hole of this kind, as a number.
    pub fn number(&self, hole: Hole) -> Option<i64> {
        self.of(hole)?.trim().trim_start_matches('+').parse().ok()
    }

    /// The ranks that the line names, those of `{rank}` and `{ranks}`, in ascending order, at most `limit`.
    pub fn ranks(&self, limit: usize) -> Vec<u32> {
        let mut ranks = Vec::new();
        for capture in self.captures.iter().filter(|c| matches!(c.hole, Hole::Rank | Hole::Ranks)) {
            spans(capture.text, limit, &mut ranks);
        }
        ranks.sort_unstable();
        ranks.dedup();
        ranks.truncate(limit);
        ranks
    }
}

/// The numbers of a list such as `[0, 2, 5-7]`.
fn spans(text: &str, limit: usize, out: &mut Vec<u32>) {
    for item in text.split(|c: char| !c.is_ascii_digit() && c != '-') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            out.extend((first..=last).take(limit.saturating_sub(out.len())));
        }
    }
}

/// Whether only the head of a log line precedes: a message begins here.
fn begins_message(head: &str) -> bool {
    head.trim_end()
        .chars()
        .next_back()
        .is_none_or(|c| matches!(c, ']' | ':' | '|' | '>' | ')' | '-' | '"' | '\''))
}

fn string(number: u32) -> &'static str {
    let at = number as usize;
    match (MESSAGE_STARTS.get(at), MESSAGE_STARTS.get(at + 1)) {
        (Some(&start), Some(&end)) => MESSAGE_TEXT.get(start as usize..end as usize).unwrap_or_default(),
        _ => "",
    }
}

fn strings(list: u32) -> impl Iterator<Item = &'static str> {
    let n_items = MESSAGE_LISTS.get(list as usize).map_or(0, |&n| n as usize);
    let start = list as usize + 1;
    MESSAGE_LISTS.get(start..start + n_items).unwrap_or_default().iter().map(|&number| string(number))
}

#[cfg(test)]
mod tests;
