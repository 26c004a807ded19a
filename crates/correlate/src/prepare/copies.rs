//! Copies of a file (`fr_rank3.bak`, a folder kept twice) count once: only the first is used.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Case, Fact, Observation, SourceId};

/// Sources that say the same, in the same order, as an earlier one.
pub fn copies(case: &Case) -> BTreeSet<SourceId> {
    let mut of_source: BTreeMap<SourceId, Vec<&Observation>> = BTreeMap::new();
    for observation in &case.observations {
        of_source.entry(observation.cite.source).or_default().push(observation);
    }
    let mut by_size: BTreeMap<(u64, usize, i64), Vec<SourceId>> = BTreeMap::new();
    for (id, said) in &of_source {
        let size = case.sources.get(id.0 as usize).map_or(0, |s| s.size_bytes);
        // Dumps of one job are often of one size: their first time stamp distinguishes most of them at once.
        let first = said.iter().find_map(|o| match &o.fact {
            Fact::Flight(dump) => dump.ops.first().map(|op| op.created_ns),
            _ => None,
        });
        by_size.entry((size, said.len(), first.unwrap_or(0))).or_default().push(*id);
    }
    let mut copies = BTreeSet::new();
    for ids in by_size.values().filter(|ids| ids.len() > 1) {
        let mut kept: Vec<&Vec<&Observation>> = Vec::new();
        for (id, said) in ids.iter().filter_map(|id| Some((*id, of_source.get(id)?))) {
            let same = |a: &&Vec<&Observation>| a.iter().zip(said).all(|(a, b)| says_the_same(a, b));
            if kept.len() < MAX_COMPARED && kept.iter().any(same) {
                copies.insert(id);
            } else {
                kept.push(said);
            }
        }
    }
    copies
}

/// Sources of one size that each further one is compared with.
const MAX_COMPARED: usize = 64;

fn says_the_same(a: &Observation, b: &Observation) -> bool {
    let same_place = (a.cite.line, a.cite.start, a.cite.end) == (b.cite.line, b.cite.start, b.cite.end);
    same_place
        && a.who == b.who
        && a.at == b.at
        && a.text == b.text
        && match (&a.fact, &b.fact) {
            // The name of a copy differs.
            (Fact::Flight(a), Fact::Flight(b)) => {
                let one_owner = a.name_hint == b.name_hint || a.name_hint.is_none() || b.name_hint.is_none();
                one_owner
                    && a.ops == b.ops
                    && a.groups == b.groups
                    && a.signatures == b.signatures
                    && a.stacks == b.stacks
            }
            // Its lines cite their own source.
            (Fact::Nccl(a), Fact::Nccl(b)) => {
                a.calls == b.calls && a.comms.len() == b.comms.len() && {
                    let who = |log: &ringleader_model::NcclLog| -> Vec<_> {
                        log.processes.iter().map(|p| p.who.clone()).collect()
                    };
                    who(a) == who(b)
                }
            }
            // Stacks of one process that are alike were taken twice: it has not moved.
            (Fact::Stacks(_), Fact::Stacks(_)) => false,
            (a, b) => a == b,
        }
}

#[cfg(test)]
mod tests {
    use super::copies;
    use crate::staging::StagedCase;

    #[test]
    fn a_copy_under_another_name() {
        let once =
            StagedCase::job(2).dumps(&["ar:1 ar:9?", "ar:1 ar:8?"]).raised(Some(0), "KeyError", "'x'", &[]);
        assert!(copies(&once.case).is_empty());
        let mut case = once.case;
        let n = case.sources.len();
        case.sources.extend(case.sources.clone());
        let mut again = case.observations.clone();
        for observation in &mut again {
            observation.cite.source.0 += n as u32;
        }
        case.observations.extend(again);
        assert_eq!(copies(&case).len(), n);
        assert_eq!(copies(&case).first().map(|id| id.0 as usize), Some(n), "the first one stays");
    }
}
