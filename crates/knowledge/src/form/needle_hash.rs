//! Maps four bytes of case-folded text to a bit of the bitmap. The build script reads this file, too.

/// Bytes of a gram.
pub(crate) const GRAM_BYTES: usize = 4;
/// Base-2 logarithm of the number of bits in the bitmap.
pub(crate) const BITS: u32 = 17;

/// The bit of a gram.
#[inline]
pub(crate) fn place(gram: u32) -> usize {
    (gram.wrapping_mul(0x9E37_79B1) >> (32 - BITS)) as usize
}
