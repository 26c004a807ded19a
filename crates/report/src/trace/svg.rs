//! Plots of `ringleader trace` as SVG: step bars of the ranks, and bandwidth over message size.

use std::fmt::Write as _;

use ringleader_model::WorkKind;
use ringleader_trace::Analysis;
use ringleader_trace::intervals::Intervals;

use super::{Collective, RankTime, TraceReport};

/// Ranks that are drawn.
const MAX_RANKS: usize = 64;
const WIDTH: f64 = 760.0;
const LEFT: f64 = 60.0;

/// Colours by part, of a palette that people with colour blindness tell apart (Okabe and Ito).
const PARTS: [(&str, &str); 6] = [
    ("computation", "#0072b2"),
    ("exposed communication", "#d55e00"),
    ("exposed copies", "#e69f00"),
    ("host, input, allocator, synchronisation", "#cc79a7"),
    ("launch and events", "#999999"),
    ("unexplained", "#dddddd"),
];

fn parts(rank: &RankTime) -> [f64; 6] {
    let idle = |names: &[&str]| names.iter().filter_map(|name| rank.idle.get(*name)).sum::<f64>();
    [
        rank.compute,
        rank.exposed_comm,
        rank.exposed_copy,
        idle(&[
            "host",
            "outside",
            "data-loading",
            "synchronisation",
            "allocator",
            "blocking-copy",
            "recorder",
        ]),
        idle(&["launch", "waits-for-event"]),
        idle(&["unexplained"]),
    ]
}

/// What a usual step of each rank is made of.
pub fn steps(report: &TraceReport) -> String {
    let longest = report.ranks.iter().map(|r| r.step).fold(0.001, f64::max);
    let n = report.ranks.len().min(MAX_RANKS);
    let height = 40.0 + n as f64 * 18.0 + 22.0;
    let mut out = open(height, "a typical step of each rank, milliseconds");
    for (at, (name, color)) in PARTS.iter().enumerate() {
        let x = LEFT + at as f64 % 3.0 * 230.0;
        let y = 4.0 + (at / 3) as f64 * 14.0;
        let _ = write!(
            out,
            "<rect x='{x}' y='{y}' width='9' height='9' fill='{color}'/><text x='{}' y='{}'>{name}</text>",
            x + 13.0,
            y + 9.0
        );
    }
    for (row, rank) in report.ranks.iter().take(MAX_RANKS).enumerate() {
        let y = 38.0 + row as f64 * 18.0;
        let _ = write!(out, "<text x='4' y='{}'>rank {}</text>", y + 11.0, rank.rank);
        let mut x = LEFT;
        for (ms, (name, color)) in parts(rank).into_iter().zip(PARTS) {
            let width = ms / longest * (WIDTH - LEFT - 60.0);
            if width > 0.05 {
                let _ = write!(
                    out,
                    "<rect x='{x:.1}' y='{y}' width='{width:.1}' height='14' fill='{color}'><title>rank {}: {name} {ms:.2} ms</title></rect>",
                    rank.rank
                );
            }
            x += width;
        }
        let _ = write!(out, "<text x='{:.1}' y='{}'>{:.1}</text>", x + 4.0, y + 11.0, rank.step);
    }
    out + "</svg>\n"
}

/// Bus bandwidth of each kind and size, and what is usual.
pub fn bandwidth(report: &TraceReport) -> String {
    let classes: Vec<&Collective> =
        report.collectives.iter().filter(|c| c.size_bytes > 0 && c.busbw_gbs.is_some()).collect();
    let top = classes.iter().flat_map(|c| [c.busbw_gbs, c.expected_gbs]).flatten().fold(1.0, f64::max) * 1.1;
    let (low, high) = (10.0_f64, 34.0_f64);
    let x = |bytes: u64| {
        LEFT + ((bytes as f64).log2().clamp(low, high) - low) / (high - low) * (WIDTH - LEFT - 20.0)
    };
    let y = |gbs: f64| 200.0 - gbs / top * 180.0;
    let mut out = open(230.0, "bus bandwidth over message size");
    for power in [10, 15, 20, 25, 30] {
        let at = x(1 << power);
        let label =
            ["1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB"].get((power - 10) / 5).copied().unwrap_or("");
        let _ = write!(
            out,
            "<line x1='{at:.0}' y1='20' x2='{at:.0}' y2='200' stroke='#eee'/><text x='{at:.0}' y='216'>{label}</text>"
        );
    }
    for share in [0.0, 0.5, 1.0] {
        let gbs = top * share;
        let _ = write!(out, "<text x='4' y='{:.0}'>{gbs:.0} GB/s</text>", y(gbs) + 4.0);
    }
    for class in classes {
        let (at, gbs) = (x(class.size_bytes), class.busbw_gbs.unwrap_or(0.0));
        let name = class.op.as_deref().unwrap_or("unknown");
        let _ = write!(
            out,
            "<circle cx='{at:.1}' cy='{:.1}' r='4' fill='#0072b2' fill-opacity='0.7'><title>{name}: {} bytes, {gbs:.1} GB/s, {} times</title></circle>",
            y(gbs),
            class.size_bytes,
            class.count
        );
        if let Some(usual) = class.expected_gbs {
            let _ = write!(
                out,
                "<path d='M{:.1} {:.1}h12' stroke='#d55e00' stroke-width='2'><title>usual: {usual:.0} GB/s</title></path>",
                at - 6.0,
                y(usual)
            );
        }
    }
    out + "</svg>\n"
}

/// Rows of the timeline; ranks beyond it are left out, the ranks at fault never.
const MAX_ROWS: usize = 24;
/// What is drawn of a rank, one lane each.
const LANES: [(&str, &str); 4] = [
    ("computation", "#0072b2"),
    ("communication", "#d55e00"),
    ("waiting for other ranks", "#f0c8a8"),
    ("copies", "#e69f00"),
];

/// One usual step of each rank on the common clock: what computes, communicates, waits and copies.
pub fn timeline(analysis: &Analysis<'_>) -> String {
    let last = |view: usize| analysis.steps.get(view).and_then(|s| s.usual.last().copied());
    let places: Vec<Option<u32>> = (0..analysis.views.len())
        .map(|view| analysis.lateness.steps.last().and_then(|p| p.get(view).copied()).or_else(|| last(view)))
        .collect();
    let window = |view: usize| -> Option<(i64, i64)> {
        let step = analysis.steps.get(view)?.all.get((*places.get(view)?)? as usize)?;
        let shift = analysis.join.shift_ns.get(view).copied().unwrap_or(0);
        Some((step.window.0 + shift, step.window.1 + shift))
    };
    let culprits: Vec<u32> = analysis.advice.first().map(|a| a.culprits.clone()).unwrap_or_default();
    let mut rows: Vec<usize> = (0..analysis.views.len()).filter(|view| window(*view).is_some()).collect();
    let is_at_fault = |view: &usize| analysis.views.get(*view).is_some_and(|v| culprits.contains(&v.rank));
    rows.sort_by_key(|view| (!is_at_fault(view), *view));
    rows.truncate(MAX_ROWS);
    rows.sort_unstable();
    let Some((from, to)) =
        rows.iter().filter_map(|view| window(*view)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
    else {
        return String::new();
    };
    let scale = (WIDTH - LEFT - 10.0) / (to - from).max(1) as f64;
    let mut out = open(44.0 + rows.len() as f64 * 26.0, "one step of each rank on a common clock");
    for (at, (name, color)) in LANES.iter().enumerate() {
        let x = LEFT + at as f64 * 165.0;
        let _ = write!(
            out,
            "<rect x='{x}' y='4' width='9' height='9' fill='{color}'/><text x='{}' y='13'>{name}</text>",
            x + 13.0
        );
    }
    for (row, view) in rows.iter().enumerate() {
        let y = 24.0 + row as f64 * 26.0;
        let rank = analysis.views.get(*view).map_or(0, |v| v.rank);
        let weight = if culprits.contains(&rank) { " font-weight='bold'" } else { "" };
        let _ = write!(out, "<text x='4' y='{}'{weight}>rank {rank}</text>", y + 13.0);
        for (lane, set) in lanes(analysis, *view, (from, to)).iter().enumerate() {
            let (_, color) = LANES.get(lane).copied().unwrap_or(("", "#000"));
            // Communication and its waiting share a lane.
            let top = y + [0.0, 8.0, 8.0, 16.0].get(lane).copied().unwrap_or(0.0);
            for (a, b) in merged(set, (0.25 / scale) as i64) {
                let _ = write!(
                    out,
                    "<rect x='{:.1}' y='{top}' width='{:.1}' height='6' fill='{color}'/>",
                    LEFT + (a - from) as f64 * scale,
                    ((b - a) as f64 * scale).max(0.2)
                );
            }
        }
    }
    let _ = writeln!(
        out,
        "<text x='{LEFT}' y='{}'>{:.1} ms</text></svg>",
        38.0 + rows.len() as f64 * 26.0,
        (to - from) as f64 / 1e6
    );
    out
}

/// What a rank does within a time of the common clock, by lane.
fn lanes(analysis: &Analysis<'_>, place: usize, (from, to): (i64, i64)) -> [Intervals; 4] {
    let Some(view) = analysis.views.get(place) else { return Default::default() };
    let shift = analysis.join.shift_ns.get(place).copied().unwrap_or(0);
    let mut sets: [Vec<(i64, i64)>; 4] = Default::default();
    for (at, work) in view.work().iter().enumerate() {
        let (start, end) = (work.start_ns + shift, work.end_ns + shift);
        if end <= from || start >= to {
            continue;
        }
        let last_start = analysis
            .join
            .op_of(place, at)
            .and_then(|op| analysis.join.extent(&analysis.views, op))
            .map_or(start, |(last, _)| last.clamp(start, end));
        let parts: [(usize, (i64, i64)); 2] = match work.kind {
            WorkKind::Compute => [(0, (start, end)), (0, (0, 0))],
            WorkKind::Comm => [(1, (last_start, end)), (2, (start, last_start))],
            WorkKind::Copy { .. } | WorkKind::Fill => [(3, (start, end)), (3, (0, 0))],
        };
        for (lane, (a, b)) in parts {
            if let Some(set) = sets.get_mut(lane).filter(|_| b > a) {
                set.push((a.max(from), b.min(to)));
            }
        }
    }
    sets.map(Intervals::of)
}

/// Intervals with gaps too small to be seen closed.
fn merged(set: &Intervals, gap: i64) -> Vec<(i64, i64)> {
    let mut out: Vec<(i64, i64)> = Vec::new();
    for (a, b) in set.list() {
        match out.last_mut() {
            Some(last) if *a - last.1 <= gap => last.1 = *b,
            _ => out.push((*a, *b)),
        }
    }
    out
}

/// How long each rank waits for others in a step: who waits least is who the others wait for.
pub fn lateness(analysis: &Analysis<'_>) -> String {
    let waits = &analysis.lateness.waits;
    if waits.is_empty() {
        return String::new();
    }
    let mean = |view: usize| {
        waits.iter().filter_map(|step| step.get(view)).sum::<i64>() as f64 / waits.len() as f64 / 1e6
    };
    let rows: Vec<(u32, f64)> =
        analysis.views.iter().enumerate().take(MAX_RANKS).map(|(at, view)| (view.rank, mean(at))).collect();
    let longest = rows.iter().map(|row| row.1).fold(0.001, f64::max);
    let mut out = open(10.0 + rows.len() as f64 * 18.0, "waiting for other ranks in a step, milliseconds");
    for (row, (rank, ms)) in rows.iter().enumerate() {
        let y = 4.0 + row as f64 * 18.0;
        let width = ms / longest * (WIDTH - LEFT - 60.0);
        let _ = write!(
            out,
            "<text x='4' y='{}'>rank {rank}</text><rect x='{LEFT}' y='{y}' width='{width:.1}' height='14' fill='#f0c8a8'/><text x='{:.1}' y='{}'>{ms:.2}</text>",
            y + 11.0,
            LEFT + width + 4.0,
            y + 11.0
        );
    }
    out + "</svg>\n"
}

fn open(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' \
         font-family='sans-serif' font-size='11'><title>{title}</title>\n"
    )
}
