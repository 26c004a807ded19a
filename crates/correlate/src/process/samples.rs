//! Ranks whose main threads were sampled while the job ran: where one is more often than its peers.
//!
//! Of a rank that is late its peers wait for the GPU or for one another, and it is somewhere else. A sample in which a rank waits,
//! or in which a framework starts work on the GPU, shows nothing of that and is left out.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::{
    Case, Evidence, Fact, Frame, FrameOwner, Observation, Rank, SampledStack, SourceKind, StackSamples,
};

use crate::process::condition::ProgramPosition;
use crate::who::roster::Roster;

/// Fewer samples of a rank show no habit.
const LEAST: u32 = 24;
/// A rank is at a place more often than any peer by at least this share of the samples.
const APART: f64 = 0.1;
/// And by this many standard errors.
const SURE: f64 = 3.0;
/// The innermost place that holds this share of the difference is the one that is named.
const NARROW: f64 = 0.8;
/// A rank that works at one place in this share of its samples makes no steps: it pauses, or the others do.
const STANDS: f64 = 0.95;
/// Packages that start work on the GPU.
const STARTERS: [&str; 6] = ["torch/", "jax/", "jaxlib/", "cupy/", "cupyx/", "tensorflow/"];

/// A line of the program.
type Site = (Box<str>, Box<str>, u32);

/// One rank's samples.
#[derive(Clone, Debug)]
struct Sampled {
    rank: Rank,
    /// Number of samples of this rank.
    n: u32,
    /// In how many it worked below a line of the program, and the activity that most of them show.
    sites: BTreeMap<Site, u32>,
    doing: BTreeMap<Site, &'static str>,
    /// Most samples with one and the same stack, of those in which it worked.
    most: u32,
    evidence: Evidence,
}

/// Samples of all ranks.
#[derive(Clone, Debug, Default)]
pub struct Samples {
    ranks: Vec<Sampled>,
}

/// A line of the program below which one rank works in more samples than its peers.
#[derive(Clone, Debug)]
pub struct Apart {
    /// The line.
    pub frame: Frame,
    /// What it does there, if that is known: `in the data loader`.
    pub doing: Option<&'static str>,
    /// Share of its samples.
    pub share: f64,
    /// Most that any peer has.
    pub others: f64,
    /// The rank's samples, and those of its peers.
    pub evidence: Vec<Evidence>,
}

impl Samples {
    /// Collects them.
    pub fn new(case: &Case, roster: &Roster) -> Self {
        let mut by_rank: BTreeMap<Rank, Sampled> = BTreeMap::new();
        for observation in &case.observations {
            let Fact::Samples(samples) = &observation.fact else { continue };
            let rank = samples.pid.and_then(|pid| roster.rank_of(pid, None));
            let Some(rank) = rank.or_else(|| roster.speaker(observation)) else { continue };
            // Lines of several processes may be mixed: what is of one rank is added up.
            let new = sampled(rank, samples, observation);
            match by_rank.entry(rank) {
                Entry::Vacant(free) => {
                    free.insert(new);
                }
                Entry::Occupied(mut known) => known.get_mut().add(new),
            }
        }
        Self { ranks: by_rank.into_values().collect() }
    }

    /// Where this rank is, and its peers are not; None if it is nowhere more often than they, or too little was seen.
    pub fn apart(&self, rank: Rank) -> Option<Apart> {
        let mine = self.ranks.iter().find(|s| s.rank == rank && s.n >= LEAST)?;
        let peers = || self.ranks.iter().filter(|s| s.rank != rank && s.n >= LEAST);
        peers().next()?;
        if mine.stands() || peers().any(Sampled::stands) {
            return None;
        }
        let share = |of: &Sampled, site: &Site| {
            f64::from(of.sites.get(site).copied().unwrap_or_default()) / f64::from(of.n)
        };
        let variance = |p: f64, n: u32| p * (1.0 - p) / f64::from(n);
        let mut found: Vec<(f64, f64, &Site)> = Vec::new();
        for site in mine.sites.keys() {
            let own = share(mine, site);
            let most = |a: &&Sampled, b: &&Sampled| share(a, site).total_cmp(&share(b, site));
            let Some(peer) = peers().max_by(most) else { continue };
            let theirs = share(peer, site);
            let error = (variance(own, mine.n) + variance(theirs, peer.n)).sqrt();
            if own - theirs >= APART.max(SURE * error) {
                found.push((own, theirs, site));
            }
        }
        let widest = found.iter().map(|(own, theirs, _)| own - theirs).fold(0.0, f64::max);
        found.retain(|(own, theirs, _)| own - theirs >= NARROW * widest);
        // Lines of one stack have the same share or less, the further in.
        let (own, theirs, site) = found.into_iter().min_by(|a, b| a.0.total_cmp(&b.0).then(b.2.cmp(a.2)))?;
        let (file, function, line) = site.clone();
        let frame = Frame { function, file, line };
        let word = |of: &Sampled| Evidence {
            text: format!(
                "rank {}: {:.0} % of {} samples are below {} ({}:{})",
                of.rank.0,
                share(of, site) * 100.0,
                of.n,
                frame.function,
                frame.file,
                frame.line
            ),
            ..of.evidence.clone()
        };
        let evidence = std::iter::once(word(mine)).chain(peers().take(3).map(word)).collect();
        Some(Apart { doing: mine.doing.get(site).copied(), frame, share: own, others: theirs, evidence })
    }
}

impl Sampled {
    /// It was at one place all the time: the job made no steps.
    fn stands(&self) -> bool {
        f64::from(self.most) >= STANDS * f64::from(self.n)
    }

    fn add(&mut self, more: Self) {
        self.n = self.n.saturating_add(more.n);
        // Parts of one process show the same stacks.
        self.most = self.most.saturating_add(more.most);
        for (site, n) in more.sites {
            let known = self.sites.entry(site).or_default();
            *known = known.saturating_add(n);
        }
        for (site, doing) in more.doing {
            self.doing.entry(site).or_insert(doing);
        }
    }
}

fn sampled(rank: Rank, samples: &StackSamples, observation: &Observation) -> Sampled {
    let evidence =
        Evidence { cite: observation.cite, text: observation.text.to_string(), kind: SourceKind::Stacks };
    let mut sampled = Sampled {
        rank,
        n: 0,
        sites: BTreeMap::new(),
        doing: BTreeMap::new(),
        most: 0,
        evidence: evidence.clone(),
    };
    for stack in &samples.stacks {
        sampled.n = sampled.n.saturating_add(stack.n);
        let Some(doing) = works(stack, &evidence) else { continue };
        sampled.most = sampled.most.max(stack.n);
        let of_program = |owner| stack.frames.iter().filter(move |f| !f.is_native() && f.owner() == owner);
        let owner = if of_program(FrameOwner::User).next().is_some() {
            FrameOwner::User
        } else {
            FrameOwner::Library
        };
        let sites: BTreeSet<Site> =
            of_program(owner).map(|f| (f.file.clone(), f.function.clone(), f.line)).collect();
        for site in sites {
            if !doing.is_empty() {
                sampled.doing.entry(site.clone()).or_insert(doing);
            }
            let known = sampled.sites.entry(site).or_default();
            *known = known.saturating_add(stack.n);
        }
    }
    sampled
}

/// What a rank does in a sample in which it works and holds others up; empty where that is not known.
fn works(stack: &SampledStack, evidence: &Evidence) -> Option<&'static str> {
    let stand = ProgramPosition {
        frames: stack.frames.clone(),
        active: None,
        gil_holder: None,
        evidence: evidence.clone(),
    };
    if stand.waits_in_gpu_or_collective() || stand.is_in_collective() {
        return None;
    }
    if let Some(busy) = stand.activity() {
        return (!busy.place.waits_for_ranks).then_some(busy.place.text);
    }
    let innermost = stack.frames.iter().find(|f| !f.is_native())?;
    let is_start = STARTERS.iter().any(|package| {
        innermost.file.starts_with(package) || innermost.file.contains(&format!("/{package}"))
    });
    (!is_start).then_some("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::staging::{SampledAt, StagedCase};

    const TRAIN: (&str, u32, &str) = ("train.py", 90, "<module>");

    const WAITS: (&str, u32, &str) = ("torch/cuda/__init__.py", 1162, "synchronize");

    fn apart(first: &[SampledAt<'_>], second: &[SampledAt<'_>]) -> Option<String> {
        let stage = StagedCase::job(2).sampled(0, first).sampled(1, second);
        let apart = Samples::new(&stage.case, &Roster::new(&stage.case)).apart(Rank(1))?;
        let percent = |share: f64| (share * 100.0).round();
        Some(format!(
            "{}:{}{} {} {}",
            apart.frame.function,
            apart.frame.line,
            apart.doing.map_or_else(String::new, |doing| format!(" {doing}")),
            percent(apart.share),
            percent(apart.others)
        ))
    }

    #[test]
    fn the_innermost_line_that_holds_the_difference() {
        let load = [("pool.py", 12, "draw"), ("train.py", 33, "load"), TRAIN];
        let other = [("pool.py", 14, "draw"), ("train.py", 33, "load"), TRAIN];
        let step = [("train.py", 40, "step"), TRAIN];
        let mine: &[(u32, &[_])] = &[(9, &load), (9, &other), (22, &[WAITS, TRAIN])];
        let theirs: &[(u32, &[_])] = &[(1, &load), (2, &step), (37, &[WAITS, TRAIN])];
        assert_eq!(apart(theirs, mine).as_deref(), Some("load:33 45 3"));
        // The other way round nothing is to be seen: it waits.
        assert_eq!(apart(mine, theirs), None);
    }

    #[test]
    fn parts_of_one_rank_are_added_up() {
        let load: &[(u32, &[_])] = &[(20, &[("train.py", 33, "load"), TRAIN])];
        let waits: &[(u32, &[_])] = &[(20, &[WAITS, TRAIN])];
        let stage = StagedCase::job(2).sampled(0, waits).sampled(0, waits).sampled(1, load).sampled(1, waits);
        let apart = Samples::new(&stage.case, &Roster::new(&stage.case)).apart(Rank(1));
        assert_eq!(apart.map(|apart| (apart.share, apart.others)), Some((0.5, 0.0)));
    }

    #[test]
    fn ranks_that_do_the_same() {
        let both: &[(u32, &[_])] = &[(20, &[("train.py", 33, "load"), TRAIN]), (20, &[WAITS, TRAIN])];
        assert_eq!(apart(both, both), None);
        // Within the error of so few samples.
        let more: &[(u32, &[_])] = &[(26, &[("train.py", 33, "load"), TRAIN]), (14, &[WAITS, TRAIN])];
        assert_eq!(apart(both, more), None);
        let few: &[(u32, &[_])] = &[(5, &[("train.py", 33, "load"), TRAIN])];
        assert_eq!(apart(&[(5, &[WAITS, TRAIN])], few), None);
    }

    #[test]
    fn a_job_that_makes_no_steps() {
        let load: &[(u32, &[_])] = &[(38, &[("train.py", 33, "load"), TRAIN]), (2, &[WAITS, TRAIN])];
        let report: &[(u32, &[_])] = &[(40, &[("train.py", 80, "report"), TRAIN])];
        assert_eq!(apart(&[(40, &[WAITS, TRAIN])], load), None);
        let loads: &[(u32, &[_])] = &[(20, &[("train.py", 33, "load"), TRAIN]), (20, &[WAITS, TRAIN])];
        assert_eq!(apart(report, loads), None);
    }

    #[test]
    fn what_starts_work_on_the_gpu_and_what_is_known() {
        let starts =
            [("torch/autograd/graph.py", 800, "_engine_run_backward"), ("train.py", 50, "step"), TRAIN];
        assert_eq!(apart(&[(40, &[WAITS, TRAIN])], &[(30, &starts), (10, &[WAITS, TRAIN])]), None);
        let data =
            [("torch/utils/data/dataloader.py", 1275, "_try_get_data"), ("train.py", 60, "main"), TRAIN];
        let told = apart(&[(40, &[WAITS, TRAIN])], &[(30, &data), (10, &[WAITS, TRAIN])]);
        assert_eq!(told.as_deref(), Some("main:60 in the data loader 75 0"));
    }
}
