//! How four bytes of folded text become a place in the bitmap. The build script reads this file, too.

/// Bytes of a gram.
pub(crate) const GRAM_BYTES: usize = 4;
/// The bitmap has two to this many bits.
pub(crate) const BITS: u32 = 17;

/// The bit of a gram.
#[inline]
pub(crate) fn place(gram: u32) -> usize {
    (gram.wrapping_mul(0x9E37_79B1) >> (32 - BITS)) as usize
}
