//! # What it checks
//!
//! Size and fill of /dev/shm, where NCCL keeps the buffers between ranks of a node and data loaders their batches.
//!
//! # What fails
//!
//! Less room than NCCL needs for the GPUs of this node, or no inode left. Docker's default of 64 MB warns even when it
//! is empty: two data-loader workers fill it.
//!
//! # What to do
//!
//! Start the container with `--ipc=host` or a larger `--shm-size`; remove segments that nobody holds.
//!
//! # References
//!
//! NVIDIA/nccl docs, Troubleshooting, Shared memory.

use crate::answer::{Answer, Impact, Item, ValueKind, Verdict};
use crate::rule::{Area, Check, Probe};
use crate::view::View;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "shm-space",
    title: "room in /dev/shm",
    area: Area::Job,
    reads: &[Probe::Shm],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("shm_space.rs"),
    run,
};

/// What NCCL takes for each pair of ranks of a node, at its default buffer sizes (about 10 MB a peer), eight ranks:
/// below this a job does not start.
const NEEDED: u64 = 64 << 20;
/// Docker's default size.
const DEFAULT_SIZE: u64 = 64 << 20;

fn run(view: &View<'_>) -> Answer {
    let shm = match view.node.shm.seen() {
        Ok(shm) => shm,
        Err(missing) => return missing.into(),
    };
    let mib = |bytes: u64| format!("{} MiB", bytes >> 20);
    let evidence = format!("statfs /dev/shm: size {}, available {}", shm.size, shm.available);
    let mut items = Vec::new();
    let mut push = |verdict, text: String| {
        items.push(Item { subject: "/dev/shm".to_owned(), verdict, text, evidence: evidence.clone() });
    };
    if shm.inodes_free == Some(0) {
        push(Verdict::Fail, "no inode is free: no segment can be made".to_owned());
    }
    if shm.size <= DEFAULT_SIZE {
        push(Verdict::Warn, format!("{} in all, which is a container's default", mib(shm.size)));
    }
    if shm.available < NEEDED.min(shm.size / 2) {
        push(Verdict::Fail, format!("{} of {} left", mib(shm.available), mib(shm.size)));
    }
    Answer::from_items(format!("{} of {} free", mib(shm.available), mib(shm.size)), items)
        .advise(
            Impact::Disruptive,
            "start the container with more shared memory",
            Some("docker run --shm-size=16g …".to_owned()),
        )
        .value("shm.size-mib", shm.size >> 20, ValueKind::Same)
}
