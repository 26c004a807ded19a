//! Pictures as Prometheus reads them (OpenMetrics text). Of several jobs each series has a label `job`, of one none has.

use std::collections::BTreeSet;

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;

use crate::watch::columns::{COMMS, Column, Metric, MetricValue, RANKS};
use crate::watch::picture::{CommRow, Picture, RankRow};
use crate::watch::words;

/// Its media type.
pub(crate) const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// That of the older text.
pub(crate) const OLDER_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfComm {
    comm: String,
    name: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct OfRank {
    rank: String,
    host: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct StateOfRank {
    rank: String,
    host: String,
    state: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LateLabels {
    rank: String,
    comm: String,
    of: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VerdictLabels {
    cause: String,
    confidence: String,
    culprit: String,
}

/// The job of a series; empty where there is one job.
type OfJob = Vec<(&'static str, String)>;

type Numbers<L> = Family<(OfJob, L), Gauge<f64, AtomicU64>>;
type Counts<L> = Family<(OfJob, L), Counter>;

fn of_job(name: Option<&String>) -> OfJob {
    name.map(|name| ("job", name.clone())).into_iter().collect()
}

/// A number of the whole job: its name, its help, and what it is.
type Whole<T> = (&'static str, &'static str, fn(&Picture) -> T);

const GAUGES: [Whole<f64>; 5] = [
    ("ranks", "Ranks that are watched", |picture| picture.n_ranks as f64),
    ("nodes", "Nodes that are watched", |picture| picture.n_nodes as f64),
    ("communicators", "Communicators that are watched", |picture| picture.n_comms as f64),
    ("stalled", "Stalls now", |picture| picture.stalls.len() as f64),
    ("ended", "Whether the job has ended", |picture| f64::from(u8::from(picture.ended.is_some()))),
];

const COUNTERS: [Whole<u64>; 2] = [
    ("stalls", "Stalls since watching began", |picture| picture.n_stalls),
    ("verdicts", "Verdicts since watching began", |picture| picture.n_verdicts),
];

/// All metrics of these jobs. What is not known is left out; a stale number would look like health.
pub(crate) fn render(jobs: &[(Option<String>, Picture)]) -> String {
    let mut registry = Registry::with_prefix("ringleader");
    let named: Vec<(OfJob, &Picture)> =
        jobs.iter().map(|(name, picture)| (of_job(name.as_ref()), picture)).collect();
    for (name, help, of) in GAUGES {
        if let [(job, picture)] = &named[..]
            && job.is_empty()
        {
            let gauge = Gauge::<f64, AtomicU64>::default();
            gauge.set(of(picture));
            registry.register(name, help, gauge);
            continue;
        }
        let family = Family::<OfJob, Gauge<f64, AtomicU64>>::default();
        for (job, picture) in &named {
            family.get_or_create(job).set(of(picture));
        }
        registry.register(name, help, family);
    }
    for (name, help, of) in COUNTERS {
        if let [(job, picture)] = &named[..]
            && job.is_empty()
        {
            let counter = Counter::<u64>::default();
            counter.inc_by(of(picture));
            registry.register(name, help, counter);
            continue;
        }
        let family = Family::<OfJob, Counter>::default();
        for (job, picture) in &named {
            family.get_or_create(job).inc_by(of(picture));
        }
        registry.register(name, help, family);
    }
    comms(&mut registry, &named);
    ranks(&mut registry, &named);
    let answer = Numbers::<VerdictLabels>::default();
    for (job, picture) in &named {
        let Some(verdict) = picture.verdict.as_ref().map(|report| &report["verdict"]) else { continue };
        let of = |name: &str| verdict[name].as_str().unwrap_or_default().to_owned();
        let culprit =
            verdict["culprits"][0]["rank"].as_u64().map(|rank| rank.to_string()).unwrap_or_default();
        let labels = VerdictLabels { cause: of("cause"), confidence: of("confidence"), culprit };
        answer.get_or_create(&(job.clone(), labels)).set(1.0);
    }
    registry.register("verdict", "The newest verdict, always 1", answer);
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

/// The same in Prometheus' older text (0.0.4), in which a counter's help and type are those of its `_total`, and a unit and an end
/// are not written.
pub(crate) fn older(text: &str) -> String {
    let counters: BTreeSet<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter")).collect();
    let mut out = String::with_capacity(text.len());
    for line in text.lines().filter(|line| !line.starts_with("# UNIT ") && *line != "# EOF") {
        let about =
            ["# HELP ", "# TYPE "].into_iter().find_map(|mark| Some((mark, line.strip_prefix(mark)?)));
        match about.and_then(|(mark, rest)| Some((mark, rest.split_once(' ')?))) {
            Some((mark, (name, rest))) if counters.contains(name) => {
                out.extend([mark, name, "_total ", rest]);
            }
            _ => out.push_str(line),
        }
        out.push('\n');
    }
    out
}

/// The metrics of a list's columns.
fn list<R, L>(
    registry: &mut Registry,
    columns: &[Column<R>],
    rows: &[(&OfJob, &R)],
    labels: impl Fn(&OfJob, &R) -> (OfJob, L),
) where
    L: EncodeLabelSet + Clone + std::fmt::Debug + Eq + std::hash::Hash + Send + Sync + 'static,
{
    for metric in columns.iter().filter_map(|column| column.metric.as_ref()) {
        match &metric.value {
            MetricValue::Counter(value) => {
                let family = Counts::<L>::default();
                for (job, row) in rows {
                    family.get_or_create(&labels(job, row)).inc_by(value(row));
                }
                register(registry, metric, family);
            }
            MetricValue::Gauge(value) => {
                let family = Numbers::<L>::default();
                for (job, row) in rows {
                    if let Some(value) = value(row) {
                        family.get_or_create(&labels(job, row)).set(value);
                    }
                }
                register(registry, metric, family);
            }
        }
    }
}

fn register<R>(
    registry: &mut Registry,
    metric: &Metric<R>,
    family: impl prometheus_client::registry::Metric,
) {
    if metric.is_seconds {
        registry.register_with_unit(metric.name, metric.help, Unit::Seconds, family);
    } else {
        registry.register(metric.name, metric.help, family);
    }
}

fn comms(registry: &mut Registry, jobs: &[(OfJob, &Picture)]) {
    let of = |job: &OfJob, comm: &CommRow| {
        (job.clone(), OfComm { comm: comm.id.clone(), name: comm.name.clone() })
    };
    let rows: Vec<(&OfJob, &CommRow)> =
        jobs.iter().flat_map(|(job, picture)| picture.comms.iter().map(move |row| (job, row))).collect();
    list(registry, &COMMS, &rows, of);
    let stalled = Numbers::<OfComm>::default();
    for (job, comm) in rows {
        stalled.get_or_create(&of(job, comm)).set(f64::from(u8::from(comm.is_stalled)));
    }
    registry.register("comm_stalled", "Whether it is stalled now", stalled);
}

fn ranks(registry: &mut Registry, jobs: &[(OfJob, &Picture)]) {
    let of_rank = |row: &RankRow| OfRank {
        rank: row.rank.map_or_else(|| format!("pid {}", row.pid), |rank| rank.to_string()),
        host: row.host.clone(),
    };
    let of = |job: &OfJob, row: &RankRow| (job.clone(), of_rank(row));
    let rows: Vec<(&OfJob, &RankRow)> =
        jobs.iter().flat_map(|(job, picture)| picture.ranks.iter().map(move |row| (job, row))).collect();
    list(registry, &RANKS, &rows, of);
    let state = Numbers::<StateOfRank>::default();
    let suspect = Numbers::<OfRank>::default();
    for (job, row) in rows {
        suspect.get_or_create(&of(job, row)).set(f64::from(u8::from(row.is_suspect)));
        let OfRank { rank, host } = of_rank(row);
        state.get_or_create(&(job.clone(), StateOfRank { rank, host, state: row.state.clone() })).set(1.0);
    }
    registry.register("rank_suspect", "Whether a stall points at it", suspect);
    registry.register("rank_state", "State of a rank, always 1", state);
    let stragglers = Numbers::<LateLabels>::default();
    for (job, picture) in jobs {
        for straggler in &picture.stragglers {
            let of = words::lag(straggler.of).to_owned();
            let labels = LateLabels { rank: straggler.rank.to_string(), comm: straggler.comm.clone(), of };
            stragglers.get_or_create(&(job.clone(), labels)).set(straggler.late_ms / 1e3);
        }
    }
    registry.register_with_unit(
        "straggler_late",
        "A rank that is late, and the reason",
        Unit::Seconds,
        stragglers,
    );
}

#[cfg(test)]
mod tests {
    use crate::watch::picture::sample;

    #[test]
    fn metrics_of_a_stalled_job() {
        // Families have no order of their own.
        let text = super::render(&[(None, sample::stalled())]);
        let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        lines.sort_unstable();
        insta::assert_snapshot!(lines.join("\n"));
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    /// Each sample has a help and a type by its own name, as `promtool check metrics` demands.
    #[test]
    fn the_older_text_helps_with_every_name() {
        let text = super::older(&super::render(&[(None, sample::stalled())]));
        assert!(!text.contains("# EOF") && !text.contains("# UNIT"), "{text}");
        assert!(text.contains("# TYPE ringleader_stalls_total counter\n"), "{text}");
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let name = line.split(['{', ' ']).next().unwrap_or_default();
            for mark in ["HELP", "TYPE"] {
                assert!(text.contains(&format!("# {mark} {name} ")), "{mark} {name}: {text}");
            }
        }
    }

    /// Of two jobs no series is lost to the other, and none lacks its job.
    #[test]
    fn each_job_has_its_series() {
        let text = super::render(&[
            (Some("a".to_owned()), sample::stalled()),
            (Some("b".to_owned()), sample::running()),
        ]);
        let series = |job: &str| {
            let label = format!("{{job=\"{job}\"");
            text.lines().filter(|line| !line.starts_with('#') && line.contains(&label)).count()
        };
        let all = text.lines().filter(|line| !line.starts_with('#')).count();
        let alone =
            |picture| super::render(&[(None, picture)]).lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(
            (series("a"), series("b")),
            (alone(sample::stalled()), alone(sample::running())),
            "{text}"
        );
        assert_eq!(all, series("a") + series("b"), "{text}");
        assert!(text.contains("ringleader_stalls_total{job=\"a\"} 1"), "{text}");
    }

    #[test]
    fn a_name_with_quotes_and_lines_stays_one_label() {
        let mut picture = sample::running();
        picture.comms[0].name = "a\"} 1\nb\\".to_owned();
        let text = super::render(&[(None, picture)]);
        assert!(text.contains(r#"name="a\"} 1\nb\\""#), "{text}");
    }
}
