//! # What it checks
//!
//! Whether heat or power limits the clocks of a GPU, and whether power limits agree.
//!
//! # What fails
//!
//! Slowdowns by hardware on a busy GPU: `HW Slowdown`, `HW Thermal Slowdown`, `HW Power Brake Slowdown`; on an idle
//! GPU they only warn. It also warns about `SW Thermal Slowdown` together with a clock far below the peers', a power
//! limit far below the peers', and application clocks set far below the peers'. `SW Power Cap` under load is normal
//! for these GPUs, and so are low clocks when idle.
//!
//! # What to do
//!
//! Check cooling and power supplies of the node; restore the power limit.
//!
//! # References
//!
//! NVML API, clocks event reasons; NVIDIA, GPU debug guidelines.

use ringleader_knowledge::remedy;
use ringleader_model::{ClockReasons, median};
use ringleader_node::{Gpu, Gpus};

use crate::answer::{CheckAnswer, CheckState, Impact, ValueKind};
use crate::gpus::{count, is_busy, item, of, peers};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "gpu-power-and-clocks",
    title: "GPU power and clocks",
    area: Area::Gpu,
    reads: &[Probe::Gpus],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("gpu_power_and_clocks.rs"),
    run,
};

/// A clock this far below the peers' is more than their usual variation of a few percent.
const SLOW_RATIO: f64 = 0.85;
/// A power limit this far below the peers' was set deliberately, or belongs to another board.
const LIMIT_RATIO: f64 = 0.9;
/// Hardware reasons, most serious first.
const HARDWARE: [(u64, &str); 3] = [
    (ClockReasons::HW_POWER_BRAKE, "HW Power Brake Slowdown"),
    (ClockReasons::HW_THERMAL, "HW Thermal Slowdown"),
    (ClockReasons::HW_SLOWDOWN, "HW Slowdown"),
];
/// Bit of clocks that were set (`Applications Clocks Setting`).
const FIXED: u64 = 0x2;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let gpus = match of(view) {
        Ok(gpus) => gpus,
        Err(answer) => return answer,
    };
    let n_telling = gpus.gpus.iter().filter(|gpu| gpu.clock_reasons.is_some()).count();
    if n_telling == 0 {
        return CheckAnswer::skipped("no GPU reports throttle reasons");
    }
    let mut items = Vec::new();
    for gpu in &gpus.gpus {
        let Some((verdict, text)) = held_down(gpu, gpus).or_else(|| limited(gpu, gpus)) else { continue };
        let or = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
        let evidence = format!(
            "NVML: reasons {:#x}, SM {} MHz, {} W of {} W (default {} W), busy {}%",
            gpu.clock_reasons.unwrap_or(0),
            or(gpu.sm_clock_mhz.map(f64::from)),
            or(gpu.power_w),
            or(gpu.power_limit_w),
            or(gpu.power_default_w),
            or(gpu.utilization_pct.map(f64::from)),
        );
        items.push(item(gpu, verdict, text, evidence));
    }
    let n_busy = gpus.gpus.iter().filter(|gpu| is_busy(gpu) == Some(true)).count();
    let ok = format!("no throttling on {} ({n_busy} busy)", count(n_telling, "GPU"));
    let mut answer = CheckAnswer::from_items(ok, items)
        .advise(
            Impact::Harmless,
            "watch clocks, power and throttle reasons under load",
            Some(remedy::SHOW_CLOCKS.to_owned()),
        )
        .advise(
            Impact::Disruptive,
            "check cooling and power supplies of the node; keep jobs off it until its clocks hold",
            None,
        );
    for gpu in &gpus.gpus {
        if let Some(watts) = gpu.power_limit_w {
            answer = answer.value(
                format!("gpu.{}.power-limit-w", gpu.index),
                format!("{watts:.0}"),
                ValueKind::Same,
            );
        }
    }
    answer
}

fn held_down(gpu: &Gpu, gpus: &Gpus) -> Option<(CheckState, String)> {
    let reasons = gpu.clock_reasons?;
    let slower = slower(gpu, gpus);
    let tail = slower.clone().unwrap_or_default();
    let heat = gpu.temperature_c.map_or(String::new(), |degrees| format!(" at {degrees} C"));
    if let Some((_, name)) = HARDWARE.iter().find(|(bit, _)| reasons & bit != 0) {
        // The reason may appear briefly when an idle GPU changes its state.
        let verdict = if is_busy(gpu) == Some(true) { CheckState::Fail } else { CheckState::Warn };
        return Some((verdict, format!("{name} is active{heat}{tail}")));
    }
    let slower = slower?;
    if reasons & ClockReasons::SW_THERMAL != 0 {
        return Some((CheckState::Warn, format!("SW Thermal Slowdown is active{heat}{slower}")));
    }
    (reasons & FIXED != 0).then(|| (CheckState::Warn, format!("its clocks are fixed{slower}")))
}

fn limited(gpu: &Gpu, gpus: &Gpus) -> Option<(CheckState, String)> {
    let limit = gpu.power_limit_w?;
    let usual = median::upper(peers(gpu, gpus).filter_map(|peer| peer.power_limit_w))?;
    (limit < usual * LIMIT_RATIO)
        .then(|| (CheckState::Warn, format!("its power limit is {limit:.0} W, its peers' {usual:.0} W")))
}

/// `, 1100 MHz where its peers run at 1980`, if it is busy and far slower than its busy peers.
fn slower(gpu: &Gpu, gpus: &Gpus) -> Option<String> {
    let own = f64::from(gpu.sm_clock_mhz.filter(|_| is_busy(gpu) == Some(true))?);
    let busy = peers(gpu, gpus).filter(|peer| is_busy(peer) == Some(true));
    let usual = median::upper(busy.filter_map(|peer| peer.sm_clock_mhz.map(f64::from)))?;
    (own < usual * SLOW_RATIO).then(|| format!(", {own:.0} MHz where its peers run at {usual:.0}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{answer, is_sound, node, verdict};

    fn last(change: impl Fn(&mut Gpu)) -> (CheckState, Vec<String>) {
        verdict(
            &CHECK,
            &node(4, |n, gpu| {
                if n == 3 {
                    change(gpu);
                }
            }),
        )
    }

    #[test]
    fn hardware_slows_one() {
        is_sound(&CHECK);
        let named = vec!["GPU 3 (0000:1e:00.0)".to_owned()];
        for (bits, word) in [(0x8, "HW Slowdown"), (0x48, "HW Thermal"), (0x88, "HW Power Brake")] {
            assert_eq!(last(|gpu| gpu.clock_reasons = Some(bits)), (CheckState::Fail, named.clone()));
            let said = answer(
                &CHECK,
                &node(4, |n, gpu| {
                    if n == 3 {
                        gpu.clock_reasons = Some(bits);
                    }
                }),
            );
            assert!(said.summary.contains(word), "{}", said.summary);
        }
        let idle = |gpu: &mut Gpu| (gpu.clock_reasons, gpu.utilization_pct) = (Some(0x9), Some(0));
        assert_eq!(last(idle), (CheckState::Warn, named));
    }

    #[test]
    fn software_only_where_it_costs() {
        let hot = |mhz| move |gpu: &mut Gpu| (gpu.clock_reasons, gpu.sm_clock_mhz) = (Some(0x20), Some(mhz));
        assert_eq!(last(hot(1_000)).0, CheckState::Warn);
        assert_eq!(last(hot(1_650)).0, CheckState::Ok);
        let fixed = |mhz| move |gpu: &mut Gpu| (gpu.clock_reasons, gpu.sm_clock_mhz) = (Some(0x2), Some(mhz));
        assert_eq!(last(fixed(1_200)).0, CheckState::Warn);
        // Slower, but no reason limits it.
        assert_eq!(
            last(|gpu| (gpu.clock_reasons, gpu.sm_clock_mhz) = (Some(0), Some(1_200))).0,
            CheckState::Ok
        );
    }

    #[test]
    fn a_lower_limit_than_the_peers() {
        assert_eq!(last(|gpu| gpu.power_limit_w = Some(400.0)).0, CheckState::Warn);
        // All alike: a deliberate setting.
        let all = node(4, |_, gpu| gpu.power_limit_w = Some(400.0));
        assert_eq!(verdict(&CHECK, &all).0, CheckState::Ok);
    }

    #[test]
    fn idle_clocks_are_low() {
        let idle = |gpu: &mut Gpu| {
            (gpu.clock_reasons, gpu.utilization_pct, gpu.sm_clock_mhz) = (Some(0x1), Some(0), Some(345));
        };
        assert_eq!(last(idle).0, CheckState::Ok);
        assert_eq!(verdict(&CHECK, &node(4, |_, gpu| idle(gpu))).0, CheckState::Ok);
    }
}
