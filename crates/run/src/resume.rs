//! The checkpoint that an attempt starts from. Its number of nodes decides which checkpoints it can load, and the checkpoints
//! which numbers of nodes make sense.

use std::io;
use std::path::Path;

use crate::agree::World;
use crate::checkpoint::{self, CheckpointOptions, Fit, Search};
use crate::journal::Chosen;
use crate::policy::{OtherWorld, Policy};

/// A remark on the checkpoints, or on how a decision came about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Remark {
    /// On the checkpoint that was chosen: whoever tells of the choice tells this, too.
    OfChoice(String),
    /// On anything else.
    Other(String),
}

impl Remark {
    /// Its text.
    pub fn text(&self) -> &str {
        match self {
            Self::OfChoice(text) | Self::Other(text) => text,
        }
    }
}

/// The checkpoints of the job.
pub struct Checkpoints<'a> {
    policy: &'a Policy,
    search: Option<io::Result<Search>>,
    /// Ranks on each node; None if unknown.
    per_node: Option<u32>,
    /// Sizes of the attempts so far.
    worlds: &'a [World],
}

impl<'a> Checkpoints<'a> {
    /// Examines them. `worlds`: the sizes of the attempts so far; `per_node`: ranks on each node by the command line.
    pub fn look(policy: &'a Policy, worlds: &'a [World], per_node: Option<u32>) -> Self {
        let options = CheckpointOptions {
            hash: policy.checkpoint.hash,
            worlds: ranks_of(worlds),
            ..CheckpointOptions::default()
        };
        let search = policy.checkpoint.dir.as_ref().map(|dir| checkpoint::look(Path::new(dir), &options));
        let per_node = worlds.last().map_or(per_node, |world| world.per_node());
        Self { policy, search, per_node, worlds }
    }

    fn found(&self) -> Option<&Search> {
        self.search.as_ref()?.as_ref().ok()
    }

    /// Ranks of an attempt on this number of nodes, if that decides which checkpoint it can load. While all attempts have the same
    /// size, they can load what they wrote.
    fn ranks(&self, nodes: usize) -> Option<u32> {
        let per_node = self.per_node.filter(|_| self.policy.checkpoint.other_world != OtherWorld::Use)?;
        let ranks = u32::try_from(nodes).ok()?.checked_mul(per_node)?;
        let is_same = !self.worlds.is_empty() && self.worlds.iter().all(|world| world.ranks == ranks);
        (!is_same).then_some(ranks)
    }

    fn fit(&self, nodes: usize) -> Fit {
        let is_strict = self.policy.checkpoint.other_world == OtherWorld::Stop;
        match (self.found(), self.ranks(nodes).filter(|_| is_strict)) {
            (Some(search), Some(ranks)) => search.fit(ranks, &ranks_of(self.worlds)),
            _ => Fit::Well,
        }
    }

    /// The smallest number of nodes, `least` or more, that can load a checkpoint. If there is none: `least`.
    pub fn least(&self, least: usize, most: usize) -> usize {
        (least..=most).find(|nodes| self.fit(*nodes) == Fit::Well).unwrap_or(least)
    }

    /// Why the job needs more nodes than its command says, if it does.
    pub fn reason(&self, least: usize, needed: usize) -> Option<String> {
        let Fit::Misfit(newest) = self.fit(least) else { return None };
        (needed > least).then(|| {
            format!("{least} to {} nodes can load no checkpoint; the newest is {newest}", needed - 1)
        })
    }

    /// The largest number of nodes, `least` to `most`, that can load a checkpoint. Errors: there is none, and why.
    pub fn nodes(&self, least: usize, most: usize) -> Result<usize, String> {
        if let Some(nodes) = (least..=most).rev().find(|nodes| self.fit(*nodes) == Fit::Well) {
            return Ok(nodes);
        }
        let Fit::Misfit(newest) = self.fit(most) else { return Ok(most) };
        let ranks = self.ranks(most).unwrap_or_default();
        Err(format!(
            "no checkpoint can be loaded by {ranks} ranks on {most} nodes; the newest is {newest}. [checkpoint] other_world = \
             \"begin\" starts from the beginning, \"use\" if the program can load it"
        ))
    }

    /// The checkpoint for this number of nodes, and remarks.
    pub fn chosen(self, nodes: usize) -> (Option<Chosen>, Vec<Remark>) {
        let ranks = self.ranks(nodes);
        let (Some(dir), Some(search)) = (&self.policy.checkpoint.dir, self.search) else {
            return (None, Vec::new());
        };
        let mut search = match search {
            Ok(search) => search,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return (None, Vec::new()),
            Err(error) => return (None, vec![Remark::Other(format!("checkpoints in {dir}: {error}"))]),
        };
        let worlds = ranks_of(self.worlds);
        search.choose(Path::new(dir), &CheckpointOptions { ranks, worlds, ..CheckpointOptions::default() });
        let mut notes: Vec<Remark> = search.notes.iter().cloned().map(Remark::Other).collect();
        for passed in search.passed_over() {
            notes.push(Remark::OfChoice(format!("checkpoint skipped: {passed}")));
        }
        if let Some(found) = search.chosen() {
            let step = found.step.map_or_else(String::new, |step| format!(" of step {step}"));
            let text = format!("checkpoint{step}: {} ({})", found.path.display(), found.layout.name());
            notes.push(Remark::OfChoice(text));
            let is_bound = found.loads != checkpoint::Loads::Any;
            let is_other = self.worlds.last().is_some_and(|world| world.nodes != nodes);
            if is_bound && self.per_node.is_none() && is_other {
                let text = format!("{}; how many the next attempt has is unknown", found.loads.words());
                notes.push(Remark::Other(text));
            }
        }
        (search.record(), notes)
    }
}

fn ranks_of(worlds: &[World]) -> Vec<u32> {
    worlds.iter().map(|world| world.ranks).collect()
}
