//! Tables that have a column for each rank or host, and tables of pairs of hosts.

use ringleader_model::{Apart, ApartBy, Host, Outlier, OutlierKey, Rank, median};

use super::cited::CitedLine;
use super::columns::{FACTOR, SPREAD, slows};
use crate::ground::host_of;

/// Columns without which there is no majority.
const MIN_COLUMNS: usize = 4;
/// Columns of ranks that are compared, and rows in a row without a number.
const MIN_RANKS: usize = 2;
const MIN_NAN_ROWS: u32 = 2;
/// Most columns.
const MAX_COLUMNS: usize = 64;
/// Pairs without which no host is known to be slow in all of its own, and no other one in any.
const MIN_PAIRS: usize = 4;
/// Slow pairs of one host.
const MIN_SLOW: usize = 2;
/// How many times slower pairs with a slow host are.
const PAIR_FACTOR: f64 = 1.5;

/// Whose the columns of a table are, by its head: `step | node-a (0-7) node-b (8-15) …`, `step rank0 rank1 …`.
pub(super) fn heads(lower: &str) -> Option<Vec<OutlierKey>> {
    // A head says what is measured.
    if lower.contains("loss") || slows(lower).is_none() {
        return None;
    }
    let words = lower.split_whitespace().filter(|w| *w != "|" && !w.starts_with('('));
    let mut keys = Vec::new();
    let mut stem: Option<&str> = None;
    for word in words {
        let word = word.trim_matches(['|', ',', ':']);
        let Some((start, key)) = numbered(word) else {
            // What stands behind the columns is about all of them.
            if keys.is_empty() || keys.len() >= MIN_COLUMNS {
                continue;
            }
            return None;
        };
        if stem.is_some_and(|stem| stem != start) {
            return None;
        }
        stem = Some(start);
        keys.push(key);
    }
    let is_table = (MIN_COLUMNS..=MAX_COLUMNS).contains(&keys.len());
    let is_each_once = || keys.iter().enumerate().all(|(n, key)| !keys.iter().skip(n + 1).any(|k| k == key));
    (is_table && is_each_once()).then_some(keys)
}

/// A table with a column for each rank, whatever it shows, and how its numbers end.
#[derive(Default)]
pub(super) struct RankColumns {
    ranks: Vec<Rank>,
    /// Rows from the first one on in which this column is not a number; 0 again after a number.
    not_numbers: Vec<u32>,
    first: Option<CitedLine>,
}

impl RankColumns {
    /// Looks at a line: a head, `step rank0 rank1 …`, or a row below it.
    pub(super) fn line(&mut self, lower: &str, place: impl FnOnce() -> CitedLine) {
        if let Some(ranks) = rank_heads(lower) {
            *self = Self { not_numbers: vec![0; ranks.len()], ranks, first: None };
            return;
        }
        let Some(numbers) = values(lower, self.ranks.len()) else { return };
        for (count, number) in self.not_numbers.iter_mut().zip(&numbers) {
            *count = if number.is_finite() { 0 } else { *count + 1 };
        }
        if self.first.is_none() && self.not_numbers.iter().any(|n| *n > 0) {
            self.first = Some(place());
        }
    }

    /// The one rank whose last values are not numbers, while those of the others are.
    pub(super) fn finish(&mut self) -> Option<(Apart, CitedLine)> {
        let Self { ranks, not_numbers, first } = std::mem::take(self);
        let mut bad = ranks.iter().zip(&not_numbers).filter(|(_, n)| **n > 0);
        let (rank, n) = bad.next()?;
        let is_one = bad.next().is_none() && *n >= MIN_NAN_ROWS;
        let apart = Apart { by: ApartBy::NotANumber, ranks: vec![*rank], among: ranks.clone() };
        Some((apart, first?)).filter(|_| is_one)
    }
}

/// The ranks of a head such as `step rank0 rank1`.
fn rank_heads(lower: &str) -> Option<Vec<Rank>> {
    let mut words = lower.split_whitespace().filter(|w| *w != "|").peekable();
    if words
        .peek()
        .is_some_and(|w| matches!(w.trim_matches(['#', ':']), "step" | "iter" | "iteration" | "epoch"))
    {
        words.next();
    }
    let rank = |word: &str| match numbered(word.trim_matches(['|', ',', ':']))? {
        ("rank", OutlierKey::Rank(rank)) => Some(rank),
        _ => None,
    };
    let ranks: Vec<Rank> = words.map(rank).collect::<Option<_>>()?;
    let is_sorted = ranks.windows(2).all(|pair| matches!(pair, [a, b] if a < b));
    ((MIN_RANKS..=MAX_COLUMNS).contains(&ranks.len()) && is_sorted).then_some(ranks)
}

/// `rank3`, `gpu3`, `node-c`, `k32`: what columns of one kind have in common, and whose this one is.
fn numbered(word: &str) -> Option<(&str, OutlierKey)> {
    let n = word.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (stem, number) = word.split_at_checked(n)?;
    match stem.trim_end_matches(['-', '_', '=']) {
        "rank" | "r" | "worker" => Some(("rank", OutlierKey::Rank(Rank(number.parse().ok()?)))),
        "gpu" | "g" | "dev" | "device" => Some(("gpu", OutlierKey::Gpu(number.parse().ok()?))),
        _ => {
            // `node-a`: a letter counts as well.
            let (stem, last) = match number {
                "" => word.rsplit_once('-').filter(|(_, last)| last.len() == 1)?,
                _ => (stem, number),
            };
            let is_name = stem.starts_with(|c: char| c.is_ascii_alphabetic()) && stem.len() + last.len() < 64;
            let is_host = is_name && stem.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b));
            is_host.then(|| (stem, OutlierKey::Host(host_of(word))))
        }
    }
}

/// The numbers of a row of such a table, which begins with that of a step.
pub(super) fn values(lower: &str, n_columns: usize) -> Option<Vec<f64>> {
    if n_columns == 0 {
        return None;
    }
    let words = lower.split_whitespace().filter(|w| *w != "|");
    let numbers: Vec<f64> = words.map(|w| w.trim_matches(['|', ',']).parse().ok()).collect::<Option<_>>()?;
    match numbers.len().checked_sub(n_columns) {
        Some(n @ (0 | 1)) => numbers.get(n..).map(<[f64]>::to_vec),
        _ => None,
    }
}

/// `k31,k32  49.30`, `node1 <-> node2: 88.4`: two hosts and one number.
pub(super) fn pair(words: &[&str]) -> Option<([Host; 2], f64)> {
    let (names, value): (Vec<&str>, &str) = match words {
        [both, value] => (both.split([',', '/']).collect(), value),
        // Of several columns the last one is the bandwidth.
        [one, "-" | "<->" | "->" | "--" | "and" | "+", other, .., value] => (vec![one, other], value),
        [one, other, value] => (vec![one, other], value),
        _ => return None,
    };
    let [one, other] = names.as_slice() else { return None };
    let is_host = |name: &str| {
        let name = name.trim_end_matches(':');
        name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.contains(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
    };
    let value: f64 = value.parse().ok().filter(|v: &f64| v.is_finite() && *v > 0.0)?;
    let name = |name: &str| host_of(name.trim_end_matches(':'));
    (is_host(one) && is_host(other) && one != other).then(|| ([name(one), name(other)], value))
}

/// `forward:` above the numbers of each rank.
pub(super) fn section(lower: &str) -> Option<String> {
    let name = lower.trim().strip_suffix(':')?;
    let is_name = !name.is_empty() && name.len() < 40 && !name.contains(|c: char| c.is_ascii_digit());
    is_name.then(|| format!("{name} "))
}

/// The one host that is slow in all of its pairs, where all pairs without it are fast. In GB/s more is fast; what is slow has less.
pub(super) fn of_pairs(pairs: &[([Host; 2], f64, CitedLine)]) -> Option<(Outlier, CitedLine)> {
    if pairs.len() < MIN_PAIRS {
        return None;
    }
    let mut hosts: Vec<&Host> = pairs.iter().flat_map(|(hosts, ..)| hosts).collect();
    hosts.sort();
    hosts.dedup();
    let slow = hosts.iter().filter_map(|host| {
        let (own, rest): (Vec<_>, Vec<_>) = pairs.iter().partition(|(both, ..)| both.contains(host));
        let (own_values, others): (Vec<f64>, Vec<f64>) =
            (own.iter().map(|p| p.1).collect(), rest.iter().map(|p| p.1).collect());
        let most = own_values.iter().copied().fold(0.0, f64::max);
        let (value, usual) = (median::upper(own_values)?, median::upper(others.iter().copied())?);
        let agree = others.iter().all(|v| (v - usual).abs() <= SPREAD * usual);
        let is_slow = own.len() >= MIN_SLOW && rest.len() >= MIN_SLOW && usual / most >= PAIR_FACTOR && agree;
        let place = own.first().map(|p| p.2.clone())?;
        is_slow.then_some((*host, value, usual, place))
    });
    let all: Vec<_> = slow.collect();
    let [(host, value, others, place)] = all.as_slice() else { return None };
    let outlier = Outlier {
        key: OutlierKey::Host((*host).clone()),
        column: "bandwidth of its pairs".into(),
        value: *value,
        others: *others,
        n_rows: u32::try_from(hosts.len()).unwrap_or(u32::MAX),
    };
    // It must pass where findings ask for more.
    (others / value >= FACTOR.min(PAIR_FACTOR)).then(|| (outlier, place.clone()))
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, OutlierKey, Rank};

    use super::{heads, pair, values};

    fn found(text: &str) -> Vec<(OutlierKey, f64, f64)> {
        let (mut scratch, limits) = (crate::Scratch::default(), crate::Limits::default());
        let extract = crate::read("times.txt", &mut text.as_bytes(), &mut scratch, &limits);
        let of = |fact: &Fact| match fact {
            Fact::Outlier(o) => Some((o.key.clone(), o.value, o.others)),
            _ => None,
        };
        extract.observations.iter().filter_map(|o| of(&o.fact)).collect()
    }

    #[test]
    fn a_column_for_each_host() {
        let head = "step |  node-a (0-7)   node-b (8-15)  node-c (16-23)  node-d (24-31)   forward, ms\n";
        let rows = " 100 |  618.2  622.5  1930.0  613.1\n 200 |  612.1  618.0  1894.7  623.2\n";
        let all = found(&format!("{head}{rows}"));
        assert_eq!(all, [(OutlierKey::Host("node-c".into()), 1930.0, 622.5)]);
        // Losses differ in healthy jobs, too.
        assert!(found(&format!("{}{rows}", head.replace("forward, ms", "loss"))).is_empty());
        assert!(
            found(&format!("{head}{}", rows.replace("1930.0", "630.0").replace("1894.7", "611.0")))
                .is_empty()
        );
    }

    #[test]
    fn heads_and_rows() {
        let ranks = heads("step time rank0 rank1 rank2 rank3").expect("a table");
        assert_eq!(ranks.last(), Some(&OutlierKey::Rank(Rank(3))));
        assert!(heads("time of node1 and rank2 is 3 ms").is_none());
        assert!(heads("step time data1 load2 fwd3 bwd4").is_none());
        assert_eq!(values("100 | 1.0 2.0 3.0 4.0", 4).as_deref(), Some(&[1.0, 2.0, 3.0, 4.0][..]));
        assert!(values("step 100 1 2 3 4", 4).is_none());
    }

    #[test]
    fn pairs_of_hosts() {
        let text =
            "k17,k18 88.31\nk17,k31 87.90\nk18,k33 86.97\nk31,k32 49.30\nk17,k32 49.36\nk32,k33 49.41\n";
        assert_eq!(found(text), [(OutlierKey::Host("k32".into()), 49.36, 87.90)]);
        // One slow pair is a link, or chance.
        assert!(found(&text.replace("49.36", "88.0").replace("49.41", "87.7")).is_empty());
        assert!(pair(&["epoch", "3", "0.5"]).is_none());
        let columns = ["n01", "-", "n06", "0.4392", "9.1"];
        assert_eq!(
            pair(&columns).map(|(hosts, value)| (hosts[1].to_string(), value)),
            Some(("n06".into(), 9.1))
        );
        assert!(pair(&["k1", "k1", "0.5"]).is_none());
    }

    #[test]
    fn a_report_by_sections() {
        let rows = |slow: &str| {
            let row = |n: u32, ms: &str| format!("    Rank {n}: {ms}ms\n");
            format!(
                "  forward:\n{}{}{}{}",
                row(0, "143.98"),
                row(1, "140.21"),
                row(2, slow),
                row(3, "140.47")
            )
        };
        assert_eq!(found(&rows("272.49")), [(OutlierKey::Rank(Rank(2)), 272.49, 140.47)]);
        assert!(found(&rows("150.1")).is_empty());
        assert!(found(&rows("272.49").replace("ms\n", "mb\n")).is_empty());
    }
}
