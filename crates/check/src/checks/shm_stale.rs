//! # What it checks
//!
//! Segments of NCCL and torch in /dev/shm that no process holds: a killed job left them.
//!
//! # What fails
//!
//! Nothing fails: they take space and can collide with a new segment of the same name, so they warn. A segment that a
//! live process maps or has open is never stale. If some processes are unreadable or invisible (hidepid, a separate
//! pid namespace: a container may share the folder) and no visible process holds a segment, the answer is unknown.
//!
//! # What to do
//!
//! Remove exactly the segments that are named.
//!
//! # References
//!
//! NVIDIA/nccl src/misc/shmutils.cc (nccl-XXXXXX, deleted once both sides have attached); torch's shared-memory files
//! (torch_PID_N).

use ringleader_node::Segment;

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "shm-stale",
    title: "no segment left behind",
    area: Area::Job,
    reads: &[Probe::Shm, Probe::System],
    drains: false,
    is_quick: true,
    since: "0.2",
    doc: include_str!("shm_stale.rs"),
    run,
};

/// A segment younger than this may be on its way from one process to another, nanoseconds.
const YOUNG_NS: i64 = 60_000_000_000;
/// Largest number of files in one command.
const MAX_NAMED: usize = 64;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let shm = match view.node.shm.seen() {
        Ok(shm) => shm,
        Err(missing) => return missing.into(),
    };
    let ours = |segment: &&Segment| ["nccl-", "torch_"].iter().any(|head| segment.name.starts_with(head));
    let loose: Vec<&Segment> = shm
        .segments
        .iter()
        .filter(ours)
        .filter(|segment| segment.held_by.is_empty() && view.node.at_ns - segment.modified_ns > YOUNG_NS)
        .collect();
    let n_held = shm.segments.iter().filter(ours).filter(|segment| !segment.held_by.is_empty()).count();
    let (unknown, stale): (Vec<&Segment>, Vec<&Segment>) = loose.into_iter().partition(|s| s.is_held_unknown);
    if stale.is_empty() && !unknown.is_empty() {
        return CheckAnswer::skipped(format!(
            "cannot determine whether a process holds {} segments ({}): {}",
            unknown.len(),
            some(&unknown),
            shm.unseen.as_deref().unwrap_or("not all processes could be inspected, run as root")
        ));
    }
    let system = view.node.system.get();
    let is_container = system.is_some_and(|system| system.container.is_some());
    let mut items = Vec::new();
    for segment in &stale {
        let age_min = (view.node.at_ns - segment.modified_ns) / 60_000_000_000;
        let here = if is_container { " in this container" } else { "" };
        items.push(Item {
            subject: format!("/dev/shm/{}", segment.name),
            verdict: CheckState::Warn,
            text: format!(
                "{} KiB, last written {age_min} min ago, and no process{here} holds it",
                segment.allocated >> 10
            ),
            evidence: format!("no line of /proc/*/maps and no /proc/*/fd names it; owner {}", segment.uid),
        });
    }
    let ok = format!("no segment of NCCL or torch is left behind, {n_held} are in use");
    let mut answer = CheckAnswer::from_items(ok, items);
    let own = system.map(|system| system.euid);
    let (mine, others): (Vec<&Segment>, Vec<&Segment>) = stale
        .iter()
        .copied()
        .filter(|s| is_plain(&s.name))
        .partition(|s| own == Some(s.uid) && !is_container);
    if let Some(command) = remove("", &mine) {
        answer = answer.advise_automatic("remove exactly these, which no process holds", command);
    }
    if let Some(command) = remove("sudo ", &others) {
        let text = if is_container {
            "remove them, if no other container shares this /dev/shm (--ipc=host)"
        } else {
            "remove those of other users, once their owners agree"
        };
        answer = answer.advise(
            Impact::Disruptive,
            text,
            Some(if is_container { command.replace("sudo ", "") } else { command }),
        );
    }
    answer.value("shm.stale-segments", stale.len(), ValueKind::Near)
}

/// Whether a shell takes the name literally.
fn is_plain(name: &str) -> bool {
    name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.'))
}

fn remove(before: &str, segments: &[&Segment]) -> Option<String> {
    let files: Vec<String> =
        segments.iter().take(MAX_NAMED).map(|s| format!("/dev/shm/{}", s.name)).collect();
    (!files.is_empty()).then(|| format!("{before}rm -- {}", files.join(" ")))
}

fn some(segments: &[&Segment]) -> String {
    let names: Vec<&str> = segments.iter().take(3).map(|s| s.name.as_str()).collect();
    let more = if segments.len() > 3 { ", …" } else { "" };
    names.join(", ") + more
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Part, Segment, Shm, System};

    use super::CHECK;
    use crate::answer::{CheckState, Impact};
    use crate::staging_jobs::{NOW_NS, NodeStage};

    fn segment(name: &str, held_by: &[u32]) -> Segment {
        Segment {
            name: name.to_owned(),
            allocated: 9 << 20,
            uid: 1000,
            modified_ns: NOW_NS - 600_000_000_000,
            held_by: held_by.to_vec(),
            ..Segment::default()
        }
    }

    fn stage(segments: Vec<Segment>, euid: u32, container: Option<&str>) -> NodeStage {
        NodeStage::new().with(|node| {
            let container = container.map(str::to_owned);
            node.system = Part::of(System { euid, container, ..System::default() });
            node.shm = Part::of(Shm { segments, ..Shm::default() });
        })
    }

    #[test]
    fn nobody_holds_it() {
        let left = stage(
            vec![segment("nccl-AbC", &[]), segment("nccl-live", &[7]), segment("torch_5_1", &[])],
            1000,
            None,
        );
        left.expect(&CHECK, CheckState::Warn, &["/dev/shm/nccl-AbC", "/dev/shm/torch_5_1"]);
        let fixes = left.answer(&CHECK).fixes;
        assert_eq!(fixes[0].command.as_deref(), Some("rm -- /dev/shm/nccl-AbC /dev/shm/torch_5_1"));
        assert!(fixes[0].is_automatic && fixes[0].impact == Impact::Harmless && fixes.len() == 1);
    }

    #[test]
    fn what_is_never_removed_by_itself() {
        // Another user's segment, one in a container, and one whose name a shell would split.
        for (segments, euid, container) in [
            (vec![segment("nccl-AbC", &[])], 1001, None),
            (vec![segment("nccl-AbC", &[])], 1000, Some("docker")),
            (vec![segment("nccl-A b;rm -rf", &[])], 1000, None),
        ] {
            let left = stage(segments, euid, container);
            assert_eq!(left.told(&CHECK).0, CheckState::Warn);
            let answer = left.answer(&CHECK);
            assert!(answer.fixes.iter().all(|fix| !fix.is_automatic), "{:?}", answer.fixes);
            assert!(answer.fixes.iter().all(|fix| !fix.command.as_deref().unwrap_or("").contains(';')));
        }
    }

    #[test]
    fn live_young_and_of_others() {
        let mut young = segment("nccl-young", &[]);
        young.modified_ns = NOW_NS - 1_000_000_000;
        let other = segment("database", &[]);
        stage(vec![segment("nccl-live", &[7]), young, other], 1000, None).expect(&CHECK, CheckState::Ok, &[]);
    }

    #[test]
    fn not_all_could_be_looked_into() {
        let unknown = Segment { is_held_unknown: true, ..segment("nccl-AbC", &[]) };
        let left = stage(vec![unknown], 1000, None);
        left.expect(&CHECK, CheckState::Skipped, &[]);
        assert!(left.answer(&CHECK).summary.contains("run as root"));
        assert!(left.answer(&CHECK).fixes.is_empty());
        NodeStage::new().expect(&CHECK, CheckState::Skipped, &[]);
        let unknown = Segment { is_held_unknown: true, ..segment("nccl-AbC", &[]) };
        let elsewhere = stage(vec![unknown], 0, Some("docker")).with(|node| {
            let unseen = Some("this is a pid namespace of its own".to_owned());
            node.shm = Part::of(Shm { unseen, ..node.shm.get().unwrap().clone() });
        });
        elsewhere.expect(&CHECK, CheckState::Skipped, &[]);
        let answer = elsewhere.answer(&CHECK);
        assert!(answer.summary.contains("pid namespace") && answer.fixes.is_empty(), "{answer:?}");
    }
}
