//! Faults planted on purpose, to prove that each check detects what it claims to.
//!
//! A fault is one flipped bit, repeatedly, in buffers of this program: in what a GPU sends, computes, keeps or
//! receives. Nothing outside of them is touched.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sys::{LibraryError, Stream};
use crate::verify::place::FaultSite;

/// A planted fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Fault {
    /// A GPU's own buffer changes between writing and sending.
    Buffer(usize),
    /// A GPU computes wrongly.
    Product(usize),
    /// A GPU's memory does not keep what is written.
    Memory(usize),
    /// The second GPU receives wrongly from the first.
    Link(usize, usize),
    /// Whatever a GPU receives or computes is wrong.
    Gpu(usize),
}

impl Fault {
    /// From `buffer:1`, `product:0`, `memory:1`, `link:0-1` or `gpu:1`.
    ///
    /// # Errors
    /// How it should look.
    pub fn parse(text: &str) -> Result<Self, String> {
        let wrong = || "write buffer:GPU, product:GPU, memory:GPU, gpu:GPU or link:FROM-TO".to_owned();
        let (kind, of) = text.split_once(':').ok_or_else(wrong)?;
        let number = |text: &str| text.parse::<usize>().map_err(|_| wrong());
        Ok(match kind {
            "buffer" => Self::Buffer(number(of)?),
            "product" => Self::Product(number(of)?),
            "memory" => Self::Memory(number(of)?),
            "gpu" => Self::Gpu(number(of)?),
            "link" => {
                let (from, to) = of.split_once('-').ok_or_else(wrong)?;
                let (from, to) = (number(from)?, number(to)?);
                if from == to {
                    return Err(wrong());
                }
                Self::Link(from, to)
            }
            _ => return Err(wrong()),
        })
    }

    /// A fault of any kind on any of `n` GPUs.
    pub fn random(random: &mut Random, n: usize) -> Self {
        let gpu = random.below(n as u64) as usize;
        match random.below(if n > 1 { 5 } else { 4 }) {
            0 => Self::Buffer(gpu),
            1 => Self::Product(gpu),
            2 => Self::Memory(gpu),
            3 => Self::Gpu(gpu),
            _ => Self::Link(gpu, (gpu + 1 + random.below(n as u64 - 1) as usize) % n),
        }
    }

    /// Where a check should find it.
    pub fn place(self) -> FaultSite {
        match self {
            Self::Buffer(gpu) | Self::Product(gpu) | Self::Memory(gpu) | Self::Gpu(gpu) => {
                FaultSite::Gpu(gpu)
            }
            Self::Link(from, to) => FaultSite::Link(from, to),
        }
    }

    /// The highest number of a GPU in it.
    pub fn highest(self) -> usize {
        match self {
            Self::Buffer(gpu) | Self::Product(gpu) | Self::Memory(gpu) | Self::Gpu(gpu) => gpu,
            Self::Link(from, to) => from.max(to),
        }
    }
}

/// SplitMix64.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut x = self.0;
        x = (x ^ x >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        x = (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
        x ^ x >> 31
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        if n == 0 { 0 } else { self.draw() % n }
    }
}

/// Where a fault may be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Spot {
    /// A buffer that this GPU has filled and will send.
    Sent,
    /// What this GPU has computed.
    Computed,
    /// Memory that this GPU has written and will read.
    Kept,
    /// What this GPU has received from another, or from all others.
    Received(Option<usize>),
    /// What this GPU has received from itself.
    Copied,
}

/// Plants a fault on one GPU.
pub(super) struct Injector {
    pub(super) fault: Option<Fault>,
    rank: usize,
    random: Random,
    /// Bits flipped so far.
    pub(super) n_flipped: u64,
}

impl Injector {
    pub(super) fn new(fault: Option<Fault>, rank: usize, seed: u64) -> Self {
        Self { fault, rank, random: Random(seed ^ (rank as u64) << 32), n_flipped: 0 }
    }

    fn wants(&self, spot: Spot) -> bool {
        match (self.fault, spot) {
            (Some(Fault::Buffer(gpu)), Spot::Sent) => gpu == self.rank,
            (Some(Fault::Product(gpu)), Spot::Computed) => gpu == self.rank,
            (Some(Fault::Memory(gpu)), Spot::Kept) => gpu == self.rank,
            (Some(Fault::Gpu(gpu)), Spot::Computed | Spot::Received(_) | Spot::Copied) => gpu == self.rank,
            (Some(Fault::Link(from, to)), Spot::Received(sender)) => {
                to == self.rank && sender.is_none_or(|sender| sender == from)
            }
            _ => false,
        }
    }

    /// Flips one bit of this memory, if the fault is of that kind and here.
    pub(super) fn flip(
        &mut self,
        spot: Spot,
        stream: &Stream,
        address: u64,
        size_bytes: usize,
    ) -> Result<(), LibraryError> {
        if size_bytes == 0 || !self.wants(spot) {
            return Ok(());
        }
        let at = address + self.random.below(size_bytes as u64);
        let byte = stream.read::<u8>(at, 1)?.first().copied().unwrap_or_default();
        stream.write(at, &[byte ^ 1 << self.random.below(8)])?;
        self.n_flipped += 1;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_written_as_they_are_read() {
        assert_eq!(Fault::parse("buffer:1"), Ok(Fault::Buffer(1)));
        assert_eq!(Fault::parse("link:0-3"), Ok(Fault::Link(0, 3)));
        for wrong in ["", "gpu", "gpu:x", "link:1", "link:1-1", "ram:0"] {
            assert!(Fault::parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn random_faults_are_of_every_kind_and_on_every_gpu() {
        let mut random = Random(1);
        let all: Vec<Fault> = (0..400).map(|_| Fault::random(&mut random, 4)).collect();
        for gpu in 0..4 {
            for fault in [Fault::Buffer(gpu), Fault::Product(gpu), Fault::Memory(gpu), Fault::Gpu(gpu)] {
                assert!(all.contains(&fault), "{fault:?}");
            }
        }
        assert!(all.iter().all(|fault| fault.highest() < 4 && !matches!(fault, Fault::Link(a, b) if a == b)));
        assert!(all.iter().any(|fault| matches!(fault, Fault::Link(..))));
        assert!((0..100).all(|_| Fault::random(&mut random, 1).highest() == 0));
    }
}
