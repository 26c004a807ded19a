//! One GPU's part of `verify`, and how the parts become findings.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::Instant;

use ringleader_model::Cause;

use super::inject::{Injector, Spot};
use super::place::{Place, Trial, of_trial};
use super::{Check, Coverage, Finding, Plan, Proof, Sign, Tools, Watcher, collectives, faults, links, memory, products};
use crate::facts::Gpu;
use crate::kernels::{Differences, Kernels};
use crate::sys::{BlasHandle, Comm, Device, Stream, Trouble};
use crate::team::{self, Member};
use crate::world::Wire;

/// What the checks brought, the same in every rank but for what each counts of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct Outcome {
    pub(super) coverage: Coverage,
    pub(super) blamed: Vec<(Place, Sign)>,
    pub(super) notes: Vec<String>,
    pub(super) cublas: Option<String>,
}

impl Outcome {
    /// Adds what another phase brought.
    pub(super) fn merge(&mut self, other: Self) {
        let (own, new) = (&mut self.coverage, other.coverage);
        own.rounds += new.rounds;
        own.memory_bytes = own.memory_bytes.max(new.memory_bytes);
        own.memory_pct = own.memory_pct.max(new.memory_pct);
        own.pattern_bytes += new.pattern_bytes;
        own.pattern_gb_s = own.pattern_gb_s.max(new.pattern_gb_s);
        own.copy_gb_s = own.copy_gb_s.max(new.copy_gb_s);
        own.products += new.products;
        own.product_kinds.extend(new.product_kinds);
        own.product_tflop += new.product_tflop;
        own.unit_passes += new.unit_passes;
        own.pairs = own.pairs.max(new.pairs);
        own.link_bytes += new.link_bytes;
        own.slowest_pair_gb_s = own.slowest_pair_gb_s.or(new.slowest_pair_gb_s);
        own.collectives += new.collectives;
        own.elements += new.elements;
        own.ways.extend(new.ways);
        self.blamed.extend(other.blamed);
        self.notes.extend(other.notes);
        self.cublas = other.cublas.or(self.cublas.take());
    }
}

/// Signs by place. What a guilty GPU did to a link or to a disagreement is not said twice.
pub(super) fn findings(outcome: Outcome) -> Vec<Finding> {
    let mut by_place: BTreeMap<Place, Vec<Sign>> = BTreeMap::new();
    for (place, sign) in outcome.blamed {
        by_place.entry(place).or_default().push(sign);
    }
    let guilty: Vec<usize> = by_place
        .keys()
        .filter_map(|place| match place {
            Place::Gpu(gpu) => Some(*gpu),
            _ => None,
        })
        .collect();
    by_place
        .into_iter()
        .filter(|(place, _)| match place {
            Place::Gpu(_) => true,
            Place::Link(from, to) => !guilty.contains(from) && !guilty.contains(to),
            Place::OneOf(ranks) => !ranks.iter().any(|rank| guilty.contains(rank)),
        })
        .map(|(place, mut signs)| {
            let mut checks: Vec<Check> = signs.iter().map(|sign| sign.check).collect();
            checks.sort();
            checks.dedup();
            signs.truncate(MOST_SIGNS);
            Finding { place, cause: Cause::SilentCorruption.id().to_owned(), checks, signs }
        })
        .collect()
}

/// Signs that a finding lists.
const MOST_SIGNS: usize = 16;

/// A GPU with all that its checks need.
pub(super) struct Worker<'a> {
    pub(super) member: &'a Member<'a>,
    pub(super) device: &'a Device,
    pub(super) stream: Stream,
    pub(super) kernels: Kernels,
    pub(super) blas: Option<BlasHandle>,
    pub(super) comm: Option<Comm>,
    pub(super) gpus: &'a [Gpu],
    pub(super) plan: &'a Plan,
    pub(super) injector: Injector,
    pub(super) outcome: Outcome,
    /// Changes the values of each round.
    pub(super) round: u64,
    /// Results of products that were proven right, by kind and inputs.
    pub(super) proven: BTreeMap<(u64, u64), u64>,
}

/// All checks, again and again until the deadline.
pub(super) fn all(
    tools: &Tools,
    plan: &Plan,
    watcher: &Watcher<'_>,
    gpus: &[Gpu],
    deadline: Instant,
) -> Result<Outcome, Trouble> {
    let start = Instant::now();
    let mut outcomes = team::run(Wire::Alone, (0, tools.devices.len()), &tools.devices, |member| {
        let device = Device::open(tools.driver, member.device)?;
        let mut worker = Worker::new(&member, &device, tools, plan, gpus)?;
        worker.rounds(watcher, (start, deadline))?;
        worker.finish()
    })?;
    let mut first = outcomes.swap_remove(0);
    for other in outcomes {
        // The slowest GPU counts for speeds, the least tested for memory; the rest is added up by rank 0.
        let (own, one) = (&mut first.coverage, other.coverage);
        own.memory_pct = own.memory_pct.min(one.memory_pct);
        own.pattern_gb_s = own.pattern_gb_s.min(one.pattern_gb_s);
        own.copy_gb_s = own.copy_gb_s.min(one.copy_gb_s);
        own.memory_bytes += one.memory_bytes;
        own.pattern_bytes += one.pattern_bytes;
        own.products += one.products;
        own.product_tflop += one.product_tflop;
        own.unit_passes += one.unit_passes;
        own.link_bytes += one.link_bytes;
        own.elements += one.elements;
        first.notes.extend(other.notes);
    }
    first.notes.sort();
    first.notes.dedup();
    Ok(first)
}

/// Collectives alone, with an algorithm and protocol that the environment forces.
pub(super) fn forced(
    tools: &Tools,
    plan: &Plan,
    watcher: &Watcher<'_>,
    gpus: &[Gpu],
    way: &str,
) -> Result<Outcome, Trouble> {
    let mut outcomes = team::run(Wire::Alone, (0, tools.devices.len()), &tools.devices, |member| {
        let device = Device::open(tools.driver, member.device)?;
        let mut worker = Worker::new(&member, &device, tools, plan, gpus)?;
        if member.rank == 0 {
            (watcher.progress)(0.0, way);
        }
        collectives::forced(&mut worker, way)?;
        worker.outcome.coverage.ways.push(way.to_owned());
        worker.finish()
    })?;
    let mut first = outcomes.swap_remove(0);
    first.coverage.elements += outcomes.iter().map(|one| one.coverage.elements).sum::<u64>();
    Ok(first)
}

/// One proof of every planted fault.
pub(super) fn prove(
    member: &Member<'_>,
    tools: &Tools,
    plan: &Plan,
    gpus: &[Gpu],
    n: usize,
    watcher: &Watcher<'_>,
) -> Result<(Vec<Proof>, usize), Trouble> {
    let device = Device::open(tools.driver, member.device)?;
    let mut worker = Worker::new(member, &device, tools, plan, gpus)?;
    let mut proofs = Vec::new();
    let mut n_false = 0;
    for (done, fault) in faults(plan.seed, n, member.n_ranks).into_iter().enumerate() {
        if !worker.goes_on(watcher, None)? {
            break;
        }
        if member.rank == 0 {
            (watcher.progress)(done as f64 / n.max(1) as f64, "planted faults");
        }
        if done % 10 == 0 {
            n_false += worker.one_proof(None)?.0.len();
        }
        let (found, n_flipped) = worker.one_proof(Some(fault))?;
        let places: Vec<Place> = found.iter().map(|finding| finding.place.clone()).collect();
        let mut checks: Vec<Check> = found.iter().flat_map(|finding| finding.checks.clone()).collect();
        checks.sort();
        checks.dedup();
        let is_right = places == [fault.place()];
        proofs.push(Proof { fault, found: places, checks, n_flipped, is_right });
    }
    Ok((proofs, n_false))
}

impl<'a> Worker<'a> {
    fn new(
        member: &'a Member<'a>,
        device: &'a Device,
        tools: &Tools,
        plan: &'a Plan,
        gpus: &'a [Gpu],
    ) -> Result<Self, Trouble> {
        let stream = device.stream()?;
        let kernels = Kernels::new(device)?;
        let mut outcome = Outcome::default();
        let blas = match tools.blas.map(|blas| blas.handle(device, &stream)).transpose() {
            Ok(blas) => blas,
            Err(error) => {
                outcome.notes.push(format!("cuBLAS was left out: {error}"));
                None
            }
        };
        let all_have_blas = member.exchange(vec![u8::from(blas.is_some())])?.iter().all(|one| one == &[1]);
        let blas = blas.filter(|_| all_have_blas);
        if blas.is_none() && tools.blas.is_none() {
            outcome.notes.push("cuBLAS was not found: its products were left out".to_owned());
        }
        outcome.cublas = blas.as_ref().map(|blas| {
            let version = blas.version();
            format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100)
        });
        for peer in 0..member.n_ranks {
            if let Some(peer) = tools.devices.get(peer) {
                device.enable_peer(*peer)?;
            }
        }
        let comm = match &tools.nccl {
            Some((nccl, _)) if member.n_ranks > 1 && plan.checks.contains(&Check::Collectives) => {
                Some(member.communicator(*nccl, false)?)
            }
            _ => None,
        };
        let injector = Injector::new(plan.inject, member.rank, plan.seed);
        Ok(Self {
            member,
            device,
            stream,
            kernels,
            blas,
            comm,
            gpus,
            plan,
            injector,
            outcome,
            round: 0,
            proven: BTreeMap::new(),
        })
    }

    fn finish(self) -> Result<Outcome, Trouble> {
        let Self { comm, blas, kernels, stream, outcome, device, .. } = self;
        drop(comm);
        device.synchronize()?;
        drop((blas, kernels, stream));
        Ok(outcome)
    }

    /// Rank 0 decides for all whether there is time for more.
    fn goes_on(&self, watcher: &Watcher<'_>, deadline: Option<Instant>) -> Result<bool, Trouble> {
        let own = !watcher.stop.load(Ordering::Relaxed) && deadline.is_none_or(|deadline| Instant::now() < deadline);
        let all = self.member.exchange(vec![u8::from(own)])?;
        Ok(all.first().is_some_and(|first| first == &[1]))
    }

    fn rounds(&mut self, watcher: &Watcher<'_>, (start, deadline): (Instant, Instant)) -> Result<(), Trouble> {
        let length = (deadline - start).as_secs_f64().max(1e-9);
        loop {
            for check in self.plan.checks.clone() {
                // The first round is done to its end, later ones to the end of their time.
                let until = if self.round == 0 { None } else { Some(deadline) };
                if !self.goes_on(watcher, until)? {
                    return Ok(());
                }
                if self.member.rank == 0 {
                    (watcher.progress)((start.elapsed().as_secs_f64() / length).min(1.0), check.name());
                }
                self.check(check)?;
            }
            self.round += 1;
            self.outcome.coverage.rounds = self.round;
            if !self.goes_on(watcher, Some(deadline))? {
                return Ok(());
            }
        }
    }

    fn check(&mut self, check: Check) -> Result<(), Trouble> {
        match check {
            Check::Memory => memory::run(self),
            Check::Products => products::run(self),
            Check::Links => links::run(self),
            Check::Collectives => collectives::run(self),
        }
    }

    /// All checks once, with this fault; the findings, and the bits flipped on all GPUs.
    fn one_proof(&mut self, fault: Option<super::inject::Fault>) -> Result<(Vec<Finding>, u64), Trouble> {
        self.injector.fault = fault;
        self.injector.n_flipped = 0;
        self.outcome.blamed.clear();
        self.round += 1;
        for check in self.plan.checks.clone() {
            self.check(check)?;
        }
        self.injector.fault = None;
        let flipped = self.member.exchange_words(&[self.injector.n_flipped])?;
        let found = findings(self.outcome.clone());
        Ok((found, flipped.iter().flatten().sum()))
    }

    /// The seed of this round, another one for each use.
    pub(super) fn seed(&self, of: u64) -> u64 {
        let mut random = super::inject::Random(self.plan.seed ^ self.round << 20 ^ of << 40);
        random.draw()
    }

    /// Blames the same places in all ranks: `own` is what this rank saw of itself.
    pub(super) fn blame_own(&mut self, check: Check, own: Option<(u64, String, Vec<u64>)>) -> Result<(), Trouble> {
        for (rank, sign) in self.share(check, own)?.into_iter().enumerate() {
            if let Some(sign) = sign {
                self.outcome.blamed.push((Place::Gpu(rank), sign));
            }
        }
        Ok(())
    }

    /// Everybody's sign, by rank.
    pub(super) fn share(
        &self,
        check: Check,
        own: Option<(u64, String, Vec<u64>)>,
    ) -> Result<Vec<Option<Sign>>, Trouble> {
        let sign = own.map(|(count, text, multiprocessors)| Sign {
            check,
            rank: self.member.rank,
            text,
            count,
            multiprocessors,
        });
        let bytes = serde_json::to_vec(&sign).map_err(|error| Trouble::World(error.to_string()))?;
        let all = self.member.exchange(bytes)?;
        all.iter()
            .map(|one| serde_json::from_slice(one).map_err(|error| Trouble::World(error.to_string())))
            .collect()
    }

    /// Blames what a trial says; if it shows nothing, those who saw the signs.
    pub(super) fn blame_trial(&mut self, trial: &Trial, signs: Vec<Sign>) {
        let places = of_trial(trial);
        for sign in signs {
            if places.is_empty() {
                // It did not come again: the receiver, its senders or the links between them.
                let all = (0..self.member.n_ranks).collect();
                self.outcome.blamed.push((Place::OneOf(all), sign));
                continue;
            }
            let own = places.iter().find(|place| match place {
                Place::Gpu(gpu) => *gpu == sign.rank,
                Place::Link(_, to) => *to == sign.rank,
                Place::OneOf(_) => false,
            });
            let place = own.or(places.first()).cloned();
            self.outcome.blamed.extend(place.map(|place| (place, sign)));
        }
        for place in places {
            if !self.outcome.blamed.iter().any(|(blamed, _)| *blamed == place) {
                let rank = match &place {
                    Place::Gpu(rank) | Place::Link(_, rank) => *rank,
                    Place::OneOf(_) => 0,
                };
                let text = "fails when pairs of GPUs are tried one by one".to_owned();
                let sign = Sign { check: Check::Links, rank, text, count: 1, multiprocessors: Vec::new() };
                self.outcome.blamed.push((place, sign));
            }
        }
    }

    /// Flips a bit, if a planted fault is of that kind and here.
    pub(super) fn spoil(&mut self, spot: Spot, address: u64, size_bytes: usize) -> Result<(), Trouble> {
        self.injector.flip(spot, &self.stream, address, size_bytes)
    }
}

/// What differences say, in words.
pub(super) fn words(what: &str, unit: &str, found: &Differences) -> (u64, String, Vec<u64>) {
    let first = found.listed.first().map_or_else(String::new, |wrong| {
        format!(
            "; {unit} {} is {:#x} instead of {:#x}",
            wrong.index, wrong.got, wrong.want
        )
    });
    let mut seen: Vec<u64> = found.listed.iter().map(|wrong| wrong.multiprocessor).collect();
    seen.sort_unstable();
    seen.dedup();
    let text = format!("{what}: {} wrong {unit}s, bits {:#x}{first}", found.count, found.bits);
    (found.count, text, seen)
}
