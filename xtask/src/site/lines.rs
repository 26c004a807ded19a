//! The command lines on the pages, and running them.
//!
//! Each runs in bash as shown, in a folder that has what it refers to: logs, a job of two ranks that wait, stand-ins for programs of
//! other nodes. What cannot run here is named with the reason; whatever else fails is an error.

mod sandbox;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, ensure};

use super::page::Page;
use sandbox::Sandbox;

/// A command line that a page shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Line {
    /// Place of the page on the site.
    pub(crate) page: String,
    /// As a reader copies it, with the remark behind it.
    pub(crate) text: String,
}

impl Line {
    fn is_of_docs(&self) -> bool {
        self.page.starts_with("docs/")
    }
}

/// Every command line: behind `$ ` on a page of `docs/`, where blocks also hold output and files, and each block of any other page.
/// A line that ends with a backslash continues.
pub(crate) fn lines(pages: &[Page]) -> Vec<Line> {
    let mut out = Vec::new();
    for page in pages {
        for block in page.body.split("<pre><code").skip(1) {
            let block = block.split("</code></pre>").next().unwrap_or_default();
            let Some((_, block)) = block.split_once('>') else { continue };
            let mut continued: Option<String> = None;
            for line in plain(block).lines() {
                let text = match continued.take() {
                    Some(before) => format!("{before}\n{line}"),
                    None => match line.strip_prefix("$ ") {
                        Some(command) => command.to_owned(),
                        None if page.section == "docs" => continue,
                        None => line.to_owned(),
                    },
                };
                if text.ends_with('\\') {
                    continued = Some(text);
                } else if !text.trim().is_empty() {
                    out.push(Line { page: page.path(), text });
                }
            }
        }
    }
    out
}

/// HTML of a block as text.
fn plain(html: &str) -> String {
    let marks =
        [("&quot;", "\""), ("&lt;", "<"), ("&gt;", ">"), ("&#123;", "{"), ("&#39;", "'"), ("&amp;", "&")];
    marks.iter().fold(html.to_owned(), |text, (mark, c)| text.replace(mark, c))
}

/// Parts of command lines that cannot run here, and why. The first that is in a line counts.
const NOT_HERE: [(&str, &str); 48] = [
    ("--baseline bench.json", "needs what was measured on GPUs: tests/it/trace.rs makes some"),
    ("$SLURM_JOB_ID", "needs Slurm: .ci/run slurm"),
    ("cargo install ", "compiles for minutes: .ci/run install"),
    ("cargo build ", "compiles for minutes: .ci/run does"),
    ("cargo test ", "compiles for minutes: .ci/run test"),
    ("cargo xtask dist", "compiles for minutes: .ci/run tools packages dist"),
    ("cargo xtask site", "is what runs this"),
    (".ci/run", "is what runs this"),
    ("tools/dist-tools.sh", "fetches 2 GB: .ci/run dist"),
    ("libringleader_nccl.so", "needs a build for release: .ci/run packages"),
    ("pip install ", "needs an artefact or a registry: .ci/run wheel tools"),
    ("musl.tar.gz", "needs an artefact: .ci/run dist"),
    ("deploy/slurm/test.sh", "needs Slurm and root: .ci/run slurm"),
    ("tools/", "needs tools that are fetched: .ci/run tools page"),
    ("zoo/", "needs GPUs"),
    ("--with-gpus", "needs GPUs"),
    ("ringleader verify", "needs GPUs"),
    ("ringleader bench", "needs GPUs"),
    ("trace record", "needs a job of PyTorch: .ci/run guard"),
    ("systemctl ", "needs systemd as the first process"),
    ("promtool ", "needs Prometheus: .ci/run prometheus"),
    ("/api/dashboards/", "needs Grafana"),
    ("/etc/", "changes this machine"),
    (" /usr/bin/ringleader", "changes this machine"),
    ("/opt/", "changes this machine"),
    ("kubectl create", "needs a cluster"),
    ("kubectl apply", "needs a cluster"),
    ("kubectl describe", "needs a cluster"),
    ("taint.sh", "needs a cluster: .ci/run deploy, with a stand-in"),
    ("collector:4318", "needs a collector: .ci/run tools"),
    ("docker run", "needs containers and GPUs"),
    ("reboot", "changes this machine"),
    ("modprobe", "changes this machine"),
    ("--gpu-reset", "needs GPUs, and resets one"),
    ("kill -CONT", "signals a process"),
    ("nvidia-", "needs NVIDIA's driver"),
    ("cuda-gdb", "needs CUDA"),
    ("compute-sanitizer", "needs CUDA"),
    ("dcgmi", "needs DCGM"),
    ("_perf -b", "needs nccl-tests and GPUs"),
    ("srun ", "needs Slurm"),
    ("sacct ", "needs Slurm"),
    ("python -c", "needs PyTorch"),
    ("python3 -c", "needs PyTorch"),
    ("py-spy", "needs py-spy"),
    ("torch.cuda.", "is Python of the training script"),
    ("init_process_group", "is Python of the training script"),
    ("DataLoader(", "is Python of the training script"),
];

/// Lines that are asked one in [`STEP`] of, since there are thousands.
const EXPLAIN: &str = "ringleader explain ";
/// One in so many of these runs in a test.
pub(super) const STEP: usize = 50;

/// Runs this program once more, with processes and a network of its own, so that a line meets no job of this machine and takes no
/// port of it. `None` if this is that run already, or where the system refuses; then the lines run beside everything else.
pub(super) fn apart() -> Option<Result<()>> {
    const INSIDE: &str = "RINGLEADER_SITE_APART";
    if std::env::var_os(INSIDE).is_some() {
        return None;
    }
    let own = ["--pid", "--net", "--mount-proc", "--fork", "--kill-child"];
    for more in [&[][..], &["--user", "--map-root-user"]] {
        let unshare = || {
            let mut command = Command::new("unshare");
            command.args(more).args(own);
            command
        };
        if unshare().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            let mut command = unshare();
            command.args(["sh", "-c", "ip link set lo up 2>/dev/null; exec \"$@\"", "-"]);
            let status = command.args(std::env::args_os()).env(INSIDE, "1").status();
            return Some(match status {
                Ok(status) if status.success() => Ok(()),
                Ok(status) => Err(anyhow::anyhow!("apart from this machine it ended with {status}")),
                Err(error) => Err(error.into()),
            });
        }
    }
    crate::dist::say("no namespaces here: the lines run beside everything else");
    None
}

/// What became of a command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It ran, with a code that it may end with.
    Ran,
    NotHere(String),
    Failed(String),
}

/// Runs every line once, those of `docs/` in their order and in one folder, and says how many ran and why others did not. Of lines on
/// other pages that only ask `explain`, one in `step`.
///
/// # Errors
/// If a line failed.
pub(super) fn run_all(pages: &[Page], root: &Path, out: &Path, step: usize) -> Result<()> {
    let all = lines(pages);
    let mut seen = BTreeSet::new();
    let (docs, topics): (Vec<&Line>, Vec<&Line>) = all.iter().partition(|line| line.is_of_docs());
    let mut topics: Vec<&Line> = topics.into_iter().filter(|line| seen.insert(&line.text)).collect();
    let mut n_asked = 0;
    topics.retain(|line| {
        n_asked += usize::from(line.text.starts_with(EXPLAIN));
        !line.text.starts_with(EXPLAIN) || n_asked % step == 0
    });
    let outcomes = Mutex::new(Vec::new());
    let add = |line: &Line, outcome| {
        outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((line.clone(), outcome));
    };
    let sandbox = Sandbox::new(root, &out.join("docs-lines"))?;
    let n_threads = std::thread::available_parallelism().map_or(2, usize::from).min(8);
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| -> Result<()> {
        scope.spawn(|| {
            for line in &docs {
                add(line, outcome(line, &sandbox));
            }
        });
        for n in 0..n_threads {
            let sandbox = Sandbox::new(root, &out.join(format!("lines-{n}")))?;
            let (next, topics, add) = (&next, &topics, &add);
            scope.spawn(move || {
                while let Some(line) = topics.get(next.fetch_add(1, Ordering::Relaxed)) {
                    add(line, outcome(line, &sandbox));
                }
            });
        }
        Ok(())
    })?;
    sandbox.has("report.html", "skipped-collective")?;
    sandbox.has("node.prom", "# TYPE ringleader_")?;
    drop(sandbox);
    let outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
    report(&outcomes, all.len())
}

fn report(outcomes: &[(Line, Outcome)], n_all: usize) -> Result<()> {
    let mut reasons: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    let (mut n_ran, mut n_failed, mut n_docs, mut n_docs_ran) = (0, 0, 0, 0);
    for (line, outcome) in outcomes {
        n_docs += usize::from(line.is_of_docs());
        match outcome {
            Outcome::Ran => {
                n_ran += 1;
                n_docs_ran += usize::from(line.is_of_docs());
            }
            Outcome::NotHere(why) => reasons.entry(why).or_insert((0, &line.text)).0 += 1,
            Outcome::Failed(why) => {
                n_failed += 1;
                crate::dist::say(&format!("FAILED {}: {}: {why}", line.page, line.text));
            }
        }
    }
    for (why, (n, example)) in reasons {
        crate::dist::say(&format!("not run: {n} line(s): {why}, such as: {example}"));
    }
    crate::dist::say(&format!(
        "{n_ran} of {} command lines ran ({n_all} places on the pages); of README.md and docs/ {n_docs_ran} of {n_docs}",
        outcomes.len()
    ));
    ensure!(n_failed == 0, "{n_failed} command lines failed");
    Ok(())
}

fn outcome(line: &Line, sandbox: &Sandbox) -> Outcome {
    let text = if line.is_of_docs() { line.text.clone() } else { filled(&line.text, sandbox.pid()) };
    let is_ours = text.trim_start().starts_with("ringleader ") && !text.contains(" -- ");
    let explains = is_ours && text.contains("ringleader explain");
    let why = NOT_HERE.iter().find(|(part, _)| !explains && text.contains(part)).map(|(_, why)| *why);
    if let Some(why) = why {
        // Still it is a line of bash, and nothing but placeholders keeps it from being one.
        return match sandbox.parses(&text) {
            Ok(()) => Outcome::NotHere(why.to_owned()),
            Err(_) if why.starts_with("is Python") => Outcome::NotHere(why.to_owned()),
            Err(error) => Outcome::Failed(error),
        };
    }
    sandbox.run(&text, explains)
}

/// Words of other pages than `docs/` that stand for something of the reader's.
fn filled(text: &str, pid: u32) -> String {
    let pid = pid.to_string();
    let mut out = text.to_owned();
    for (word, value) in [
        ("<pid>", pid.as_str()),
        ("RANK_COMMAND", "train.py"),
        ("MASTER_ADDR", "localhost"),
        (":PORT", ":29500"),
        ("torchrun …", "torchrun train.py"),
        ("NCCL_VARIABLE", "NCCL_DEBUG"),
    ] {
        // `MASTER_ADDR` and its kin are also names, which stay where they are asked for.
        if !(out.contains("explain") || out.contains("grep -E"))
            || word.contains(['<', ':', '…'])
            || word == "NCCL_VARIABLE"
        {
            out = out.replace(word, value);
        }
    }
    if out.contains("explain") {
        return out;
    }
    let words = [
        ("PID", pid.as_str()),
        ("FOLDER", "logs"),
        ("LOGS", "logs/*"),
        ("HOSTS", "node01"),
        ("PEER", "127.0.0.1"),
        ("LOCAL", "127.0.0.1"),
        ("NODE", "127.0.0.1"),
        ("HOST", "127.0.0.1"),
        ("IFACE", "lo"),
    ];
    let is_end = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let mut filled = String::new();
    for part in out.split_inclusive(is_end) {
        let word = part.trim_end_matches(is_end);
        filled.push_str(words.iter().find(|(name, _)| *name == word).map_or(word, |(_, value)| *value));
        filled.push_str(&part[word.len()..]);
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(section: &str, body: &str) -> Page {
        Page::new(section, "one", "one", "one", "one", body.to_owned())
    }

    #[test]
    fn lines_of_pages() {
        let docs = page(
            "docs",
            "<pre><code class=\"language-console\">$ ringleader check  # a node\noutput\n$ a \\\n  b\n</code></pre>",
        );
        let topic = page("xid", "<pre><code>dmesg -T | grep -i &quot;x&quot; &amp;&amp; y</code></pre>");
        let found: Vec<String> = lines(&[docs, topic]).into_iter().map(|line| line.text).collect();
        assert_eq!(found, ["ringleader check  # a node", "a \\\n  b", "dmesg -T | grep -i \"x\" && y"]);
    }

    #[test]
    fn words_that_stand_for_something() {
        assert_eq!(
            filled("cat /proc/PID/wchan; ping -c 3 NODE", 7),
            "cat /proc/7/wchan; ping -c 3 127.0.0.1"
        );
        assert_eq!(filled("ringleader diagnose FOLDER", 7), "ringleader diagnose logs");
        assert_eq!(filled("ringleader explain NCCL_VARIABLE", 7), "ringleader explain NCCL_DEBUG");
        assert_eq!(filled("ringleader explain MASTER_ADDR", 7), "ringleader explain MASTER_ADDR");
    }
}
