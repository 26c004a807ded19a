//! The language of a file, from its content; the name decides only if the content does not.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;

/// A language that is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Python.
    Python,
    /// bash and sh, sbatch files.
    Shell,
    /// YAML: Kubernetes, Compose, configuration.
    Yaml,
    /// A Dockerfile.
    Dockerfile,
    /// `NAME=value` lines.
    Env,
    /// JSON: configuration.
    Json,
    /// Lists of packages for pip: requirements.txt, pyproject.toml.
    Requirements,
    /// Anything else: not read.
    Other,
}

/// Lines that are looked at.
const MAX_LINES: usize = 60;

/// Tells the language of a file.
pub fn tell(path: &str, text: &str) -> Language {
    let first = text.lines().next().unwrap_or_default();
    if let Some(program) = first.strip_prefix("#!") {
        return match () {
            () if program.contains("python") => Language::Python,
            () if ["sh", "bash", "zsh", "dash"]
                .iter()
                .any(|shell| program.split(['/', ' ']).any(|w| w == *shell)) =>
            {
                Language::Shell
            }
            () => Language::Other,
        };
    }
    let name = path.rsplit('/').next().unwrap_or_default();
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    let is_list = extension == "txt" && (name.starts_with("requirements") || name.starts_with("constraints"));
    if is_list || name == "pyproject.toml" {
        return Language::Requirements;
    }
    match extension {
        "py" | "pyi" => return Language::Python,
        "yaml" | "yml" => return Language::Yaml,
        "json" => return Language::Json,
        "sh" | "bash" | "sbatch" | "slurm" => return Language::Shell,
        "env" => return Language::Env,
        "md" | "rst" | "txt" | "toml" | "ipynb" | "lock" | "csv" | "html" | "js" | "ts" | "rs" | "go"
        | "java" | "c" | "h" | "cc" | "cpp" | "cu" | "cuh" | "hpp" | "cfg" | "ini" | "xml" | "svg"
        | "proto" | "ps1" | "bat" | "diff" | "patch" | "log" | "out" | "err" => return Language::Other,
        _ => {}
    }
    by_content(name, text)
}

fn by_content(name: &str, text: &str) -> Language {
    let lines = || text.lines().take(MAX_LINES).map(str::trim_end).filter(|line| !line.is_empty());
    if lines().any(|line| line.starts_with("#SBATCH ") || line.starts_with("#PBS ")) {
        return Language::Shell;
    }
    let code = || lines().filter(|line| !line.trim_start().starts_with('#'));
    let Some(start) = code().next() else { return Language::Other };
    let word = start.split_whitespace().next().unwrap_or_default();
    if start.trim_start().starts_with('{') {
        return Language::Json;
    }
    let is_image = |word: &str| word.eq_ignore_ascii_case("from") || word.eq_ignore_ascii_case("arg");
    if is_image(word)
        && code().any(|line| line.split_whitespace().next().is_some_and(|w| w.eq_ignore_ascii_case("from")))
        && !code().any(|line| line.starts_with("from ") && line.contains(" import "))
    {
        return Language::Dockerfile;
    }
    let is_python = |line: &str| {
        line.starts_with("import ")
            || line.starts_with("def ")
            || line.starts_with("class ")
            || line.starts_with("\"\"\"")
            || (line.starts_with("from ") && line.contains(" import "))
    };
    if code().any(is_python) {
        return Language::Python;
    }
    if code().any(|line| {
        line.starts_with("apiVersion:") || line.starts_with("kind:") || line.starts_with("services:")
    }) {
        return Language::Yaml;
    }
    let is_assignment = |line: &str| {
        line.split_once('=').is_some_and(|(key, _)| {
            !key.is_empty() && key.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
        })
    };
    if code().all(is_assignment) {
        return Language::Env;
    }
    let is_shell = |line: &str| {
        ["export ", "set -", "srun ", "torchrun ", "source ", "if [", "module load", "mpirun "]
            .iter()
            .any(|w| line.starts_with(w))
    };
    if code().any(is_shell) {
        return Language::Shell;
    }
    // An empty script looks like anything: only the names that tools prescribe are left.
    match name {
        "Dockerfile" | "Containerfile" => Language::Dockerfile,
        _ => Language::Other,
    }
}

/// Whether a configuration asks for sharded parameters: FSDP, or ZeRO stage 3.
pub(crate) fn configures_sharding(text: &str) -> bool {
    static WORDS: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let words = ["distributed_type", "zero_stage", "fsdp", "zero_optimization"];
    let words = WORDS.get_or_init(|| AhoCorasick::new(words).ok());
    if words.as_ref().is_some_and(|words| !words.is_match(text)) {
        return false;
    }
    let squeezed: String = text.chars().filter(|c| !c.is_whitespace() && *c != '"').take(1 << 20).collect();
    ["distributed_type:FSDP", "distributed_type:DEEPSPEED", "zero_stage:3", "fsdp:full_shard", "fsdp_config:"]
        .iter()
        .any(|phrase| squeezed.contains(phrase))
        || (squeezed.contains("zero_optimization:") && squeezed.contains("stage:3"))
}

/// The folder whose programs a configuration is for: its own, or the one around a folder of configurations.
pub(crate) fn configured_folder(path: &str) -> &str {
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    let (around, name) = folder.rsplit_once('/').unwrap_or(("", folder));
    let lower = name.to_ascii_lowercase();
    let is_of_configurations =
        ["conf", "yaml", "deepspeed", "accelerate", "fsdp"].iter().any(|word| lower.contains(word));
    if is_of_configurations { around } else { folder }
}
