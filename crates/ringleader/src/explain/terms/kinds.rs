//! The kinds of evidence, as `looked at` and `not given` name them.

use ringleader_model::SourceKind;

use super::Term;

/// What a kind is, and how to get it: docs/evidence.md has the rest.
#[expect(clippy::too_many_lines, reason = "a row for each kind, and a new kind has to have one")]
fn words(kind: SourceKind) -> (&'static str, &'static str) {
    match kind {
        SourceKind::FlightRecorder => (
            "PyTorch's record of the last collective calls of a rank",
            "a dump (pickle or JSON) with each call's number, size, state and place in the code; `eval \"$(ringleader env)\"` before \
             the start has PyTorch write it on a timeout",
        ),
        SourceKind::NcclLog => (
            "lines of NCCL's own log",
            "`NCCL INFO` and `NCCL WARN`, on standard error or in files of NCCL_DEBUG_FILE; `eval \"$(ringleader env)\"` sets both",
        ),
        SourceKind::TorchLog => (
            "what PyTorch and its launcher print",
            "messages of the watchdog, tracebacks and reports of torchrun: the standard error of the job, `torchrun … 2>&1 | tee stderr.log`",
        ),
        SourceKind::ElasticError => (
            "the error file of torch elastic",
            "`error.json` with the exception of one rank, written where TORCHELASTIC_ERROR_FILE says",
        ),
        SourceKind::Ras => (
            "NCCL's own view of a running job",
            "the report of NCCL RAS (2.24 and later): which ranks have made which number of calls; `ringleader diagnose --live` asks for it",
        ),
        SourceKind::Ring => (
            "the record of ringleader's NCCL plugin",
            "a file in shared memory for each process, with the operations in flight and those that ended; it outlives the process",
        ),
        SourceKind::Stacks => (
            "where each thread of a process is",
            "Python and native frames, also of py-spy, faulthandler or gdb; `ringleader diagnose --live` takes them while the job hangs",
        ),
        SourceKind::Processes => (
            "the process list of a node",
            "which processes live, sleep, are stopped or blocked: `ps -eo pid,ppid,stat,wchan:32,pcpu,etime,args`",
        ),
        SourceKind::NvidiaSmi => (
            "output of nvidia-smi, in any form",
            "state, load, power, clocks and errors of the GPUs at one moment; take it while the job hangs",
        ),
        SourceKind::Dcgmi => {
            ("output of `dcgmi diag`", "NVIDIA's own tests of the GPUs, as a table or as JSON")
        }
        SourceKind::GpuServices => (
            "state or log of the Fabric Manager or the persistence daemon",
            "the services without which NVSwitches or GPUs cannot be used",
        ),
        SourceKind::BugReport => (
            "the file of nvidia-bug-report.sh",
            "a collection of logs of the driver; its sections are read like files of their own",
        ),
        SourceKind::KernelLog => (
            "the log of the Linux kernel",
            "Xids of the GPU driver, out-of-memory kills, PCIe and link errors: `dmesg -T` or `journalctl -k`",
        ),
        SourceKind::NcclTests => (
            "output of nccl-tests",
            "bandwidth by message size, and whether the values were right: `all_reduce_perf -b 8 -e 1G -f 2 -g 8`",
        ),
        SourceKind::Limits => (
            "limits of a process or a shell",
            "locked memory, open files and others: `ulimit -a`, `/proc/PID/limits`",
        ),
        SourceKind::Environment => (
            "environment variables",
            "output of `env`, or `/proc/PID/environ`: settings are compared between ranks, and only names of known families are kept",
        ),
        SourceKind::CopyTest => (
            "copies between GPUs, compared afterwards",
            "a test that shows which pair of GPUs changes data on its way",
        ),
        SourceKind::Network => (
            "output of tools of the fabric and the network",
            "`ibstat`, `perfquery`, `ip addr`, `ping` and others: ports, counters, addresses, routes",
        ),
        SourceKind::System => (
            "output of tools of the node",
            "memory, mounts, kernel modules, services: `df -h /dev/shm`, `lsmod`, `free`, `systemctl status`",
        ),
        SourceKind::Scheduler => (
            "output of a scheduler",
            "`sacct`, `scontrol` or `kubectl describe pod`: states, exit codes and reasons of the job",
        ),
        SourceKind::NodeSnapshot => (
            "a snapshot of a node",
            "everything that `ringleader check` reads, as one file; `ringleader collect` keeps it as node.json",
        ),
        SourceKind::Watch => {
            ("events of `ringleader watch`", "stalls, late ranks and verdicts, as the watcher saw them")
        }
        SourceKind::Guard => (
            "events of the guard in a training job",
            "steps at which values were not finite or ranks disagreed (docs/guard.md)",
        ),
        SourceKind::Timeline => (
            "the timeline of a profiler",
            "kernels and calls with their times; `ringleader trace` finds lost time in it. In a report as a page, the section of this name \
             draws the operations around the failure",
        ),
        SourceKind::Bundle => (
            "the list of what a bundle holds",
            "a bundle is the file that `ringleader collect` writes: logs, dumps, stacks and the state of one node. Its manifest names \
             each item with its time and outcome",
        ),
        SourceKind::PlainText => (
            "text in which no reader knows a line",
            "the file was read; no line of it has a form that ringleader knows as evidence. Its error statements still count",
        ),
        SourceKind::Unknown => {
            ("content that no reader knows", "binary or damaged content: nothing in it was used")
        }
    }
}

/// Other names of a kind.
fn also(kind: SourceKind) -> &'static [&'static str] {
    match kind {
        SourceKind::FlightRecorder => &["flight recorder dump", "fr dump"],
        SourceKind::Ras => &["ras"],
        SourceKind::Ring => &["ring", "rings"],
        SourceKind::Stacks => &["stack"],
        SourceKind::KernelLog => &["dmesg"],
        SourceKind::Bundle => &["manifest"],
        SourceKind::Processes => &["process list"],
        SourceKind::PlainText => &["plain text"],
        _ => &[],
    }
}

/// All kinds, in the order of their list.
pub(super) fn all() -> impl Iterator<Item = Term> {
    SourceKind::ALL.into_iter().map(|kind| {
        let (title, means) = words(kind);
        Term {
            name: kind.name(),
            also: also(kind),
            title,
            means,
            is_not: "",
            see: match kind {
                SourceKind::Network => &["looked at", "symptom network"],
                SourceKind::Unknown | SourceKind::PlainText => &["looked at", "not-read", "empty"],
                _ => &["looked at"],
            },
            source: "docs/evidence.md",
        }
    })
}
