//! # What it shows
//! The launcher's number of nodes or processes differs from the scheduler's.
//!
//! # Why it happens
//! One of the numbers was changed and the other forgotten.
//!
//! # Evidence
//! Both numbers are written in the file.
//!
//! # What looks like it but is not
//! Numbers that the script computes.
//!
//! # What to do
//! Compute one from the other.
//!
//! # References
//! PyTorch documentation, torchrun; Slurm, sbatch.

use ringleader_knowledge::program::{self, ProgramRole};
use ringleader_model::{Cause, Confidence, Severity};

use crate::launch::{Command, Launch, Setting, Spot};
use crate::rule::{Family, LintRule};
use crate::{LintFinding, Scan};

/// The rule.
pub(crate) static RULE: LintRule = LintRule {
    id: "processes-do-not-multiply",
    title: "nodes, tasks, GPUs and processes do not fit",
    family: Family::Launch,
    predicts: Cause::MissingRank,
    severity: Severity::Error,
    confidence: Confidence::High,
    doc: include_str!("processes_do_not_multiply.rs"),
    check,
};

/// Directives that give GPUs to a node.
const GPUS: &[&str] = &["gpus-per-node", "gres", "gpus-per-task"];

fn check(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let mut findings = Vec::new();
    for launch in &scan.launch {
        let gpus = launch.directive(GPUS);
        let tasks = launch.directive(&["ntasks-per-node", "tasks-per-node"]);
        let is_plain = |command: &&Command| {
            let mut others =
                program::launchers(ProgramRole::Elastic).chain(program::named(ProgramRole::Contains));
            let is_python = |word: &str| matches!(word.rsplit('/').next(), Some("python" | "python3"));
            // `bash -c "python train.py"`; `python -c` is a helper, not the job.
            let script = command.option(&["c"]).unwrap_or_default();
            let is_wrapped =
                command.starts("bash") && script.split_whitespace().next().is_some_and(is_python);
            let is_direct = command.words.iter().any(|word| is_python(word))
                && !command.words.iter().any(|word| word == "-c")
                && !command.starts("bash");
            let text = command.words.join(" ");
            command.program() == "srun"
                && (is_direct || is_wrapped)
                && !others.any(|program| text.contains(program) || command.starts(program))
        };
        if let (Some((n_gpus, _)), Some((n_tasks, at))) = (gpus, tasks)
            && n_gpus > 1
            && n_tasks == 1
            && let Some(command) = launch.commands.iter().find(is_plain)
            && command.number(&["ntasks-per-node", "ntasks", "n"]).is_none()
        {
            let title = format!("srun starts one process a node, and each node has {n_gpus} GPUs");
            let help = "one task a GPU (--ntasks-per-node), or torchrun, which starts the others";
            let mut finding = launch.finding(&RULE, at, title, help);
            finding.why.push(format!("line {}: srun starts python", command.at.line));
            finding.confidence = Confidence::Medium;
            findings.push(finding);
        }
        findings.extend(launch.commands.iter().flat_map(|command| of_launcher(launch, command)));
        findings.extend(launch.commands.iter().filter_map(|command| on_first_node(launch, command)));
        findings.extend(launch.commands.iter().filter_map(|command| visible(launch, command)));
        findings.extend(launch.commands.iter().filter_map(|command| of_trainer(launch, command)));
        findings.extend(launch.commands.iter().filter_map(|command| by_pdsh(launch, command)));
        findings.extend(world_of_nodes(launch));
        if let Some(batch) = launch.batch
            && batch.micro * batch.accumulation > 0
            && batch.train % (batch.micro * batch.accumulation) != 0
        {
            let title = format!(
                "train_batch_size {} is no multiple of {} samples a GPU and {} steps: DeepSpeed refuses to start",
                batch.train, batch.micro, batch.accumulation
            );
            let help =
                "train_batch_size is the micro batch times the accumulation steps times the number of GPUs";
            findings.push(launch.finding(&RULE, batch.at, title, help));
        }
    }
    findings.extend(of_runtimes(scan));
    findings
}

/// Jobs whose runtime starts another number of processes on a node than they ask GPUs for.
fn of_runtimes(scan: &Scan<'_, '_>) -> Vec<LintFinding> {
    let all = || {
        scan.launch.iter().flat_map(|launch| launch.trainings.iter().map(move |training| (launch, training)))
    };
    let mut findings = Vec::new();
    for (launch, runtime) in all().filter(|(_, training)| !training.is_job) {
        let Some(n) = runtime.per_node else { continue };
        let jobs = all().filter(|(_, job)| {
            job.is_job && job.runtime == runtime.runtime && job.per_node.is_none() && job.n_gpus > Some(n)
        });
        for (of_job, job) in jobs {
            let n_gpus = job.n_gpus.unwrap_or_default();
            // Who says how many it starts needs no runtime for it.
            let says = |command: &Command| {
                command.launcher().is_some() || command.number(&["np", "n", "npernode", "ppr"]).is_some()
            };
            if of_job.commands.iter().any(says) {
                continue;
            }
            let title = format!(
                "the runtime starts {n} on each node, and a job asks for {n_gpus} GPUs there: the others stay idle"
            );
            let help =
                "numProcPerNode is the number of GPUs of a node, in the runtime or in the job's trainer";
            let mut finding = launch.finding(&RULE, runtime.at, title, help);
            finding.confidence = Confidence::Medium;
            finding.severity = Severity::Warning;
            finding.related.push(of_job.related(job.at, "the job".to_owned()));
            findings.push(finding);
        }
    }
    findings
}

/// accelerate hands several machines to DeepSpeed's own launcher, which finds them in a file of hosts.
fn by_pdsh(launch: &Launch<'_>, command: &Command) -> Option<LintFinding> {
    let launcher = command.launcher().filter(|launcher| launcher.name == "accelerate")?;
    let n = launcher.nodes.filter(|n| *n > 1)?;
    let says = |name: &str| command.option(&[name]);
    let is_used =
        command.words.iter().any(|word| word.trim_start_matches('-').replace('-', "_") == "use_deepspeed");
    let is_told = says("deepspeed-multinode-launcher").is_some() || says("deepspeed-hostfile").is_some();
    // A configuration may say the rest.
    if !is_used || is_told || says("config-file").is_some() {
        return None;
    }
    let title = format!(
        "{n} machines without deepspeed_multinode_launcher: DeepSpeed's launcher looks for a file of hosts, and without one each machine trains alone"
    );
    let help =
        "deepspeed_multinode_launcher: standard where each machine starts its own, or deepspeed_hostfile";
    let mut finding = launch.finding(&RULE, command.at, title, help);
    finding.confidence = Confidence::Medium;
    let block = launch.text.lines().position(|line| line.starts_with("deepspeed_config:"));
    if let Some(line) = block {
        let at = Spot { line: line as u32 + 1, column: 1, end_column: 2 };
        finding.related.push(launch.related(at, "it is to be said here".to_owned()));
    }
    Some(finding)
}

/// Compares the numbers for torchrun, accelerate or deepspeed with those of the scheduler or controller.
fn of_launcher(launch: &Launch<'_>, command: &Command) -> Vec<LintFinding> {
    let Some(launcher) = command.launcher() else { return Vec::new() };
    let mut findings = Vec::new();
    let nodes = launch.nodes();
    // Of a command that a container runs, the parts are listed by themselves, too.
    let launchers = launch.commands.iter().filter(|command| command.launcher().is_some()).count();
    let of_containers = || {
        let mut counts = launch.containers.iter().map(|container| container.n_gpus);
        let first = counts.next()?;
        let is_single = launch.containers.len() == 1 && launchers == 1;
        ((launch.is_controlled || is_single) && counts.all(|n| n == first)).then_some(first)
    };
    let gpus = launch.directive(GPUS).map(|(n, _)| n).or_else(of_containers).filter(|n| *n > 0);
    let name = launcher.name;
    let runs_everywhere = command.starts("srun") || launch.is_controlled;
    if let (Some((have, _)), Some(want)) = (nodes, launcher.nodes)
        && have != want
        && runs_everywhere
    {
        let title = format!("{name} waits for {want} nodes, and the job has {have}");
        let help = "take the number from the scheduler: $SLURM_NNODES, or the controller's variables";
        findings.push(launch.finding(&RULE, command.at, title, help));
    }
    if let (Some(have), Some(want)) = (gpus, launcher.per_node)
        && want > have
    {
        let title = format!("{want} processes a node share {have} GPU{}", if have == 1 { "" } else { "s" });
        let help = "start as many processes as the node has GPUs: --nproc-per-node=gpu";
        findings.push(launch.finding(&RULE, command.at, title, help));
    }
    // accelerate wants the number in the whole job.
    let n_nodes = launcher.nodes.or(nodes.map(|(n, _)| n)).unwrap_or(1);
    if let Some(total) = launcher.total
        && n_nodes > 1
    {
        let help = "num_processes counts the whole job: machines times GPUs of each";
        if total % n_nodes != 0 {
            let title = format!("{total} processes do not divide among {n_nodes} machines");
            findings.push(launch.finding(&RULE, command.at, title, help));
        } else if gpus.is_some_and(|have| have > 1 && total == have) {
            let title = format!("{total} processes in all, for {n_nodes} machines with {total} GPUs each");
            let mut finding = launch.finding(&RULE, command.at, title, help);
            finding.confidence = Confidence::Medium;
            findings.push(finding);
        }
    }
    findings
}

/// A launcher that waits for several nodes and that the batch script starts on the first alone.
fn on_first_node(launch: &Launch<'_>, command: &Command) -> Option<LintFinding> {
    const ELSEWHERE: &[&str] = &["srun", "ssh", "mpirun", "mpiexec", "pdsh", "clush", "parallel", "sbatch"];
    let launcher = command.launcher()?;
    let (have, _) = launch.nodes().filter(|(n, _)| *n > 1 && !launch.is_controlled)?;
    let want = launcher.nodes.filter(|n| *n > 1)?;
    let is_batch = launch.text.contains("#SBATCH");
    let goes_out = ELSEWHERE.iter().any(|name| {
        launch.text.lines().filter(|line| !line.trim_start().starts_with('#')).any(|line| line.contains(name))
    });
    (is_batch && launcher.name == "torchrun" && !goes_out).then(|| {
        let title =
            format!("torchrun waits for {want} nodes, and the batch script starts it on the first of {have}");
        let mut finding =
            launch.finding(&RULE, command.at, title, "start it on each node: srun torchrun ...");
        finding.confidence = Confidence::Medium;
        finding
    })
}

/// More processes than CUDA_VISIBLE_DEVICES shows GPUs.
fn visible(launch: &Launch<'_>, command: &Command) -> Option<LintFinding> {
    let listed = |value: &str| {
        let is_number = |part: &str| part.trim().parse::<u32>().is_ok();
        value.split(',').all(is_number).then(|| value.split(',').count() as u64)
    };
    let launcher = command.launcher()?;
    let is_list = |setting: &&Setting| setting.name == "CUDA_VISIBLE_DEVICES";
    let own = command.own.iter().find(is_list);
    let mut all = launch.settings.iter().filter(is_list);
    let exported = all.next().filter(|setting| all.next().is_none() && setting.at.line < command.at.line);
    let setting = own.or(exported);
    let listed_ids = command.option(&["gpu-ids"]).and_then(listed);
    let have = setting.and_then(|setting| listed(setting.value.as_deref()?)).or(listed_ids)?;
    let n_nodes = launcher.nodes.unwrap_or(1).max(1);
    let want = launcher.per_node.or(launcher.total.map(|n| n / n_nodes))?;
    (want > have && !command.starts("--cpu") && !command.starts("ssh")).then(|| {
        let title = format!(
            "{want} processes of a node, and they see {have} GPU{}",
            if have == 1 { "" } else { "s" }
        );
        let help = "as many processes as there are GPUs in CUDA_VISIBLE_DEVICES";
        launch.finding(&RULE, command.at, title, help)
    })
}

/// Compares the numbers on a trainer's command line with the processes that srun starts.
fn of_trainer(launch: &Launch<'_>, command: &Command) -> Option<LintFinding> {
    if command.program() != "srun" || command.launcher().is_some() || !command.starts_python() {
        return None;
    }
    let told = |names: &[&str]| {
        command.words.iter().enumerate().find_map(|(n, word)| {
            let (key, value) = match word.split_once('=') {
                Some((key, value)) => (key, value),
                None => (word.as_str(), command.words.get(n + 1)?.as_str()),
            };
            let last = key.trim_start_matches('-').rsplit('.').next()?.replace('-', "_");
            if names.contains(&last.as_str()) && key.contains("trainer.") {
                value.parse::<u64>().ok()
            } else {
                None
            }
        })
    };
    let help = "let the trainer's num_nodes and devices be --nodes and --ntasks-per-node of the job";
    let mut title = None;
    if let (Some((have, _)), Some(want)) = (launch.nodes(), told(&["num_nodes"]))
        && have != want
    {
        title = Some(format!("the trainer is told of {want} nodes, and the job has {have}"));
    }
    let tasks = launch.directive(&["ntasks-per-node", "tasks-per-node"]);
    if let (Some((have, _)), Some(want)) = (tasks, told(&["devices", "gpus"]))
        && have != want
        && have > 1
    {
        title =
            Some(format!("the trainer is told of {want} devices a node, and srun starts {have} tasks there"));
    }
    let mut finding = launch.finding(&RULE, command.at, title?, help);
    finding.confidence = Confidence::Medium;
    Some(finding)
}

/// The number of nodes as the number of processes.
fn world_of_nodes(launch: &Launch<'_>) -> Option<LintFinding> {
    let (n_tasks, _) = launch.directive(&["ntasks-per-node", "tasks-per-node"]).filter(|(n, _)| *n > 1)?;
    let is_nodes = |raw: &str| {
        let name = raw.trim_matches(['"', '$', '{', '}']);
        matches!(name, "SLURM_NNODES" | "SLURM_JOB_NUM_NODES")
    };
    let setting =
        launch.settings.iter().find(|setting| setting.name == "WORLD_SIZE" && is_nodes(&setting.raw))?;
    let is_plain = launch.commands.iter().any(|command| {
        command.program() == "srun" && command.launcher().is_none() && command.starts_python()
    });
    is_plain.then(|| {
        let title = format!("WORLD_SIZE is the number of nodes, and each node runs {n_tasks} processes");
        let mut finding =
            launch.finding(&RULE, setting.at, title, "WORLD_SIZE counts processes: $SLURM_NTASKS");
        finding.confidence = Confidence::Medium;
        finding
    })
}
