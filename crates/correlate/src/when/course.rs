//! How far the job came: whether its communicators got ready, and whether they were closed in order.

use ringleader_model::{Case, Cite, Fact, NcclComm, Source};

use crate::when::failure::Failure;

/// Communicators of NCCL's logs that lie in one of these folders, or in any where none is given: logs of another folder may
/// be of another attempt.
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
