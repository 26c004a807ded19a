//! Values whose reduction is exact in any order, so that one expected result holds for every algorithm.
//!
//! A float gets a small integer times a power of two, so small that no partial sum of all ranks leaves its mantissa. An
//! integer gets any bits: its arithmetic wraps. The value of a rank at an element is a hash of both, so that any piece of
//! any rank's buffer can be computed anywhere. [`crate::reference`] has the arithmetic, `kernels/plain.ptx` the same.

use crate::sys::{DataType, RedOp};

/// How a value is coded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum ValueClass {
    /// Signed integer.
    Signed = 0,
    /// Unsigned integer, or bits that are only copied.
    Unsigned = 1,
    /// Single.
    Single = 2,
    /// Double.
    Double = 3,
    /// A table of codes: floats of 8 and 16 bits.
    Table = 4,
}

/// Everything that the values of one measurement depend on, except the rank and the place.
#[derive(Clone, Debug, PartialEq)]
pub struct ValuePlan {
    /// Bytes of an element, as a power of two.
    pub shift: u32,
    /// How a value is coded.
    pub class: ValueClass,
    /// The reduction. Copies have none.
    pub op: Option<RedOp>,
    /// Ranks that are reduced.
    pub n_ranks: u64,
    /// Changes every value.
    pub seed: u64,
    /// Integers that a value may be; 0 means any bits.
    pub span: u64,
    /// Subtracted from each, so that they are around zero.
    pub low: u64,
    /// Bits of the power of two that each is multiplied with, as single or double.
    pub scale: u64,
    /// Codes of integers, from `-middle` on.
    pub table: Vec<u16>,
    /// Place of zero in the table.
    pub middle: u64,
}

/// A float format of at most 16 bits.
struct FloatFormat {
    exponent_bits: u32,
    mantissa_bits: u32,
    /// All-ones exponents are numbers, too (E4M3).
    is_full: bool,
}

const F16: FloatFormat = FloatFormat { exponent_bits: 5, mantissa_bits: 10, is_full: false };
const BF16: FloatFormat = FloatFormat { exponent_bits: 8, mantissa_bits: 7, is_full: false };
const E4M3: FloatFormat = FloatFormat { exponent_bits: 4, mantissa_bits: 3, is_full: true };
const E5M2: FloatFormat = FloatFormat { exponent_bits: 5, mantissa_bits: 2, is_full: false };

impl DataType {
    /// All, by number.
    pub const ALL: [Self; 12] = [
        Self::I8,
        Self::U8,
        Self::I32,
        Self::U32,
        Self::I64,
        Self::U64,
        Self::F16,
        Self::F32,
        Self::F64,
        Self::Bf16,
        Self::F8E4m3,
        Self::F8E5m2,
    ];

    /// nccl-tests' name.
    pub fn name(self) -> &'static str {
        match self {
            Self::I8 => "int8",
            Self::U8 => "uint8",
            Self::I32 => "int32",
            Self::U32 => "uint32",
            Self::I64 => "int64",
            Self::U64 => "uint64",
            Self::F16 => "half",
            Self::F32 => "float",
            Self::F64 => "double",
            Self::Bf16 => "bfloat16",
            Self::F8E4m3 => "f8e4m3",
            Self::F8E5m2 => "f8e5m2",
        }
    }

    /// Bytes of an element.
    pub fn size(self) -> usize {
        1 << self.shift()
    }

    /// Bytes of an element, as a power of two.
    pub fn shift(self) -> u32 {
        match self {
            Self::I8 | Self::U8 | Self::F8E4m3 | Self::F8E5m2 => 0,
            Self::F16 | Self::Bf16 => 1,
            Self::I32 | Self::U32 | Self::F32 => 2,
            Self::I64 | Self::U64 | Self::F64 => 3,
        }
    }

    /// The release of NCCL that brought it.
    pub fn since(self) -> (i32, i32) {
        match self {
            Self::Bf16 => (2, 10),
            Self::F8E4m3 | Self::F8E5m2 => (2, 24),
            _ => (2, 3),
        }
    }

    fn class(self) -> ValueClass {
        match self {
            Self::I8 | Self::I32 | Self::I64 => ValueClass::Signed,
            Self::U8 | Self::U32 | Self::U64 => ValueClass::Unsigned,
            Self::F32 => ValueClass::Single,
            Self::F64 => ValueClass::Double,
            Self::F16 | Self::Bf16 | Self::F8E4m3 | Self::F8E5m2 => ValueClass::Table,
        }
    }

    fn format(self) -> Option<&'static FloatFormat> {
        Some(match self {
            Self::F16 => &F16,
            Self::Bf16 => &BF16,
            Self::F8E4m3 => &E4M3,
            Self::F8E5m2 => &E5M2,
            _ => return None,
        })
    }

    /// Whole numbers up to this are exact; for integers the largest.
    fn exact(self) -> u64 {
        match self {
            Self::I8 => 127,
            Self::U8 => 255,
            Self::I32 | Self::U32 | Self::I64 | Self::U64 => 1 << 30,
            Self::F16 => 1 << 11,
            Self::Bf16 => 1 << 8,
            Self::F8E4m3 => 1 << 4,
            Self::F8E5m2 => 1 << 3,
            Self::F32 => 1 << 24,
            // The hash gives 32 bits.
            Self::F64 => 1 << 30,
        }
    }

    /// Powers of two that the largest exact value may be multiplied with and stay a number of the type.
    fn exponents(self) -> (i32, i32) {
        match self {
            Self::F16 => (-10, 4),
            Self::Bf16 => (-30, 30),
            Self::F8E4m3 => (-3, 4),
            Self::F8E5m2 => (-8, 10),
            Self::F32 => (-60, 60),
            Self::F64 => (-400, 400),
            _ => (0, 0),
        }
    }
}

impl RedOp {
    /// All, by number.
    pub const ALL: [Self; 6] = [Self::Sum, Self::Prod, Self::Max, Self::Min, Self::Avg, Self::PreMulSum];

    /// nccl-tests' name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sum => "sum",
            Self::Prod => "prod",
            Self::Max => "max",
            Self::Min => "min",
            Self::Avg => "avg",
            Self::PreMulSum => "mulsum",
        }
    }

    /// The release of NCCL that brought it.
    pub fn since(self) -> (i32, i32) {
        match self {
            Self::Avg => (2, 10),
            Self::PreMulSum => (2, 11),
            _ => (2, 3),
        }
    }
}

/// The bytes of the factor that a rank has in [`RedOp::PreMulSum`]: 1 or 2, by parity.
pub fn scalar(dtype: DataType, rank: usize) -> [u8; 8] {
    let value = 1 + (rank as i64 & 1);
    let bits = match dtype.class() {
        ValueClass::Signed | ValueClass::Unsigned => value as u64,
        ValueClass::Single => u64::from((value as f32).to_bits()),
        ValueClass::Double => (value as f64).to_bits(),
        ValueClass::Table => dtype.format().and_then(|format| encode(format, value, 0)).map_or(0, u64::from),
    };
    bits.to_le_bytes()
}

impl ValuePlan {
    /// Values that are only copied: any bits.
    pub fn copy(dtype: DataType, seed: u64) -> Self {
        Self {
            shift: dtype.shift(),
            class: ValueClass::Unsigned,
            op: None,
            n_ranks: 1,
            seed,
            span: 0,
            low: 0,
            scale: 0,
            table: Vec::new(),
            middle: 0,
        }
    }

    /// Values whose reduction over `n_ranks` is exact in any order; `None` where the type has no such values: too many ranks
    /// for its mantissa, or a mean over a number of ranks that is no power of two.
    pub fn reduce(dtype: DataType, op: RedOp, n_ranks: usize, seed: u64) -> Option<Self> {
        let (class, n, exact) = (dtype.class(), n_ranks as u64, dtype.exact());
        let is_float = !matches!(class, ValueClass::Signed | ValueClass::Unsigned);
        let mut plan = Self { class, op: Some(op), n_ranks: n, ..Self::copy(dtype, seed) };
        let largest = match op {
            // Their arithmetic wraps.
            _ if !is_float && op != RedOp::Avg => return Some(plan),
            RedOp::Avg if !n.is_power_of_two() => return None,
            RedOp::Avg => exact / (n * n),
            RedOp::Sum => exact / n,
            RedOp::PreMulSum => exact / (2 * n),
            RedOp::Prod | RedOp::Max | RedOp::Min => exact,
        };
        if largest == 0 {
            return None;
        }
        // Small numbers of a type are few; more would only make the table longer.
        let largest = largest.min((1 << 30) - 1);
        (plan.span, plan.low) =
            if class == ValueClass::Unsigned { (largest + 1, 0) } else { (2 * largest + 1, largest) };
        let (least, most) = if op == RedOp::Prod { (0, 0) } else { dtype.exponents() };
        let exponent = least + (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as i32 % (most - least + 1);
        match class {
            ValueClass::Single => plan.scale = u64::from(2f32.powi(exponent).to_bits()),
            ValueClass::Double => plan.scale = 2f64.powi(exponent).to_bits(),
            ValueClass::Table => {
                let format = dtype.format()?;
                let middle = exact as i64;
                plan.table =
                    (-middle..=middle).map(|value| encode(format, value, exponent)).collect::<Option<_>>()?;
                plan.middle = exact;
            }
            ValueClass::Signed | ValueClass::Unsigned => {}
        }
        Some(plan)
    }

    /// Small integers, for products of matrices that stay exact.
    pub fn small(dtype: DataType, largest: u64, seed: u64) -> Self {
        let mut plan = Self { class: dtype.class(), ..Self::copy(dtype, seed) };
        let largest = largest.min(dtype.exact());
        (plan.span, plan.low) = (2 * largest + 1, largest);
        plan.scale = match plan.class {
            ValueClass::Single => u64::from(1f32.to_bits()),
            _ => 1f64.to_bits(),
        };
        if let Some(format) = dtype.format() {
            let middle = dtype.exact() as i64;
            plan.table = (-middle..=middle).filter_map(|value| encode(format, value, 0)).collect();
            plan.middle = dtype.exact();
        }
        plan
    }

    /// What a rank's own value is multiplied with, so that the mean is whole.
    pub fn factor(&self) -> u64 {
        if self.op == Some(RedOp::Avg) { self.n_ranks } else { 1 }
    }
}

/// The code of `value` times 2^`exponent`; `None` if the format does not hold it exactly.
fn encode(format: &FloatFormat, value: i64, exponent: i32) -> Option<u16> {
    let sign = u16::from(value < 0) << (format.exponent_bits + format.mantissa_bits);
    let magnitude = value.unsigned_abs();
    if magnitude == 0 {
        return Some(sign);
    }
    let bias = (1 << (format.exponent_bits - 1)) - 1;
    let top = 63 - magnitude.leading_zeros() as i32;
    let m = format.mantissa_bits as i32;
    // Normal numbers from 2^(1 - bias) on.
    let power = (top + exponent).max(1 - bias);
    // The value in units of the last place at that power.
    let shift = exponent - (power - m);
    let units = if shift >= 0 {
        magnitude.checked_shl(shift as u32)?
    } else {
        let down = (-shift) as u32;
        if down >= 64 || magnitude >> down << down != magnitude {
            return None;
        }
        magnitude >> down
    };
    if units >= 1 << (m + 1) {
        return None;
    }
    let is_normal = units >= 1 << m;
    let coded = if is_normal { power + bias } else { 0 };
    let last = (1 << format.exponent_bits) - 1;
    let mantissa = (units & ((1 << m) - 1)) as u16;
    let is_special = coded > last || coded == last && (!format.is_full || mantissa == (1 << m) - 1);
    (!is_special).then_some(sign | (coded as u16) << format.mantissa_bits | mantissa)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::float_cmp, reason = "both are exact")]
    fn known_codes() {
        assert_eq!(encode(&F16, 1, 0), Some(0x3C00));
        assert_eq!(encode(&F16, -2, 0), Some(0xC000));
        assert_eq!(encode(&F16, 1, -24), Some(1));
        assert_eq!(encode(&F16, 65504, 0), Some(0x7BFF));
        assert_eq!(encode(&F16, 65536, 0), None);
        assert_eq!(encode(&F16, 2049, 0), None);
        assert_eq!(encode(&BF16, 3, 0), Some(0x4040));
        assert_eq!(encode(&E4M3, 448, 0), Some(0x7E));
        assert_eq!(encode(&E4M3, 480, 0), None, "that code is NaN");
        assert_eq!(encode(&E4M3, 1, -9), Some(1));
        assert_eq!(encode(&E5M2, 7, 0), Some(0x47));
        for value in -256..=256i64 {
            let code = encode(&BF16, value, 5).unwrap();
            assert_eq!(f32::from_bits(u32::from(code) << 16), value as f32 * 32.0);
        }
    }

    #[test]
    fn every_plan_keeps_partial_sums_exact() {
        for dtype in DataType::ALL {
            for op in RedOp::ALL {
                for n in [1, 2, 3, 4, 8, 16, 72] {
                    let Some(plan) = ValuePlan::reduce(dtype, op, n, 7) else { continue };
                    if plan.span == 0 {
                        continue;
                    }
                    let largest = (plan.span - 1 - plan.low).max(plan.low) * plan.factor();
                    let times = match op {
                        RedOp::Sum | RedOp::Avg => n as u64,
                        RedOp::PreMulSum => 2 * n as u64,
                        _ => 1,
                    };
                    assert!(largest * times <= dtype.exact(), "{dtype:?} {op:?} {n}");
                }
            }
        }
        assert!(ValuePlan::reduce(DataType::F32, RedOp::Avg, 3, 0).is_none());
        assert!(ValuePlan::reduce(DataType::F8E5m2, RedOp::Sum, 16, 0).is_none());
        assert!(ValuePlan::reduce(DataType::F32, RedOp::Sum, 10_000, 0).is_some());
    }
}
