//! # What it checks
//!
//! Error counters of the NVLinks, read twice within a short time.
//!
//! # What fails
//!
//! A link that had to recover, or lost packets, between the two readings; or 100 or more CRC or symbol errors per
//! second. It warns about fewer of those, and about replays: the link corrects them, but slows down. Counters that do
//! not grow are history, however high, and are only shown.
//!
//! # What to do
//!
//! Reseat or replace the connection of the link; take the node out if the errors recur.
//!
//! # References
//!
//! NVML API, NVML_FI_DEV_NVLINK_ERROR_DL_*, NVML_FI_DEV_NVLINK_COUNT_*; the threshold of 100 CRC errors a second is that
//! of NVIDIA/DCGM (DCGM_LIMIT_MAX_NVLINK_CRC_ERROR).

use ringleader_node::{Gpu, NvLink};

use crate::answer::{CheckAnswer, CheckState, Impact, ValueKind};
use crate::gpus::{count, item, of};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "nvlink-errors",
    title: "NVLink error rates",
    area: Area::NvLink,
    reads: &[Probe::Gpus],
    drains: true,
    is_quick: false,
    since: "0.2",
    doc: include_str!("nvlink_errors.rs"),
    run,
};

/// Rate of errors that a link corrects by itself, per second.
const MENDED_PER_S: f64 = 100.0;
/// Counters of errors that were not corrected: the link went down and up, or packets were lost.
const GRAVE: [&str; 5] =
    ["recovery", "recoveries", "failed-recoveries", "malformed-packets", "buffer-overruns"];
/// Counters that also grow on a healthy but loaded link.
const SHOWN: [&str; 1] = ["transmit-discards"];
/// Largest number of links shown for past errors.
const MAX_SHOWN: usize = 4;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let gpus = match of(view) {
        Ok(gpus) => gpus,
        Err(answer) => return answer,
    };
    let links = || gpus.gpus.iter().flat_map(|gpu| gpu.links.iter().map(move |link| (gpu, link)));
    if links().next().is_none() {
        return CheckAnswer::skipped("no GPU has NVLinks");
    }
    if links().all(|(_, link)| link.counters.is_empty()) {
        return CheckAnswer::skipped("no NVLink reports its error counters");
    }
    if links().all(|(_, link)| link.counters.iter().all(|(_, _, later)| later.is_none())) {
        return CheckAnswer::skipped("the counters were read only once, which gives no rate (--quick)");
    }
    let mut items = Vec::new();
    let (mut n_past, mut total) = (0, 0_u64);
    for (gpu, link) in links() {
        total += link.counters.iter().map(|(_, first, later)| later.unwrap_or(*first)).sum::<u64>();
        let tell = |link: &NvLink| {
            let all: Vec<String> = link
                .counters
                .iter()
                .filter(|(_, first, later)| *first > 0 || later.is_some_and(|n| n > 0))
                .map(|(name, first, later)| format!("{name} {first} then {}", later.unwrap_or(*first)))
                .collect();
            format!("NVML, link {}: {}", link.number, all.join(", "))
        };
        if let Some((verdict, text)) = growth(gpu, link) {
            items.push(item(gpu, verdict, format!("link {}: {text}", link.number), tell(link)));
        } else if link.counters.iter().any(|(name, n, _)| *n > 0 && !SHOWN.contains(&name.as_str())) {
            n_past += 1;
            if n_past <= MAX_SHOWN {
                let text = format!("link {} had errors, but none between the two readings", link.number);
                items.push(item(gpu, CheckState::Ok, text, tell(link)));
            }
        }
    }
    let ms = gpus.gpus.iter().filter_map(|gpu| gpu.window_ms).max().unwrap_or(0);
    let past =
        if n_past == 0 { String::new() } else { format!("; {} had some before", count(n_past, "link")) };
    CheckAnswer::from_items(
        format!("no new error on {} in {ms} ms{past}", count(links().count(), "link")),
        items,
    )
    .advise(
        Impact::Harmless,
        "check whether it continues",
        Some(
            "nvidia-smi nvlink -e; sleep 10; nvidia-smi nvlink -e; dmesg -T | grep -iE 'xid|sxid'".to_owned(),
        ),
    )
    .advise(Impact::Disruptive, "take the node out and have the link's board, bridge or cable examined", None)
    .value("nvlink.errors", total, ValueKind::Counter)
}

/// What grew between the two readings, most serious first.
fn growth(gpu: &Gpu, link: &NvLink) -> Option<(CheckState, String)> {
    let seconds = gpu.window_ms? as f64 / 1000.0;
    let grown = link.counters.iter().filter_map(|(name, first, later)| {
        let by = later.as_ref()?.checked_sub(*first).filter(|by| *by > 0)?;
        let name = name.as_str();
        if SHOWN.contains(&name) {
            return None;
        }
        let is_grave = GRAVE.contains(&name);
        let is_flood = name != "replay" && by as f64 / seconds.max(0.001) >= MENDED_PER_S;
        let verdict = if is_grave || is_flood { CheckState::Fail } else { CheckState::Warn };
        Some((verdict, format!("{name} grew by {by} in {:.0} ms", seconds * 1000.0)))
    });
    let mut grown: Vec<(CheckState, String)> = grown.collect();
    grown.sort_by_key(|(verdict, _)| std::cmp::Reverse(*verdict));
    let worst = grown.first()?.0;
    Some((worst, grown.into_iter().map(|(_, text)| text).collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{answer, is_sound, node, verdict};

    fn counting(name: &'static str, first: u64, later: Option<u64>) -> ringleader_node::Node {
        node(4, move |n, gpu| {
            if n == 2 {
                gpu.links[5].counters = vec![(name.to_owned(), first, later)];
            }
        })
    }

    #[test]
    fn growth_counts() {
        is_sound(&CHECK);
        let named = vec!["GPU 2 (0000:1d:00.0)".to_owned()];
        assert_eq!(verdict(&CHECK, &counting("recovery", 0, Some(1))), (CheckState::Fail, named.clone()));
        assert_eq!(verdict(&CHECK, &counting("crc", 10, Some(12))), (CheckState::Warn, named.clone()));
        assert_eq!(verdict(&CHECK, &counting("crc", 10, Some(80))), (CheckState::Fail, named.clone()));
        assert_eq!(verdict(&CHECK, &counting("replay", 0, Some(3))), (CheckState::Warn, named));
    }

    #[test]
    fn the_past_is_shown() {
        let said = answer(&CHECK, &counting("recovery", 400, Some(400)));
        assert_eq!((said.verdict, said.items.len()), (CheckState::Ok, 1));
        assert!(said.summary.contains("1 link had some before"), "{}", said.summary);
    }

    #[test]
    fn one_look_gives_no_rate() {
        let once = node(4, |_, gpu| {
            gpu.window_ms = None;
            gpu.links.iter_mut().flat_map(|link| &mut link.counters).for_each(|counter| counter.2 = None);
        });
        assert_eq!(verdict(&CHECK, &once).0, CheckState::Skipped);
    }
}
