//! Logs whose owner a collector knows: their lines were written by one process, and where a line does not say who wrote
//! it, it was that one.

use std::collections::BTreeMap;

use ringleader_model::{Case, Fact, Pid, SourceId};

/// The case with the writers that follow; none if nothing does.
pub fn owned(case: &Case) -> Option<Case> {
    let mut by_path: BTreeMap<String, Pid> = BTreeMap::new();
    for observation in &case.observations {
        let Fact::Owner(owner) = &observation.fact else { continue };
        // Members of a bundle are named from its manifest on, in an archive and in a folder alike.
        let Some(manifest) = case.sources.get(observation.cite.source.0 as usize) else { continue };
        let Some(root) = manifest.path.strip_suffix("manifest.json") else { continue };
        by_path.insert(format!("{root}{}", owner.name), owner.pid);
    }
    let owners: BTreeMap<SourceId, Pid> = case
        .sources
        .iter()
        .zip(0..)
        .filter_map(|(source, at)| Some((SourceId(at), *by_path.get(&source.path)?)))
        .collect();
    if owners.is_empty() {
        return None;
    }
    let mut case = case.clone();
    for observation in &mut case.observations {
        let Some(pid) = owners.get(&observation.cite.source) else { continue };
        let who = &mut observation.who;
        if who.pid.is_none() && who.rank.is_none() && who.local_rank.is_none() {
            who.pid = Some(*pid);
        }
    }
    Some(case)
}
