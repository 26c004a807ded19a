//! # What it checks
//!
//! Which processes hold memory of the GPUs that a job runs on: only its own ranks should.
//!
//! # What fails
//!
//! Nothing fails. It warns about a process outside any job that holds much memory of a GPU that a rank uses: the job
//! runs out of memory earlier, or shares the GPU's compute. Display servers, monitors and MPS servers are small or
//! expected.
//!
//! # What to do
//!
//! Ask its owner; let the scheduler allocate shared GPUs.
//!
//! # References
//!
//! NVML API, nvmlDeviceGetComputeRunningProcesses.

use crate::answer::{CheckAnswer, CheckState, Impact, Item};
use crate::jobs::{ProcessTree, name};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "gpu-processes",
    title: "only the job uses its GPUs",
    area: Area::Job,
    reads: &[Probe::Gpus, Probe::Jobs, Probe::System],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("gpu_processes.rs"),
    run,
};

/// A CUDA context alone takes some hundred MiB; monitors and displays hold less than this.
const MUCH_MIB: u64 = 1024;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let gpus = match view.node.gpus.seen() {
        Ok(gpus) => gpus,
        Err(missing) => return missing.into(),
    };
    let jobs = match view.node.jobs.seen() {
        Ok(jobs) => jobs,
        Err(missing) => return missing.into(),
    };
    let tree = ProcessTree::new(jobs);
    let is_of_job = |pid: u32| {
        tree.get(pid).is_some_and(|process| {
            process.rank().is_some()
                || tree.launcher(process).is_some()
                || tree.above(process).iter().any(|p| p.rank().is_some())
        })
    };
    let n_ranks = view.ranks().count();
    if n_ranks == 0 {
        return CheckAnswer::skipped("no job with ranks runs here");
    }
    // The driver reports the host's pids, which belong to other processes in a container.
    if view.node.system.get().is_some_and(|system| system.container.is_some()) {
        return CheckAnswer::skipped("this is a container: the driver's process numbers are the host's");
    }
    let mut items = Vec::new();
    for gpu in &gpus.gpus {
        let of_job = gpu.processes.iter().filter(|user| is_of_job(user.pid)).count();
        for user in gpu.processes.iter().filter(|user| of_job > 0 && !is_of_job(user.pid)) {
            let process = tree.get(user.pid);
            let is_server = process.is_some_and(|process| process.command.starts_with("nvidia-cuda-mps"));
            let Some(mib) = user.memory_mib.filter(|mib| *mib >= MUCH_MIB && !is_server) else { continue };
            let who = process.map_or_else(|| format!("pid {} (not visible here)", user.pid), name);
            items.push(Item {
                subject: format!("GPU {} ({})", gpu.index, gpu.pci),
                verdict: CheckState::Warn,
                text: format!("{who} holds {mib} MiB and belongs to no job"),
                evidence: format!("NVML: {} processes on this GPU, {of_job} of a job", gpu.processes.len()),
            });
        }
    }
    let pids: Vec<String> =
        items.iter().filter_map(|i| i.text.split(' ').nth(1).map(str::to_owned)).collect();
    CheckAnswer::from_items("only processes of the jobs use their GPUs", items).advise(
        Impact::Harmless,
        "check who owns it",
        Some(format!("ps -o pid,user,lstart,args -p {}", pids.join(","))),
    )
}

#[cfg(test)]
mod tests {
    use super::CHECK;
    use crate::answer::CheckState;
    use crate::staging_jobs::{NodeStage, process};

    #[test]
    fn a_stranger_beside_a_rank() {
        let stage = NodeStage::job(|_, _| {}).process(process(900, 1, "jupyter", &[]));
        stage.gpu("a", &[(80, 60_000), (900, 9_000)]).expect(&CHECK, CheckState::Warn, &["GPU 0 (a)"]);
    }

    #[test]
    fn who_may_be_there() {
        let worker = process(300, 80, "python3", &[]);
        let stage = NodeStage::job(|_, _| {}).process(process(900, 1, "jupyter", &[])).process(worker);
        // A small one, one on another GPU, and a child of a rank.
        stage.gpu("a", &[(80, 60_000), (900, 300), (300, 5_000)]).expect(&CHECK, CheckState::Ok, &[]);
        let stage = NodeStage::job(|_, _| {}).process(process(900, 1, "jupyter", &[]));
        stage.gpu("a", &[(80, 60_000)]).gpu("b", &[(900, 9_000)]).expect(&CHECK, CheckState::Ok, &[]);
        NodeStage::new().gpu("a", &[(900, 9_000)]).expect(&CHECK, CheckState::Skipped, &[]);
        NodeStage::job(|_, _| {}).expect(&CHECK, CheckState::Skipped, &[]);
        let container = NodeStage::job(|_, _| {}).gpu("a", &[(80, 60_000), (900, 9_000)]).with(|node| {
            let system =
                ringleader_node::System { container: Some("docker".to_owned()), ..Default::default() };
            node.system = ringleader_node::Part::of(system);
        });
        container.expect(&CHECK, CheckState::Skipped, &[]);
    }
}
