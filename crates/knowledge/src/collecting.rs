//! The kinds of evidence: what each is, and the command that collects it. One row each, for reports, for undecided verdicts, for
//! `explain` and for the help.

use ringleader_model::SourceKind;

/// What is known of a kind of evidence.
#[derive(Clone, Copy, Debug)]
pub struct EvidenceKind {
    /// What it is, in a line.
    pub title: &'static str,
    /// What it holds and how to get it: docs/evidence.md has the rest.
    pub means: &'static str,
    /// Other names.
    pub also: &'static [&'static str],
    /// Words that explain more.
    pub see: &'static [&'static str],
    /// The command to run, or the variables to set before the start; None if this evidence is not collected by hand.
    pub command: Option<&'static str>,
    /// It is the job's own record, or was collected of it while it ran.
    pub is_record: bool,
}

/// What most rows have in common.
const PLAIN: EvidenceKind =
    EvidenceKind { title: "", means: "", also: &[], see: &["looked at"], command: None, is_record: false };

/// The command of a kind: [`EvidenceKind::command`].
pub fn command(kind: SourceKind) -> Option<&'static str> {
    of(kind).command
}

/// What is known of this kind. A new kind has to have a row.
#[expect(clippy::too_many_lines, reason = "a row for each kind")]
pub const fn of(kind: SourceKind) -> EvidenceKind {
    match kind {
        SourceKind::FlightRecorder => EvidenceKind {
            title: "PyTorch's record of the last collective calls of a rank",
            means: "a dump (pickle or JSON) with each call's number, size, state and place in the code; `eval \
                    \"$(ringleader env)\"` before the start has PyTorch write it on a timeout",
            // Names and values depend on the installed releases: `exports.toml` has them.
            command: Some("eval \"$(ringleader env)\"; torchrun …"),
            also: &["flight recorder dump", "fr dump"],
            is_record: true,
            ..PLAIN
        },
        SourceKind::NcclLog => EvidenceKind {
            title: "lines of NCCL's own log",
            means: "`NCCL INFO` and `NCCL WARN`, on standard error or in files of NCCL_DEBUG_FILE; `eval \
                    \"$(ringleader env)\"` sets both",
            command: Some("eval \"$(ringleader env)\"; torchrun …"),
            ..PLAIN
        },
        SourceKind::TorchLog => EvidenceKind {
            title: "what PyTorch and its launcher print",
            means: "messages of the watchdog, tracebacks and reports of torchrun: the standard error of the job, \
                    `torchrun … 2>&1 | tee stderr.log`",
            command: Some("torchrun … 2>&1 | tee stderr.log"),
            ..PLAIN
        },
        SourceKind::ElasticError => EvidenceKind {
            title: "the error file of torch elastic",
            means: "`error.json` with the exception of one rank, written where TORCHELASTIC_ERROR_FILE says",
            command: Some("torchrun … 2>&1 | tee stderr.log"),
            ..PLAIN
        },
        SourceKind::Ras => EvidenceKind {
            title: "NCCL's own view of a running job",
            means: "the report of NCCL RAS (2.24 and later): which ranks have made which number of calls; \
                    `ringleader diagnose --live` asks for it",
            // One look takes stacks, RAS and processes, and looks twice; it stops no process.
            command: Some("ringleader diagnose --live"),
            also: &["ras"],
            ..PLAIN
        },
        SourceKind::Ring => EvidenceKind {
            title: "the record of ringleader's NCCL plugin",
            means: "a file in shared memory for each process, with the operations in flight and those that \
                    ended; it outlives the process",
            command: Some("ls /dev/shm/ringleader"),
            also: &["ring", "rings"],
            is_record: true,
            ..PLAIN
        },
        SourceKind::Stacks => EvidenceKind {
            title: "where each thread of a process is",
            means: "Python and native frames, also of py-spy, faulthandler or gdb; `ringleader diagnose --live` \
                    takes them while the job hangs",
            command: Some("ringleader diagnose --live"),
            also: &["stack"],
            ..PLAIN
        },
        SourceKind::Processes => EvidenceKind {
            title: "the process list of a node",
            means: "which processes live, sleep, are stopped or blocked: `ps -eo \
                    pid,ppid,stat,wchan:32,pcpu,etime,args`",
            command: Some("ringleader diagnose --live"),
            also: &["process list"],
            ..PLAIN
        },
        SourceKind::NvidiaSmi => EvidenceKind {
            title: "output of nvidia-smi, in any form",
            means: "state, load, power, clocks and errors of the GPUs at one moment; take it while the job hangs",
            command: Some("nvidia-smi"),
            ..PLAIN
        },
        SourceKind::Dcgmi => EvidenceKind {
            title: "output of `dcgmi diag`",
            means: "NVIDIA's own tests of the GPUs, as a table or as JSON",
            command: Some("dcgmi diag -r 2"),
            ..PLAIN
        },
        SourceKind::GpuServices => EvidenceKind {
            title: "state or log of the Fabric Manager or the persistence daemon",
            means: "the services without which NVSwitches or GPUs cannot be used",
            command: Some("systemctl status nvidia-fabricmanager"),
            ..PLAIN
        },
        SourceKind::BugReport => EvidenceKind {
            title: "the file of nvidia-bug-report.sh",
            means: "a collection of logs of the driver; its sections are read like files of their own",
            command: Some("nvidia-bug-report.sh"),
            ..PLAIN
        },
        SourceKind::KernelLog => EvidenceKind {
            title: "the log of the Linux kernel",
            means: "Xids of the GPU driver, out-of-memory kills, PCIe and link errors: `dmesg -T` or `journalctl \
                    -k`",
            command: Some("dmesg -T"),
            also: &["dmesg"],
            ..PLAIN
        },
        SourceKind::NcclTests => EvidenceKind {
            title: "output of nccl-tests",
            means: "bandwidth by message size, and whether the values were right: `all_reduce_perf -b 8 -e 1G -f \
                    2 -g 8`",
            ..PLAIN
        },
        SourceKind::Limits => EvidenceKind {
            title: "limits of a process or a shell",
            means: "locked memory, open files and others: `ulimit -a`, `/proc/PID/limits`",
            ..PLAIN
        },
        SourceKind::Environment => EvidenceKind {
            title: "environment variables",
            means: "output of `env`, or `/proc/PID/environ`: settings are compared between ranks, and only names \
                    of known families are kept",
            command: Some("cat /proc/PID/environ; env; export -p"),
            ..PLAIN
        },
        SourceKind::CopyTest => EvidenceKind {
            title: "copies between GPUs, compared afterwards",
            means: "a test that shows which pair of GPUs changes data on its way",
            ..PLAIN
        },
        SourceKind::Network => EvidenceKind {
            title: "output of tools of the fabric and the network",
            means: "`ibstat`, `perfquery`, `ip addr`, `ping` and others: ports, counters, addresses, routes",
            see: &["looked at", "symptom network"],
            ..PLAIN
        },
        SourceKind::System => EvidenceKind {
            title: "output of tools of the node",
            means: "memory, mounts, kernel modules, services: `df -h /dev/shm`, `lsmod`, `free`, `systemctl status`",
            ..PLAIN
        },
        SourceKind::Scheduler => EvidenceKind {
            title: "output of a scheduler",
            means: "`sacct`, `scontrol` or `kubectl describe pod`: states, exit codes and reasons of the job",
            ..PLAIN
        },
        SourceKind::NodeSnapshot => EvidenceKind {
            title: "a snapshot of a node",
            means: "everything that `ringleader check` reads, as one file; `ringleader collect` keeps it as \
                    node.json",
            command: Some("ringleader check --format node-json"),
            is_record: true,
            ..PLAIN
        },
        SourceKind::Watch => EvidenceKind {
            title: "events of `ringleader watch`",
            means: "stalls, late ranks and verdicts, as the watcher saw them",
            command: Some("ringleader watch --json"),
            is_record: true,
            ..PLAIN
        },
        SourceKind::Guard => EvidenceKind {
            title: "events of the guard in a training job",
            means: "steps at which values were not finite or ranks disagreed (docs/guard.md)",
            command: Some("ls /dev/shm/ringleader/events-*.jsonl"),
            is_record: true,
            ..PLAIN
        },
        SourceKind::Timeline => EvidenceKind {
            title: "the timeline of a profiler",
            means: "kernels and calls with their times; `ringleader trace` finds lost time in it. In a report as \
                    a page, the section of this name draws the operations around the failure",
            command: Some("ringleader trace record --steps 5 -o timelines"),
            is_record: true,
            ..PLAIN
        },
        SourceKind::Bundle => EvidenceKind {
            title: "the list of what a bundle holds",
            means: "a bundle is the file that `ringleader collect` writes: logs, dumps, stacks and the state of \
                    one node. Its manifest names each item with its time and outcome",
            command: Some("ringleader collect -o bundle.tar.zst"),
            also: &["manifest"],
            ..PLAIN
        },
        SourceKind::PlainText => EvidenceKind {
            title: "text in which no reader knows a line",
            means: "the file was read; no line of it has a form that ringleader knows as evidence. Its error \
                    statements still count",
            also: &["plain text"],
            see: &["looked at", "not-read", "empty"],
            ..PLAIN
        },
        SourceKind::Unknown => EvidenceKind {
            title: "content that no reader knows",
            means: "binary or damaged content: nothing in it was used",
            see: &["looked at", "not-read", "empty"],
            ..PLAIN
        },
    }
}
