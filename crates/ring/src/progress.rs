//! The progress of an operation in one word. Every step is a compare-and-swap of the whole word, which includes
//! the operation's generation: a late event changes nothing, and exactly one step is the last.

use crate::sync::{AtomicU64, Ordering};

/// Channels that have started: bits 0 to 7. Stopped: 8 to 15. Open proxies: 16 to 27. Expected channels: 28 to 35.
/// Flags: 36 to 39. Generation: 40 to 63.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelProgress(pub(crate) u64);

/// Handed over to the stream.
pub(crate) const HANDED_OVER: u64 = 1 << 36;
/// It has ended and is being put away.
pub(crate) const OVER: u64 = 1 << 37;
/// Launched: NCCL has reported algorithm and channels.
pub(crate) const LAUNCHED: u64 = 1 << 38;
/// A proxy has worked for it.
pub(crate) const PROXIED: u64 = 1 << 39;

const BYTE: u64 = 0xff;
const PROXIES: u64 = 0xfff;

impl ChannelProgress {
    pub(crate) const fn new(generation: u64) -> Self {
        Self((generation & 0xff_ffff) << 40)
    }
    pub(crate) const fn started(self) -> u64 {
        self.0 & BYTE
    }
    pub(crate) const fn stopped(self) -> u64 {
        self.0 >> 8 & BYTE
    }
    pub(crate) const fn proxies(self) -> u64 {
        self.0 >> 16 & PROXIES
    }
    pub(crate) const fn expected(self) -> u64 {
        self.0 >> 28 & BYTE
    }
    pub(crate) const fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }
    pub(crate) const fn generation(self) -> u64 {
        self.0 >> 40
    }

    /// No channel and no proxy is running, and the program has handed it over.
    pub(crate) const fn is_quiet(self) -> bool {
        self.has(HANDED_OVER) && self.started() == self.stopped() && self.proxies() == 0
    }

    /// All announced channels have started and stopped.
    const fn is_complete(self) -> bool {
        self.is_quiet() && self.expected() > 0 && self.stopped() >= self.expected()
    }

    pub(crate) const fn with(self, flag: u64) -> Self {
        Self(self.0 | flag)
    }
    pub(crate) const fn expecting(self, channels: u8) -> Self {
        Self(self.0 & !(BYTE << 28) | (channels as u64) << 28)
    }
    /// None if the counter is full: 255 channels are four times NCCL's maximum.
    pub(crate) const fn one_started(self) -> Option<Self> {
        if self.started() == BYTE { None } else { Some(Self(self.0 + 1)) }
    }
    pub(crate) const fn one_stopped(self) -> Option<Self> {
        if self.stopped() >= self.started() { None } else { Some(Self(self.0 + (1 << 8))) }
    }
    pub(crate) const fn proxy_started(self) -> Option<Self> {
        if self.proxies() == PROXIES { None } else { Some(Self(self.0 + (1 << 16)).with(PROXIED)) }
    }
    pub(crate) const fn proxy_stopped(self) -> Option<Self> {
        if self.proxies() == 0 { None } else { Some(Self(self.0 - (1 << 16))) }
    }
}

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StepResult {
    /// The operation is gone, or this step cannot follow its state.
    Refused,
    /// The step was made; the operation continues.
    Goes,
    /// The step was made and was the last: the caller puts the operation away.
    Ends,
}

/// Makes a step on the operation of this generation (its lowest 24 bits are compared).
pub(crate) fn step(
    word: &AtomicU64,
    generation: u64,
    change: impl Fn(ChannelProgress) -> Option<ChannelProgress>,
) -> StepResult {
    let mut seen = ChannelProgress(word.load(Ordering::Relaxed));
    loop {
        if seen.generation() != generation & 0xff_ffff || seen.has(OVER) {
            return StepResult::Refused;
        }
        let Some(next) = change(seen) else {
            return StepResult::Refused;
        };
        let ends = next.is_complete();
        let next = if ends { next.with(OVER) } else { next };
        match word.compare_exchange_weak(seen.0, next.0, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) if ends => return StepResult::Ends,
            Ok(_) => return StepResult::Goes,
            Err(now) => seen = ChannelProgress(now),
        }
    }
}

/// Ends an operation on which nothing is running; false if something is, or if it has already ended.
pub(crate) fn put_away(word: &AtomicU64, generation: u64, only_quiet: bool) -> bool {
    let mut seen = ChannelProgress(word.load(Ordering::Relaxed));
    loop {
        let may = !only_quiet || seen.is_quiet();
        if seen.generation() != generation & 0xff_ffff || seen.has(OVER) || !may {
            return false;
        }
        match word.compare_exchange_weak(seen.0, seen.with(OVER).0, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(now) => seen = ChannelProgress(now),
        }
    }
}
