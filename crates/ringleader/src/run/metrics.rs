//! Metrics of a run as a file for the Prometheus textfile collector, replaced atomically.

use std::io;
use std::path::Path;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use ringleader_run::decide::Failed;
use ringleader_run::effective::Effective;
use ringleader_run::journal::RunState;

type Labels = Vec<(String, String)>;
type Number = Family<Labels, Gauge<f64, AtomicU64>>;

/// Values to export.
pub(crate) struct Shown<'a> {
    pub(crate) job: &'a str,
    pub(crate) node: &'a str,
    pub(crate) state: RunState,
    pub(crate) generation: u64,
    pub(crate) step: Option<u64>,
    pub(crate) excluded: usize,
    pub(crate) failures: &'a [Failed],
    pub(crate) effective: Effective,
}

/// Writes the file. Errors: the file system's.
pub(crate) fn write(path: &Path, shown: &Shown<'_>) -> io::Result<()> {
    let text = text(shown)?;
    let beside = path.with_extension("prom.part");
    std::fs::write(&beside, text)?;
    std::fs::rename(&beside, path)
}

fn text(shown: &Shown<'_>) -> io::Result<String> {
    let mut registry = Registry::with_prefix("ringleader_run");
    let of_job: Labels =
        vec![("job".to_owned(), shown.job.to_owned()), ("node".to_owned(), shown.node.to_owned())];
    let mut gauge = |name: &str, help: &str, rows: Vec<(Labels, f64)>| {
        let family = Number::default();
        for (labels, value) in rows {
            family.get_or_create(&labels).set(value);
        }
        registry.register(name, help, family);
    };
    let with = |key: &str, value: &str| {
        of_job.iter().cloned().chain([(key.to_owned(), value.to_owned())]).collect::<Labels>()
    };
    let is = |state: RunState| f64::from(u8::from(state == shown.state));
    gauge(
        "state",
        "1 for the state of the run",
        RunState::ALL.map(|s| (with("state", s.name()), is(s))).to_vec(),
    );
    gauge("generation", "Number of the attempt", vec![(of_job.clone(), shown.generation as f64)]);
    gauge("excluded_nodes", "Nodes left out", vec![(of_job.clone(), shown.excluded as f64)]);
    if let Some(step) = shown.step {
        gauge("step", "Last training step that the program printed", vec![(of_job.clone(), step as f64)]);
    }
    let mut classes: std::collections::BTreeMap<&str, f64> = std::collections::BTreeMap::new();
    for failed in shown.failures {
        *classes.entry(failed.charged.name()).or_default() += 1.0;
    }
    let rows = classes.into_iter().map(|(class, n)| (with("class", class), n)).collect();
    gauge("failures", "Failed attempts by the class they were charged to", rows);
    gauge("wall_seconds", "Seconds since the first start", vec![(of_job.clone(), shown.effective.wall_s)]);
    if let Some(s) = shown.effective.mean_time_to_failure_s {
        gauge("mean_time_to_failure_seconds", "Running time per failure", vec![(of_job.clone(), s)]);
    }
    if let Some(n) = shown.effective.steps_repeated {
        gauge("repeated_steps", "Training steps computed more than once", vec![(of_job.clone(), n as f64)]);
    }
    if let Some(ratio) = shown.effective.ratio {
        let help = "Share of the wall time spent on steps that were not repeated";
        gauge("effective_ratio", help, vec![(of_job.clone(), ratio)]);
    }
    let mut text = String::new();
    encode(&mut text, &registry).map_err(io::Error::other)?;
    // Older textfile collectors reject the end mark.
    Ok(text.replace("# EOF\n", ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_state_is_one() {
        let shown = Shown {
            job: "j",
            node: "n\"0",
            state: RunState::Backoff,
            generation: 2,
            step: Some(7),
            excluded: 1,
            failures: &[],
            effective: Effective { ratio: Some(0.5), ..Effective::default() },
        };
        let text = text(&shown).unwrap_or_default();
        assert!(
            text.contains("ringleader_run_state{job=\"j\",node=\"n\\\"0\",state=\"backoff\"} 1.0"),
            "{text}"
        );
        assert_eq!(text.matches("} 1.0\n").count(), 2, "{text}");
        assert!(text.contains("ringleader_run_effective_ratio{") && !text.contains("EOF"), "{text}");
    }
}
