//! A scanner of JSON that is as lenient as traces need: it finds where values end, and keeps them as bytes.
//!
//! `None` always means that the bytes end too early. Positions are indices into the slice given.

use memchr::memchr;

/// What is wrong with bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// They end within a value.
    Short,
    /// This is not JSON.
    Bad,
}

/// Longest string that is looked for beyond a stray quote.
const MAX_MENDED_BYTES: usize = 64 << 10;

/// Position of the first byte that is no white space.
#[inline]
pub(super) fn space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(b' ' | b'\n' | b'\r' | b'\t') = bytes.get(at) {
        at += 1;
    }
    at
}

/// Strings up to this long are looked through eight bytes at a time: keys and most values, for which the call of a vector search
/// costs more.
const SHORT_BYTES: usize = 32;

/// A byte eight times.
const fn eight(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// The highest bit of each byte that is zero. Those above the lowest one may be wrong.
#[inline]
fn zeros(word: u64) -> u64 {
    word.wrapping_sub(eight(1)) & !word & eight(0x80)
}

/// The next eight bytes, the first of them lowest.
#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?))
}

#[inline]
fn quote(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < SHORT_BYTES
        && let Some(word) = word(bytes, at)
    {
        let found = zeros(word ^ eight(b'"'));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    Some(at + memchr(b'"', bytes.get(at..)?)?)
}

/// Position of the quote that ends a string whose content starts at `at`. With `mend`, a quote that nothing of JSON
/// follows belongs to the string: some profilers write names unescaped.
#[inline]
pub(super) fn string_end(bytes: &[u8], at: usize, mend: bool) -> Result<usize, Stop> {
    let mut from = at;
    loop {
        let rest = bytes.get(from..).ok_or(Stop::Short)?;
        let end = from + quote(rest).ok_or(Stop::Short)?;
        let content = bytes.get(at..end).unwrap_or_default();
        let n_slashes = content.iter().rev().take_while(|b| **b == b'\\').count();
        if n_slashes % 2 == 0 {
            if !mend {
                return Ok(end);
            }
            match bytes.get(space(bytes, end + 1)) {
                None => return Err(Stop::Short),
                Some(b',' | b':' | b'}' | b']') => return Ok(end),
                Some(_) if end - at > MAX_MENDED_BYTES => return Err(Stop::Bad),
                Some(_) => {}
            }
        }
        from = end + 1;
    }
}

/// Position behind the value that starts at `at`.
#[inline]
pub(super) fn value_end(bytes: &[u8], at: usize, mend: bool) -> Result<usize, Stop> {
    match bytes.get(at).ok_or(Stop::Short)? {
        b'"' => Ok(string_end(bytes, at + 1, mend)? + 1),
        b'{' | b'[' => container_end(bytes, at, mend),
        b'}' | b']' | b',' | b':' => Err(Stop::Bad),
        _ => {
            // A number, a word, or hexadecimal digits without quotes.
            let rest = bytes.get(at..).ok_or(Stop::Short)?;
            let is_part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-' | b'_');
            let n = rest.iter().position(|b| !is_part(b)).ok_or(Stop::Short)?;
            match rest.get(n) {
                Some(b',' | b'}' | b']' | b'\n' | b' ' | b'\r' | b'\t') if n > 0 => Ok(at + n),
                _ => Err(Stop::Bad),
            }
        }
    }
}

/// Whether a byte begins or ends a string, an object or an array. Brackets differ from braces in one bit.
#[inline]
fn is_structure(byte: u8) -> bool {
    byte == b'"' || matches!(byte | 0x20, b'{' | b'}')
}

/// Position of the first such byte.
#[inline]
fn structure(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while let Some(word) = word(bytes, at) {
        let lower = word | eight(0x20);
        let found = zeros(word ^ eight(b'"')) | zeros(lower ^ eight(b'{')) | zeros(lower ^ eight(b'}'));
        if found != 0 {
            return Some(at + found.trailing_zeros() as usize / 8);
        }
        at += 8;
    }
    Some(at + bytes.get(at..)?.iter().position(|b| is_structure(*b))?)
}

/// Position behind the object or array that starts at `at`.
fn container_end(bytes: &[u8], at: usize, mend: bool) -> Result<usize, Stop> {
    let mut depth = 0_u32;
    let mut at = at;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        at += structure(rest).ok_or(Stop::Short)?;
        match bytes.get(at).ok_or(Stop::Short)? {
            b'"' => at = string_end(bytes, at + 1, mend)?,
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth -= 1;
                if depth == 0 {
                    return Ok(at + 1);
                }
            }
            _ => {}
        }
        at += 1;
    }
}

/// The keys of an object, with their values as bytes: strings without their quotes.
pub(super) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    mend: bool,
    /// Something that is not JSON is between two entries.
    pub(super) is_odd: bool,
}

/// Goes over an object that is whole.
pub(super) fn entries(object: &[u8], mend: bool) -> Entries<'_> {
    Entries { bytes: object, at: 1, mend, is_odd: false }
}

impl<'a> Iterator for Entries<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        // The next quote or brace is hardly ever more than a few bytes away.
        let key_at = self.at + self.bytes.get(self.at..)?.iter().position(|b| matches!(b, b'"' | b'}'))?;
        if self.bytes.get(key_at) != Some(&b'"') {
            return None;
        }
        let key_end = string_end(self.bytes, key_at + 1, self.mend).ok()?;
        let value_at = space(self.bytes, space(self.bytes, key_end + 1) + 1);
        let value_end = value_end(self.bytes, value_at, self.mend).ok()?;
        self.at = value_end;
        self.is_odd |= !matches!(self.bytes.get(space(self.bytes, value_end)), Some(b',' | b'}'));
        Some((self.bytes.get(key_at + 1..key_end)?, unquoted(self.bytes.get(value_at..value_end)?)))
    }
}

/// A value without its quotes, if it has some.
#[inline]
pub(super) fn unquoted(value: &[u8]) -> &[u8] {
    value.strip_prefix(b"\"").and_then(|rest| rest.strip_suffix(b"\"")).unwrap_or(value)
}

/// A whole number; whatever follows the digits is left out.
pub(super) fn integer(value: &[u8]) -> Option<i64> {
    let (is_negative, digits) = match value.split_first()? {
        (b'-', rest) => (true, rest),
        _ => (false, value),
    };
    let mut number: i64 = 0;
    let mut n_digits = 0;
    for digit in digits.iter().take_while(|b| b.is_ascii_digit()) {
        number = number.saturating_mul(10).saturating_add(i64::from(digit - b'0'));
        n_digits += 1;
    }
    (n_digits > 0).then_some(if is_negative { -number } else { number })
}

/// Microseconds with a fraction, as nanoseconds, without rounding through a float.
#[inline]
pub(super) fn micros(value: &[u8]) -> Option<i64> {
    let whole = integer(value)?;
    let mut ns = whole.saturating_mul(1000);
    let Some(dot) = value.iter().position(|b| matches!(b, b'.' | b'e')) else { return Some(ns) };
    let rest = value.get(dot + 1..).unwrap_or_default();
    if value.get(dot) == Some(&b'e') || rest.contains(&b'e') || rest.contains(&b'E') {
        let exact: f64 = std::str::from_utf8(value).ok()?.parse().ok()?;
        return Some((exact * 1e3) as i64);
    }
    let is_negative = value.first() == Some(&b'-');
    let mut unit = 100;
    for digit in rest.iter().take(3).take_while(|b| b.is_ascii_digit()) {
        let part = unit * i64::from(digit - b'0');
        ns = ns.saturating_add(if is_negative { -part } else { part });
        unit /= 10;
    }
    Some(ns)
}

/// The product of an array of whole numbers: `[16, 4, 1]`.
pub(super) fn product(value: &[u8]) -> Option<u32> {
    let inner = value.strip_prefix(b"[")?.strip_suffix(b"]")?;
    let mut product: u32 = 1;
    for part in inner.split(|b| *b == b',') {
        product = product.saturating_mul(u32::try_from(integer(part.trim_ascii())?).ok()?);
    }
    Some(product)
}

/// An array of whole numbers, also as text; empty if it is cut (`[0, 1, ...]`) or longer than a job may be.
pub(super) fn list(value: &[u8]) -> Vec<u32> {
    const MAX: usize = 1 << 20;
    let inner = value.strip_prefix(b"[").and_then(|v| v.strip_suffix(b"]")).unwrap_or_default();
    let parts = inner.split(|b| *b == b',').take(MAX);
    let numbers: Option<Vec<u32>> =
        parts.map(|part| std::str::from_utf8(part.trim_ascii()).ok()?.parse().ok()).collect();
    numbers.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::{is_structure, quote, structure};
    use proptest::prelude::*;

    proptest! {
        /// Eight bytes at a time find what one at a time does.
        #[test]
        fn what_is_looked_for_is_found(bytes in prop::collection::vec(prop_oneof![3 => any::<u8>(), 1 => Just(b'"'), 1 => Just(b'{'), 1 => Just(b']'), 20 => Just(b'a')], 0..80)) {
            prop_assert_eq!(quote(&bytes), bytes.iter().position(|b| *b == b'"'));
            prop_assert_eq!(structure(&bytes), bytes.iter().position(|b| is_structure(*b)));
        }
    }
}
