//! YAML: Kubernetes, Compose, and configuration with variables; templates of Helm and Jinja are blanked.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use saphyr::{LoadableYamlNode as _, MarkedYaml, Scalar, YamlData};

use super::{Batch, Container, Launch, Setting, Spot, Training, is_tiny, last_number, shell};

/// Depth of what is looked at.
const MAX_DEPTH: usize = 60;
/// Longest file: the parser's time grows faster than its input.
const MAX_BYTES: usize = 1 << 20;

/// Keys that are read at every place.
const KEYS: &[&str] =
    &["env", "environment", "envVars", "env_vars", "args", "command", "run", "script", "services"];
/// Words without which nothing else is read.
const WORDS: &[&str] = &[
    "nvidia.com/gpu",
    "pytorchReplicaSpecs",
    "numNodes",
    "completionMode",
    "num_processes",
    "train_micro_batch_size_per_gpu",
    // Keys may be spelt with an escape or an alias, or stand on a line of their own.
    "\\",
    "? ",
    " :",
    "\t:",
    "\n:",
    "?\n",
    "?\t",
];

/// Whether a file has a key that is read. Most configurations have none, and parsing them takes long.
fn may_matter(text: &str) -> bool {
    static FINDER: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let build = || AhoCorasick::builder().build(KEYS.iter().chain(WORDS)).ok();
    let Some(finder) = FINDER.get_or_init(build) else { return true };
    finder.find_overlapping_iter(text).any(|found| {
        found.pattern().as_usize() >= KEYS.len() || {
            let after = text.get(found.end()..).unwrap_or_default();
            after.trim_start_matches(['"', '\'']).starts_with(':')
        }
    })
}

pub(super) fn read(text: &str, launch: &mut Launch<'_>) {
    if !may_matter(text) {
        return;
    }
    let depth = text.lines().map(|line| line.len() - line.trim_start().len()).max().unwrap_or_default();
    let brackets = text.bytes().filter(|byte| matches!(byte, b'[' | b'{')).count();
    if text.len() > MAX_BYTES || depth > MAX_DEPTH * 8 || brackets > 20_000 || is_nested(text) {
        return;
    }
    // Anchors may stand for each other many times over.
    if text.matches(": *").count() + text.matches("- *").count() > 200 {
        return;
    }
    let documents = MarkedYaml::load_from_str(text).or_else(|_| {
        let blanked: Vec<String> = text.lines().map(blank).collect();
        let blanked = blanked.join("\n");
        // What borrows from the blanked text is read before it goes.
        let result = MarkedYaml::load_from_str(&blanked).map(|documents| {
            for document in &documents {
                visit(document, 0, launch);
            }
        });
        result.map(|()| Vec::new())
    });
    for document in documents.iter().flatten() {
        visit(document, 0, launch);
    }
}

fn is_nested(text: &str) -> bool {
    let mut depth = 0_usize;
    text.bytes().any(|byte| {
        match byte {
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        depth > MAX_DEPTH
    })
}

/// A line of a template without what is no YAML.
fn blank(line: &str) -> String {
    let trimmed = line.trim_start();
    if trimmed.starts_with("{{") || trimmed.starts_with("{%") {
        return String::new();
    }
    let mut out = String::new();
    let mut rest = line;
    while let Some((before, inside)) = rest.split_once("{{") {
        out.push_str(before);
        out.push('x');
        rest = inside.split_once("}}").map_or("", |(_, after)| after);
    }
    out.push_str(rest);
    out
}

fn text_of(node: &MarkedYaml<'_>) -> Option<String> {
    match &node.data {
        YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
        YamlData::Value(Scalar::Integer(n)) => Some(n.to_string()),
        YamlData::Value(Scalar::Boolean(value)) => Some(value.to_string()),
        YamlData::Value(Scalar::FloatingPoint(n)) => Some(n.to_string()),
        YamlData::Representation(text, ..) => Some(text.to_string()),
        _ => None,
    }
}

fn spot(node: &MarkedYaml<'_>) -> Spot {
    let start = node.span.start;
    let column = start.col() as u32 + 1;
    Spot { line: start.line().max(1) as u32, column, end_column: column + 1 }
}

fn get<'a, 'i>(node: &'a MarkedYaml<'i>, key: &str) -> Option<&'a MarkedYaml<'i>> {
    let YamlData::Mapping(map) = &node.data else { return None };
    map.iter().find(|(name, _)| text_of(name).as_deref() == Some(key)).map(|(_, value)| value)
}

fn list<'a, 'i>(node: Option<&'a MarkedYaml<'i>>) -> &'a [MarkedYaml<'i>] {
    match node.map(|node| &node.data) {
        Some(YamlData::Sequence(items)) => items,
        _ => &[],
    }
}

fn visit(node: &MarkedYaml<'_>, depth: usize, launch: &mut Launch<'_>) {
    if depth > MAX_DEPTH {
        return;
    }
    match &node.data {
        YamlData::Mapping(map) => {
            pod(node, launch);
            controlled(node, launch);
            launch.trainings.extend(training(node));
            if depth == 0 {
                of_accelerate(node, launch);
                batch(node, launch);
            }
            for (key, value) in map {
                match text_of(key).as_deref() {
                    Some("env" | "environment" | "envVars" | "env_vars") => variables(value, launch),
                    Some("args" | "command" | "run" | "script") => script(value, launch),
                    _ => {}
                }
                visit(value, depth + 1, launch);
            }
        }
        YamlData::Sequence(items) => items.iter().for_each(|item| {
            passed(item, launch);
            visit(item, depth + 1, launch);
        }),
        _ => {}
    }
}

/// `- -e NAME=value`: an option of what starts a container.
fn passed(item: &MarkedYaml<'_>, launch: &mut Launch<'_>) {
    let Some(text) = text_of(item) else { return };
    let Some(rest) = ["-e ", "--env ", "--env="].iter().find_map(|option| text.strip_prefix(option)) else {
        return;
    };
    if let Some((name, value)) = rest.trim().split_once('=') {
        let raw = value.trim_matches(['"', '\'']).to_owned();
        let value = Some(raw.clone()).filter(|value| !value.contains(['$', '{', '<']));
        launch.settings.push(Setting { name: name.to_owned(), value, raw, at: spot(item) });
    }
}

/// `- name: X, value: y`; `X: y`; `- X=y`.
fn variables(node: &MarkedYaml<'_>, launch: &mut Launch<'_>) {
    let mut push = |name: String, value: Option<String>, at: Spot| {
        let raw = value.clone().unwrap_or_default();
        let value = value.filter(|value| !value.contains(['$', '{', '<']) && value != "x");
        launch.settings.push(Setting { name, value, raw, at });
    };
    match &node.data {
        YamlData::Mapping(map) => {
            for (key, value) in map {
                if let Some(name) = text_of(key) {
                    push(name, text_of(value), spot(key));
                }
            }
        }
        YamlData::Sequence(items) => {
            for item in items {
                if let Some(name) = get(item, "name").and_then(text_of) {
                    push(name, get(item, "value").and_then(text_of), spot(item));
                } else if let Some(text) = text_of(item)
                    && let Some((name, value)) = text.split_once('=')
                {
                    push(name.to_owned(), Some(value.to_owned()), spot(item));
                }
            }
        }
        _ => {}
    }
}

/// A script in a manifest.
fn script(node: &MarkedYaml<'_>, launch: &mut Launch<'_>) {
    let items = list(Some(node));
    let single = std::slice::from_ref(node);
    for item in if items.is_empty() { single } else { items } {
        if let Some(text) = text_of(item)
            && (text.contains('\n') || text.contains("export ") || text.contains("torchrun"))
        {
            // A block starts with its first line, after its mark.
            shell::read(&text, item.span.start.line().max(1) as u32 - 1, launch);
        }
    }
    let mut words: Vec<String> = items.iter().filter_map(text_of).collect();
    // `command: serve --nnodes 2`
    if items.is_empty()
        && let Some(text) = text_of(node)
        && !text.contains('\n')
        && !text.contains("torchrun")
    {
        words = text.split_whitespace().map(str::to_owned).collect();
    }
    if words.len() > 1 {
        launch.commands.push(super::Command { words, at: spot(node), ..super::Command::default() });
    }
}

/// Whether a container asks for an adapter: `rdma/hca_shared_devices_a`, `nvidia.com/rdma_shared_device`.
fn asks_for_rdma(resources: &MarkedYaml<'_>) -> bool {
    ["limits", "requests"].iter().filter_map(|kind| get(resources, kind)).any(|asked| {
        let YamlData::Mapping(map) = &asked.data else { return false };
        map.iter().filter_map(|(key, _)| text_of(key)).any(|key| {
            key.starts_with("rdma/")
                || ["/rdma", "/hca", "/ib", "/roce", "/efa"].iter().any(|part| key.contains(part))
        })
    })
}

/// The numbers of nodes and processes of a controller: PyTorchJob, TrainJob, an indexed Job.
fn controlled(node: &MarkedYaml<'_>, launch: &mut Launch<'_>) {
    let number = |node: Option<&MarkedYaml<'_>>| node.and_then(text_of).and_then(|n| n.parse::<u64>().ok());
    let found = if let Some(replicas) = get(node, "pytorchReplicaSpecs") {
        let YamlData::Mapping(kinds) = &replicas.data else { return };
        let counts = kinds.iter().map(|(_, spec)| match get(spec, "replicas") {
            Some(n) => number(Some(n)),
            None => Some(1),
        });
        counts.sum::<Option<u64>>().map(|n| (n, spot(replicas)))
    } else if let Some(trainer) = get(node, "trainer") {
        number(get(trainer, "numNodes")).map(|n| (n, spot(trainer)))
    } else if get(node, "completionMode").and_then(text_of).as_deref() == Some("Indexed") {
        // Those that run at once.
        let at_once = number(get(node, "parallelism"));
        number(get(node, "completions")).map(|n| (at_once.map_or(n, |at_once| at_once.min(n)), spot(node)))
    } else if get(node, "run").is_some() && get(node, "num_nodes").is_some() {
        // A task of SkyPilot.
        number(get(node, "num_nodes")).map(|n| (n, spot(node)))
    } else if list(get(node, "replicatedJobs"))
        .iter()
        .any(|job| get(job, "replicas").is_some_and(|n| text_of(n).as_deref() != Some("1")))
    {
        // As many jobs of its kind: how many nodes, no single number says.
        launch.directives.push(("nodes".to_owned(), String::new(), spot(node)));
        None
    } else {
        None
    };
    if let Some((n, at)) = found {
        launch.is_controlled = true;
        launch.directives.push(("nodes".to_owned(), n.to_string(), at));
        per_node(node, at, launch);
    }
}

/// A TrainJob, or a runtime for such jobs.
fn training(node: &MarkedYaml<'_>) -> Option<Training> {
    let kind = get(node, "kind").and_then(text_of)?;
    let is_job = kind == "TrainJob";
    if !is_job && !matches!(kind.as_str(), "TrainingRuntime" | "ClusterTrainingRuntime") {
        return None;
    }
    let number = |node: Option<&MarkedYaml<'_>>| node.and_then(text_of).and_then(|n| n.parse::<u64>().ok());
    let spec = get(node, "spec")?;
    let trainer = get(spec, "trainer");
    let named = if is_job { get(spec, "runtimeRef") } else { get(node, "metadata") };
    let policy = get(spec, "mlPolicy").and_then(|policy| get(policy, "mpi"));
    let per_node = if is_job { trainer } else { policy }.and_then(|of| get(of, "numProcPerNode"));
    let asked = trainer.and_then(|trainer| get(trainer, "resourcesPerNode"));
    let kinds = ["limits", "requests"];
    let n_gpus = kinds.iter().find_map(|kind| number(get(get(asked?, kind)?, "nvidia.com/gpu")));
    let runtime = named.and_then(|named| get(named, "name")).and_then(text_of)?;
    let at = per_node.map_or_else(|| spot(spec), spot);
    Some(Training { runtime, is_job, per_node: number(per_node), n_gpus, at })
}

/// The processes of each node that a controller starts itself: `nprocPerNode`, `numProcPerNode`.
fn per_node(node: &MarkedYaml<'_>, at: Spot, launch: &mut Launch<'_>) {
    let trainer = get(node, "trainer");
    let wanted = get(node, "nprocPerNode").or_else(|| trainer.and_then(|t| get(t, "numProcPerNode")));
    if let Some(n) = wanted.and_then(text_of).filter(|n| n.parse::<u64>().is_ok()) {
        let words = ["torchrun", "--nproc-per-node", &n].map(str::to_owned).to_vec();
        let at = wanted.map_or(at, spot);
        launch.commands.push(super::Command { words, at, ..super::Command::default() });
    }
    let asked = trainer.and_then(|t| get(t, "resourcesPerNode"));
    let gpus = ["limits", "requests"]
        .iter()
        .find_map(|kind| get(get(asked?, kind)?, "nvidia.com/gpu").and_then(text_of));
    if let Some(n) = gpus {
        launch.directives.push(("gpus-per-node".to_owned(), n, at));
    }
}

/// A configuration of accelerate says what its command line would.
fn of_accelerate(node: &MarkedYaml<'_>, launch: &mut Launch<'_>) {
    const KEYS: &[&str] =
        &["num_machines", "num_processes", "main_process_ip", "main_process_port", "gpu_ids"];
    if get(node, "num_processes").is_none() || get(node, "distributed_type").is_none() {
        return;
    }
    let mut words = vec!["accelerate".to_owned(), "launch".to_owned()];
    let mut at = spot(node);
    for key in KEYS {
        if let Some(found) = get(node, key)
            && let Some(value) = text_of(found)
        {
            words.extend([format!("--{key}"), value]);
            if *key == "num_processes" {
                at = spot(found);
            }
        }
    }
    let is_deepspeed = get(node, "distributed_type").and_then(text_of).as_deref() == Some("DEEPSPEED");
    if is_deepspeed && let Some(found) = get(node, "deepspeed_config") {
        words.push("--use_deepspeed".to_owned());
        for key in ["deepspeed_multinode_launcher", "deepspeed_hostfile"] {
            words.extend(get(found, key).and_then(text_of).map(|value| format!("--{key}={value}")));
        }
    }
    launch.commands.push(super::Command { words, at, ..super::Command::default() });
}

/// Batch sizes of a configuration of DeepSpeed.
fn batch(node: &MarkedYaml<'_>, launch: &mut Launch<'_>) {
    let number = |key: &str| get(node, key).map(|n| text_of(n).and_then(|n| n.parse::<u64>().ok()));
    let (Some(Some(train)), Some(Some(micro))) =
        (number("train_batch_size"), number("train_micro_batch_size_per_gpu"))
    else {
        return;
    };
    let Some(accumulation) = number("gradient_accumulation_steps").unwrap_or(Some(1)) else { return };
    let at = get(node, "train_batch_size").map_or_else(|| spot(node), spot);
    launch.batch = Some(Batch { train, micro, accumulation, at });
}

/// A configuration in JSON, which is YAML, too.
pub(super) fn configuration(text: &str, launch: &mut Launch<'_>) {
    if text.contains("train_micro_batch_size_per_gpu") {
        read(text, launch);
    }
}

/// Containers that ask for GPUs, with the memory that their pod shares.
fn pod(node: &MarkedYaml<'_>, launch: &mut Launch<'_>) {
    let is_host_ipc = get(node, "hostIPC").and_then(text_of).as_deref() == Some("true");
    let in_memory = list(get(node, "volumes")).iter().any(|volume| {
        get(volume, "emptyDir").and_then(|dir| get(dir, "medium")).and_then(text_of).as_deref()
            == Some("Memory")
            || get(volume, "hostPath").and_then(|host| get(host, "path")).and_then(text_of).as_deref()
                == Some("/dev/shm")
    });
    for container in list(get(node, "containers")) {
        let resources = get(container, "resources");
        let asked = ["limits", "requests"].iter().find_map(|kind| {
            let list = resources.and_then(|r| get(r, kind))?;
            get(list, "nvidia.com/gpu").and_then(text_of).and_then(|n| last_number(&n))
        });
        let mounts = list(get(container, "volumeMounts")).iter();
        let mut paths = mounts.filter_map(|mount| get(mount, "mountPath")).filter_map(text_of);
        // What a template fills in may be anything.
        let is_mounted =
            paths.any(|path| path.trim_end_matches('/') == "/dev/shm" || (in_memory && path == "x"));
        if let Some(n_gpus) = asked {
            let has_shared_memory = is_host_ipc || is_mounted;
            let security = get(container, "securityContext");
            let is_privileged =
                security.and_then(|s| get(s, "privileged")).and_then(text_of).as_deref() == Some("true");
            let added = security.and_then(|s| get(s, "capabilities")).and_then(|c| get(c, "add"));
            let can_lock = is_privileged
                || list(added)
                    .iter()
                    .filter_map(text_of)
                    .any(|name| matches!(name.trim_start_matches("CAP_"), "IPC_LOCK" | "ALL" | "SYS_ADMIN"));
            let has_rdma = is_privileged || resources.is_some_and(asks_for_rdma);
            launch.containers.push(Container {
                n_gpus,
                has_shared_memory,
                has_rdma,
                can_lock,
                at: spot(container),
            });
        }
    }
    // Compose.
    let YamlData::Mapping(services) = &node.data else { return };
    for (key, value) in services {
        if text_of(key).as_deref() != Some("services") {
            continue;
        }
        let YamlData::Mapping(services) = &value.data else { continue };
        for (name, service) in services {
            let devices = get(service, "deploy")
                .and_then(|d| get(d, "resources"))
                .and_then(|r| get(r, "reservations"))
                .and_then(|r| get(r, "devices"));
            let counts = list(devices).iter().map(|device| {
                let count = get(device, "count").and_then(text_of).and_then(|n| last_number(&n));
                count.unwrap_or_else(|| list(get(device, "device_ids")).len() as u64)
            });
            let n_gpus = counts.max().unwrap_or_default();
            let all = list(devices)
                .iter()
                .any(|device| get(device, "count").and_then(text_of).as_deref() == Some("all"));
            let n_gpus = if all { n_gpus.max(started(service)) } else { n_gpus };
            let is_large =
                get(service, "shm_size").is_some_and(|size| text_of(size).is_none_or(|size| !is_tiny(&size)));
            let has_shared_memory = is_large || get(service, "ipc").is_some();
            if n_gpus > 0 {
                let texts = |key: &str| -> Vec<String> {
                    list(get(service, key)).iter().filter_map(text_of).collect()
                };
                let is_privileged = get(service, "privileged").and_then(text_of).as_deref() == Some("true");
                let has_rdma =
                    is_privileged || texts("devices").iter().any(|device| device.contains("/dev/infiniband"));
                let can_lock = is_privileged
                    || get(service, "ulimits").and_then(|limits| get(limits, "memlock")).is_some()
                    || texts("cap_add").iter().any(|name| name == "IPC_LOCK");
                launch.containers.push(Container {
                    n_gpus,
                    has_shared_memory,
                    has_rdma,
                    can_lock,
                    at: spot(name),
                });
            }
        }
    }
}

/// Number of processes that the command of a Compose service starts; 0 if it does not show it.
fn started(service: &MarkedYaml<'_>) -> u64 {
    let Some(command) = get(service, "command") else { return 0 };
    let parts = list(Some(command));
    let text = match text_of(command) {
        Some(text) => text,
        None => parts.iter().filter_map(text_of).collect::<Vec<_>>().join(" "),
    };
    let words = text.split_whitespace().map(str::to_owned).collect();
    let command = super::Command { words, ..super::Command::default() };
    command.number(&["nproc-per-node"]).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_with_a_key_that_is_read_are_parsed_and_others_are_not() {
        assert!(may_matter("job:\n  env:\n    - name: X\n"));
        assert!(may_matter("{\"envVars\": {}}"));
        assert!(may_matter("'command' : [sh]"));
        assert!(may_matter("? run\n: x"));
        assert!(may_matter("\"\\x65nv\": x"));
        assert!(may_matter("limits: {nvidia.com/gpu: 8}"));
        assert!(!may_matter("model:\n  hidden: 4096\n  environments: [a, run, env]\n"));
    }
}
