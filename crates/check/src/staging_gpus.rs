//! Nodes for the tests of checks that read GPUs and the bus.

use std::collections::BTreeMap;

use ringleader_node::{
    Ecc, Gpu, Gpus, KernelLog, Node, NvLink, Outcome, Part, Pci, PciDevice, PcieLink, Rows, System,
};

use crate::answer::{CheckAnswer, CheckState};
use crate::rule::Check;
use crate::view::{Expectations, NodeView};

/// A healthy, busy H200 on an HGX board.
pub(crate) fn h200(index: u32) -> Gpu {
    let clean = Ecc {
        sram_corrected: Some(0),
        sram_uncorrected: Some(0),
        dram_corrected: Some(0),
        dram_uncorrected: Some(0),
        total_corrected: Some(0),
        total_uncorrected: Some(0),
    };
    let link = |number| NvLink {
        number,
        active: Some(true),
        remote: None,
        remote_kind: Some("switch".to_owned()),
        counters: ["replay", "recovery", "crc"].map(|name| (name.to_owned(), 0, Some(0))).to_vec(),
    };
    Gpu {
        index,
        uuid: Some(format!("GPU-{index}")),
        pci: format!("0000:{:02x}:00.0", 0x1b + index),
        name: "NVIDIA H200".to_owned(),
        power_w: Some(640.0),
        power_limit_w: Some(700.0),
        power_default_w: Some(700.0),
        utilization_pct: Some(100),
        temperature_c: Some(60),
        margin_c: Some(25),
        slowdown_margin_c: Some(-2),
        memory_temperature_c: Some(70),
        sm_clock_mhz: Some(1_700),
        sm_clock_max_mhz: Some(1_980),
        // Software power cap: normal for these GPUs under load.
        clock_reasons: Some(0x4),
        persistence: Some(true),
        compute_mode: Some("default".to_owned()),
        mig: Some(false),
        ecc: Some(true),
        volatile: clean,
        aggregate: clean,
        sram_threshold_exceeded: Some(false),
        rows: Some(Rows { banks_exhausted: Some(0), banks_low: Some(0), ..Rows::default() }),
        recovery_action: Some("none".to_owned()),
        pcie: PcieLink {
            generation: Some(5),
            generation_max: Some(5),
            width: Some(16),
            width_max: Some(16),
            replays: Some(0),
            replays_later: Some(0),
        },
        links: (0..18).map(link).collect(),
        window_ms: Some(400),
        fabric_state: Some("completed".to_owned()),
        fabric_status: Some(0),
        fabric_health_mask: Some(0x1aa),
        fabric_health_summary: Some(1),
        ..Gpu::default()
    }
}

/// A node of `n` such GPUs, each below its own root port, modified by `change`.
pub(crate) fn node(n: u32, mut change: impl FnMut(u32, &mut Gpu)) -> Node {
    let gpus: Vec<Gpu> = (0..n)
        .map(|index| {
            let mut gpu = h200(index);
            change(index, &mut gpu);
            gpu
        })
        .collect();
    let mut devices = Vec::new();
    for index in 0..n {
        let port = format!("0000:00:{index:02x}.0");
        devices.push(PciDevice {
            address: port.clone(),
            class: 0x06_0400,
            vendor: 0x8086,
            ..PciDevice::default()
        });
        devices.push(PciDevice {
            address: format!("0000:{:02x}:00.0", 0x1b + index),
            class: 0x03_0200,
            vendor: 0x10de,
            device: 0x2335,
            driver: Some("nvidia".to_owned()),
            parent: Some(port),
            speed_gt_s: Some(32.0),
            speed_max_gt_s: Some(32.0),
            width: Some(16),
            width_max: Some(16),
            counts_errors: true,
            ..PciDevice::default()
        });
    }
    let system = System {
        kernel: "6.8.0-60-generic".to_owned(),
        uptime_s: 1_000.0,
        modules: BTreeMap::from([("nvidia".to_owned(), "580.159.04".to_owned())]),
        ..System::default()
    };
    Node {
        at_ns: 2_000_000_000_000,
        system: Part::of(system),
        gpus: Part::of(Gpus {
            driver_version: Some("580.159.04".to_owned()),
            cuda_version: Some("13.0".to_owned()),
            nvml_version: Some("13.580.159.04".to_owned()),
            module_version: Some("580.159.04".to_owned()),
            n_counted: n,
            gpus,
            ..Gpus::default()
        }),
        pci: Part::of(Pci { devices, window_ms: Some(400), ..Pci::default() }),
        kernel_log: Part::of(KernelLog {
            lines: vec!["6,0,0,-;Linux version 6.8".to_owned()],
            is_cut: false,
            ..KernelLog::default()
        }),
        ..Node::default()
    }
}

/// Eight healthy GPUs.
pub(crate) fn healthy() -> Node {
    node(8, |_, _| {})
}

/// The GPUs of a node.
pub(crate) fn gpus(node: &mut Node) -> &mut Gpus {
    match &mut node.gpus.outcome {
        Outcome::Seen(gpus) => gpus,
        _ => panic!("no GPUs"),
    }
}

/// The bus of a node.
pub(crate) fn pci(node: &mut Node) -> &mut Pci {
    match &mut node.pci.outcome {
        Outcome::Seen(pci) => pci,
        _ => panic!("no bus"),
    }
}

/// Adds lines to the kernel log: seconds since boot, text.
pub(crate) fn kernel(node: &mut Node, lines: &[(u64, &str)]) {
    let Outcome::Seen(log) = &mut node.kernel_log.outcome else { panic!("no log") };
    for (second, text) in lines {
        let number = log.lines.len();
        log.lines.push(format!("4,{number},{},-;{text}", second * 1_000_000));
    }
}

/// The check's answer.
pub(crate) fn answer(check: &Check, node: &Node) -> CheckAnswer {
    let options = Expectations::default();
    (check.run)(&NodeView::new(node, &options))
}

/// The answer's verdict, and the subjects of the items that are not well.
pub(crate) fn verdict(check: &Check, node: &Node) -> (CheckState, Vec<String>) {
    let answer = answer(check, node);
    let bad = answer.items.iter().filter(|item| item.verdict > CheckState::Ok);
    (answer.verdict, bad.map(|item| item.subject.clone()).collect())
}

/// Asserts that the check finds nothing on a healthy node and is skipped if its readings are missing.
pub(crate) fn is_sound(check: &Check) {
    let healthy = answer(check, &healthy());
    assert_eq!(healthy.verdict, CheckState::Ok, "{}: {}", check.id, healthy.summary);
    let missing = answer(check, &Node::default());
    assert_eq!(missing.verdict, CheckState::Skipped, "{}: {}", check.id, missing.summary);
    assert!(!missing.summary.is_empty());
}
