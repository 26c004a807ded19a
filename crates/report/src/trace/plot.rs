//! Plots of `ringleader trace`: step bars of the ranks, one step on a common clock, waiting, and bandwidth over message size.

use ringleader_model::WorkKind;
use ringleader_trace::Analysis;
use ringleader_trace::intervals::Intervals;

use super::picture::{Color, Picture, Shape};
use super::{Collective, RankTime, TraceReport};

/// Ranks that are drawn.
const MAX_RANKS: usize = 64;
const WIDTH: f64 = 760.0;
const LEFT: f64 = 60.0;

const BLUE: Color = [0x00, 0x72, 0xb2];
const RED: Color = [0xd5, 0x5e, 0x00];
const ORANGE: Color = [0xe6, 0x9f, 0x00];
const PINK: Color = [0xcc, 0x79, 0xa7];
const SKIN: Color = [0xf0, 0xc8, 0xa8];
const GREY: Color = [0x99, 0x99, 0x99];
const PALE: Color = [0xdd, 0xdd, 0xdd];
const LINE: Color = [0xee, 0xee, 0xee];

/// Colours by part, of a palette that people with colour blindness tell apart (Okabe and Ito).
const PARTS: [(&str, Color); 6] = [
    ("computation", BLUE),
    ("exposed communication", RED),
    ("exposed copies", ORANGE),
    ("host, input, allocator, synchronisation", PINK),
    ("launch and events", GREY),
    ("unexplained", PALE),
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
pub fn steps(report: &TraceReport) -> Picture {
    let longest = report.ranks.iter().map(|r| r.step).fold(0.001, f64::max);
    let n = report.ranks.len().min(MAX_RANKS);
    let mut out = Picture::new("a typical step of each rank, milliseconds", WIDTH, 62.0 + n as f64 * 18.0);
    for (at, (name, color)) in PARTS.iter().enumerate() {
        out.legend(LEFT + at as f64 % 3.0 * 230.0, 4.0 + (at / 3) as f64 * 14.0, *color, name);
    }
    for (row, rank) in report.ranks.iter().take(MAX_RANKS).enumerate() {
        let y = 38.0 + row as f64 * 18.0;
        out.text(4.0, y + 11.0, format!("rank {}", rank.rank));
        let mut x = LEFT;
        for (ms, (name, color)) in parts(rank).into_iter().zip(PARTS) {
            let width = ms / longest * (WIDTH - LEFT - 60.0);
            if width > 0.05 {
                let tip = format!("rank {}: {name} {ms:.2} ms", rank.rank);
                out.rect((x, y), (width, 14.0), color, tip);
            }
            x += width;
        }
        out.text(x + 4.0, y + 11.0, format!("{:.1}", rank.step));
    }
    out
}

/// Bus bandwidth of each kind and size, and what is expected.
pub fn bandwidth(report: &TraceReport) -> Picture {
    let classes: Vec<&Collective> =
        report.collectives.iter().filter(|c| c.size_bytes > 0 && c.busbw_gbs.is_some()).collect();
    let top = classes.iter().flat_map(|c| [c.busbw_gbs, c.expected_gbs]).flatten().fold(1.0, f64::max) * 1.1;
    let (low, high) = (10.0_f64, 34.0_f64);
    let x = |bytes: u64| {
        LEFT + ((bytes as f64).log2().clamp(low, high) - low) / (high - low) * (WIDTH - LEFT - 20.0)
    };
    let y = |gbs: f64| 200.0 - gbs / top * 180.0;
    let mut out = Picture::new("bus bandwidth over message size", WIDTH, 230.0);
    for power in [10, 15, 20, 25, 30] {
        let at = x(1 << power);
        let label =
            ["1 KiB", "32 KiB", "1 MiB", "32 MiB", "1 GiB"].get((power - 10) / 5).copied().unwrap_or("");
        out.rect((at, 20.0), (1.0, 180.0), LINE, String::new());
        out.text(at, 216.0, label);
    }
    for share in [0.0, 0.5, 1.0] {
        let gbs = top * share;
        out.text(4.0, y(gbs) + 4.0, format!("{gbs:.0} GB/s"));
    }
    out.legend(LEFT + 230.0, 4.0, BLUE, "measured");
    if classes.iter().any(|class| class.expected_gbs.is_some()) {
        out.legend(LEFT + 330.0, 4.0, RED, "expected at this size");
    }
    for class in classes {
        let (at, gbs) = (x(class.size_bytes), class.busbw_gbs.unwrap_or(0.0));
        let name = class.op.as_deref().unwrap_or("unknown");
        let tip = format!("{name}: {} bytes, {gbs:.1} GB/s, {} times", class.size_bytes, class.count);
        out.shapes.push(Shape::Dot { x: at, y: y(gbs), radius: 4.0, fill: BLUE, tip });
        if let Some(expected) = class.expected_gbs {
            let tip = format!("expected: {expected:.0} GB/s");
            out.rect((at - 6.0, y(expected) - 1.0), (12.0, 2.0), RED, tip);
        }
    }
    out
}

/// Rows of the timeline; ranks beyond it are left out, the ranks at fault never.
const MAX_ROWS: usize = 24;
/// What is drawn of a rank, one lane each.
const LANES: [(&str, Color); 4] =
    [("computation", BLUE), ("communication", RED), ("waiting for other ranks", SKIN), ("copies", ORANGE)];

/// One usual step of each rank on the common clock: what computes, communicates, waits and copies. None if no rank has one.
pub fn timeline(analysis: &Analysis<'_>) -> Option<Picture> {
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
    let (from, to) =
        rows.iter().filter_map(|view| window(*view)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))?;
    let scale = (WIDTH - LEFT - 10.0) / (to - from).max(1) as f64;
    let height = 44.0 + rows.len() as f64 * 26.0;
    let mut out = Picture::new("one step of each rank on a common clock", WIDTH, height);
    for (at, (name, color)) in LANES.iter().enumerate() {
        out.legend(LEFT + at as f64 * 165.0, 4.0, *color, name);
    }
    for (row, view) in rows.iter().enumerate() {
        let y = 24.0 + row as f64 * 26.0;
        let rank = analysis.views.get(*view).map_or(0, |v| v.rank);
        let (text, is_bold) = (format!("rank {rank}"), culprits.contains(&rank));
        out.shapes.push(Shape::Text { x: 4.0, y: y + 13.0, text, is_bold });
        for (lane, set) in lanes(analysis, *view, (from, to)).iter().enumerate() {
            let color = LANES.get(lane).map_or([0; 3], |(_, color)| *color);
            // Communication and its waiting share a lane.
            let top = y + [0.0, 8.0, 8.0, 16.0].get(lane).copied().unwrap_or(0.0);
            for (a, b) in merged(set, (0.25 / scale) as i64) {
                let width = ((b - a) as f64 * scale).max(0.2);
                out.rect((LEFT + (a - from) as f64 * scale, top), (width, 6.0), color, String::new());
            }
        }
    }
    out.text(LEFT, 38.0 + rows.len() as f64 * 26.0, format!("{:.1} ms", (to - from) as f64 / 1e6));
    Some(out)
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

/// How long each rank waits for others in a step: who waits least is who the others wait for. None if that is unknown.
pub fn lateness(analysis: &Analysis<'_>) -> Option<Picture> {
    let waits = &analysis.lateness.waits;
    if waits.is_empty() {
        return None;
    }
    let mean = |view: usize| {
        waits.iter().filter_map(|step| step.get(view)).sum::<i64>() as f64 / waits.len() as f64 / 1e6
    };
    let rows: Vec<(u32, f64)> =
        analysis.views.iter().enumerate().take(MAX_RANKS).map(|(at, view)| (view.rank, mean(at))).collect();
    let longest = rows.iter().map(|row| row.1).fold(0.001, f64::max);
    let height = 10.0 + rows.len() as f64 * 18.0;
    let mut out = Picture::new("waiting for other ranks in a step, milliseconds", WIDTH, height);
    for (row, (rank, ms)) in rows.iter().enumerate() {
        let y = 4.0 + row as f64 * 18.0;
        let width = ms / longest * (WIDTH - LEFT - 60.0);
        out.text(4.0, y + 11.0, format!("rank {rank}"));
        out.rect((LEFT, y), (width, 14.0), SKIN, String::new());
        out.text(LEFT + width + 4.0, y + 11.0, format!("{ms:.2}"));
    }
    Some(out)
}
