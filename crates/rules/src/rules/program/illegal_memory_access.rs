//! # What it shows
//!
//! A kernel of this process read or wrote a bad address. CUDA reports it at some later call of the same process,
//! and every call after that fails too, NCCL's among them.
//!
//! # Why it happens
//!
//! An index out of range, a tensor freed while a kernel or a CUDA graph still uses it, a custom kernel, now and
//! then a bug of a library.
//!
//! # Evidence
//!
//! `an illegal memory access was encountered`, `misaligned address`, `unspecified launch failure`, from torch or
//! from NCCL, on the process itself.
//!
//! # What looks like it but is not
//!
//! Peers that report a closed connection afterwards are victims. NCCL repeats the error on each clean-up call: only
//! the first counts. A failed device-side assertion and an uncorrectable memory error have texts of their own.
//!
//! # What to do
//!
//! Find the kernel: run once more with synchronous launches, or under compute-sanitizer. Look for an Xid 31 or 13
//! of the same pid.
//!
//! # References
//!
//! CUDA runtime reference, enum cudaError. Codes 700, 715, 716, 719.

use ringleader_model::{Cause, Confidence, Impact, Severity, Weight};

use crate::drafting::claims::ClaimsOfCause;
use crate::drafting::kernel::{Both, KernelFault};
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::{NEXT_LAUNCHES_S, follows, is_lost_gpu, is_xid};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "illegal-memory-access",
    title: "a kernel made an illegal memory access",
    since: "0.1",
    doc: include_str!("illegal_memory_access.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    // A GPU whose memory, link or bus fails makes such faults too: then they follow.
    let machine = |root: &ringleader_model::KernelEvent| {
        is_lost_gpu(root) || is_xid(root, &[48, 74, 94, 95, 119, 120, 140, 149])
    };
    let seen = KernelFault::own(scene, &RULE)
        .and_then(|s| s.without(|e| follows(scene.kernel(), e, NEXT_LAUNCHES_S, true, machine)));
    let told = ClaimsOfCause::of(scene, Cause::IllegalMemoryAccess);
    // Without a word of the job's own it must be this job's fault for certain.
    if told.is_none() && seen.as_ref().is_some_and(|s| !s.is_bound()) {
        return Outcome::Clear;
    }
    // Such a fault ends the process that makes it. A job that continues and reports no failure is not that process.
    if told.is_none() && !scene.failure().is_claimed() && scene.course().text().goes_on() {
        return Outcome::Clear;
    }
    let Some(both) = Both::of(told, seen) else { return Outcome::Clear };
    let mut draft = both.draft(
        &RULE,
        Cause::IllegalMemoryAccess,
        |told| format!("{who}: a GPU kernel made an illegal memory access", who = told.who()),
        |seen| {
            let who = seen.events().iter().find_map(|e| match &e.event.kind {
                ringleader_model::KernelEventKind::Xid(x) => {
                    Some(format!("{} (pid {})", x.name.as_deref().unwrap_or("a program"), x.pid?.0))
                }
                _ => None,
            });
            let who = who.unwrap_or_else(|| "a program".to_owned());
            format!("{who} made an illegal memory access on {}; the node can stay in service", seen.gpu())
        },
    );
    if let Both::Told(told, None) = &both
        && !told.is_stated()
        && told.culprits().iter().any(|c| has_bad_memory(scene, c))
    {
        // A kernel that died for no stated reason, on a GPU that lost data: the memory explains it.
        draft = draft.weight(Weight::Echo);
    }
    if let Both::Seen(_) = &both {
        // The driver saw the access; which kernel made it, and whether that ended the job, it does not say.
        draft = draft.weight(Weight::Derived).confidence(Confidence::Medium).severity(Severity::Error);
    }
    let draft = draft
        .advise_command(
            Impact::Harmless,
            "run again with synchronous launches: the traceback then names the kernel that fails",
            "CUDA_LAUNCH_BLOCKING=1",
        )
        .advise_command(
            Impact::Harmless,
            "or let compute-sanitizer name the access",
            "compute-sanitizer --tool memcheck python train.py",
        )
        .advise(
            Impact::Harmless,
            "keep the node: only if the same GPU faults again under programs known to be good, test it (DCGM)",
        );
    found(match both.seen() {
        Some(_) => draft,
        None => draft.advise_command(
            Impact::Harmless,
            "check whether the driver logged an Xid for this process",
            "dmesg -T | grep -i xid",
        ),
    })
}

/// The GPU of this rank counts uncorrected errors.
fn has_bad_memory(scene: &Scene<'_>, culprit: &ringleader_model::Culprit) -> bool {
    let same = |rank| culprit.rank.is_some() && culprit.rank == rank;
    scene.gpus().seen.iter().any(|g| same(g.culprit.rank) && g.uncorrected().is_some())
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};
    use ringleader_correlate::staging::kernel::BEGAN_S;

    #[test]
    fn a_kernel_that_died_on_a_gpu_that_lost_data() {
        let stage = |n: u64| {
            let errors = ringleader_correlate::staging::gpus::gpus(2, |index, row| {
                row.uncorrected_errors = Some(u64::from(index) * n);
            });
            let job = StagedCase::new().two_ranks().shows(errors);
            job.raised(Some(1), "RuntimeError", "CUDA error: unspecified launch failure", &[])
        };
        assert_eq!(stage(2).worth(&RULE), ["error Echo"]);
        assert_eq!(stage(0).worth(&RULE), ["error Derived"]);
    }

    #[test]
    fn torch_says_so() {
        StagedCase::new()
            .raised(
                Some(2),
                "torch.AcceleratorError",
                "CUDA error: an illegal memory access was encountered\nSearch for",
                &[],
            )
            .expect(&RULE, &["illegal-memory-access 2"]);
    }

    #[test]
    fn repeated_by_nccl_it_is_one_finding() {
        StagedCase::new()
            .raised(
                Some(2),
                "torch.AcceleratorError",
                "CUDA error: an illegal memory access was encountered",
                &[],
            )
            .process("vm", 1456, Some(2))
            .warn("include/alloc.h:250", "Cuda failure 700 'an illegal memory access was encountered'")
            .warn("include/alloc.h:250", "Cuda failure 700 'an illegal memory access was encountered'")
            .expect(&RULE, &["illegal-memory-access 2"]);
    }

    #[test]
    fn an_assertion_is_another_thing() {
        StagedCase::new()
            .raised(Some(2), "RuntimeError", "CUDA error: device-side assert triggered", &[])
            .silent(&RULE);
    }

    #[test]
    fn the_hint_alone_says_nothing() {
        StagedCase::new()
            .error_line(Some(1), "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.")
            .silent(&RULE);
    }

    const FAULT: &str =
        "MMU Fault: ENGINE GRAPHICS GPC1 faulted @ 0xbfbf_b1a00000. Fault is of type FAULT_PDE";

    #[test]
    fn the_kernel_says_so() {
        StagedCase::new()
            .xid("0000:00:08", 31, 1456, FAULT)
            .concludes(&RULE, "illegal-memory-access , medium");
        StagedCase::new()
            .two_ranks()
            .xid("0000:3b:00", 31, 101, FAULT)
            .concludes(&RULE, "illegal-memory-access 1, medium");
        let confirmed = StagedCase::new()
            .two_ranks()
            .raised(Some(1), "RuntimeError", "CUDA error: an illegal memory access was encountered", &[])
            .xid("0000:3b:00", 31, 101, FAULT)
            .finding(&RULE);
        assert!(confirmed.evidence.iter().any(|e| e.kind == ringleader_model::SourceKind::KernelLog));
    }

    #[test]
    fn a_fault_of_another_process() {
        StagedCase::new().two_ranks().xid("0000:3b:00", 31, 9_999, FAULT).silent(&RULE);
        StagedCase::new().two_ranks().xid("0000:77:00", 31, 9_999, FAULT).silent(&RULE);
    }

    #[test]
    fn a_fault_of_a_job_beside_this_one() {
        use ringleader_model::{Fact, Pid, SourceKind, WatchEvent, Who};
        let seen = |pids: [u32; 2]| {
            let who = |rank: u32, pid| Who { pid: Some(Pid(pid)), ..Who::rank(rank) };
            let ranks = (0..).zip(pids).map(|(rank, pid)| who(rank, pid)).collect();
            let watched = Fact::Watch(WatchEvent::Ranks(ranks));
            let stage = StagedCase::new().push(SourceKind::Watch, Who::default(), watched);
            stage.at_s(BEGAN_S).xid("0000:3b:00", 31, 201, FAULT).at_s(BEGAN_S + 9)
        };
        seen([200, 201]).concludes(&RULE, "illegal-memory-access 1, medium");
        seen([200, 202]).silent(&RULE);
    }

    /// Jobs that share a GPU: a rank that worked on after the fault, or ended in order, did not make it.
    #[test]
    fn a_fault_that_the_ranks_outlived() {
        use ringleader_model::{
            Fact, KernelEventKind, Pid, RingRecord, SourceKind, SystemFact, WatchEvent, Who, Xid,
        };
        let ended = |code: u8| {
            let exit = Some((code, (BEGAN_S + 60) * 1_000_000_000));
            let ring = RingRecord { exit, taken_ns: (BEGAN_S + 60) * 1_000_000_000, ..RingRecord::default() };
            let who = Who { pid: Some(Pid(101)), ..Who::rank(1) };
            let stage = StagedCase::new().two_ranks().push(SourceKind::Ring, who, Fact::Ring(Box::new(ring)));
            let xid = Xid {
                code: 31,
                pid: Some(Pid(9_999)),
                name: Some("python".into()),
                body: FAULT.into(),
                ..Xid::default()
            };
            stage.kernel("0000:3b:00", KernelEventKind::Xid(xid.into())).at_s(BEGAN_S + 1)
        };
        ended(1).concludes(&RULE, "illegal-memory-access 1, medium");
        ended(0).silent(&RULE);
        // By the kernel's own numbers it is another program; where a rank may have another number there, nobody knows.
        let ranks = [0, 1].map(|rank| Who { pid: Some(Pid(100 + rank)), ..Who::rank(rank) });
        let watched = Fact::Watch(WatchEvent::Ranks(ranks.into()));
        let named = || ended(1).push(SourceKind::Watch, Who::default(), watched.clone());
        named().concludes(&RULE, "illegal-memory-access 1, medium");
        named().system("node0", SystemFact::NodePids).silent(&RULE);
    }

    #[test]
    fn stopped_channels_are_no_cause() {
        StagedCase::new()
            .xid("0000:3b:00", 43, 5, "channel 0xa")
            .xid("0000:3b:00", 45, 5, "Ch 1")
            .silent(&RULE);
    }

    #[test]
    fn a_fault_that_broken_memory_makes() {
        StagedCase::new()
            .xid("0000:3b:00", 48, 0, "An uncorrectable double bit error (DBE)")
            .xid("0000:3b:00", 31, 5, FAULT)
            .silent(&RULE);
    }
}
