//! Memory of the host: the out-of-memory killer (`mm/oom_kill.c`), machine checks (`arch/x86/kernel/cpu/mce`), EDAC
//! (`drivers/edac`), bad pages (`mm/memory-failure.c`).
//!
//! ```text
//! python3 invoked oom-killer: gfp_mask=0x…, order=0, oom_score_adj=986
//! oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),…,oom_memcg=/…,task_memcg=/…,task=python3,pid=19289,uid=0
//! Memory cgroup out of memory: Killed process 19289 (python3) total-vm:2676kB, anon-rss:84kB, file-rss:1468kB, …
//! ```

use ringleader_model::{KernelEventKind, OomKill};

use super::fields::{after, hex, number, number_after, pid};
use super::statements::{FamilyAnswer, MAX_GAP, Record, Statements};

/// Lines from who asked for memory to the kill. A list of all processes is in between, a line each. Chosen: more than a
/// node of a cluster runs.
const MAX_LINES_TO_KILL: u32 = 20_000;

/// The kill that is open.
#[derive(Default)]
pub(super) struct OpenKill {
    /// Line and name of who asked for memory.
    invoked: Option<(u32, Box<str>)>,
    /// Line and index of the statement.
    kill: Option<(u32, usize)>,
}

pub(super) fn read(
    open: &mut OpenKill,
    made: &mut Statements,
    text: &str,
    record: &Record<'_>,
) -> FamilyAnswer {
    if let Some((name, _)) = text.split_once(" invoked oom-killer") {
        open.invoked = Some((record.line, name.rsplit(": ").next().unwrap_or(name).trim().into()));
        return FamilyAnswer::Part;
    }
    if let Some(rest) = after(text, "oom-kill:constraint=") {
        return killing(open, made, rest, record);
    }
    if text.contains("Killed process ") || text.contains("Kill process ") {
        return killed(open, made, text, record);
    }
    if let Some(rest) = after(text, "EDAC ") {
        return edac(rest);
    }
    if let Some(rest) = after(text, "Memory failure: ") {
        // `0x1f2a3b: Killing python3:1234 due to hardware memory corruption`
        let victim = after(rest, "illing ").or_else(|| after(rest, "ending SIGBUS to "));
        return match victim.and_then(|r| r.split_once(" due to ")) {
            Some((who, _)) => {
                let (name, number) = who.rsplit_once(':').unwrap_or((who, ""));
                let pid = number.parse().ok().and_then(pid);
                FamilyAnswer::event(None, KernelEventKind::MemoryFailure { pid, name: name.into() })
            }
            None => FamilyAnswer::Part,
        };
    }
    if text.contains("Uncorrected hardware memory error") {
        return FamilyAnswer::event(None, KernelEventKind::MemoryFailure { pid: None, name: "".into() });
    }
    if let Some((_, rest)) = text.split_once(": Machine Check").filter(|_| text.contains("[Hardware Error]"))
    {
        // `CPU 0: Machine Check: 0 Bank 4: a600000000020408`, `Machine Check Exception: 5 Bank 1: …`
        let Some(status) = after(rest, "Bank ").and_then(|r| r.split_once(": ")).and_then(|(_, s)| hex(s))
        else {
            return FamilyAnswer::Part;
        };
        return FamilyAnswer::event(
            None,
            KernelEventKind::MachineCheck { uncorrected: status & 1 << 61 != 0 },
        );
    }
    FamilyAnswer::Nothing
}

/// `CONSTRAINT_MEMCG,nodemask=(null),cpuset=…,oom_memcg=/…,task_memcg=/…,task=NAME,pid=N,uid=N`.
fn killing(open: &mut OpenKill, made: &mut Statements, rest: &str, record: &Record<'_>) -> FamilyAnswer {
    let constraint = rest.split(',').next().unwrap_or_default();
    let value = |key: &str| {
        after(rest, key).map(|r| r.split(',').next().unwrap_or_default()).filter(|v| !v.is_empty())
    };
    // A name may hold commas: the number is the last one.
    let Some((head, tail)) = rest.rsplit_once(",pid=") else { return FamilyAnswer::Part };
    let victim = number(tail).filter(|(_, left)| left.starts_with(',')).and_then(|(n, _)| pid(n));
    let kill = OomKill {
        pid: victim,
        name: after(head, ",task=").unwrap_or_default().into(),
        invoked_by: invoker(open, record),
        cgroup_limit: match constraint {
            "CONSTRAINT_MEMCG" => Some(true),
            "CONSTRAINT_NONE" => Some(false),
            _ => None,
        },
        constraint: Some(constraint.into()),
        limited_cgroup: value(",oom_memcg=").map(Into::into),
        cgroup: value(",task_memcg=").map(Into::into),
        ..OomKill::default()
    };
    open.kill = Some((record.line, made.next_index()));
    FamilyAnswer::event(None, KernelEventKind::OomKill(kill.into()))
}

fn invoker(open: &mut OpenKill, record: &Record<'_>) -> Option<Box<str>> {
    open.invoked
        .take()
        .filter(|(line, _)| record.line.saturating_sub(*line) < MAX_LINES_TO_KILL)
        .map(|(_, n)| n)
}

/// `Killed process 19289 (NAME) total-vm:2676kB, …`; old kernels say `Kill process 11499 (NAME) score 1000 …` first.
fn killed(open: &mut OpenKill, made: &mut Statements, text: &str, record: &Record<'_>) -> FamilyAnswer {
    let Some(rest) = after(text, "Killed process ").or_else(|| after(text, "Kill process ")) else {
        return FamilyAnswer::Nothing;
    };
    let Some((n, rest)) = number(rest) else { return FamilyAnswer::Nothing };
    let victim = pid(n);
    // `Killed process 11499, UID 0, (name) total-vm` of old kernels.
    let Some(rest) = after(rest, "(") else { return FamilyAnswer::Nothing };
    // A name may hold brackets.
    let ends = [") total-vm:", ") score ", ") "];
    let Some(end) = ends.iter().find_map(|e| rest.find(e)).or_else(|| rest.rfind(')')) else {
        return FamilyAnswer::Nothing;
    };
    let (name, figures) = rest.split_at_checked(end).unwrap_or((rest, ""));
    let kib = |key: &str| number_after(figures, key);
    let in_cgroup = text.contains("Memory cgroup out of memory");
    let told_limit = if in_cgroup {
        Some(true)
    } else if text.contains("Out of memory") {
        Some(false)
    } else {
        None
    };
    let fill = |kill: &mut OomKill| {
        if kill.name.is_empty() {
            kill.name = name.into();
        }
        kill.pid = kill.pid.or(victim);
        kill.cgroup_limit = kill.cgroup_limit.or(told_limit);
        kill.total_vm_kib = kib("total-vm:").or(kill.total_vm_kib);
        kill.anon_rss_kib = kib("anon-rss:").or(kill.anon_rss_kib);
        kill.file_rss_kib = kib("file-rss:").or(kill.file_rss_kib);
        kill.shmem_rss_kib = kib("shmem-rss:").or(kill.shmem_rss_kib);
    };
    if let Some((line, index)) = open.kill
        && record.line.saturating_sub(line) <= MAX_GAP
        && made.event(index).is_some_and(
            |e| matches!(&e.kind, KernelEventKind::OomKill(k) if k.pid == victim && k.total_vm_kib.is_none()),
        )
    {
        if let Some(event) = made.amend(index, record)
            && let KernelEventKind::OomKill(kill) = &mut event.kind
        {
            fill(kill);
        }
        return FamilyAnswer::Part;
    }
    let mut kill = OomKill { invoked_by: invoker(open, record), ..OomKill::default() };
    fill(&mut kill);
    open.kill = Some((record.line, made.next_index()));
    FamilyAnswer::event(None, KernelEventKind::OomKill(kill.into()))
}

/// `MC1: 262 CE memory read error on CPU_SrcID#0_… (channel:1 …)`.
fn edac(rest: &str) -> FamilyAnswer {
    let Some((controller, said)) = rest.split_once(": ") else { return FamilyAnswer::Nothing };
    if !controller.contains("MC") {
        return FamilyAnswer::Nothing;
    }
    let Some((count, said)) = number(said) else { return FamilyAnswer::Part };
    let uncorrected = match said.trim_start().get(..3) {
        Some("CE ") => false,
        Some("UE ") => true,
        _ => return FamilyAnswer::Part,
    };
    let place = after(said, " on ").map_or("", |p| p.split(" (").next().unwrap_or(p)).trim();
    FamilyAnswer::event(None, KernelEventKind::MemoryErrors { count, uncorrected, place: place.into() })
}
