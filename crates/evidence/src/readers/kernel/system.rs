//! Storage, limits of the whole machine, heat, the kernel's own end, and what it says of the clock.
//!
//! `rtc_cmos rtc_cmos: setting system clock to 2026-11-20T08:13:05 UTC (1795162385)` tells wall time from uptime.

use ringleader_model::{KernelEventKind, StorageTrouble};

use super::fields::{after, between, number};
use super::statements::{FamilyAnswer, Record, Statements};

const NS_PER_S: i64 = 1_000_000_000;

pub(super) fn read(made: &mut Statements, text: &str, record: &Record<'_>) -> FamilyAnswer {
    if text.starts_with("Linux version ") {
        // The first line of a boot: what came before, in a journal, was another one.
        if made.has_begun() && record.uptime_us.is_none_or(|us| us > 1_000_000) {
            made.clock.next();
        }
        return FamilyAnswer::Part;
    }
    if let Some(rest) = after(text, "setting system clock to ") {
        if let Some(epoch) = between(rest, "UTC (", ")").and_then(number) {
            made.clock.told(record.uptime_us, (epoch.0 as i64).saturating_mul(NS_PER_S));
        }
        return FamilyAnswer::Part;
    }
    if let Some(rest) = after(text, "audit: type=2000 audit(") {
        if let Some((seconds, _)) = number(rest) {
            made.clock.told(record.uptime_us, (seconds as i64).saturating_mul(NS_PER_S));
        }
        return FamilyAnswer::Part;
    }
    if text.contains("file-max limit") && text.contains("reached") {
        return FamilyAnswer::event(None, KernelEventKind::FileLimit);
    }
    let panics = ["Kernel panic - not syncing", "BUG: unable to handle", "Oops: "];
    if panics.iter().any(|p| text.contains(p)) {
        return FamilyAnswer::event(None, KernelEventKind::Panic);
    }
    if text.contains("clock throttled") {
        return FamilyAnswer::event(None, KernelEventKind::Throttled);
    }
    storage(text).unwrap_or(FamilyAnswer::Nothing)
}

fn storage(text: &str) -> Option<FamilyAnswer> {
    use StorageTrouble as Trouble;
    let (name, trouble) =
        if text.contains("Remounting filesystem read-only") || text.contains("hutting down filesystem") {
            // `EXT4-fs (sda1): …`, `XFS (nvme0n1): …`
            (between(text, "(", ")")?, Trouble::ReadOnly)
        } else if text.contains("I/O error") {
            let name = after(text, "on dev ").or_else(|| after(text, "error, dev "))?;
            (name.split([',', ' ']).next()?, Trouble::IoError)
        } else if text.contains("controller is down") {
            (text.split(": ").next()?.rsplit(' ').next()?, Trouble::NotResponding)
        } else if text.contains("not responding") {
            // `nfs: server filer1 not responding, still trying`
            (between(text, "nfs: server ", " not responding")?, Trouble::NotResponding)
        } else if text.contains("Lustre") && (text.contains("was lost") || text.contains("timed out")) {
            (
                after(text, "LustreError").or_else(|| after(text, "Lustre: "))?.split(": ").nth(1)?,
                Trouble::NotResponding,
            )
        } else {
            return None;
        };
    Some(FamilyAnswer::event(None, KernelEventKind::Storage { name: name.trim().into(), trouble }))
}
