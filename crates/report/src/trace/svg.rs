//! Plots of `ringleader trace` as SVG: step bars of the ranks, and bandwidth over message size.

use std::fmt::Write as _;

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
    let mut out = open(height, "a usual step of each rank, milliseconds");
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

fn open(height: f64, title: &str) -> String {
    format!(
        "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {height}' width='{WIDTH}' height='{height}' \
         font-family='sans-serif' font-size='11'><title>{title}</title>\n"
    )
}
