//! The command that collects each kind of evidence: one table for reports, for undecided verdicts and for the help.

use ringleader_model::SourceKind;

/// The command to run, or the variables to set before the start; None if this evidence is not collected by hand.
pub fn command(kind: SourceKind) -> Option<&'static str> {
    Some(match kind {
        // Without --nonblocking py-spy stops the process for milliseconds, which does not matter for a stuck rank.
        SourceKind::Stacks => "py-spy dump --pid <pid of each rank> --json",
        SourceKind::Ras => "ncclras -v -f json",
        SourceKind::Processes => "ps -eo pid,ppid,stat,wchan:32,pcpu,etime,args",
        SourceKind::NvidiaSmi => "nvidia-smi",
        SourceKind::KernelLog => "dmesg -T",
        // Older PyTorch releases read the second name.
        SourceKind::FlightRecorder => {
            "TORCH_FR_BUFFER_SIZE=20000 TORCH_NCCL_TRACE_BUFFER_SIZE=20000 TORCH_NCCL_DUMP_ON_TIMEOUT=1 torchrun …"
        }
        SourceKind::NcclLog => {
            "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,NET,COLL,GRAPH NCCL_DEBUG_FILE=/tmp/nccl_%h_%p.log torchrun …"
        }
        SourceKind::TorchLog | SourceKind::ElasticError => "torchrun … 2>&1 | tee stderr.log",
        SourceKind::Ring => "ls /dev/shm/ringleader",
        SourceKind::Dcgmi => "dcgmi diag -r 2",
        SourceKind::GpuServices => "systemctl status nvidia-fabricmanager",
        SourceKind::BugReport => "nvidia-bug-report.sh",
        SourceKind::Environment => "cat /proc/PID/environ; env; export -p",
        SourceKind::NodeSnapshot => "ringleader check --format node-json",
        SourceKind::Watch => "ringleader watch --json",
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
