//! # What it shows
//!
//! The PCIe path of a GPU or a network card lost transactions or its link.
//!
//! # Why it happens
//!
//! A card or riser that is not seated, a retimer or switch, heat, power, a failing device.
//!
//! # Evidence
//!
//! Uncorrected errors of PCIe's error reporting (AER), of the firmware (APEI) or of port containment (DPC) in the kernel
//! log; a hot-plug slot that lost its link; Xids 32, 80 and 167, by which the driver says the same. A GPU whose link has
//! fewer lanes than those of its peers, or a lower generation than theirs while it works; one that replays more than
//! eight packets a minute between two outputs.
//!
//! # What looks like it but is not
//!
//! An idle GPU lowers its link's generation: that is normal. A width that all GPUs share is the slot's. Replays without
//! a rate say little: two outputs with their times give one.
//!
//! Corrected errors (`RxErr`, `BadTLP`, `Timeout`) cost a replay each and break nothing. An error right before a GPU
//! falls off the bus is part of that (gpu-fallen-off-bus). `ACSViol` is redirection of peer traffic (p2p-acs-iommu).
//! Errors of a drive, a USB controller or a display are no matter of the job's, and so is the slot of a drive.
//!
//! # What to do
//!
//! Find what hangs below the port that reports; reseat or replace it.
//!
//! # References
//!
//! Linux Documentation/PCI/pcieaer-howto; PCI Express Base Specification, error logging; Xid Catalog, 32, 80, 167.

use ringleader_knowledge::driver;
use ringleader_knowledge::wording::TestFault;
use ringleader_model::{
    Category, Cause, Confidence, GpuRow, Impact, KernelEventKind, PcieSeverity, Severity, Weight, plain_word,
};

use crate::drafting::gpus::{Proof, Shown, failed_test};
use crate::drafting::kernel::{KernelFault, is_own};
use crate::rule::{Draft, Outcome, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::{CHANNELS_STOP_S, GPU_NOTICED_S, follows, is_lost_gpu, is_xid};
use ringleader_correlate::machine::kernel::{Bond, KernelStatement};
use ringleader_correlate::who::gpus::SeenGpu;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "pcie-error",
    title: "PCIe lost data or a link",
    since: "0.1",
    doc: include_str!("pcie_error.rs"),
    check,
};

/// The kernel may log an error of PCIe this long after the driver has lost the GPU.
const LOGGED_LATE_S: f64 = 5.0;

fn check(scene: &Scene<'_>) -> Outcome {
    said_by_kernel(scene).with(degraded(scene).or_else(|| replaying(scene)).into_iter().chain(tested(scene)))
}

/// GPUs whose link is narrower or slower than that of their peers.
fn degraded(scene: &Scene<'_>) -> Option<Draft> {
    let mut all: Vec<(&SeenGpu<'_>, String)> = Vec::new();
    for gpus in scene.gpus().tables() {
        all.extend(gpus.iter().filter_map(|gpu| Some((gpu, less_than_peers(gpu.row, gpus)?))));
    }
    let shown = Shown::from(scene, all)?;
    let title = format!("the PCIe link of {}: {}", shown.who(), shown.why());
    let draft = shown.draft(&RULE, Cause::PcieError, Proof::Slow, title).category(Category::Performance);
    Some(advise_link(draft))
}

/// Replays in a minute from which on a link is not well: DCGM's own limit (NVIDIA/DCGM, DCGM_LIMIT_MAX_PCIREPLAY_RATE).
const REPLAYS_PER_MINUTE: f64 = 8.0;
/// Two outputs closer than this give no rate, seconds.
const MIN_APART_S: f64 = 30.0;

/// GPUs whose count of replays grows between two outputs.
fn replaying(scene: &Scene<'_>) -> Option<Draft> {
    let all: Vec<(&SeenGpu<'_>, String)> = scene
        .gpus()
        .seen
        .iter()
        .filter_map(|later| {
            let (now, at) = (later.row.pcie.replays?, later.table.at?);
            let mut rates = scene.gpus().seen.iter().filter(|g| g.is_same(later)).filter_map(|earlier| {
                let (before, then) = (earlier.row.pcie.replays?, earlier.table.at?);
                let seconds = at.ns.saturating_sub(then.ns) as f64 / 1e9;
                let grown = now.checked_sub(before)?;
                (seconds >= MIN_APART_S).then(|| (grown as f64 * 60.0 / seconds, grown, seconds))
            });
            let (_, grown, seconds) = rates.find(|(rate, ..)| *rate > REPLAYS_PER_MINUTE)?;
            Some((later, format!("{grown} more replays within {seconds:.0} s")))
        })
        .collect();
    let shown = Shown::from(scene, all)?;
    let title = format!("the PCIe link of {} keeps retransmitting packets", shown.who());
    Some(advise_link(
        shown.draft(&RULE, Cause::PcieError, Proof::Slow, title).category(Category::Performance),
    ))
}

fn advise_link(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "compare the links of all GPUs while they work",
            "nvidia-smi -q | grep -A 12 -E '^GPU|GPU Link Info'",
        )
        .advise(
            Impact::Disruptive,
            "drain the node, reseat the card and its riser or retimer; replace what stays degraded",
        )
}

/// Utilisation at which a link runs at its full generation.
const BUSY_PCT: f32 = 10.0;

fn less_than_peers(row: &GpuRow, table: &[SeenGpu<'_>]) -> Option<String> {
    let peers: Vec<&GpuRow> =
        table.iter().map(|g| g.row).filter(|r| !std::ptr::eq(*r, row) && r.name == row.name).collect();
    // All peers must agree: half of a machine's slots may be narrower by design.
    let all_have = |of: fn(&GpuRow) -> Option<u8>| {
        let first = of(peers.first()?)?;
        peers.iter().all(|r| of(r) == Some(first)).then_some(first)
    };
    if let (Some(width), Some(usual)) = (row.pcie.width, all_have(|r| r.pcie.width))
        && width < usual
        && peers.len() > 1
    {
        return Some(format!("{width} lanes, its peers have {usual}"));
    }
    if let (Some(width), Some(max)) = (row.pcie.width, row.pcie.width_max)
        && width < max
        && peers.iter().all(|r| r.pcie.width == r.pcie.width_max && r.pcie.width.is_some())
        && !peers.is_empty()
    {
        return Some(format!("{width} of {max} lanes"));
    }
    let works = row.utilization_pct.is_some_and(|u| u >= BUSY_PCT);
    if let (Some(now), Some(max), Some(usual)) =
        (row.pcie.generation, row.pcie.generation_max, all_have(|r| r.pcie.generation))
        && now < usual
        && works
    {
        return Some(format!("generation {now} of {max} while it works, its peers run at {usual}"));
    }
    None
}

fn tested(scene: &Scene<'_>) -> Option<Draft> {
    let draft = failed_test(scene, &RULE, Cause::PcieError, Proof::Slow, TestFault::Pcie)?;
    Some(advise_link(draft.category(Category::Performance)))
}

/// Drivers of GPUs and of the ports above them; without a name it may be any.
const OF_GPUS: [&str; 6] = ["", "pcieport", "nvidia", "nvidia-nvswitch", "nouveau", "vfio-pci"];
/// A drive is missed this soon after its slot lost the link, seconds.
const MISSED_S: f64 = 10.0;

/// Of a drive, a USB controller, a display: a fault of its own, and not the job's.
fn is_of_another_sort(scene: &Scene<'_>, event: &KernelStatement<'_>) -> bool {
    scene.kernel().all().iter().any(|other| match &other.event.kind {
        KernelEventKind::PcieError(error) => {
            other.event.device.is_some()
                && other.event.device == event.event.device
                && !OF_GPUS.contains(&&*error.driver)
                && !driver::is_nic(&error.driver)
        }
        KernelEventKind::Storage { name, .. } => {
            matches!(event.event.kind, KernelEventKind::PcieLinkDown)
                && name.starts_with("nvme")
                && event.seconds_to(other).is_some_and(|s| (-MISSED_S..=MISSED_S).contains(&s))
        }
        _ => false,
    })
}

/// An unsupported request, not fatal: drivers and tools that search for devices cause it.
fn is_probe(event: &KernelStatement<'_>) -> bool {
    matches!(&event.event.kind, KernelEventKind::PcieError(e)
        if e.severity == PcieSeverity::NonFatal && !e.bits.is_empty() && e.bits.iter().all(|b| &**b == "UnsupReq"))
}

fn said_by_kernel(scene: &Scene<'_>) -> Outcome {
    let seen = KernelFault::of(scene, |e| match &e.event.kind {
        _ if is_of_another_sort(scene, e) => false,
        KernelEventKind::PcieError(error) => {
            error.severity != PcieSeverity::Corrected && !error.bits.iter().any(|b| &**b == "ACSViol")
        }
        KernelEventKind::PcieLinkDown => true,
        _ => is_own(&RULE, e.event),
    });
    // A program's own fault stops its channels with such numbers too.
    let Some(seen) = seen.and_then(|s| {
        s.without(|e| {
            is_xid(e.event, &[32])
                && follows(scene.kernel(), e, CHANNELS_STOP_S, true, |root| is_xid(root, &[13, 31]))
        })
    }) else {
        return Outcome::Clear;
    };
    // A GPU that then fell off the bus is the finding.
    let lost = scene.kernel().near().any(|lost| {
        is_lost_gpu(lost.event)
            && seen
                .events()
                .iter()
                .any(|e| e.seconds_to(lost).is_some_and(|s| (-LOGGED_LATE_S..=GPU_NOTICED_S).contains(&s)))
    });
    let Some(first) = seen.first() else { return Outcome::Clear };
    let device = first.event.device.map_or_else(|| "a device".to_owned(), |d| d.to_string());
    let what = match &first.event.kind {
        KernelEventKind::PcieError(error) => {
            let sort = if error.severity == PcieSeverity::Fatal { "fatal" } else { "uncorrected" };
            let bits = error.bits.join(", ");
            let bits = if bits.is_empty() { bits } else { format!(" ({bits})") };
            // A port reports for what is below it.
            let port = if &*error.driver == "pcieport" { "at" } else { "of" };
            format!("{sort} PCIe error {port} {device}{bits}")
        }
        KernelEventKind::PcieLinkDown => format!("the PCIe slot below {device} lost its link"),
        _ => format!("the driver lost data on PCIe at {}", seen.gpu()),
    };
    let mut draft = seen.draft(&RULE, Cause::PcieError, what);
    if seen.events().iter().all(|e| is_probe(e)) {
        draft = draft.severity(Severity::Info).weight(Weight::Derived).confidence(Confidence::Low);
    }
    if lost {
        draft = draft.weight(Weight::Echo);
    } else if is_xid(first.event, &[32]) && seen.bond() != Bond::Alone {
        // A bad command stream is the link's fault more often than not, and not always.
        draft = draft.weight(Weight::Derived);
    }
    let draft = draft
        .advise_made(
            Impact::Harmless,
            "check which device hangs below that port, and its link's speed and width",
            plain_word(&device)
                .map(|device| format!("lspci -tv; lspci -vvv -s {device} | grep -E \"LnkSta|UESta|CESta\"")),
        )
        .advise(
            Impact::Disruptive,
            "drain the node, reseat the card and its riser or retimer; replace what reports errors again",
        );
    Outcome::from_drafts([draft])
}

#[cfg(test)]
mod tests {
    use ringleader_model::{KernelEventKind, PcieSeverity};

    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::gpus::gpus;
    use ringleader_correlate::staging::kernel::BEGAN_S;

    #[test]
    fn one_link_is_narrower_than_its_peers() {
        let with = |width: u8, of: u8| {
            gpus(8, |index, row| {
                row.pcie.width = Some(if index == 1 { width } else { of });
                row.pcie.width_max = Some(16);
            })
        };
        StagedCase::new().two_ranks().shows(with(8, 16)).expect(&RULE, &["pcie-error 1"]);
        assert_eq!(StagedCase::new().two_ranks().shows(with(8, 16)).worth(&RULE), ["warning Derived"]);
        // The slots of this machine have eight lanes each.
        StagedCase::new().two_ranks().shows(with(8, 8)).silent(&RULE);
    }

    #[test]
    fn one_link_is_slower_than_its_peers_while_it_works() {
        let with = |generation: u8, busy: f32| {
            gpus(4, |index, row| {
                row.pcie.generation = Some(if index == 0 { generation } else { 5 });
                row.pcie.generation_max = Some(5);
                row.utilization_pct = Some(if index == 0 { busy } else { 100.0 });
            })
        };
        StagedCase::new().two_ranks().shows(with(3, 100.0)).expect(&RULE, &["pcie-error 0"]);
        // An idle GPU saves power.
        StagedCase::new().two_ranks().shows(with(1, 0.0)).silent(&RULE);
    }

    #[test]
    fn replays_have_no_rate() {
        let replays = gpus(4, |index, row| row.pcie.replays = Some(u64::from(index) * 500));
        StagedCase::new().shows(replays).silent(&RULE);
        let slow = "The number of PCIe replays exceeds the threshold";
        StagedCase::new().test_fails("PCIe", Some(2), slow).expect(&RULE, &["pcie-error"]);
    }

    #[test]
    fn replays_between_two_outputs() {
        let counted = |stage: StagedCase, second: i64, replays: u64| {
            let rows = gpus(4, |index, row| row.pcie.replays = Some(if index == 1 { replays } else { 3 }));
            stage.shows_at(second, rows)
        };
        let two =
            |later_s: i64, later| counted(counted(StagedCase::new(), 1_000, 40), 1_000 + later_s, later);
        two(60, 540).expect(&RULE, &["pcie-error"]);
        assert_eq!(two(60, 540).worth(&RULE), ["warning Derived"]);
        // A few in an hour; a count that was reset; two outputs at one moment.
        two(3_600, 60).silent(&RULE);
        two(60, 0).silent(&RULE);
        two(1, 540).silent(&RULE);
    }

    #[test]
    fn the_kernel_says_so() {
        StagedCase::new()
            .pcie("0000:3b:00.0", "nvidia", PcieSeverity::NonFatal, "CmpltTO")
            .expect(&RULE, &["pcie-error"]);
        StagedCase::new()
            .pcie("0000:00:03.0", "pcieport", PcieSeverity::Fatal, "SDES")
            .expect(&RULE, &["pcie-error"]);
        StagedCase::new()
            .kernel("0000:00:03.0", KernelEventKind::PcieLinkDown)
            .expect(&RULE, &["pcie-error"]);
        StagedCase::new().xid("0000:3b:00", 167, 0, "x").expect(&RULE, &["pcie-error"]);
        StagedCase::new()
            .two_ranks()
            .pcie("0000:3b:00.0", "nvidia", PcieSeverity::NonFatal, "CmpltTO")
            .at_s(BEGAN_S + 60)
            .expect(&RULE, &["pcie-error 1"]);
    }

    #[test]
    fn corrected_errors_break_nothing() {
        StagedCase::new().pcie("0000:3b:00.0", "nvidia", PcieSeverity::Corrected, "BadTLP").silent(&RULE);
        StagedCase::new()
            .pcie("0000:00:1c.0", "pcieport", PcieSeverity::Corrected, "RxErr Timeout")
            .silent(&RULE);
    }

    #[test]
    fn requests_that_nobody_supports_and_other_devices() {
        let probe = StagedCase::new().pcie("0000:e1:00.0", "pcieport", PcieSeverity::NonFatal, "UnsupReq");
        assert_eq!(probe.worth(&RULE), ["info Derived"]);
        let fatal = StagedCase::new().pcie("0000:e1:00.0", "pcieport", PcieSeverity::Fatal, "UnsupReq");
        assert_eq!(fatal.worth(&RULE), ["error Stated"]);
        for driver in ["nvme", "ahci", "qat_4xxx"] {
            StagedCase::new().pcie("0000:e1:00.0", driver, PcieSeverity::NonFatal, "CmpltTO").silent(&RULE);
        }
    }

    #[test]
    fn redirected_peer_traffic_is_another_thing() {
        StagedCase::new().pcie("0000:00:1c.0", "pcieport", PcieSeverity::NonFatal, "ACSViol").silent(&RULE);
    }

    #[test]
    fn part_of_a_gpu_that_fell_off_the_bus() {
        let finding = StagedCase::new()
            .pcie("0000:00:03.0", "pcieport", PcieSeverity::Fatal, "SDES")
            .xid("0000:03:00", 79, 0, "GPU has fallen off the bus.")
            .finding(&RULE);
        assert_eq!(finding.weight, ringleader_model::Weight::Echo);
    }

    #[test]
    fn a_channel_that_a_program_broke() {
        StagedCase::new()
            .xid("0000:3b:00", 31, 5, "MMU Fault")
            .xid("0000:3b:00", 32, 5, "Channel ID 2")
            .silent(&RULE);
    }
}
