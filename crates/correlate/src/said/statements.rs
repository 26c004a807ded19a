//! Statements of failure of a whole case: the same template in several sources and of several ranks is one statement.
//!
//! What a statement says is looked up in the message table. Whether it is a cause, an echo or harmless in this job is
//! for the rules and the verdict to decide.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::message::{self, About, MessageRow, Role};
use ringleader_model::{
    Case, Category, Cause, Cite, Culprit, Evidence, Fact, FormWeight, Host, Observation, Rank, Said,
    SourceKind,
};

use super::CITED_CHARS;
use crate::who::roster::Roster;

/// One speaker's lines of a template in one source.
#[derive(Clone, Copy, Debug)]
pub struct Utterance<'a> {
    /// The observation: cites the first line.
    pub observation: &'a Observation,
    /// What was said.
    pub said: &'a Said,
    /// The rank that said it, if known.
    pub rank: Option<Rank>,
}

/// A statement: all utterances of one template.
#[derive(Clone, Debug)]
pub struct Stated<'a> {
    /// In source order; never empty.
    pub utterances: Vec<Utterance<'a>>,
    /// Rows of the message table that it was printed from, the narrowest first.
    pub rows: Vec<MessageRow>,
}

/// All statements of a case, in the order of their first lines.
#[derive(Clone, Debug, Default)]
pub struct Statements<'a> {
    all: Vec<Stated<'a>>,
}

impl<'a> Statements<'a> {
    /// Joins the statements of a case.
    pub fn new(case: &'a Case, roster: &Roster) -> Self {
        let mut index: BTreeMap<&str, usize> = BTreeMap::new();
        let mut all: Vec<Stated<'a>> = Vec::new();
        for observation in &case.observations {
            let Fact::Said(said) = &observation.fact else { continue };
            let rank = roster.speaker(observation);
            let utterance = Utterance { observation, said, rank };
            if let Some(known) = index.get(&*said.template).and_then(|at| all.get_mut(*at)) {
                known.utterances.push(utterance);
            } else {
                index.insert(&said.template, all.len());
                let rows = said.rows.iter().filter_map(|id| message::get(id)).collect();
                all.push(Stated { utterances: vec![utterance], rows });
            }
        }
        Self { all }
    }

    /// All messages of the case, in the order of their first utterances.
    pub fn all(&self) -> &[Stated<'a>] {
        &self.all
    }
}

impl<'a> Stated<'a> {
    /// The first utterance.
    pub fn first(&self) -> Option<&Utterance<'a>> {
        self.utterances.first()
    }

    /// The narrowest row.
    pub fn row(&self) -> Option<MessageRow> {
        self.rows.first().copied()
    }

    /// Its role by the table.
    pub fn role(&self) -> Option<Role> {
        self.row().map(MessageRow::role)
    }

    /// Causes that the table lists for it, most likely first.
    pub fn causes(&self) -> Vec<Cause> {
        let mut causes: Vec<Cause> = Vec::new();
        for row in self.rows.iter().filter(|r| matches!(r.role(), Role::States | Role::Suggests)) {
            let own = Some(row.cause()).filter(|c| !c.is_empty());
            for cause in own.into_iter().chain(row.candidates()).filter_map(Cause::of_id) {
                if !causes.contains(&cause) {
                    causes.push(cause);
                }
            }
        }
        causes
    }

    /// The line as it was printed first.
    pub fn text(&self) -> &'a str {
        self.first().map_or("", |u| &u.observation.text)
    }

    /// How many lines.
    pub fn count(&self) -> u64 {
        self.utterances.iter().map(|u| u64::from(u.said.count)).sum()
    }

    /// Ranks that said it.
    pub fn ranks(&self) -> BTreeSet<Rank> {
        self.utterances.iter().filter_map(|u| u.rank).collect()
    }

    /// When it was first said, ns on the speakers' wall clocks.
    pub fn at_ns(&self) -> Option<i64> {
        self.utterances.iter().filter_map(|u| u.observation.at).map(|t| t.ns).min()
    }

    /// What its form says at most.
    pub fn weight(&self) -> FormWeight {
        self.utterances.iter().map(|u| u.said.form.weight).max().unwrap_or_default()
    }

    /// Its logger calls it a warning or less.
    pub fn is_warning(&self) -> bool {
        self.utterances.iter().all(|u| u.said.form.is_warning)
    }

    /// The processes that it accuses: those that it names, or the speaker, by the row; none if neither is known.
    pub fn culprits(&self, roster: &Roster) -> Vec<Culprit> {
        let Some(row) = self.row() else { return Vec::new() };
        let mut culprits: Vec<Culprit> = Vec::new();
        let mut add = |culprit: Culprit| {
            if culprit != Culprit::default() && !culprits.contains(&culprit) {
                culprits.push(culprit);
            }
        };
        for utterance in &self.utterances {
            match row.about() {
                About::Nobody | About::Group => {}
                About::Speaker => {
                    let who = &utterance.observation.who;
                    match utterance.rank {
                        Some(rank) => add(roster.culprit_rank(rank)),
                        None if !who.is_nobody() => add(roster.culprit(who)),
                        None => {}
                    }
                }
                About::Named => {
                    let named = &utterance.said.named;
                    named.ranks.iter().for_each(|rank| add(roster.culprit_rank(*rank)));
                    if named.ranks.is_empty() {
                        let on_host =
                            |host: &Host| Culprit { host: Some(host.clone()), ..Culprit::default() };
                        named.hosts.iter().for_each(|host| add(on_host(host)));
                    }
                }
            }
        }
        culprits
    }

    /// As cited evidence: the first line of each of at most `n` utterances.
    pub fn evidence(&self, n: usize) -> impl Iterator<Item = Evidence> + '_ {
        self.utterances.iter().take(n).map(|u| Evidence {
            cite: u.observation.cite,
            text: u.observation.text.chars().take(CITED_CHARS).collect(),
            kind: SourceKind::TorchLog,
        })
    }

    /// What the operator sees, by the row's or the form's own words.
    pub fn category(&self) -> Category {
        let by_row = self.rows.iter().map(|r| r.category()).find(|c| *c != Category::None);
        by_row.unwrap_or_else(|| {
            let form = |is: fn(&Said) -> bool| self.utterances.iter().any(|u| is(u.said));
            if form(|s| s.form.nan.is_some() || s.form.is_wrong) {
                Category::Corruption
            } else if form(|s| s.form.signal.is_some() || s.form.exit.is_some_and(|e| !(0..128).contains(&e)))
            {
                Category::Crash
            } else {
                Category::Error
            }
        })
    }

    /// Whether its form tells of a process that ended by a failure: an exception, a signal, an exit code.
    pub fn is_an_end(&self) -> bool {
        let is_end = |said: &Said| {
            let form = &said.form;
            form.exception.is_some()
                || form.signal.is_some()
                || form.exit.is_some()
                || form.is_wrong
                || form.nan.is_some()
        };
        self.utterances.iter().any(|u| is_end(u.said))
    }

    /// Whether one of its lines is within this citation.
    pub fn is_within(&self, cite: Cite) -> bool {
        self.utterances.iter().any(|u| {
            let covers = |place: Cite| {
                place.source == cite.source
                    && (place.start < cite.end && cite.start < place.end || place.line == cite.line)
            };
            covers(u.observation.cite) || covers(u.said.last)
        })
    }
}
