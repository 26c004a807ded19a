//! The parts of the page that are looked at: timeline, waits, ranks, stacks, machines.

mod affinity;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use ringleader_knowledge::cause;
use ringleader_model::{Cause, Class, NamedCall, Rank, RankSet};

use super::{spaced, text};
use crate::json::{Gpu, Machine, Nic, RankRow, Report, Span, Stack, StackFrame};
use crate::open;
use crate::text::{in_short, is_live, ranks, standing};

/// Rows of the timeline's table.
const MAX_ROWS: usize = 240;
/// Waits and rank rows that are shown unfolded, and all that are shown.
const OPEN_WAITS: usize = 8;
const MAX_RANK_ROWS: usize = 96;
/// Nodes that are drawn whether or not something is wrong with them, and all that are drawn.
const CALM_NODES: usize = 6;
const MAX_NODES: usize = 96;
/// Runs of ranks of a set that is shown whole.
const LONG_SET: usize = 12;
/// Frames of a library in a row that are folded.
const CALM_FRAMES: usize = 3;
/// Nested stacks that are drawn.
const MAX_STACK_DEPTH: u32 = 24;

/// A place for the script to draw in, and the same as a table.
pub(super) fn timeline(report: &Report) -> String {
    if report.timeline.is_empty() {
        return String::new();
    }
    let zero = report.failed_ns.unwrap_or_default();
    let lanes = report.timeline.chunk_by(|a, b| a.ranks == b.ranks).count();
    let mut out = format!(
        "<div class=\"legend\"><span><i class=\"finished\"></i>finished</span><span><i class=\"waiting\"></i>not finished</span>\
         <span><i class=\"running\"></i>kernel runs</span><span><i class=\"called\"></i>called, end not recorded</span>\
         <span class=\"buttons\"><button type=\"button\" id=\"zoom-in\" aria-label=\"Zoom in\">+</button>\
         <button type=\"button\" id=\"zoom-out\" aria-label=\"Zoom out\">-</button>\
         <button type=\"button\" id=\"zoom-all\">All</button></span></div>\n\
         <div id=\"lanes\" tabindex=\"0\" role=\"group\" aria-label=\"Timeline. Arrow keys move, plus and minus zoom, n and p choose an operation.\" \
         data-label=\"Operations of {lanes} rows of ranks around the failure; the table below has the same\"></div>\n\
         <p id=\"chosen\" role=\"status\"></p>\n\
         <p class=\"quiet\">Operations of each rank in the 60 s around the moment at which {}; 0 is that moment. Ranks that made the \
         same calls share a row. Drag to move; Ctrl and wheel, or a double click, zoom.</p>\n",
        if report.waits.is_empty() { "the records end" } else { "the first rank began to wait" },
    );
    out.push_str(
        "<details><summary>the same as a table</summary>\n<table class=\"wide\"><thead><tr><th scope=\"col\">ranks</th>\
         <th scope=\"col\">operation</th><th scope=\"col\">group</th><th scope=\"col\">called at</th><th scope=\"col\">took</th>\
         <th scope=\"col\">state</th></tr></thead><tbody>\n",
    );
    // The newest of each row tell most.
    let rows: Vec<&[Span]> = report.timeline.chunk_by(|a, b| a.ranks == b.ranks).collect();
    let each = (MAX_ROWS / rows.len().max(1)).max(2);
    for span in rows.iter().flat_map(|row| row.get(row.len().saturating_sub(each)..).unwrap_or_default()) {
        let number = span.seq.map(|seq| format!(" #{seq}")).unwrap_or_default();
        let took = span.end_ns.map_or_else(String::new, |end| seconds(end - span.start_ns));
        let state = format!("{:?}", span.state).to_lowercase();
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}{number}</td><td>{}</td><td class=\"nowrap\">{}</td><td class=\"nowrap\">{took}</td><td>{state}</td></tr>",
            text(&spaced(&in_short(&span.ranks))),
            text(&span.op),
            text(&span.group),
            seconds(span.start_ns - zero),
        );
    }
    out.push_str("</tbody></table></details>\n");
    out
}

/// `1.25 s`, `-340 ms`, `12 us`.
fn seconds(ns: i64) -> String {
    let size = ns.unsigned_abs();
    match size {
        0 => "0".to_owned(),
        1_000_000_000.. => format!("{:.3} s", ns as f64 / 1e9),
        1_000_000.. => format!("{:.2} ms", ns as f64 / 1e6),
        _ => format!("{:.1} us", ns as f64 / 1e3),
    }
}

fn count(set: &str) -> usize {
    let one = |part: &str| match part.split_once('-') {
        Some((from, to)) => to.parse::<usize>().unwrap_or(0).saturating_sub(from.parse().unwrap_or(0)) + 1,
        None => usize::from(!part.is_empty()),
    };
    set.split(',').map(one).sum()
}

fn crowd(set: &str) -> String {
    let n = count(set);
    let many = if n > 1 { format!("<small>{n} ranks</small>") } else { String::new() };
    format!("{}{many}", long_set(set))
}

/// Ranks in words; of a long list the beginning, and all of it behind a click.
fn long_set(set: &str) -> String {
    let short = in_short(set);
    if short != set {
        return format!(
            "<details><summary>{}</summary>{}</details>",
            text(&ranks(&spaced(&short))),
            text(&spaced(set))
        );
    }
    match set.match_indices(',').nth(LONG_SET) {
        Some((at, _)) if set.len() > at + 24 => format!(
            "<details><summary>{} and more</summary>{}</details>",
            text(&ranks(&spaced(set.get(..at).unwrap_or_default()))),
            text(&spaced(set))
        ),
        _ => text(&ranks(&spaced(set))),
    }
}

/// Who waits for whom, in which operation.
pub(super) fn waits(report: &Report) -> String {
    if report.waits.is_empty() {
        return String::new();
    }
    let rows: Vec<String> = report
        .waits
        .iter()
        .map(|wait| {
            let to = match (wait.to.is_empty(), wait.unseen == wait.to) {
                (true, _) => "<div class=\"box\">no rank: all have entered<small>the GPUs or the network do not finish it</small></div>".to_owned(),
                (false, true) => format!("<div class=\"box late\">{}<small>left no record of it</small></div>", crowd(&wait.to)),
                (false, false) => format!("<div class=\"box late\">{}<small>not in it</small></div>", crowd(&wait.to)),
            };
            format!("<li><div class=\"box\">{}</div><div class=\"arrow\">{}</div>{to}</li>\n", crowd(&wait.from), text(&wait.op))
        })
        .collect();
    // The verdict names the call at which ranks part, and here is the one in which they stand.
    let named = open::decider(report).and_then(|finding| finding.call.as_ref());
    let is_other = |call: &NamedCall| named.is_some_and(|n| n.group == call.group && n.number != call.number);
    let more = if report.waits.iter().filter_map(|wait| wait.call.as_ref()).any(is_other) {
        " It is the newest that they have entered: ranks go on for some calls after the one that the verdict names."
    } else {
        ""
    };
    let mut out = format!(
        "<p class=\"quiet\">Left: ranks that have entered the operation and wait. Right: ranks that have not.{more}</p>\n<ul class=\"waits\">\n",
    );
    out.extend(rows.iter().take(OPEN_WAITS).map(String::as_str));
    out.push_str("</ul>\n");
    if rows.len() > OPEN_WAITS {
        let _ =
            writeln!(out, "<details><summary>{} more</summary><ul class=\"waits\">", rows.len() - OPEN_WAITS);
        out.extend(rows.iter().skip(OPEN_WAITS).map(String::as_str));
        out.push_str("</ul></details>\n");
    }
    out
}

/// Where each rank is; equal ranks in one row.
pub(super) fn ranks_table(report: &Report) -> String {
    if report.ranks.is_empty() {
        return String::new();
    }
    let live = is_live(report);
    // Looks of a running job differ in their share of the processor.
    let same = |a: &RankRow, b: &RankRow| {
        !live && a.state == b.state && a.place == b.place && a.waits_for == b.waits_for
    };
    let mut rows: Vec<(Vec<u32>, &RankRow)> = Vec::new();
    for row in &report.ranks {
        match rows.iter_mut().find(|(_, first)| same(first, row)) {
            Some((all, _)) => all.push(row.rank),
            None => rows.push((vec![row.rank], row)),
        }
    }
    let cpu = if live { "<th scope=\"col\">processor</th>" } else { "" };
    let mut out = format!(
        "<table class=\"wide\"><thead><tr><th scope=\"col\">ranks</th><th scope=\"col\">state</th>{cpu}\
         <th scope=\"col\">place, and what it does or waits for there</th></tr></thead><tbody>\n"
    );
    for (all, row) in rows.iter().take(MAX_RANK_ROWS) {
        let set: RankSet = all.iter().copied().map(Rank).collect();
        let style = match row.state.as_str() {
            "waits" | "alive" | "ended" | "held" | "S" | "R" => "",
            "no-record" => "warn",
            _ => "bad",
        };
        let busy = if live {
            let share = row.busy.map_or_else(String::new, |share| format!("{:.0} %", share * 100.0));
            format!("<td>{share}</td>")
        } else {
            String::new()
        };
        let one = match (all.as_slice(), &row.host, row.pid) {
            ([_], Some(host), Some(pid)) => format!(" <span class=\"quiet\">{} pid {pid}</span>", text(host)),
            _ => String::new(),
        };
        let _ = writeln!(
            out,
            "<tr><td>{}{one}</td><td class=\"nowrap\"><span class=\"chip {style}\">{}</span></td>{busy}<td>{}</td></tr>",
            long_set(&set.to_string()),
            text(&row.state),
            text(&place_and_doing(row, live)),
        );
    }
    out.push_str("</tbody></table>\n");
    if rows.len() > MAX_RANK_ROWS {
        let _ = writeln!(out, "<p class=\"quiet\">and {} more rows</p>", rows.len() - MAX_RANK_ROWS);
    }
    out
}

fn place_and_doing(row: &RankRow, live: bool) -> String {
    if live {
        return standing(row);
    }
    let place = row.place.as_ref().map(|place| {
        let line = place.line.map(|line| format!(":{line}")).unwrap_or_default();
        format!("{} ({}{line})", place.function.as_deref().unwrap_or("?"), place.file)
    });
    place.into_iter().chain(row.waits_for.clone()).collect::<Vec<_>>().join(", ")
}

/// The merged stacks as a tree.
pub(super) fn stacks(report: &Report) -> String {
    if report.stacks.is_empty() {
        return String::new();
    }
    let mut out = String::from(
        "<p class=\"quiet\">Main threads, outermost frame first; where ranks diverge, the smallest group comes first. The program's own code is highlighted.</p>\n<ul class=\"tree\">\n",
    );
    report.stacks.iter().for_each(|stack| branch(&mut out, stack, 0));
    out.push_str("</ul>\n");
    out
}

fn branch(out: &mut String, stack: &Stack, depth: u32) {
    let _ = write!(out, "<li><div class=\"who\">{}</div>", long_set(&stack.ranks));
    let mut frames = stack.frames.as_slice();
    while let Some((first, _)) = frames.split_first() {
        let n = frames.iter().take_while(|frame| frame.own == first.own).count();
        let (run, rest) = frames.split_at(n.max(1));
        if first.own || run.len() <= CALM_FRAMES {
            for one in run {
                frame(out, one);
            }
        } else {
            let last =
                run.last().map(|one| one.place.function.clone().unwrap_or_default()).unwrap_or_default();
            let _ = write!(
                out,
                "<details><summary>{} frames of libraries, down to {}</summary>",
                run.len(),
                text(&last)
            );
            for one in run {
                frame(out, one);
            }
            out.push_str("</details>");
        }
        frames = rest;
    }
    if !stack.children.is_empty() && depth < MAX_STACK_DEPTH {
        out.push_str("<ul>\n");
        stack.children.iter().for_each(|child| branch(out, child, depth + 1));
        out.push_str("</ul>");
    }
    out.push_str("</li>\n");
}

fn frame(out: &mut String, frame: &StackFrame) {
    let place = &frame.place;
    let line = place.line.map(|line| format!(":{line}")).unwrap_or_default();
    let at = if place.file.is_empty() { String::new() } else { format!(" ({}{line})", text(&place.file)) };
    let _ = write!(
        out,
        "<div class=\"mono {}\">{}{at}</div>",
        if frame.own { "own" } else { "lib" },
        text(place.function.as_deref().unwrap_or("?"))
    );
}

/// Whether a GPU itself is at fault, and not only the program that runs on it.
fn is_bad(report: &Report, gpu: &Gpu) -> bool {
    !gpu.faults.is_empty() || gpu.findings.iter().any(|at| is_of_machine(report, *at))
}

/// Whether a finding is about a part of the machine, rather than about the program.
fn is_of_machine(report: &Report, at: usize) -> bool {
    let cause = report.findings.get(at).and_then(|finding| Cause::of_id(&finding.cause));
    cause.is_some_and(|cause| {
        cause::class(cause) == Some(Class::Node)
            || matches!(cause, Cause::GpuThrottled | Cause::PcieError | Cause::PcieDegraded)
    })
}

fn is_bad_port(nic: &Nic) -> bool {
    nic.up == Some(false) || !nic.findings.is_empty()
}

fn is_faulty(report: &Report, machine: &Machine) -> bool {
    !machine.findings.is_empty()
        || machine.gpus.iter().any(|gpu| is_bad(report, gpu))
        || machine.nics.iter().any(is_bad_port)
}

/// Nodes with their GPUs and ports; what is wrong is marked.
pub(super) fn machines(report: &Report) -> String {
    if report.machines.is_empty() {
        return String::new();
    }
    let n_faulty = report.machines.iter().filter(|machine| is_faulty(report, machine)).count();
    let shown = n_faulty.clamp(CALM_NODES, MAX_NODES).min(report.machines.len());
    let mut out = format!(
        "<p class=\"quiet\">{} in the evidence, {n_faulty} with something wrong.</p>\n<div class=\"nodes\">\n",
        match report.machines.len() + report.machines_left_out {
            1 => "1 node".to_owned(),
            n => format!("{n} nodes"),
        },
    );
    report.machines.iter().take(shown).for_each(|machine| node(&mut out, report, machine));
    out.push_str("</div>\n");
    let rest: Vec<&str> =
        report.machines.iter().skip(shown).filter_map(|machine| machine.host.as_deref()).collect();
    let n_rest = rest.len() + report.machines_left_out;
    if n_rest > 0 {
        let names = ringleader_model::hostlist::print(&rest);
        let _ = writeln!(
            out,
            "<details><summary>{n_rest} more nodes</summary><p class=\"mono\">{}</p></details>",
            text(&names.replace(',', ", "))
        );
    }
    out
}

fn node(out: &mut String, report: &Report, machine: &Machine) {
    let style = if is_faulty(report, machine) { " bad" } else { "" };
    let name = machine.host.as_deref().unwrap_or("a node without a name");
    let _ = write!(out, "<div class=\"node{style}\"><h3>{}</h3>", text(name));
    if !machine.ranks.is_empty() {
        let _ = write!(out, "<p class=\"quiet\">{}</p>", text(&ranks(&spaced(&machine.ranks))));
    }
    for at in machine.findings.iter().take(4) {
        if let Some(finding) = report.findings.get(*at) {
            let _ = write!(out, "<p class=\"fault\">{}</p>", text(&finding.title));
        }
    }
    if !machine.gpus.is_empty() {
        out.push_str("<ul class=\"tiles\" aria-label=\"GPUs\">\n");
        machine.gpus.iter().for_each(|one| gpu(out, report, one));
        out.push_str("</ul>");
    }
    if !machine.nics.is_empty() {
        out.push_str("<ul class=\"tiles\" aria-label=\"Network ports\">\n");
        machine.nics.iter().for_each(|one| nic(out, report, one));
        out.push_str("</ul>");
    }
    links(out, machine);
    affinity::table(out, report, machine);
    out.push_str("</div>\n");
}

fn gpu(out: &mut String, report: &Report, gpu: &Gpu) {
    let style = if is_bad(report, gpu) { " bad" } else { "" };
    let name = match (gpu.index, &gpu.pci) {
        (Some(index), _) => format!("GPU {index}"),
        (None, Some(pci)) => pci.clone(),
        (None, None) => "GPU".to_owned(),
    };
    let rank = gpu.rank.map(|rank| format!("rank {rank}<br>")).unwrap_or_default();
    let _ = write!(
        out,
        "<li class=\"tile{style}\" title=\"{}\"><b>{}</b>{rank}",
        text(gpu.pci.as_deref().unwrap_or_default()),
        text(&name)
    );
    for fault in &gpu.faults {
        let _ = write!(out, "<span class=\"fault\">{}</span><br>", text(fault));
    }
    if gpu.faults.is_empty()
        && let Some(finding) = gpu.findings.first().and_then(|at| report.findings.get(*at))
    {
        let class = if style.is_empty() { "quiet" } else { "fault" };
        let _ = write!(out, "<span class=\"{class}\">{}</span><br>", text(&finding.cause));
    }
    if let Some([active, all]) = gpu.nvlinks {
        let _ = write!(out, "{active} of {all} NVLinks<br>");
    }
    let told = gpu
        .values
        .iter()
        .filter(|value| matches!(value.name.as_str(), "power" | "utilisation" | "temperature"));
    let told: Vec<String> = told.map(|value| text(&value.value)).collect();
    let _ = writeln!(out, "{}</li>", told.join("<br>"));
}

fn nic(out: &mut String, report: &Report, nic: &Nic) {
    let style = if is_bad_port(nic) { " bad" } else { "" };
    let rate = nic.rate_gbps.map(|rate| format!("<br>{rate} Gb/s")).unwrap_or_default();
    let fault = nic.findings.first().and_then(|at| report.findings.get(*at));
    let fault = fault.map(|f| format!("<br><span class=\"fault\">{}</span>", text(&f.cause)));
    let _ = writeln!(
        out,
        "<li class=\"tile{style}\"><b>{}</b>{}{rate}{}</li>",
        text(&nic.name),
        text(nic.state.as_deref().unwrap_or_default()),
        fault.unwrap_or_default()
    );
}

/// The paths between the GPUs of a node, one cell for each pair; pairs unlike most are marked.
fn links(out: &mut String, machine: &Machine) {
    let mut indices: Vec<u32> = machine.paths.iter().flat_map(|path| path.gpus).collect();
    indices.sort_unstable();
    indices.dedup();
    if indices.len() < 2 {
        return;
    }
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for path in &machine.paths {
        *counts.entry(&path.kind).or_default() += 1;
    }
    // Where each pair has a partner of its own, no kind is the usual one.
    let usual = counts.iter().find(|(_, n)| **n * 4 > machine.paths.len() * 3).map(|(kind, _)| *kind);
    out.push_str("<details class=\"links\" open><summary>paths between GPUs</summary><table><thead><tr><th scope=\"col\">GPU</th>");
    for index in &indices {
        let _ = write!(out, "<th scope=\"col\">{index}</th>");
    }
    out.push_str("</tr></thead><tbody>\n");
    for row in &indices {
        let _ = write!(out, "<tr><th scope=\"row\">{row}</th>");
        for column in &indices {
            let both = [*row.min(column), *row.max(column)];
            let kind = machine.paths.iter().find(|path| path.gpus == both).map(|path| path.kind.as_str());
            let odd = kind.is_some() && usual.is_some_and(|usual| kind != Some(usual));
            let class = if odd { " class=\"bad\"" } else { "" };
            let _ =
                write!(out, "<td{class}>{}</td>", text(kind.unwrap_or(if row == column { "·" } else { "" })));
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody></table></details>");
}
