//! What is exported: the metrics of `--serve`, under the same names, and a log record for each incident.

use ringleader_watch::event::{Event, What};

use super::wire::{Field, FieldValue};
use crate::watch::words;

/// Longest text of a record.
const MAX_TEXT: usize = 4096;
/// `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u8 = 2;
/// `SEVERITY_NUMBER_INFO`, `_WARN`, `_ERROR`.
const SEVERITIES: [(u8, &str); 3] = [(9, "INFO"), (13, "WARN"), (17, "ERROR")];

/// A name and its text.
pub(super) type Attribute = (String, String);

/// Who exports: the process and its host.
pub(super) fn resource(attributes: &[Attribute]) -> FieldValue {
    FieldValue::Message(vec![(1, "attributes", listed(attributes))])
}

fn scope() -> FieldValue {
    FieldValue::Message(vec![
        (1, "name", FieldValue::text("ringleader.watch")),
        (2, "version", FieldValue::text(env!("CARGO_PKG_VERSION"))),
    ])
}

fn listed(attributes: &[Attribute]) -> FieldValue {
    FieldValue::List(attributes.iter().map(|(name, value)| attribute(name, value)).collect())
}

fn attribute(name: &str, value: &str) -> FieldValue {
    FieldValue::Message(vec![(1, "key", FieldValue::text(name)), (2, "value", text(value))])
}

fn text(value: &str) -> FieldValue {
    let value: String = value.chars().take(MAX_TEXT).collect();
    FieldValue::Message(vec![(1, "stringValue", FieldValue::text(value))])
}

/// `ExportMetricsServiceRequest` of what `--serve` has at `/metrics`, so that both say the same. A counter loses its `_total` and a
/// unit becomes the field for it: what turns OTLP into Prometheus' names puts both back.
pub(super) fn metrics(
    open_metrics: &str,
    resource: FieldValue,
    (began_ns, now_ns): (u64, u64),
) -> FieldValue {
    let mut families: Vec<MetricFamily> = Vec::new();
    for line in open_metrics.lines() {
        let said = line.strip_prefix("# ").and_then(|rest| {
            let mut words = rest.splitn(3, ' ');
            Some((words.next()?, words.next()?, words.next()?))
        });
        match said {
            Some((kind, name, value)) => {
                if families.last().is_none_or(|family| family.name != name) {
                    families.push(MetricFamily { name: name.to_owned(), ..MetricFamily::default() });
                }
                let Some(family) = families.last_mut() else { continue };
                match kind {
                    "HELP" => value.trim_end_matches('.').clone_into(&mut family.help),
                    "TYPE" => family.is_counter = value == "counter",
                    "UNIT" => value.clone_into(&mut family.unit),
                    _ => {}
                }
            }
            None if line.starts_with('#') => {}
            None => {
                let point = sample(line);
                if let (Some(family), Some((labels, value))) = (families.last_mut(), point) {
                    let mut fields: Vec<Field> = vec![(7, "attributes", listed(&labels))];
                    if family.is_counter {
                        fields.push((2, "startTimeUnixNano", FieldValue::Fixed(began_ns)));
                    }
                    fields.extend([
                        (3, "timeUnixNano", FieldValue::Fixed(now_ns)),
                        (4, "asDouble", FieldValue::Double(value)),
                    ]);
                    family.points.push(FieldValue::Message(fields));
                }
            }
        }
    }
    let metrics = families
        .into_iter()
        .filter(|family| !family.points.is_empty())
        .map(MetricFamily::into_node)
        .collect();
    let scoped = FieldValue::Message(vec![(1, "scope", scope()), (2, "metrics", FieldValue::List(metrics))]);
    let all = FieldValue::Message(vec![
        (1, "resource", resource),
        (2, "scopeMetrics", FieldValue::List(vec![scoped])),
    ]);
    FieldValue::Message(vec![(1, "resourceMetrics", FieldValue::List(vec![all]))])
}

#[derive(Default)]
struct MetricFamily {
    name: String,
    help: String,
    unit: String,
    is_counter: bool,
    points: Vec<FieldValue>,
}

impl MetricFamily {
    fn into_node(self) -> FieldValue {
        let name = match self.unit.as_str() {
            "" => self.name,
            unit => self.name.trim_end_matches(unit).trim_end_matches('_').to_owned(),
        };
        let unit = if self.unit == "seconds" { "s".to_owned() } else { self.unit };
        let points: Field = (1, "dataPoints", FieldValue::List(self.points));
        let data: Field = if self.is_counter {
            let sum = vec![
                points,
                (2, "aggregationTemporality", FieldValue::Enum(CUMULATIVE)),
                (3, "isMonotonic", FieldValue::Flag(true)),
            ];
            (7, "sum", FieldValue::Message(sum))
        } else {
            (5, "gauge", FieldValue::Message(vec![points]))
        };
        FieldValue::Message(vec![
            (1, "name", FieldValue::Text(name)),
            (2, "description", FieldValue::Text(self.help)),
            (3, "unit", FieldValue::Text(unit)),
            data,
        ])
    }
}

/// `name{label="value",…} 1.0`.
fn sample(line: &str) -> Option<(Vec<Attribute>, f64)> {
    let (_, rest) = line.split_at_checked(line.find(['{', ' '])?)?;
    let mut labels = Vec::new();
    let mut rest = rest.strip_prefix('{').unwrap_or(rest);
    while let Some((name, after)) = rest.split_once("=\"").filter(|(name, _)| !name.contains([' ', '}'])) {
        let (mut value, mut end, mut chars) = (String::new(), None, after.char_indices());
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    end = Some(at + 1);
                    break;
                }
                '\\' => match chars.next()?.1 {
                    'n' => value.push('\n'),
                    other => value.push(other),
                },
                other => value.push(other),
            }
        }
        labels.push((name.to_owned(), value));
        rest = after.get(end?..)?;
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
    let value = rest.trim_start_matches('}').trim();
    Some((labels, value.parse().ok()?))
}

/// A `LogRecord` of an event that is (a part of) an incident.
pub(super) fn record(event: &Event, job: Option<&str>) -> Option<FieldValue> {
    let (level, name, mut attributes): (usize, _, Vec<Attribute>) = match &event.what {
        What::Stall(stall) => (
            1,
            "ringleader.stall",
            vec![
                ("communicator".to_owned(), stall.comm.clone()),
                ("communicator.name".to_owned(), stall.comm_name.clone()),
                ("operation".to_owned(), format!("{} #{}", stall.op.kind, stall.op.number)),
                ("suspects".to_owned(), ranks(&stall.suspects)),
            ],
        ),
        What::Verdict { report } => (2, "ringleader.verdict", of_verdict(&report["verdict"])),
        What::Recovered { comm, .. } => {
            (0, "ringleader.recovered", vec![("communicator".to_owned(), comm.clone())])
        }
        What::Over { comm, .. } => (0, "ringleader.over", vec![("communicator".to_owned(), comm.clone())]),
        What::Bundle { path } => (0, "ringleader.bundle", vec![("path".to_owned(), path.clone())]),
        What::Ended { .. } => (0, "ringleader.ended", Vec::new()),
        _ => return None,
    };
    attributes.extend(job.map(|job| ("job".to_owned(), job.to_owned())));
    attributes.retain(|(_, value)| !value.is_empty());
    let (number, severity) = SEVERITIES[level];
    let at = FieldValue::Fixed((event.at * 1e9) as u64);
    Some(FieldValue::Message(vec![
        (1, "timeUnixNano", at.clone()),
        (11, "observedTimeUnixNano", at),
        (2, "severityNumber", FieldValue::Enum(number)),
        (3, "severityText", FieldValue::text(severity)),
        (5, "body", text(&words::lines(event).unwrap_or_default())),
        (6, "attributes", listed(&attributes)),
        (12, "eventName", FieldValue::text(name)),
    ]))
}

fn ranks(ranks: &[u32]) -> String {
    ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

fn of_verdict(verdict: &serde_json::Value) -> Vec<Attribute> {
    let culprit = &verdict["culprits"][0];
    [
        ("cause", &verdict["cause"]),
        ("category", &verdict["category"]),
        ("confidence", &verdict["confidence"]),
        ("victims", &verdict["victims"]),
        ("culprit.rank", &culprit["rank"]),
        ("culprit.host", &culprit["host"]),
        ("culprit.gpu", &culprit["gpu"]),
    ]
    .into_iter()
    .filter_map(|(name, value)| match value {
        serde_json::Value::String(text) => Some((name.to_owned(), text.clone())),
        serde_json::Value::Null => None,
        other => Some((name.to_owned(), other.to_string())),
    })
    .collect()
}

/// `ExportLogsServiceRequest`.
pub(super) fn logs(records: Vec<FieldValue>, resource: FieldValue) -> FieldValue {
    let scoped =
        FieldValue::Message(vec![(1, "scope", scope()), (2, "logRecords", FieldValue::List(records))]);
    let all = FieldValue::Message(vec![
        (1, "resource", resource),
        (2, "scopeLogs", FieldValue::List(vec![scoped])),
    ]);
    FieldValue::Message(vec![(1, "resourceLogs", FieldValue::List(vec![all]))])
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::watch::picture::sample as pictures;

    #[test]
    fn every_sample_of_the_metrics_is_a_point_under_its_name() {
        let open_metrics = crate::watch::metrics::render(&[(None, pictures::stalled())]);
        let json = metrics(&open_metrics, resource(&[]), (1, 2)).to_json();
        let all = json["resourceMetrics"][0]["scopeMetrics"][0]["metrics"].as_array().unwrap();
        let points = |metric: &serde_json::Value| {
            let data = if metric["sum"].is_null() { &metric["gauge"] } else { &metric["sum"] };
            data["dataPoints"].as_array().unwrap().clone()
        };
        let n_samples = open_metrics.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(all.iter().map(|metric| points(metric).len()).sum::<usize>(), n_samples);
        // Prometheus' name of each, as a collector makes it from name, unit and kind.
        for metric in all {
            let mut name = metric["name"].as_str().unwrap().to_owned();
            match metric["unit"].as_str().unwrap() {
                "s" => name += "_seconds",
                unit => assert_eq!(unit, ""),
            }
            if !metric["sum"].is_null() {
                name += "_total";
            }
            assert!(open_metrics.lines().any(|line| line.starts_with(&name)), "{name}");
        }
        let late = all.iter().find(|metric| metric["name"] == "ringleader_rank_late").unwrap();
        assert_eq!(late["unit"], "s");
        let third = &points(late).into_iter().find(|point| point.to_string().contains("\"3\"")).unwrap();
        assert_eq!(third["asDouble"], 0.0015);
        assert_eq!(third["attributes"][1]["value"]["stringValue"], "node7");
    }

    #[test]
    fn a_label_keeps_its_quotes_and_lines() {
        let (labels, value) = sample(r#"m{a="x\"} 1\nb\\",b=""} 2.5"#).unwrap();
        assert_eq!(labels, [("a".to_owned(), "x\"} 1\nb\\".to_owned()), ("b".to_owned(), String::new())]);
        assert!((value - 2.5).abs() < f64::EPSILON);
        assert_eq!(sample("m 3").unwrap().0, []);
        assert!(sample("m{a=\"x").is_none() && sample("").is_none());
    }

    #[test]
    fn a_verdict_is_an_error_with_its_culprit() {
        let report = pictures::stalled().verdict.unwrap();
        let json = record(&Event::new(5, What::Verdict { report }), Some("train")).unwrap().to_json();
        assert_eq!(
            (json["severityNumber"].as_u64(), json["severityText"].as_str()),
            (Some(17), Some("ERROR"))
        );
        assert_eq!(json["body"]["stringValue"], "verdict: process-stopped: rank 2 is stopped by a signal");
        let said = json["attributes"].to_string();
        for part in ["\"culprit.rank\"", "\"2\"", "\"node7\"", "\"process-stopped\"", "\"train\""] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(record(&Event::new(5, What::Note { text: "x".to_owned() }), None).is_none());
    }
}
