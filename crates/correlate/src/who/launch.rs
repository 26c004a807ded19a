//! What the launcher gave to each process, by the environments in the evidence, and where that contradicts itself.
//!
//! The rank that prints NCCL's error about others is not at fault. If ranks disagree, their environments identify the
//! odd setting.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::command;
use ringleader_model::{
    Case, Cite, Culprit, Evidence, Fact, Host, LocalRank, Observation, Pid, Rank, RankSet, Setting,
    SourceKind,
};

use crate::who::culprits;
use crate::who::roster::Roster;

/// Citations of one finding.
pub const CITATIONS: usize = 6;
/// Larger worlds are not searched for ranks that are not there.
pub const MAX_WORLD: u32 = 1 << 20;
/// More processes than a node has ranks.
pub const MAX_LOCAL: u32 = 1024;

/// A process with a rank, and what it was started with.
pub struct Started<'a> {
    observation: &'a Observation,
    settings: &'a [Setting],
}

impl<'a> Started<'a> {
    fn set(&self, name: &str) -> Option<&'a Setting> {
        self.settings.iter().find(|s| &*s.name == name)
    }

    /// The value of a variable.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.set(name).map(|s| s.value.trim())
    }

    /// The value of a variable as a number.
    pub fn number(&self, name: &str) -> Option<u32> {
        self.text(name)?.parse().ok()
    }

    /// Its rank.
    pub fn rank(&self) -> Option<Rank> {
        self.observation.who.rank
    }

    /// Its process.
    pub fn pid(&self) -> Option<Pid> {
        self.observation.who.pid
    }

    /// Its host.
    pub fn host(&self) -> Option<&'a Host> {
        self.observation.who.host.as_ref()
    }

    /// The number that the first rank of its node has, if its own numbers are right.
    fn first_of_node(&self) -> Option<u32> {
        let first = self.rank()?.0.checked_sub(self.number("LOCAL_RANK")?)?;
        let fits = self.number("WORLD_SIZE").zip(self.number("LOCAL_WORLD_SIZE"));
        fits.is_none_or(|(world, local)| first.saturating_add(local) <= world).then_some(first)
    }

    /// The process as culprit, by the rank that it should have.
    fn culprit(&self, rank: Rank) -> Culprit {
        Culprit {
            rank: Some(rank),
            host: self.host().cloned(),
            pid: self.pid(),
            local_rank: self.number("LOCAL_RANK").map(LocalRank),
            ..Culprit::default()
        }
    }

    /// A variable as cited evidence.
    pub fn evidence(&self, name: &str) -> Option<Evidence> {
        let set = self.set(name)?;
        let whose = match (self.rank(), self.pid()) {
            (Some(rank), Some(pid)) => format!("rank {}, pid {}", rank.0, pid.0),
            (Some(rank), None) => format!("rank {}", rank.0),
            _ => "a process".to_owned(),
        };
        let text = format!("{name}={} ({whose})", set.value);
        Some(Evidence { cite: set.cite, text, kind: SourceKind::Environment })
    }
}

/// Processes with a rank whose environments are known.
pub fn started(case: &Case) -> Vec<Started<'_>> {
    let ranked = case.observations.iter().filter(|observation| observation.who.rank.is_some());
    ranked
        .filter_map(|observation| match &observation.fact {
            Fact::Environment(listing) => Some(Started { observation, settings: &listing.settings }),
            _ => None,
        })
        .collect()
}

/// What processes were given that cannot be right together.
pub struct Contradiction {
    /// In words.
    pub title: String,
    /// Whose numbers are wrong.
    pub culprits: Vec<Culprit>,
    /// The numbers.
    pub evidence: Vec<Evidence>,
}

/// Ranks that were given twice, or numbers of ranks that differ. `suspects`: the ranks that a watcher of all processes
/// blames.
pub fn contradiction(roster: &Roster, started: &[Started<'_>], suspects: &RankSet) -> Option<Contradiction> {
    twice(started).or_else(|| other_world(roster, started, suspects))
}

/// Ranks that were told to meet at different places, by their command lines. Servers of ranks have ports of their own: it tells
/// something of ranks alone that never met.
pub fn other_meeting(case: &Case, roster: &Roster) -> Option<Contradiction> {
    let told = |name: &str, by_value: BTreeMap<&str, BTreeMap<Rank, Evidence>>| {
        let n_ranks = by_value.values().map(BTreeMap::len).sum::<usize>();
        let most = by_value.values().map(BTreeMap::len).max().unwrap_or_default();
        // Of more than two, each with a value of its own: it is no place to meet.
        if by_value.len() < 2 || n_ranks > 2 && by_value.len() == n_ranks {
            return None;
        }
        let is_tied = by_value.values().filter(|ranks| ranks.len() == most).count() > 1;
        // Rank 0 is where the others go, if it is not they who agree.
        let is_odd = |ranks: &BTreeMap<Rank, Evidence>| {
            if is_tied { !ranks.contains_key(&Rank(0)) } else { ranks.len() < most }
        };
        let odd: RankSet =
            by_value.values().filter(|ranks| is_odd(ranks)).flat_map(BTreeMap::keys).copied().collect();
        let all = |ranks: &BTreeMap<Rank, Evidence>| culprits::ranks(&ranks.keys().copied().collect());
        let values: Vec<String> =
            by_value.iter().take(4).map(|(value, ranks)| format!("{value} on {}", all(ranks))).collect();
        let verb = if odd.len() == 1 { "differs" } else { "differ" };
        Some(Contradiction {
            title: format!(
                "{} {verb} in {name}, where ranks meet: {}",
                culprits::ranks(&odd),
                values.join(", ")
            ),
            culprits: odd.ranks().iter().map(|rank| roster.culprit_rank(*rank)).collect(),
            evidence: by_value
                .into_values()
                .filter_map(|ranks| ranks.into_values().next())
                .take(CITATIONS)
                .collect(),
        })
    };
    let option = |name: &&str| {
        let mut by_value: BTreeMap<&str, BTreeMap<Rank, Evidence>> = BTreeMap::new();
        for observation in &case.observations {
            let Fact::Processes(table) = &observation.fact else { continue };
            for row in &table.rows {
                let rank = row.pid.and_then(|pid| roster.rank_of(pid, None));
                let Some((rank, value)) = rank.zip(command::value(&row.command, name)) else { continue };
                let cite = Cite { line: row.line, ..observation.cite };
                let text = format!("rank {}: {}", rank.0, row.command);
                let proof = Evidence { cite, text, kind: SourceKind::Processes };
                by_value.entry(value).or_default().entry(rank).or_insert(proof);
            }
        }
        told(&format!("--{}", name.replace('_', "-")), by_value)
    };
    command::MEETING.iter().find_map(option)
}

/// Two processes that say that they are the same rank.
fn twice(started: &[Started<'_>]) -> Option<Contradiction> {
    let mut by_rank: BTreeMap<Rank, BTreeMap<(Option<&Host>, Pid), &Started<'_>>> = BTreeMap::new();
    for one in started {
        let (Some(rank), Some(pid)) = (one.rank(), one.pid()) else { continue };
        by_rank.entry(rank).or_default().insert((one.host(), pid), one);
    }
    let seen: BTreeSet<u32> = by_rank.keys().map(|rank| rank.0).collect();
    let firsts = first_of_nodes(by_rank.values().flat_map(BTreeMap::values).copied());
    by_rank.retain(|_, processes| processes.len() > 1);
    let (_, processes) = by_rank.first_key_value()?;
    let ranks: RankSet = by_rank.keys().copied().collect();
    let world = started.iter().filter_map(|one| one.number("WORLD_SIZE")).max().unwrap_or_default();
    let mut title = format!("{} processes have {}", processes.len(), culprits::ranks(&ranks));
    // The place on the node shows which of them is wrong: no process has the rank that belongs there.
    let should_have = |one: &Started<'_>| {
        let rank = firsts.get(&one.host())?.checked_add(one.number("LOCAL_RANK")?)?;
        (rank < world && !seen.contains(&rank)).then_some(Rank(rank))
    };
    let mut culprits = Vec::new();
    for (rank, processes) in &by_rank {
        let odd: Vec<(&Started<'_>, Rank)> =
            processes.values().filter_map(|one| Some((*one, should_have(one)?))).collect();
        for (one, _) in &odd {
            if let (Some(pid), Some(local)) = (one.pid(), one.number("LOCAL_RANK")) {
                title = format!("{title}; pid {} has local rank {local}", pid.0);
            }
        }
        if odd.is_empty() {
            culprits.extend(processes.values().map(|one| one.culprit(*rank)));
        }
        culprits.extend(odd.iter().map(|(one, rank)| one.culprit(*rank)));
    }
    let without: RankSet = (0..world.min(MAX_WORLD)).filter(|r| !seen.contains(r)).map(Rank).collect();
    if !without.is_empty() && without.len() <= by_rank.len() {
        title = format!("{title}, and nobody has {}", culprits::ranks(&without));
    }
    let evidence = by_rank.values().flat_map(BTreeMap::values).filter_map(|one| one.evidence("RANK"));
    Some(Contradiction { title, culprits, evidence: evidence.take(CITATIONS).collect() })
}

/// The number of each node's first rank, by most of its processes.
fn first_of_nodes<'s, 'a: 's>(
    started: impl Iterator<Item = &'s Started<'a>>,
) -> BTreeMap<Option<&'a Host>, u32> {
    let mut votes: BTreeMap<Option<&'a Host>, BTreeMap<u32, usize>> = BTreeMap::new();
    for one in started {
        if let Some(first) = one.first_of_node() {
            *votes.entry(one.host()).or_default().entry(first).or_default() += 1;
        }
    }
    votes
        .into_iter()
        .filter_map(|(host, votes)| {
            let most = votes.values().copied().max()?;
            let mut tops = votes.into_iter().filter(|(_, n)| *n == most).map(|(first, _)| first);
            let first = tops.next()?;
            tops.next().is_none().then_some((host, first))
        })
        .collect()
}

/// Processes that were given different numbers of ranks.
fn other_world(roster: &Roster, started: &[Started<'_>], suspects: &RankSet) -> Option<Contradiction> {
    let mut differs = differs(started, "WORLD_SIZE")?;
    // One against one: nodes have as many ranks each, so that a number that they do not divide is wrong.
    let uneven = |one: &&Started<'_>| {
        let (world, local) = (one.number("WORLD_SIZE"), one.number("LOCAL_WORLD_SIZE").filter(|n| *n > 0));
        world.zip(local).is_some_and(|(world, local)| world % local != 0)
    };
    let uneven: RankSet = started.iter().filter(uneven).filter_map(Started::rank).collect();
    let suspected: RankSet =
        differs.odd.ranks().iter().copied().filter(|rank| suspects.contains(*rank)).collect();
    if !suspected.is_empty() {
        differs.odd = suspected;
    }
    if differs.is_tied && !uneven.is_empty() && uneven.len() < differs.odd.len() {
        differs.odd = uneven;
    }
    Some(Contradiction {
        title: format!("{} in WORLD_SIZE: {}", differs.subject(), differs.values()),
        culprits: differs.odd.ranks().iter().map(|rank| roster.culprit_rank(*rank)).collect(),
        evidence: differs.evidence("WORLD_SIZE"),
    })
}

/// Values of one variable by the ranks that have them, where there are several.
pub struct Differs<'s, 'a> {
    by_value: BTreeMap<Option<&'a str>, Vec<&'s Started<'a>>>,
    /// Ranks of the lesser part; of all where no part is the larger.
    pub odd: RankSet,
    /// No part is the larger.
    pub is_tied: bool,
}

/// Who has another value of a variable than the others; None where all have the same.
pub fn differs<'s, 'a>(started: &'s [Started<'a>], name: &str) -> Option<Differs<'s, 'a>> {
    let mut by_value: BTreeMap<Option<&'a str>, Vec<&'s Started<'a>>> = BTreeMap::new();
    for one in started {
        by_value.entry(one.text(name)).or_default().push(one);
    }
    if by_value.len() < 2 || by_value.keys().flatten().next().is_none() {
        return None;
    }
    let most = by_value.values().map(Vec::len).max()?;
    let is_clear = by_value.values().filter(|members| members.len() == most).count() == 1;
    let odd = by_value.values().filter(|members| !is_clear || members.len() < most).flatten();
    let odd: RankSet = odd.filter_map(|one| one.rank()).collect();
    Some(Differs { by_value, odd, is_tied: !is_clear })
}

impl Differs<'_, '_> {
    /// `rank 1 differs`, `ranks 1,3 differ`.
    pub fn subject(&self) -> String {
        let verb = if self.odd.len() == 1 { "differs" } else { "differ" };
        format!("{} {verb}", culprits::ranks(&self.odd))
    }

    /// `4 on ranks 0,2-3, 5 on rank 1`.
    pub fn values(&self) -> String {
        let parts = self.by_value.iter().take(4).map(|(value, members)| {
            let ranks: RankSet = members.iter().filter_map(|one| one.rank()).collect();
            format!("{} on {}", value.unwrap_or("unset"), culprits::ranks(&ranks))
        });
        parts.collect::<Vec<_>>().join(", ")
    }

    /// One value of each part, the lesser part first.
    pub fn evidence(&self, name: &str) -> Vec<Evidence> {
        // The lesser part first.
        let mut members: Vec<_> = self.by_value.values().collect();
        members.sort_by_key(|members| members.len());
        members
            .into_iter()
            .filter_map(|members| members.iter().find_map(|one| one.evidence(name)))
            .take(CITATIONS)
            .collect()
    }
}
