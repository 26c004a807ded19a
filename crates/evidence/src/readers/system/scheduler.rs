//! What schedulers say of jobs, steps, pods and nodes.
//!
//! ```text
//! JobID           JobName      State ExitCode        NodeList
//! ------------ ---------- ---------- -------- ---------------
//! 812.0            python OUT_OF_ME+    0:125           node3
//! slurmstepd: error: *** STEP 812.0 ON node3 CANCELLED AT 2026-11-20T08:21:34 DUE TO PREEMPTION ***
//! LAST SEEN   TYPE      REASON    OBJECT         MESSAGE
//! 2m          Warning   Evicted   pod/worker-3   The node was low on resource: memory.
//! ```

use ringleader_model::{Pid, Scheduler, SchedulerEvent, SchedulerKind, SourceKind, SystemFact, WallTime};

use super::{SystemReader, SystemTable};
use crate::ground::{Line, Sink, TableSpan, stamp::date_time};

/// Columns of sacct or sinfo.
pub(super) struct Columns {
    names: Vec<Box<str>>,
    /// From and to, bytes, where a row of dashes tells; else words are counted.
    widths: Vec<(usize, usize)>,
    is_parsable: bool,
    /// It is of `squeue`.
    is_queue: bool,
}

/// Tables and descriptions of kubectl.
#[derive(Default)]
pub(super) struct Pods {
    columns: Vec<Box<str>>,
    /// Of a description.
    name: Box<str>,
    node: Option<Box<str>>,
    exit_code_of: Option<(SchedulerKind, TableSpan)>,
    in_events: bool,
    /// Containers, as far as they were read, and how far their names are indented.
    containers: Vec<Box<str>>,
    indent: Option<usize>,
    /// Ends of containers: reported once the number of containers is known.
    ended: Vec<(SchedulerEvent, TableSpan)>,
}

impl SystemReader {
    pub(super) fn scheduler(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some(event) = slurm_line(text) {
            self.push(SourceKind::Scheduler, SystemFact::Scheduler(event), line, sink);
            // The reader of launchers wants the line too.
            return false;
        }
        let is_parsable = text.contains('|');
        let names: Vec<Box<str>> = if is_parsable {
            text.split('|').map(|n| n.trim().to_ascii_lowercase().into()).collect()
        } else {
            text.split_ascii_whitespace().map(|n| n.to_ascii_lowercase().into()).collect()
        };
        let is_queue = is_squeue(&names);
        let names = if is_queue { of_squeue(names) } else { names };
        let has = |name: &str| names.iter().any(|n| **n == *name);
        if (has("jobid") || has("jobidraw")) && has("state")
            || has("partition") && has("nodelist") && has("state")
        {
            self.open(
                SystemTable::Accounting(Columns { names, widths: Vec::new(), is_parsable, is_queue }),
                line,
                sink,
            );
            return !is_queue;
        }
        if text.starts_with("LAST SEEN") && has("reason") && has("object")
            || text.starts_with("NAME ") && has("ready") && has("status") && has("restarts")
        {
            // `LAST SEEN` is one column; its values are one word.
            let columns = names.into_iter().filter(|n| **n != *"last").collect();
            self.open(SystemTable::Pods(Pods { columns, ..Pods::default() }), line, sink);
            return true;
        }
        if let Some(name) = text.strip_prefix("Name:") {
            let name = name.trim();
            if name.is_empty() || name.contains(' ') {
                return false;
            }
            self.open(SystemTable::Pods(Pods { name: name.into(), ..Pods::default() }), line, sink);
            // `Name:` begins the status of a process as well.
            return false;
        }
        false
    }
}

/// Whether a line begins a table or description of its own, or is a sentence.
pub(super) fn is_heading(text: &str) -> bool {
    let text = text.trim_start();
    text.starts_with("JobID")
        || text.starts_with("JOBID")
        || text.starts_with("PARTITION ")
        || text.starts_with("LAST SEEN")
        || text.starts_with("NAME ") && text.contains(" STATUS ")
        || text.starts_with("Name:")
        || text.starts_with("slurmstepd:")
        || text.starts_with("srun:")
}

impl Columns {
    /// Takes the row of dashes below the heading.
    pub(super) fn widths(&mut self, text: &str) -> bool {
        if !self.widths.is_empty()
            || !text.starts_with("---")
            || !text.bytes().all(|b| b == b'-' || b == b' ')
        {
            return false;
        }
        let mut at = 0;
        for dashes in text.split(' ') {
            if !dashes.is_empty() {
                self.widths.push((at, at + dashes.len()));
            }
            at += dashes.len() + 1;
        }
        true
    }

    fn cells<'a>(&self, text: &'a str) -> Vec<&'a str> {
        if self.is_parsable {
            text.split('|').map(str::trim).collect()
        } else if self.widths.is_empty() {
            text.split_ascii_whitespace().collect()
        } else {
            self.widths
                .iter()
                .map(|(from, to)| text.get(*from..(*to).min(text.len())).unwrap_or_default().trim())
                .collect()
        }
    }

    fn cell<'a>(&self, cells: &[&'a str], names: &[&str]) -> Option<&'a str> {
        let at = self.names.iter().position(|n| names.contains(&&**n))?;
        cells.get(at).copied().filter(|c| !c.is_empty())
    }

    /// Whether a line is a row at all.
    pub(super) fn fits(&self, text: &str) -> bool {
        let cells = self.cells(text);
        let id = self.cell(&cells, &["jobid", "jobidraw"]);
        id.is_none_or(|id| id.starts_with(|c: char| c.is_ascii_digit()))
            && cells.len() >= 2
            // Why a job waits is for others to read.
            && !self.is_queue
            && self.cell(&cells, &["state"]).is_some_and(|s| s.starts_with(|c: char| c.is_ascii_alphabetic()))
    }

    /// What a row says that matters.
    pub(super) fn event(&self, text: &str) -> Option<SchedulerEvent> {
        let cells = self.cells(text);
        let state = self.cell(&cells, &["state"])?;
        let node = self.cell(&cells, &["nodelist"]).filter(|n| !n.starts_with("None"));
        let subject = self.cell(&cells, &["jobid", "jobidraw"]);
        let kind = match subject {
            Some(_) => job_state(state)?,
            // sinfo: a node that does not answer.
            None if state.starts_with("down") || state.starts_with("fail") => SchedulerKind::NodeFail,
            None => return None,
        };
        let exit = self.cell(&cells, &["exitcode"]).and_then(|c| {
            let (code, signal) = c.split_once(':')?;
            Some(match signal.parse::<i64>().ok()? {
                0 => code.parse().ok()?,
                signal => -signal,
            })
        });
        Some(SchedulerEvent {
            scheduler: Scheduler::Slurm,
            kind,
            subject: subject.unwrap_or_default().into(),
            node: node.map(Into::into),
            exit_code: exit,
            ended_at: self.cell(&cells, &["end"]).and_then(|t| Some(date_time(t.as_bytes(), b'T')?.0)),
            ..SchedulerEvent::default()
        })
    }
}

/// Whether a head is that of `squeue` as it prints by default.
fn is_squeue(names: &[Box<str>]) -> bool {
    let has = |name: &str| names.iter().any(|n| **n == *name);
    has("jobid") && has("st") && has("nodelist(reason)")
}

/// Its columns by the names that `sacct` gives them.
fn of_squeue(names: Vec<Box<str>>) -> Vec<Box<str>> {
    let of = |name: Box<str>| match &*name {
        "st" => "state".into(),
        "nodelist(reason)" => "nodelist".into(),
        _ => name,
    };
    names.into_iter().map(of).collect()
}

/// States of sacct; narrow columns cut them and say so with a plus.
fn job_state(state: &str) -> Option<SchedulerKind> {
    let word = state.split(' ').next()?.trim_end_matches('+');
    let is = |full: &str| word.len() >= 6 && full.starts_with(word);
    Some(match () {
        () if is("OUT_OF_MEMORY") => SchedulerKind::OutOfMemory,
        () if is("PREEMPTED") => SchedulerKind::Preempted,
        () if is("NODE_FAIL") || is("BOOT_FAIL") => SchedulerKind::NodeFail,
        () if is("TIMEOUT") || is("DEADLINE") => SchedulerKind::TimeLimit,
        () if is("CANCELLED") => SchedulerKind::Cancelled,
        () if is("FAILED") => SchedulerKind::Failed,
        () if is("COMPLETED") => SchedulerKind::Completed,
        () if is("RUNNING") || word == "R" => SchedulerKind::Running,
        () => return None,
    })
}

/// `slurmstepd: error: *** STEP 812.0 ON node3 CANCELLED AT 2026-11-20T08:21:34 DUE TO PREEMPTION ***`, and srun's
/// `error: Node failure on node3`.
fn slurm_line(text: &str) -> Option<SchedulerEvent> {
    let slurm = |kind, subject: &str, node: Option<&str>| SchedulerEvent {
        scheduler: Scheduler::Slurm,
        kind,
        subject: subject.into(),
        node: node.map(Into::into),
        ..SchedulerEvent::default()
    };
    if let Some((_, node)) = text.split_once("error: Node failure on ") {
        return Some(slurm(SchedulerKind::NodeFail, "", Some(node.trim())));
    }
    let (_, rest) = text.split_once("*** ")?;
    let rest = rest.strip_suffix(" ***")?;
    let words: Vec<&str> = rest.split_ascii_whitespace().collect();
    let [what @ ("JOB" | "STEP"), id, "ON", node, "CANCELLED", "AT", _, why @ ..] = words.as_slice() else {
        return None;
    };
    let _ = what;
    let kind = match why {
        ["DUE", "TO", "PREEMPTION", ..] => SchedulerKind::Preempted,
        ["DUE", "TO", "TIME", "LIMIT", ..] => SchedulerKind::TimeLimit,
        ["DUE", "TO", "NODE", "FAILURE" | "FAILURE,", ..] => SchedulerKind::NodeFail,
        _ => SchedulerKind::Cancelled,
    };
    Some(SchedulerEvent { is_of_script: true, ..slurm(kind, id, Some(node)) })
}

impl Pods {
    #[cfg(test)]
    pub(super) fn with_columns(names: &[&str]) -> Self {
        Self { columns: names.iter().map(|name| (*name).into()).collect(), ..Self::default() }
    }

    fn kubernetes(&self, kind: SchedulerKind, subject: &str) -> SchedulerEvent {
        SchedulerEvent {
            scheduler: Scheduler::Kubernetes,
            kind,
            subject: subject.into(),
            node: self.node.clone(),
            ..SchedulerEvent::default()
        }
    }

    /// What a line says that matters at once.
    pub(super) fn event(&mut self, text: &str, line: &Line<'_>, sink: &Sink<'_>) -> Option<SchedulerEvent> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if !self.columns.is_empty() {
            let cell = |name: &str| {
                let at = self.columns.iter().position(|c| **c == *name)?;
                words.get(at).copied()
            };
            if let (Some(reason), Some(object)) = (cell("reason"), cell("object")) {
                let mut event = self.kubernetes(reason_of(reason, text)?, object);
                event.node = object.strip_prefix("node/").map(Into::into);
                event.pid = pid_in(text);
                return Some(event);
            }
            return Some(self.kubernetes(status_of(cell("status")?)?, cell("name")?));
        }
        if self.in_events {
            let [_, reason, ..] = words.as_slice() else { return None };
            let name = format!("pod/{}", self.name);
            return Some(self.kubernetes(reason_of(reason, text)?, &name));
        }
        self.container(text);
        match words.as_slice() {
            ["Node:", node] => self.node = node.split('/').next().map(Into::into),
            ["Events:"] => self.in_events = true,
            ["Reason:", reason] => {
                self.exit_code_of = status_of(reason).map(|kind| (kind, TableSpan::begin(line, sink)));
            }
            ["Exit", "Code:", code] => {
                let (kind, mut span) = self.exit_code_of.take()?;
                span.add(line, sink);
                let name = format!("pod/{}", self.name);
                let mut event = self.kubernetes(kind, &name);
                event.exit_code = code.parse().ok();
                event.container = self.containers.last().cloned();
                self.ended.push((event, span));
            }
            ["Finished:", ..] => {
                let at = text.split_once(',').and_then(|(_, date)| finished(date.trim()));
                if let Some((event, _)) = self.ended.last_mut()
                    && event.ended_at.is_none()
                {
                    event.ended_at = at;
                }
            }
            _ => {}
        }
        None
    }

    /// `  pytorch:` below `Containers:`: the name of a container is alone in its line.
    fn container(&mut self, text: &str) {
        let indent = text.len() - text.trim_start().len();
        let Some(name) = text.trim().strip_suffix(':').filter(|n| !n.is_empty() && !n.contains(' ')) else {
            return;
        };
        if indent == 0 {
            self.indent = (name == "Containers").then_some(0);
        } else if let Some(known) = self.indent
            && (known == 0 || known == indent)
        {
            self.indent = Some(indent);
            self.containers.push(name.into());
        }
    }

    /// What was read of the ends of containers.
    pub(super) fn take_ended(&mut self) -> Vec<(SchedulerEvent, TableSpan)> {
        let n = u32::try_from(self.containers.len()).ok().filter(|n| *n > 0);
        let ended = std::mem::take(&mut self.ended).into_iter();
        ended.map(|(event, span)| (SchedulerEvent { n_containers: n, ..event }, span)).collect()
    }

    /// Whether a line is of the table or description at all.
    pub(super) fn fits(&self, text: &str) -> bool {
        if !self.columns.is_empty() {
            let words: Vec<&str> = text.split_ascii_whitespace().collect();
            let cell = |name: &str| {
                let at = self.columns.iter().position(|c| **c == *name)?;
                Some(words.get(at).copied().unwrap_or_default())
            };
            let is_ready = |cell: &str| {
                let (up, of) = cell.split_once('/').unwrap_or_default();
                [up, of].iter().all(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
            };
            return words.len() >= self.columns.len().min(4)
                && cell("ready").is_none_or(is_ready)
                && !words.first().is_some_and(|first| matches!(*first, "$" | "#" | "%" | ">"));
        }
        // A description is taken once something in it is known to be kubectl's.
        self.node.is_some() && text.contains(':')
    }
}

/// `19 Nov 2026 09:20:00 +0000`. The zone is the reader's of the description, the job's logs may have another one.
fn finished(date: &str) -> Option<WallTime> {
    const MONTHS: [&str; 12] =
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
    let words: Vec<&str> = date.split_ascii_whitespace().collect();
    let [day, month, year, time, zone @ ..] = words.as_slice() else { return None };
    let month = MONTHS.iter().position(|m| m == month)? + 1;
    let stamp = format!("{year}-{month:02}-{day:0>2} {time}");
    let (mut at, _) = date_time(stamp.as_bytes(), b' ')?;
    let offset = zone.first().and_then(|z| z.get(..3)?.parse::<i64>().ok()).unwrap_or(0);
    at.error_ns += offset.abs() * 3_600 * 1_000_000_000;
    Some(at)
}

/// `pid: 12345` of the kubelet's `System OOM encountered, victim process: python, pid: 12345`.
fn pid_in(text: &str) -> Option<Pid> {
    let (_, rest) = text.split_once("pid: ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest.get(..digits)?.parse().ok().map(Pid)
}

/// Reasons of events.
fn reason_of(reason: &str, text: &str) -> Option<SchedulerKind> {
    Some(match reason {
        "OOMKilling" | "SystemOOM" | "OOMKilled" => SchedulerKind::OutOfMemory,
        "Evicted" | "Evicting" | "TaintManagerEviction" => SchedulerKind::Evicted,
        "Preempted" | "Preempting" => SchedulerKind::Preempted,
        "NodeNotReady" => SchedulerKind::NodeFail,
        "FailedScheduling" | "Unschedulable" => SchedulerKind::Unschedulable,
        "DeadlineExceeded" => SchedulerKind::TimeLimit,
        "Killing" if text.contains("preempt") => SchedulerKind::Preempted,
        _ => return None,
    })
}

/// `STATUS` of `get pods`, and reasons of a container's end.
fn status_of(status: &str) -> Option<SchedulerKind> {
    Some(match status {
        "OOMKilled" => SchedulerKind::OutOfMemory,
        "Evicted" => SchedulerKind::Evicted,
        "Preempting" | "Preempted" => SchedulerKind::Preempted,
        "NodeLost" | "NodeAffinity" | "UnexpectedAdmissionError" => SchedulerKind::NodeFail,
        "DeadlineExceeded" => SchedulerKind::TimeLimit,
        "Error" | "CrashLoopBackOff" => SchedulerKind::Failed,
        "Completed" => SchedulerKind::Completed,
        _ => return None,
    })
}
