//! `collect` of many nodes: a bundle of each, streamed to a file of its own, in a folder that `diagnose` reads as one
//! job.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs::{DirBuilder, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use ringleader_check::fleet::{Fleet, Silence, SilenceKind, SilentNode, SilentSchema};
use ringleader_collect::collectors::LOGS_REMARK;
use ringleader_report::quote;

use super::CollectArgs;
use crate::exit::Code;
use crate::failure::Failure;
use crate::fanout::spool::{Spool, Spooled};
use crate::fanout::{Fanout, HostAnswer, Ran, Transport};

/// How a bundle begins: a frame of zstd (RFC 8878, 3.1.1).
const MAGIC: &[u8] = &[0x28, 0xb5, 0x2f, 0xfd];
/// Patience with a node: hundreds of stacks and gigabytes of logs over a slow line.
const DEADLINE_SECS: u64 = 300;
/// What a bundle may have beyond its contents: headers, the manifest, and content that does not compress.
const SLACK_BYTES: u64 = 64 << 20;
/// The exit code of a node's `collect` that has found nothing of the job.
const ABSENT: i32 = Code::NoUsableEvidence as i32;
/// Names of the silent nodes with their reasons, where there are any.
const SILENT: &str = "silent.jsonl";

/// Bundles of all nodes into a new folder.
pub(super) fn run(args: &CollectArgs) -> Result<(String, Code), Failure> {
    if !args.pid.is_empty() {
        let why = "--pid is for one node, and many are named".to_owned();
        return Err(Failure::Nodes { why, help: "--job chooses the processes of a Slurm job on all nodes" });
    }
    if args.output.as_ref().is_some_and(|output| output.as_os_str() == "-") {
        let why = "the bundles of many nodes go to a folder, not to standard output".to_owned();
        return Err(Failure::Nodes { why, help: "name a new folder with -o, or one node without --hosts" });
    }
    let started = Instant::now();
    let (transport, hosts) = args.nodes.transport()?;
    let program = args.nodes.program()?;
    let folder = args.output.clone().unwrap_or_else(default_name);
    make(&folder).map_err(|source| Failure::Create { path: folder.clone(), source })?;
    let remote = remote_args(args);
    let spool = Spool::new(&folder, MAGIC);
    let fanout = Fanout {
        transport: &*transport,
        hosts: &hosts,
        program: &program,
        args: &remote,
        args_of: &|_| Vec::new(),
        parallel: args.nodes.parallel.into(),
        deadline: args.nodes.deadline(DEADLINE_SECS),
        max_bytes: (args.max_mib << 20).saturating_add(SLACK_BYTES),
        spool: Some(&spool),
        show_progress: true,
    };
    let mut taken =
        NodeBundles { folder: &folder, args, names: BTreeSet::new(), came: Came::default(), silent: None };
    fanout.run(|answer| taken.take(&*transport, answer))?;
    taken.came.seconds = started.elapsed().as_secs_f64();
    let Came { n_whole, n_partial, n_absent, .. } = taken.came;
    let code = match (n_whole, n_partial, hosts.len() - n_whole) {
        (n_whole, 0, _) if n_whole == n_absent => Code::NoUsableEvidence,
        (_, _, 0) => Code::NothingFound,
        _ => Code::Undecided,
    };
    Ok((summary(&taken.came, hosts.len(), args, &folder), code))
}

/// A folder that is new or empty: bundles of two moments in one folder would be judged as one.
fn make(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::DirBuilderExt as _;
        builder.mode(0o700);
    }
    builder.create(folder)?;
    if std::fs::read_dir(folder)?.next().is_some() {
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is not empty"));
    }
    Ok(())
}

fn default_name() -> PathBuf {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    format!("ringleader-nodes-{seconds}").into()
}

/// What the nodes are asked.
fn remote_args(args: &CollectArgs) -> Vec<String> {
    let mut remote: Vec<String> = ["collect", "--output", "-"].map(str::to_owned).to_vec();
    let mut push = |words: &[&str]| remote.extend(words.iter().map(|word| (*word).to_owned()));
    push(&["--max-mib", &args.max_mib.to_string()]);
    push(&["--max-item-mib", &args.max_item_mib.to_string()]);
    if let Some(job) = &args.job {
        push(&["--job", job]);
    }
    for (is_set, flag) in [
        (args.no_stacks, "--no-stacks"),
        (args.no_ras, "--no-ras"),
        (args.no_logs, "--no-logs"),
        (args.ask_dump, "--ask-dump"),
    ] {
        if is_set {
            push(&[flag]);
        }
    }
    if !args.paths.is_empty() {
        push(&["--"]);
        remote.extend(args.paths.iter().map(|path| path.to_string_lossy().into_owned()));
    }
    remote
}

/// What has come so far.
#[derive(Default)]
struct Came {
    n_whole: usize,
    /// Of these, nodes on which the job does not run.
    n_absent: usize,
    /// Some of them.
    absent: Vec<String>,
    n_partial: usize,
    n_bytes: u64,
    seconds: f64,
    /// Who is silent, and why.
    fleet: Fleet,
    /// Truncated files; only some of them if there are hundreds.
    partial: Vec<String>,
}

struct NodeBundles<'a> {
    folder: &'a Path,
    args: &'a CollectArgs,
    /// Names of files, since two nodes may be tamed alike.
    names: BTreeSet<String>,
    came: Came,
    silent: Option<File>,
}

/// Parts of bundles that are named one by one.
const MAX_NAMED: usize = 12;

impl NodeBundles<'_> {
    fn take(&mut self, transport: &dyn Transport, mut answer: HostAnswer) -> Result<(), Failure> {
        let failed = |path: PathBuf| move |source| Failure::CannotWrite { path, source };
        let spooled = answer.spooled.take();
        let n_bytes = spooled.as_ref().map_or(0, Spooled::n_bytes);
        let silence = match answer.outcome {
            Ok(ran) if ran.status == Some(0) && !ran.is_cut && n_bytes > 0 => None,
            // All that there is of that node: the job is not on it.
            Ok(ran) if ran.status == Some(ABSENT) && !ran.is_cut && n_bytes > 0 => {
                self.came.n_absent += 1;
                if self.came.absent.len() < MAX_NAMED {
                    self.came.absent.push(answer.host.clone());
                }
                None
            }
            Ok(ran) => Some(self.explain(transport, &answer.host, &ran)),
            Err(silence) => Some(silence),
        };
        if let Some(mut spooled) = spooled {
            if let Some(source) = spooled.failure() {
                return Err(Failure::CannotWrite { path: self.folder.to_owned(), source });
            }
            // Half a bundle is evidence: its items are read up to where it ends.
            let end = if silence.is_none() { "tar.zst" } else { "part.tar.zst" };
            let name = self.free_name(&answer.host, end);
            let path = self.folder.join(&name);
            if n_bytes > 0 {
                spooled.keep_as(&path).map_err(failed(path))?;
                self.came.n_bytes += n_bytes;
                if silence.is_some() {
                    self.came.n_partial += 1;
                    if self.came.partial.len() <= MAX_NAMED {
                        self.came.partial.push(name);
                    }
                }
            }
        }
        match silence {
            None => self.came.n_whole += 1,
            Some(silence) => self.silent(&answer.host, silence)?,
        }
        Ok(())
    }

    fn explain(&self, transport: &dyn Transport, host: &str, ran: &Ran) -> Silence {
        let mut silence = transport.explain(host, ran);
        if ran.is_cut {
            silence.why = format!("its bundle is larger than the {} MiB accepted", self.args.max_mib);
            "--max-mib takes more".clone_into(&mut silence.next);
        } else if silence.kind == SilenceKind::NoReport {
            silence.why = silence.why.replace("no report", "no bundle");
            "run `ringleader collect` there by hand; --copy makes sure that it is this version"
                .clone_into(&mut silence.next);
        }
        silence
    }

    /// A silent node: in the summary, and in the folder for later readers.
    fn silent(&mut self, host: &str, silence: Silence) -> Result<(), Failure> {
        let path = self.folder.join(SILENT);
        let line = serde_json::to_string(&SilentNode {
            schema: SilentSchema::V1,
            target: host.to_owned(),
            kind: silence.kind,
            why: silence.why.clone(),
            next: silence.next.clone(),
        })
        .map_err(Failure::Json)?;
        let written = match self.silent.take() {
            Some(file) => Ok(file),
            None => File::create_new(&path),
        }
        .and_then(|mut file| writeln!(file, "{line}").map(|()| self.silent.insert(file)));
        written.map_err(|source| Failure::CannotWrite { path: path.clone(), source })?;
        self.came.fleet.silent(host, silence);
        Ok(())
    }

    fn free_name(&mut self, host: &str, end: &str) -> String {
        let safe = |c: char| if c.is_ascii_alphanumeric() || "._-+@".contains(c) { c } else { '_' };
        let tame: String = host.trim_start_matches('.').chars().map(safe).collect();
        let tame = if tame.is_empty() { "node".to_owned() } else { tame };
        // One of more names than there are nodes is free.
        let name = (1..self.names.len() + 3)
            .map(|n| if n == 1 { format!("{tame}.{end}") } else { format!("{tame}-{n}.{end}") })
            .find(|name| !self.names.contains(name))
            .unwrap_or_default();
        self.names.insert(name.clone());
        name
    }
}

/// What came, what did not and why, what to do next.
fn summary(came: &Came, n_asked: usize, args: &CollectArgs, folder: &Path) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = writeln!(
        out,
        "wrote {}: bundles of {} of {n_asked} nodes, {:.1} MiB, {:.1} s",
        folder.display(),
        came.n_whole,
        came.n_bytes as f64 / f64::from(1 << 20),
        came.seconds
    );
    for group in &came.fleet.report().silent {
        let why = if group.why.is_empty() { String::new() } else { format!(": {}", group.why) };
        let nodes = if group.n_hosts == 1 { "node" } else { "nodes" };
        let _ = writeln!(out, "  {}{why}, {} {nodes}: {}", group.kind.name(), group.n_hosts, group.hosts);
        if !group.next.is_empty() {
            let _ = writeln!(out, "    -> {}", group.next);
        }
    }
    let mut absent: Vec<&str> = came.absent.iter().map(String::as_str).collect();
    absent.sort_unstable();
    if let (Some(job), false) = (&args.job, absent.is_empty()) {
        let more = came.n_absent - absent.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(out, "  no process of job {job} on: {}{more}", absent.join(", "));
    }
    let mut partial: Vec<&str> = came.partial.iter().take(MAX_NAMED).map(String::as_str).collect();
    partial.sort_unstable();
    if came.n_partial > 0 {
        let more = came.n_partial - partial.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let _ = writeln!(out, "  in part: {}{more}; they are read up to the cut", partial.join(", "));
    }
    if came.n_whole + came.n_partial > 0 {
        if !args.no_logs {
            let _ = writeln!(out, "note: {LOGS_REMARK}");
        }
        let _ = writeln!(out, "next: ringleader diagnose {}", folder.display());
    }
    out.lines().map(|line| quote::plain(line) + "\n").collect()
}
