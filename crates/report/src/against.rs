//! Two runs of one job compared: a bad one with a good one. What differs in versions, settings, machines, calls and
//! timing, and which errors only the bad one shows. It concludes nothing: what differs need not be the cause.

use std::collections::BTreeMap;

use crate::json::{Against, Difference, Machine, Report, Role, Span, SpanState, Statement};
use crate::sets::ranks;

/// A call that takes this many times as long as in the good run is reported.
const SLOWER: f64 = 1.5;
/// And at least this much longer, ns: below it is noise.
const SLOWER_NS: i64 = 200_000;
/// Statements that only the bad run has.
const MAX_STATEMENTS: usize = 6;
/// Characters of such a statement: its place gives all of it.
const MAX_CHARS: usize = 160;
/// Sets of ranks whose calls differ.
const MAX_ORDER: usize = 8;
/// Differences of one kind.
const MAX_EACH: usize = 40;

/// Compares a bad run with a good one.
pub fn compare(bad: &Report, good: &Report) -> Against {
    let mut all = Comparison { differences: Vec::new(), not_compared: Vec::new() };
    all.facts(bad, good, false, "version");
    all.facts(bad, good, true, "setting");
    all.topology(bad, good);
    all.calls(bad, good);
    all.order(bad, good);
    all.statements(bad, good);
    Against {
        verdict: good.verdict.cause.clone(),
        differences: all.differences,
        not_compared: all.not_compared,
    }
}

struct Comparison {
    differences: Vec<Difference>,
    not_compared: Vec<String>,
}

impl Comparison {
    fn add(&mut self, kind: &str, name: &str, bad: Option<String>, good: Option<String>) {
        if bad != good {
            self.differences.push(Difference { kind: kind.to_owned(), name: name.to_owned(), bad, good });
        }
    }

    /// Whether both runs have a part; it is noted if one lacks it.
    fn both(&mut self, name: &str, bad: bool, good: bool) -> bool {
        if bad != good {
            let lacks = if bad { "good" } else { "bad" };
            self.not_compared.push(format!("{name}: the {lacks} run's evidence has none"));
        }
        bad && good
    }

    fn facts(&mut self, bad: &Report, good: &Report, setting: bool, kind: &str) {
        let of = |report: &Report| -> BTreeMap<String, String> {
            let facts = report.facts.iter().filter(|fact| fact.setting == setting);
            let values = |fact: &crate::json::Fact| {
                let mut values: Vec<&str> = fact.values.iter().map(|value| value.value.as_str()).collect();
                values.sort_unstable();
                values.join(" | ")
            };
            facts.map(|fact| (fact.name.clone(), values(fact))).collect()
        };
        let (bad, good) = (of(bad), of(good));
        if !self.both(&format!("{kind}s"), !bad.is_empty(), !good.is_empty()) {
            return;
        }
        let names: std::collections::BTreeSet<&String> = bad.keys().chain(good.keys()).collect();
        for name in names.into_iter().take(MAX_EACH) {
            // A version that one run does not print is no difference; a setting that is not set is one.
            let (of_bad, of_good) = (bad.get(name).cloned(), good.get(name).cloned());
            if setting || of_bad.is_some() && of_good.is_some() {
                self.add(kind, name, of_bad, of_good);
            }
        }
    }

    fn topology(&mut self, bad: &Report, good: &Report) {
        if let (Some(of_bad), Some(of_good)) = (bad.world_size, good.world_size) {
            self.add("topology", "ranks", Some(of_bad.to_string()), Some(of_good.to_string()));
        }
        if !self.both("machines", !bad.machines.is_empty(), !good.machines.is_empty()) {
            return;
        }
        let n_hosts = |report: &Report| report.machines.len() + report.machines_left_out;
        self.add("topology", "nodes", Some(n_hosts(bad).to_string()), Some(n_hosts(good).to_string()));
        let named = |report: &'_ Report| -> BTreeMap<String, Vec<(String, String)>> {
            let host = |machine: &Machine| machine.host.clone().unwrap_or_else(|| "the node".to_owned());
            report.machines.iter().map(|machine| (host(machine), parts(machine))).collect()
        };
        let (of_bad, of_good) = (named(bad), named(good));
        let mut n = 0;
        for (host, parts) in &of_bad {
            let Some(others) = of_good.get(host) else { continue };
            for (name, value) in parts {
                let other = others.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
                if other.as_ref() != Some(value) && other.is_some() && n < MAX_EACH {
                    n += 1;
                    self.add("topology", &format!("{name} of {host}"), Some(value.clone()), other);
                }
            }
        }
        if !of_bad.keys().any(|host| of_good.contains_key(host)) {
            let names = |of: &BTreeMap<String, Vec<(String, String)>>| {
                ringleader_model::hostlist::print(&of.keys().take(64).collect::<Vec<_>>())
            };
            self.add("topology", "hosts", Some(names(&of_bad)), Some(names(&of_good)));
        }
    }

    fn calls(&mut self, bad: &Report, good: &Report) {
        if !self.both("recorded calls", !bad.calls.is_empty(), !good.calls.is_empty()) {
            return;
        }
        // Names of groups may hold addresses: what is called in a group of this size counts.
        let of = |report: &Report| -> BTreeMap<String, (usize, Option<i64>)> {
            let mut all: BTreeMap<String, (usize, Option<i64>)> = BTreeMap::new();
            for call in &report.calls {
                let known = all.entry(call.op.clone()).or_default();
                known.0 += call.count;
                known.1 = known.1.max(call.median_ns);
            }
            all
        };
        let (of_bad, of_good) = (of(bad), of(good));
        let names: std::collections::BTreeSet<&String> = of_bad.keys().chain(of_good.keys()).collect();
        for name in names.into_iter().take(MAX_EACH) {
            let times = |call: Option<&(usize, Option<i64>)>| call.map(|(n, _)| format!("{n} calls"));
            match (of_bad.get(name), of_good.get(name)) {
                (Some((_, Some(slow))), Some((_, Some(usual))))
                    if slow - usual > SLOWER_NS && *slow as f64 > *usual as f64 * SLOWER =>
                {
                    let ms = |ns: i64| format!("{:.2} ms", ns as f64 / 1e6);
                    let name = format!("median time of {name}");
                    self.add("timing", &name, Some(ms(*slow)), Some(ms(*usual)));
                }
                (Some(_), Some(_)) => {}
                // How often a call was made depends on how long the run was; that it was made does not.
                (of_bad, of_good) => self.add("calls", name, times(of_bad), times(of_good)),
            }
        }
    }

    /// Which ranks make other calls than the good run did under the same number, and whose calls did not finish.
    fn order(&mut self, bad: &Report, good: &Report) {
        if bad.timeline.is_empty() || good.timeline.is_empty() {
            return;
        }
        let mut usual: BTreeMap<(&str, u32), &str> = BTreeMap::new();
        for span in &good.timeline {
            if let Some(seq) = span.seq {
                usual.insert((&span.group, seq), &span.op);
            }
        }
        let mut odd: BTreeMap<(&str, &str), &Span> = BTreeMap::new();
        let mut open: BTreeMap<(&str, &str), &Span> = BTreeMap::new();
        for span in &bad.timeline {
            let Some(seq) = span.seq else { continue };
            let key = (span.group.as_str(), span.ranks.as_str());
            let other = usual.get(&(span.group.as_str(), seq)).is_some_and(|op| *op != span.op);
            if other && odd.get(&key).is_none_or(|known| seq < known.seq.unwrap_or(u32::MAX)) {
                odd.insert(key, span);
            }
            let first = open.get(&key).is_none_or(|known| seq < known.seq.unwrap_or(u32::MAX));
            if span.state != SpanState::Finished && first {
                open.insert(key, span);
            }
        }
        let named = |span: &Span| (span.seq.unwrap_or_default(), span.group.clone(), ranks(&span.ranks));
        for span in odd.into_values().take(MAX_ORDER) {
            let (seq, group, whose) = named(span);
            let other = usual.get(&(span.group.as_str(), seq)).map(|op| (*op).to_owned());
            self.add("calls", &format!("#{seq} of {group} on {whose}"), Some(span.op.clone()), other);
        }
        if good.timeline.iter().all(|span| span.state == SpanState::Finished) {
            for span in open.into_values().take(MAX_ORDER) {
                let (seq, group, whose) = named(span);
                let name = format!("first unfinished call of {whose} in {group}");
                self.add("calls", &name, Some(format!("#{seq} {}", span.op)), Some("none".to_owned()));
            }
        }
    }

    fn statements(&mut self, bad: &Report, good: &Report) {
        let known: std::collections::BTreeSet<&str> =
            good.statements.iter().map(|s| s.template.as_str()).collect();
        let is_fresh = |s: &&Statement| s.role != Role::Harmless && !known.contains(s.template.as_str());
        let n_fresh = bad.statements.iter().filter(is_fresh).count();
        for one in bad.statements.iter().filter(is_fresh).take(MAX_STATEMENTS) {
            let line = one.first.line.map(|line| format!(":{line}")).unwrap_or_default();
            let place = format!("{}{line}", one.first.source);
            let text = one.text.lines().next().unwrap_or_default();
            let text = match text.char_indices().nth(MAX_CHARS) {
                Some((at, _)) => format!("{} (cut)", text.get(..at).unwrap_or_default()),
                None => text.to_owned(),
            };
            self.add("statement", &place, Some(text), None);
        }
        if let Some(n) = n_fresh.checked_sub(MAX_STATEMENTS).filter(|n| *n > 0) {
            self.differences.push(Difference {
                kind: "statement".to_owned(),
                name: format!("and {n} more kinds of line that the good run does not print"),
                bad: None,
                good: None,
            });
        }
    }
}

/// What a node is made of, by name.
fn parts(machine: &Machine) -> Vec<(String, String)> {
    let mut parts = Vec::new();
    if !machine.gpus.is_empty() {
        parts.push(("number of GPUs".to_owned(), machine.gpus.len().to_string()));
    }
    for gpu in &machine.gpus {
        let name = gpu.index.map_or_else(|| gpu.pci.clone().unwrap_or_default(), |index| index.to_string());
        parts.extend(gpu.model.clone().map(|model| (format!("model of GPU {name}"), model)));
        parts.extend(
            gpu.nvlinks.map(|[active, all]| (format!("NVLinks of GPU {name}"), format!("{active} of {all}"))),
        );
        let faults = if gpu.faults.is_empty() { "none".to_owned() } else { gpu.faults.join("; ") };
        parts.push((format!("faults of GPU {name}"), faults));
    }
    for nic in &machine.nics {
        parts.extend(nic.state.clone().map(|state| (format!("state of {}", nic.name), state)));
        parts.extend(nic.rate_gbps.map(|rate| (format!("rate of {}", nic.name), format!("{rate} Gb/s"))));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json::{Call, Fact, FactValue};
    use ringleader_model::{Case, Category, Cause, Confidence, RankSet, Verdict};

    fn report(nccl: &str, setting: Option<&str>, median_ns: i64, op: &str) -> Report {
        let verdict = Verdict {
            cause: Cause::None,
            category: Category::None,
            confidence: Confidence::Low,
            summary: String::new(),
            culprits: Vec::new(),
            victims: RankSet::default(),
            actions: Vec::new(),
            findings: Vec::new(),
            needs: Vec::new(),
            ranks: Vec::new(),
        };
        let mut report = Report::new(&Case::default(), &verdict);
        let fact = |name: &str, setting: bool, value: &str| Fact {
            name: name.to_owned(),
            setting,
            differs: false,
            values: vec![FactValue {
                value: value.to_owned(),
                ranks: "0".into(),
                hosts: Vec::new(),
                count: 1,
            }],
        };
        report.facts = vec![fact("NCCL", false, nccl), fact("NCCL_DEBUG", true, "INFO")];
        report.facts.extend(setting.map(|value| fact("NCCL_IB_HCA", true, value)));
        let call = |op: &str, ns| Call { group: "g".into(), op: op.into(), count: 4, median_ns: Some(ns) };
        report.calls = vec![call("all_reduce of 8 Float", median_ns), call(op, 5)];
        report
    }

    #[test]
    fn which_rank_makes_another_call() {
        let span = |rank: &str, seq, op: &str, state| Span {
            rank: 0,
            ranks: rank.into(),
            group: "world".into(),
            op: op.into(),
            seq: Some(seq),
            start_ns: 0,
            end_ns: None,
            state,
        };
        let run = |spans: Vec<Span>| Report { timeline: spans, ..report("2.29.7", None, 1, "barrier") };
        let done = SpanState::Finished;
        let good =
            run(vec![span("0-3", 1, "all_reduce of 8", done), span("0-3", 2, "all_gather of 4", done)]);
        let bad = run(vec![
            span("0-1,3", 1, "all_reduce of 8", done),
            span("0-1,3", 2, "all_gather of 4", SpanState::Waiting),
            span("2", 1, "all_reduce of 8", done),
            span("2", 2, "all_reduce of 8", SpanState::Called),
        ]);
        let found = compare(&bad, &good).differences;
        let told: Vec<String> = found.iter().map(crate::text::difference).collect();
        assert_eq!(
            told,
            [
                "#2 of world on rank 2: all_reduce of 8, in the good run all_gather of 4",
                "first unfinished call of ranks 0-1,3 in world: #2 all_gather of 4, in the good run none",
                "first unfinished call of rank 2 in world: #2 all_reduce of 8, in the good run none",
            ]
        );
    }

    #[test]
    fn what_differs_between_a_bad_and_a_good_run() {
        let bad = report("2.29.7", None, 9_000_000, "barrier");
        let good = report("2.27.5", Some("mlx5_0"), 1_000_000, "broadcast of 1 Float");
        let found = compare(&bad, &good);
        let told: Vec<String> = found
            .differences
            .iter()
            .map(|d| format!("{} {}: {:?} {:?}", d.kind, d.name, d.bad.as_deref(), d.good.as_deref()))
            .collect();
        assert_eq!(
            told,
            [
                "version NCCL: Some(\"2.29.7\") Some(\"2.27.5\")",
                "setting NCCL_IB_HCA: None Some(\"mlx5_0\")",
                "timing median time of all_reduce of 8 Float: Some(\"9.00 ms\") Some(\"1.00 ms\")",
                "calls barrier: Some(\"4 calls\") None",
                "calls broadcast of 1 Float: None Some(\"4 calls\")",
            ]
        );
        assert!(compare(&good, &good).differences.is_empty());
    }
}
