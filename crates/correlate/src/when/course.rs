//! How far the job came: whether its communicators got ready, and whether they were closed in order.

use ringleader_model::{Case, Cite, Fact, NcclComm, Source};

use crate::when::failure::Failure;

/// Communicators of NCCL's logs that are in one of these folders, or in any where none is given: logs of another folder
/// may be of another attempt.
fn comms<'a>(case: &'a Case, folders: &[&str]) -> impl Iterator<Item = &'a NcclComm> {
    case.observations
        .iter()
        .filter(|log_of| folders.is_empty() || folders.contains(&folder(case, log_of.cite)))
        .filter_map(|o| match &o.fact {
            Fact::Nccl(log) => Some(&log.comms),
            _ => None,
        })
        .flatten()
}

/// Folder of the source that is cited.
pub fn folder(case: &Case, cite: Cite) -> &str {
    case.sources.get(cite.source.0 as usize).map_or("", Source::folder)
}

/// Whether a communicator was ever ready beside these statements: the job that they are of got going.
pub fn got_going(case: &Case, beside: impl IntoIterator<Item = Cite>) -> bool {
    let folders: Vec<&str> = beside.into_iter().map(|cite| folder(case, cite)).collect();
    comms(case, &folders).any(|c| c.completed.is_some())
}

/// Every communicator beside this statement was destroyed in order, and no process is known to have failed.
pub fn ended_in_order(case: &Case, failure: &Failure, beside: Cite) -> bool {
    let folder = [folder(case, beside)];
    let mut ready = comms(case, &folder).filter(|c| c.completed.is_some()).peekable();
    !failure.ended_process() && ready.peek().is_some() && ready.all(|c| c.destroyed.is_some())
}

/// The program said behind this statement, in the same source, that it is done, and no process is known to have failed; or all of
/// the job ended well.
pub fn was_done_after(case: &Case, failure: &Failure, cite: Cite) -> bool {
    if failure.ended_well() {
        return true;
    }
    let is_behind = |end: Cite| end.source == cite.source && end.start > cite.start;
    !failure.ended_process()
        && case
            .observations
            .iter()
            .any(|o| matches!(&o.fact, Fact::Progress(progress) if progress.ended.is_some_and(is_behind)))
}

/// The same source shows one more step behind this statement.
pub fn was_followed(case: &Case, cite: Cite) -> bool {
    let is_behind = |last: Cite| last.source == cite.source && last.start > cite.start;
    case.observations.iter().any(|o| matches!(&o.fact, Fact::Progress(p) if p.last.is_some_and(is_behind)))
}

/// The same source shows two more steps behind this statement, or its end, and no process is known to have failed; or all of the
/// job ended well.
pub fn was_overcome(case: &Case, failure: &Failure, cite: Cite) -> bool {
    if failure.ended_well() {
        return true;
    }
    let is_behind = |at: Option<Cite>| at.is_some_and(|at| at.source == cite.source && at.start > cite.start);
    let goes_on = |fact: &Fact| matches!(fact, Fact::Progress(progress) if is_behind(progress.before_last) || is_behind(progress.ended));
    !failure.ended_process() && case.observations.iter().any(|o| goes_on(&o.fact))
}

#[cfg(test)]
mod tests;
