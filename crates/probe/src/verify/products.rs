//! Arithmetic: matrix products of cuBLAS, and our own kernels for the units that cuBLAS leaves idle.
//!
//! Products of small integers are exact on every GPU, so that row and column sums on the host prove the first result of
//! each; later results must be the same bits. Products of full mantissas must be the same bits on equal GPUs.

use super::Check;
use super::inject::Spot;
use super::place::{FaultSite, vote};
use super::worker::Worker;
use crate::kernels::Kernels;
use crate::reference::{self, BLOCK, MOST_TENSOR_STEPS, Tensor, Unit};
use crate::sys::{Buffer, DataType, LibraryError, Product, RedOp};
use crate::values::ValuePlan;

/// Rows of a matrix. The sums of row and column cost the host four million steps each.
const ROWS: usize = 2048;
const BRIEF_ROWS: usize = 256;
/// The same product this many times per round: faults occur now and then.
const N_REPEATS: usize = 24;
const N_STEPS: u32 = 4096;
const BRIEF_STEPS: u32 = 64;
/// Products of the kernel of tensor cores stay exact up to this.
const N_TENSOR_STEPS: u32 = MOST_TENSOR_STEPS;
/// Elements on which two results are compared with the true one.
const N_HELD: usize = 8;

impl Product {
    fn dtype(self) -> DataType {
        match self {
            Self::Bf16 => DataType::Bf16,
            Self::F16 => DataType::F16,
            Self::Tf32 | Self::F32 => DataType::F32,
            Self::F64 => DataType::F64,
            Self::F8 => DataType::F8E4m3,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "fp16",
            Self::Tf32 => "tf32",
            Self::F32 => "fp32",
            Self::F64 => "fp64",
            Self::F8 => "fp8",
        }
    }

    /// Integers up to this keep a sum of `n` products exact: below 2^24 in singles. Hopper adds products of fp8 with fewer
    /// bits.
    fn largest(self, n: usize) -> u64 {
        match self {
            Self::F8 => 1,
            Self::F64 => 1 << 15,
            _ => ((1u64 << 23) / n as u64).isqrt(),
        }
    }
}

/// Matrices on one GPU.
struct Matrices {
    n: usize,
    a: Buffer,
    b: Buffer,
    c: Buffer,
}

pub(super) fn run(worker: &mut Worker<'_>) -> Result<(), LibraryError> {
    own_kernels(worker)?;
    let n = if worker.plan.is_brief { BRIEF_ROWS } else { ROWS };
    if worker.blas.is_some() {
        let alloc = |_: usize| worker.device.alloc(n * n * 8);
        let matrices = Matrices { n, a: alloc(0)?, b: alloc(1)?, c: alloc(2)? };
        for kind in Product::ALL {
            exact(worker, &matrices, kind)?;
            random(worker, &matrices, kind)?;
        }
    }
    let out = worker.device.alloc(worker.kernels.n_threads() * 16)?;
    for kind in Unit::ALL {
        units(worker, &out, kind)?;
    }
    for kind in Tensor::ALL {
        tensor(worker, &out, kind)?;
    }
    Ok(())
}

/// Elements of each type and operation that the host computes, too.
const N_OWN: usize = 512;

/// What our kernels write, against the host's arithmetic. A compiler bug affects every GPU: then nothing here can be
/// trusted, and the run ends. (ptxas 12.8 and 13.0 have one that an earlier form of these kernels met.)
fn own_kernels(worker: &mut Worker<'_>) -> Result<(), LibraryError> {
    let to = worker.device.alloc(N_OWN * 8)?;
    let (mut n_wrong, mut first) = (0u64, String::new());
    for dtype in DataType::ALL {
        for op in RedOp::ALL {
            let Some(plan) = ValuePlan::reduce(dtype, op, 2, worker.seed(400)) else { continue };
            let table = worker.kernels.table(worker.device, &worker.stream, &plan)?;
            let base = (1 << 33) + 7;
            worker.kernels.fill(&worker.stream, (&plan, &table), (to.address(), N_OWN), 1, base)?;
            let got: Vec<u8> = worker.stream.read(to.address(), N_OWN * dtype.size())?;
            let own = if op == RedOp::Prod { Some(op) } else { None };
            for (n, got) in got.chunks_exact(dtype.size()).enumerate() {
                let want = reference::value(&plan, own, (1, 2), plan.factor(), base + n as u64).to_le_bytes();
                if got != &want[..dtype.size()] {
                    n_wrong += 1;
                    if first.is_empty() {
                        first = format!("{} for {} at {n}: {got:x?}", op.name(), dtype.name());
                    }
                }
            }
            // What is written is what is compared with.
            worker.kernels.reset(&worker.stream)?;
            worker.kernels.compare(&worker.stream, (&plan, &table), (to.address(), N_OWN), Some(1), base)?;
            n_wrong += worker.kernels.differences(&worker.stream)?.count;
        }
    }
    let all = worker.member.exchange_words(&[n_wrong])?;
    if all.len() > 1 && all.iter().flatten().all(|count| *count > 0) {
        let why = format!("the driver miscompiles this program's kernels ({first}): nothing was checked");
        return Err(LibraryError::World(why));
    }
    let text = format!("values written by our own kernel differ from the host's: {first}");
    worker.blame_own(Check::Products, (n_wrong > 0).then_some((n_wrong, text, Vec::new())))
}

/// Fills both inputs, with the same values on every GPU.
fn fill(worker: &Worker<'_>, matrices: &Matrices, plans: [&ValuePlan; 2]) -> Result<(), LibraryError> {
    let count = matrices.n * matrices.n;
    for (plan, to) in plans.into_iter().zip([&matrices.a, &matrices.b]) {
        let table = worker.kernels.table(worker.device, &worker.stream, plan)?;
        worker.kernels.fill(&worker.stream, (plan, &table), (to.address(), count), 0, 0)?;
        // The table goes with the block.
        worker.stream.wait()?;
    }
    Ok(())
}

/// One product and its digest; none where this GPU or cuBLAS has no such product.
fn product(worker: &mut Worker<'_>, matrices: &Matrices, kind: Product) -> Result<Option<u64>, LibraryError> {
    let Some(blas) = &worker.blas else { return Ok(None) };
    let (n, c) = (matrices.n, matrices.c.address());
    let size = n * n * kind.out_bytes();
    match blas.product(kind, n, (matrices.a.address(), matrices.b.address(), c), &worker.stream) {
        Ok(()) => {}
        Err(error) if error.is_unsupported() => {
            worker.outcome.notes.push(format!("{} products were skipped: {error}", kind.name()));
            return Ok(None);
        }
        Err(error) => return Err(error),
    }
    worker.spoil(Spot::Computed, c, size)?;
    worker.outcome.coverage.products += 1;
    worker.outcome.coverage.product_tflop += 2.0 * (n as f64).powi(3) / 1e12;
    worker.kernels.digest(&worker.stream, c, size).map(Some)
}

/// The results as numbers, column after column.
fn read(worker: &Worker<'_>, matrices: &Matrices, kind: Product) -> Result<Vec<f64>, LibraryError> {
    let count = matrices.n * matrices.n;
    Ok(if kind == Product::F64 {
        worker.stream.read::<f64>(matrices.c.address(), count)?
    } else {
        worker.stream.read::<f32>(matrices.c.address(), count)?.into_iter().map(f64::from).collect()
    })
}

/// Rows and columns of C = AᵀB whose sum is wrong.
fn wrong_sums(n: usize, plans: [&ValuePlan; 2], c: &[f64]) -> (Vec<usize>, Vec<usize>) {
    let [a, b] = plans
        .map(|plan| (0..n * n).map(|index| reference::whole(plan, 0, index as u64)).collect::<Vec<i64>>());
    let sum_of_rows = |matrix: &[i64]| {
        let mut sums = vec![0i64; n];
        for column in matrix.chunks_exact(n) {
            sums.iter_mut().zip(column).for_each(|(sum, value)| *sum += value);
        }
        sums
    };
    let (of_a, of_b) = (sum_of_rows(&a), sum_of_rows(&b));
    let dot = |column: &[i64], with: &[i64]| column.iter().zip(with).map(|(x, y)| x * y).sum::<i64>();
    let want_rows: Vec<i64> = a.chunks_exact(n).map(|column| dot(column, &of_b)).collect();
    let want_columns: Vec<i64> = b.chunks_exact(n).map(|column| dot(column, &of_a)).collect();
    // A wrong element may be no whole number, or none at all.
    let whole =
        |value: f64| if value.fract() == 0.0 && value.abs() < 1e15 { value as i64 } else { i64::MIN >> 8 };
    let mut rows = vec![0i64; n];
    let mut columns = vec![0i64; n];
    for (column, values) in columns.iter_mut().zip(c.chunks_exact(n)) {
        for (row, value) in rows.iter_mut().zip(values) {
            let value = whole(*value);
            *row = row.wrapping_add(value);
            *column = column.wrapping_add(value);
        }
    }
    let differ = |want: &[i64], got: &[i64]| {
        want.iter().zip(got).enumerate().filter(|(_, (a, b))| a != b).map(|(at, _)| at).collect()
    };
    (differ(&want_rows, &rows), differ(&want_columns, &columns))
}

/// Products with one right answer.
fn exact(worker: &mut Worker<'_>, matrices: &Matrices, kind: Product) -> Result<(), LibraryError> {
    let (n, dtype) = (matrices.n, kind.dtype());
    // The same in every round, so that a result that was proven once proves the later ones.
    let seed = worker.plan.seed ^ kind as u64;
    let largest = kind.largest(n);
    let (a, b) = (ValuePlan::small(dtype, largest, seed), ValuePlan::small(dtype, largest, seed ^ 0xB));
    fill(worker, matrices, [&a, &b])?;
    let key = (kind as u64, seed);
    let mut own = None;
    let repeats = if worker.plan.is_brief { 1 } else { N_REPEATS };
    for _ in 0..repeats {
        let Some(digest) = product(worker, matrices, kind)? else { break };
        let name = format!("{} product of integers, {n} x {n}", kind.name());
        if !worker.outcome.coverage.product_kinds.contains(&kind.name().to_owned()) {
            worker.outcome.coverage.product_kinds.push(kind.name().to_owned());
        }
        if worker.proven.get(&key) == Some(&digest) {
            continue;
        }
        let c = read(worker, matrices, kind)?;
        let (rows, columns) = wrong_sums(n, [&a, &b], &c);
        if rows.is_empty() && columns.is_empty() && !worker.proven.contains_key(&key) {
            worker.proven.insert(key, digest);
            continue;
        }
        let count = rows.len().max(columns.len()).max(1) as u64;
        let place = format!("rows {}, columns {}", few(&rows), few(&columns));
        own = Some((count, format!("{name}: wrong sums on {place}"), Vec::new()));
        // Once is enough: each proof takes the host a second.
        break;
    }
    worker.blame_own(Check::Products, own)
}

fn few(places: &[usize]) -> String {
    let shown: Vec<String> = places.iter().take(4).map(usize::to_string).collect();
    match places.len() {
        0 => "none".to_owned(),
        n if n > 4 => format!("{} and {} more", shown.join(", "), n - 4),
        _ => shown.join(", "),
    }
}

/// GPUs whose results should be the same bits.
fn kinds(worker: &Worker<'_>) -> Vec<String> {
    worker.gpus.iter().map(|gpu| format!("{} {} {}", gpu.name, gpu.capability, gpu.multiprocessors)).collect()
}

/// Products of full mantissas: equal on equal GPUs, and from one time to the next.
fn random(worker: &mut Worker<'_>, matrices: &Matrices, kind: Product) -> Result<(), LibraryError> {
    let dtype = kind.dtype();
    let seed = worker.seed(100 + kind as u64);
    let make = |seed| ValuePlan::reduce(dtype, RedOp::Max, 1, seed);
    let (Some(a), Some(b)) = (make(seed), make(seed ^ 0xB)) else { return Ok(()) };
    fill(worker, matrices, [&a, &b])?;
    let first = product(worker, matrices, kind)?;
    let again = product(worker, matrices, kind)?;
    let (Some(first), Some(again)) = (first, again) else { return Ok(()) };
    let all = worker.member.exchange_words(&[first, u64::from(first == again)])?;
    let results: Vec<u64> = all.iter().filter_map(|one| one.first().copied()).collect();
    let is_steady: Vec<bool> = all.iter().map(|one| one.get(1) == Some(&1)).collect();
    let mut places = vote(&results, &kinds(worker), &is_steady);
    if places.iter().any(|place| matches!(place, FaultSite::OneOf(_))) {
        places = held_against_truth(worker, matrices, kind, [&a, &b], places)?;
    }
    blame(
        worker,
        places,
        &format!("{} product of full mantissas, {} x {}", kind.name(), matrices.n, matrices.n),
    );
    Ok(())
}

fn blame(worker: &mut Worker<'_>, places: Vec<FaultSite>, what: &str) {
    for place in places {
        let rank = match &place {
            FaultSite::Gpu(rank) | FaultSite::Link(_, rank) => *rank,
            FaultSite::OneOf(ranks) => ranks.first().copied().unwrap_or_default(),
        };
        let text = format!("{what}: bits differ from the other GPUs, or from an earlier run on the same GPU");
        let sign = super::Sign { check: Check::Products, rank, text, count: 1, multiprocessors: Vec::new() };
        worker.outcome.blamed.push((place, sign));
    }
}

/// Two results, or two equal camps: the one that is farther from the true product than rounding explains is wrong.
fn held_against_truth(
    worker: &mut Worker<'_>,
    matrices: &Matrices,
    kind: Product,
    plans: [&ValuePlan; 2],
    places: Vec<FaultSite>,
) -> Result<Vec<FaultSite>, LibraryError> {
    let n = matrices.n;
    let c = read(worker, matrices, kind)?;
    let all = worker.member.exchange_numbers(&c)?;
    let Some(first) = all.first() else { return Ok(places) };
    let differing = (0..n * n).filter(|at| all.iter().any(|one| one.get(*at) != first.get(*at)));
    // Inputs are whole numbers times one power of two each.
    let scale = |plan: &ValuePlan| match plan.class {
        crate::values::ValueClass::Double => f64::from_bits(plan.scale),
        crate::values::ValueClass::Single => f64::from(f32::from_bits(plan.scale as u32)),
        _ => 1.0,
    };
    if !matches!(kind, Product::F64 | Product::F32) {
        // Inputs in a table keep their power of two to themselves, and TF32 rounds them.
        return Ok(places);
    }
    let factor = scale(plans[0]) * scale(plans[1]);
    let mut wrong = vec![false; all.len()];
    for at in differing.take(N_HELD) {
        let (row, column) = (at % n, at / n);
        let (mut sum, mut size) = (0f64, 0f64);
        for k in 0..n {
            let x = reference::whole(plans[0], 0, (k + row * n) as u64) as f64;
            let y = reference::whole(plans[1], 0, (k + column * n) as u64) as f64;
            sum += x * y * factor;
            size += (x * y * factor).abs();
        }
        let epsilon = if kind == Product::F64 { f64::EPSILON } else { f64::from(f32::EPSILON) };
        for (is_wrong, one) in wrong.iter_mut().zip(&all) {
            let error = one.get(at).map_or(f64::INFINITY, |value| (value - sum).abs());
            // Not a number is no less wrong.
            *is_wrong |= error.is_nan() || error > size * epsilon * n as f64;
        }
    }
    let named: Vec<FaultSite> =
        wrong.iter().enumerate().filter(|(_, wrong)| **wrong).map(|(rank, _)| FaultSite::Gpu(rank)).collect();
    Ok(if named.is_empty() { places } else { named })
}

/// Digests of all ranks; if they disagree, or one block is not what the host computes, each checks itself entirely.
fn agree(
    worker: &mut Worker<'_>,
    what: &str,
    (digest, again): (u64, u64),
    is_right: bool,
    entirely: impl FnOnce(&Worker<'_>) -> Result<Option<u64>, LibraryError>,
) -> Result<(), LibraryError> {
    let all = worker.member.exchange_words(&[digest, u64::from(digest == again), u64::from(is_right)])?;
    let at = |n: usize| all.iter().map(|one| one.get(n).copied().unwrap_or_default()).collect::<Vec<u64>>();
    let (results, steady, right) = (at(0), at(1), at(2));
    let steady: Vec<bool> = steady.iter().map(|one| *one == 1).collect();
    let places = vote(&results, &kinds(worker), &steady);
    if places.is_empty() && right.iter().all(|one| *one == 1) {
        return Ok(());
    }
    // Whether this kind has a reference is the same for all ranks.
    match entirely(worker)? {
        Some(count) => {
            let text = format!("{what}: {count} threads computed a different value than the host");
            let own = (count > 0).then_some((count, text, Vec::new()));
            let signs = worker.share(Check::Products, own)?;
            let mut is_named = false;
            for (rank, sign) in signs.into_iter().enumerate() {
                if let Some(sign) = sign {
                    is_named = true;
                    worker.outcome.blamed.push((FaultSite::Gpu(rank), sign));
                }
            }
            if !is_named {
                blame(worker, places, what);
            }
        }
        None => blame(worker, places, what),
    }
    Ok(())
}

fn units(worker: &mut Worker<'_>, out: &Buffer, kind: Unit) -> Result<(), LibraryError> {
    let steps = if worker.plan.is_brief { BRIEF_STEPS } else { N_STEPS };
    let seed = worker.seed(200 + kind as u64);
    let size = worker.kernels.n_threads() * 8;
    let mut digests = [0; 2];
    for digest in &mut digests {
        worker.kernels.units(&worker.stream, out.address(), kind, steps, seed)?;
        worker.spoil(Spot::Computed, out.address(), size)?;
        *digest = worker.kernels.digest(&worker.stream, out.address(), size)?;
        worker.outcome.coverage.unit_passes += 1;
    }
    let n_blocks = (worker.kernels.n_threads() as u32) / BLOCK;
    let block = (worker.round as u32).wrapping_mul(97) % n_blocks.max(1);
    let check = |worker: &Worker<'_>, block: u32| -> Result<Option<u64>, LibraryError> {
        let Some(want) = reference::units(kind, seed, steps, block) else { return Ok(None) };
        let at = out.address() + u64::from(block * BLOCK) * 8;
        let got: Vec<u64> = worker.stream.read(at, BLOCK as usize)?;
        Ok(Some(want.iter().zip(&got).filter(|(a, b)| a != b).count() as u64))
    };
    let is_right = check(worker, block)?.is_none_or(|count| count == 0);
    agree(worker, kind.name(), (digests[0], digests[1]), is_right, |worker| {
        let mut total = Some(0);
        for block in 0..n_blocks {
            total = check(worker, block)?.and_then(|count| Some(total? + count));
        }
        Ok(total)
    })
}

fn tensor(worker: &mut Worker<'_>, out: &Buffer, kind: Tensor) -> Result<(), LibraryError> {
    let steps = if worker.plan.is_brief { BRIEF_STEPS } else { N_TENSOR_STEPS };
    let seed = worker.seed(300 + kind as u64);
    let size = worker.kernels.n_threads() * 16;
    let mut digests = [0; 2];
    for digest in &mut digests {
        if !worker.kernels.tensor(&worker.stream, out.address(), kind, steps, seed)? {
            return Ok(());
        }
        worker.spoil(Spot::Computed, out.address(), size)?;
        *digest = worker.kernels.digest(&worker.stream, out.address(), size)?;
        worker.outcome.coverage.unit_passes += 1;
    }
    let n_warps = warps(&worker.kernels);
    let check = |worker: &Worker<'_>, warp: u32| -> Result<u64, LibraryError> {
        let want = reference::tensor(kind, seed, steps, warp).concat();
        let got: Vec<u64> = worker.stream.read(out.address() + u64::from(warp) * 32 * 16, want.len())?;
        Ok(want.iter().zip(&got).filter(|(a, b)| a != b).count() as u64)
    };
    let warp = (worker.round as u32).wrapping_mul(97) % n_warps.max(1);
    let is_right = check(worker, warp)? == 0;
    agree(worker, kind.name(), (digests[0], digests[1]), is_right, |worker| {
        (0..n_warps).map(|warp| check(worker, warp)).sum::<Result<u64, LibraryError>>().map(Some)
    })
}

fn warps(kernels: &Kernels) -> u32 {
    kernels.n_threads() as u32 / 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_place_a_wrong_element() {
        let n = 16;
        let (a, b) = (ValuePlan::small(DataType::F32, 50, 1), ValuePlan::small(DataType::F32, 50, 2));
        let mut product = vec![0f64; n * n];
        for column in 0..n {
            for row in 0..n {
                product[row + column * n] = (0..n)
                    .map(|k| {
                        let x = reference::whole(&a, 0, (k + row * n) as u64);
                        (x * reference::whole(&b, 0, (k + column * n) as u64)) as f64
                    })
                    .sum();
            }
        }
        assert_eq!(wrong_sums(n, [&a, &b], &product), (vec![], vec![]));
        for (row, column, value) in [(3, 7, 1.0), (0, 15, 0.5), (9, 0, f64::NAN)] {
            let mut wrong = product.clone();
            wrong[row + column * n] += value;
            assert_eq!(wrong_sums(n, [&a, &b], &wrong), (vec![row], vec![column]));
        }
    }

    #[test]
    fn integers_of_a_product_stay_exact() {
        for kind in Product::ALL {
            for n in [BRIEF_ROWS, ROWS] {
                let largest = kind.largest(n);
                let bits = if kind == Product::F64 { 53 } else { 24 };
                assert!(largest >= 1 && largest * largest * (n as u64) < 1 << bits, "{kind:?}");
            }
        }
    }
}
