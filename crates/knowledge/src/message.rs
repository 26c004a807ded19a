//! The field's messages: what programs print when something fails, and what of it is harmless.
//!
//! One table, one classifier: `explain` and `diagnose` know the same rows. A row is a pattern (literal text with typed
//! holes), who prints it and since when, what it says and of whom, and the causes it may stand for. The rows stand in
//! `data/messages/*.toml`; `build.rs` pools their texts and chooses for each row the stretch by which it is found, so
//! that nothing is built when the program starts.
//!
//! The table judges single lines: whether a line is cause or consequence in a job, rules decide.

pub(crate) mod hash;
pub(crate) mod holes;
pub(crate) mod pattern;
mod scan;

use std::ops::Range;

use ringleader_model::Category;

pub use pattern::Class;
pub use scan::{Candidates, wanted, wanted_blind};

use crate::tables::{MESSAGE_LISTS, MESSAGE_PARTS, MESSAGE_ROWS, MESSAGE_STARTS, MESSAGE_TEXT};
use pattern::Part;

/// A line longer than this is classified by its first bytes.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// A part of a pattern with this bit is a hole.
const HOLE_BIT: u32 = 1 << 31;

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Row(u16);

/// How far a message reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Healthy jobs print it, too.
    Harmless,
    /// A consequence of something else.
    Echo,
    /// It fits several causes.
    Suggests,
    /// The fault itself.
    States,
}

/// Of whom a message speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// Of nobody: a fact beside the job.
    Nobody,
    /// Of who prints it.
    Speaker,
    /// Of the rank, host or process that it names.
    Named,
    /// Of the job or a group as a whole.
    Group,
}

/// What a hole of a pattern holds.
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
    /// A code: of an exit, of a library.
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
    /// An operation's number in its group.
    Seq,
    /// A training step.
    Step,
    /// A kind of operation.
    Op,
    /// A process group.
    Group,
    /// A task of a launcher, by its own name.
    Task,
    /// Something else.
    Other,
}

/// One hole that a line fills.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capture<'t> {
    /// What it holds.
    pub hole: Hole,
    /// Its name in the pattern.
    pub name: &'static str,
    /// Its text.
    pub text: &'t str,
}

/// A row that a line was printed from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match<'t> {
    /// Which.
    pub row: Row,
    /// The bytes of the line that the pattern covers.
    pub at: Range<usize>,
    /// What fills its holes, in their order.
    pub captures: Vec<Capture<'t>>,
}

/// All rows, by id.
pub fn all() -> impl ExactSizeIterator<Item = Row> {
    (0..MESSAGE_ROWS.len()).map(|number| Row(number as u16))
}

/// The row of this id.
pub fn get(id: &str) -> Option<Row> {
    let at = MESSAGE_ROWS.partition_point(|row| string(row[0]) < id);
    let row = Row(at as u16);
    (at < MESSAGE_ROWS.len() && row.id() == id).then_some(row)
}

/// Appends all rows that `line` was printed from, the one with most literal text first.
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
        if !row.stands(line, &at) {
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

/// The row that says most of `line`: the one with most literal text.
pub fn best(line: &str) -> Option<Match<'_>> {
    let mut found = Vec::new();
    classify(line, &mut found);
    (!found.is_empty()).then(|| found.swap_remove(0))
}

impl Row {
    fn data(self) -> &'static [u32; 17] {
        &MESSAGE_ROWS[usize::from(self.0)]
    }

    /// Kebab-case.
    pub fn id(self) -> &'static str {
        string(self.data()[0])
    }

    /// One sentence: what it says.
    pub fn says(self) -> &'static str {
        string(self.data()[1])
    }

    /// Programs and versions that print it.
    pub fn by(self) -> &'static str {
        string(self.data()[2])
    }

    /// Where that is known from: repository and path, or a manual.
    pub fn source(self) -> &'static str {
        string(self.data()[3])
    }

    /// The cause, if this line alone decides; else empty.
    pub fn cause(self) -> &'static str {
        string(self.data()[4])
    }

    /// What to do next; may be empty.
    pub fn action(self) -> &'static str {
        string(self.data()[5])
    }

    /// What it is taken for and is not; may be empty.
    pub fn is_not(self) -> &'static str {
        string(self.data()[6])
    }

    /// First version with it, if known.
    pub fn since(self) -> &'static str {
        string(self.data()[7])
    }

    /// Last version with it, if known.
    pub fn until(self) -> &'static str {
        string(self.data()[8])
    }

    /// How far it reaches.
    pub fn role(self) -> Role {
        match self.data()[11] & 3 {
            0 => Role::Harmless,
            1 => Role::Echo,
            2 => Role::Suggests,
            _ => Role::States,
        }
    }

    /// Of whom it speaks.
    pub fn about(self) -> About {
        match self.data()[11] >> 2 & 3 {
            0 => About::Nobody,
            1 => About::Speaker,
            2 => About::Named,
            _ => About::Group,
        }
    }

    /// What the operator sees; `Category::None` for harmless rows and echoes of anything.
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

    /// Causes it may stand for, the likeliest first.
    pub fn candidates(self) -> impl Iterator<Item = &'static str> {
        strings(self.data()[12])
    }

    /// Lines as they are printed; a line feed stands between lines of one message.
    pub fn examples(self) -> impl Iterator<Item = &'static str> {
        strings(self.data()[15])
    }

    /// The pattern as the table writes it.
    pub fn pattern(self) -> String {
        let part = |part: Part| match part {
            Part::Literal(text) => text.to_owned(),
            Part::Hole(hole, _) => {
                format!("{{{}}}", holes::HOLES.get(usize::from(hole)).map_or("", |(name, _)| name))
            }
        };
        self.parts().map(part).collect()
    }

    /// Bytes of literal text: the more, the narrower.
    pub fn literal_bytes(self) -> u32 {
        self.data()[16]
    }

    fn parts(self) -> impl Iterator<Item = Part> {
        let data = self.data();
        let parts = MESSAGE_PARTS.get(data[9] as usize..(data[9] + data[10]) as usize).unwrap_or_default();
        parts.iter().map(|&part| {
            if part & HOLE_BIT == 0 {
                Part::Literal(string(part))
            } else {
                Part::Hole((part >> 8) as u8, Class::of(part & 0xff))
            }
        })
    }

    /// Whether what the row asks of its surroundings holds.
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
    /// What fills the first hole of this kind.
    pub fn of(&self, hole: Hole) -> Option<&'t str> {
        self.captures.iter().find(|c| c.hole == hole).map(|c| c.text)
    }

    /// What fills the first hole of this kind, as a number.
    pub fn number(&self, hole: Hole) -> Option<i64> {
        self.of(hole)?.trim_start_matches('+').parse().ok()
    }

    /// The ranks that the line names: those of `{rank}` and of `{ranks}`, in ascending order, at most `limit`.
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

/// Numbers of a list such as `[0, 2, 5-7]`.
fn spans(text: &str, limit: usize, out: &mut Vec<u32>) {
    for item in text.split(|c: char| !c.is_ascii_digit() && c != '-') {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        if let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) {
            out.extend((first..=last).take(limit.saturating_sub(out.len())));
        }
    }
}

/// Whether nothing but the head of a log line stands before: a message begins here.
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
