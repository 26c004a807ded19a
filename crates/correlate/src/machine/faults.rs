//! Faults that kernels report: which of them follow from another, how long after it, and which storage has failed.

use ringleader_model::{Evidence, Host, KernelEvent, KernelEventKind, StorageTrouble};

use crate::machine::kernel::{Bond, KernelLogs, KernelStatement};
use crate::who::tools;

/// `GPU 0000:3b:00.0 of rank 2`, `a GPU on node7`.
pub fn gpu_of(event: &KernelStatement<'_>) -> String {
    let name = event.event.device.map_or_else(|| "a GPU".to_owned(), |d| format!("GPU {d}"));
    match (event.culprit.rank, &event.culprit.host) {
        (Some(rank), _) => format!("{name} of rank {}", rank.0),
        (None, Some(host)) => format!("{name} on {host}"),
        (None, None) => name,
    }
}

/// How long one fault of a GPU goes on reporting Xids: the driver tries to recover and resets, the program retries
/// until its collective times out, by default after ten minutes.
pub const ONE_FAULT_S: f64 = 600.0;
/// Memory, link or bus of a GPU fail first, and programs fault in their next launches: a step takes seconds, a slow one
/// a minute.
pub const NEXT_LAUNCHES_S: f64 = 60.0;
/// A fatal error of a switch takes the links of its GPUs along as soon as they are used or trained again.
pub const SWITCH_TAKES_LINKS_S: f64 = 30.0;
/// After a program's own fault the driver stops its channels at once; a full log may be written late.
pub const CHANNELS_STOP_S: f64 = 10.0;
/// A link or device on PCIe fails, and the driver notices that the GPU is gone with its next access: within a minute.
pub const GPU_NOTICED_S: f64 = 60.0;
/// Two statements of one moment may be in either order.
const SAME_MOMENT_S: f64 = 0.5;

/// Whether `event` follows another statement that `is_root` accepts within `seconds`, of the same device if
/// `same_device`.
pub fn follows(
    kernel: &KernelLogs<'_>,
    event: &KernelStatement<'_>,
    seconds: f64,
    same_device: bool,
    is_root: impl Fn(&KernelEvent) -> bool,
) -> bool {
    kernel.all().iter().any(|root| {
        is_root(root.event)
            && (!same_device || root.event.device == event.event.device)
            && root.observation.cite != event.observation.cite
            && root.seconds_to(event).is_some_and(|after| (-SAME_MOMENT_S..=seconds).contains(&after))
    })
}

/// A GPU that is gone, with its number or without.
pub fn is_lost_gpu(event: &KernelEvent) -> bool {
    match &event.kind {
        KernelEventKind::GpuLost => true,
        KernelEventKind::Xid(x) => x.code == 79,
        _ => false,
    }
}

/// One of these Xids.
pub fn is_xid(event: &KernelEvent, codes: &[u16]) -> bool {
    matches!(&event.kind, KernelEventKind::Xid(x) if codes.contains(&x.code))
}

/// Storage of a host that failed or did not answer while the job ran: what it is, and the kernel's words.
pub fn storage(
    kernel: &KernelLogs<'_>,
    host: Option<&Host>,
    is_it: impl Fn(StorageTrouble) -> bool,
) -> Option<(String, Vec<Evidence>)> {
    let mut first = None;
    let mut evidence = Vec::new();
    for event in kernel.near() {
        let KernelEventKind::Storage { name, trouble } = &event.event.kind else { continue };
        // What nothing ties to the job's time or host may be of any day.
        if !is_it(*trouble)
            || event.bond < Bond::Untold
            || !tools::may_be_on(event.observation.who.host.as_ref(), host)
        {
            continue;
        }
        let does = match trouble {
            StorageTrouble::ReadOnly => "turned read-only",
            StorageTrouble::IoError => "has I/O errors",
            StorageTrouble::NotResponding => "does not answer",
        };
        first.get_or_insert_with(|| format!("{name} {does}"));
        if evidence.len() < 2 {
            evidence.push(event.evidence());
        }
    }
    Some((first?, evidence))
}
