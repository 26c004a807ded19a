//! A job that does not come to its first communicator: its ranks are there, and all of them wait.
//!
//! No operation can be seen yet. What shows is how much processor time each rank takes, and where its stack stands: who waits
//! for the others sleeps, or spins in a call of torch.distributed. Who compiles or loads data does neither.

use std::collections::{BTreeMap, BTreeSet};

use crate::digest::{ProcessState, RankDigest};
use crate::engine::Settings;
use crate::event::{MAX_STATES, RankState, Shape, Stall, seconds};
use crate::ledger::{Ledger, Member};
use crate::outside;
use crate::stall::{list, verb};

/// Over so much time a rank's use of the processor is taken, nanoseconds: the kernel counts in hundredths of a second.
const WINDOW_NS: i64 = 2_000_000_000;
/// A rank that uses more of one processor works. Threads that wake now and then use less.
const BUSY: f64 = 0.05;
/// Stacks are asked for after this share of the patience: a rank that waits in NCCL's own start spins, and only its stack
/// tells it from one that works.
const ASK_AFTER: i64 = 4;
/// Of jobs whose communicators would not show anyway, stacks are asked for no longer than this many times the patience.
const ASK_UNTIL: i64 = 2;
/// What a rank that waits to meet the others is called in a list of states.
const WAITS: &str = "waits-at-start";
/// Larger worlds are not searched for ranks that are not there.
const MAX_WORLD: u32 = 1 << 20;

/// Whether a process works or waits, as far as it has been watched.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    /// When it was first seen.
    pub(crate) seen_ns: i64,
    /// Since when it has hardly used a processor.
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
        // One that hangs in the kernel (the driver that wakes a GPU, a large file) waits for nobody.
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
    fn since_ns(&self, digest: &RankDigest) -> Option<i64> {
        // Where communicators would not show, a rank that sleeps may well train: its stack must say where it is.
        let idle_ns = digest.would_show.then_some(self.idle_ns).filter(|_| self.window.is_some());
        match (idle_ns, self.meets_ns) {
            (Some(idle), Some(meets)) => Some(idle.min(meets)),
            (one, other) => one.or(other),
        }
    }

    /// Since when it sleeps in one place in which nothing ends by itself: a lock, a sleep, a store, a debugger. None where it
    /// works, or may wait for work that somebody does for it.
    pub(crate) fn stuck_ns(&self, digest: &RankDigest) -> Option<i64> {
        let (_, place_ns) = self.place?;
        let is_debugger =
            digest.stack.iter().any(|frame| frame.contains("pdb.py:") || frame.contains("bdb.py:"));
        let place = outside::outside(&digest.stack, None)?;
        let ends_not = match place.label.as_str() {
            "gil" | "sleep" | "torch-distributed" => true,
            // A queue is filled by somebody, and a lock of a file may be another process's.
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
        let idle = format!("idle: {used_s:.1} s of a processor in {for_s:.0} s");
        if place.is_empty() { idle } else { format!("{place}; {idle}") }
    }
}

/// Whether a stack stands in what brings ranks together. With a plugin that shows communicators, any call of
/// torch.distributed made without one does so.
fn is_on_its_way(digest: &RankDigest) -> bool {
    let is_torch = |frame: &String| frame.contains("torch/distributed/distributed_c10d.py:");
    outside::outside(&digest.stack, None).is_some_and(|place| place.label == "torch-distributed")
        || digest.would_show && digest.stack.iter().any(is_torch)
}

/// The live ranks of a job of several in which no live rank has had a communicator; none if it is no such job.
fn ranks<'t, 'a>(ledger: &'t Ledger<'a>) -> Option<Vec<&'t Member<'a>>> {
    let live = || ledger.members.iter().filter(|member| !member.is_over() && !member.is_silent);
    if ledger.groups.iter().any(|group| !group.is_ended)
        || live().any(|member| member.word.digest.is_ended || !member.word.digest.comms.is_empty())
    {
        return None;
    }
    let members: Vec<&Member<'_>> = live().filter(|member| member.word.digest.rank.is_some()).collect();
    let world = members.iter().filter_map(|member| member.word.digest.world_size).max();
    let is_of_several = world.map_or(members.len() > 1, |world| world > 1);
    (is_of_several && !members.is_empty()).then_some(members)
}

/// Whether stacks of the ranks would tell whether they wait.
pub(crate) fn asks_stacks(ledger: &Ledger<'_>, settings: &Settings) -> bool {
    let Some(members) = ranks(ledger) else { return false };
    let newest = members.iter().map(|member| member.word.waiting.seen_ns).max().unwrap_or(ledger.now_ns);
    let for_ns = ledger.now_ns - newest;
    let would_show = members.iter().all(|member| member.word.digest.would_show);
    for_ns > settings.first_floor_ns / ASK_AFTER
        && (would_show || for_ns < settings.first_floor_ns.saturating_mul(ASK_UNTIL))
}

/// All ranks that are there have waited for too long.
pub(crate) fn stall(ledger: &Ledger<'_>, settings: &Settings) -> Option<Stall> {
    let members = ranks(ledger)?;
    let since: Option<Vec<i64>> =
        members.iter().map(|member| member.word.waiting.since_ns(&member.word.digest)).collect();
    // The last one to come, or to do something, counts.
    let since_ns = since?.into_iter().max()?;
    if ledger.now_ns - since_ns <= settings.first_floor_ns {
        return None;
    }
    let (suspects, why) = suspects(ledger, &members);
    let there: BTreeSet<u32> = members.iter().filter_map(|member| member.word.digest.rank).collect();
    let there: Vec<u32> = there.into_iter().collect();
    let mut text =
        format!("no communicator yet, and {} {} for it", list(&there), verb(&there, "waits", "wait"));
    if !why.is_empty() {
        text = format!("{text}; {why}");
    }
    let states = members.iter().take(MAX_STATES).map(|member| RankState {
        rank: member.word.digest.rank.unwrap_or_default(),
        host: ledger.nodes.get(member.node).map_or("", |n| n.name).to_owned(),
        pid: member.word.digest.pid,
        state: WAITS.to_owned(),
        detail: member.word.waiting.detail(&member.word.digest, ledger.now_ns),
    });
    Some(Stall {
        since: seconds(since_ns),
        after_s: seconds(ledger.now_ns - since_ns),
        expected_s: seconds(settings.first_floor_ns),
        shape: Shape::Start,
        text,
        states: states.collect(),
        n_states: vec![(WAITS.to_owned(), members.len() as u32)],
        suspects,
        ..Stall::default()
    })
}

/// Whom to look at first, and why: numbers that contradict each other, then ranks that ought to be there and are not.
fn suspects(ledger: &Ledger<'_>, members: &[&Member<'_>]) -> (Vec<u32>, String) {
    let digests = || members.iter().map(|member| &member.word.digest);
    let mut by_rank: BTreeMap<u32, u32> = BTreeMap::new();
    let mut by_world: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
    for digest in digests() {
        let Some(rank) = digest.rank else { continue };
        *by_rank.entry(rank).or_default() += 1;
        if let Some(world) = digest.world_size {
            by_world.entry(world).or_default().insert(rank);
        }
    }
    let twice: Vec<u32> = by_rank.iter().filter(|(_, n)| **n > 1).map(|(rank, _)| *rank).collect();
    if !twice.is_empty() {
        let why = format!("several processes say that they are {}", list(&twice));
        return (twice, why);
    }
    if by_world.len() > 1 {
        let most = by_world.values().map(BTreeSet::len).max().unwrap_or_default();
        let is_clear = by_world.values().filter(|ranks| ranks.len() == most).count() == 1;
        let odd: BTreeSet<u32> =
            by_world.values().filter(|ranks| !is_clear || ranks.len() < most).flatten().copied().collect();
        let told: Vec<String> = by_world
            .iter()
            .map(|(world, ranks)| format!("{world} on {}", list(&ranks.iter().copied().collect::<Vec<_>>())))
            .take(4)
            .collect();
        return (odd.into_iter().collect(), format!("the number of ranks is {}", told.join(", ")));
    }
    let world = by_world.keys().next().copied().unwrap_or_default().min(MAX_WORLD);
    let absent: BTreeSet<u32> = (0..world).filter(|rank| !by_rank.contains_key(rank)).collect();
    let (due, knows) = due(ledger, members);
    let missing: Vec<u32> = if knows {
        absent.intersection(&due).copied().collect()
    } else if ledger.nodes.len() == 1 {
        // Nothing says how many belong on a node, and there is no other one in sight.
        absent.iter().copied().collect()
    } else {
        Vec::new()
    };
    if !missing.is_empty() {
        let why = format!("{} of {world} {} not there", list(&missing), verb(&missing, "is", "are"));
        return (missing, why);
    }
    if absent.is_empty() {
        return (Vec::new(), String::new());
    }
    let absent: Vec<u32> = absent.into_iter().collect();
    let why =
        format!("{} of {world} {} on no node that is watched", list(&absent), verb(&absent, "is", "are"));
    // Most of the job is in sight, on several nodes: what is not has more likely not come than not been looked at.
    let sees_most = n_places(members) > 1 && absent.len() * 2 < world as usize;
    (if sees_most { absent } else { Vec::new() }, why)
}

/// How many nodes the ranks in sight are on, by what each says of its place on its own.
fn n_places(members: &[&Member<'_>]) -> usize {
    let first = |member: &&Member<'_>| member.word.digest.rank?.checked_sub(member.word.digest.local_rank?);
    members.iter().filter_map(first).collect::<BTreeSet<u32>>().len()
}

/// Ranks that belong on the nodes in sight, by what each process says of its place on its node; and whether any says so.
fn due(ledger: &Ledger<'_>, members: &[&Member<'_>]) -> (BTreeSet<u32>, bool) {
    let (mut due, mut knows) = (BTreeSet::new(), false);
    for node in 0..ledger.nodes.len() {
        for member in members.iter().filter(|member| member.node == node) {
            let digest = &member.word.digest;
            let (Some(rank), Some(local), Some(size)) = (
                digest.rank,
                digest.local_rank,
                digest.local_world_size.filter(|size| *size <= MAX_STATES as u32),
            ) else {
                continue;
            };
            // Ranks of a node follow each other.
            let Some(first) = rank.checked_sub(local) else { continue };
            knows = true;
            due.extend(first..first.saturating_add(size));
        }
    }
    (due, knows)
}
