//! Stacks of all ranks as one tree with counts, outliers first.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Frames of a stack that are kept, the innermost ones.
const MAX_DEPTH: usize = 96;
/// Lines that are printed.
const MAX_LINES: usize = 400;

/// A frame, and the ranks that are in it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Branch {
    /// The frame.
    pub frame: String,
    /// Ranks, ascending.
    pub ranks: Vec<u32>,
    /// What they called from there: the fewest ranks first.
    pub calls: Vec<Branch>,
}

/// One tree of all stacks, each with its outermost frame first. The root is no frame.
pub fn merge<'a>(stacks: impl IntoIterator<Item = (u32, &'a [String])>) -> Branch {
    let mut by_rank: Vec<(u32, &[String])> = stacks.into_iter().collect();
    by_rank.sort_unstable();
    by_rank.dedup_by_key(|(rank, _)| *rank);
    grow(String::new(), &by_rank, 0)
}

fn grow(frame: String, stacks: &[(u32, &[String])], depth: usize) -> Branch {
    let mut calls: BTreeMap<&str, Vec<(u32, &[String])>> = BTreeMap::new();
    if depth < MAX_DEPTH {
        for (rank, frames) in stacks {
            if let Some((first, rest)) = frames.split_first() {
                calls.entry(first).or_default().push((*rank, rest));
            }
        }
    }
    let mut calls: Vec<Branch> =
        calls.into_iter().map(|(frame, stacks)| grow(frame.to_owned(), &stacks, depth + 1)).collect();
    calls.sort_by(|a, b| (a.ranks.len(), &a.frame).cmp(&(b.ranks.len(), &b.frame)));
    Branch { frame, ranks: stacks.iter().map(|(rank, _)| *rank).collect(), calls }
}

impl Branch {
    /// The tree as text: one line a frame, deeper ones indented where the ways part, with the ranks where they do.
    pub fn render(&self) -> String {
        let mut lines = Vec::new();
        for branch in &self.calls {
            branch.lines(0, true, &mut lines);
        }
        let left = lines.len().saturating_sub(MAX_LINES);
        lines.truncate(MAX_LINES);
        if left > 0 {
            lines.push(format!("({left} more lines)"));
        }
        lines.join("\n")
    }

    fn lines(&self, indent: usize, named: bool, out: &mut Vec<String>) {
        let pad = "  ".repeat(indent);
        if named {
            let n = self.ranks.len();
            let ranks = if n == 1 { "rank" } else { "ranks" };
            out.push(format!("{pad}{}  [{n}: {ranks} {}]", self.frame, ranges(&self.ranks)));
        } else {
            out.push(format!("{pad}{}", self.frame));
        }
        // One way on for all is no branch: it needs no deeper line.
        let goes_on = self.calls.len() == 1 && self.calls.iter().all(|c| c.ranks.len() == self.ranks.len());
        for call in &self.calls {
            call.lines(if goes_on { indent } else { indent + 1 }, !goes_on, out);
        }
    }
}

/// Ascending numbers as people write them: `0-3,7`.
pub fn ranges(ranks: &[u32]) -> String {
    /// Ranges that are written out.
    const MOST: usize = 12;
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match spans.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(*rank) => *last = *rank,
            Some((_, last)) if *last == *rank => {}
            _ => spans.push((*rank, *rank)),
        }
    }
    let mut parts: Vec<String> = spans
        .iter()
        .take(MOST)
        .map(|(a, b)| if a == b { a.to_string() } else { format!("{a}-{b}") })
        .collect();
    if spans.len() > MOST {
        parts.push("...".to_owned());
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::{merge, ranges};

    fn stacks(lines: &[(u32, &str)]) -> Vec<(u32, Vec<String>)> {
        lines.iter().map(|(rank, frames)| (*rank, frames.split(' ').map(str::to_owned).collect())).collect()
    }

    #[test]
    fn outliers_first() {
        let stacks = stacks(&[
            (2, "main step all_reduce"),
            (0, "main step all_reduce"),
            (1, "main save fsync"),
            (3, "main step all_reduce"),
        ]);
        let tree = merge(stacks.iter().map(|(r, s)| (*r, s.as_slice())));
        let text =
            "main  [4: ranks 0-3]\n  save  [1: rank 1]\n  fsync\n  step  [3: ranks 0,2-3]\n  all_reduce";
        assert_eq!(tree.render(), text);
        let other = merge(stacks.iter().rev().map(|(r, s)| (*r, s.as_slice())));
        assert_eq!(tree, other, "the order of ranks does not matter");
    }

    #[test]
    fn bounded() {
        let deep: Vec<String> = (0..5000).map(|i| format!("f{i}")).collect();
        assert!(merge([(0, deep.as_slice())]).render().lines().count() <= 100);
        let wide: Vec<(u32, Vec<String>)> = (0..5000).map(|i| (i, vec![format!("f{i}")])).collect();
        let text = merge(wide.iter().map(|(r, s)| (*r, s.as_slice()))).render();
        assert!(text.lines().count() <= 401 && text.ends_with("more lines)"), "{}", text.len());
        assert_eq!(merge([]).render(), "");
    }

    #[test]
    fn as_people_write_them() {
        assert_eq!(ranges(&[0, 1, 3]), "0-1,3");
        assert_eq!(ranges(&[]), "");
        let odd: Vec<u32> = (0..100).map(|i| i * 2).collect();
        assert!(ranges(&odd).ends_with(",..."));
    }
}
