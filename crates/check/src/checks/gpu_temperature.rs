//! # What it checks
//!
//! Temperature of the GPUs: compared with the driver's slowdown limit, and with their peers.
//!
//! # What fails
//!
//! A GPU at the limit where the driver slows it down. It warns about a GPU above its target temperature, or far
//! hotter than peers with the same load.
//!
//! # What to do
//!
//! Check fans, pumps and airflow of the node; keep jobs off it meanwhile.
//!
//! # References
//!
//! NVML API, nvmlDeviceGetTemperature, nvmlDeviceGetMarginTemperature, NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT.

use ringleader_knowledge::remedy;
use ringleader_model::median;
use ringleader_node::{Gpu, Gpus};

use crate::answer::{CheckAnswer, CheckState, Impact, ValueKind};
use crate::gpus::{is_busy, item, of, peers};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "gpu-temperature",
    title: "GPU temperature",
    area: Area::Gpu,
    reads: &[Probe::Gpus],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("gpu_temperature.rs"),
    run,
};

/// Positions on one board differ by some 15 degrees; this is more.
const HOTTER_C: f64 = 20.0;
/// Below this no GPU counts as hot, regardless of its peers' temperature.
const WARM_C: u32 = 70;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let gpus = match of(view) {
        Ok(gpus) => gpus,
        Err(answer) => return answer,
    };
    if gpus.gpus.iter().all(|gpu| gpu.temperature_c.is_none()) {
        return CheckAnswer::skipped("no GPU reports its temperature");
    }
    let mut items = Vec::new();
    for gpu in &gpus.gpus {
        let Some((verdict, text)) = judge(gpu, gpus) else { continue };
        let or = |value: Option<i32>| value.map_or("-".to_owned(), |value| value.to_string());
        let evidence = format!(
            "NVML: {} C, margin {} C, slowed down at margin {} C or {} C",
            or(gpu.temperature_c.map(|t| t as i32)),
            or(gpu.margin_c),
            or(gpu.slowdown_margin_c),
            or(gpu.slowdown_c.map(|t| t as i32)),
        );
        items.push(item(gpu, verdict, text, evidence));
    }
    let hottest = gpus.gpus.iter().filter_map(|gpu| gpu.temperature_c).max().unwrap_or(0);
    let mut answer = CheckAnswer::from_items(format!("the hottest is at {hottest} C"), items)
        .advise(
            Impact::Harmless,
            "watch temperatures and clocks under load",
            Some(remedy::SHOW_CLOCKS.to_owned()),
        )
        .advise(
            Impact::Disruptive,
            "check fans, pumps and airflow of the node; keep jobs off it until then",
            None,
        );
    for gpu in &gpus.gpus {
        if let Some(degrees) = gpu.temperature_c {
            answer = answer.value(format!("gpu.{}.temperature-c", gpu.index), degrees, ValueKind::Near);
        }
    }
    answer
}

fn judge(gpu: &Gpu, gpus: &Gpus) -> Option<(CheckState, String)> {
    let degrees = gpu.temperature_c?;
    let is_slowed = match (gpu.margin_c, gpu.slowdown_margin_c) {
        (Some(margin), Some(limit)) => margin <= limit,
        _ => gpu.slowdown_c.is_some_and(|limit| degrees >= limit),
    };
    if is_slowed {
        return Some((CheckState::Fail, format!("{degrees} C, where the driver slows it down")));
    }
    if gpu.margin_c.is_some_and(|margin| margin < 0) {
        return Some((CheckState::Warn, format!("{degrees} C, above its target")));
    }
    // Peers with the same load: an idle one is naturally cooler.
    let like = peers(gpu, gpus).filter(|peer| is_busy(peer) == is_busy(gpu));
    let temperatures: Vec<f64> = like.filter_map(|peer| peer.temperature_c.map(f64::from)).collect();
    if temperatures.len() < 3 || degrees < WARM_C {
        return None;
    }
    let usual = median::upper(temperatures)?;
    (f64::from(degrees) - usual >= HOTTER_C)
        .then(|| (CheckState::Warn, format!("{degrees} C, its peers are at {usual:.0} C with the same load")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging_gpus::{is_sound, node, verdict};

    fn second(change: impl Fn(&mut Gpu)) -> (CheckState, Vec<String>) {
        verdict(
            &CHECK,
            &node(8, |n, gpu| {
                if n == 1 {
                    change(gpu);
                }
            }),
        )
    }

    #[test]
    fn heat() {
        is_sound(&CHECK);
        let named = vec!["GPU 1 (0000:1c:00.0)".to_owned()];
        assert_eq!(second(|gpu| gpu.margin_c = Some(-2)), (CheckState::Fail, named.clone()));
        assert_eq!(second(|gpu| gpu.margin_c = Some(-1)), (CheckState::Warn, named.clone()));
        assert_eq!(second(|gpu| gpu.temperature_c = Some(84)), (CheckState::Warn, named.clone()));
        let old = |gpu: &mut Gpu| {
            (gpu.margin_c, gpu.slowdown_margin_c) = (None, None);
            (gpu.temperature_c, gpu.slowdown_c) = (Some(90), Some(89));
        };
        assert_eq!(second(old), (CheckState::Fail, named));
    }

    #[test]
    fn a_busy_one_among_idle_ones() {
        let node = node(8, |n, gpu| {
            if n == 1 {
                gpu.temperature_c = Some(72);
            } else {
                (gpu.temperature_c, gpu.utilization_pct) = (Some(33), Some(0));
            }
        });
        assert_eq!(verdict(&CHECK, &node), (CheckState::Ok, Vec::new()));
    }
}
