//! What the kernels compute, on the CPU: the arithmetic of `kernels/plain.ptx` and `kernels/tensor.ptx`.
//!
//! It decides who is wrong where two GPUs disagree, and replaces a GPU in tests.

use crate::sys::RedOp;
use crate::values::{ValueClass, ValuePlan};

/// MurmurHash3's finaliser.
pub fn mix(mut x: u32) -> u32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x85EB_CA6B);
    x ^= x >> 13;
    x = x.wrapping_mul(0xC2B2_AE35);
    x ^ x >> 16
}

/// The two words of a memory pattern at one unit of 16 bytes.
pub fn pattern(kind: u64, seed: u64, invert: u64, unit: u64) -> [u64; 2] {
    let words = match kind {
        1 => [unit << 1, (unit << 1) + 1],
        2 => {
            let (low, high) = (unit as u32, (unit >> 32) as u32);
            let x = mix((low ^ seed as u32).wrapping_add(high.wrapping_mul(0x85EB_CA6B)));
            let mut y = x.wrapping_mul(0x9E37_79B1).wrapping_add((seed >> 32) as u32);
            y ^= y >> 15;
            let z = y.wrapping_mul(0x7FEB_352D);
            let w = (x ^ y).wrapping_mul(0x2545_F491);
            [u64::from(x) | u64::from(y) << 32, u64::from(z) | u64::from(w) << 32]
        }
        3 => {
            let bit = (unit << 1).wrapping_add(seed) & 63;
            [1 << bit, 1 << ((bit + 1) & 63)]
        }
        4 => {
            let n = (unit << 1) as u32;
            let word = |n: u32| if n % 20 == seed as u32 { u64::MAX } else { 0 };
            [word(n), word(n.wrapping_add(1))]
        }
        _ => [seed, seed],
    };
    words.map(|word| word ^ invert)
}

/// The integer behind a rank's own value at one element, before its factor. Only for plans with a span.
pub fn whole(plan: &ValuePlan, rank: u64, index: u64) -> i64 {
    let (low, high) = (index as u32, (index >> 32) as u32);
    let place = (low ^ plan.seed as u32).wrapping_add(high.wrapping_mul(0x85EB_CA6B));
    let hash = mix(place.wrapping_add((rank as u32).wrapping_mul(0x9E37_79B1)));
    ((u64::from(hash) * u64::from(plan.span as u32)) >> 32) as i64 - plan.low as i64
}

/// The bits of the reduction over ranks `lo` to `hi - 1` at one element. `op` is none for a rank's own value.
pub fn value(plan: &ValuePlan, op: Option<RedOp>, (lo, hi): (u64, u64), factor: u64, index: u64) -> u64 {
    let (low, high) = (index as u32, (index >> 32) as u32);
    let place = (low ^ plan.seed as u32).wrapping_add(high.wrapping_mul(0x85EB_CA6B));
    let chosen =
        ((u64::from(mix(place.wrapping_add(0x7F4A_7C15))) * u64::from(plan.n_ranks as u32)) >> 32) as u32;
    let width = 64 - (8u32 << plan.shift);
    let is_product = op == Some(RedOp::Prod);
    let mut total: i64 = i64::from(is_product);
    for rank in lo..hi {
        let hash = mix(place.wrapping_add((rank as u32).wrapping_mul(0x9E37_79B1)));
        let mut value = if plan.span == 0 {
            let mut other = (hash ^ 0x5BD1_E995).wrapping_mul(0x85EB_CA6B);
            other ^= other >> 15;
            let bits = (u64::from(hash) | u64::from(other) << 32) << width;
            if plan.class == ValueClass::Unsigned { (bits >> width) as i64 } else { bits as i64 >> width }
        } else {
            let value = whole(plan, rank, index).wrapping_mul(factor as i64);
            match (is_product, value, rank as u32 == chosen) {
                (false, value, _) => value,
                (true, 0, true) => 1,
                (true, value, true) => value,
                (true, _, false) => 1 - 2 * i64::from(hash & 1),
            }
        };
        if op == Some(RedOp::PreMulSum) && rank & 1 == 1 {
            value = value.wrapping_shl(1);
        }
        let is_first = rank == lo;
        let order = |a: i64, b: i64| {
            if plan.class == ValueClass::Unsigned { (a as u64).cmp(&(b as u64)) } else { a.cmp(&b) }
        };
        total = match op {
            Some(RedOp::Prod) => total.wrapping_mul(value),
            Some(RedOp::Max) if is_first || order(value, total).is_gt() => value,
            Some(RedOp::Min) if is_first || order(value, total).is_lt() => value,
            Some(RedOp::Max | RedOp::Min) => total,
            _ => total.wrapping_add(value),
        };
    }
    match plan.class {
        ValueClass::Signed | ValueClass::Unsigned => (total as u64) << width >> width,
        ValueClass::Single => u64::from((total as f32 * f32::from_bits(plan.scale as u32)).to_bits()),
        ValueClass::Double => (total as f64 * f64::from_bits(plan.scale)).to_bits(),
        ValueClass::Table => {
            plan.table.get((total + plan.middle as i64) as usize).copied().map_or(0, u64::from)
        }
    }
}

/// The digest of words: a sum in which each is mixed with its place.
pub fn digest(words: impl Iterator<Item = u64>) -> u64 {
    words.zip(1u64..).fold(0, |sum, (word, place)| {
        let mut x = word ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        x ^= x >> 30;
        x = x.wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x ^= x >> 27;
        x = x.wrapping_mul(0x94D0_49BB_1331_11EB);
        sum.wrapping_add(x ^ x >> 31)
    })
}

/// Kinds of arithmetic outside the tensor cores.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Unit {
    /// Multiply and add in single precision.
    Single = 0,
    /// In double precision.
    Double = 1,
    /// Integers: products, high halves, shifts, counts of bits.
    Integer = 2,
    /// Sine, cosine, powers, logarithms, roots, reciprocals. Their last bits are the GPU's own: no reference.
    Special = 3,
    /// Shared memory and shuffles between lanes.
    Shared = 4,
}

impl Unit {
    /// All.
    pub const ALL: [Self; 5] = [Self::Single, Self::Double, Self::Integer, Self::Special, Self::Shared];

    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Single => "fp32 units",
            Self::Double => "fp64 units",
            Self::Integer => "integer units",
            Self::Special => "special functions",
            Self::Shared => "shared memory and shuffles",
        }
    }
}

/// Threads of a block of the kernels of units and tensor cores.
pub const BLOCK: u32 = 256;

/// Four numbers of a thread.
fn start(thread: u32, seed: u64) -> [u32; 4] {
    let a = mix(thread.wrapping_mul(0x9E37_79B1).wrapping_add(seed as u32));
    let b = a.wrapping_mul(0x2545_F491) ^ 0x5BD1_E995;
    let c = b.wrapping_mul(0x7FEB_352D) ^ a;
    [a, b, c, c.wrapping_mul(0x9E37_79B1) ^ b]
}

/// What the threads of one block compute; `None` for [`Unit::Special`].
#[expect(clippy::many_single_char_names, reason = "the registers of the kernels")]
pub fn units(kind: Unit, seed: u64, steps: u32, block: u32) -> Option<Vec<u64>> {
    let threads = (0..BLOCK).map(|thread| start(block * BLOCK + thread, seed));
    let pack = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    Some(match kind {
        Unit::Special => return None,
        Unit::Single => threads
            .map(|[a, b, c, d]| {
                let (mut x, p, q, r) = (
                    f32::from_bits(a >> 9 | 0x3F80_0000),
                    f32::from_bits(b >> 9 | 0x3F00_0000),
                    f32::from_bits(c >> 9 | 0x3F00_0000),
                    f32::from_bits(d >> 9 | 0xBF00_0000),
                );
                let mut y = x;
                for _ in 0..steps {
                    x = x.mul_add(p, q);
                    y = y.mul_add(r, q);
                    x = x.mul_add(r, y);
                    y = y.mul_add(p, p);
                    x *= 0.5;
                    y *= 0.5;
                }
                pack(x.to_bits(), y.to_bits())
            })
            .collect(),
        Unit::Double => threads
            .map(|[a, b, c, d]| {
                let of = |low, high, sign: u64| f64::from_bits(pack(low, high) >> 12 | sign);
                let mut x = of(a, b, 0x3FF0_0000_0000_0000);
                let (p, q) = (of(a, b, 0x3FE0_0000_0000_0000), of(c, d, 0xBFE0_0000_0000_0000));
                for _ in 0..steps {
                    x = x.mul_add(p, q);
                    x = x.mul_add(q, p);
                }
                x.to_bits()
            })
            .collect(),
        Unit::Integer => threads
            .map(|[mut a, mut b, mut c, mut d]| {
                for _ in 0..steps {
                    a = a.wrapping_mul(b).wrapping_add(c);
                    b ^= ((u64::from(a) * u64::from(d)) >> 32) as u32;
                    // Funnel shift: the high bits of c:a, seven to the left.
                    c = a << 7 | c >> 25;
                    d = d.wrapping_add(b.count_ones());
                    b |= 1;
                    d = d.wrapping_sub(a);
                }
                pack(a ^ c, b ^ d)
            })
            .collect(),
        Unit::Shared => {
            let mut all: Vec<(u32, u32)> = threads.map(|[a, b, ..]| (a, b)).collect();
            for step in 0..steps {
                let before = all.clone();
                for (thread, (x, y)) in all.iter_mut().enumerate() {
                    let thread = thread as u32;
                    let far =
                        before[(thread.wrapping_mul(7).wrapping_add(step).wrapping_add(3) & 255) as usize].0;
                    let lane = (thread & 31) ^ ((step & 15) + 1);
                    let near = before[((thread & !31) | lane & 31) as usize].1;
                    *x = x.wrapping_add(near);
                    *y = (near ^ far).wrapping_mul(0x9E37_79B1);
                }
            }
            all.into_iter().map(|(x, y)| pack(x, y)).collect()
        }
    })
}

/// Kinds of product of the tensor cores that our own kernel exercises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u64)]
pub enum Tensor {
    /// bfloat16.
    Bf16 = 0,
    /// Half.
    F16 = 1,
    /// TF32.
    Tf32 = 2,
    /// Double.
    F64 = 3,
}

impl Tensor {
    /// All.
    pub const ALL: [Self; 4] = [Self::Bf16, Self::F16, Self::Tf32, Self::F64];

    /// For reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16 tensor cores",
            Self::F16 => "fp16 tensor cores",
            Self::Tf32 => "tf32 tensor cores",
            Self::F64 => "fp64 tensor cores",
        }
    }

    /// Rows, inner length, columns.
    fn shape(self) -> (u32, u32, u32) {
        match self {
            Self::Bf16 | Self::F16 => (16, 16, 8),
            Self::Tf32 => (16, 8, 8),
            Self::F64 => (8, 4, 8),
        }
    }
}

/// Steps of [`tensor`] that singles hold exactly: 16 products of at most 64 each.
pub const MOST_TENSOR_STEPS: u32 = (1 << 24) / (16 * 64);

fn element(base: u32, row: u32, column: u32) -> i64 {
    i64::from(mix(base.wrapping_add(row.wrapping_mul(64)).wrapping_add(column)) & 15) - 8
}

/// What the threads of one warp hold after `steps` products: two words each.
pub fn tensor(kind: Tensor, seed: u64, steps: u32, warp: u32) -> Vec<[u64; 2]> {
    let a = seed as u32 ^ warp.wrapping_mul(0x9E37_79B1);
    let b = a.wrapping_add(0x85EB_CA6B);
    let (rows, inner, columns) = kind.shape();
    let mut c = vec![vec![0i64; columns as usize]; rows as usize];
    for (row, line) in (0..rows).zip(&mut c) {
        for (column, out) in (0..columns).zip(line) {
            *out = i64::from(steps)
                * (0..inner).map(|k| element(a, row, k) * element(b, k, column)).sum::<i64>();
        }
    }
    (0..32usize)
        .map(|lane| {
            let (row, column) = (lane / 4, lane % 4 * 2);
            if kind == Tensor::F64 {
                [0, 1].map(|n| (c[row][column + n] as f64).to_bits())
            } else {
                [row, row + 8].map(|row| {
                    let [low, high] = [0, 1].map(|n| (c[row][column + n] as f32).to_bits());
                    u64::from(low) | u64::from(high) << 32
                })
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::DataType;

    /// The reduction of single values is what the single values reduce to: float arithmetic, in two orders.
    #[test]
    fn a_reduction_is_that_of_its_ranks() {
        for n in [2u64, 3, 4, 8] {
            for op in [RedOp::Sum, RedOp::Prod, RedOp::Max, RedOp::Min, RedOp::PreMulSum] {
                for seed in 0..20 {
                    let plan = ValuePlan::reduce(DataType::F32, op, n as usize, seed).unwrap();
                    for index in 0..50 {
                        let own = |rank| {
                            let single = if op == RedOp::Prod { Some(op) } else { None };
                            f32::from_bits(value(&plan, single, (rank, rank + 1), plan.factor(), index) as u32)
                        };
                        let fold = |ranks: &mut dyn Iterator<Item = u64>| {
                            let values = ranks.map(|rank| match op {
                                RedOp::PreMulSum => own(rank) * (1 + rank % 2) as f32,
                                _ => own(rank),
                            });
                            match op {
                                RedOp::Prod => values.product::<f32>(),
                                RedOp::Max => values.fold(f32::MIN, f32::max),
                                RedOp::Min => values.fold(f32::MAX, f32::min),
                                _ => values.fold(0.0, |a, b| a + b),
                            }
                        };
                        let want = value(&plan, Some(op), (0, n), 1, index) as u32;
                        assert_eq!(fold(&mut (0..n)).to_bits(), want, "{op:?} {n} {seed} {index}");
                        assert_eq!(fold(&mut (0..n).rev()).to_bits(), want, "{op:?} {n} {seed} {index}");
                    }
                }
            }
        }
    }

    #[test]
    fn integers_wrap_and_compare_by_their_width() {
        for (dtype, op) in
            [(DataType::U8, RedOp::Max), (DataType::I8, RedOp::Min), (DataType::I8, RedOp::Sum)]
        {
            let plan = ValuePlan::reduce(dtype, op, 3, 1).unwrap();
            for index in 0..100 {
                let own = |rank| value(&plan, None, (rank, rank + 1), 1, index) as u8;
                let all = [own(0), own(1), own(2)];
                let want = match (dtype, op) {
                    (DataType::U8, _) => *all.iter().max().unwrap(),
                    (_, RedOp::Min) => all.iter().map(|byte| *byte as i8).min().unwrap() as u8,
                    _ => all.iter().fold(0u8, |a, b| a.wrapping_add(*b)),
                };
                assert_eq!(value(&plan, Some(op), (0, 3), 1, index), u64::from(want));
            }
        }
    }

    #[test]
    fn a_digest_sees_one_bit_and_an_exchange() {
        let words = [1u64, 2, 1 << 63, 0];
        let whole = digest(words.into_iter());
        for n in 0..words.len() {
            for bit in 0..64 {
                let mut other = words;
                other[n] ^= 1 << bit;
                assert_ne!(digest(other.into_iter()), whole);
            }
        }
        assert_ne!(digest([2, 1, 1 << 63, 0].into_iter()), whole);
    }

    #[test]
    fn every_kind_of_unit_depends_on_seed_and_steps() {
        for kind in Unit::ALL {
            let Some(of) = units(kind, 1, 10, 0) else { continue };
            assert_ne!(units(kind, 2, 10, 0).unwrap(), of);
            assert_ne!(units(kind, 1, 11, 0).unwrap(), of);
            assert_ne!(units(kind, 1, 10, 1).unwrap(), of);
            if kind != Unit::Shared {
                continue;
            }
            assert_eq!(of.len(), BLOCK as usize);
        }
    }
}
