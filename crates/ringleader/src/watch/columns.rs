//! The columns of both lists of `watch`, declared once: screen, table, page and metrics read them here.

use serde::Serialize;

use crate::watch::picture::{CommRow, Picture, RankRow};
use crate::watch::words;

/// A column of rows of one type.
pub(crate) struct Column<R> {
    /// Its head.
    pub(crate) head: &'static str,
    /// What `explain` says of its head.
    pub(crate) meaning: Meaning,
    /// How it is laid out.
    pub(crate) kind: CellKind,
    /// Its width on the screen.
    pub(crate) width: Width,
    /// What it says of a row. May be anybody's text.
    pub(crate) cell: fn(&R) -> String,
    /// The same as a metric.
    pub(crate) metric: Option<Metric<R>>,
}

/// What `explain` says of the head of a column.
pub(crate) enum Meaning {
    /// Nothing: the head is a plain name.
    Plain,
    /// What it says of a word of its own list.
    Word,
    /// This.
    Here(ColumnWord),
}

/// A word, as `explain` says it.
#[derive(Clone, Copy)]
pub(crate) struct ColumnWord {
    pub(crate) name: &'static str,
    /// Other forms by which it is asked for.
    pub(crate) also: &'static [&'static str],
    pub(crate) title: &'static str,
    pub(crate) means: &'static str,
    pub(crate) see: &'static [&'static str],
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
    const fn text(head: &'static str, meaning: Meaning, width: Width, cell: fn(&R) -> String) -> Self {
        Self { head, meaning, kind: CellKind::Text, width, cell, metric: None }
    }

    const fn number(head: &'static str, meaning: Meaning, cells: u16, cell: fn(&R) -> String) -> Self {
        Self { head, meaning, kind: CellKind::Number, width: Width::Cells(cells), cell, metric: None }
    }

    const fn sentence(head: &'static str, meaning: Meaning, share: u16, cell: fn(&R) -> String) -> Self {
        Self { head, meaning, kind: CellKind::Sentence, width: Width::Share(share), cell, metric: None }
    }

    const fn measured(self, metric: Metric<R>) -> Self {
        let Self { head, meaning, kind, width, cell, metric: _ } = self;
        Self { head, meaning, kind, width, cell, metric: Some(metric) }
    }
}

type CommColumn = Column<CommRow>;
type RankColumn = Column<RankRow>;

const OPS_PER_S: ColumnWord = ColumnWord {
    name: "op/s",
    also: &["ops", "ops_per_s", "ops/s"],
    title: "operations that ended in a second",
    means: "of one communicator, on the rank that has finished fewest",
    see: &["bus GB/s"],
};

const GB_PER_S: ColumnWord = ColumnWord {
    name: "GB/s",
    also: &["bytes_per_s"],
    title: "data that the calls of a rank carry in a second",
    means: "the size of its calls, not what crosses a link",
    see: &["bus GB/s"],
};

const BUS_GB_PER_S: ColumnWord = ColumnWord {
    name: "bus GB/s",
    also: &["busbw_gbs", "bus gbs"],
    title: "bus bandwidth while collectives run",
    means: "as nccl-tests defines busbw: compare it with what such nodes reach",
    see: &["busbw", "op/s"],
};

const IN_FLIGHT: ColumnWord = ColumnWord {
    name: "in flight",
    also: &["in_flight", "inflight"],
    title: "operations that have begun and have not ended",
    means: "on the rank that has most of them. Some are normal: a program hands them over in advance. \
     None on all ranks, and no progress: the program is outside of NCCL",
    see: &["still", "waiting"],
};

const STILL: ColumnWord = ColumnWord {
    name: "still",
    also: &["still_s", "now"],
    title: "for how long nothing of it has moved",
    means: "seconds since a rank last entered, started or finished an operation there. The column `now` \
     shows the operation, how many ranks are in it, and this time",
    see: &["patience", "in flight"],
};

const LATE_MS: ColumnWord = ColumnWord {
    name: "late ms",
    also: &["late_ms", "lateness"],
    title: "how much later than the others a rank enters collectives",
    means: "milliseconds in the mean over the last ones. The others wait as long in each step",
    see: &["slowest"],
};

/// Of the list of communicators.
pub(crate) static COMMS: [CommColumn; 9] = [
    CommColumn::text("communicator", Meaning::Plain, Width::Share(2), |comm| {
        words::comm_name(&comm.name, &comm.id).to_owned()
    }),
    CommColumn::number("ranks", Meaning::Word, 9, |comm| format!("{}/{}", comm.ranks_seen, comm.size)),
    CommColumn::number("ended", Meaning::Word, 8, |comm| comm.ops_done.to_string()).measured(Metric {
        name: "comm_operations",
        help: "Operations that every rank has finished",
        is_seconds: false,
        value: MetricValue::Counter(|comm| comm.ops_done),
    }),
    CommColumn::number("op/s", Meaning::Here(OPS_PER_S), 7, |comm| number(comm.ops_per_s)).measured(Metric {
        name: "comm_operations_per_second",
        help: "Operations finished per second",
        is_seconds: false,
        value: MetricValue::Gauge(|comm| Some(comm.ops_per_s)),
    }),
    CommColumn::number("GB/s", Meaning::Here(GB_PER_S), 6, |comm| number(comm.bytes_per_s / 1e9)).measured(
        Metric {
            name: "comm_bytes_per_second",
            help: "Bytes per second that the calls of a rank carry",
            is_seconds: false,
            value: MetricValue::Gauge(|comm| Some(comm.bytes_per_s)),
        },
    ),
    CommColumn::number("bus GB/s", Meaning::Here(BUS_GB_PER_S), 8, |comm| known(comm.busbw_gbs, number))
        .measured(Metric {
            name: "comm_bus_bandwidth_bytes_per_second",
            help: "Bus bandwidth while collectives run, as nccl-tests define it",
            is_seconds: false,
            value: MetricValue::Gauge(|comm| Some(comm.busbw_gbs? * 1e9)),
        }),
    CommColumn::number("in flight", Meaning::Here(IN_FLIGHT), 9, |comm| comm.in_flight.to_string()).measured(
        Metric {
            name: "comm_in_flight",
            help: "Operations in flight on the rank that has most",
            is_seconds: false,
            value: MetricValue::Gauge(|comm| Some(f64::from(comm.in_flight))),
        },
    ),
    CommColumn::sentence("now", Meaning::Here(STILL), 4, |comm| {
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
    CommColumn::text("waits for", Meaning::Word, Width::Share(2), |comm| {
        if comm.waiting_for.is_empty() { String::new() } else { words::rank_list(&comm.waiting_for) }
    }),
];

/// Of the list of ranks.
pub(crate) static RANKS: [RankColumn; 7] = [
    RankColumn::number("rank", Meaning::Word, 6, |rank| known(rank.rank, |rank| rank.to_string())),
    RankColumn::text("host", Meaning::Plain, Width::Cells(18), |rank| rank.host.clone()),
    RankColumn::number("pid", Meaning::Plain, 8, |rank| rank.pid.to_string()),
    RankColumn::text("state", Meaning::Word, Width::Cells(16), |rank| rank.state.clone()),
    RankColumn::number("late ms", Meaning::Here(LATE_MS), 8, |rank| {
        known(rank.late_ms, |late| format!("{late:.1}"))
    })
    .measured(Metric {
        name: "rank_late",
        help: "Mean delay with which it enters collectives",
        is_seconds: true,
        value: MetricValue::Gauge(|rank| Some(rank.late_ms? / 1e3)),
    }),
    RankColumn::number("cpu", Meaning::Plain, 5, |rank| {
        known(rank.cpu, |cpu| format!("{:.0}%", cpu * 100.0))
    }),
    RankColumn::sentence("what", Meaning::Plain, 1, |rank| rank.detail.clone()),
];

/// A rate; nothing to see is no number.
fn number(value: f64) -> String {
    if value > 0.0 { format!("{value:.1}") } else { "-".to_owned() }
}

/// What is not known is no number either.
fn known<T>(value: Option<T>, say: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), say)
}

/// What the columns say of their heads.
fn meanings() -> impl Iterator<Item = (&'static str, &'static Meaning)> {
    let of_comms = COMMS.iter().map(|column| (column.head, &column.meaning));
    of_comms.chain(RANKS.iter().map(|column| (column.head, &column.meaning)))
}

/// The words that columns explain.
pub(crate) fn words() -> impl Iterator<Item = ColumnWord> {
    meanings().filter_map(|(_, meaning)| match meaning {
        Meaning::Here(word) => Some(*word),
        Meaning::Plain | Meaning::Word => None,
    })
}

/// Heads that are more than a plain name.
#[cfg(test)]
pub(crate) fn explained_heads() -> impl Iterator<Item = &'static str> {
    meanings().filter(|(_, meaning)| !matches!(meaning, Meaning::Plain)).map(|(head, _)| head)
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
