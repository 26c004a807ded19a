//! Values from an earlier, healthy time, and what has changed since.
//!
//! Only what must remain equal is compared: settings and versions (`same`) and counters. Readings that vary with the
//! load (`near`) are compared with peers at the same time, never with an earlier reading.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::answer::{CheckState, Value, ValueKind};
use crate::report::{Change, ChangeKind, NodeReport};

/// Name and version of the format.
pub const SCHEMA: &str = "ringleader.baseline.v1";

/// The nodes at that time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Baseline {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// Nodes by the name under which they were asked.
    pub nodes: BTreeMap<String, Moment>,
}

/// One node at that time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Moment {
    /// Nanoseconds since 1970, by the node's clock.
    pub at_ns: i64,
    /// Verdicts of its checks.
    pub verdicts: BTreeMap<String, CheckState>,
    /// Its values.
    pub values: BTreeMap<String, Recorded>,
}

/// A recorded value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recorded {
    /// As text.
    pub value: String,
    /// How it is compared.
    pub kind: ValueKind,
}

impl Baseline {
    /// An empty baseline.
    pub fn new(tool_version: &str) -> Self {
        Self { schema: SCHEMA.to_owned(), tool_version: tool_version.to_owned(), nodes: BTreeMap::new() }
    }

    /// Adds a node.
    pub fn add(&mut self, report: &NodeReport) {
        let mut moment = Moment { at_ns: report.at_ns, ..Moment::default() };
        for check in &report.checks {
            moment.verdicts.insert(check.id.clone(), check.verdict);
        }
        for Value { key, value, kind } in &report.values {
            moment.values.insert(key.clone(), Recorded { value: value.clone(), kind: *kind });
        }
        self.nodes.insert(report.name().to_owned(), moment);
    }

    /// The recorded node: under the name by which it was asked, else under its own name.
    pub fn of(&self, report: &NodeReport) -> Option<&Moment> {
        self.nodes.get(report.name()).or_else(|| self.nodes.get(&report.host))
    }
}

impl Moment {
    /// The changes in `report`, sorted. A check that was not run this time is not a change.
    pub fn changes(&self, report: &NodeReport) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut push = |key: &str, kind, before: &str, now: &str| {
            changes.push(Change {
                key: key.to_owned(),
                kind,
                before: before.to_owned(),
                now: now.to_owned(),
            });
        };
        for check in &report.checks {
            if let Some(before) = self.verdicts.get(&check.id) {
                if check.verdict > CheckState::Ok && check.verdict > *before {
                    push(&check.id, ChangeKind::Worse, before.name(), check.verdict.name());
                }
                if check.verdict == CheckState::Skipped && *before > CheckState::Skipped {
                    push(&check.id, ChangeKind::Gone, before.name(), "");
                }
            }
        }
        let now: BTreeMap<&str, &Value> = report.values.iter().map(|v| (v.key.as_str(), v)).collect();
        // Values of a check that was not run or not decided do not count as missing: a key is missing only if another
        // key with the same first word was read.
        let word = |key: &str| key.split('.').next().unwrap_or_default().to_owned();
        let read: std::collections::BTreeSet<String> = now.keys().map(|key| word(key)).collect();
        for (key, before) in &self.values {
            let Some(value) = now.get(key.as_str()) else {
                if before.kind != ValueKind::Near && read.contains(&word(key)) {
                    push(key, ChangeKind::Gone, &before.value, "");
                }
                continue;
            };
            if value.value == before.value {
                continue;
            }
            match before.kind {
                ValueKind::Near => {}
                ValueKind::Same => push(key, ChangeKind::Changed, &before.value, &value.value),
                ValueKind::Counter => {
                    let number = |text: &str| text.trim().parse::<f64>().ok();
                    match (number(&before.value), number(&value.value)) {
                        (Some(then), Some(now)) if now < then => {
                            push(key, ChangeKind::Restarted, &before.value, &value.value);
                        }
                        (Some(then), Some(now)) if now > then => {
                            push(key, ChangeKind::Grew, &before.value, &value.value);
                        }
                        (Some(_), Some(_)) => {}
                        _ => push(key, ChangeKind::Changed, &before.value, &value.value),
                    }
                }
            }
        }
        changes.sort();
        changes.dedup();
        changes
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
mod tests {
    use super::{Baseline, Change, ChangeKind};
    use crate::answer::{CheckState, Value, ValueKind};
    use crate::report::{CheckResult, NodeReport};

    fn report(host: &str, values: &[(&str, &str, ValueKind)], verdicts: &[(&str, CheckState)]) -> NodeReport {
        NodeReport {
            host: host.to_owned(),
            values: values
                .iter()
                .map(|(key, value, kind)| Value {
                    key: (*key).to_owned(),
                    value: (*value).to_owned(),
                    kind: *kind,
                })
                .collect(),
            checks: verdicts
                .iter()
                .map(|(id, verdict)| CheckResult {
                    id: (*id).to_owned(),
                    area: "gpu".to_owned(),
                    verdict: *verdict,
                    summary: String::new(),
                    drains: false,
                    items: Vec::new(),
                    fixes: Vec::new(),
                })
                .collect(),
            ..NodeReport::default()
        }
    }

    fn brief(changes: &[Change]) -> Vec<(&str, ChangeKind)> {
        changes.iter().map(|change| (change.key.as_str(), change.kind)).collect()
    }

    #[test]
    fn only_what_has_to_stay_is_held_against_it() {
        use ValueKind::{Counter, Near, Same};
        let before = report(
            "a",
            &[
                ("driver", "570.1", Same),
                ("gpu.temp", "40", Near),
                ("gpu.replays", "9", Counter),
                ("gpu.errors", "20", Counter),
                ("gpu.steady", "7", Counter),
                ("gpu.count", "8", Same),
                ("nic.count", "4", Same),
            ],
            &[
                ("x", CheckState::Ok),
                ("y", CheckState::Fail),
                ("z", CheckState::Ok),
                ("w", CheckState::Skipped),
            ],
        );
        let now = report(
            "a",
            &[
                ("driver", "575.2", Same),
                ("gpu.temp", "80", Near),
                ("gpu.replays", "10", Counter),
                ("gpu.errors", "3", Counter),
                ("gpu.steady", "7.0", Counter),
            ],
            &[
                ("x", CheckState::Warn),
                ("y", CheckState::Fail),
                ("z", CheckState::Skipped),
                ("w", CheckState::Ok),
            ],
        );
        let mut baseline = Baseline::new("0.2.0");
        baseline.add(&before);
        let text = serde_json::to_string(&baseline).unwrap();
        let baseline: Baseline = serde_json::from_str(&text).unwrap();
        let changes = baseline.of(&now).unwrap().changes(&now);
        assert_eq!(
            brief(&changes),
            [
                ("driver", ChangeKind::Changed),
                ("gpu.count", ChangeKind::Gone),
                ("gpu.errors", ChangeKind::Restarted),
                ("gpu.replays", ChangeKind::Grew),
                ("x", ChangeKind::Worse),
                ("z", ChangeKind::Gone),
            ],
            "the nic's values were not asked for; the temperature moves with the load"
        );
        assert!(baseline.of(&before).unwrap().changes(&before).is_empty());
        assert!(baseline.of(&report("b", &[], &[])).is_none());
    }
}
