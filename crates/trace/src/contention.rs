//! What computation loses beside communication: the same kernels at the same places of the program, with and without
//! communication at the same time.
//!
//! A kernel's name and grid do not tell its size: one grid serves many. So kernels are compared only with those of the same name
//! and grid that also run between the same two neighbours, as in the layers of a model, and only where those that run alone
//! take equally long.

use std::collections::BTreeMap;

use ringleader_model::{DeviceWork, WorkKind};

use crate::steps::Steps;
use crate::view::RankTimeline;

/// Slowdown of computation beside communication.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Contention {
    /// Blocks of the communication's kernels; each block holds an SM. Median by time.
    pub n_ctas: u32,
    /// Number of SMs of the GPU.
    pub n_sms: u32,
    /// Time beside communication over time alone.
    pub slowdown: f64,
    /// Kernels beside communication that were compared.
    pub n_compared: usize,
    /// Time that a rank loses so in a usual step, over all its kernels beside communication, ns.
    pub lost_ns: i64,
}

impl Contention {
    /// Part of the loss, 0 to 1, that ends if communication takes half of its SMs: what the smaller share explains by itself.
    pub fn yield_of_half(&self) -> f64 {
        let share = f64::from(self.n_ctas) / f64::from(self.n_sms.max(1));
        if share >= 1.0 || self.slowdown <= 1.0 {
            return 0.0;
        }
        let gone = 1.0 / (1.0 - share) - 1.0 / (1.0 - share / 2.0);
        (gone / (self.slowdown - 1.0)).min(1.0)
    }
}

/// Kernels that are shorter vary by themselves, ns.
const LEAST_NS: i64 = 20_000;
/// Kernels of a place that are needed, both beside communication and alone.
const LEAST_KERNELS: usize = 3;
/// The longest of those alone takes at most this much longer than the shortest, but for one in ten.
const EQUAL: f64 = 1.05;
/// Part of a kernel's time, percent, from which it is beside communication, and up to which it is alone.
const BESIDE_PCT: i64 = 95;
const ALONE_PCT: i64 = 2;
/// Part of the computation beside communication, percent, that must be compared to speak for all of it.
const LEAST_COMPARED_PCT: i64 = 50;

/// Name and blocks of a kernel, and of those before and after it in its stream.
type Place = [(u32, u32); 3];

/// Times of the kernels of one place.
#[derive(Default)]
struct Times {
    alone: Vec<i64>,
    beside: Vec<i64>,
}

/// Measures it; None if the recording does not show it.
pub fn measure(views: &[RankTimeline<'_>], steps: &[Steps]) -> Option<Contention> {
    let n_sms = views.iter().find_map(|view| view.timeline.n_sms).filter(|n| *n > 0)?;
    let (mut alone_ns, mut beside_ns, mut all_beside_ns, mut n_compared, mut n_steps) = (0, 0, 0, 0, 0);
    let mut ctas: Vec<(u32, i64)> = Vec::new();
    for (view, steps) in views.iter().zip(steps) {
        n_steps += steps.usual.len();
        let comm = view.busy(|kind| kind == WorkKind::Comm);
        let of_comm = view.work().iter().filter(|w| w.kind == WorkKind::Comm && w.stream != view.main_stream);
        ctas.extend(of_comm.map(|w| (w.n_blocks, w.end_ns - w.start_ns)));
        let mut places: BTreeMap<Place, Times> = BTreeMap::new();
        for (place, work, step) in kernels(view, steps) {
            let time = work.end_ns - work.start_ns;
            if !steps.usual.contains(&step) || time < LEAST_NS {
                continue;
            }
            let beside = comm.length_within(work.start_ns, work.end_ns) * 100;
            if beside >= time * BESIDE_PCT {
                places.entry(place).or_default().beside.push(time);
                all_beside_ns += time;
            } else if beside <= time * ALONE_PCT {
                places.entry(place).or_default().alone.push(time);
            }
        }
        for times in places.values_mut().filter(|t| t.alone.len().min(t.beside.len()) >= LEAST_KERNELS) {
            times.alone.sort_unstable();
            let tenth = |n: usize| times.alone.get((times.alone.len() - 1) * n / 10).copied().unwrap_or(0);
            if tenth(9) as f64 > tenth(0) as f64 * EQUAL {
                continue;
            }
            alone_ns += tenth(5) * times.beside.len() as i64;
            beside_ns += times.beside.iter().sum::<i64>();
            n_compared += times.beside.len();
        }
    }
    if n_steps == 0 || alone_ns == 0 || beside_ns * 100 < all_beside_ns * LEAST_COMPARED_PCT {
        return None;
    }
    let slowdown = beside_ns as f64 / alone_ns as f64;
    let lost = all_beside_ns as f64 * (1.0 - 1.0 / slowdown) / n_steps as f64;
    let n_ctas = median_by_time(ctas)?;
    Some(Contention { n_ctas, n_sms, slowdown, n_compared, lost_ns: (lost as i64).max(0) })
}

/// Kernels of the main stream that compute, each with its place and step.
fn kernels<'v>(
    view: &'v RankTimeline<'_>,
    steps: &'v Steps,
) -> impl Iterator<Item = (Place, &'v DeviceWork, u32)> {
    let main = view.main_stream;
    let own: Vec<(usize, &DeviceWork)> = view
        .work()
        .iter()
        .enumerate()
        .filter(|(_, w)| w.kind == WorkKind::Compute && w.stream == main)
        .collect();
    let key = |work: &DeviceWork| (work.name, work.n_blocks);
    (1..own.len().saturating_sub(1)).filter_map(move |at| {
        let ((_, before), (place, work), (_, after)) = (own.get(at - 1)?, own.get(at)?, own.get(at + 1)?);
        let step = steps.of_work.get(*place).copied()?;
        Some(([key(before), key(work), key(after)], *work, step))
    })
}

fn median_by_time(mut list: Vec<(u32, i64)>) -> Option<u32> {
    list.retain(|(blocks, _)| *blocks > 0);
    list.sort_unstable();
    let half = list.iter().map(|(_, ns)| ns).sum::<i64>() / 2;
    let mut sum = 0;
    list.iter()
        .find(|(_, ns)| {
            sum += ns;
            sum >= half
        })
        .map(|(blocks, _)| *blocks)
}
