//! # What it shows
//!
//! Heat, a power brake or a lower power limit keeps the clocks of one GPU down while it works. All ranks of a
//! collective wait for the slowest.
//!
//! # Why it happens
//!
//! Dust, a fan or pump, warm air, a failed power supply, a power limit that was set.
//!
//! # Evidence
//!
//! `HW Slowdown`, `HW Thermal Slowdown` or `HW Power Brake Slowdown` active on a GPU that works; `SW Thermal Slowdown`
//! or a lower power limit than the peers', together with a clock far below theirs; a test of dcgmi that says so; a busy GPU
//! with a clock far below its own highest one, for which the driver gives no reason.
//!
//! # What looks like it but is not
//!
//! `SW Power Cap` at full load is how these GPUs work. Clocks of an idle GPU are low. A GPU that waits for others draws
//! less and may be cooler. Accumulated times (`Clocks Event Reasons Counters`) cover the past, not this job.
//!
//! # What to do
//!
//! Check temperatures and power supplies of that node, and keep jobs off it until then.
//!
//! # References
//!
//! NVML reference, clocks event reasons; NVIDIA, GPU debug guidelines.

use ringleader_knowledge::remedy;
use ringleader_knowledge::wording::TestFault;
use ringleader_model::{Category, Cause, ClockReasons, GpuRow, Impact, median};

use crate::drafting::gpus::{Proof, Shown, failed_test};
use crate::health;
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::who::gpus::SeenGpu;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "gpu-throttled",
    title: "heat or power slows one GPU",
    since: "0.1",
    doc: include_str!("gpu_throttled.rs"),
    check,
};

/// A GPU that works.
const BUSY_PCT: f32 = 50.0;
/// One that at least waits for it: its clock is that of a GPU in use.
const IN_USE_PCT: f32 = 10.0;
/// A clock this far below the peers' is not their usual scatter, which is a few percent.
const SLOW_RATIO: f32 = 0.85;
/// A clock this far below the peers' is enough by itself.
const FAR_RATIO: f32 = 0.6;
/// A power limit this far below the peers' was set, or is another board's.
const LIMIT_RATIO: f32 = 0.9;
/// A power limit this far below the board's own costs speed.
const SET_RATIO: f32 = 0.75;
/// A busy GPU whose clock is below this part of its highest one is held down, whatever the driver says: full load at the power
/// limit leaves more than half.
const OWN_RATIO: f32 = 0.4;
/// A GPU that works all the time.
const FULL_PCT: f32 = 90.0;
/// Somebody asked for these clocks, or nothing runs.
const WANTED: u64 = ClockReasons::USER | ClockReasons::IDLE | ClockReasons::DISPLAY;
/// Hardware pulls the clocks down.
const HARDWARE: u64 = ClockReasons::HW_SLOWDOWN | ClockReasons::HW_THERMAL | ClockReasons::HW_POWER_BRAKE;
/// A title fits one line.
const MAX_TITLE_CHARS: usize = 108;

fn check(scene: &Scene<'_>) -> Outcome {
    let mut all: Vec<(&SeenGpu<'_>, String)> = Vec::new();
    for gpus in scene.gpus().tables() {
        all.extend(gpus.iter().filter_map(|gpu| Some((gpu, held_down(gpu, gpus)?))));
    }
    if all.is_empty() && health::trouble(scene).is_none() {
        all = capped(scene);
    }
    if all.is_empty() && scene.failure().first().is_none() {
        all = far_below_its_own(scene);
    }
    let draft = match Shown::from(scene, all) {
        Some(shown) => {
            let short = format!("{} {} slowed down", shown.who(), shown.word("is", "are"));
            let title = format!("{short}: {}", shown.why());
            let title = if title.chars().count() > MAX_TITLE_CHARS { short } else { title };
            Some(shown.draft(&RULE, Cause::GpuThrottled, Proof::Slow, title))
        }
        None => failed_test(scene, &RULE, Cause::GpuThrottled, Proof::Slow, TestFault::Throttled),
    };
    Outcome::from_drafts(draft.map(advise))
}

fn advise(draft: Draft) -> Draft {
    draft
        .category(Category::Performance)
        .advise_command(
            Impact::Harmless,
            "watch clocks, power and temperatures of all GPUs of the node under load",
            remedy::SHOW_CLOCKS,
        )
        .advise(
            Impact::Disruptive,
            "check cooling and power supplies of the node; keep jobs off it until its clocks hold",
        )
}

/// GPUs of which somebody has lowered the power limit far below the board's, and which run at it with half of their clock. All of a
/// machine may be so: then no peer shows it.
fn capped<'s, 'a>(scene: &'s Scene<'a>) -> Vec<(&'s SeenGpu<'a>, String)> {
    let of = |gpu: &'s SeenGpu<'a>| {
        let row = gpu.row;
        let (limit, usual) = (row.power_limit_w?, row.power_default_w?);
        let (clock, most) = (row.sm_clock_mhz? as f32, row.sm_clock_max_mhz? as f32);
        let is_at_limit = row.clock_reasons?.any(ClockReasons::POWER_CAP);
        let is_slow = limit < usual * SET_RATIO && clock < most * FAR_RATIO;
        (is_at_limit && is_slow).then(|| {
            let why = format!("it runs at a power limit of {limit:.0} W, {usual:.0} W by default, with {clock:.0} of {most:.0} MHz");
            (gpu, why)
        })
    };
    scene.gpus().tables().flatten().filter_map(of).collect()
}

/// Busy GPUs with a clock far below their own highest one: all of a machine may be so, and then no peer shows it.
fn far_below_its_own<'s, 'a>(scene: &'s Scene<'a>) -> Vec<(&'s SeenGpu<'a>, String)> {
    let of = |gpu: &'s SeenGpu<'a>| {
        let row = gpu.row;
        let (clock, most) = (row.sm_clock_mhz? as f32, row.sm_clock_max_mhz? as f32);
        let is_wanted = row.clock_reasons.is_some_and(|reasons| reasons.any(WANTED));
        let pct = scene.gpus().seen.iter().filter(|other| is_one(gpu, other));
        let pct = pct.filter_map(|other| other.row.utilization_pct).fold(0.0_f32, f32::max);
        (clock < most * OWN_RATIO && !is_wanted && pct >= FULL_PCT).then(|| {
            (gpu, format!("it runs at {clock:.0} of {most:.0} MHz while it is {pct:.0} % busy, and the driver names no reason"))
        })
    };
    scene.gpus().seen.iter().filter_map(of).collect()
}

/// Whether two rows show one GPU: the only one of its machine, where an output does not name it.
fn is_one(a: &SeenGpu<'_>, b: &SeenGpu<'_>) -> bool {
    let is_only = |gpu: &SeenGpu<'_>| gpu.table.gpus.len() == 1;
    std::ptr::eq(a.row, b.row)
        || a.is_same(b)
        || is_only(a) && is_only(b) && a.observation.who.host == b.observation.who.host
}

/// Why the clocks of this GPU are down, if they are.
fn held_down(gpu: &SeenGpu<'_>, table: &[SeenGpu<'_>]) -> Option<String> {
    let row = gpu.row;
    let reasons = row.clock_reasons.unwrap_or_default();
    let is_busy = match row.utilization_pct {
        Some(pct) => pct >= BUSY_PCT,
        None => row.clock_reasons.is_some() && !reasons.any(ClockReasons::IDLE),
    };
    if !is_busy {
        return None;
    }
    let heat = row.temperature_c.map_or(String::new(), |t| format!(" at {t:.0} C"));
    let slower = clock(row, table);
    if reasons.any(HARDWARE) {
        let name = if reasons.any(ClockReasons::HW_POWER_BRAKE) {
            "HW Power Brake Slowdown"
        } else if reasons.any(ClockReasons::HW_THERMAL) {
            "HW Thermal Slowdown"
        } else {
            "HW Slowdown"
        };
        return Some(format!("{name} is active{heat}{}", slower.unwrap_or_default()));
    }
    let slower = slower?;
    // Monitors do not print why. A clock this low under load is no scatter and no other kernel.
    if row.clock_reasons.is_none() && is_far_slower(row, table) {
        let watts = row.power_w.map_or(String::new(), |w| format!(" with {w:.0} W"));
        return Some(format!("it works{heat}{watts}{slower}"));
    }
    if reasons.any(ClockReasons::SW_THERMAL) {
        return Some(format!("SW Thermal Slowdown is active{heat}{slower}"));
    }
    let limits: Vec<f32> = peers(row, table).iter().filter_map(|r| r.power_limit_w).collect();
    let (limit, usual) = (row.power_limit_w?, median::upper(limits)?);
    (limit < usual * LIMIT_RATIO)
        .then(|| format!("its power limit is {limit:.0} W, its peers' {usual:.0} W{slower}"))
}

/// Others of the same kind that are in use, in the same output.
fn peers<'t>(row: &GpuRow, table: &[SeenGpu<'t>]) -> Vec<&'t GpuRow> {
    let works = |r: &&GpuRow| r.utilization_pct.is_none_or(|u| u >= IN_USE_PCT);
    let rows = table.iter().map(|g| g.row);
    rows.filter(|r| !std::ptr::eq(*r, row) && r.name == row.name).filter(works).collect()
}

fn is_far_slower(row: &GpuRow, table: &[SeenGpu<'_>]) -> bool {
    let peers = peers(row, table);
    let usual = median::upper(peers.iter().filter_map(|r| r.sm_clock_mhz.map(|c| c as f32)));
    let is_slow = |usual: f32| row.sm_clock_mhz.is_some_and(|own| (own as f32) < usual * FAR_RATIO);
    peers.len() > 1 && row.utilization_pct.is_some() && usual.is_some_and(is_slow)
}

/// `, 1100 MHz where its peers run at 1980`, if it is far slower than they are.
fn clock(row: &GpuRow, table: &[SeenGpu<'_>]) -> Option<String> {
    let own = row.sm_clock_mhz? as f32;
    let usual = median::upper(peers(row, table).iter().filter_map(|r| r.sm_clock_mhz.map(|c| c as f32)))?;
    (own < usual * SLOW_RATIO).then(|| format!(", {own:.0} MHz where its peers run at {usual:.0}"))
}

#[cfg(test)]
mod tests {
    use ringleader_model::{ClockReasons, GpuRow};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::gpus::gpus;

    fn busy(row: &mut GpuRow, mhz: u32, reasons: u64) {
        row.utilization_pct = Some(100.0);
        row.sm_clock_mhz = Some(mhz);
        row.clock_reasons = Some(ClockReasons(reasons));
        row.power_limit_w = Some(700.0);
    }

    #[test]
    fn hardware_slows_one_gpu() {
        for bit in [0x8, 0x48, 0x88] {
            let hot = gpus(4, |index, row| {
                let (mhz, reasons) = if index == 1 { (420, bit) } else { (1_980, 0x4) };
                busy(row, mhz, reasons);
            });
            StagedCase::new().shows(hot.clone()).expect(&RULE, &["gpu-throttled"]);
            StagedCase::new().two_ranks().shows(hot).expect(&RULE, &["gpu-throttled 1"]);
        }
    }

    #[test]
    fn the_driver_slows_a_hot_gpu() {
        let hot = |mhz: u32| {
            gpus(4, |index, row| if index == 0 { busy(row, mhz, 0x20) } else { busy(row, 1_980, 0) })
        };
        StagedCase::new().two_ranks().shows(hot(1_200)).expect(&RULE, &["gpu-throttled 0"]);
        StagedCase::new().two_ranks().shows(hot(1_950)).silent(&RULE);
    }

    #[test]
    fn the_others_wait_for_the_slow_one() {
        let at = |others_pct: f32| {
            gpus(4, |index, row| {
                busy(row, if index == 3 { 324 } else { 875 }, 0);
                row.clock_reasons = None;
                row.utilization_pct = Some(if index == 3 { 99.0 } else { others_pct });
            })
        };
        StagedCase::new().two_ranks().shows(at(40.0)).expect(&RULE, &["gpu-throttled"]);
        // Nothing tells what clock they would have in use.
        StagedCase::new().two_ranks().shows(at(0.0)).silent(&RULE);
    }

    #[test]
    fn a_lower_limit_than_the_peers() {
        let limited = |mhz: u32| {
            gpus(4, |index, row| {
                busy(row, if index == 3 { mhz } else { 1_980 }, 0x4);
                row.power_limit_w = Some(if index == 3 { 400.0 } else { 700.0 });
            })
        };
        StagedCase::new().shows(limited(1_300)).expect(&RULE, &["gpu-throttled"]);
        StagedCase::new().shows(limited(1_900)).silent(&RULE);
    }

    #[test]
    fn a_limit_that_somebody_has_set() {
        let set = |limit: f32, mhz: u32| {
            gpus(2, |_, row| {
                busy(row, mhz, 0x4);
                row.sm_clock_max_mhz = Some(2_100);
                row.power_limit_w = Some(limit);
                row.power_default_w = Some(370.0);
            })
        };
        StagedCase::new().shows(set(230.0, 1_035)).expect(&RULE, &["gpu-throttled"]);
        // It costs little, or is the board's own.
        StagedCase::new().shows(set(230.0, 1_800)).silent(&RULE);
        StagedCase::new().shows(set(370.0, 1_035)).silent(&RULE);
    }

    #[test]
    fn a_clock_far_below_its_own() {
        let at = |mhz: u32, pct: f32, reasons: u64| {
            gpus(1, |_, row| {
                busy(row, mhz, reasons);
                row.sm_clock_max_mhz = Some(3_003);
                row.utilization_pct = Some(pct);
            })
        };
        StagedCase::new().shows(at(721, 96.0, 0)).expect(&RULE, &["gpu-throttled"]);
        // It is not busy; it does what somebody asked for; full load costs some.
        StagedCase::new().shows(at(721, 40.0, 0)).silent(&RULE);
        StagedCase::new().shows(at(721, 96.0, ClockReasons::USER)).silent(&RULE);
        StagedCase::new().shows(at(1_700, 96.0, 0)).silent(&RULE);
        // What failed has another reason.
        StagedCase::new().two_ranks().failed(1, -9, true).shows(at(721, 96.0, 0)).silent(&RULE);
    }

    #[test]
    fn dcgmi_says_so() {
        let warning = "Detected thermal violations totaling 12.0 seconds for GPU 1";
        StagedCase::new().test_fails("Targeted Power", Some(1), warning).expect(&RULE, &["gpu-throttled"]);
    }

    #[test]
    fn what_is_normal() {
        // The power cap at full load; an idle GPU among busy ones; all idle.
        StagedCase::new().shows(gpus(8, |_, row| busy(row, 1_700, 0x4))).silent(&RULE);
        let one_idle = gpus(4, |index, row| {
            busy(row, 1_980, 0x4);
            if index == 2 {
                busy(row, 345, 0x9);
                row.utilization_pct = Some(0.0);
            }
        });
        StagedCase::new().shows(one_idle).silent(&RULE);
        let idle = gpus(4, |_, row| {
            busy(row, 345, 0x1);
            row.utilization_pct = Some(0.0);
        });
        StagedCase::new().shows(idle).silent(&RULE);
        // Slower by as much as clocks that nobody explains.
        let unexplained = |mhz: u32| {
            gpus(4, |index, row| {
                busy(row, if index == 1 { mhz } else { 1_980 }, 0);
                row.clock_reasons = None;
            })
        };
        StagedCase::new().shows(unexplained(1_400)).silent(&RULE);
        StagedCase::new().shows(unexplained(600)).expect(&RULE, &["gpu-throttled"]);
        // Slower, and nothing says that it is held down.
        let slower = gpus(4, |index, row| busy(row, if index == 1 { 1_200 } else { 1_980 }, 0));
        StagedCase::new().shows(slower).silent(&RULE);
    }
}
