//! Identifiers of ranks, processes and devices. Global, local and group ranks are separate types.

use std::fmt;
use std::sync::Arc;

/// Global rank: 0 .. world size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rank(pub u32);

/// Rank within its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalRank(pub u32);

/// Rank within one communicator or process group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupRank(pub u32);

/// Process id in its own host (or pid namespace).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pid(pub u32);

/// Host name up to the first dot, or an address if only that is known.
pub type Host = Arc<str>;

/// PCI address of a GPU: domain, bus, device, function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PciAddress {
    /// PCI domain.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
    /// Device number, 0..32.
    pub device: u8,
    /// Function number, 0..8.
    pub function: u8,
}

impl PciAddress {
    /// Decodes NCCL's `busId` (`%lx`): domain << 20 | bus << 12 | device << 4 | function; `0x1b000` is 0000:1b:00.0.
    pub fn from_nccl_bus_id(bus_id: u64) -> Self {
        Self {
            domain: (bus_id >> 20) as u32,
            bus: (bus_id >> 12) as u8,
            device: ((bus_id >> 4) & 0xff) as u8,
            function: (bus_id & 0xf) as u8,
        }
    }

    /// Parses `0000:1b:00.0`, `00000000:1B:00.0`, `0000:1b:00` and `1b:00.0`.
    pub fn parse(text: &str) -> Option<Self> {
        let (head, function) = match text.rsplit_once('.') {
            Some((head, function)) => (head, u8::from_str_radix(function, 16).ok()?),
            None => (text, 0),
        };
        let mut parts = head.rsplit(':');
        let device = u8::from_str_radix(parts.next()?, 16).ok()?;
        let bus = u8::from_str_radix(parts.next()?, 16).ok()?;
        let domain = parts.next().map_or(Some(0), |d| u32::from_str_radix(d, 16).ok())?;
        parts.next().is_none().then_some(Self { domain, bus, device, function })
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {}", self.0)
    }
}

/// A set of ranks, sorted, printed compressed: `0-1,3`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSet(Vec<Rank>);

impl RankSet {
    /// The ranks in ascending order.
    pub fn ranks(&self) -> &[Rank] {
        &self.0
    }

    /// Whether there is no rank.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Number of ranks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether `rank` is in the set.
    pub fn contains(&self, rank: Rank) -> bool {
        self.0.binary_search(&rank).is_ok()
    }

    /// For a sentence: as it is printed while that is short; of many ranks at equal distances the rule (`1-10233 in steps
    /// of 8, 1280 ranks`), of others the first, and how many there are.
    pub fn words(&self) -> String {
        /// Longer sets are no part of a sentence.
        const MAX: usize = 48;
        let text = self.to_string();
        let (Some(first), Some(second), Some(last)) = (self.0.first(), self.0.get(1), self.0.last()) else {
            return text;
        };
        if text.len() <= MAX {
            return text;
        }
        let step = second.0 - first.0;
        if self.0.windows(2).all(|pair| matches!(pair, [a, b] if b.0 - a.0 == step)) {
            return format!("{}-{} in steps of {step}, {} ranks", first.0, last.0, self.len());
        }
        let end = text.get(..MAX).and_then(|head| head.rfind(',')).unwrap_or(0);
        format!("{} and others, {} ranks in all", text.get(..end).unwrap_or_default(), self.len())
    }
}

impl FromIterator<Rank> for RankSet {
    fn from_iter<I: IntoIterator<Item = Rank>>(iter: I) -> Self {
        let mut ranks: Vec<Rank> = iter.into_iter().collect();
        ranks.sort_unstable();
        ranks.dedup();
        Self(ranks)
    }
}

impl fmt::Display for RankSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0.as_slice();
        let mut first = true;
        while let Some(&Rank(start)) = rest.first() {
            let run = rest.iter().zip(start..=u32::MAX).take_while(|(r, n)| r.0 == *n).count();
            let end = start + (run as u32 - 1);
            if !first {
                f.write_str(",")?;
            }
            first = false;
            match run {
                1 => write!(f, "{start}")?,
                _ => write!(f, "{start}-{end}")?,
            }
            rest = rest.get(run..).unwrap_or_default();
        }
        Ok(())
    }
}
