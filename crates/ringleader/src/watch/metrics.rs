//! A [`Picture`] as Prometheus reads it (OpenMetrics text).

use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use std::sync::atomic::AtomicU64;

use crate::watch::picture::Picture;
use crate::watch::words;

/// Its media type.
pub(crate) const TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

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
struct Late {
    rank: String,
    comm: String,
    of: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answer {
    cause: String,
    confidence: String,
    culprit: String,
}

type Numbers<L> = Family<L, Gauge<f64, AtomicU64>>;

/// All metrics. What is not known is left out; a stale number would look like health.
pub(crate) fn render(picture: &Picture) -> String {
    let mut registry = Registry::with_prefix("ringleader");
    let plain = |registry: &mut Registry, name: &str, help: &str, value: f64| {
        let gauge = Gauge::<f64, AtomicU64>::default();
        gauge.set(value);
        registry.register(name, help, gauge);
    };
    plain(&mut registry, "ranks", "Ranks that are watched", picture.n_ranks as f64);
    plain(&mut registry, "nodes", "Nodes that are watched", picture.n_nodes as f64);
    plain(&mut registry, "communicators", "Communicators that are watched", picture.n_comms as f64);
    plain(&mut registry, "stalled", "Stalls that stand now", picture.stalls.len() as f64);
    for (name, help, n) in [
        ("stalls", "Stalls since watching began", picture.n_stalls),
        ("verdicts", "Verdicts since watching began", picture.n_verdicts),
    ] {
        let counter = Counter::<u64>::default();
        counter.inc_by(n);
        registry.register(name, help, counter);
    }
    comms(&mut registry, picture);
    ranks(&mut registry, picture);
    let answer = Numbers::<Answer>::default();
    if let Some(verdict) = picture.verdict.as_ref().map(|report| &report["verdict"]) {
        let of = |name: &str| verdict[name].as_str().unwrap_or_default().to_owned();
        let culprit =
            verdict["culprits"][0]["rank"].as_u64().map(|rank| rank.to_string()).unwrap_or_default();
        let labels = Answer { cause: of("cause"), confidence: of("confidence"), culprit };
        answer.get_or_create(&labels).set(1.0);
    }
    registry.register("verdict", "The newest verdict, always 1", answer);
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = text::encode(&mut out, &registry);
    out
}

fn comms(registry: &mut Registry, picture: &Picture) {
    let done = Family::<OfComm, Counter>::default();
    let [rate, bus, in_flight, still, stalled, bytes] = std::array::from_fn(|_| Numbers::<OfComm>::default());
    for comm in &picture.comms {
        let labels = OfComm { comm: comm.id.clone(), name: comm.name.clone() };
        done.get_or_create(&labels).inc_by(comm.ops_done);
        rate.get_or_create(&labels).set(comm.ops_per_s);
        bytes.get_or_create(&labels).set(comm.bytes_per_s);
        if let Some(gbs) = comm.busbw_gbs {
            bus.get_or_create(&labels).set(gbs * 1e9);
        }
        in_flight.get_or_create(&labels).set(f64::from(comm.in_flight));
        still.get_or_create(&labels).set(comm.still_s);
        stalled.get_or_create(&labels).set(f64::from(u8::from(comm.is_stalled)));
    }
    registry.register("comm_operations", "Operations that every rank has ended", done);
    registry.register("comm_operations_per_second", "Operations ended a second", rate);
    registry.register("comm_bytes_per_second", "Bytes that the calls of a rank carry a second", bytes);
    registry.register(
        "comm_bus_bandwidth_bytes_per_second",
        "Bus bandwidth while collectives run, as nccl-tests define it",
        bus,
    );
    registry.register("comm_in_flight", "Operations in flight on the rank that has most", in_flight);
    registry.register_with_unit("comm_still", "Time for which nothing has moved", Unit::Seconds, still);
    registry.register("comm_stalled", "Whether a stall stands in it", stalled);
}

fn ranks(registry: &mut Registry, picture: &Picture) {
    let late = Numbers::<OfRank>::default();
    let state = Numbers::<StateOfRank>::default();
    let suspect = Numbers::<OfRank>::default();
    for row in &picture.ranks {
        let rank = row.rank.map_or_else(|| format!("pid {}", row.pid), |rank| rank.to_string());
        let labels = OfRank { rank: rank.clone(), host: row.host.clone() };
        if let Some(ms) = row.late_ms {
            late.get_or_create(&labels).set(ms / 1e3);
        }
        suspect.get_or_create(&labels).set(f64::from(u8::from(row.is_suspect)));
        let labels = StateOfRank { rank, host: row.host.clone(), state: row.state.clone() };
        state.get_or_create(&labels).set(1.0);
    }
    registry.register_with_unit(
        "rank_late",
        "How late it enters collectives in the mean",
        Unit::Seconds,
        late,
    );
    registry.register("rank_suspect", "Whether a stall points at it", suspect);
    registry.register("rank_state", "State of a rank, always 1", state);
    let stragglers = Numbers::<Late>::default();
    for straggler in &picture.stragglers {
        let of = words::lag(straggler.of).to_owned();
        let labels = Late { rank: straggler.rank.to_string(), comm: straggler.comm.clone(), of };
        stragglers.get_or_create(&labels).set(straggler.late_ms / 1e3);
    }
    registry.register_with_unit(
        "straggler_late",
        "A rank that is late, and of what",
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
        let text = super::render(&sample::stalled());
        let mut lines: Vec<&str> = text.lines().filter(|line| !line.starts_with('#')).collect();
        lines.sort_unstable();
        insta::assert_snapshot!(lines.join("\n"));
        assert!(text.ends_with("# EOF\n"), "{text}");
    }

    #[test]
    fn a_name_with_quotes_and_lines_stays_one_label() {
        let mut picture = sample::running();
        picture.comms[0].name = "a\"} 1\nb\\".to_owned();
        let text = super::render(&picture);
        assert!(text.contains(r#"name="a\"} 1\nb\\""#), "{text}");
    }
}
