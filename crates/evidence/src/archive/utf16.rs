//! Text in UTF-16, as Windows tools and PowerShell redirections write it, decoded on the way.

use std::io::{self, Read};

/// UTF-8 from UTF-16; unpaired surrogates become the replacement character, the byte order mark is passed over.
pub(super) struct Utf8From<R> {
    input: R,
    big_endian: bool,
    /// Bytes of a unit or pair that is not whole yet.
    raw: Vec<u8>,
    /// Decoded, not yet handed out.
    text: Vec<u8>,
    at: usize,
    over: bool,
    started: bool,
}

const BLOCK_BYTES: usize = 16 << 10;

impl<R: Read> Utf8From<R> {
    pub(super) fn new(input: R, big_endian: bool) -> Self {
        Self { input, big_endian, raw: Vec::new(), text: Vec::new(), at: 0, over: false, started: false }
    }

    fn refill(&mut self) -> io::Result<()> {
        let kept = self.raw.len();
        self.raw.resize(kept + BLOCK_BYTES, 0);
        let result = self.input.read(self.raw.get_mut(kept..).unwrap_or_default());
        self.raw.truncate(kept + result.as_ref().copied().unwrap_or(0));
        self.over = matches!(result, Ok(0));
        result?;
        let mut units: Vec<u16> = self
            .raw
            .chunks_exact(2)
            .map(|pair| {
                let pair = [pair.first().copied().unwrap_or(0), pair.get(1).copied().unwrap_or(0)];
                if self.big_endian { u16::from_be_bytes(pair) } else { u16::from_le_bytes(pair) }
            })
            .collect();
        // A high surrogate at the end waits for its low one.
        if !self.over && units.last().is_some_and(|u| (0xd800..0xdc00).contains(u)) {
            units.pop();
        }
        self.raw.drain(..units.len() * 2);
        self.text.clear();
        self.at = 0;
        for c in char::decode_utf16(units).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)) {
            if !self.started && c == '\u{feff}' {
                self.started = true;
                continue;
            }
            self.started = true;
            self.text.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
        }
        Ok(())
    }
}

impl<R: Read> Read for Utf8From<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        while self.at >= self.text.len() && !self.over {
            self.refill()?;
        }
        let mut ready = self.text.get(self.at..).unwrap_or_default();
        let n = ready.read(buf)?;
        self.at += n;
        Ok(n)
    }
}
