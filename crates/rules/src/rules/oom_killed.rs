//! # What it shows
//!
//! The kernel or the scheduler killed a process because the host or its cgroup had no memory left.
//!
//! # Why it happens
//!
//! Data-loader workers, checkpoints gathered in host memory, pinned buffers; a limit of the container or of the
//! job.
//!
//! # Evidence
//!
//! Lines of Slurm (`oom_kill event`), Ray, Kubernetes or the kernel among the output.
//!
//! # What looks like it but is not
//!
//! Exit by signal 9 alone does not tell who sent it (process-killed). GPU memory is cuda-oom.
//!
//! # What to do
//!
//! Raise the limit or use less.
//!
//! # References
//!
//! Linux mm/oom_kill.c; slurmstepd task/cgroup; Ray memory monitor.

use ringleader_model::Impact;

use crate::correlate::Scene;
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, found};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "oom-killed",
    title: "host memory ran out",
    since: "0.1",
    reads: &[Input::TorchLog],
    doc: include_str!("oom_killed.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "oom-killed") else { return Outcome::Clear };
    let title = format!("host memory ran out: a process of {who} was killed", who = told.who());
    let draft = told
        .draft(&RULE, "oom-killed", title)
        .advise_command(
            Impact::Harmless,
            "see the limit and what was used",
            "dmesg -T | grep -iE \"oom|killed process\"; cat /sys/fs/cgroup/memory.events",
        )
        .advise(Impact::Disruptive, "use fewer data-loader workers or ask for more memory per node");
    found(draft)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    #[test]
    fn slurm_says_so() {
        Stage::new().error_line(None, "slurmstepd: error: Detected 1 oom_kill event in StepId=812.0. Some of the step tasks have been OOM Killed.").expect(&RULE, &["oom-killed"]);
    }

    #[test]
    fn gpu_memory_is_another_thing() {
        Stage::new().raised(Some(2), "torch.OutOfMemoryError", "CUDA out of memory.", &[]).silent(&RULE);
    }
}
