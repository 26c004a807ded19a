//! The agreement under crashes, delays and partitions: a world of nodes, a store and a job, made by a seed. Checked at every
//! tick: no two attempts at once, nothing starts without a decree or twice, nothing is decided over a node that may still
//! run. Checked at the end: once the faults are over and enough nodes are up, the job makes progress.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

/// Length of a tick, seconds.
const TICK_S: f64 = 0.5;
/// A lease of the store.
const LEASE_S: f64 = 6.0;
const LOST_S: f64 = 15.0;
/// Faults happen until then.
const STORM_TICKS: u64 = 600;
/// Steps that the job has to do.
const STEPS: u64 = 120;
const END_TICKS: u64 = 4_000;

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

/// What outlives the supervisor: the holder's knowledge.
#[derive(Clone, Default)]
struct Held {
    running: Option<u64>,
    launched: u64,
    /// Generation that ended by itself, and how.
    ended: Option<(u64, bool)>,
}

struct Node {
    name: String,
    held: Held,
    /// The supervisor, unless it is dead; it remembers nothing else.
    machine: Option<Machine>,
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
    /// Reads are this many ticks old.
    lag: u64,
    /// Its clock runs at this rate.
    rate: f64,
    renewed: f64,
    /// When it was heard again after its lease had run out.
    returned: f64,
    member: Option<Member>,
}

struct World {
    random: Random,
    now: f64,
    nodes: Vec<Node>,
    decrees: Vec<Decree>,
    /// Views of the past, for reads that are late.
    past: Vec<View>,
    is_store_up: bool,
    is_full: bool,
    steps: u64,
    /// Every node that ever started a generation.
    started: BTreeMap<u64, BTreeSet<String>>,
    n_attempts: u64,
    done: bool,
}

impl World {
    fn new(seed: u64) -> Self {
        let mut random = Random(seed);
        let n = 3 + random.below(4);
        let nodes = (0..n)
            .map(|at| Node {
                name: format!("n{at}"),
                held: Held::default(),
                machine: None,
                halted: 0,
                halting: None,
                is_powered: true,
                has_store: true,
                has_network: true,
                still_s: 0.0,
                lag: random.below(4),
                rate: 0.95 + random.below(100) as f64 / 1000.0,
                renewed: 0.0,
                returned: 0.0,
                member: None,
            })
            .collect();
        Self {
            random,
            now: 0.0,
            nodes,
            decrees: Vec::new(),
            past: Vec::new(),
            is_store_up: true,
            is_full: false,
            steps: 0,
            started: BTreeMap::new(),
            n_attempts: 0,
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
            // Too few nodes are waited for.
            give_up_s: 1e9,
        }
    }

    fn view(&self) -> View {
        let is_live = |node: &&Node| node.member.is_some() && self.now - node.renewed < LEASE_S;
        let members = self.nodes.iter().filter(is_live).filter_map(|node| node.member.clone()).collect();
        View { decree: self.decrees.last().cloned(), members }
    }

    fn faults(&mut self, tick: u64) {
        if !is_storm(tick) {
            // Everything heals, except that one node may stay dead.
            self.is_store_up = true;
            self.is_full = false;
            let keep_dead = self.nodes.len() / 3;
            for (at, node) in self.nodes.iter_mut().enumerate() {
                if !node.is_powered && at < keep_dead {
                    continue;
                }
                (node.is_powered, node.has_store, node.has_network) = (true, true, true);
            }
            return;
        }
        for at in 0..self.nodes.len() {
            let (power, supervisor, store, network) = (
                self.random.chance(0.3),
                self.random.chance(1.0),
                self.random.chance(1.0),
                self.random.chance(0.6),
            );
            let node = &mut self.nodes[at];
            if power {
                node.is_powered = !node.is_powered;
                if !node.is_powered {
                    // A machine that loses power remembers its state folder, and runs nothing.
                    node.held.running = None;
                    node.machine = None;
                    node.halting = None;
                }
            }
            if supervisor {
                node.machine = None;
                node.halting = None;
            }
            if store {
                node.has_store = !node.has_store;
            }
            if network {
                node.has_network = !node.has_network;
            }
        }
        if self.random.chance(1.0) {
            self.is_store_up = !self.is_store_up;
        }
        if self.random.chance(1.0) {
            self.is_full = !self.is_full;
        }
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
        }
        let crash = is_storm(tick) && self.random.chance(0.5);
        for at in 0..self.nodes.len() {
            let Some(generation) = self.nodes[at].held.running else { continue };
            let goes = progressing.contains(&generation);
            let node = &mut self.nodes[at];
            node.still_s = if goes { 0.0 } else { node.still_s + TICK_S };
            if goes && self.steps >= STEPS {
                node.held.running = None;
                node.held.ended = Some((generation, true));
            } else if goes && crash && at == (tick as usize) % 3 {
                node.held.running = None;
                node.held.ended = Some((generation, false));
            } else if !goes && node.still_s > 5.0 && self.random.chance(3.0) {
                // An error of a collective, for some of those that wait.
                node.held.running = None;
                node.held.ended = Some((generation, false));
            }
        }
    }

    fn member(&self, at: usize) -> Member {
        let node = &self.nodes[at];
        let ended = node.held.ended;
        Member {
            node: node.name.clone(),
            ready_for: u64::MAX,
            running: node.held.running,
            succeeded: ended.filter(|(_, is_well)| *is_well).map_or(0, |(generation, _)| generation),
            halted: node.halted,
            still_s: node.still_s,
            ..Member::default()
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
            // It asks the holder what runs, and knows of no halt that it had done.
            let node = &mut self.nodes[at];
            node.machine = Some(Machine::new(config));
            node.halted = node
                .held
                .launched
                .saturating_sub(u64::from(node.held.running.is_some() || node.held.ended.is_some()));
        }
        let member = self.member(at);
        let reaches = self.is_store_up && self.nodes[at].has_store;
        if reaches {
            // Leases are renewed on a full store; new words are not written. An old word stays.
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
        let node = &mut self.nodes[at];
        let failed = node.held.ended.filter(|(_, is_well)| !is_well);
        let is_still = node.held.running.is_some() && node.still_s > 40.0;
        let current =
            view.as_ref().and_then(|view| view.decree.as_ref()).map_or(0, |decree| decree.generation);
        let wants = failed.is_some_and(|(generation, _)| generation == current) || is_still;
        let local =
            Local { member, launched: node.held.launched, wants_halt: wants.then(|| "failed".to_owned()) };
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
            Act::Decide { halted, fit, .. } => {
                let n = self.nodes.len() - 1;
                let nodes: Vec<String> = fit.into_iter().take(n).collect();
                let pause_s = self.random.below(3) as f64;
                let what = What::Run { nodes, pause_s, checkpoint: None };
                self.propose(Machine::next(&halted, what, halted.excluded.clone(), Vec::new()), reaches);
            }
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

    fn propose(&mut self, decree: Decree, reaches: bool) {
        if !reaches || self.is_full {
            return;
        }
        // The answer may be lost, whether it was written or not.
        let is_lost_before = self.random.chance(5.0);
        let last = self.decrees.last().map_or(0, |last| last.seq);
        if is_lost_before || decree.seq != last + 1 {
            return;
        }
        if let What::Run { nodes, .. } = &decree.what {
            assert!(!nodes.is_empty());
            self.n_attempts += 1;
            // Whoever may still run the generation before has been silent for long.
            for name in self.nodes_of(decree.generation - 1) {
                let node = self.nodes.iter().find(|node| node.name == name).unwrap();
                let may_run = node.held.running == Some(decree.generation - 1);
                assert!(
                    // Reads are up to three ticks old: one that has just come back may not have been seen.
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
        node.held = Held { running: Some(generation), launched: generation, ended: None };
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

    fn run(mut self) -> (u64, u64) {
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
            if self.done {
                return (tick, self.n_attempts);
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

/// Seeds by default; `RINGLEADER_SEEDS` asks for more.
const SEEDS: u64 = 2_000;

#[test]
fn never_two_attempts_and_always_progress() {
    let n = std::env::var("RINGLEADER_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(SEEDS);
    let (mut most, mut attempts) = (0, 0);
    for seed in 0..n {
        let outcome = std::panic::catch_unwind(|| World::new(seed).run());
        let (ticks, n_attempts) = outcome.unwrap_or_else(|_| panic!("seed {seed}"));
        most = most.max(ticks);
        attempts += n_attempts;
    }
    // A world in which nothing ever happens would prove nothing.
    assert!(attempts > 2 * n, "{attempts} attempts in {n} worlds");
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
