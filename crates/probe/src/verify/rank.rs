//! One GPU's part of `verify`: which checks run when.

use std::sync::atomic::Ordering;
use std::time::Instant;

use super::inject::Fault;
use super::place::FaultSite;
use super::worker::{Worker, WorkerResult, findings};
use super::{
    Check, Finding, Proof, Tools, VerifyPlan, Watcher, collectives, faults, links, memory, products,
};
use crate::facts::Gpu;
use crate::sys::{Device, LibraryError};
use crate::team::{self, TeamMember};
use crate::world::Wire;

/// All checks, repeatedly until the deadline.
pub(super) fn all(
    tools: &Tools,
    plan: &VerifyPlan,
    watcher: &Watcher<'_>,
    gpus: &[Gpu],
    deadline: Instant,
) -> Result<WorkerResult, LibraryError> {
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
    plan: &VerifyPlan,
    watcher: &Watcher<'_>,
    gpus: &[Gpu],
    way: &str,
) -> Result<WorkerResult, LibraryError> {
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
    member: &TeamMember<'_>,
    tools: &Tools,
    plan: &VerifyPlan,
    gpus: &[Gpu],
    n: usize,
    watcher: &Watcher<'_>,
) -> Result<(Vec<Proof>, usize), LibraryError> {
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
        let places: Vec<FaultSite> = found.iter().map(|finding| finding.place.clone()).collect();
        let mut checks: Vec<Check> = found.iter().flat_map(|finding| finding.checks.clone()).collect();
        checks.sort();
        checks.dedup();
        let is_right = places == [fault.place()];
        proofs.push(Proof { fault, found: places, checks, n_flipped, is_right });
    }
    Ok((proofs, n_false))
}

impl Worker<'_> {
    /// Rank 0 decides for all whether there is time for more.
    fn goes_on(&self, watcher: &Watcher<'_>, deadline: Option<Instant>) -> Result<bool, LibraryError> {
        let own = !watcher.stop.load(Ordering::Relaxed)
            && deadline.is_none_or(|deadline| Instant::now() < deadline);
        let all = self.member.exchange(vec![u8::from(own)])?;
        Ok(all.first().is_some_and(|first| first == &[1]))
    }

    fn rounds(
        &mut self,
        watcher: &Watcher<'_>,
        (start, deadline): (Instant, Instant),
    ) -> Result<(), LibraryError> {
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

    fn check(&mut self, check: Check) -> Result<(), LibraryError> {
        match check {
            Check::Memory => memory::run(self),
            Check::Products => products::run(self),
            Check::Links => links::run(self),
            Check::Collectives => collectives::run(self),
        }
    }

    /// All checks once, with this fault; the findings, and the bits flipped on all GPUs.
    fn one_proof(&mut self, fault: Option<Fault>) -> Result<(Vec<Finding>, u64), LibraryError> {
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
}
