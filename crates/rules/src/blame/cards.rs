//! The rank of a GPU that is known by its address or number, where no output says which process runs on it: on one machine whose
//! GPUs are as many as the ranks, as far as their number is known, a launcher gives the GPUs to the ranks in their order.

use std::collections::BTreeSet;

use ringleader_correlate::Scene;
use ringleader_correlate::who::gpus::SeenGpu;
use ringleader_knowledge::wording;
use ringleader_model::{Cite, Culprit, Fact, Finding, LocalRank, Observation, PciAddress, Rank};

/// Utilisation of a GPU on which nothing runs, and of one on which a collective's kernel waits, percent.
const IDLE_PCT: f32 = 10.0;
const BUSY_PCT: f32 = 90.0;

/// Gives culprits that are known by their GPUs their ranks.
pub(super) fn complete(scene: &Scene<'_>, culprits: &mut [Culprit]) {
    // Without a job there are no ranks.
    let ran = |o: &Observation| matches!(o.fact, Fact::Progress(_) | Fact::Torch(_));
    if !scene.has_job() && !scene.case().observations.iter().any(ran) {
        return;
    }
    for culprit in culprits.iter_mut().filter(|c| c.rank.is_none()) {
        let Some(pci) = culprit.gpu else { continue };
        let same = |gpu: &&SeenGpu<'_>| gpu.pci.is_some_and(|other| is_same(other, pci));
        let mut rows = scene.gpus().seen.iter().filter(same);
        if let Some(rank) = rows.find_map(|gpu| rank(scene, gpu)) {
            culprit.rank = Some(rank);
            culprit.local_rank = culprit.local_rank.or(Some(LocalRank(rank.0)));
        }
    }
}

/// The few ranks whose GPUs do nothing while all others are busy.
pub(super) fn idle(scene: &Scene<'_>) -> Option<BTreeSet<Rank>> {
    let last = scene.gpus().tables().filter(|table| table.len() > 1).last()?;
    let used: Vec<f32> = last.iter().filter_map(|gpu| gpu.row.utilization_pct).collect();
    let n_idle = used.iter().filter(|pct| **pct <= IDLE_PCT).count();
    let n_busy = used.iter().filter(|pct| **pct >= BUSY_PCT).count();
    if n_idle == 0 || n_idle > n_busy || n_idle + n_busy < last.len() {
        return None;
    }
    let idle = last.iter().filter(|gpu| gpu.row.utilization_pct.is_some_and(|pct| pct <= IDLE_PCT));
    idle.map(|gpu| rank(scene, gpu)).collect()
}

/// The rank whose device the deciding line names by number, as PyTorch does where memory runs out. A process that sees only its
/// own GPU calls it 0, whichever it is.
/// `spoke`: ranks that printed something.
pub(super) fn named(scene: &Scene<'_>, first: &Finding, spoke: BTreeSet<Rank>) -> Option<BTreeSet<Rank>> {
    let mut known = spoke;
    known.extend(scene.roster().members.iter().filter_map(|m| m.rank));
    let n_ranks =
        known.last().map_or(0, |last| last.0.saturating_add(1)).max(scene.roster().world_size.unwrap_or(0));
    let is_one_machine = scene.roster().hosts().len() <= 1 && scene.machines().only_or_none();
    let cites: BTreeSet<Cite> = first.evidence.iter().map(|evidence| evidence.cite).collect();
    let lines = scene.case().observations.iter().filter(|observation| cites.contains(&observation.cite));
    let devices: BTreeSet<Rank> =
        lines.filter_map(|line| wording::full_device(&line.text)).map(Rank).collect();
    let is_rank = |rank: &Rank| rank.0 > 0 && rank.0 < n_ranks;
    (is_one_machine && devices.len() == 1 && devices.iter().all(is_rank)).then_some(devices)
}

/// The rank of a GPU.
fn rank(scene: &Scene<'_>, gpu: &SeenGpu<'_>) -> Option<Rank> {
    if let Some(rank) = gpu.culprit.rank {
        return Some(rank);
    }
    let index = gpu.row.index?;
    let roster = scene.roster();
    let n_gpus = gpu.table.gpus.len();
    let n_ranks = roster.members.iter().filter_map(|m| m.rank).max().map_or(0, |last| last.0 as usize + 1);
    let is_one_machine = roster.hosts().len() <= 1 && scene.machines().only_or_none();
    let is_one_each = roster.world_size.is_none_or(|size| size as usize == n_gpus) && n_ranks <= n_gpus;
    (is_one_machine && is_one_each && n_gpus > 1).then_some(Rank(index))
}

fn is_same(one: PciAddress, other: PciAddress) -> bool {
    PciAddress { function: 0, ..one } == PciAddress { function: 0, ..other }
}
