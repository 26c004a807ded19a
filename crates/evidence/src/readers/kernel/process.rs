//! Processes that crash or hang: `arch/x86/mm/fault.c` and `traps.c`, `kernel/hung_task.c`, `kernel/watchdog.c`.
//!
//! `pt_main_thread[2536443]: segfault at 7f… ip 00007f… sp 00007f… error 4 in libnccl.so.2[7f…+d3d3000]`
//! `INFO: task jfsmount:136986 blocked for more than 120 seconds.`
//! `watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]`

use ringleader_model::KernelEventKind;

use super::fields::{after, between, named_pid, number_after, pid};
use super::statements::FamilyAnswer;

pub(super) fn read(text: &str) -> FamilyAnswer {
    if let Some(rest) = between(text, "INFO: task ", " blocked for more than ") {
        let Some((name, number)) = rest.rsplit_once(':') else { return FamilyAnswer::Nothing };
        let kind = KernelEventKind::HungTask {
            pid: number.parse().ok().and_then(pid),
            name: name.into(),
            seconds: number_after(text, "blocked for more than ").unwrap_or(0),
        };
        return FamilyAnswer::event(None, kind);
    }
    if text.contains("soft lockup - CPU#") || text.contains("hard LOCKUP on cpu") {
        let who = between(text, "[", "]").unwrap_or_default();
        let (name, number) = who.rsplit_once(':').unwrap_or(("", ""));
        let kind = KernelEventKind::Lockup {
            pid: number.parse().ok().and_then(pid),
            name: name.into(),
            seconds: number_after(text, "stuck for "),
        };
        return FamilyAnswer::event(None, kind);
    }
    crash(text).unwrap_or(FamilyAnswer::Nothing)
}

fn crash(text: &str) -> Option<FamilyAnswer> {
    let text = text.strip_prefix("traps: ").unwrap_or(text);
    let (name, pid, rest) = named_pid(text)?;
    let what = if rest.starts_with("segfault at ") && rest.contains(" ip ") {
        "segfault"
    } else if rest.starts_with("trap ") && rest.contains(" ip:") {
        rest.split(" ip:").next()?
    } else if rest.starts_with("general protection") && rest.contains("ip:") {
        "general protection fault"
    } else {
        return None;
    };
    let object =
        after(rest, " in ").map(|o| o.split(['[', ' ']).next().unwrap_or(o)).filter(|o| !o.is_empty());
    Some(FamilyAnswer::event(
        None,
        KernelEventKind::Crash {
            pid: Some(pid),
            name: name.into(),
            what: what.into(),
            object: object.map(Into::into),
        },
    ))
}
