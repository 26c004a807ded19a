//! The job that is named on the command line.

use std::path::Path;

use super::agent::Target;
use super::args::WatchArgs;
use super::events::Teller;
use crate::failure::{Failure, has_proc};

/// The job that is named, or any.
pub(super) fn named(args: &WatchArgs, teller: &Teller) -> Result<Target, Failure> {
    if let Some(job) = &args.job {
        is_here(job, args.stay, teller)?;
        return Ok(Target::Slurm(job.clone()));
    }
    if args.pid.is_empty() {
        return Ok(Target::Rings);
    }
    known(&args.pid)?;
    Ok(Target::Pids(args.pid.clone()))
}

/// Refuses a job of Slurm without a process on this host, unless the command stays and waits for it.
fn is_here(job: &str, stays: bool, teller: &Teller) -> Result<(), Failure> {
    let proc = Path::new("/proc");
    let is_of = |pid: &u32| ringleader_collect::follow::is_of_slurm(proc, *pid, job);
    if ringleader_collect::follow::processes(proc).keys().any(is_of) {
        return Ok(());
    }
    has_proc()?;
    let known = crate::fanout::slurm::nodes(job, Path::new("squeue"));
    let known = known.map_or_else(|(why, _)| why, |hosts| format!("it runs on {}", hosts.join(",")));
    let why = format!("no process of Slurm job {job} runs here ({known})");
    if !stays {
        return Err(Failure::Absent { why });
    }
    teller.note(format!("{why}; it is waited for"));
    Ok(())
}

/// A pid that does not exist is a mistake of the user.
fn known(pids: &[u32]) -> Result<(), Failure> {
    for pid in pids {
        if ringleader_collect::follow::process("/proc".as_ref(), *pid).is_none() {
            has_proc()?;
            return Err(Failure::Absent { why: format!("there is no process {pid}") });
        }
    }
    Ok(())
}
