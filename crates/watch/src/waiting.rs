//! Whether a process works or waits, from its processor time and its stack.

use ringleader_knowledge::place::ids;

use crate::digest::{ProcessState, RankDigest};
use crate::event::seconds;
use crate::outside;

/// Over so much time a rank's use of the processor is taken, nanoseconds: the kernel counts in hundredths of a second.
const WINDOW_NS: i64 = 2_000_000_000;
/// A rank that uses more of one processor works. Threads that wake now and then use less.
const BUSY: f64 = 0.05;

/// One that uses no more than this of one processor rests: threads of libraries wake up now and then.
const RESTING: f64 = 0.005;

/// A rank that rests for this long while others wait for it is held up, wherever it is.
const LONG_REST_NS: i64 = 60_000_000_000;
/// Places in which something else may work for a process that rests.
const WORKED_FOR: [&str; 6] =
    [ids::STORAGE, ids::DRIVER, ids::CHECKPOINT, ids::COMPILATION, ids::DATA_LOADER, ids::INPUT];

/// Looks that must find a rank in one place before it counts as standing there.
const LOOKS: u32 = 2;

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
    /// Where its stacks show it.
    place: Option<StackSighting>,
    /// How many times its main thread had gone to sleep, and since when it has been that many.
    switches: Option<(u64, i64)>,
}

/// One place, as long as no other stack is seen in between.
#[derive(Clone, Copy, Debug)]
struct StackSighting {
    hash: u64,
    /// Since when it is there, as far as stacks show.
    since_ns: i64,
    /// When its newest stack was taken, by its node's clock.
    taken_ns: i64,
    /// How many looks have shown it there.
    n_looks: u32,
}

/// Where a rank waits, and since when.
pub(crate) struct RankPosition {
    /// Since when it has been asleep there; none if it runs, or that is not known.
    pub(crate) asleep_ns: Option<i64>,
    /// The call in which it waits for other ranks.
    pub(crate) call: Option<BlockingCall>,
    /// It is asleep in a place in which nothing ends by itself.
    pub(crate) is_stuck: bool,
    /// It has rested for a long time, though it may wake now and then, as in a loop that sleeps.
    pub(crate) is_resting: bool,
}

/// A call that brings ranks together.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BlockingCall {
    /// Such as `all_reduce`.
    pub(crate) function: String,
    /// The frame of the program that made it; empty if none is seen.
    pub(crate) from: String,
}

impl Waiting {
    /// Learns from the next word of the same process.
    pub(crate) fn take(mut self, digest: &RankDigest, at_ns: i64, now_ns: i64) -> Self {
        if self.seen_ns == 0 {
            self.seen_ns = now_ns;
        }
        self.meets_ns = is_on_its_way(digest).then(|| self.meets_ns.unwrap_or(now_ns));
        self.place = place(self.place, digest, at_ns, now_ns);
        self.switches =
            digest.switches.map(|n| self.switches.filter(|(old, _)| *old == n).unwrap_or((n, now_ns)));
        let Some(cpu_ms) = processor_ms(digest) else {
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

    /// Since when it is stuck while others wait for it on the GPU: [asleep](Self::stuck_ns), or it rests.
    pub(crate) fn held_up_ns(&self, digest: &RankDigest, now_ns: i64) -> Option<i64> {
        if self.rests(digest, now_ns) || self.rests_long(digest, now_ns) {
            Some(self.idle_ns)
        } else {
            self.stuck_ns(digest)
        }
    }

    /// Neither it nor what it has started has used any processor time for a minute, and it does not wait for storage, a compiler,
    /// data or requests.
    fn rests_long(&self, digest: &RankDigest, now_ns: i64) -> bool {
        let place = outside::outside(&digest.stack, digest.wchan.as_deref());
        // A queue of the program may be one of requests.
        let is_worked_for = place.is_some_and(|place| {
            WORKED_FOR.contains(&place.label.as_str()) || place.label == ids::LOCK && !digest.stack.is_empty()
        });
        now_ns - self.idle_ns >= LONG_REST_NS
            && digest.process == ProcessState::Alive
            && !is_worked_for
            && self.uses_nothing(digest, now_ns)
    }

    fn uses_nothing(&self, digest: &RankDigest, now_ns: i64) -> bool {
        let used_ms = processor_ms(digest).unwrap_or(u64::MAX).saturating_sub(self.idle_cpu_ms);
        self.window.is_some() && used_ms as f64 * 1e6 <= RESTING * (now_ns - self.idle_ns) as f64
    }

    /// Since when it sleeps in one place in which nothing ends by itself: a lock, a sleep, a store, a debugger. None if
    /// it works, or may wait for work that another process does for it.
    fn stuck_ns(&self, digest: &RankDigest) -> Option<i64> {
        let place_ns = self.place?.since_ns;
        let is_debugger =
            digest.stack.iter().any(|frame| frame.contains("pdb.py:") || frame.contains("bdb.py:"));
        let place = outside::outside(&digest.stack, None)?;
        let ends_not = match place.label.as_str() {
            ids::GIL | ids::SLEEP | ids::TORCH_DISTRIBUTED => true,
            // Another process may fill a queue or hold a file lock.
            "lock" => ["acquire (threading.py", "__enter__ (threading.py"]
                .iter()
                .any(|of| place.frame.starts_with(of)),
            _ => false,
        };
        (is_debugger || ends_not && self.window.is_some()).then_some(place_ns.max(self.idle_ns))
    }

    /// It waits for a queue, a person or a connection, and neither it nor what it has started uses any processor time: where
    /// it was first seen does not matter then. Storage, compilers and the GPU are waited for without any, too, so they are not
    /// among these.
    fn rests(&self, digest: &RankDigest, now_ns: i64) -> bool {
        let place = outside::outside(&digest.stack, digest.wchan.as_deref());
        let is_there = place.is_some_and(|place| match place.label.as_str() {
            // A futex alone may be one of CUDA's; frames show a lock of the program.
            "lock" => !digest.stack.is_empty(),
            "input" => true,
            _ => false,
        });
        is_there && self.uses_nothing(digest, now_ns)
    }

    /// Since when its main thread has not run once, and neither it nor what it has started has used more than almost no
    /// processor time. None if that is not so, or not known.
    pub(crate) fn asleep_ns(&self, now_ns: i64) -> Option<i64> {
        let since_ns = self.switches?.1.max(self.idle_ns);
        (self.window.is_some() && now_ns - since_ns >= WINDOW_NS).then_some(since_ns)
    }

    /// Where it waits, as far as looks at its stack show it.
    pub(crate) fn stand(&self, digest: &RankDigest, now_ns: i64) -> RankPosition {
        // A thread that has not run has been in that place all the time, before the first look, too.
        let is_sure = self.place.is_some_and(|place| place.n_looks >= LOOKS);
        let asleep_ns = self.asleep_ns(now_ns).filter(|_| is_sure);
        let wait = digest.wchan.as_deref().and_then(ringleader_knowledge::place::of_wait);
        let sleeps = wait.is_some_and(|place| place.id == ids::SLEEP);
        RankPosition {
            asleep_ns,
            call: call(&digest.stack),
            is_stuck: asleep_ns.is_some() && (sleeps || self.stuck_ns(digest).is_some()),
            is_resting: self.rests_long(digest, now_ns),
        }
    }

    /// What it does, in words.
    pub(crate) fn detail(&self, digest: &RankDigest, now_ns: i64) -> String {
        let wchan = digest.wchan.as_deref();
        let place = outside::outside(&digest.stack, wchan).map(|place| place.text).unwrap_or_default();
        let for_s = seconds(now_ns - self.idle_ns);
        if for_s < seconds(WINDOW_NS) {
            return if place.is_empty() { "busy".to_owned() } else { place };
        }
        let used_s = processor_ms(digest).unwrap_or_default().saturating_sub(self.idle_cpu_ms) as f64 / 1e3;
        let idle = format!("idle: {used_s:.1} s of processor time in {for_s:.0} s");
        if place.is_empty() { idle } else { format!("{place}; {idle}") }
    }
}

/// Processor time of a process and of what it has started.
fn processor_ms(digest: &RankDigest) -> Option<u64> {
    digest.cpu_ms.map(|own| own + digest.below_cpu_ms.unwrap_or_default())
}

/// The place after another digest. One without a stack ends it: what happens between two looks far apart is unknown.
fn place(
    before: Option<StackSighting>,
    digest: &RankDigest,
    at_ns: i64,
    now_ns: i64,
) -> Option<StackSighting> {
    if digest.stack.is_empty() {
        return None;
    }
    let hash = digest.stack.iter().flat_map(|frame| frame.bytes().chain([b'\n']));
    let hash = hash.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let taken_ns = if digest.stack_ns == 0 { at_ns } else { digest.stack_ns };
    Some(match before.filter(|before| before.hash == hash) {
        Some(before) if before.taken_ns == taken_ns => before,
        Some(before) => StackSighting { taken_ns, n_looks: before.n_looks.saturating_add(1), ..before },
        None => StackSighting { hash, since_ns: now_ns, taken_ns, n_looks: 1 },
    })
}

/// The call of a stack, outermost frame first, that brings ranks together, and who made it.
fn call(stack: &[String]) -> Option<BlockingCall> {
    let meets = |frame: &String| {
        frame.contains("torch/distributed/distributed_c10d.py:")
            || outside::outside(std::slice::from_ref(frame), None)
                .and_then(|seen| {
                    ringleader_knowledge::place::all().iter().find(|place| place.id == seen.label)
                })
                .is_some_and(|place| place.waits_for_ranks || place.id == ids::TORCH_DISTRIBUTED)
    };
    let at = stack.iter().position(meets)?;
    let function = stack.get(at)?.split(" (").next()?.to_owned();
    // Wrappers of the library are no place of the program.
    let is_own = |frame: &&String| !frame.contains("torch/distributed/");
    let from = stack.iter().take(at).rev().find(is_own).cloned().unwrap_or_default();
    Some(BlockingCall { function, from })
}

/// Whether a stack is in a call that brings ranks together. With a plugin that shows communicators, any call of
/// torch.distributed made without one does so.
fn is_on_its_way(digest: &RankDigest) -> bool {
    let is_torch = |frame: &String| frame.contains("torch/distributed/distributed_c10d.py:");
    outside::outside(&digest.stack, None).is_some_and(|place| place.label == ids::TORCH_DISTRIBUTED)
        || digest.would_show && digest.stack.iter().any(is_torch)
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: i64 = 1_000_000_000;

    /// What is known of a rank after 31 s in which it has used `ms` of processor time.
    fn after(stack: &[&str], wchan: Option<&str>, ms: u64) -> Option<i64> {
        let mut waiting = Waiting::default();
        let mut digest = RankDigest { wchan: wchan.map(Into::into), ..RankDigest::default() };
        for second in 1..=31 {
            digest.cpu_ms = Some(40_000 + ms * second / 31);
            // Stacks are taken late.
            if second == 31 {
                digest.stack = stack.iter().map(|frame| (*frame).to_owned()).collect();
            }
            waiting = waiting.take(&digest, second as i64 * S, second as i64 * S);
        }
        waiting.held_up_ns(&digest, 31 * S)
    }

    /// As by [`after`], for a process that wakes now and then.
    fn after_s(seconds: u64, wchan: &str, ms: u64) -> Option<i64> {
        let mut waiting = Waiting::default();
        let mut digest =
            RankDigest { wchan: Some(wchan.into()), process: ProcessState::Alive, ..RankDigest::default() };
        for second in 1..=seconds {
            digest.cpu_ms = Some(40_000 + ms * second / seconds);
            digest.switches = Some(second);
            waiting = waiting.take(&digest, second as i64 * S, second as i64 * S);
        }
        let now_ns = seconds as i64 * S;
        assert_eq!(
            waiting.stand(&digest, now_ns).is_resting,
            waiting.held_up_ns(&digest, now_ns).is_some(),
            "{wchan}"
        );
        waiting.held_up_ns(&digest, now_ns)
    }

    #[test]
    fn whoever_rests_for_a_minute_is_held_up_wherever_it_is() {
        assert_eq!(after_s(62, "futex_do_wait", 0), Some(S));
        assert_eq!(after_s(62, "hrtimer_nanosleep", 200), Some(S), "a loop that sleeps");
        assert_eq!(after_s(50, "futex_do_wait", 0), None, "too early");
        assert_eq!(after_s(62, "rpc_wait_bit_killable", 0), None, "storage");
        assert_eq!(after_s(62, "futex_do_wait", 6_000), None, "it works");
    }

    #[test]
    fn a_queue_or_a_connection_that_nobody_works_for() {
        let queue = ["main (train.py:80)", "get (queue.py:171)", "wait (threading.py:355)"];
        assert_eq!(after(&queue, Some("futex_do_wait"), 0), Some(S));
        assert_eq!(after(&["main (train.py:80)"], Some("inet_csk_accept"), 30), Some(S));
        // A child fills the queue.
        assert_eq!(after(&queue, Some("futex_do_wait"), 1_200), None);
        // Storage answers late, a GPU works for long, and a futex alone shows neither.
        let saves = ["main (train.py:80)", "save_checkpoint (train.py:120)"];
        assert_eq!(after(&saves, Some("rpc_wait_bit_killable"), 0), None);
        assert_eq!(after(&["main (train.py:80)"], Some("futex_do_wait"), 0), None);
        assert_eq!(after(&[], Some("futex_do_wait"), 0), None);
    }
}
