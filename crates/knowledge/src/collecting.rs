//! The command that collects each kind of evidence: one table for reports, for undecided verdicts and for the help.

use ringleader_model::SourceKind;

/// The command to run, or the variables to set before the start; None if this evidence is not collected by hand.
pub fn command(kind: SourceKind) -> Option<&'static str> {
    Some(match kind {
        // One look takes them all, and looks twice; it stops no process.
        SourceKind::Stacks | SourceKind::Ras | SourceKind::Processes => "ringleader diagnose --live",
        SourceKind::NvidiaSmi => "nvidia-smi",
        SourceKind::KernelLog => "dmesg -T",
        // Names and values depend on the installed releases: `exports.toml` has them.
        SourceKind::FlightRecorder | SourceKind::NcclLog => "eval \"$(ringleader env)\"; torchrun …",
        SourceKind::TorchLog | SourceKind::ElasticError => "torchrun … 2>&1 | tee stderr.log",
        SourceKind::Ring => "ls /dev/shm/ringleader",
        SourceKind::Dcgmi => "dcgmi diag -r 2",
        SourceKind::GpuServices => "systemctl status nvidia-fabricmanager",
        SourceKind::BugReport => "nvidia-bug-report.sh",
        SourceKind::Environment => "cat /proc/PID/environ; env; export -p",
        SourceKind::NodeSnapshot => "ringleader check --format node-json",
        SourceKind::Watch => "ringleader watch --json",
        SourceKind::Guard => "ls /dev/shm/ringleader/events-*.jsonl",
        SourceKind::Timeline => "ringleader trace record --steps 5 -o timelines",
        SourceKind::Bundle => "ringleader collect -o bundle.tar.zst",
        SourceKind::NcclTests
        | SourceKind::Limits
        | SourceKind::CopyTest
        | SourceKind::Network
        | SourceKind::System
        | SourceKind::Scheduler
        | SourceKind::PlainText
        | SourceKind::Unknown => return None,
    })
}
