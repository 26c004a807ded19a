//! The rings of the job that is judged: one for each process, those of earlier jobs set aside.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{Case, Fact, Host, Observation, Rank, RingRecord, WatchEvent};

/// The rings of a case, one for each process: of several copies the newest. Rings outlive their jobs and are beside
/// those of the next one; of two jobs that claim the same rank, the one that lives or ended last counts.
pub fn rings(case: &Case) -> Vec<(&Observation, &RingRecord)> {
    let all = of_processes(case);
    // Processes that share a communicator are of one job.
    let mut job_of: Vec<usize> = (0..all.len()).collect();
    let mut by_comm: BTreeMap<u64, usize> = BTreeMap::new();
    for (at, (_, ring)) in all.iter().enumerate() {
        for comm in ring.comms.iter().filter(|c| c.id != 0 && c.size > 1) {
            let other = *by_comm.entry(comm.id).or_insert(at);
            let (a, b) = (root(&job_of, at), root(&job_of, other));
            if let Some(parent) = job_of.get_mut(a.max(b)) {
                *parent = a.min(b);
            }
        }
    }
    let mut jobs: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    for at in 0..all.len() {
        jobs.entry(root(&job_of, at)).or_default().push(at);
    }
    if jobs.len() < 2 {
        return all;
    }
    let of = |at: &usize| all.get(*at).copied();
    let mut jobs: Vec<Vec<usize>> = jobs.into_values().collect();
    jobs.sort_by_key(|job| {
        std::cmp::Reverse(job.iter().filter_map(of).map(|(_, r)| (r.is_live, r.taken_ns)).max())
    });
    let mut claimed: BTreeSet<Rank> = BTreeSet::new();
    let mut kept: Vec<usize> = Vec::new();
    for job in jobs {
        let ranks: Vec<Rank> = job.iter().filter_map(of).filter_map(|(o, _)| o.who.rank).collect();
        if ranks.iter().any(|r| claimed.contains(r)) {
            continue;
        }
        claimed.extend(ranks);
        kept.extend(job);
    }
    kept.sort_unstable();
    kept.iter().filter_map(of).collect()
}

/// How many processes of earlier jobs have left rings beside those of the job that is judged.
pub fn n_set_aside(case: &Case) -> usize {
    of_processes(case).len() - rings(case).len()
}

fn root(parents: &[usize], mut at: usize) -> usize {
    while let Some(parent) = parents.get(at).copied().filter(|p| *p != at) {
        at = parent;
    }
    at
}

/// A process: host, pid, start, boot.
type ProcessKey<'a> = (Option<&'a Host>, u32, u64, &'a str);

/// One ring for each process.
fn of_processes(case: &Case) -> Vec<(&Observation, &RingRecord)> {
    let mut newest: BTreeMap<ProcessKey<'_>, (&Observation, &RingRecord)> = BTreeMap::new();
    for observation in &case.observations {
        let Fact::Ring(ring) = &observation.fact else { continue };
        let pid = observation.who.pid.map_or(0, |p| p.0);
        let key = (observation.who.host.as_ref(), pid, ring.start_ticks, &*ring.boot_id);
        let place = newest.entry(key).or_insert((observation, ring));
        if (ring.is_live, ring.taken_ns) > (place.1.is_live, place.1.taken_ns) {
            *place = (observation, ring);
        }
    }
    newest.into_values().collect()
}

/// The newest moment in any ring of a boot, or the one at which a watcher saw its first process end, where all have ended and none
/// in order: until then at least nothing happened to a ring that ends earlier.
pub struct Horizon<'a> {
    newest: BTreeMap<&'a str, i64>,
    /// All processes have ended, none of them in order.
    pub was_ended: bool,
}

/// Rings are read this soon after a watcher saw all of their processes end.
const READ_WITHIN_NS: i64 = 10_000_000_000;

/// When the watcher saw the first process of a job end, ns since 1970; None while one of the job's processes is left.
fn first_end(case: &Case) -> Option<i64> {
    let all = case.observations.iter().filter_map(|o| match &o.fact {
        Fact::Watch(WatchEvent::Gone(ended, true)) => ended.iter().map(|end| end.at_ns).min(),
        _ => None,
    });
    all.max()
}

impl<'a> Horizon<'a> {
    /// Of all rings of a case.
    pub fn new(case: &'a Case) -> Self {
        let mut newest = BTreeMap::new();
        let rings = rings(case);
        for (_, ring) in &rings {
            let at = newest.entry(&*ring.boot_id).or_insert(ring.taken_ns);
            *at = ring.taken_ns.max(*at);
        }
        // Whoever ended in order had done all of its work some time before. One that was killed may hold its ring for a moment more.
        let left = |ring: &RingRecord| ring.is_ended || ring.exit.is_some_and(|(code, _)| code == 0);
        // A later attempt has rings that were read later.
        let ended = first_end(case).filter(|ended_ns| {
            rings.iter().all(|(_, r)| !left(r) && r.taken_ns <= ended_ns + READ_WITHIN_NS)
        });
        if let Some(ended_ns) = ended {
            for at in newest.values_mut() {
                *at = ended_ns.max(*at);
            }
        }
        Self { newest, was_ended: ended.is_some() }
    }

    /// The moment until which a ring is known not to have changed.
    pub fn of(&self, ring: &RingRecord) -> i64 {
        self.newest.get(&*ring.boot_id).copied().unwrap_or(ring.taken_ns)
    }

    /// Another process of this boot was seen at work, or alive, this long after the ring's last record, ns.
    pub fn after(&self, ring: &RingRecord) -> i64 {
        self.of(ring) - ring.taken_ns
    }
}
