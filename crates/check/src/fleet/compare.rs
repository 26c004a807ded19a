//! Compares the values of nodes.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{hostlist, median};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Fleet;
use super::words::TextId;
use crate::answer::ValueKind;

/// Fewest nodes among which one can be said to differ.
pub(super) const MIN_PEERS: usize = 3;
/// Distance from the median, in standard deviations estimated from the median deviation, above which a reading is
/// named. 5 among many nodes; 8 among few, because a deviation estimated from a handful of nodes is itself
/// uncertain by half.
const FAR: f64 = 5.0;
const FAR_AMONG_FEW: f64 = 8.0;
const FEW: usize = 10;
/// Factor from median deviation to standard deviation for a normal distribution.
const MAD_TO_SIGMA: f64 = 1.4826;
/// Smallest relative distance: among nodes that agree to the last digit, two percent are not a fault.
const LEAST_SHARE: f64 = 0.10;
/// Smallest distance for readings around zero, in the reading's own unit.
const LEAST: f64 = 2.0;
/// Largest number of holders listed.
const MAX_HOLDERS: usize = 12;

/// A value in which nodes differ.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// Key of the value.
    pub key: String,
    /// How it is compared.
    pub kind: ValueKind,
    /// Most nodes agree, and those in `holders` are the ones that differ. False: it is only shown.
    pub is_blamed: bool,
    /// One sentence.
    pub text: String,
    /// What most nodes have: the value, or the median.
    pub usual: Option<String>,
    /// Nodes that have the usual value.
    pub n_usual: usize,
    /// Nodes that differ; all of them if none is blamed.
    pub holders: Vec<Holder>,
    /// Further values that are not listed.
    pub n_more: usize,
}

/// Nodes with one value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Holder {
    /// The value.
    pub value: String,
    /// Who: `node[001-004]`.
    pub hosts: String,
    /// How many.
    pub n_hosts: usize,
}

/// The value of each node.
type Held<'a> = Vec<(&'a str, TextId)>;

/// Values in which nodes differ: blamed ones first, then by key.
pub(super) fn differences(fleet: &Fleet) -> Vec<Difference> {
    let mut by_key: BTreeMap<&str, (ValueKind, Held<'_>)> = BTreeMap::new();
    for (name, kept) in &fleet.nodes {
        let mut push = |key, kind, value| {
            let (of, values) = by_key.entry(key).or_insert((kind, Vec::new()));
            // Versions of the program may disagree on the kind of a value; then only equality is compared.
            if *of != kind {
                *of = ValueKind::Same;
            }
            values.push((name.as_str(), value));
        };
        push("ringleader-version", ValueKind::Same, kept.tool_version);
        let mut seen = BTreeSet::new();
        for (key, kind, value) in &kept.values {
            if seen.insert(*key) {
                push(fleet.words.get(*key), *kind, *value);
            }
        }
    }
    let mut differences: Vec<Difference> = by_key
        .into_iter()
        .filter_map(|(key, (kind, values))| match kind {
            ValueKind::Same => same(fleet, key, &values),
            ValueKind::Near => near(fleet, key, &values),
            // A count on one node says nothing about another's: only a baseline does.
            ValueKind::Counter => None,
        })
        .collect();
    differences.sort_by(|a, b| b.is_blamed.cmp(&a.is_blamed).then_with(|| a.key.cmp(&b.key)));
    differences
}

fn same(fleet: &Fleet, key: &str, values: &[(&str, TextId)]) -> Option<Difference> {
    let mut holders: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, value) in values {
        holders.entry(fleet.words.get(*value)).or_default().push(name);
    }
    if holders.len() < 2 {
        return None;
    }
    let n = values.len();
    let mut holders: Vec<(&str, Vec<&str>)> = holders.into_iter().collect();
    holders.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
    let (usual, n_usual) = (holders[0].0.to_owned(), holders[0].1.len());
    let is_blamed = n >= MIN_PEERS && n_usual * 2 > n;
    let text = if is_blamed {
        let n_off = n - n_usual;
        let verb = if n_off == 1 { "does" } else { "do" };
        format!("{n_usual} of {n} nodes have {usual}; {n_off} {verb} not")
    } else if n < MIN_PEERS {
        "differs; two nodes are too few to show which is right".to_owned()
    } else if holders.len() == 2 && n_usual * 2 == n {
        format!("two equal halves of {n_usual} nodes; this comparison cannot show which is right")
    } else {
        format!("{} values on {n} nodes, and none holds more than half of them", holders.len())
    };
    let shown = holders.iter().skip(usize::from(is_blamed));
    Some(Difference {
        key: key.to_owned(),
        kind: ValueKind::Same,
        is_blamed,
        text,
        usual: is_blamed.then_some(usual),
        n_usual: if is_blamed { n_usual } else { 0 },
        n_more: shown.len().saturating_sub(MAX_HOLDERS),
        holders: shown
            .take(MAX_HOLDERS)
            .map(|(value, names)| Holder {
                value: (*value).to_owned(),
                hosts: hostlist::print(names),
                n_hosts: names.len(),
            })
            .collect(),
    })
}

fn near(fleet: &Fleet, key: &str, values: &[(&str, TextId)]) -> Option<Difference> {
    let mut numbers: Vec<(f64, &str, &str)> = values
        .iter()
        .filter_map(|(name, value)| {
            let text = fleet.words.get(*value);
            let number = text.trim().parse::<f64>().ok().filter(|number| number.is_finite())?;
            Some((number, *name, text))
        })
        .collect();
    let n = numbers.len();
    if n < 2 {
        return None;
    }
    let middle = median::between(numbers.iter().map(|(number, ..)| *number))?;
    let deviation = median::between(numbers.iter().map(|(number, ..)| (number - middle).abs()))?;
    let floor = (middle.abs() * LEAST_SHARE).max(LEAST);
    numbers.sort_by(|a, b| (b.0 - middle).abs().total_cmp(&(a.0 - middle).abs()).then_with(|| a.1.cmp(b.1)));
    if n < MIN_PEERS {
        if (numbers[0].0 - numbers[1].0).abs() <= 2.0 * floor {
            return None;
        }
        return Some(Difference {
            key: key.to_owned(),
            kind: ValueKind::Near,
            is_blamed: false,
            text: "differs; two nodes are too few to show which is right".to_owned(),
            usual: None,
            n_usual: 0,
            n_more: 0,
            holders: numbers.iter().map(holder).collect(),
        });
    }
    let far = if n < FEW { FAR_AMONG_FEW } else { FAR };
    let limit = (far * MAD_TO_SIGMA * deviation).max(floor);
    let n_off = numbers.iter().filter(|(number, ..)| (number - middle).abs() > limit).count();
    if n_off == 0 {
        return None;
    }
    let rest = &numbers[n_off..];
    let (low, high) = rest
        .iter()
        .fold((f64::MAX, f64::MIN), |(low, high), (number, ..)| (low.min(*number), high.max(*number)));
    Some(Difference {
        key: key.to_owned(),
        kind: ValueKind::Near,
        is_blamed: true,
        text: format!("{} of {n} nodes have {} to {}; {n_off} far from it", n - n_off, show(low), show(high)),
        usual: Some(show(middle)),
        n_usual: n - n_off,
        n_more: n_off.saturating_sub(MAX_HOLDERS),
        holders: numbers.iter().take(n_off.min(MAX_HOLDERS)).map(holder).collect(),
    })
}

fn holder((_, name, text): &(f64, &str, &str)) -> Holder {
    Holder { value: (*text).to_owned(), hosts: (*name).to_owned(), n_hosts: 1 }
}

/// At most three decimals, without trailing zeros.
pub(super) fn show(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}
