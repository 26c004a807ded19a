//! Ready-to-use files for Slurm, Kubernetes and plain torchrun: `run --print-scripts`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::policy::{Checkpoint, Policy};

/// The job that the files are for.
#[derive(Clone, Debug, PartialEq)]
pub struct ScriptRequest {
    /// The given command, if any.
    pub command: Vec<String>,
    /// Number of nodes.
    pub nodes: u32,
    /// Smallest number of nodes.
    pub least: u32,
    /// Name of the job.
    pub job: String,
    /// Folder of checkpoints, if given.
    pub checkpoints: Option<String>,
    /// Address of the hub, if given.
    pub hub: Option<String>,
    /// Further options of `run`, each one word: `--webhook=URL`.
    pub options: Vec<String>,
    /// The policy.
    pub policy: Policy,
}

/// Name and text of each file. `folder` is their destination.
pub fn files(asked: &ScriptRequest, folder: &Path) -> Vec<(&'static str, String)> {
    let name = label(&asked.job);
    let checkpoints = asked.checkpoints.clone().unwrap_or_else(|| "ckpt".to_owned());
    let command = command(asked);
    let shell = command.iter().map(|word| quoted(word)).collect::<Vec<_>>().join(" ");
    // Kubernetes would expand `$(X)`.
    let argument = |word: &String| serde_json::to_string(&word.replace("$(", "$$(")).unwrap_or_default();
    let rows = |indent: usize| {
        let blank = " ".repeat(indent);
        let words = asked.options.iter().cloned().chain(["--".to_owned()]).chain(command.iter().cloned());
        words.map(|word| format!("{blank}- {}", argument(&word))).collect::<Vec<_>>().join("\n")
    };
    let options = asked.options.iter().fold(String::new(), |line, word| line + " " + &quoted(word));
    let of_slurm = asked.hub.as_ref().map_or_else(
        || "dir:${SLURM_SUBMIT_DIR:-$PWD}/ringleader-hub".to_owned(),
        |hub| quoted(hub.trim_end_matches('/')),
    );
    let of_pods = asked.hub.clone().unwrap_or_else(|| format!("etcd://etcd:2379/{name}"));
    let policy = asked.policy.to_toml();
    // In a pod the folder is a volume, at an absolute path.
    let (mounted, volume) = if checkpoints.starts_with('/') {
        (checkpoints.clone(), checkpoints.clone())
    } else {
        (format!("/checkpoints/{checkpoints}"), "/checkpoints".to_owned())
    };
    let of_pod = Policy {
        checkpoint: Checkpoint { dir: None, ..asked.policy.checkpoint.clone() },
        ..asked.policy.clone()
    };
    let indented: Vec<String> = of_pod.to_toml().lines().map(|line| format!("    {line}")).collect();
    let fill = |template: &str| {
        template
            .replace("@NAME@", &name)
            .replace("@NODES@", &asked.nodes.to_string())
            .replace("@MIN@", &asked.least.clamp(1, asked.nodes.max(1)).to_string())
            .replace("@CHECKPOINTS@", &quoted(&checkpoints))
            .replace("@CHECKPOINTS_JSON@", &serde_json::to_string(&mounted).unwrap_or_default())
            .replace("@VOLUME@", &serde_json::to_string(&volume).unwrap_or_default())
            .replace("@HUB_ARG@", &argument(&format!("--hub={of_pods}")))
            .replace("@HUB@", &of_slurm)
            .replace("@OPTIONS@", &options)
            .replace("@POLICY@", &indented.join("\n"))
            .replace("@FOLDER@", &quoted(&folder.display().to_string()))
            .replace("@COMMAND@", &shell)
            .replace("        @ARGS@", &rows(20))
            .replace("@ARGS@", &rows(12))
    };
    vec![
        ("run.sh", fill(include_str!("scripts/run.sh"))),
        ("job.sbatch", fill(include_str!("scripts/job.sbatch"))),
        ("job.yaml", fill(concat!(include_str!("scripts/access.yaml"), include_str!("scripts/job.yaml")))),
        (
            "jobset.yaml",
            fill(concat!(include_str!("scripts/access.yaml"), include_str!("scripts/jobset.yaml"))),
        ),
        ("policy.toml", policy.clone()),
    ]
}

/// Writes the files into a folder; overwrites none. Errors: the file system's.
pub fn write(folder: &Path, asked: &ScriptRequest) -> io::Result<Vec<PathBuf>> {
    fs::create_dir_all(folder)?;
    // Slurm runs a copy of the script from another folder.
    let own = folder.canonicalize()?;
    let mut made = Vec::new();
    for (name, text) in files(asked, &own) {
        let path = folder.join(name);
        io::Write::write_all(&mut fs::File::create_new(&path)?, text.as_bytes())?;
        made.push(path);
    }
    Ok(made)
}

/// The command with the placeholders that several nodes need.
fn command(asked: &ScriptRequest) -> Vec<String> {
    if !asked.command.is_empty() {
        return asked.command.clone();
    }
    let words = "torchrun --nnodes {nnodes} --node-rank {node_rank} --master-addr {master_addr} --master-port {master_port} \
                 --nproc-per-node gpu train.py --resume {checkpoint}";
    words.split_whitespace().map(str::to_owned).collect()
}

/// Quotes a word for a shell.
fn quoted(word: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._/:=@%+,{}".contains(c);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A name that Kubernetes allows.
fn label(name: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    let label: String = name.chars().map(plain).take(40).collect();
    let label = label.trim_matches('-').to_owned();
    if label.is_empty() { "job".to_owned() } else { label }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked() -> ScriptRequest {
        ScriptRequest {
            command: Vec::new(),
            nodes: 4,
            least: 3,
            job: "My Job".to_owned(),
            checkpoints: Some("/data/my ckpt".to_owned()),
            hub: None,
            options: Vec::new(),
            policy: Policy::default(),
        }
    }

    #[test]
    fn what_was_asked_for_is_in_the_files() {
        let mut policy = Policy::default();
        policy.set("exclude.max_share=0.25").unwrap();
        let asked = ScriptRequest {
            hub: Some("etcd://10.0.0.9:2379/team".to_owned()),
            options: vec!["--webhook=https://x/y?a=1&b".to_owned(), "--no-ras".to_owned()],
            policy,
            ..asked()
        };
        for (name, text) in files(&asked, Path::new("/jobs")) {
            let words: &[&str] = match name {
                "run.sh" => &["'--webhook=https://x/y?a=1&b' --no-ras \\\n"],
                "job.sbatch" => {
                    &["hub=etcd://10.0.0.9:2379/team\n", "'--webhook=https://x/y?a=1&b' --no-ras \\\n"]
                }
                "policy.toml" => &["max_share = 0.25\n"],
                _ => &[
                    "- \"--hub=etcd://10.0.0.9:2379/team\"\n",
                    "- \"--webhook=https://x/y?a=1&b\"\n",
                    "    max_share = 0.25\n",
                    "--policy=/etc/ringleader/policy.toml",
                    "mountPath: \"/data/my ckpt\"\n",
                    "nvidia.com/gpu",
                    "serviceAccountName: my-job\n",
                ],
            };
            for word in words {
                assert!(text.contains(word), "{name}: {word}: {text}");
            }
        }
    }

    #[test]
    fn nothing_is_left_to_fill_in() {
        let all = files(&asked(), Path::new("/jobs/a b"));
        assert_eq!(all.len(), 5);
        for (name, text) in all {
            for word in text.split('@').skip(1) {
                let is_place = !word.is_empty() && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
                assert!(!is_place, "{name}: @{word}@");
            }
            match name.rsplit('.').next() {
                Some("yaml") => assert!(text.contains("name: my-job"), "{text}"),
                Some("sbatch") => {
                    assert!(
                        text.contains("'/data/my ckpt'") && text.contains("'/jobs/a b'/policy.toml"),
                        "{text}"
                    );
                }
                Some("sh") => assert!(text.contains("'/data/my ckpt'"), "{text}"),
                _ => {}
            }
        }
    }

    #[test]
    fn shells_find_no_fault() {
        let folder = tempfile::tempdir().unwrap();
        let made = write(folder.path(), &asked()).unwrap();
        for path in
            made.iter().filter(|path| path.extension().is_some_and(|end| end == "sh" || end == "sbatch"))
        {
            let checked = std::process::Command::new("bash").arg("-n").arg(path).output().unwrap();
            assert!(
                checked.status.success(),
                "{}: {}",
                path.display(),
                String::from_utf8_lossy(&checked.stderr)
            );
        }
        assert!(write(folder.path(), &asked()).is_err(), "nothing is written over");
    }
}
