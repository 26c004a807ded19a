//! Lists of hosts in Slurm's notation: `node[001-004,017],login`.
//!
//! Source: slurm/src/common/hostlist.c; the notation that `scontrol show hostlist` prints and `scontrol show
//! hostnames` expands.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Largest number of hosts in a list: more than any cluster has, fewer than a typing error can produce.
pub const MAX_HOSTS: usize = 1 << 17;

/// The hosts of a list, in order, each once.
///
/// # Errors
/// What is wrong with the list, worded as the end of a sentence.
pub fn parse(text: &str) -> Result<Vec<String>, String> {
    let mut hosts = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for part in parts(text)? {
        for host in expand(part)? {
            if seen.insert(host.clone()) {
                hosts.push(host);
            }
            if hosts.len() > MAX_HOSTS {
                return Err(format!("'{part}' stands for more than {MAX_HOSTS} hosts"));
            }
        }
    }
    Ok(hosts)
}

/// Splits at commas and white space outside of brackets.
fn parts(text: &str) -> Result<Vec<&str>, String> {
    let (mut parts, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' if inside => return Err(format!("'{text}' has a bracket within brackets")),
            '[' => inside = true,
            ']' if !inside => return Err(format!("'{text}' closes a bracket that is not open")),
            ']' => inside = false,
            c if !inside && (c == ',' || c.is_whitespace()) => {
                parts.push(&text[start..at]);
                start = at + c.len_utf8();
            }
            _ => {}
        }
    }
    if inside {
        return Err(format!("'{text}' leaves a bracket open"));
    }
    parts.push(&text[start..]);
    Ok(parts.into_iter().filter(|part| !part.is_empty()).collect())
}

/// Expands one name with brackets; each further pair multiplies.
fn expand(part: &str) -> Result<Vec<String>, String> {
    let mut names = vec![String::new()];
    let mut rest = part;
    loop {
        let Some((before, after)) = rest.split_once('[') else {
            for name in &mut names {
                name.push_str(rest);
            }
            break;
        };
        let (inside, after) = after.split_once(']').unwrap_or((after, ""));
        let numbers = numbers(part, inside)?;
        if names.len().saturating_mul(numbers.len()) > MAX_HOSTS {
            return Err(format!("'{part}' stands for more than {MAX_HOSTS} hosts"));
        }
        names = names
            .iter()
            .flat_map(|name| numbers.iter().map(move |number| format!("{name}{before}{number}")))
            .collect();
        rest = after;
    }
    for name in &names {
        // A program that connects to the host would parse a leading dash as an option.
        if name.starts_with('-')
            || name.chars().any(|c| c.is_control() || c.is_whitespace() || "'\"\\$`;|&<>".contains(c))
        {
            return Err(format!("'{name}' is no name of a host"));
        }
    }
    Ok(names)
}

/// Expands the content of brackets: `08-10,12` to `08`, `09`, `10`, `12`.
fn numbers(part: &str, inside: &str) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    for range in inside.split(',').map(str::trim) {
        let (low, high) = range.split_once('-').unwrap_or((range, range));
        let number = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_digit())
                .then(|| text.parse::<u64>().ok())
                .flatten()
                .ok_or_else(|| format!("'{part}': '{range}' is neither a number nor a range"))
        };
        let (from, to) = (number(low)?, number(high)?);
        if from > to {
            return Err(format!("'{part}': the range {range} runs backwards"));
        }
        if to - from >= MAX_HOSTS as u64 {
            return Err(format!("'{part}' stands for more than {MAX_HOSTS} hosts"));
        }
        out.extend((from..=to).map(|n| format!("{n:0width$}", width = low.len())));
    }
    Ok(out)
}

/// Whether a list of nodes, `node[0-1,7],gpu3`, contains a host, with or without its domain.
pub fn contains(list: &str, host: &str) -> bool {
    let host = host.split('.').next().unwrap_or(host);
    let mut depth = 0_u32;
    let mut parts = list.split(|c: char| {
        match c {
            '[' => depth += 1,
            ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    });
    parts.any(|part| {
        let Some((prefix, rest)) = part.split_once('[') else { return part == host };
        let Some((ranges, suffix)) = rest.split_once(']') else { return false };
        let Some(middle) = host.strip_prefix(prefix).and_then(|h| h.strip_suffix(suffix)) else {
            return false;
        };
        ranges.split(',').any(|range| {
            let (from, to) = range.split_once('-').unwrap_or((range, range));
            let number = |n: &str| n.parse::<u64>().ok();
            // `node[08-12]` keeps its zeros.
            let is_wide = middle.len() >= from.len() && (from.starts_with('0') || !middle.starts_with('0'));
            match (number(from), number(middle), number(to)) {
                (Some(from), Some(n), Some(to)) => (is_wide || middle == "0") && (from..=to).contains(&n),
                _ => false,
            }
        })
    })
}

/// A name split at one of its numbers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct SplitName<'a> {
    before: &'a str,
    after: &'a str,
}

/// Prints hosts, sorted, as briefly as one pair of brackets per name allows; [`parse`] expands it again.
pub fn print<S: AsRef<str>>(hosts: &[S]) -> String {
    let mut hosts: Vec<&str> = hosts.iter().map(AsRef::as_ref).collect();
    hosts.sort_unstable();
    hosts.dedup();
    // A name may contain several numbers (`rack3-node017.dc1`): the one that differs most often goes into the
    // brackets.
    let mut n_of: BTreeMap<SplitName<'_>, usize> = BTreeMap::new();
    for host in &hosts {
        for (frame, _) in frames(host) {
            *n_of.entry(frame).or_default() += 1;
        }
    }
    let mut groups: BTreeMap<SplitName<'_>, Vec<(u64, &str)>> = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    for host in &hosts {
        let best = frames(host).into_iter().max_by_key(|(frame, _)| n_of.get(frame).copied().unwrap_or(0));
        match best {
            Some((frame, digits)) => {
                groups.entry(frame).or_default().push((digits.parse().unwrap_or(0), digits));
            }
            None => names.push((*host).to_owned()),
        }
    }
    for (frame, mut numbers) in groups {
        numbers.sort_unstable();
        let inside = ranges(&numbers);
        names.push(if numbers.len() == 1 {
            format!("{}{inside}{}", frame.before, frame.after)
        } else {
            format!("{}[{inside}]{}", frame.before, frame.after)
        });
    }
    names.sort_unstable();
    names.join(",")
}

/// Each number of a name with the text around it. Numbers too long to count with are part of the name.
fn frames(host: &str) -> Vec<(SplitName<'_>, &str)> {
    let bytes = host.as_bytes();
    let mut frames = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        if !bytes[at].is_ascii_digit() {
            at += 1;
            continue;
        }
        let end = bytes[at..].iter().position(|b| !b.is_ascii_digit()).map_or(bytes.len(), |n| at + n);
        if end - at <= 18 {
            frames.push((SplitName { before: &host[..at], after: &host[end..] }, &host[at..end]));
        }
        at = end;
    }
    frames
}

/// Ranges of sorted numbers, in their original spelling: `001-004,017`.
fn ranges(numbers: &[(u64, &str)]) -> String {
    let mut out = String::new();
    let mut at = 0;
    while let Some(&(first, text)) = numbers.get(at) {
        let n = numbers[at..]
            .iter()
            .zip(first..=u64::MAX)
            .take_while(|((number, written), wanted)| {
                number == wanted && *written == format!("{wanted:0width$}", width = text.len())
            })
            .count()
            .max(1);
        let comma = if out.is_empty() { "" } else { "," };
        // Writing to a String does not fail.
        let _ = match n {
            1 => write!(out, "{comma}{text}"),
            n => write!(out, "{comma}{text}-{}", numbers[at + n - 1].1),
        };
        at += n;
    }
    out
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::{MAX_HOSTS, contains, parse, print};

    #[test]
    fn lists_are_taken_apart_as_slurm_does() {
        let of = |text: &str| parse(text).unwrap().join(" ");
        assert_eq!(of("node[001-003,017],login"), "node001 node002 node003 node017 login");
        assert_eq!(of("n[8-11]"), "n8 n9 n10 n11");
        assert_eq!(of("n[08-11]"), "n08 n09 n10 n11");
        assert_eq!(of("r[1-2]n[01-02].dc"), "r1n01.dc r1n02.dc r2n01.dc r2n02.dc");
        assert_eq!(of("a,,b a"), "a b", "each once");
        assert_eq!(of("root@10.0.0.[1-2]"), "root@10.0.0.1 root@10.0.0.2");
        assert_eq!(of(""), "");
    }

    #[test]
    fn what_is_no_list_says_why() {
        for (text, why) in [
            ("n[1-2", "open"),
            ("n1-2]", "not open"),
            ("n[1[2]]", "within"),
            ("n[a-b]", "neither"),
            ("n[]", "neither"),
            ("n[5-2]", "backwards"),
            ("n[1-99999999999]", "more than"),
            ("a[1-1000]b[1-1000]", "more than"),
            ("-oProxyCommand=x", "no name"),
            ("a;reboot", "no name"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert_eq!(parse(&format!("n[1-{MAX_HOSTS}]")).unwrap().len(), MAX_HOSTS);
    }

    #[test]
    fn a_list_has_its_hosts_with_or_without_their_domain() {
        for (list, host, has) in [
            ("node[0-1,7],gpu3", "node1", true),
            ("node[0-1,7],gpu3", "node2", false),
            ("node[0-1,7],gpu3", "gpu3.cluster", true),
            ("node[08-12]", "node09", true),
            ("node[08-12]", "node9", false),
            ("node[0-1]", "node1", true),
            ("node[0-1]", "node1.cluster", true),
            ("node[0-1]", "node2", false),
            ("gpu[08-12,20],cpu1", "gpu09", true),
            ("gpu[08-12,20],cpu1", "gpu20", true),
            ("gpu[08-12,20],cpu1", "gpu9", false),
            ("gpu[08-12,20],cpu1", "cpu1", true),
            ("node1", "node10", false),
            ("n[8-12]-ib", "n10-ib", true),
            ("n[8-12", "n10", false),
        ] {
            assert_eq!(contains(list, host), has, "{list} {host}");
        }
    }

    #[test]
    fn lists_are_printed_short() {
        let of = |hosts: &[&str]| print(hosts);
        assert_eq!(of(&["node017", "node002", "node001", "node003", "login"]), "login,node[001-003,017]");
        assert_eq!(of(&["n9", "n10", "n11"]), "n[9-11]");
        assert_eq!(of(&["n099", "n100"]), "n[099-100]");
        assert_eq!(of(&["n1", "n01", "n02"]), "n[01,1,02]");
        assert_eq!(of(&["rack3-n01.dc1", "rack3-n02.dc1", "rack3-n04.dc1"]), "rack3-n[01-02,04].dc1");
        assert_eq!(of(&["10.0.0.7"]), "10.0.0.7");
        assert_eq!(of(&["r1n1", "r1n2", "r2n1", "r2n2"]).matches('[').count(), 2);
        assert_eq!(of(&[]), "");
    }

    /// Printed lists expand to the same hosts.
    #[test]
    fn printing_and_parsing_agree() {
        let mut seed = 7_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let n = next(40);
            let mut hosts: Vec<String> = (0..n)
                .map(|_| match next(4) {
                    0 => format!("n{}", next(30)),
                    1 => format!("n{:03}", next(120)),
                    2 => format!("r{}-n{:02}.dc{}", next(3), next(20), next(2)),
                    _ => format!("h{}", ["a", "b", "-x"][next(3) as usize]),
                })
                .collect();
            let printed = print(&hosts);
            let mut again = parse(&printed).unwrap();
            hosts.sort();
            hosts.dedup();
            again.sort();
            assert_eq!(again, hosts, "{printed}");
        }
    }
}
