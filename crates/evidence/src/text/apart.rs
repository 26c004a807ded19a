//! Ranks that a text sets apart without a word of failure: those for which a list says that the others wait, those that say
//! that they are done, and those with the least to do.
//!
//! ```text
//! Missing ranks:                                            # of tasks that reached the barrier: 5/8.
//! 1: [allreduce.embedding.weight, allreduce.dense.bias]     Some timed out task names:
//! [rank 3] training finished                                /job:jax_worker/replica:0/task:3
//! [rank 0] 163 batches of 65536                             Allreduce_grad_0 [missing ranks: 3, 6]
//! [rank 1] 158 batches of 65536
//! [rank0] valid: start    [rank1] valid: start    [rank2] valid: start    [rank0] valid: done    [rank2] valid: done
//! ```
//! Of lists that are repeated the first counts: later ones name those, too, that wait for the first.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::progress::{self, ProgressSign};
use ringleader_model::{Apart, ApartBy, Fact, Rank, Who};

use super::cited::CitedLine;
use crate::ground::{Line, Sink, lossy};

/// Begins a list of ranks that wait.
const READY: &[u8] = b"[ready ranks: ";
/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 4 << 10;
/// Ranks of one source, and forms of lines that are compared.
const MAX_RANKS: usize = 4_096;
const MAX_FORMS: usize = 256;
/// Different sets of ranks, and tensors, of one report of stalled operations.
const MAX_SETS: usize = 64;
const MAX_TENSORS: usize = 4_096;
/// Fewest speakers among which one can be behind.
const MIN_SPEAKERS: usize = 3;
/// How far into a line the name of its rank may be.
const MAX_AT: usize = 60;
/// Names of the rank that a line is of.
const KEYS: [&str; 6] = ["rank ", "rank: ", "rank=", "rank", "proc ", "worker "];
/// What a rank has to do: shares of the data.
const SHARES: [&str; 12] = [
    "batch",
    "sample",
    "file",
    "shard",
    "row",
    "example",
    "instance",
    "record",
    "steps",
    "minibatch",
    "seed node",
    "item",
];
/// Words of a program that leaves its loop, besides those of [`progress`].
const LEAVES: [&str; 6] =
    ["loss for final step", "early stopping", "out of data", "no more data", "leaving", "returned"];
/// Words that make such a line say something else.
const STAYS: [&str; 6] = ["not ", "epoch", "fail", "error", "until", "waiting"];

/// What the lines of one source tell.
#[derive(Default)]
pub(super) struct ApartReader {
    list: List,
    missing: NamedRanks,
    /// For each tensor of such a list those that have not submitted it.
    lacking: BTreeMap<String, BTreeSet<Rank>>,
    /// Sets of ranks that have, or have not, submitted a tensor.
    submitted: BTreeSet<BTreeSet<Rank>>,
    /// Those that a list names as waiting for the missing ones.
    ready: BTreeSet<Rank>,
    done: NamedRanks,
    spoke: NamedRanks,
    forms: BTreeMap<String, CountForm>,
    /// Lines without their numbers: who printed each, and the last one of each rank.
    printed: BTreeMap<String, BTreeSet<Rank>>,
    last: BTreeMap<Rank, (String, CitedLine)>,
    /// Not all lines were seen.
    is_cut: bool,
}

/// Whether the lines that come are entries of a list.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum List {
    /// None has begun.
    #[default]
    Not,
    /// `1: [tensor, …]`.
    Tensors,
    /// `/job:jax_worker/replica:0/task:3`.
    Tasks,
    /// The first one is over.
    Over,
}

/// Ranks, and the first line that names one.
#[derive(Default)]
struct NamedRanks {
    ranks: BTreeSet<Rank>,
    first: Option<CitedLine>,
}

/// Lines that differ in their numbers only: the count that each rank gives.
struct CountForm {
    counts: BTreeMap<Rank, u64>,
    first: CitedLine,
    /// A rank has several such lines: they count what happens, not what there is.
    repeats: bool,
}

impl NamedRanks {
    fn add(&mut self, rank: Rank, line: &Line<'_>, sink: &Sink<'_>) {
        if self.ranks.len() < MAX_RANKS {
            self.ranks.insert(rank);
            self.first.get_or_insert_with(|| CitedLine::of(line, sink));
        }
    }
}

impl ApartReader {
    /// Looks at a line that no reader has taken. `is_early`: near the beginning, where all lines are seen.
    pub(super) fn line(&mut self, line: &Line<'_>, is_early: bool, sink: &Sink<'_>) {
        self.is_cut |= !is_early;
        if line.body.len() > MAX_BYTES || self.of_list(line, sink) || !is_early {
            return;
        }
        let text = lossy(line.body);
        let lower = text.to_ascii_lowercase();
        let own = of_line(&lower);
        let Some(rank) = own.map(|(_, rank)| rank).or(line.tag.who.rank) else { return };
        self.spoke.add(rank, line, sink);
        if is_last(&text, &lower) {
            self.done.add(rank, line, sink);
        }
        let rest = own.map_or(lower.as_str(), |(behind, _)| behind);
        self.print(rank, rest, line, sink);
        if let Some((form, count)) = share(rest) {
            let is_full = self.forms.len() == MAX_FORMS && !self.forms.contains_key(&form);
            if !is_full {
                let new = || CountForm {
                    counts: BTreeMap::new(),
                    first: CitedLine::of(line, sink),
                    repeats: false,
                };
                let form = self.forms.entry(form).or_insert_with(new);
                form.repeats |= form.counts.insert(rank, count).is_some();
            }
        }
    }

    fn print(&mut self, rank: Rank, rest: &str, line: &Line<'_>, sink: &Sink<'_>) {
        let form: String = rest.chars().filter(|c| !c.is_ascii_digit()).collect();
        if self.printed.len() == MAX_FORMS && !self.printed.contains_key(&form)
            || self.last.len() == MAX_RANKS
        {
            self.is_cut = true;
            return;
        }
        self.printed.entry(form.clone()).or_default().insert(rank);
        self.last.insert(rank, (form, CitedLine::of(line, sink)));
    }

    /// The one rank that has not printed the line with which all others end, but the same as they before that.
    fn behind(&mut self) -> Option<(Rank, CitedLine)> {
        if self.is_cut || self.last.len() < MIN_SPEAKERS {
            return None;
        }
        let (common, others) = self.printed.iter().find(|(form, by)| {
            by.len() + 1 == self.last.len()
                && by.iter().all(|rank| self.last.get(rank).is_some_and(|l| l.0 == **form))
        })?;
        let rank = *self.last.keys().find(|rank| !others.contains(rank))?;
        let (own, _) = self.last.get(&rank)?;
        let is_shared = own != common && self.printed.get(own).is_some_and(|by| by.len() == self.last.len());
        let (_, place) = self.last.remove(&rank).filter(|_| is_shared)?;
        Some((rank, place))
    }

    /// Whether the line is of a list of those that are missing.
    fn of_list(&mut self, line: &Line<'_>, sink: &Sink<'_>) -> bool {
        let body = line.body.trim_ascii();
        if self.list == List::Not {
            self.submitted_by(ready_lists(body));
            let not_ready = not_ready(body);
            if let Some((ready, _)) = &not_ready {
                self.ready.clone_from(ready);
            }
            let of_one = missing_of_one(body);
            if body.ends_with(b"]") {
                self.submitted_by(of_one.iter().map(|ranks| ranks.iter().copied().collect()));
            }
            if let Some(ranks) = of_one.or(not_ready.map(|(_, missing)| missing)) {
                for rank in ranks {
                    self.missing.add(rank, line, sink);
                }
                self.list = List::Over;
                return true;
            }
            self.list = match () {
                () if body == b"Missing ranks:" => List::Tensors,
                () if body.ends_with(b"timed out task names:") => List::Tasks,
                () => return false,
            };
            return true;
        }
        let entry = match self.list {
            List::Tensors => {
                tensors(body).or_else(|| tensors_of_tag(body, line.tag.who.rank)).map(|(rank, names)| {
                    self.lacks(rank, names);
                    rank
                })
            }
            List::Tasks => task(body),
            List::Over => {
                // The older report has a line for each tensor.
                let of_one = missing_of_one(body).filter(|_| body.ends_with(b"]"));
                self.submitted_by(of_one.iter().map(|ranks| ranks.iter().copied().collect()));
                return false;
            }
            List::Not => return false,
        };
        match entry {
            Some(rank) => self.missing.add(rank, line, sink),
            None => self.list = List::Over,
        }
        entry.is_some()
    }

    fn submitted_by(&mut self, sets: impl Iterator<Item = BTreeSet<Rank>>) {
        for set in sets {
            if self.submitted.len() < MAX_SETS {
                self.submitted.insert(set);
            }
        }
    }

    fn lacks(&mut self, rank: Rank, names: &str) {
        for name in names.split(", ").map(|name| name.trim_end_matches(" ...")) {
            if let Some(ranks) = self.lacking.get_mut(name) {
                ranks.insert(rank);
            } else if self.lacking.len() < MAX_TENSORS {
                self.lacking.insert(name.to_owned(), BTreeSet::from([rank]));
            }
        }
    }

    /// Ranks that submitted other tensors than the rest, none if both groups are equally large; and the ranks of both groups.
    fn other_tensors(&mut self) -> Option<(BTreeSet<Rank>, BTreeSet<Rank>)> {
        let lacking = std::mem::take(&mut self.lacking);
        self.submitted_by(lacking.into_values());
        let sets: Vec<BTreeSet<Rank>> = std::mem::take(&mut self.submitted).into_iter().collect();
        let (one, other) = sets.iter().enumerate().find_map(|(n, one)| {
            let other = sets.iter().skip(n + 1).find(|other| other.is_disjoint(one))?;
            Some((one, other))
        })?;
        let few = match one.len().cmp(&other.len()) {
            Ordering::Less => one.clone(),
            Ordering::Greater => other.clone(),
            Ordering::Equal => BTreeSet::new(),
        };
        Some((few, one.union(other).copied().collect()))
    }

    /// Whether it wants the next line, whatever that is.
    pub(super) fn is_in_list(&self) -> bool {
        matches!(self.list, List::Tensors | List::Tasks)
    }

    /// End of the source.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        let speakers: BTreeSet<Rank> = self.last.keys().copied().collect();
        if let Some((rank, place)) = self.behind() {
            push(ApartBy::Behind, BTreeSet::from([rank]), speakers, Some(place), sink);
        }
        if let Some((ranks, both)) = self.other_tensors() {
            push(ApartBy::OtherTensors, ranks, both, self.missing.first.clone(), sink);
        }
        let Self { missing, ready, done, spoke, forms, .. } = std::mem::take(self);
        if !missing.ranks.is_empty() {
            push(ApartBy::Missing, missing.ranks, ready, missing.first, sink);
        }
        // Whoever is done in one source, others may go on in another.
        push(ApartBy::Done, done.ranks, spoke.ranks, done.first.or(spoke.first), sink);
        for form in forms.into_values().filter(|form| !form.repeats) {
            let least = form.counts.values().min().copied().unwrap_or_default();
            let few: BTreeSet<Rank> =
                form.counts.iter().filter(|(_, n)| **n == least).map(|(rank, _)| *rank).collect();
            // Where most have the least, the others have too much.
            if few.len() * 2 <= form.counts.len() {
                push(ApartBy::Least, few, form.counts.into_keys().collect(), Some(form.first), sink);
            }
        }
    }
}

fn push(
    by: ApartBy,
    ranks: BTreeSet<Rank>,
    among: BTreeSet<Rank>,
    first: Option<CitedLine>,
    sink: &mut Sink<'_>,
) {
    let Some(first) = first else { return };
    let apart = Apart { by, ranks: ranks.into_iter().collect(), among: among.into_iter().collect() };
    sink.push(first.cite, Who::default(), first.at, Fact::Apart(Box::new(apart)), &first.text);
}

/// `Allreduce_grad_0 [missing ranks: 3, 6]`, of an older Horovod; `missing ranks: {3, 6}`, of PyTorch's analyzer of its Flight
/// Recorder.
fn missing_of_one(body: &[u8]) -> Option<Vec<Rank>> {
    let list = match body.strip_suffix(b"]") {
        Some(list) => {
            let at = memchr::memmem::rfind(list, b"[missing ranks: ")?;
            list.get(at + b"[missing ranks: ".len()..)?
        }
        None => body.strip_prefix(b"missing ranks: {")?.strip_suffix(b"}")?,
    };
    let list = std::str::from_utf8(list).ok()?;
    list.split(", ").map(|rank| rank.parse().ok().map(Rank)).collect()
}

/// `Stalled ops: Allreduce_grad_0 [ready ranks: 2, 6, 3, 4, 1, 5]`, of the first Horovods: those below the highest rank that are not
/// named, where they are few. Of lists that share nobody, whose ranks wait in different operations, those of the shorter one. All
/// that are compared come first.
fn not_ready(body: &[u8]) -> Option<(BTreeSet<Rank>, Vec<Rank>)> {
    let mut lists = ready_lists(body);
    let first = lists.next()?;
    let last = first.last().filter(|last| (last.0 as usize) < MAX_RANKS)?;
    if let Some(other) = lists.find(|other| other.is_disjoint(&first)) {
        let (few, most) = if other.len() < first.len() { (other, first) } else { (first, other) };
        return (few.len() < most.len())
            .then(|| (most.union(&few).copied().collect(), few.into_iter().collect()));
    }
    let missing: Vec<Rank> = (0..last.0).map(Rank).filter(|rank| !first.contains(rank)).collect();
    (!missing.is_empty() && missing.len() < first.len()).then_some((first, missing))
}

/// The ranks of each `[ready ranks: 2, 6]` of a line.
fn ready_lists(body: &[u8]) -> impl Iterator<Item = BTreeSet<Rank>> {
    memchr::memmem::find_iter(body, READY).filter_map(|at| {
        let list = body.get(at + READY.len()..)?;
        let list = std::str::from_utf8(list.get(..memchr::memchr(b']', list)?)?).ok()?;
        list.split(", ").map(|rank| rank.parse().ok().map(Rank)).collect()
    })
}

/// `1: [allreduce.embedding.weight, …]`: the rank, and the names.
fn tensors(body: &[u8]) -> Option<(Rank, &str)> {
    let (rank, names) = std::str::from_utf8(body).ok()?.split_once(": [")?;
    Some((rank.parse().ok().map(Rank)?, names.trim_end_matches(']')))
}

/// The same where the rank looks like the label of a task (`3: `), which is no part of the line's body.
fn tensors_of_tag(body: &[u8], rank: Option<Rank>) -> Option<(Rank, &str)> {
    let names = std::str::from_utf8(body).ok()?.strip_prefix('[')?;
    Some((rank?, names.trim_end_matches(']')))
}

/// `/job:jax_worker/replica:0/task:3`.
fn task(body: &[u8]) -> Option<Rank> {
    let last = std::str::from_utf8(body).ok()?.rsplit(' ').next()?;
    let (job, task) = last.rsplit_once("/task:")?;
    task.trim_end_matches(',').parse().ok().filter(|_| job.starts_with("/job:")).map(Rank)
}

/// What follows the name of a rank near the beginning of a line, and the rank.
fn of_line(lower: &str) -> Option<(&str, Rank)> {
    KEYS.iter().find_map(|name| {
        lower.match_indices(name).find_map(|(at, _)| {
            let head = lower.get(..at).filter(|_| at <= MAX_AT)?;
            let is_word = !head.ends_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-'));
            let is_other = ["local", "node", "group"].iter().any(|word| head.trim_end().ends_with(word));
            let tail = lower.get(at + name.len()..).filter(|_| is_word && !is_other)?;
            let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
            let rank = tail.get(..end)?.parse().ok()?;
            Some((tail.get(end..)?, Rank(rank)))
        })
    })
}

/// Whether a line says that its program is at its end.
fn is_last(text: &str, lower: &str) -> bool {
    let leaves =
        LEAVES.iter().any(|words| lower.contains(words)) || progress::of(text) == Some(ProgressSign::Done);
    leaves && !STAYS.iter().any(|words| lower.contains(words)) || lower.ends_with(": early stopping")
}

/// The first number that counts shares of the data, and the form of the line: its words without numbers.
fn share(rest: &str) -> Option<(String, u64)> {
    if !SHARES.iter().any(|word| rest.contains(word)) {
        return None;
    }
    let mut form = String::new();
    let mut found = None;
    let mut left = rest;
    while let Some(at) = left.find(|c: char| c.is_ascii_digit()) {
        let (head, tail) = left.split_at_checked(at)?;
        let n = grouped(tail);
        let (number, after) = tail.split_at_checked(n)?;
        form.push_str(head);
        form.push('#');
        let is_of = |word: &str| {
            let behind = after.trim_start_matches([' ', '-', '_']);
            let name = head.trim_end_matches([' ', ':', '=']);
            // `num_batches=7`, `files on this rank: 13`; `163 batches`.
            behind.starts_with(word) || before_of(name).contains(word) && !after.starts_with('.')
        };
        let is_part = head.ends_with(|c: char| c.is_ascii_alphabetic() || c == '.')
            || after.starts_with(|c: char| c.is_ascii_alphabetic() || matches!(c, '.' | '-' | '/'));
        if found.is_none() && !is_part && SHARES.iter().any(|word| is_of(word)) {
            let digits: String = number.chars().filter(char::is_ascii_digit).collect();
            found = digits.parse().ok();
        }
        left = after;
    }
    form.push_str(left);
    Some((form, found?))
}

/// The words right before a number, back to a sign that parts it from others.
fn before_of(head: &str) -> &str {
    head.rsplit([',', ';', '|', '(', ']']).next().unwrap_or(head)
}

/// How many bytes of `text` are one number: `18 946 112`, `18,946,112`, `13`.
fn grouped(text: &str) -> usize {
    let digits = |from: usize| text.bytes().skip(from).take_while(u8::is_ascii_digit).count();
    let mut end = digits(0);
    if end > 3 {
        return end;
    }
    while text.as_bytes().get(end).is_some_and(|b| matches!(b, b' ' | b',')) && digits(end + 1) == 3 {
        end += 4;
    }
    end
}

#[cfg(test)]
mod tests {
    use ringleader_model::{ApartBy, Fact};

    use crate::{Limits, Scratch};

    /// What a log sets apart, each as its kind and ranks.
    fn told(text: &str) -> Vec<String> {
        let read = crate::read("out.log", &mut text.as_bytes(), &mut Scratch::default(), &Limits::default());
        let of = |fact: &Fact| match fact {
            Fact::Apart(apart) => {
                let by = match apart.by {
                    ApartBy::Missing => "missing",
                    ApartBy::Done => "done",
                    ApartBy::Least => "least",
                    ApartBy::Behind => "behind",
                    ApartBy::NotANumber => "nan",
                    ApartBy::OtherTensors => "other",
                };
                let ranks: Vec<String> = apart.ranks.iter().map(|rank| rank.0.to_string()).collect();
                Some(format!("{by} {}", ranks.join(",")))
            }
            _ => None,
        };
        let all = read.observations.iter().filter_map(|o| of(&o.fact));
        all.filter(|told| !told.ends_with(' ')).collect()
    }

    #[test]
    fn groups_that_submitted_other_tensors() {
        let of = |list: &str| -> Vec<String> {
            let all = told(&format!("Missing ranks:\n{list}x\n"));
            all.into_iter().filter(|told| told.starts_with("other")).collect()
        };
        assert_eq!(
            of("0: [allgather.a]\n1: [allreduce.a, allreduce.b]\n2: [allreduce.a, allreduce.b]\n"),
            ["other 0"]
        );
        let halves = "0: [a.3 ...]\n1: [a.3 ...]\n2: [a.2, a.4 ...]\n3: [a.2, a.4 ...]\n4: [a.2, a.4 ...]\n";
        assert_eq!(of(halves), ["other 0,1"]);
        // A rank that is late lacks all of them.
        assert!(of("1: [a, b]\n2: [a]\n").is_empty());
        let rows: Vec<String> =
            (0..6).map(|rank| format!("[1,0]<stderr>:{rank}: [a.{} ...]\n", u32::from(rank > 1))).collect();
        let tagged = rows.concat();
        assert!(told(&format!("[1,0]<stderr>:Missing ranks:\n{tagged}")).contains(&"other 0,1".to_owned()));
        let lines = "Stalled ops:\nmetric_0 [missing ranks: 1, 2]\ngradient_0 [missing ranks: 0]\n";
        assert!(told(lines).contains(&"other 0".to_owned()), "{:?}", told(lines));
    }

    #[test]
    fn those_that_a_list_of_the_ready_lacks() {
        let of = |list: &str| {
            told(&format!("Stalled ops: HorovodAllreduce_grads_5_0 [ready ranks: {list}], b [ready\n"))
        };
        assert_eq!(of("2, 1, 3"), ["missing 0"]);
        assert_eq!(of("3], b [ready ranks: 2, 0, 1], c [ready ranks: 2, 0, 1"), ["other 3", "missing 3"]);
        assert_eq!(of("3, 1], b [ready ranks: 2, 0"), [""; 0]);
        // Higher ones are not known, and most are hardly all at fault.
        for list in ["0, 1, 2", "7", "", "3, x", "1, 99999999999"] {
            assert_eq!(of(list), [""; 0], "{list}");
        }
    }

    #[test]
    fn those_with_the_least_to_do() {
        assert_eq!(told("[rank 0] 163 batches of 65536\n[rank 1] 158 batches of 65536\n"), ["least 1"]);
        let rows = "rank 0 reads 18 946 112 rows, batch 16\nrank 1 reads 18 714 880 rows, batch 16\n\
                    rank 2 reads 18 944 004 rows, batch 16\nrank 3 reads 18 945 020 rows, batch 16\n";
        assert_eq!(told(rows), ["least 1"]);
        let files = "[rank 0] parquet files on this rank: 13\n[rank 1] parquet files on this rank: 13\n\
                     [rank 2] parquet files on this rank: 12\n[rank 3] parquet files on this rank: 13\n";
        assert_eq!(told(files), ["least 2"]);
        // Equal shares, most with the least, and lines of a loop.
        assert!(told("rank 0: 49 samples\nrank 1: 49 samples\n").is_empty());
        assert!(told("rank 0: 49 samples\nrank 1: 47 samples\nrank 2: 47 samples\n").is_empty());
        assert!(
            told("rank 0 step 1: 9 samples\nrank 1 step 1: 8 samples\nrank 0 step 2: 9 samples\n").is_empty()
        );
        assert!(told("rank 0 loss 2.1\nrank 1 loss 2.0\n").is_empty());
    }

    #[test]
    fn the_one_without_the_last_line_of_the_others() {
        let start = "[rank0] valid: start (9)\n[rank1] valid: start (9)\n[rank2] valid: start (9)\n";
        let of = |ends: &str| told(&format!("{start}{ends}"));
        assert_eq!(of("[rank0] valid: reduces 2.6\n[rank2] valid: reduces 2.5\n"), ["behind 1"]);
        // Each of them, one alone, and a rank that prints what it alone prints.
        let all = "[rank0] valid: reduces\n[rank2] valid: reduces\n[rank1] valid: reduces\n";
        assert_eq!(of(all), [""; 0]);
        assert_eq!(of("[rank0] valid: saves\n"), [""; 0]);
        assert_eq!(of("[rank0] valid: reduces\n[rank2] valid: reduces\n[rank1] valid: saves\n"), [""; 0]);
    }

    #[test]
    fn the_one_whose_numbers_are_none() {
        let table = "step  rank0  rank1\n10  0.41  0.40\n20  0.42  nan\n30  0.41  nan\n";
        assert_eq!(told(table), ["nan 1"]);
        // It recovers, both, and a table of something else.
        assert_eq!(told(&format!("{table}40  0.40  0.39\n")), [""; 0]);
        assert_eq!(told("step  rank0  rank1\n10  nan  nan\n20  nan  nan\n"), [""; 0]);
        assert_eq!(told("step  mean  rank1\n10  1.0  nan\n20  1.0  nan\n"), [""; 0]);
    }

    #[test]
    fn those_that_are_done() {
        assert_eq!(told("rank 0 training finished\nrank 1 evaluates\n"), ["done 0"]);
        assert_eq!(told("rank 0 training finished\nrank 1 training finished\n"), ["done 0,1"]);
        assert!(told("rank 0 epoch 3 done\nrank 1 evaluates\n").is_empty());
    }

    #[test]
    fn those_that_the_others_miss() {
        let list = "Missing ranks:\n1: [allreduce.a, allreduce.b]\nfirst\nMissing ranks:\n0: [allreduce.c]\n";
        assert_eq!(told(list), ["missing 1"]);
        let tasks = "Some timed out task names:\n/job:jax_worker/replica:0/task:3\n/job:jax_worker/replica:0/task:4\n\nend\n";
        assert_eq!(told(tasks), ["missing 3,4"]);
        assert_eq!(
            told("Not all ranks joining collective\nmissing ranks: {5, 7}\nmissing ranks: {1}\n"),
            ["missing 5,7"]
        );
        assert_eq!(
            told("Stalled ops:\nA [missing ranks: 3, 6]\nB [missing ranks: 0]\n"),
            ["other 0", "missing 3,6"]
        );
        assert!(told("1: [allreduce.a]\n/job:jax_worker/replica:0/task:3\n").is_empty());
    }
}
