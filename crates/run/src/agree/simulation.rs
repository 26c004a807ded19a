//! The agreement under crashes, delays and partitions: a world of nodes, a store and a job, generated from a seed.
//! Checked at every tick: no two attempts run at once, nothing starts twice or without a decree, nothing is decided
//! while a node may still run the attempt, no node joins that is excluded or has not passed the preflight check for
//! this attempt. Checked as well at every tick, also while faults happen elsewhere: whenever the store and a majority of the
//! supervisors, on nodes that may join, have been undisturbed for long enough, the job makes steps or the next attempt has
//! started. Checked at the end: the job completes; and over all worlds: excluded and unreachable nodes have rejoined.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Length of a tick, seconds.
const TICK_S: f64 = 0.5;
/// A lease of the store.
const LEASE_S: f64 = 6.0;
const LOST_S: f64 = 15.0;
/// Faults happen until this tick.
const STORM_TICKS: u64 = 600;
/// Steps of the job.
const STEPS: u64 = 120;
/// The same in a calm world: the job outlasts the storm.
const CALM_STEPS: u64 = 500;
const END_TICKS: u64 = 4_000;
/// Longest time without a step or a new attempt while a majority is undisturbed, seconds: the timeout of a collective if no node
/// sees steps, then a lost node, a preflight check, pauses and late reads.
const PATIENCE_S: f64 = COLLECTIVE_S + LOST_S + 25.0;
/// In a calm world, where faults spare a majority of the nodes, the store fails only until this tick.
const CALM_TICKS: u64 = 100;
/// Timeout of the job's collectives, seconds.
const COLLECTIVE_S: f64 = 60.0;
/// Largest clock difference between nodes, seconds.
const SKEW_S: f64 = 5.0;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }

    fn chance(&mut self, percent: f64) -> bool {
        (self.next() % 100_000) as f64 / 1000.0 < percent
    }
}

/// State that outlives the supervisor: what the holder knows.
#[derive(Clone, Default)]
struct HolderMemory {
    running: Option<u64>,
    launched: u64,
    /// Generation that ended by itself, and whether it succeeded.
    ended: Option<(u64, bool)>,
}

struct SimNode {
    name: String,
    held: HolderMemory,
    /// The supervisor, unless it is dead; it remembers nothing else.
    machine: Option<StateMachine>,
    halted: u64,
    /// Ticks until a halt is done.
    halting: Option<(u64, u64)>,
    is_powered: bool,
    /// It reaches the store.
    has_store: bool,
    /// It reaches the other nodes.
    has_network: bool,
    /// Seconds since progress.
    still_s: f64,
    /// Its ranks print steps: otherwise it does not know whether the job makes progress.
    prints: bool,
    /// Reads are this many ticks old.
    lag: u64,
    /// Rate of its clock.
    rate: f64,
    renewed: f64,
    /// When it was heard again after its lease expired.
    returned: f64,
    member: Option<Announcement>,
    /// It fails every preflight check.
    is_bad: bool,
    ready_for: u64,
    /// Whether it passed the preflight check for `ready_for`.
    is_fit: bool,
    /// The preflight check in progress: its attempt, and the ticks it still takes.
    examining: Option<(u64, u64)>,
    /// Attempts for which it passed the preflight check.
    passed: BTreeSet<u64>,
    /// The agreement that it read last.
    agreed: Option<(u64, bool)>,
    /// Since when it is up, connected and fit, and may join an attempt; infinite if it is not.
    well_since: f64,
}

impl SimNode {
    /// The supervisor dies and loses its state.
    fn forget(&mut self) {
        (self.machine, self.halting, self.examining, self.agreed) = (None, None, None, None);
        (self.ready_for, self.is_fit) = (0, false);
    }

    /// Like the supervisor: runs the preflight check for the attempt that it could start next.
    fn examine(&mut self, ticks: u64) {
        if let Some((generation, left)) = self.examining {
            if left > 0 {
                self.examining = Some((generation, left - 1));
                return;
            }
            (self.ready_for, self.is_fit, self.examining) = (generation, !self.is_bad, None);
            if self.is_fit {
                self.passed.insert(generation);
            }
        }
        let begun = self.held.launched.max(self.halted);
        let next = match self.agreed {
            Some((agreed, true)) if agreed > begun => agreed,
            Some((agreed, _)) => begun.max(agreed) + 1,
            None => begun + 1,
        };
        // A node that failed is checked again.
        let is_due = self.ready_for < next || !self.is_fit;
        if is_due && self.held.running.is_none() {
            self.examining = Some((next, ticks));
        }
    }
}

struct World {
    random: Random,
    now: f64,
    nodes: Vec<SimNode>,
    decrees: Vec<Decree>,
    /// Past views, for late reads.
    past: Vec<StoreView>,
    is_store_up: bool,
    is_full: bool,
    steps: u64,
    /// Every node that ever started a generation.
    started: BTreeMap<u64, BTreeSet<String>>,
    n_attempts: u64,
    /// Number of times that an excluded node rejoined.
    n_back: u64,
    /// Number of times that an unreachable node rejoined.
    n_returned: u64,
    back_after_s: Option<f64>,
    /// Since when the job makes progress, if it does.
    goes_since: Option<f64>,
    /// When the store last refused to write: until all nodes have announced their state again, it shows an old one.
    refused: f64,
    /// Since when the store is up and accepts writes; infinite if it does not.
    store_since: f64,
    /// When the job last made a step or an attempt was decided on.
    moved: f64,
    /// Longest time without either while a majority was undisturbed.
    longest_s: f64,
    /// Ticks at which a majority had been undisturbed for longer than the patience while faults happened elsewhere.
    n_watched: u64,
    /// Nodes that faults spare; none in a world that is not calm.
    spared: BTreeSet<usize>,
    done: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let n = 3 + random.below(4);
        let nodes = (0..n)
            .map(|at| SimNode {
                name: format!("n{at}"),
                held: HolderMemory::default(),
                machine: None,
                halted: 0,
                halting: None,
                is_powered: true,
                has_store: true,
                has_network: true,
                still_s: 0.0,
                prints: true,
                lag: random.below(4),
                rate: 0.95 + random.below(100) as f64 / 1000.0,
                renewed: 0.0,
                returned: 0.0,
                member: None,
                is_bad: false,
                ready_for: 0,
                is_fit: false,
                examining: None,
                passed: BTreeSet::new(),
                agreed: None,
                well_since: f64::INFINITY,
            })
            .collect();
        let back_after_s = [None, Some(0.0), Some(20.0), Some(60.0)][random.below(4) as usize];
        let mut nodes: Vec<SimNode> = nodes;
        // All nodes print steps, one of them, any of them, or none.
        let (kind, first) = (random.below(4), random.below(n));
        for (at, node) in nodes.iter_mut().enumerate() {
            node.prints = match kind {
                0 => true,
                1 => at as u64 == first,
                2 => random.chance(50.0),
                _ => false,
            };
        }
        let first = random.below(n) as usize;
        let n_spared = if random.chance(50.0) { n as usize / 2 + 1 } else { 0 };
        let spared = (first..first + n_spared).map(|at| at % n as usize).collect();
        Self {
            random,
            spared,
            now: 0.0,
            nodes,
            decrees: Vec::new(),
            past: Vec::new(),
            is_store_up: true,
            is_full: false,
            steps: 0,
            started: BTreeMap::new(),
            n_attempts: 0,
            n_back: 0,
            n_returned: 0,
            back_after_s,
            goes_since: None,
            refused: 0.0,
            store_since: f64::INFINITY,
            moved: 0.0,
            longest_s: 0.0,
            n_watched: 0,
            done: false,
        }
    }

    fn config(&self, at: usize) -> Config {
        let n = self.nodes.len();
        Config {
            node: self.nodes[at].name.clone(),
            // One spare.
            n_nodes: n - 1,
            min_nodes: n / 2 + 1,
            lost_after_s: LOST_S,
            join_within_s: 20.0,
            // With too few nodes it waits.
            give_up_s: 1e9,
            examined_within_s: 8.0,
            back_after_s: self.back_after_s,
        }
    }

    fn view(&self) -> StoreView {
        let is_live = |node: &&SimNode| node.member.is_some() && self.now - node.renewed < LEASE_S;
        let members = self.nodes.iter().filter(is_live).filter_map(|node| node.member.clone()).collect();
        StoreView { decree: self.decrees.last().cloned(), members }
    }

    fn faults(&mut self, tick: u64) {
        if !is_storm(tick) {
            // Everything recovers, except that one node may stay dead.
            self.is_store_up = true;
            self.is_full = false;
            let is_any_out = self.decrees.last().is_some_and(|decree| !decree.excluded.is_empty());
            let keep_dead = if is_any_out { 0 } else { self.nodes.len() / 3 };
            for (at, node) in self.nodes.iter_mut().enumerate() {
                node.is_bad = false;
                if !node.is_powered && at < keep_dead {
                    continue;
                }
                (node.is_powered, node.has_store, node.has_network) = (true, true, true);
            }
            return;
        }
        for at in 0..self.nodes.len() {
            let (power, supervisor, store, network, bad) = (
                self.random.chance(0.3),
                self.random.chance(1.0),
                self.random.chance(1.0),
                self.random.chance(0.6),
                self.random.chance(0.6),
            );
            if self.spared.contains(&at) {
                continue;
            }
            let node = &mut self.nodes[at];
            if power {
                node.is_powered = !node.is_powered;
                if !node.is_powered {
                    // A node that loses power keeps its state folder, and runs nothing.
                    node.held.running = None;
                    node.forget();
                }
            }
            if supervisor {
                node.forget();
            }
            if bad {
                node.is_bad = !node.is_bad;
            }
            if store {
                node.has_store = !node.has_store;
            }
            if network {
                node.has_network = !node.has_network;
            }
        }
        let (up, full) = (self.random.chance(1.0), self.random.chance(1.0));
        if !self.spared.is_empty() && tick >= CALM_TICKS {
            (self.is_store_up, self.is_full) = (true, false);
            return;
        }
        self.is_store_up ^= up;
        self.is_full ^= full;
    }

    /// Checks that a majority that is left alone gets the job going.
    fn watch(&mut self, tick: u64) {
        let (now, excluded) =
            (self.now, self.decrees.last().map(|last| last.excluded.clone()).unwrap_or_default());
        let since = |is_well: bool, since: f64| if is_well { since.min(now) } else { f64::INFINITY };
        self.store_since = since(self.is_store_up && !self.is_full, self.store_since);
        for node in &mut self.nodes {
            let is_up = node.is_powered && node.machine.is_some() && node.has_store && node.has_network;
            node.well_since = since(is_up && !node.is_bad && !excluded.contains(&node.name), node.well_since);
        }
        let mut all: Vec<f64> = self.nodes.iter().map(|node| node.well_since).collect();
        all.sort_by(f64::total_cmp);
        let undisturbed = all[self.nodes.len() / 2].max(self.store_since);
        let waited_s = now - undisturbed.max(self.moved);
        self.n_watched += u64::from(is_storm(tick) && now - undisturbed > PATIENCE_S);
        self.longest_s = self.longest_s.max(waited_s);
        assert!(
            waited_s <= PATIENCE_S || self.done,
            "no next attempt for {waited_s} s at {now}: {:?}, members {:?}",
            self.decrees.last(),
            self.view().members
        );
    }

    /// The nodes of a generation.
    fn nodes_of(&self, generation: u64) -> Vec<String> {
        let of = |decree: &Decree| match &decree.what {
            What::Run { nodes, .. } if decree.generation == generation => Some(nodes.clone()),
            _ => None,
        };
        self.decrees.iter().find_map(of).unwrap_or_default()
    }

    /// Generations that make progress now: all of their nodes run them and reach each other.
    fn progressing(&self) -> Vec<u64> {
        let running: BTreeSet<u64> = self.nodes.iter().filter_map(|node| node.held.running).collect();
        let goes = |generation: &u64| {
            let nodes = self.nodes_of(*generation);
            !nodes.is_empty()
                && nodes.iter().all(|name| {
                    let node = self.nodes.iter().find(|node| node.name == *name);
                    node.is_some_and(|node| {
                        node.held.running == Some(*generation) && node.has_network && node.is_powered
                    })
                })
        };
        running.into_iter().filter(goes).collect()
    }

    fn job(&mut self, tick: u64) {
        let progressing = self.progressing();
        assert!(progressing.len() <= 1, "two attempts at once: {progressing:?} at {}", self.now);
        if !progressing.is_empty() {
            self.steps += 1;
            self.moved = self.now;
        }
        self.goes_since =
            if progressing.is_empty() { None } else { Some(self.goes_since.unwrap_or(self.now)) };
        if self.is_full || !self.is_store_up {
            self.refused = self.now;
        }
        let is_calm = !self.spared.is_empty();
        let n_steps = if is_calm { CALM_STEPS } else { STEPS };
        let crash = is_storm(tick) && self.random.chance(if is_calm { 2.0 } else { 0.5 });
        for at in 0..self.nodes.len() {
            let Some(generation) = self.nodes[at].held.running else { continue };
            let goes = progressing.contains(&generation);
            let node = &mut self.nodes[at];
            node.still_s = if goes { 0.0 } else { node.still_s + TICK_S };
            if goes && self.steps >= n_steps {
                node.held.running = None;
                node.held.ended = Some((generation, true));
            } else if goes && crash && at == (tick as usize) % 3 {
                node.held.running = None;
                node.held.ended = Some((generation, false));
            } else if !goes && node.still_s > 5.0 && (self.random.chance(3.0) || node.still_s > COLLECTIVE_S)
            {
                // A collective fails on some of the waiting nodes, at the latest after its timeout.
                node.held.running = None;
                node.held.ended = Some((generation, false));
            }
        }
    }

    fn member(&self, at: usize) -> Announcement {
        let node = &self.nodes[at];
        let ended = node.held.ended;
        Announcement {
            node: node.name.clone(),
            ready_for: node.ready_for,
            unfit: (node.ready_for > 0 && !node.is_fit).then(|| "bad".to_owned()),
            running: node.held.running,
            succeeded: ended.filter(|(_, is_well)| *is_well).map_or(0, |(generation, _)| generation),
            halted: node.halted,
            still_s: node.prints.then_some(node.still_s),
            ..Announcement::default()
        }
    }

    fn supervise(&mut self, at: usize) {
        if !self.nodes[at].is_powered {
            return;
        }
        if self.nodes[at].machine.is_none() {
            if self.random.chance(80.0) {
                return;
            }
            let config = self.config(at);
            // It asks the holder what runs, and does not know about a halt that it had done.
            let node = &mut self.nodes[at];
            node.machine = Some(StateMachine::new(config));
            node.halted = node
                .held
                .launched
                .saturating_sub(u64::from(node.held.running.is_some() || node.held.ended.is_some()));
        }
        let ticks = self.random.below(6);
        self.nodes[at].examine(ticks);
        let member = self.member(at);
        let reaches = self.is_store_up && self.nodes[at].has_store;
        if reaches {
            // On a full store leases are renewed, but nothing new is written: old values stay.
            let node = &mut self.nodes[at];
            if !self.is_full {
                node.member = Some(member.clone());
            }
            if self.now - node.renewed >= LEASE_S {
                node.returned = self.now;
            }
            node.renewed = self.now;
        }
        let lag = self.nodes[at].lag as usize;
        let view = reaches
            .then(|| self.past.get(self.past.len().saturating_sub(1 + lag)).cloned().unwrap_or_default());
        let skew_s = SKEW_S * (at % 3) as f64 / 2.0;
        let node = &mut self.nodes[at];
        if let Some(decree) = view.as_ref().and_then(|view| view.decree.as_ref()) {
            let is_ours = matches!(&decree.what, What::Run { nodes, .. } if nodes.contains(&node.name));
            node.agreed = Some((decree.generation, is_ours));
        }
        let failed = node.held.ended.filter(|(_, is_well)| !is_well);
        let is_still = node.prints && node.held.running.is_some() && node.still_s > 40.0;
        let current =
            view.as_ref().and_then(|view| view.decree.as_ref()).map_or(0, |decree| decree.generation);
        let wants = failed.is_some_and(|(generation, _)| generation == current) || is_still;
        let wants_halt = wants.then(|| "failed".to_owned());
        let local = Local { member, launched: node.held.launched, wants_halt, wall_s: self.now + skew_s };
        let clock = self.now * node.rate;
        let Some(machine) = &mut node.machine else { return };
        let acts = machine.step(clock, view.as_ref(), &local);
        for act in acts {
            self.act(at, act, reaches);
        }
    }

    fn act(&mut self, at: usize, act: Act, reaches: bool) {
        match act {
            Act::Propose(decree) => self.propose(decree, reaches),
            Act::Decide { halted, members, fit, .. } => self.decide(&halted, &members, fit, reaches),
            Act::Launch(decree) => self.launch(at, &decree),
            Act::Halt { generation, .. } => {
                let ticks = 1 + self.random.below(6);
                let node = &mut self.nodes[at];
                if node.halting.is_none_or(|(of, _)| of != generation) {
                    node.halting = Some((generation, ticks));
                }
            }
            Act::Finish(decree) => {
                assert_eq!(decree.what, What::Done);
                self.done = true;
            }
        }
    }

    /// Some failures are blamed on a node, rightly or wrongly, and lost nodes are excluded, as long as enough nodes
    /// remain.
    fn decide(&mut self, halted: &Decree, members: &[Announcement], mut fit: Vec<String>, reaches: bool) {
        let n = self.nodes.len();
        let least = n / 2 + 1;
        let (What::Halt { nodes, .. } | What::Run { nodes, .. }) = &halted.what else { return };
        let lost: Vec<String> =
            nodes.iter().filter(|name| members.iter().all(|member| member.node != **name)).cloned().collect();
        let mut without = lost.clone();
        if lost.is_empty() && self.random.chance(40.0) {
            let at = self.random.below(nodes.len() as u64) as usize;
            without.extend(nodes.get(at).filter(|name| fit.contains(name)).cloned());
        }
        let n_left = fit.iter().filter(|name| !without.contains(name)).count();
        if halted.excluded.len() + without.len() > n - least || n_left < least {
            without.clear();
        }
        fit.retain(|name| !without.contains(name));
        let nodes = fit.into_iter().take(n - 1).collect();
        let pause_s = self.random.below(3) as f64;
        let excluded = halted.excluded.iter().chain(&without).cloned().collect();
        let mut next =
            StateMachine::next(halted, What::Run { nodes, pause_s, checkpoint: None }, excluded, Vec::new());
        next.outs = Out::with(&halted.outs, &without, &lost, self.now);
        self.propose(next, reaches);
    }

    /// Checks that every node may join, and counts those that rejoined.
    fn join(&mut self, decree: &Decree, nodes: &[String]) {
        let before = self.decrees.last().map(|last| last.excluded.clone()).unwrap_or_default();
        let earlier = self.nodes_of(decree.generation - 1);
        for name in nodes {
            let node = self.nodes.iter().find(|node| node.name == *name).unwrap();
            assert!(
                node.passed.contains(&decree.generation),
                "{name} was not examined for {}",
                decree.generation
            );
            assert!(!decree.excluded.contains(name), "{name} is excluded but joins");
            let is_known = self.started.values().any(|names| names.contains(name));
            self.n_returned += u64::from(is_known && !earlier.contains(name));
            if before.contains(name) {
                let out = decree.outs.iter().find(|out| out.node == *name).unwrap();
                assert!(
                    out.is_back(self.now + SKEW_S + 4.0 * TICK_S, self.back_after_s),
                    "{name} rejoins too early"
                );
                self.n_back += 1;
            }
        }
    }

    fn propose(&mut self, decree: Decree, reaches: bool) {
        if !reaches || self.is_full {
            return;
        }
        // The answer may be lost, with or without the write.
        let is_lost_before = self.random.chance(5.0);
        let last = self.decrees.last().map_or(0, |last| last.seq);
        if is_lost_before || decree.seq != last + 1 {
            return;
        }
        if let What::Run { nodes, .. } = &decree.what {
            assert!(!nodes.is_empty());
            self.n_attempts += 1;
            self.moved = self.now;
            self.join(&decree, &nodes.clone());
            // A node that may still run the previous generation must have been silent for long enough.
            for name in self.nodes_of(decree.generation - 1) {
                let node = self.nodes.iter().find(|node| node.name == name).unwrap();
                let may_run = node.held.running == Some(decree.generation - 1);
                assert!(
                    // Reads are up to three ticks old: a node that has just returned may not have been seen.
                    !may_run
                        || self.now - node.renewed >= LOST_S - LEASE_S - 2.0
                        || self.now - node.returned <= 4.0 * TICK_S,
                    "{name} still runs {} and was heard {} s ago",
                    decree.generation - 1,
                    self.now - node.renewed
                );
                assert!(!(may_run && nodes.contains(&name)));
            }
        }
        if matches!(decree.what, What::Halt { .. })
            && decree.why.iter().any(|why| why.ends_with("the job hangs"))
        {
            // What other nodes announce is some ticks old.
            let goes_s = self.goes_since.map_or(0.0, |since| self.now - since);
            assert!(
                goes_s <= 8.0 * TICK_S || self.now - self.refused < LOST_S,
                "{:?}, but it goes on",
                decree.why
            );
        }
        self.decrees.push(decree);
    }

    fn launch(&mut self, at: usize, decree: &Decree) {
        let generation = decree.generation;
        assert!(self.decrees.contains(decree), "a start without a decree");
        let named = self.nodes_of(generation);
        let node = &mut self.nodes[at];
        assert!(
            node.held.running.is_none(),
            "{} starts {generation} beside {:?}",
            node.name,
            node.held.running
        );
        assert!(node.held.launched < generation, "{} starts {generation} twice", node.name);
        node.held = HolderMemory { running: Some(generation), launched: generation, ended: None };
        node.still_s = 0.0;
        let is_new = self.started.entry(generation).or_default().insert(node.name.clone());
        assert!(is_new && named.contains(&node.name));
    }

    fn halts(&mut self) {
        for node in &mut self.nodes {
            let Some((generation, ticks)) = node.halting else { continue };
            if ticks > 0 {
                node.halting = Some((generation, ticks - 1));
                continue;
            }
            node.halting = None;
            if node.held.running == Some(generation) {
                node.held.running = None;
                node.held.ended = Some((generation, false));
            }
            node.halted = node.halted.max(generation);
        }
    }

    fn run(mut self) -> WorldResult {
        for tick in 0..END_TICKS {
            self.now += TICK_S;
            self.faults(tick);
            self.past.push(self.view());
            self.job(tick);
            self.halts();
            let first = self.random.below(self.nodes.len() as u64) as usize;
            for n in 0..self.nodes.len() {
                self.supervise((first + n) % self.nodes.len());
            }
            self.watch(tick);
            if self.done {
                return WorldResult {
                    counts: [self.n_attempts, self.n_back, self.n_returned, self.n_watched],
                    longest_s: self.longest_s,
                };
            }
        }
        panic!(
            "no progress: {} steps, decree {:?}, members {:?}",
            self.steps,
            self.decrees.last(),
            self.view().members
        );
    }
}

/// What happened in one world.
struct WorldResult {
    /// Attempts, excluded nodes back, unreachable nodes back, watched ticks.
    counts: [u64; 4],
    longest_s: f64,
}

/// Seeds by default; `RINGLEADER_SEEDS` asks for more.
const SEEDS: u64 = 2_000;

#[test]
#[expect(clippy::print_stdout, reason = "the numbers of docs/run.md")]
fn never_two_attempts_and_always_progress() {
    let n = std::env::var("RINGLEADER_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    let (mut sums, mut longest_s) = ([0; 4], (0.0, 0));
    for seed in 0..n {
        let outcome = std::panic::catch_unwind(|| World::new(seed).run());
        let outcome = outcome.unwrap_or_else(|_| panic!("seed {seed}"));
        for (sum, count) in sums.iter_mut().zip(outcome.counts) {
            *sum += count;
        }
        if outcome.longest_s > longest_s.0 {
            longest_s = (outcome.longest_s, seed);
        }
    }
    let [attempts, back, returned, watched] = sums;
    println!("{n} worlds: {attempts} attempts, {watched} watched ticks, longest {longest_s:?}");
    // Worlds without failures, or in which no majority is ever left alone, would prove nothing.
    assert!(attempts > 2 * n, "{attempts} attempts in {n} worlds");
    assert!(back > n / 50 && returned > n / 50, "{back} nodes back and {returned} returned in {n} worlds");
    assert!(watched > n, "{watched} ticks in {n} worlds");
}

#[test]
fn a_quiet_world_needs_one_attempt() {
    let mut world = World::new(7);
    for tick in STORM_TICKS..END_TICKS {
        world.now += TICK_S;
        world.past.push(world.view());
        world.job(tick);
        world.halts();
        for at in 0..world.nodes.len() {
            world.supervise(at);
        }
        if world.done {
            assert_eq!(world.n_attempts, 1);
            return;
        }
    }
    panic!("it did not end");
}

fn is_storm(tick: u64) -> bool {
    tick < STORM_TICKS
}

#[test]
fn ranks_are_ended_when_all_nodes_have_collected() {
    let member = |node: &str, running, collected| Announcement {
        node: node.to_owned(),
        running,
        collected,
        ..Announcement::default()
    };
    let nodes = ["a", "b", "c"].map(str::to_owned);
    // b is not ready; c's launcher has ended; d is a spare; a node that is lost has no member.
    let members =
        [member("a", Some(3), 3), member("b", Some(3), 2), member("c", None, 2), member("d", Some(3), 0)];
    assert_eq!(collecting(&members, &nodes, 3), ["b"]);
    assert!(collecting(&members[..1], &nodes, 3).is_empty());
}

#[test]
fn the_first_traceback_is_of_the_node_that_failed_first() {
    let member = |at, line: &str| Announcement {
        failed_at: at,
        traceback: if line.is_empty() { Vec::new() } else { vec![line.to_owned()] },
        ..Announcement::default()
    };
    let members =
        [member(None, "ended"), member(Some(7.0), "late"), member(Some(5.0), "first"), member(Some(1.0), "")];
    assert_eq!(first_traceback(&members), ["first"]);
    assert_eq!(first_traceback(&members[..1]), ["ended"]);
    assert!(first_traceback(&[]).is_empty());
}

#[test]
fn a_node_that_was_left_out_comes_back_later_each_time() {
    let outs = |times, was_lost| Out { node: "n1".to_owned(), at: 1_000.0, times, was_lost };
    for (out, after_s, from) in [
        (outs(1, false), Some(60.0), 1_060.0),
        (outs(2, false), Some(60.0), 1_240.0),
        (outs(3, false), Some(60.0), 1_960.0),
        // The first time, silence alone does not exclude a node.
        (outs(1, true), Some(60.0), 1_000.0),
        (outs(2, true), Some(60.0), 1_060.0),
        (outs(1, false), Some(0.0), 1_000.0),
    ] {
        assert!(out.is_back(from, after_s) && !out.is_back(from - 1.0, after_s), "{out:?}");
    }
    assert!(!outs(1, true).is_back(1e9, None));
    let lost = ["n2".to_owned()];
    let out = Out::with(&[outs(1, false)], &["n1".to_owned(), "n2".to_owned()], &lost, 2_000.0);
    assert_eq!((out[0].times, out[0].at, out[1].times, out[1].was_lost), (2, 2_000.0, 1, true));
}
