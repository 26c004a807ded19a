//! Did the job get over it, and did it end well? The one place that answers.
//!
//! The questions differ in what they are asked about, and in what would refute them:
//!
//! | question | shown by | refuted by |
//! |---|---|---|
//! | [`was_overcome`](Course::was_overcome) | two more steps or the end in the same source | a process that failed |
//! | [`was_done_after`](Course::was_done_after) | the end in the same source | a process that failed |
//! | [`was_outlived`](Course::was_outlived) | two more steps or the end in each source of a statement | nothing; what is wrong with results or speed is no stop |
//! | [`closed_in_order`](Course::closed_in_order) | communicators of the same folder, all destroyed | a process that failed |
//! | [`ended_in_order`](Course::ended_in_order) | communicators, all destroyed | any failure, or an end that a launcher saw |
//! | [`exited_well`](Course::exited_well) | exit code 0 of the last process of every rank | nothing |
//!
//! Exit codes of 0 answer the first three with yes, whatever failed before. [`Trails`] has the bare facts of the text.
//!
//! A process that failed refutes the first two and not the third. An exception may be what ended that process, and the steps
//! those of other ranks. A statement may be any warning: two steps behind it show that it stopped nothing, and of a job that
//! fails an hour later every warning of its start would be an open question.

use ringleader_model::{Case, Category, Cite, Fact, Source};

use crate::said::statements::Stated;
use crate::when::failure::JobFailure;
use crate::when::trail::Trails;

/// A communicator that was ready.
#[derive(Clone, Copy, Debug)]
struct Ready<'a> {
    /// Of its log: logs of another folder may be of another attempt.
    folder: &'a str,
    is_destroyed: bool,
}

/// How far the job came, and how it ended.
#[derive(Clone, Debug)]
pub struct Course<'a> {
    case: &'a Case,
    trails: Trails,
    ready: Vec<Ready<'a>>,
    exited_well: bool,
    has_failed_process: bool,
    is_undisturbed: bool,
}

/// Folder of the source that is cited.
pub fn folder(case: &Case, cite: Cite) -> &str {
    case.sources.get(cite.source.0 as usize).map_or("", Source::folder)
}

impl<'a> Course<'a> {
    /// Of a case and its failure.
    pub fn new(case: &'a Case, trails: Trails, failure: &JobFailure) -> Self {
        let logs = case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Nccl(log) => Some((folder(case, o.cite), &log.comms)),
            _ => None,
        });
        let ready = logs.flat_map(|(folder, comms)| {
            let ready = comms.iter().filter(|c| c.completed.is_some());
            ready.map(move |c| Ready { folder, is_destroyed: c.destroyed.is_some() })
        });
        Self {
            case,
            trails,
            ready: ready.collect(),
            exited_well: failure.exited_well(),
            has_failed_process: failure.ended_process(),
            is_undisturbed: !failure.is_stated() && !failure.launcher_saw_end(),
        }
    }

    /// What the text alone shows.
    pub fn text(&self) -> &Trails {
        &self.trails
    }

    /// The last process of every rank ended with exit code 0.
    pub fn exited_well(&self) -> bool {
        self.exited_well
    }

    /// The program went on behind this line, in the same source, for two steps or to its end, and no process is known to
    /// have failed; or every process exited well.
    pub fn was_overcome(&self, cite: Cite) -> bool {
        self.exited_well || !self.has_failed_process && self.trails.went_on_after(cite)
    }

    /// The program said behind this line, in the same source, that it is done, and no process is known to have failed; or
    /// every process exited well.
    pub fn was_done_after(&self, cite: Cite) -> bool {
        self.exited_well || !self.has_failed_process && self.trails.is_done_after(cite)
    }

    /// The program went on behind the last line of a statement in each source that has it, or every process exited well.
    /// What is wrong with results or speed does not stop a job, so that proves nothing there.
    pub fn was_outlived(&self, stated: &Stated<'_>) -> bool {
        !matches!(stated.category(), Category::Corruption | Category::Performance)
            && (self.exited_well || stated.utterances.iter().all(|u| self.trails.went_on_after(u.said.last)))
    }

    /// Whether all lines of a statement come after the word of their own program that it is done: what programs say while
    /// they end.
    pub fn was_said_after_the_end(&self, stated: &Stated<'_>) -> bool {
        stated.utterances.iter().all(|u| self.trails.was_done_before(u.observation.cite))
    }

    /// A communicator was ready beside these lines, or anywhere where none is given: the job that they are of got going.
    pub fn got_going(&self, beside: impl IntoIterator<Item = Cite>) -> bool {
        let folders: Vec<&str> = beside.into_iter().map(|cite| folder(self.case, cite)).collect();
        self.ready.iter().any(|c| folders.is_empty() || folders.contains(&c.folder))
    }

    /// Every communicator beside this line was destroyed in order, and no process is known to have failed. An exception
    /// may have been raised: it ends no process by itself.
    pub fn closed_in_order(&self, beside: Cite) -> bool {
        let folder = folder(self.case, beside);
        let mut ready = self.ready.iter().filter(|c| c.folder == folder).peekable();
        !self.has_failed_process && ready.peek().is_some() && ready.all(|c| c.is_destroyed)
    }

    /// Every communicator was destroyed in order, no launcher saw a process end, and nothing failed.
    pub fn ended_in_order(&self) -> bool {
        self.is_undisturbed && !self.ready.is_empty() && self.ready.iter().all(|c| c.is_destroyed)
    }
}

#[cfg(test)]
mod tests;
