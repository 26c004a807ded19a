//! # What it checks
//!
//! Whether something synchronises the clock of this node, and how large its error may be.
//!
//! # What fails
//!
//! Nothing by itself: a wrong clock stops no job. It warns if a job of several nodes runs here and the clock is not
//! synchronised, because logs and dumps of the nodes then cannot be ordered in time. The table of many nodes compares
//! their clocks with each other.
//!
//! # What to do
//!
//! Start chrony, or systemd-timesyncd.
//!
//! # References
//!
//! adjtimex(2), STA_UNSYNC and maxerror.

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "clock",
    title: "the clock is synchronised",
    area: Area::Host,
    reads: &[Probe::System, Probe::Jobs],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("clock.rs"),
    run,
};

/// The kernel's error bound after hours without synchronisation: it means unknown.
const UNKNOWN_US: u64 = 16_000_000;
/// Error above which events of different nodes appear in the wrong order, microseconds.
const LARGE_US: u64 = 1_000_000;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let system = match view.node.system.seen() {
        Ok(system) => system,
        Err(missing) => return missing.into(),
    };
    let Some(is_kept) = system.clock_is_kept else {
        return CheckAnswer::skipped("the kernel reports nothing about its clock");
    };
    let error_us = system.clock_error_us.filter(|error| *error < UNKNOWN_US);
    let spans_nodes = view.ranks().any(|rank| {
        let here = ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"]
            .iter()
            .find_map(|n| rank.number(n));
        rank.world_size().zip(here).is_some_and(|(world, here)| world > here)
    });
    let error = error_us
        .map_or_else(|| "error unknown".to_owned(), |us| format!("error at most {:.1} ms", us as f64 / 1e3));
    let is_bad = !is_kept || error_us.is_some_and(|us| us >= LARGE_US);
    let mut items = Vec::new();
    if is_bad && spans_nodes {
        items.push(Item {
            subject: "clock".to_owned(),
            verdict: CheckState::Warn,
            text: format!(
                "{}, {error}: log lines of the job's nodes cannot be ordered",
                if is_kept { "synchronised" } else { "not synchronised" }
            ),
            evidence: format!(
                "adjtimex: {}, maxerror {}",
                if is_kept { "synchronised" } else { "STA_UNSYNC" },
                system.clock_error_us.map_or_else(|| "unknown".to_owned(), |us| format!("{us} us"))
            ),
        });
    }
    let ok = if is_kept {
        format!("synchronised, {error}")
    } else {
        "not synchronised, but no job of several nodes runs here".to_owned()
    };
    CheckAnswer::from_items(ok, items)
        .advise(
            Impact::Harmless,
            "check what synchronises it",
            Some("chronyc tracking || timedatectl".to_owned()),
        )
        .advise(
            Impact::Disruptive,
            "start a time service",
            Some("systemctl enable --now chronyd || systemctl enable --now systemd-timesyncd".to_owned()),
        )
        .value("clock.is-kept", is_kept, ValueKind::Same)
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Part, System};

    use super::CHECK;
    use crate::answer::CheckState;
    use crate::staging_jobs::NodeStage;

    fn stage(world: &'static str, is_kept: Option<bool>, error_us: u64) -> NodeStage {
        let stage = NodeStage::job(move |_, rank| {
            rank.environment.as_mut().unwrap().insert("WORLD_SIZE".to_owned(), world.to_owned());
        });
        let system = System { clock_is_kept: is_kept, clock_error_us: Some(error_us), ..System::default() };
        stage.with(|node| node.system = Part::of(system))
    }

    #[test]
    fn nobody_keeps_it_for_a_job_of_several_nodes() {
        stage("8", Some(false), 16_000_000).expect(&CHECK, CheckState::Warn, &["clock"]);
        stage("8", Some(true), 3_000_000).expect(&CHECK, CheckState::Warn, &["clock"]);
    }

    #[test]
    fn no_harm() {
        stage("8", Some(true), 900).expect(&CHECK, CheckState::Ok, &[]);
        stage("4", Some(false), 16_000_000).expect(&CHECK, CheckState::Ok, &[]);
        stage("8", None, 0).expect(&CHECK, CheckState::Skipped, &[]);
        NodeStage::new().with(|node| node.system = Part::default()).expect(&CHECK, CheckState::Skipped, &[]);
    }
}
