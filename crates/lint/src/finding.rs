//! Findings: the statement of a rule on a place.

use std::cmp::Ordering;

use ringleader_model::{Confidence, Severity};

/// A place in a file; lines and columns from 1.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Location {
    /// Path of the file.
    pub path: String,
    /// First line.
    pub line: u32,
    /// First column, in characters.
    pub column: u32,
    /// Last line.
    pub end_line: u32,
    /// The column after the last.
    pub end_column: u32,
    /// The function around it: `Class.method`; empty at the top of a file.
    pub function: String,
    /// The text there, its first line.
    pub text: String,
}

/// Another place that matters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Related {
    /// Place of the related code.
    pub place: Location,
    /// Explanation of the place.
    pub text: String,
}

/// A change that keeps the meaning of everything else.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fix {
    /// Description of the change.
    pub text: String,
    /// First byte that is replaced.
    pub at: usize,
    /// The byte after the last.
    pub end: usize,
    /// The replacement text.
    pub with: String,
}

/// One finding.
#[derive(Clone, Debug)]
pub struct LintFinding {
    /// Id of the rule.
    pub rule: &'static str,
    /// Severity of the finding.
    pub severity: Severity,
    /// Confidence of the finding.
    pub confidence: Confidence,
    /// Place of the finding.
    pub place: Location,
    /// The fault, in one line.
    pub title: String,
    /// Why, line by line: both paths, the source of the condition.
    pub why: Vec<String>,
    /// Related places: the condition, the other call.
    pub related: Vec<Related>,
    /// Advice for the author of the code.
    pub help: String,
    /// Documentation of the framework.
    pub page: &'static str,
    /// A safe mechanical change.
    pub fix: Option<Fix>,
}

/// A part of the input that was not read.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Note {
    /// Path of the file.
    pub path: String,
    /// Description of the unread part.
    pub text: String,
}

impl LintFinding {
    /// By file, line, column and rule.
    pub(crate) fn order(&self, other: &Self) -> Ordering {
        let key = |finding: &Self| (finding.place.clone(), finding.rule, finding.title.clone());
        key(self).cmp(&key(other))
    }

    /// A number that stays the same while lines move: rule, file, function, text.
    pub fn fingerprint(&self) -> String {
        let place = &self.place;
        let text: String = place.text.split_whitespace().collect::<Vec<_>>().join(" ");
        let words = [self.rule, &place.path, &place.function, &text];
        let number = words.iter().fold(0xcbf2_9ce4_8422_2325_u64, |state, word| {
            let state = word
                .bytes()
                .fold(state, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
            (state ^ 0xff).wrapping_mul(0x0100_0000_01b3)
        });
        format!("{number:016x}")
    }
}
