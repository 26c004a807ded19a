//! Everything that `check` reads, and the kernel log as text.

use std::fmt::Write as _;

use ringleader_bundle::{Content, Item, Origin};
use ringleader_model::Date;
use ringleader_node::{Node, SecondLook};

use super::{Context, outcome_of, tame};
use crate::follow;
use crate::probe::Probe;
use crate::probes;
use crate::request::Request;
use crate::run::{by_name, now_ns, take};

/// The job's processes may take so long, milliseconds.
const JOBS_MS: u64 = 5_000;

pub(super) fn collect(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError> {
    let names: Vec<&str> = probes::ALL.iter().map(|probe| probe.name).collect();
    let ask = context.ask;
    let patience = |probe: &Probe| match ask.longest_ms {
        // The ranks' environment is in no other part, and a busy node takes its time.
        _ if probe.name == "jobs" => JOBS_MS,
        Some(longest) => longest.min(probe.deadline_ms),
        None => probe.deadline_ms,
    };
    let request = Request { longest_ms: ask.longest_ms, ..ask.request.clone() };
    let mut node = take(context.program, &names, &request, patience, &ask.tool_version);
    let name = node.host.split('.').next().unwrap_or_default();
    context.host = tame(name);
    let log = kernel_log(&node);
    if let Some(log) = &log {
        let item = context.item("kernel-log", "kernel.log", Origin::Reading("probe kernel-log".to_owned()));
        context.bundle.add_bytes(
            Item { at_ns: node.kernel_log.at_ns, ..item },
            Content::Text,
            log.as_bytes(),
        )?;
        if let ringleader_node::Outcome::Seen(log) = &mut node.kernel_log.outcome {
            log.also_in = Some("kernel.log".to_owned());
        }
    }
    for (name, outcome) in [
        ("jobs", outcome_of(&node.jobs)),
        ("kernel-log", outcome_of(&node.kernel_log)),
        ("gpus", outcome_of(&node.gpus)),
    ] {
        // The rest is in the snapshot with its reason; these three are what a diagnosis misses most.
        let Some(outcome) = outcome else { continue };
        if by_name(name).is_some() {
            let item = context.item("node", "", Origin::Reading(format!("probe {name}")));
            context.bundle.missing(Item { outcome, ..item });
        }
    }
    context.node = node;
    Ok(())
}

/// Writes the snapshot. Late, so that it holds the second look at the processes.
pub(super) fn write(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError> {
    if context.ask.with_stacks && context.ask.stacks_again_ms.is_some() {
        look_again(context);
    }
    let node = &context.node;
    let item = Item {
        at_ns: node.at_ns,
        took_ms: node.took_ms,
        ..context.item("node", "node.json", Origin::Reading("all probes of check".to_owned()))
    };
    // One reading a line, so that a citation names a line that shows it.
    let mut text = serde_json::to_vec_pretty(node).map_err(ringleader_bundle::BundleError::Manifest)?;
    text.push(b'\n');
    context.bundle.add_bytes(item, Content::Binary, &text)?;
    Ok(())
}

/// State and processor time again: reading `stat` and `wchan` never blocks.
fn look_again(context: &mut Context<'_, '_>) {
    let proc = context.ask.request.roots.proc.clone();
    let ticks = follow::ticks_per_second() as f64;
    let first_ns = context.node.jobs.at_ns;
    let after_ms = u64::try_from((now_ns() - first_ns) / 1_000_000).unwrap_or_default();
    let ringleader_node::Outcome::Seen(jobs) = &mut context.node.jobs.outcome else { return };
    for process in jobs.processes.iter_mut().filter(|process| !process.is_above) {
        let Some(stat) = follow::process(&proc, process.pid) else { continue };
        process.again = Some(SecondLook {
            after_ms,
            wchan: follow::wchan(&proc, process.pid),
            cpu_s: stat.cpu_ticks as f64 / ticks,
            sleeps: follow::switches(&proc, process.pid),
            state: stat.state,
        });
    }
}

/// The lines with date and host, as `journalctl -k -o short-iso-precise` prints them; None if the boot's time is not
/// known.
fn kernel_log(node: &Node) -> Option<String> {
    let log = node.kernel_log.get().filter(|log| !log.lines.is_empty())?;
    let system = node.system.get().filter(|system| system.uptime_s > 0.0)?;
    let boot_ns = node.at_ns.saturating_sub((system.uptime_s * 1e9) as i64);
    let mut out = String::new();
    for line in &log.lines {
        let Some((head, text)) = line.split_once(';') else { continue };
        let Some(since_us) = head.split(',').nth(2).and_then(|word| word.parse::<i64>().ok()) else {
            continue;
        };
        let at_ns = boot_ns.saturating_add(since_us.saturating_mul(1_000));
        // Writing to a String cannot fail.
        let _ = writeln!(out, "{} {} kernel: {text}", iso(at_ns), node.host);
    }
    Some(out)
}

/// `2026-11-20T08:21:32.123456+00:00`.
fn iso(at_ns: i64) -> String {
    let (seconds, of_second) = (at_ns.div_euclid(1_000_000_000), at_ns.rem_euclid(1_000_000_000));
    let (day, of_day) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let Date { year, month, day } = Date::from_days(day);
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}.{:06}+00:00",
        of_day / 3_600,
        of_day / 60 % 60,
        of_day % 60,
        of_second / 1_000
    )
}

#[cfg(test)]
mod tests {
    use ringleader_node::{KernelLog, Part, System};

    use super::*;

    #[test]
    fn lines_get_date_and_host() {
        assert_eq!(iso(1_795_162_892_123_456_789), "2026-11-20T08:21:32.123456+00:00");
        assert_eq!(iso(1_709_164_800_000_000_000), "2024-02-29T00:00:00.000000+00:00");
        let node = Node {
            host: "node7".to_owned(),
            at_ns: 1_795_162_892_000_000_000,
            system: Part::of(System { uptime_s: 100.0, ..System::default() }),
            kernel_log: Part::of(KernelLog {
                lines: vec!["4,812,40000000,-;NVRM: Xid (PCI:0000:1b:00): 79, x".to_owned()],
                ..KernelLog::default()
            }),
            ..Node::default()
        };
        let text = kernel_log(&node).unwrap();
        assert_eq!(
            text,
            "2026-11-20T08:20:32.000000+00:00 node7 kernel: NVRM: Xid (PCI:0000:1b:00): 79, x\n"
        );
    }
}
