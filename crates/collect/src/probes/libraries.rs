//! Libraries that the processes of jobs have loaded, with their versions: what a process really runs, regardless of
//! what is installed.

use std::collections::BTreeMap;

use super::jobs;
use crate::libraries::{Versions, of_process};
use crate::request::{ReadingError, Request};

pub(super) fn take(request: &Request) -> Result<BTreeMap<u32, BTreeMap<String, String>>, ReadingError> {
    let proc = &request.roots.proc;
    let mut versions = Versions::new();
    let mut found = BTreeMap::new();
    let mut n_read = 0;
    let mut refused = None;
    for pid in jobs::pids(request)? {
        let libraries = match of_process(proc, pid, &mut versions) {
            Ok(libraries) => libraries,
            Err(error) => {
                refused = Some(error);
                continue;
            }
        };
        n_read += 1;
        if !libraries.is_empty() {
            found.insert(pid, libraries);
        }
    }
    match refused {
        Some(error) if n_read == 0 => {
            Err(ReadingError::Failed(format!("no process could be inspected: {error}")))
        }
        _ => Ok(found),
    }
}
