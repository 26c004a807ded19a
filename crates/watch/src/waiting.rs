//! Whether a process works or waits, from its processor time and its stack.

use crate::digest::{ProcessState, RankDigest};
use crate::event::seconds;
use crate::outside;

/// Over so much time a rank's use of the processor is taken, nanoseconds: the kernel counts in hundredths of a second.
const WINDOW_NS: i64 = 2_000_000_000;
/// A rank that uses more of one processor works. Threads that wake now and then use less.
const BUSY: f64 = 0.05;

/// Whether a process works or waits, as far as it has been watched.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// When it was first seen.
    pub(crate) seen_ns: i64,
    /// Since when it has used almost no processor time.
    idle_ns: i64,
    /// Processor time at that moment, milliseconds.
    idle_cpu_ms: u64,
    /// Time of the agent and processor time where the present window begins.
    window: Option<(i64, u64)>,
    /// Since when its stacks show it on its way to the others.
    meets_ns: Option<i64>,
    /// Hash of its newest stack, and since when it has been that one.
    place: Option<(u64, i64)>,
}

impl Waiting {
    /// Learns from the next word of the same process.
    pub(crate) fn take(mut self, digest: &RankDigest, at_ns: i64, now_ns: i64) -> Self {
        if self.seen_ns == 0 {
            self.seen_ns = now_ns;
        }
        self.meets_ns = is_on_its_way(digest).then(|| self.meets_ns.unwrap_or(now_ns));
        if !digest.stack.is_empty() {
            let hash = digest.stack.iter().flat_map(|frame| frame.bytes().chain([b'\n']));
            let hash = hash.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
            });
            self.place = self.place.filter(|(old, _)| *old == hash).or(Some((hash, now_ns)));
        }
        let Some(cpu_ms) = digest.cpu_ms else {
            return Self { window: None, idle_ns: now_ns, ..self };
        };
        let (began_ns, before_ms) = match self.window {
            Some(window) if window.0 <= at_ns && window.1 <= cpu_ms => window,
            _ => return Self { window: Some((at_ns, cpu_ms)), idle_ns: now_ns, idle_cpu_ms: cpu_ms, ..self },
        };
        let elapsed_ns = at_ns - began_ns;
        if elapsed_ns < WINDOW_NS {
            return self;
        }
        // A rank that hangs in the kernel (a driver that wakes a GPU, a large file) waits for no other rank.
        let is_busy = (cpu_ms - before_ms) as f64 * 1e6 > BUSY * elapsed_ns as f64
            || digest.process == ProcessState::Uninterruptible;
        self.window = Some((at_ns, cpu_ms));
        if is_busy {
            self.idle_ns = now_ns;
            self.idle_cpu_ms = cpu_ms;
        }
        self
    }

    /// Since when it waits for the others; none if nothing says that it does.
    pub(crate) fn since_ns(&self, digest: &RankDigest) -> Option<i64> {
        // Where communicators would not show, a rank that sleeps may well train: its stack must say where it is.
        let idle_ns = digest.would_show.then_some(self.idle_ns).filter(|_| self.window.is_some());
        match (idle_ns, self.meets_ns) {
            (Some(idle), Some(meets)) => Some(idle.min(meets)),
            (one, other) => one.or(other),
        }
    }

    /// Since when it sleeps in one place in which nothing ends by itself: a lock, a sleep, a store, a debugger. None if
    /// it works, or may wait for work that another process does for it.
    pub(crate) fn stuck_ns(&self, digest: &RankDigest) -> Option<i64> {
        let (_, place_ns) = self.place?;
        let is_debugger =
            digest.stack.iter().any(|frame| frame.contains("pdb.py:") || frame.contains("bdb.py:"));
        let place = outside::outside(&digest.stack, None)?;
        let ends_not = match place.label.as_str() {
            "gil" | "sleep" | "torch-distributed" => true,
            // Another process may fill a queue or hold a file lock.
            "lock" => ["acquire (threading.py", "__enter__ (threading.py"]
                .iter()
                .any(|of| place.frame.starts_with(of)),
            _ => false,
        };
        (is_debugger || ends_not && self.window.is_some()).then_some(place_ns.max(self.idle_ns))
    }

    /// What it does, in words.
    pub(crate) fn detail(&self, digest: &RankDigest, now_ns: i64) -> String {
        let place = outside::outside(&digest.stack, None).map(|place| place.text).unwrap_or_default();
        let for_s = seconds(now_ns - self.idle_ns);
        if for_s < seconds(WINDOW_NS) {
            return if place.is_empty() { "busy".to_owned() } else { place };
        }
        let used_s = digest.cpu_ms.unwrap_or_default().saturating_sub(self.idle_cpu_ms) as f64 / 1e3;
        let idle = format!("idle: {used_s:.1} s of processor time in {for_s:.0} s");
        if place.is_empty() { idle } else { format!("{place}; {idle}") }
    }
}

/// Whether a stack is in a call that brings ranks together. With a plugin that shows communicators, any call of
/// torch.distributed made without one does so.
fn is_on_its_way(digest: &RankDigest) -> bool {
    let is_torch = |frame: &String| frame.contains("torch/distributed/distributed_c10d.py:");
    outside::outside(&digest.stack, None).is_some_and(|place| place.label == "torch-distributed")
        || digest.would_show && digest.stack.iter().any(is_torch)
}
