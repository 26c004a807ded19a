//! # What it checks
//!
//! Size and use of /dev/shm, where NCCL keeps the buffers between ranks of a node and data loaders their batches.
//!
//! # What fails
//!
//! Less space than NCCL needs for the GPUs of this node, or no inode left. It warns about Docker's default of 64 MB
//! even if it is empty, because two data-loader workers fill it, and about a large one that is nearly full.
//!
//! # What to do
//!
//! Start the container with `--ipc=host` or a larger `--shm-size`; remove segments that no process holds. Space that
//! processes hold is freed when they end, also if the file is deleted.
//!
//! # References
//!
//! NVIDIA/nccl docs, Troubleshooting, Shared memory; NVIDIA/nccl src/transport/shm.cc.

use ringleader_node::{Segment, Shm};

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "shm-space",
    title: "room in /dev/shm",
    area: Area::Job,
    reads: &[Probe::Shm, Probe::Gpus],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("shm_space.rs"),
    run,
};

/// NCCL's need at its default buffer sizes: about 10 MB for each peer of each rank that is reached through shared
/// memory; a ring has two peers; one of them is counted here.
const NEEDED_PER_GPU: u64 = 10 << 20;
/// For the other needs of a starting job.
const NEEDED: u64 = 16 << 20;
/// GPUs of a node if unknown.
const USUAL_GPUS: u64 = 8;
/// Docker's default size.
const DEFAULT_SIZE: u64 = 64 << 20;
/// Largest number of holders named.
const NAMED: usize = 3;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let shm = match view.node.shm.seen() {
        Ok(shm) => shm,
        Err(missing) => return missing.into(),
    };
    let n_gpus =
        view.node.gpus.get().map(|gpus| gpus.gpus.len() as u64).filter(|n| *n > 0).unwrap_or(USUAL_GPUS);
    let needed = NEEDED + n_gpus * NEEDED_PER_GPU;
    let evidence = format!("statfs /dev/shm: size {}, available {}", shm.size, shm.available);
    let mut items = Vec::new();
    let mut push = |verdict, text: String| {
        items.push(Item { subject: "/dev/shm".to_owned(), verdict, text, evidence: evidence.clone() });
    };
    let is_small = shm.size <= DEFAULT_SIZE;
    if shm.inodes_free == Some(0) {
        push(CheckState::Fail, "no inode is free: no segment can be created".to_owned());
    }
    // A small empty one is reported as small; a small one that is used up fails.
    let (is_short, is_nearly_full) =
        (shm.available < needed.min(shm.size / 2), shm.available < shm.size / 20);
    if is_short {
        let text = format!(
            "{} of {} left, {n_gpus} GPUs need about {}",
            mib(shm.available),
            mib(shm.size),
            mib(needed)
        );
        push(CheckState::Fail, text + &holders(shm));
    } else if is_nearly_full {
        push(CheckState::Warn, format!("{} of {} left", mib(shm.available), mib(shm.size)) + &holders(shm));
    }
    if is_small {
        push(CheckState::Warn, format!("{} in all, which is a container's default", mib(shm.size)));
    }
    let is_full = is_short || is_nearly_full;
    let mut answer =
        CheckAnswer::from_items(format!("{} of {} free", mib(shm.available), mib(shm.size)), items);
    if is_full {
        answer = answer.advise(
            Impact::Harmless,
            "check what is there and which processes hold it",
            Some("ls -lS /dev/shm | head; ringleader check --only shm-space,shm-stale".to_owned()),
        );
    }
    if is_small || !is_full {
        answer = answer.advise(
            Impact::Disruptive,
            "start the container with more shared memory",
            Some("docker run --shm-size=16g …".to_owned()),
        );
    } else {
        answer = answer.advise(
            Impact::Disruptive,
            "make it larger (root; a container has to be restarted instead)",
            Some("mount -o remount,size=50% /dev/shm".to_owned()),
        );
    }
    answer.value("shm.size-mib", shm.size >> 20, ValueKind::Same)
}

fn mib(bytes: u64) -> String {
    format!("{} MiB", bytes >> 20)
}

/// The largest files, including deleted ones, and their holders.
fn holders(shm: &Shm) -> String {
    let living = shm.segments.iter().map(|segment| (segment, ""));
    let mut all: Vec<(&Segment, &str)> =
        living.chain(shm.deleted.iter().map(|segment| (segment, ", deleted"))).collect();
    all.retain(|(segment, _)| segment.allocated > 1 << 20);
    all.sort_by_key(|(segment, _)| std::cmp::Reverse(segment.allocated));
    let named: Vec<String> = all
        .iter()
        .take(NAMED)
        .map(|(segment, mark)| {
            let who = match segment.held_by.as_slice() {
                [] if segment.is_held_unknown => "holder unknown".to_owned(),
                [] => "held by no process".to_owned(),
                [pid] => format!("held by pid {pid}"),
                [pid, ..] => format!("held by pid {pid} and {} more", segment.held_by.len() - 1),
            };
            format!("{} ({}{mark}, {who})", segment.name, mib(segment.allocated))
        })
        .collect();
    if named.is_empty() { String::new() } else { format!("; largest: {}", named.join(", ")) }
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Part, Segment, Shm};

    use super::CHECK;
    use crate::answer::CheckState;
    use crate::staging_jobs::NodeStage;

    const MIB: u64 = 1 << 20;

    fn stage(size: u64, available: u64, segments: Vec<Segment>, deleted: Vec<Segment>) -> NodeStage {
        NodeStage::new().with(|node| {
            node.shm = Part::of(Shm {
                size: size * MIB,
                available: available * MIB,
                segments,
                deleted,
                ..Shm::default()
            });
        })
    }

    fn segment(name: &str, mib: u64, held_by: &[u32]) -> Segment {
        Segment {
            name: name.to_owned(),
            allocated: mib * MIB,
            held_by: held_by.to_vec(),
            ..Segment::default()
        }
    }

    #[test]
    fn full_names_who_fills_it() {
        let stage =
            stage(8192, 3, vec![segment("data", 5000, &[])], vec![segment("torch_1", 3000, &[4711, 4712])]);
        stage.expect(&CHECK, CheckState::Fail, &["/dev/shm"]);
        let summary = stage.answer(&CHECK).summary;
        assert!(
            summary.contains(
                "data (5000 MiB, held by no process), torch_1 (3000 MiB, deleted, held by pid 4711 and 1 more)"
            ),
            "{summary}"
        );
    }

    #[test]
    fn small_but_empty_and_large_but_nearly_full() {
        stage(64, 64, vec![], vec![]).expect(&CHECK, CheckState::Warn, &["/dev/shm"]);
        stage(64, 20, vec![], vec![]).expect(&CHECK, CheckState::Fail, &["/dev/shm", "/dev/shm"]);
        stage(100_000, 2_000, vec![], vec![]).expect(&CHECK, CheckState::Warn, &["/dev/shm"]);
    }

    #[test]
    fn room_enough() {
        stage(16_384, 16_000, vec![segment("nccl-x", 10, &[1])], vec![]).expect(&CHECK, CheckState::Ok, &[]);
        // Four GPUs need less space than eight.
        let four = |stage: NodeStage| (0..4).fold(stage, |stage, n| stage.gpu(&format!("{n}"), &[]));
        four(stage(1024, 70, vec![], vec![])).expect(&CHECK, CheckState::Ok, &[]);
        stage(1024, 70, vec![], vec![]).expect(&CHECK, CheckState::Fail, &["/dev/shm"]);
        NodeStage::new().expect(&CHECK, CheckState::Skipped, &[]);
    }

    #[test]
    fn no_inode() {
        let stage = stage(16_384, 16_000, vec![], vec![]).with(|node| {
            let mut shm = node.shm.get().unwrap().clone();
            shm.inodes_free = Some(0);
            node.shm = Part::of(shm);
        });
        stage.expect(&CHECK, CheckState::Fail, &["/dev/shm"]);
    }
}
