//! Protocol Buffers' wire format: the fields of a message, one after the other, borrowed.
//!
//! Walked by hand: a trace is then read in one pass and without a tree of it in memory.

/// The value of a field.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Field<'a> {
    Number(u64),
    Double(f64),
    Bytes(&'a [u8]),
}

impl<'a> Field<'a> {
    pub(super) fn number(self) -> u64 {
        match self {
            Self::Number(n) => n,
            _ => 0,
        }
    }

    pub(super) fn bytes(self) -> &'a [u8] {
        match self {
            Self::Bytes(bytes) => bytes,
            _ => &[],
        }
    }

    pub(super) fn text(self) -> &'a str {
        std::str::from_utf8(self.bytes()).unwrap_or_default()
    }
}

/// The fields of a message. Ends at the first thing that is no field; `is_whole` shows whether that was the end.
pub(super) struct Fields<'a> {
    rest: &'a [u8],
}

/// Goes over a message.
pub(super) fn fields(message: &[u8]) -> Fields<'_> {
    Fields { rest: message }
}

impl Fields<'_> {
    /// Nothing is left that could not be read.
    pub(super) fn is_whole(&self) -> bool {
        self.rest.is_empty()
    }
}

fn varint(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut number: u64 = 0;
    for (n, byte) in bytes.iter().take(10).enumerate() {
        number |= u64::from(byte & 0x7f).checked_shl(7 * n as u32).unwrap_or(0);
        if *byte < 0x80 {
            return Some((number, bytes.get(n + 1..)?));
        }
    }
    None
}

impl<'a> Iterator for Fields<'a> {
    type Item = (u32, Field<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        let (tag, rest) = varint(self.rest)?;
        let number = u32::try_from(tag >> 3).ok().filter(|n| *n > 0)?;
        let (field, rest) = match tag & 7 {
            0 => {
                let (value, rest) = varint(rest)?;
                (Field::Number(value), rest)
            }
            1 => {
                let (value, rest) = rest.split_first_chunk::<8>()?;
                (Field::Double(f64::from_le_bytes(*value)), rest)
            }
            2 => {
                let (n, rest) = varint(rest)?;
                let (value, rest) = rest.split_at_checked(usize::try_from(n).ok()?)?;
                (Field::Bytes(value), rest)
            }
            5 => {
                let (value, rest) = rest.split_first_chunk::<4>()?;
                (Field::Number(u32::from_le_bytes(*value).into()), rest)
            }
            _ => return None,
        };
        self.rest = rest;
        Some((number, field))
    }
}
