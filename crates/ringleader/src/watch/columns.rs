//! The columns of both lists of `watch`, declared once: screen, table, page and metrics read them here.

use serde::Serialize;

use crate::watch::picture::{CommRow, Picture, RankRow};
use crate::watch::words;

/// A column of rows of one type.
pub(crate) struct Column<R> {
    /// Its head.
    pub(crate) head: &'static str,
    /// How it is laid out.
    pub(crate) kind: CellKind,
    /// Its width on the screen.
    pub(crate) width: Width,
    /// What it says of a row. May be anybody's text.
    pub(crate) cell: fn(&R) -> String,
    /// The same as a metric.
    pub(crate) metric: Option<Metric<R>>,
}

/// How a cell is laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CellKind {
    /// A word or two.
    Text,
    /// A number, to the right.
    Number,
    /// A sentence.
    Sentence,
}

/// Width on the screen.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Width {
    /// So many cells.
    Cells(u16),
    /// A share of what is left.
    Share(u16),
}

/// What Prometheus reads.
pub(crate) struct Metric<R> {
    /// Its name, without prefix and unit.
    pub(crate) name: &'static str,
    /// Its help.
    pub(crate) help: &'static str,
    /// It is a time in seconds, and its name does not say so.
    pub(crate) is_seconds: bool,
    /// Its value.
    pub(crate) value: MetricValue<R>,
}

/// The value of a metric.
pub(crate) enum MetricValue<R> {
    /// One that only grows.
    Counter(fn(&R) -> u64),
    /// Any other; none where it is not known.
    Gauge(fn(&R) -> Option<f64>),
}

impl<R> Column<R> {
    const fn text(head: &'static str, width: Width, cell: fn(&R) -> String) -> Self {
        Self { head, kind: CellKind::Text, width, cell, metric: None }
    }

    const fn number(head: &'static str, cells: u16, cell: fn(&R) -> String) -> Self {
        Self { head, kind: CellKind::Number, width: Width::Cells(cells), cell, metric: None }
    }

    const fn sentence(head: &'static str, share: u16, cell: fn(&R) -> String) -> Self {
        Self { head, kind: CellKind::Sentence, width: Width::Share(share), cell, metric: None }
    }

    const fn measured(self, metric: Metric<R>) -> Self {
        let Self { head, kind, width, cell, metric: _ } = self;
        Self { head, kind, width, cell, metric: Some(metric) }
    }
}

type CommColumn = Column<CommRow>;
type RankColumn = Column<RankRow>;

/// Of the list of communicators.
pub(crate) static COMMS: [CommColumn; 9] = [
    CommColumn::text("communicator", Width::Share(2), |comm| {
        words::comm_name(&comm.name, &comm.id).to_owned()
    }),
    CommColumn::number("ranks", 9, |comm| format!("{}/{}", comm.ranks_seen, comm.size)),
    CommColumn::number("ended", 8, |comm| comm.ops_done.to_string()).measured(Metric {
        name: "comm_operations",
        help: "Operations that every rank has finished",
        is_seconds: false,
        value: MetricValue::Counter(|comm| comm.ops_done),
    }),
    CommColumn::number("op/s", 7, |comm| number(comm.ops_per_s)).measured(Metric {
        name: "comm_operations_per_second",
        help: "Operations finished per second",
        is_seconds: false,
        value: MetricValue::Gauge(|comm| Some(comm.ops_per_s)),
    }),
    CommColumn::number("GB/s", 6, |comm| number(comm.bytes_per_s / 1e9)).measured(Metric {
        name: "comm_bytes_per_second",
        help: "Bytes per second that the calls of a rank carry",
        is_seconds: false,
        value: MetricValue::Gauge(|comm| Some(comm.bytes_per_s)),
    }),
    CommColumn::number("bus GB/s", 8, |comm| known(comm.busbw_gbs, number)).measured(Metric {
        name: "comm_bus_bandwidth_bytes_per_second",
        help: "Bus bandwidth while collectives run, as nccl-tests define it",
        is_seconds: false,
        value: MetricValue::Gauge(|comm| Some(comm.busbw_gbs? * 1e9)),
    }),
    CommColumn::number("in flight", 9, |comm| comm.in_flight.to_string()).measured(Metric {
        name: "comm_in_flight",
        help: "Operations in flight on the rank that has most",
        is_seconds: false,
        value: MetricValue::Gauge(|comm| Some(f64::from(comm.in_flight))),
    }),
    CommColumn::sentence("now", 4, |comm| {
        let inside = |front: &String| {
            format!("{front} {}/{} in, {:.0} s", comm.entered, comm.ranks_seen, comm.still_s.max(0.0))
        };
        comm.front.as_ref().map(inside).unwrap_or_default()
    })
    .measured(Metric {
        name: "comm_still",
        help: "Time for which nothing has moved",
        is_seconds: true,
        value: MetricValue::Gauge(|comm| Some(comm.still_s)),
    }),
    CommColumn::text("waits for", Width::Share(2), |comm| {
        if comm.waiting_for.is_empty() { String::new() } else { words::rank_list(&comm.waiting_for) }
    }),
];

/// Of the list of ranks.
pub(crate) static RANKS: [RankColumn; 7] = [
    RankColumn::number("rank", 6, |rank| known(rank.rank, |rank| rank.to_string())),
    RankColumn::text("host", Width::Cells(18), |rank| rank.host.clone()),
    RankColumn::number("pid", 8, |rank| rank.pid.to_string()),
    RankColumn::text("state", Width::Cells(16), |rank| rank.state.clone()),
    RankColumn::number("late ms", 8, |rank| known(rank.late_ms, |late| format!("{late:.1}"))).measured(
        Metric {
            name: "rank_late",
            help: "Mean delay with which it enters collectives",
            is_seconds: true,
            value: MetricValue::Gauge(|rank| Some(rank.late_ms? / 1e3)),
        },
    ),
    RankColumn::number("cpu", 5, |rank| known(rank.cpu, |cpu| format!("{:.0}%", cpu * 100.0))),
    RankColumn::sentence("what", 1, |rank| rank.detail.clone()),
];

/// A rate; nothing to see is no number.
fn number(value: f64) -> String {
    if value > 0.0 { format!("{value:.1}") } else { "-".to_owned() }
}

/// What is not known is no number either.
fn known<T>(value: Option<T>, say: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), say)
}

/// A list with all its cells, for the page.
#[derive(Debug, Serialize)]
pub(crate) struct List {
    columns: Vec<ColumnHead>,
    rows: Vec<Vec<String>>,
}

#[derive(Debug, Serialize)]
struct ColumnHead {
    head: &'static str,
    kind: CellKind,
}

/// Both lists.
#[derive(Debug, Serialize)]
pub(crate) struct Lists {
    comms: List,
    ranks: List,
}

impl Lists {
    pub(crate) fn new(picture: &Picture) -> Self {
        Self { comms: List::new(&COMMS, &picture.comms), ranks: List::new(&RANKS, &picture.ranks) }
    }
}

impl List {
    fn new<R>(columns: &[Column<R>], rows: &[R]) -> Self {
        Self {
            columns: columns
                .iter()
                .map(|column| ColumnHead { head: column.head, kind: column.kind })
                .collect(),
            rows: rows.iter().map(|row| cells(columns, row)).collect(),
        }
    }
}

/// All cells of a row.
pub(crate) fn cells<R>(columns: &[Column<R>], row: &R) -> Vec<String> {
    columns.iter().map(|column| (column.cell)(row)).collect()
}
