//! Text whose digits do not count: each of them is a 0. The tables of searches are made of such text, so one search
//! shows which lines are irrelevant for any numbers in them.

/// A byte, or 0 for a digit.
#[inline]
pub(crate) fn blind(byte: u8) -> u8 {
    if byte.is_ascii_digit() { b'0' } else { byte }
}

/// The same for each byte of a word.
#[inline]
pub(crate) fn blind_word(word: u64) -> u64 {
    const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
    let above = word ^ 0x3030_3030_3030_3030;
    // The high bit of each byte that is none of 0 to 9 once 0x30 is taken away.
    let others = ((above & LOW) + 0x7676_7676_7676_7676) | above;
    let digits = !others & !LOW;
    word & !((digits >> 3) - (digits >> 7))
}

#[cfg(test)]
mod tests {
    use super::{blind, blind_word};

    #[test]
    fn a_word_is_its_bytes() {
        for byte in 0..=u8::MAX {
            for other in [b'0', b'9', b'a', 0, 0xff, b'/', b':'] {
                let word = [byte, other, byte, byte, other, other, byte, other];
                assert_eq!(blind_word(u64::from_le_bytes(word)), u64::from_le_bytes(word.map(blind)));
            }
        }
    }
}
