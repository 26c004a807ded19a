//! Tables that compare ranks, GPUs or hosts: one row that differs from all others, which agree.
//!
//! ```text
//!   [rank 0] fwd+bwd compute 3.16 s   wait in all-reduce 0.05 s        rank  input_wait  h2d   forward  step_total
//!   [rank 1] fwd+bwd compute 1.10 s   wait in all-reduce 2.11 s        0          11.2   1.9      30.8       303.4
//!   [rank 2] fwd+bwd compute 1.08 s   wait in all-reduce 2.13 s        1         171.6   2.0      30.7       303.5
//! ```
//! Only columns of time, speed and waiting are compared: that ranks differ in memory, losses or tokens means nothing.
//! Tables with a column for each rank or host, and with a row for each pair of hosts, are turned:
//!
//! ```text
//! step |  node-a (0-7)   node-b (8-15)  node-c (16-23)  node-d (24-31)   ms        k17,k31    87.90
//!  100 |        618.2           622.5          1930.0           613.1             k31,k32    49.30
//! ```

use std::collections::BTreeMap;

use ringleader_model::{Fact, Host, Outlier, OutlierKey, Rank, Who, median};

use super::cited::CitedLine;
use super::columns::{FACTOR, SPREAD, slows};
use super::turned;
use crate::ground::{Line, Sink, host_of, lossy};

/// Rows that are kept of one table.
const MAX_ROWS: usize = 4_096;
/// Tables of one source.
const MAX_TABLES: usize = 64;
/// Numbers of one row.
const MAX_COLUMNS: usize = 24;
/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 512;
/// Rows without which there is no majority.
const MIN_KEYS: usize = 4;
/// The name of a row begins within this many bytes: what is further back is not what the line is about. Chosen.
const MAX_BEFORE_KEY: usize = 40;
/// Characters behind a number that may be its unit: `images/s`, `ms per step`. Chosen.
const UNIT_CHARS: usize = 12;
/// Names of rows.
const KEYS: [(&str, bool); 8] = [
    ("rank ", true),
    ("rank", true),
    ("rank=", true),
    ("worker ", true),
    ("gpu ", false),
    ("gpu", false),
    ("adapter#", false),
    ("device ", false),
];
/// The tables of one source.
#[derive(Default)]
pub(super) struct OutlierReader {
    tables: BTreeMap<String, OutlierTable>,
    header: Vec<String>,
    /// The same, parted where two blanks are.
    names: Vec<String>,
    /// Whose the columns are.
    turned: Vec<OutlierKey>,
    of_ranks: turned::RankColumns,
    pairs: Vec<([Host; 2], f64, CitedLine)>,
    /// What the rows that follow are about.
    section: String,
}

struct OutlierTable {
    columns: Vec<String>,
    rows: Vec<OutlierRow>,
}

struct OutlierRow {
    key: OutlierKey,
    numbers: Vec<f64>,
    place: CitedLine,
}

/// What a row says: the shape of its table, whose it is, its columns and its numbers.
type Parsed = (String, OutlierKey, Vec<String>, Vec<f64>);

impl OutlierReader {
    /// Looks at a line that no reader has taken.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &Sink<'_>) {
        let Some(body) = (line.body.len() <= MAX_BYTES).then(|| lossy(line.body)) else { return };
        let lower = body.to_ascii_lowercase();
        let words: Vec<&str> = lower.split_whitespace().collect();
        self.of_ranks.line(&lower, || CitedLine::of(line, sink));
        if let Some(columns) = turned::heads(&lower) {
            (self.turned, self.header) = (columns, Vec::new());
            return;
        }
        if is_header(&words) {
            // `ep rank   tokens received`: whose, then what.
            let words =
                if words.get(1) == Some(&"rank") { words.get(1..).unwrap_or_default() } else { &words };
            self.header = words.iter().map(|w| (*w).to_owned()).collect();
            self.names =
                lower.split("  ").map(str::trim).filter(|c| !c.is_empty()).map(str::to_owned).collect();
            self.turned.clear();
            return;
        }
        if let Some(values) = turned::values(&lower, self.turned.len()) {
            for (key, value) in self.turned.clone().into_iter().zip(values) {
                self.add(("turned".to_owned(), key, vec!["time".to_owned()], vec![value]), line, sink);
            }
            return;
        }
        if let Some((pair, value)) = turned::pair(&words) {
            if self.pairs.len() < MAX_ROWS {
                self.pairs.push((pair, value, CitedLine::of(line, sink)));
            }
            return;
        }
        if let Some(section) = turned::section(&lower) {
            self.section = section;
        }
        let row = self.of_header(&words).or_else(|| of_named(&lower, line.tag.who.rank));
        let Some(row) = row else {
            if words.len() < 2 {
                self.header.clear();
            }
            return;
        };
        self.add(row, line, sink);
    }

    fn add(&mut self, row: Parsed, line: &Line<'_>, sink: &Sink<'_>) {
        let (mut shape, key, columns, numbers) = row;
        // `Rank 6: 272.49ms` stands below `forward:` and below others.
        if columns.len() == 1 {
            shape.push_str(&self.section);
        }
        if !columns.iter().any(|c| slows(c).is_some()) {
            return;
        }
        let is_full = self.tables.len() == MAX_TABLES && !self.tables.contains_key(&shape);
        let table = (!is_full)
            .then(|| self.tables.entry(shape).or_insert_with(|| OutlierTable { columns, rows: Vec::new() }));
        if let Some(table) = table.filter(|t| t.rows.len() < MAX_ROWS && t.columns.len() == numbers.len()) {
            table.rows.push(OutlierRow { key, numbers, place: CitedLine::of(line, sink) });
        }
    }

    /// A row below a header whose first word names ranks, GPUs or nodes.
    fn of_header(&self, words: &[&str]) -> Option<Parsed> {
        let (first, names) = self.header.split_first()?;
        let (name, values) = words.split_first()?;
        // Names of several words stand further apart than these words.
        let names = match self.names.split_first() {
            Some((_, apart)) if apart.len() == values.len() => apart,
            _ => names,
        };
        let key = match first.trim_matches(['#', ':']) {
            "rank" | "worker" => {
                OutlierKey::Rank(Rank(name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()?))
            }
            "gpu" | "device" => {
                OutlierKey::Gpu(name.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().ok()?)
            }
            _ => OutlierKey::Host(host_of(name)),
        };
        if values.len() < 2 || values.len().abs_diff(names.len()) > 2 {
            return None;
        }
        let mut columns = Vec::new();
        let mut numbers = Vec::new();
        for (n, value) in values.iter().enumerate().take(MAX_COLUMNS) {
            let number = value.trim_end_matches(['%', 's', 'm', 'x', ',']).parse::<f64>();
            if let Ok(number) = number {
                // Words of a header may be apart: only a table that fits has names.
                let name = names.get(n).filter(|_| names.len() == values.len()).cloned();
                columns.push(name.unwrap_or_else(|| self.header.join(" ")));
                numbers.push(number);
            }
        }
        (!numbers.is_empty()).then(|| (format!("table {}", self.header.join(" ")), key, columns, numbers))
    }

    /// End of the source.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        if let Some((apart, place)) = self.of_ranks.finish() {
            sink.push(place.cite, Who::default(), place.at, Fact::Apart(Box::new(apart)), &place.text);
        }
        for table in std::mem::take(&mut self.tables).into_values() {
            if let Some((outlier, row)) = table.outlier() {
                push(outlier, &row.place, sink);
            }
        }
        if let Some((outlier, place)) = turned::of_pairs(&std::mem::take(&mut self.pairs)) {
            push(outlier, &place, sink);
        }
    }
}

fn push(outlier: Outlier, place: &CitedLine, sink: &mut Sink<'_>) {
    sink.push(place.cite, Who::default(), place.at, Fact::Outlier(Box::new(outlier)), &place.text);
}

impl OutlierTable {
    /// The one row that differs, in the column in which it differs most.
    fn outlier(&self) -> Option<(Outlier, &OutlierRow)> {
        let mut keys: Vec<&OutlierKey> = Vec::new();
        for row in &self.rows {
            if !keys.contains(&&row.key) {
                keys.push(&row.key);
            }
        }
        if keys.len() < MIN_KEYS {
            return None;
        }
        let mut best: Option<(f64, Outlier, &OutlierRow)> = None;
        for (n, column) in self.columns.iter().enumerate() {
            let Some(slow_is_more) = slows(column) else { continue };
            let mut typical: Vec<(usize, f64)> =
                keys.iter().enumerate().filter_map(|(k, key)| Some((k, self.median_of(key, n)?))).collect();
            typical.sort_by(|a, b| a.1.total_cmp(&b.1));
            let odd =
                if slow_is_more { typical.pop() } else { (!typical.is_empty()).then(|| typical.remove(0)) };
            let Some((odd, value)) = odd else { continue };
            let others = median::upper(typical.iter().map(|(_, v)| *v)).unwrap_or_default();
            let agree = typical.iter().all(|(_, v)| (v - others).abs() <= SPREAD * others.abs());
            let factor = if slow_is_more { value / others } else { others / value };
            if !agree || others <= 0.0 || value <= 0.0 || !factor.is_finite() || factor < FACTOR {
                continue;
            }
            let Some(row) = keys.get(odd).and_then(|key| self.rows.iter().find(|r| r.key == **key)) else {
                continue;
            };
            if best.as_ref().is_none_or(|(most, ..)| factor > *most) {
                let (key, n_rows) = (row.key.clone(), keys.len() as u32);
                best = Some((
                    factor,
                    Outlier { key, column: column.as_str().into(), value, others, n_rows },
                    row,
                ));
            }
        }
        best.map(|(_, outlier, row)| (outlier, row))
    }

    fn median_of(&self, key: &OutlierKey, column: usize) -> Option<f64> {
        let own = self.rows.iter().filter(|r| r.key == *key);
        median::upper(own.filter_map(|r| r.numbers.get(column)).copied())
    }
}

fn is_header(words: &[&str]) -> bool {
    let words = match words {
        ["ep" | "dp" | "tp" | "pp" | "global", rest @ ..] => rest,
        words => words,
    };
    let first = words.first().map(|w| w.trim_matches(['#', ':'])).unwrap_or_default();
    let first = if first.is_empty() { words.get(1).copied().unwrap_or_default() } else { first };
    matches!(first, "rank" | "worker" | "gpu" | "device" | "node" | "host" | "pod")
        && words.len() >= 3
        && !words.iter().any(|w| w.starts_with(|c: char| c.is_ascii_digit()))
}

/// `[rank 3] forward 1.1 s`: a key by name, and each number with the words before it.
fn of_named(lower: &str, said_by: Option<Rank>) -> Option<Parsed> {
    let found = KEYS.iter().find_map(|(name, is_rank)| {
        lower.match_indices(name).find_map(|(at, _)| {
            let head = lower.get(..at)?;
            if head.ends_with(|c: char| c.is_ascii_alphabetic()) && !head.ends_with("dp_")
                || at > MAX_BEFORE_KEY
            {
                return None;
            }
            let tail = lower.get(at + name.len()..)?;
            let end = tail.find(|c: char| !c.is_ascii_digit()).unwrap_or(tail.len());
            let number: u32 = tail.get(..end)?.parse().ok()?;
            Some((at, at + name.len() + end, *is_rank, number))
        })
    });
    let (start, end, key) = match (found, said_by) {
        (Some((start, end, true, n)), _) => (start, end, OutlierKey::Rank(Rank(n))),
        (Some((start, end, false, n)), _) => (start, end, OutlierKey::Gpu(n)),
        (None, Some(rank)) => (0, 0, OutlierKey::Rank(rank)),
        (None, None) => return None,
    };
    let mut shape = String::new();
    let (mut columns, mut numbers) = (Vec::new(), Vec::new());
    let head = lower.get(..start)?;
    shape.extend(head.chars().filter(|c| !c.is_ascii_digit()));
    let mut name = String::new();
    let mut rest = lower.get(end..)?;
    while let Some(at) = rest.find(|c: char| c.is_ascii_digit()) {
        let before = rest.get(..at)?;
        name.push_str(before);
        let tail = rest.get(at..)?;
        let n = tail.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(tail.len());
        let (number, after) = tail.split_at(n);
        // A digit within a word is no number of its own.
        let is_word = before.ends_with(|c: char| c.is_ascii_alphabetic() || c == '_')
            || after.starts_with(|c: char| c.is_ascii_alphabetic()) && !unit(after);
        if !is_word
            && numbers.len() < MAX_COLUMNS
            && let Ok(number) = number.trim_end_matches('.').parse::<f64>()
        {
            // What follows may be its unit.
            let behind: String = after.chars().take(UNIT_CHARS).take_while(|c| !c.is_ascii_digit()).collect();
            columns.push(format!("{} {}", name.trim(), behind.trim()));
            numbers.push(number);
            shape.push_str(name.trim());
            shape.push('#');
            name.clear();
        }
        rest = after;
    }
    (!numbers.is_empty()).then_some((shape, key, columns, numbers))
}

fn unit(text: &str) -> bool {
    ["s", "ms", "us", "x", "gb", "mb", "gflops", "tflops"].iter().any(|u| {
        text.strip_prefix(u).is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_alphanumeric()))
    })
}

#[cfg(test)]
mod tests {
    use ringleader_model::{OutlierKey, Rank};

    use super::{is_header, of_named, slows};

    #[test]
    fn rows_by_their_names() {
        let (_, key, columns, numbers) =
            of_named("[rank 3] fwd+bwd compute 3.16 s   wait in all-reduce 0.05 s", None).expect("a row");
        assert_eq!(key, OutlierKey::Rank(Rank(3)));
        assert_eq!(numbers, [3.16, 0.05]);
        assert!(columns.iter().all(|c| slows(c) == Some(true)), "{columns:?}");
        assert!(of_named("step 12 loss 2.0", None).is_none());
    }

    #[test]
    fn columns_that_tell_of_speed() {
        assert_eq!(slows("ending with gflops"), Some(false));
        assert_eq!(slows("input_wait"), Some(true));
        assert_eq!(slows("memory allocated gb"), None);
        assert_eq!(slows("loss"), None);
    }

    #[test]
    fn headers() {
        assert!(is_header(&["rank", "input_wait", "h2d"]));
        assert!(is_header(&["#", "node", "pod", "batch"]));
        assert!(!is_header(&["rank", "3", "of", "8"]));
    }
}
