//! What of a process's environment and command line may be written down: the one place that decides.
//!
//! By list, not by what looks bad: a variable's value is kept if its name is one of the field's, a word of a command
//! line if it is the program, the script or module it runs, the name of a flag, or the value of a flag known to be
//! harmless. What is kept is then searched for the shapes of secrets all the same, because people put them anywhere.
//! Of what is cut only the name stays.

use std::collections::BTreeMap;

use ringleader_knowledge::{kept, program};

/// What replaces a removed word.
pub(crate) const CUT: &str = "<cut>";

/// Families beside those that all readers keep: how torchrun and OpenMPI place a process.
const FAMILIES: &[&str] = &["LOCAL_", "GROUP_", "ROLE_", "PET_", "OMPI_COMM_WORLD_"];
/// Single names beside those that all readers keep; of Slurm and MPI those that place a process, and no others.
const NAMES: &[&str] = &[
    "NNODES",
    "NPROC_PER_NODE",
    "NVIDIA_VISIBLE_DEVICES",
    "NVIDIA_DRIVER_CAPABILITIES",
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "HOSTNAME",
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "XDG_CACHE_HOME",
    "PYTHONUNBUFFERED",
    "PYTHONFAULTHANDLER",
    "PYTHONHASHSEED",
    "PYTHONOPTIMIZE",
    "JOB_COMPLETION_INDEX",
    "PMI_RANK",
    "PMI_SIZE",
    "PMIX_RANK",
    "PMIX_NAMESPACE",
    "JAX_COORDINATOR_ADDRESS",
    "JAX_NUM_PROCESSES",
    "JAX_PROCESS_ID",
    "MPI_LOCALRANKID",
    "MPI_LOCALNRANKS",
    "OMPI_MCA_btl",
    "OMPI_MCA_pml",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_CPUS_ON_NODE",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS",
    "SLURM_GPUS_ON_NODE",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GTIDS",
    "SLURM_JOBID",
    "SLURM_JOB_GPUS",
    "SLURM_JOB_ID",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_LAUNCH_NODE_IPADDR",
    "SLURM_LOCALID",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NODEID",
    "SLURM_NODELIST",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_PROCID",
    "SLURM_RESTART_COUNT",
    "SLURM_STEP_GPUS",
    "SLURM_STEP_ID",
    "SLURM_STEP_NODELIST",
    "SLURM_STEP_NUM_TASKS",
    "SLURM_STEP_TASKS_PER_NODE",
    "SLURM_TASKS_PER_NODE",
    "SLURMD_NODENAME",
];
/// Parts of names whose values are private, besides those that no reader keeps: a live process shows its whole
/// environment, so this filter is finer.
const SECRETS: &[&str] =
    &["PWD", "SIGNATURE", "BEARER", "PIN_CODE", "OTP", "LICENSE", "WEBHOOK", "DSN", "SAS"];
/// Whole names that say the same; too short to be looked for within others.
const SHORT_SECRETS: &[&str] = &["SIG", "PW", "PIN", "PSK", "CODE", "SALT"];
/// Names with such a part that hold none: an InfiniBand partition's number, a switch.
const NO_SECRETS: &[&str] =
    &["NCCL_IB_PKEY", "UCX_IB_PKEY", "NCCL_NET_SHARED_COMMS", "TORCH_NCCL_USE_COMM_NONBLOCKING"];
/// Longest value that is kept, bytes.
const MAX_VALUE: usize = 4096;
/// Variables of one process that are looked at, and words of one command line.
const MAX_VARIABLES: usize = 4096;
const MAX_WORDS: usize = 128;

/// The launcher's file, and what it starts.
const MAX_SCRIPTS: u32 = 2;

/// Flags of launchers whose values are kept, spelled with `-` and without the dashes in front.
const FLAGS: &[&str] = &[
    "nnodes",
    "nproc-per-node",
    "nproc",
    "node-rank",
    "rdzv-backend",
    "rdzv-endpoint",
    "rdzv-id",
    "rdzv-conf",
    "master-addr",
    "master-port",
    "local-rank",
    "local-addr",
    "max-restarts",
    "monitor-interval",
    "start-method",
    "role",
    "log-dir",
    "redirects",
    "tee",
    "num-processes",
    "num-machines",
    "machine-rank",
    "main-process-ip",
    "main-process-port",
    "mixed-precision",
    "num-gpus",
    "num-nodes",
    "include",
    "exclude",
    "hostfile",
    "launcher",
    "np",
    "ntasks",
    "ntasks-per-node",
    "gpus",
    "gpus-per-node",
    "gpus-per-task",
    "cpus-per-task",
    "nodes",
    "nodelist",
    "jobid",
    "cpu-bind",
    "gpu-bind",
    "mpi",
    "map-by",
    "bind-to",
    "backend",
];
/// Short flags whose values are kept: a module, a count, hosts.
const SHORT_FLAGS: &[&str] = &["m", "n", "np", "N", "H", "c", "w"];

/// The environment as it may be written down, and the names of the variables whose values were cut.
pub(crate) fn environment(bytes: &[u8]) -> (BTreeMap<String, String>, Vec<String>) {
    let (mut kept, mut cut) = (BTreeMap::new(), Vec::new());
    for pair in bytes.split(|byte| *byte == 0).take(MAX_VARIABLES) {
        let Ok(pair) = std::str::from_utf8(pair) else { continue };
        let Some((name, value)) = pair.split_once('=') else { continue };
        // A block without names (a program that wrote over its environment) may hold anything.
        let is_name = name.len() <= 128
            && !name.is_empty()
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'))
            && !looks_secret(name);
        if !is_name {
            continue;
        }
        let is_secret = if is_paths(name, value) { path_looks_secret(value) } else { looks_secret(value) };
        if is_kept(name) && value.len() <= MAX_VALUE && !is_secret {
            kept.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        } else {
            cut.push(name.to_owned());
        }
    }
    cut.sort();
    cut.dedup();
    (kept, cut)
}

/// Whether a variable of this name is one of the field's.
fn is_kept(name: &str) -> bool {
    let known = kept::matters(name)
        || NAMES.contains(&name)
        || FAMILIES.iter().any(|family| name.starts_with(family));
    known && !names_secret(name)
}

fn names_secret(name: &str) -> bool {
    let upper = name.to_ascii_uppercase();
    !NO_SECRETS.contains(&name)
        && (kept::SECRETS.iter().chain(SECRETS).any(|part| upper.contains(part))
            || SHORT_SECRETS.contains(&upper.as_str()))
}

/// The command line as it may be written down; a cut word stays as [`CUT`], so that the order can be read.
pub(crate) fn arguments(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    let mut words = text.trim_end_matches('\0').split('\0').take(MAX_WORDS).peekable();
    let mut kept = Vec::new();
    let Some(program) = words.next() else { return kept };
    // A process that renames itself puts its whole title here: `slurmstepd: [4711.0]`, `postgres: u h(50122)`.
    let program = program.split([' ', '=']).next().unwrap_or_default();
    let is_program = is_plain_path(program)
        && (program.starts_with(|c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '_' | '('))
            || ["-bash", "-sh", "-zsh"].contains(&program));
    kept.push(if is_program { program.to_owned() } else { CUT.to_owned() });
    let mut n_scripts = 0;
    while let Some(word) = words.next() {
        if let Some(flag) = word.strip_prefix('-') {
            let long = flag.strip_prefix('-');
            let body = long.unwrap_or(flag);
            let (name, value) =
                body.split_once('=').map_or((body, None), |(name, value)| (name, Some(value)));
            let is_name = name.len() <= 40
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
                && !looks_secret(name)
                // `-phunter2`: a short flag with its value.
                && (long.is_some() || name.len() <= 2);
            if !is_name {
                kept.push(CUT.to_owned());
                continue;
            }
            let dashes = if long.is_some() { "--" } else { "-" };
            if let Some(value) = value {
                kept.push(format!("{dashes}{name}={}", value_of(name, long.is_some(), value)));
                continue;
            }
            kept.push(format!("{dashes}{name}"));
            // The next word is its value, or a word of its own: cut unless it is known.
            if let Some(value) = words.next_if(|next| !next.starts_with('-')) {
                // `--standalone train.py`: a switch without value precedes the script.
                if n_scripts < MAX_SCRIPTS && is_script(value) && !names_secret(name) {
                    n_scripts += 1;
                    kept.push(value.to_owned());
                } else {
                    if name == "m" && long.is_none() {
                        n_scripts += 1;
                    }
                    kept.push(value_of(name, long.is_some(), value));
                }
            }
        } else if n_scripts < MAX_SCRIPTS && is_script(word) {
            n_scripts += 1;
            kept.push(word.to_owned());
        } else {
            kept.push(CUT.to_owned());
        }
    }
    kept
}

/// A flag's value, or the mark that it was cut.
fn value_of(name: &str, is_long: bool, value: &str) -> String {
    let spelled = name.replace('_', "-");
    let is_small_number = value.len() <= 8 && value.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    let known = if is_long { FLAGS.contains(&&*spelled) } else { SHORT_FLAGS.contains(&name) };
    let is_plain = value.len() <= 256
        && value.bytes().all(|b| {
            b.is_ascii_alphanumeric()
                || matches!(b, b'-' | b'_' | b'.' | b':' | b',' | b'/' | b'[' | b']' | b'=' | b'%')
        });
    // `-c` is code for python and sh, and a count for srun.
    let is_code = name == "c" && !is_small_number;
    if (known || is_small_number) && is_plain && !is_code && !names_secret(name) && !looks_secret(value) {
        value.to_owned()
    } else {
        CUT.to_owned()
    }
}

/// A file that an interpreter or launcher runs.
fn is_script(word: &str) -> bool {
    let last = word.rsplit('/').next().unwrap_or(word);
    let is_named =
        last.rsplit_once('.').is_some_and(|(_, end)| matches!(end, "py" | "sh" | "pyc" | "pex" | "sif"));
    let is_program = word.starts_with('/') && program::is(program::ProgramRole::Script, last);
    (is_named || is_program) && is_plain_path(word)
}

fn is_plain_path(word: &str) -> bool {
    word.len() <= 256
        && word.bytes().all(|b| {
            b.is_ascii_alphanumeric() || matches!(b, b'/' | b'.' | b'-' | b'_' | b'+' | b':' | b'(' | b')')
        })
        && !looks_secret(word)
}

/// A name that anybody may have given, on one line: of a program, a file.
pub(crate) fn clean(name: &str) -> String {
    name.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

/// Whether a variable's value is a path, or a list of some.
fn is_paths(name: &str, value: &str) -> bool {
    let is_path = |path: &str| path.starts_with('/') || path.starts_with("./") || path.starts_with("../");
    value.split(':').all(is_path) || (name.ends_with("_FILE") && value.contains('/') && !value.contains(':'))
}

/// Whether a path of a file or folder holds something of the shape of a secret. Runs, containers and commits are named
/// by hexadecimal numbers: those are none, unless the name that contains them says otherwise.
pub(crate) fn path_looks_secret(path: &str) -> bool {
    let mut folder = "";
    let mut rest = String::with_capacity(path.len());
    for name in path.split('/') {
        let says_secret = names_secret(folder) || names_secret(name);
        for piece in name.split_inclusive(['-', '_', '.']) {
            let word = piece.trim_end_matches(['-', '_', '.']);
            let is_id = word.len() >= TOKEN_LETTERS && is_hex(word) && !says_secret;
            rest.push_str(if is_id { "id" } else { piece });
        }
        rest.push('/');
        folder = name;
    }
    // `hf_0123…` is one all the same.
    looks_secret(&rest) || path.split('/').any(has_known_head)
}

/// Hexadecimal digits of one case.
fn is_hex(piece: &str) -> bool {
    let all = |letters: std::ops::RangeInclusive<u8>| {
        piece.bytes().all(|b| b.is_ascii_digit() || letters.contains(&b))
    };
    all(b'a'..=b'f') || all(b'A'..=b'F')
}

/// Whether a text holds something of the shape of a secret.
pub(crate) fn looks_secret(text: &str) -> bool {
    if text.contains("-----BEGIN") || text.contains(char::is_control) {
        return true;
    }
    // Credentials within an address: scheme://user:password@host.
    for (at, _) in text.match_indices("://") {
        let rest = text.get(at + 3..).unwrap_or_default();
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        // A password may hold a slash: then the '@' comes later.
        if authority.contains('@') || rest.split_whitespace().next().is_some_and(|word| word.contains('@')) {
            return true;
        }
    }
    let lower = text.to_ascii_lowercase();
    if lower.contains("bearer ") || lower.contains("basic ") {
        return true;
    }
    for pair in text.split([';', '&', '?', ',', ' ', '"', '\'', '{', '}']) {
        let Some((name, value)) = pair.split_once(['=', ':']) else { continue };
        // Of `/a/long/path/token=x` the last name is the value's.
        let last = name.rsplit('/').next().unwrap_or(name);
        let says_secret = [name, last].iter().any(|name| name.len() <= 64 && names_secret(name));
        if !value.is_empty() && says_secret {
            return true;
        }
    }
    text.split([',', ';', ':', '=', ' ', '/', '"', '\'', '@', '?', '&', '|', '(', ')', '[', ']', '{', '}'])
        .any(is_token)
        || text.split([',', ';', ':', '=', ' ', '"', '\'', '?', '&', '|']).any(is_blob)
        || is_blob(text)
}

/// So many letters and digits in one piece are no word of a person; the pieces of UUIDs are twelve.
const TOKEN_LETTERS: usize = 20;

/// A token of a well-known service.
fn has_known_head(word: &str) -> bool {
    kept::TOKENS.iter().any(|(head, least)| {
        word.match_indices(head).any(|(at, _)| {
            let is_start = at == 0 || !word.as_bytes().get(at - 1).is_some_and(u8::is_ascii_alphanumeric);
            is_start && word.len() - at >= head.len() + least
        })
    })
}

fn is_token(word: &str) -> bool {
    has_known_head(word)
        || word.split(['.', '-', '_']).any(|piece| {
            piece.len() >= TOKEN_LETTERS
                && piece.bytes().any(|b| b.is_ascii_digit())
                && piece.bytes().any(|b| b.is_ascii_alphabetic())
                && piece.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'+')
        })
}

/// One long word of all kinds of characters, as base64 gives, that is no path and no list.
fn is_blob(text: &str) -> bool {
    let is_path = text.starts_with(['/', '.', '~', '%']) || text.contains("://");
    text.len() >= 32
        && !is_path
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/' | b'=' | b'-' | b'_'))
        && text.bytes().any(|b| b.is_ascii_uppercase())
        && text.bytes().any(|b| b.is_ascii_lowercase())
        && (text.bytes().any(|b| b.is_ascii_digit()) || text.bytes().any(|b| matches!(b, b'+' | b'=')))
        && !text.starts_with("GPU-")
        && !text.starts_with("MIG-")
}

#[cfg(test)]
#[path = "allowed_tests.rs"]
mod tests;
