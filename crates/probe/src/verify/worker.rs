//! One GPU with all that its checks need, and how what it sees becomes findings.

use std::collections::BTreeMap;

use ringleader_model::Cause;

use super::inject::{Injector, Random, Spot};
use super::place::{FaultSite, Trial, of_trial};
use super::{Check, Coverage, Finding, Sign, Tools, VerifyPlan};
use crate::facts::Gpu;
use crate::kernels::{Differences, Kernels};
use crate::sys::{BlasHandle, CommHandle, Device, LibraryError, Stream, Wish};
use crate::team::TeamMember;

/// What the checks brought, the same in every rank but for what each counts of its own.
#[derive(Clone, Debug, Default)]
pub(super) struct WorkerResult {
    pub(super) coverage: Coverage,
    pub(super) blamed: Vec<(FaultSite, Sign)>,
    pub(super) notes: Vec<String>,
    pub(super) cublas: Option<String>,
}

impl WorkerResult {
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

/// Signs by place. What a faulty GPU did to a link or to a disagreement is not reported twice.
pub(super) fn findings(outcome: WorkerResult) -> Vec<Finding> {
    let mut by_place: BTreeMap<FaultSite, Vec<Sign>> = BTreeMap::new();
    for (place, sign) in outcome.blamed {
        by_place.entry(place).or_default().push(sign);
    }
    let guilty: Vec<usize> = by_place
        .keys()
        .filter_map(|place| match place {
            FaultSite::Gpu(gpu) => Some(*gpu),
            _ => None,
        })
        .collect();
    by_place
        .into_iter()
        .filter(|(place, _)| match place {
            FaultSite::Gpu(_) => true,
            FaultSite::Link(from, to) => !guilty.contains(from) && !guilty.contains(to),
            FaultSite::OneOf(ranks) => !ranks.iter().any(|rank| guilty.contains(rank)),
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
    pub(super) member: &'a TeamMember<'a>,
    pub(super) device: &'a Device,
    pub(super) stream: Stream,
    pub(super) kernels: Kernels,
    pub(super) blas: Option<BlasHandle>,
    pub(super) comm: Option<CommHandle>,
    pub(super) gpus: &'a [Gpu],
    pub(super) plan: &'a VerifyPlan,
    pub(super) injector: Injector,
    pub(super) outcome: WorkerResult,
    /// Changes the values of each round.
    pub(super) round: u64,
    /// Results of products that were proven right, by kind and inputs.
    pub(super) proven: BTreeMap<(u64, u64), u64>,
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        member: &'a TeamMember<'a>,
        device: &'a Device,
        tools: &Tools,
        plan: &'a VerifyPlan,
        gpus: &'a [Gpu],
    ) -> Result<Self, LibraryError> {
        let stream = device.stream()?;
        let kernels = Kernels::new(device)?;
        let mut outcome = WorkerResult::default();
        let blas = match tools.blas.map(|blas| blas.handle(device, &stream)).transpose() {
            Ok(blas) => blas,
            Err(error) => {
                outcome.notes.push(format!("cuBLAS was skipped: {error}"));
                None
            }
        };
        let all_have_blas = member.exchange(vec![u8::from(blas.is_some())])?.iter().all(|one| one == &[1]);
        let blas = blas.filter(|_| all_have_blas);
        if blas.is_none() && tools.blas.is_none() {
            outcome.notes.push("cuBLAS was not found: its products were skipped".to_owned());
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
                Some(member.communicator(*nccl, Wish::default())?)
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

    pub(super) fn finish(self) -> Result<WorkerResult, LibraryError> {
        let Self { comm, blas, kernels, stream, outcome, device, .. } = self;
        drop(comm);
        device.synchronize()?;
        drop((blas, kernels, stream));
        Ok(outcome)
    }

    /// The seed of this round, another one for each use.
    pub(super) fn seed(&self, of: u64) -> u64 {
        let mut random = Random(self.plan.seed ^ self.round << 20 ^ of << 40);
        random.draw()
    }

    /// Blames the same places in all ranks: `own` is what this rank saw of itself.
    pub(super) fn blame_own(
        &mut self,
        check: Check,
        own: Option<(u64, String, Vec<u64>)>,
    ) -> Result<(), LibraryError> {
        for (rank, sign) in self.share(check, own)?.into_iter().enumerate() {
            if let Some(sign) = sign {
                self.outcome.blamed.push((FaultSite::Gpu(rank), sign));
            }
        }
        Ok(())
    }

    /// The sign of each rank.
    pub(super) fn share(
        &self,
        check: Check,
        own: Option<(u64, String, Vec<u64>)>,
    ) -> Result<Vec<Option<Sign>>, LibraryError> {
        let sign = own.map(|(count, text, multiprocessors)| Sign {
            check,
            rank: self.member.rank,
            text,
            count,
            multiprocessors,
        });
        let bytes = serde_json::to_vec(&sign).map_err(|error| LibraryError::World(error.to_string()))?;
        let all = self.member.exchange(bytes)?;
        all.iter()
            .map(|one| serde_json::from_slice(one).map_err(|error| LibraryError::World(error.to_string())))
            .collect()
    }

    /// Names what a trial shows; if it shows nothing, the ranks that saw the signs.
    pub(super) fn blame_trial(&mut self, trial: &Trial, signs: Vec<Sign>) {
        let places = of_trial(trial);
        for sign in signs {
            if places.is_empty() {
                // Pairs do not show it: the receiver, its senders or the links between them.
                let all = (0..self.member.n_ranks).collect();
                self.outcome.blamed.push((FaultSite::OneOf(all), sign));
                continue;
            }
            let own = places.iter().find(|place| match place {
                FaultSite::Gpu(gpu) => *gpu == sign.rank,
                FaultSite::Link(_, to) => *to == sign.rank,
                FaultSite::OneOf(_) => false,
            });
            let place = own.or(places.first()).cloned();
            self.outcome.blamed.extend(place.map(|place| (place, sign)));
        }
        for place in places {
            if !self.outcome.blamed.iter().any(|(blamed, _)| *blamed == place) {
                let rank = match &place {
                    FaultSite::Gpu(rank) | FaultSite::Link(_, rank) => *rank,
                    FaultSite::OneOf(_) => 0,
                };
                let text = "fails when pairs of GPUs are tested one by one".to_owned();
                let sign = Sign { check: Check::Links, rank, text, count: 1, multiprocessors: Vec::new() };
                self.outcome.blamed.push((place, sign));
            }
        }
    }

    /// Flips a bit, if a planted fault is of that kind and here.
    pub(super) fn spoil(&mut self, spot: Spot, address: u64, size_bytes: usize) -> Result<(), LibraryError> {
        self.injector.flip(spot, &self.stream, address, size_bytes)
    }
}

/// What differences say, in words.
pub(super) fn words(what: &str, unit: &str, found: &Differences) -> (u64, String, Vec<u64>) {
    let first = found.listed.first().map_or_else(String::new, |wrong| {
        format!("; {unit} {} is {:#x} instead of {:#x}", wrong.index, wrong.got, wrong.want)
    });
    let mut seen: Vec<u64> = found.listed.iter().map(|wrong| wrong.multiprocessor).collect();
    seen.sort_unstable();
    seen.dedup();
    let text = format!("{what}: {} wrong {unit}s, bits {:#x}{first}", found.count, found.bits);
    (found.count, text, seen)
}
