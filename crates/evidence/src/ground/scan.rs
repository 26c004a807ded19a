//! Reading fields off the front of a line. Each step leaves the scan where it was if it does not fit.

/// What is left of a line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scan<'a>(pub(crate) &'a [u8]);

impl<'a> Scan<'a> {
    /// Takes exactly these bytes.
    #[inline]
    pub(crate) fn lit<const N: usize>(&mut self, lit: &[u8; N]) -> Option<()> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        if head != lit {
            return None;
        }
        self.0 = rest;
        Some(())
    }

    /// Takes a decimal number without sign.
    #[inline]
    pub(crate) fn dec(&mut self) -> Option<u64> {
        let (&first, mut rest) = self.0.split_first()?;
        let mut value = u64::from(first.wrapping_sub(b'0'));
        if value > 9 {
            return None;
        }
        while let Some((&byte, next)) = rest.split_first() {
            let digit = u64::from(byte.wrapping_sub(b'0'));
            if digit > 9 {
                break;
            }
            value = value.checked_mul(10)?.checked_add(digit)?;
            rest = next;
        }
        self.0 = rest;
        Some(value)
    }

    /// Takes a decimal number that fits 32 bits.
    #[inline]
    pub(crate) fn dec32(&mut self) -> Option<u32> {
        u32::try_from(self.dec()?).ok()
    }

    /// Takes a decimal number with an optional minus.
    #[inline]
    pub(crate) fn int(&mut self) -> Option<i64> {
        let mut at = *self;
        let negative = at.lit(b"-").is_some();
        let value = i64::try_from(at.dec()?).ok()?;
        *self = at;
        Some(if negative { -value } else { value })
    }

    /// Takes a hexadecimal number without `0x`, of at most 16 digits.
    #[inline]
    pub(crate) fn hex(&mut self) -> Option<u64> {
        let mut value = 0_u64;
        let mut n = 0_u32;
        let mut rest = self.0;
        while let Some((&byte, next)) = rest.split_first() {
            let digit = match byte {
                b'0'..=b'9' => byte - b'0',
                b'a'..=b'f' => byte - b'a' + 10,
                b'A'..=b'F' => byte - b'A' + 10,
                _ => break,
            };
            n += 1;
            if n > 16 {
                return None;
            }
            value = value << 4 | u64::from(digit);
            rest = next;
        }
        if n == 0 {
            return None;
        }
        self.0 = rest;
        Some(value)
    }

    /// Takes a pointer as `%p` prints it: `0x7f…` or `(nil)`.
    #[inline]
    pub(crate) fn pointer(&mut self) -> Option<u64> {
        let mut at = *self;
        let value = match at.lit(b"0x") {
            Some(()) => at.hex()?,
            None => at.lit(b"(nil)").map(|()| 0)?,
        };
        *self = at;
        Some(value)
    }

    /// Takes everything up to the next blank, which must be there. May be empty.
    #[inline]
    pub(crate) fn word(&mut self) -> Option<&'a [u8]> {
        let at = self.0.iter().position(|b| *b == b' ')?;
        let (word, rest) = self.0.split_at_checked(at)?;
        self.0 = rest;
        Some(word)
    }
}
