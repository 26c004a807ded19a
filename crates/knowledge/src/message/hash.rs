//! Hashing of text stretches. The build script reads this file, too: both sides must agree.

/// Bytes of a gram of a row with a long literal.
pub(crate) const GRAM_BYTES: usize = 8;
/// Bytes of a gram of a row whose literals are short.
pub(crate) const SHORT_GRAM_BYTES: usize = 4;
/// Places of a text that are examined: the multiples of this.
pub(crate) const STRIDE: usize = 4;
/// Base-2 logarithm of the bits of the bitmap: 32 KB, so that it stays in the nearest cache.
pub(crate) const BITMAP_BITS: u32 = 18;
/// Base-2 logarithm of the buckets in the table of grams.
pub(crate) const BUCKET_BITS: u32 = 14;

/// Spreads a key over all bits; the highest bits are the best mixed.
#[inline]
pub(crate) fn hash(key: u64) -> u64 {
    (key ^ key >> 29).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
