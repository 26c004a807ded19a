//! Rings of the plugin: one for each process that has it loaded, found by its maps, by name in the folder of rings, or
//! named by a follower. Those of processes that have died are the last word on what they did.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use ringleader_bundle::{Content, Item, ItemOutcome, Origin};

use super::Context;
use crate::follow::{self, RingFile};

/// Rings that are taken: more than a node has ranks.
const MAX_RINGS: usize = 512;

pub(super) fn collect(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError> {
    let ask = context.ask;
    let mut names: BTreeSet<&str> = BTreeSet::new();
    for ring in &ask.rings {
        names.insert(&ring.name);
        let item = item(context, &ring.name, &ring.path, ring.pid);
        context.bundle.add_bytes(item, Content::Binary, &ring.bytes)?;
    }
    let known: BTreeSet<u32> = ask.rings.iter().filter_map(|ring| ring.pid).collect();
    let mut found = of_job(context, &known);
    found.retain(|(ring, _)| !names.contains(&*ring.name));
    let n_more = found.len().saturating_sub(MAX_RINGS);
    found.truncate(MAX_RINGS);
    for (ring, pid) in &found {
        let item = item(context, &ring.name, &ring.path, Some(*pid));
        match ring.image() {
            Ok(bytes) => {
                context.bundle.add_bytes(item, Content::Binary, &bytes)?;
            }
            Err(why) => {
                let outcome = ItemOutcome::Failed(vec!["read it".to_owned(), why]);
                context.bundle.missing(Item { outcome, ..item });
            }
        }
    }
    events(context)?;
    if n_more > 0 {
        let why = format!("{n_more} rings beyond the limit of {MAX_RINGS} were left out");
        let item = context.item("ring", "", Origin::Unknown);
        context.bundle.missing(Item { outcome: ItemOutcome::Skipped(why), ..item });
    }
    Ok(())
}

/// Events that the guard in a process of the job has written beside the rings, and those that it has set aside.
fn events(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError> {
    let pids: Vec<u32> = context
        .jobs()
        .into_iter()
        .flat_map(|jobs| &jobs.processes)
        .filter(|process| !process.is_above)
        .map(|process| process.pid)
        .chain(context.ask.rings.iter().filter_map(|ring| ring.pid))
        .collect::<BTreeSet<u32>>()
        .into_iter()
        .take(MAX_RINGS)
        .collect();
    for folder in follow::ring_folders() {
        for (pid, name) in pids.iter().flat_map(|pid| {
            [format!("events-{pid}.1.jsonl"), format!("events-{pid}.jsonl")].map(|name| (*pid, name))
        }) {
            let path = folder.join(&name);
            let is_file = std::fs::symlink_metadata(&path).is_ok_and(|facts| facts.is_file());
            let Some(bytes) = is_file.then(|| follow::head(&path, MAX_EVENT_BYTES)).flatten() else {
                continue;
            };
            let origin = Origin::Path(path.display().to_string());
            let item = context.item("events", &format!("rings/{name}"), origin);
            context.bundle.add_bytes(Item { pid: Some(pid), ..item }, Content::Text, &bytes)?;
        }
    }
    Ok(())
}

/// The guard sets a file aside at 16 MiB.
const MAX_EVENT_BYTES: u64 = 17 << 20;

fn item(context: &Context<'_, '_>, name: &str, path: &Path, pid: Option<u32>) -> Item {
    let origin = Origin::Path(path.display().to_string());
    Item { pid, ..context.item("ring", &format!("rings/{name}"), origin) }
}

/// Rings of the job's processes that live, but for those of `known`.
fn of_job(context: &Context<'_, '_>, known: &BTreeSet<u32>) -> Vec<(RingFile, u32)> {
    let proc = &context.ask.request.roots.proc;
    let all = follow::processes(proc);
    let mut wanted: BTreeSet<u32> = context
        .jobs()
        .into_iter()
        .flat_map(|jobs| &jobs.processes)
        .filter(|p| !p.is_above)
        .map(|p| p.pid)
        .collect();
    wanted.retain(|pid| !known.contains(pid));
    let mut rings: BTreeMap<String, (RingFile, u32)> = BTreeMap::new();
    for ring in follow::ring_folders().iter().flat_map(|folder| follow::rings_in(folder)) {
        if let Some(pid) = follow::process_of(proc, &all, &ring).filter(|pid| wanted.remove(pid)) {
            rings.insert(ring.name.clone(), (ring, pid));
        }
    }
    for pid in wanted {
        let Some(ring) = follow::mapped_ring(proc, pid) else { continue };
        // Two containers may each have a pid 17 that began at the same tick; our pid distinguishes their files.
        let is_taken = rings.contains_key(&ring.name);
        let name = if is_taken { format!("{}-{pid}", ring.name) } else { ring.name.clone() };
        rings.insert(name.clone(), (RingFile { name, ..ring }, pid));
    }
    rings.into_values().collect()
}
