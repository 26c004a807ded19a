//! # What it shows
//!
//! A transfer over NVLink failed beyond repair while a kernel ran. All processes with a kernel in flight over that
//! link are lost.
//!
//! # Why it happens
//!
//! A link that flaps or lost lanes, a damaged GPU baseboard, a switch.
//!
//! # Evidence
//!
//! `uncorrectable NVLink error detected during the execution` of a process; fatal Xids 74, 144 to 150 and 155; a GPU with
//! fewer links up than its peers (`nvidia-smi nvlink -s`), or that the topology shows cut off from the mesh of the
//! others; error counters that grew between two readings.
//!
//! # What looks like it but is not
//!
//! Links that are off on all GPUs are off by design, and cards in PCIe slots have bridges or no NVLink. Error counters
//! without a rate, replays at boot above all, say nothing. `P2P is disabled between NVLINK connected GPUs` at start is
//! a matter of set-up (p2p-unsupported).
//!
//! # What to do
//!
//! Find the link in the kernel log (Xid 74) and take the node out.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Code 220.

use ringleader_knowledge::wording::{self, TestFault};
use ringleader_knowledge::xid::{self, investigations};
use ringleader_model::{Cause, Cite, Confidence, Impact, KernelEventKind, SourceKind, Weight, Xid};

use crate::drafting::claims::ClaimsOfCause;
use crate::drafting::gpus::{Proof, Shown, failed_test, graded};
use crate::drafting::kernel::{Both, KernelFault};
use crate::rule::{Draft, Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::{SWITCH_TAKES_LINKS_S, follows};
use ringleader_correlate::who::gpus::is_card;
use ringleader_correlate::who::gpus::{SeenGpu, Use};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "nvlink-error",
    title: "NVLink failed",
    since: "0.1",
    doc: include_str!("nvlink_error.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let shown = fewer_links(scene).or_else(|| cut_off(scene));
    let seen = KernelFault::xids(scene, is_fatal);
    let Some(both) = Both::of(ClaimsOfCause::of(scene, Cause::NvlinkError), seen) else {
        let tested = || failed_test(scene, &RULE, Cause::NvlinkError, Proof::Broken, TestFault::NvLink);
        return Outcome::from_drafts(shown.or_else(|| grown(scene)).or_else(tested).map(advise));
    };
    let mut draft = both.draft(
        &RULE,
        Cause::NvlinkError,
        |told| format!("NVLink failed on the GPU of {who}", who = told.who()),
        |seen| format!("NVLink{} failed on {}", link_of(seen), seen.gpu()),
    );
    if let Some(first) = both.seen().and_then(KernelFault::first) {
        // A switch that fails takes the links of its GPUs along.
        let by_switch = |e: &ringleader_model::KernelEvent| matches!(&e.kind, KernelEventKind::Sxid(s) if s.fatal == Some(true));
        if follows(scene.kernel(), first, SWITCH_TAKES_LINKS_S, false, by_switch) {
            draft = draft.weight(Weight::Echo);
        }
        if far_end(first.event) {
            draft = draft.advise(
                Impact::Harmless,
                "the link reports that its far end failed first: examine the GPU or switch at the other end",
            );
        }
    }
    let shown = shown.and_then(Draft::build);
    found(advise(draft.evidence(shown.into_iter().flat_map(|f| f.evidence))))
}

fn advise(draft: Draft) -> Draft {
    draft
        .advise_command(
            Impact::Harmless,
            "find the link that failed and its counters",
            "nvidia-smi nvlink -s; nvidia-smi nvlink -e; dmesg -T | grep -i xid",
        )
        .advise(
            Impact::Disruptive,
            "keep the scheduler from placing jobs on this node until the link has been repaired",
        )
}

/// GPUs with fewer links up than others of their kind in the same output.
fn fewer_links(scene: &Scene<'_>) -> Option<Draft> {
    let mut all: Vec<(&SeenGpu<'_>, String)> = Vec::new();
    let mut counts: Vec<(&SeenGpu<'_>, String)> = Vec::new();
    let n_up = |g: &SeenGpu<'_>| g.row.links.iter().filter(|l| l.active == Some(true)).count();
    let tells = |g: &SeenGpu<'_>| g.row.links.iter().any(|l| l.active.is_some());
    for gpus in scene.gpus().tables() {
        for gpu in gpus.iter().filter(|g| tells(g)) {
            let peers = gpus.iter().filter(|g| g.row.name == gpu.row.name && tells(g)).map(n_up);
            let (mine, most) = (n_up(gpu), peers.max().unwrap_or(0));
            // Cards that plug into PCIe are bridged in pairs, or not at all.
            let is_card = gpu.row.name.as_deref().is_some_and(is_card);
            // A list that was cut shows fewer links, not links that are down.
            let down = gpu.row.links.iter().filter(|l| l.active == Some(false)).count();
            if mine < most && mine + down >= most && !(mine == 0 && is_card) {
                let down: Vec<String> = gpu
                    .row
                    .links
                    .iter()
                    .filter(|l| l.active == Some(false))
                    .take(8)
                    .map(|l| l.number.to_string())
                    .collect();
                let which = match down.as_slice() {
                    [] => String::new(),
                    [one] => format!(" (link {one} is inactive)"),
                    some => format!(" (links {} are inactive)", some.join(", ")),
                };
                let count = format!("{mine} NVLinks are up, its peers have {most}");
                all.push((gpu, format!("{count}{which}")));
                counts.push((gpu, count));
            }
        }
    }
    let shown = Shown::from(scene, all)?;
    // The citation shows which links are down.
    let first = counts.iter().find(|(gpu, _)| shown.first().is_some_and(|first| std::ptr::eq(first, *gpu)));
    let title = format!("{}: {}", shown.who(), first.map_or("", |(_, count)| count));
    Some(shown.draft(&RULE, Cause::NvlinkError, Proof::Broken, title))
}

/// One GPU that reaches none of the others as they reach each other (`topo -m`).
fn cut_off(scene: &Scene<'_>) -> Option<Draft> {
    for (observation, table) in scene.gpu_tables() {
        let mut indexes: Vec<u32> = table.paths.iter().flat_map(|p| [p.from, p.to]).collect();
        indexes.sort_unstable();
        indexes.dedup();
        if indexes.len() < 3 {
            continue;
        }
        for odd in &indexes {
            let (own, others): (Vec<_>, Vec<_>) =
                table.paths.iter().partition(|p| p.from == *odd || p.to == *odd);
            let (Some(usual), Some(first)) = (others.first(), own.first()) else { continue };
            // A mesh of equal links but for this GPU: other machines mix their links by design.
            let is_mesh = usual.is_nvlink() && others.iter().all(|p| p.kind == usual.kind);
            if !is_mesh || !own.iter().all(|p| p.kind != usual.kind) {
                continue;
            }
            let gpu = scene.gpus().by_index(observation, *odd);
            let unknown = if scene.has_job() { Use::Unknown } else { Use::Alone };
            let used = gpu.map_or(unknown, |g| g.used);
            let whose = gpu.map_or_else(|| format!("GPU {odd}"), SeenGpu::whose);
            let text = format!("GPU {odd} is reached by {}, all others by {}", first.kind, usual.kind);
            let title = format!("{whose} is reached by {}, all others by {}", first.kind, usual.kind);
            let cite = Cite { line: first.line, ..observation.cite };
            let draft = graded(scene, &RULE, Cause::NvlinkError, Proof::Broken, used, title)
                .at_most(Confidence::Medium)
                .culprits(gpu.map(|g| g.culprit.clone()))
                .cite(cite, SourceKind::NvidiaSmi, text);
            return Some(draft);
        }
    }
    None
}

/// Checksum errors between two readings that are more than a link makes in its sleep.
const MANY_CRC: u64 = 1_000;

/// Counters of a link that grew between two readings.
fn grown(scene: &Scene<'_>) -> Option<Draft> {
    let mut all: Vec<(&SeenGpu<'_>, String)> = Vec::new();
    for (at, later) in scene.gpus().seen.iter().enumerate() {
        for earlier in scene.gpus().seen.iter().take(at).filter(|e| e.is_same(later)) {
            for link in &later.row.links {
                let Some(old) = earlier.row.links.iter().find(|l| l.number == link.number) else { continue };
                // Files have no order: a difference either way is growth, unless the GPU was reset.
                let by = |a: Option<u64>, b: Option<u64>| a.zip(b).map_or(0, |(a, b)| a.abs_diff(b));
                let failed = by(old.failed_recoveries, link.failed_recoveries);
                let retrained = by(old.recoveries, link.recoveries);
                let crc = by(old.crc_errors, link.crc_errors);
                let what = match (failed, retrained, crc) {
                    (n @ 1.., _, _) => format!("link retraining failed {n} times"),
                    (_, n @ 1.., _) => format!("the link was retrained {n} times"),
                    (_, _, n) if n >= MANY_CRC => format!("{n} packets had CRC errors"),
                    _ => continue,
                };
                all.push((later, format!("link {}: between two readings {what}", link.number)));
            }
        }
    }
    let shown = Shown::from(scene, all)?;
    let title = format!("an NVLink of {} logged new errors between two readings", shown.who());
    Some(shown.draft(&RULE, Cause::NvlinkError, Proof::Happened, title))
}

/// An Xid that says a link failed: 74 until NVLink 4, 144 to 150 and 155 since. What they call `Nonfatal`, and the
/// faults of a program that touches a dead peer (137), are not.
fn is_fatal(x: &Xid) -> bool {
    // A body that belongs to 74 under another number was seen in the wild.
    x.code == 74 && x.fatal != Some(false)
        || wording::is_nvlink_fatal(&x.body)
        || x.code == 155
        || (144..=150).contains(&x.code)
            && (x.fatal == Some(true) || row(x).is_some_and(|r| r.severity != "nonfatal"))
}

/// What the decode sheet says of an NVLink 5 Xid.
fn row(x: &Xid) -> Option<&'static xid::NvlinkRule> {
    let (first, status) = (x.registers.first()?, x.registers.get(1)?);
    xid::nvlink_rule(x.code, x.unit.as_deref()?, *first, *status)
}

fn far_end(event: &ringleader_model::KernelEvent) -> bool {
    matches!(&event.kind, KernelEventKind::Xid(x) if row(x).is_some_and(|r| r.investigate == investigations::INVESTIGATE_PEER_DEVICE))
}

/// ` link 14`, if the earliest line names it.
fn link_of(seen: &KernelFault<'_, '_>) -> String {
    match seen.first().map(|e| &e.event.kind) {
        Some(KernelEventKind::Xid(x)) => {
            x.link.filter(|n| *n >= 0).map_or_else(String::new, |n| format!(" link {n}"))
        }
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::gpus::{gpus, links};
    use ringleader_correlate::staging::kernel::BEGAN_S;

    #[test]
    fn cuda_says_so() {
        StagedCase::new()
            .raised(
                Some(4),
                "torch.AcceleratorError",
                "CUDA error: uncorrectable NVLink error detected during the execution",
                &[],
            )
            .expect(&RULE, &["nvlink-error 4"]);
    }

    #[test]
    fn ecc_is_another_thing() {
        StagedCase::new()
            .raised(Some(4), "RuntimeError", "CUDA error: uncorrectable ECC error encountered", &[])
            .silent(&RULE);
    }

    #[test]
    fn the_kernel_says_so() {
        let fatal = "NVLink: fatal error detected on link 14(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)";
        StagedCase::new().xid("0003:00:00", 74, 0, fatal).expect(&RULE, &["nvlink-error"]);
        StagedCase::new().xid("0003:00:00", 71, 0, fatal).expect(&RULE, &["nvlink-error"]);
        StagedCase::new()
            .xid("0008:01:00", 149, 0, "NETIR_LINK_DOWN Fatal XC0 i0 Link 14")
            .expect(&RULE, &["nvlink-error"]);
        StagedCase::new()
            .two_ranks()
            .xid("0000:3b:00", 74, 0, fatal)
            .at_s(BEGAN_S + 9)
            .expect(&RULE, &["nvlink-error 1"]);
    }

    #[test]
    fn one_gpu_has_fewer_links_than_its_peers() {
        let up = |n: u32| gpus(4, |index, row| row.links = links(if index == 1 { n } else { 18 }, 18));
        StagedCase::new().shows(up(17)).expect(&RULE, &["nvlink-error"]);
        let job = || StagedCase::new().two_ranks().raised(Some(0), "RuntimeError", "boom", &[]);
        job().shows(up(0)).expect(&RULE, &["nvlink-error 1"]);
        job().shows(up(18)).silent(&RULE);
        // The file was cut within the last GPU's links.
        let cut = gpus(4, |index, row| row.links = links(18, if index == 3 { 9 } else { 18 }));
        StagedCase::new().shows(cut).silent(&RULE);
    }

    #[test]
    fn an_output_that_was_cut_lacks_lines_not_links() {
        let cut = gpus(2, |index, row| row.links = links(18, if index == 1 { 7 } else { 18 }));
        StagedCase::new().shows(cut).silent(&RULE);
    }

    #[test]
    fn links_that_are_off_by_design() {
        // Twelve of eighteen on all alike; cards bridged in pairs; no links at all.
        StagedCase::new().shows(gpus(4, |_, row| row.links = links(12, 18))).silent(&RULE);
        let cards = gpus(4, |index, row| {
            row.name = Some("NVIDIA A100-PCIE-40GB".into());
            row.links = links(if index < 2 { 12 } else { 0 }, 12);
        });
        StagedCase::new().shows(cards).silent(&RULE);
        StagedCase::new().shows(gpus(4, |_, _| {})).silent(&RULE);
    }

    #[test]
    fn one_gpu_is_cut_off_in_the_topology() {
        let rows = ["X NV18 NODE NV18", "NV18 X NODE NV18", "NODE NODE X NODE", "NV18 NV18 NODE X"];
        StagedCase::new().topology(&rows).expect(&RULE, &["nvlink-error"]);
        let whole = ["X NV18 NV18", "NV18 X NV18", "NV18 NV18 X"];
        StagedCase::new().topology(&whole).silent(&RULE);
        // A cube of mixed links, cards without any, two pairs.
        let cube = ["X NV1 NV2 SYS", "NV1 X SYS NV2", "NV2 SYS X NV1", "SYS NV2 NV1 X"];
        StagedCase::new().topology(&cube).silent(&RULE);
        let pairs = ["X NV12 SYS SYS", "NV12 X SYS SYS", "SYS SYS X NV12", "SYS SYS NV12 X"];
        StagedCase::new().topology(&pairs).silent(&RULE);
        StagedCase::new().topology(&["X PHB SYS", "PHB X SYS", "SYS SYS X"]).silent(&RULE);
    }

    #[test]
    fn counters_need_two_readings() {
        let read = |n: u64| {
            gpus(2, |index, row| {
                row.links = links(2, 2);
                for link in &mut row.links {
                    link.recoveries = Some(7 + n * u64::from(index));
                    link.replays = Some(100);
                }
            })
        };
        StagedCase::new().shows(read(3)).silent(&RULE);
        StagedCase::new().shows(read(3)).shows(read(3)).silent(&RULE);
        StagedCase::new().shows(read(3)).shows(read(9)).expect(&RULE, &["nvlink-error"]);
    }

    #[test]
    fn what_a_link_survives() {
        StagedCase::new().xid("0018:01:00", 145, 876_767, "RLW_RXPIPE Nonfatal XC0 i0 Link 13").silent(&RULE);
        StagedCase::new().xid("0000:01:00", 137, 5, "RLW_RXPIPE interrupt hit: PRIV Error").silent(&RULE);
        StagedCase::new().xid("0000:01:00", 45, 5, "Ch 00000001 caused by previous Xid 149").silent(&RULE);
    }

    #[test]
    fn a_switch_that_failed_first() {
        let finding = StagedCase::new()
            .sxid(20_034, true)
            .xid("0000:3b:00", 74, 0, "NVLink: fatal error")
            .finding(&RULE);
        assert_eq!(finding.weight, ringleader_model::Weight::Echo);
    }
}
