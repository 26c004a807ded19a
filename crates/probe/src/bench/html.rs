//! The report as one self-contained page: the verdict, a plot of bus bandwidth over size, and the table. No script.

use std::fmt::Write as _;

use crate::bench::{Report, Row, table};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 380.0;
const LEFT: f64 = 56.0;
const BOTTOM: f64 = 40.0;
/// Distinguishable without colour vision, too.
const COLOURS: [&str; 10] = [
    "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#8a6d3b", "#7b3294",
    "#5e5e5e",
];

/// The page.
pub fn render(report: &Report) -> String {
    let mut out = String::from(
        "<!doctype html><meta charset=utf-8><title>ringleader bench</title><style>body{font:14px sans-serif;margin:2em;max-width:70em}\
         pre{background:#f4f4f4;padding:1em;overflow:auto}svg text{font:12px sans-serif}</style><h1>ringleader bench</h1>",
    );
    let _ = write!(out, "<pre>{}</pre>", escape(&table::who(report).join("\n")));
    out.push_str(&plot(report));
    let _ = write!(out, "<pre>{}</pre>", escape(&table::verdicts(report)));
    let mut rows = table::head(&[]);
    for row in &report.rows {
        rows.push_str(&table::line(row, &report.method.dtype));
    }
    let _ = write!(out, "<pre>{}</pre>", escape(&rows));
    out
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// Bus bandwidth over size, sizes by powers of two, with a dashed line at what each collective should reach.
fn plot(report: &Report) -> String {
    let measured = || report.rows.iter().filter(|row| row.size_bytes > 0);
    let sizes = || measured().map(|row| (row.size_bytes as f64).log2());
    let (least, most) = (sizes().fold(f64::INFINITY, f64::min), sizes().fold(0.0, f64::max));
    let top = measured()
        .map(|row| row.out_of_place.bus_gb_s)
        .chain(report.verdicts.iter().filter_map(|verdict| verdict.reach_gb_s))
        .fold(1.0, f64::max);
    if !least.is_finite() {
        return String::new();
    }
    let x = |size: f64| LEFT + (size.log2() - least) / (most - least).max(1.0) * (WIDTH - LEFT - 150.0);
    let y = |rate: f64| HEIGHT - BOTTOM - rate / top * (HEIGHT - BOTTOM - 20.0);
    let mut out = format!(
        "<svg viewBox='0 0 {WIDTH} {HEIGHT}' width='{WIDTH}' role='img' aria-label='bus bandwidth over size'>"
    );
    for n in 0..=4 {
        let rate = top * f64::from(n) / 4.0;
        let _ = write!(
            out,
            "<line x1='{LEFT}' x2='{:.0}' y1='{1:.1}' y2='{1:.1}' stroke='#ddd'/><text x='4' y='{1:.1}'>{rate:.0} GB/s</text>",
            WIDTH - 150.0,
            y(rate)
        );
    }
    let mut power = least.ceil() as i32;
    while f64::from(power) <= most {
        let size = 2f64.powi(power);
        let _ = write!(out, "<text x='{:.1}' y='{:.0}'>{}</text>", x(size), HEIGHT - 18.0, short(size));
        power += 4;
    }
    for (n, verdict) in report.verdicts.iter().enumerate() {
        let colour = COLOURS[n % COLOURS.len()];
        let of: Vec<&Row> = measured().filter(|row| row.collective == verdict.collective).collect();
        let points: Vec<String> = of
            .iter()
            .map(|row| format!("{:.1},{:.1}", x(row.size_bytes as f64), y(row.out_of_place.bus_gb_s)))
            .collect();
        let _ = write!(
            out,
            "<polyline fill='none' stroke='{colour}' stroke-width='2' points='{}'/><text x='{:.0}' y='{}' fill='{colour}'>{}</text>",
            points.join(" "),
            WIDTH - 140.0,
            30 + 18 * n,
            escape(&verdict.collective)
        );
        if let Some(reach) = verdict.reach_gb_s {
            let _ = write!(
                out,
                "<line x1='{LEFT}' x2='{:.0}' y1='{2:.1}' y2='{2:.1}' stroke='{colour}' stroke-dasharray='2 6'><title>{} should reach {reach:.0} GB/s</title></line>",
                WIDTH - 150.0,
                escape(&verdict.collective),
                y(reach)
            );
        }
    }
    out.push_str("</svg>");
    out
}

fn short(size: f64) -> String {
    match size {
        size if size >= 2f64.powi(30) => format!("{:.0}G", size / 2f64.powi(30)),
        size if size >= 2f64.powi(20) => format!("{:.0}M", size / 2f64.powi(20)),
        size if size >= 1024.0 => format!("{:.0}K", size / 1024.0),
        size => format!("{size:.0}"),
    }
}
