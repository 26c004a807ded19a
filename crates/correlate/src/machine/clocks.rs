//! Kernel logs whose clock is in another time zone than the job's: a relevant event is whole half hours from the
//! failure.
//!
//! That may be chance, so it becomes a question, not a finding.

use ringleader_knowledge::program::trains;
use ringleader_knowledge::xid::{self, Kills};
use ringleader_model::{KernelEventKind, PciAddress};

use crate::machine::kernel::{Bond, KernelLogs, KernelStatement};
use crate::when::failure::JobFailure;
use crate::when::year::in_year;
use crate::who::roster::Roster;

const SECOND_NS: i64 = 1_000_000_000;
/// Zones differ by whole and half hours (three by quarters: they are left out, chance would grow).
const STEP_NS: i64 = 1_800 * SECOND_NS;
/// The farthest zones are 26 hours apart; those of one company's clocks less.
const MAX_STEPS: i64 = 28;
/// How long before and after the failure its cause may be logged.
const BEFORE_NS: i64 = 60 * SECOND_NS;
const AFTER_NS: i64 = 20 * SECOND_NS;

/// A kernel event that would explain the failure if its clock were in another zone.
#[derive(Clone, Copy, Debug)]
pub struct Shifted<'s, 'a> {
    /// The statement.
    pub event: &'s KernelStatement<'a>,
    /// Hours from the failure; negative if the log is behind.
    pub hours: f64,
}

/// Kernel events that a difference of zones would make the failure's; of each log the first.
pub fn shifted<'s, 'a>(
    logs: &'s KernelLogs<'a>,
    roster: &Roster,
    failure: &JobFailure,
) -> Vec<Shifted<'s, 'a>> {
    let Some((failed, _)) = failure.began() else { return Vec::new() };
    let mut found: Vec<Shifted<'s, 'a>> = Vec::new();
    for event in logs.all().iter().filter(|e| e.bond < Bond::Device && matters(roster, e)) {
        let Some(at) = event.observation.at else { continue };
        let apart = in_year(at).saturating_sub(failed);
        let steps = apart.saturating_add(STEP_NS / 2).div_euclid(STEP_NS);
        let rest = apart - steps * STEP_NS;
        let is_known = found.iter().any(|s| s.event.observation.cite.source == event.observation.cite.source);
        if steps != 0 && steps.abs() <= MAX_STEPS && (-BEFORE_NS..=AFTER_NS).contains(&rest) && !is_known {
            found.push(Shifted { event, hours: steps as f64 / 2.0 });
        }
    }
    found
}

/// It would explain a failure: a GPU of the job, or a process that may be one of its ranks.
fn matters(roster: &Roster, event: &KernelStatement<'_>) -> bool {
    let is_fault = match &event.event.kind {
        KernelEventKind::Xid(x) => xid::get(x.code).is_none_or(|row| row.kills_job == Kills::Yes),
        KernelEventKind::GpuLost => true,
        KernelEventKind::OomKill(kill) => trains(&kill.name),
        _ => false,
    };
    let host = event.observation.who.host.as_ref();
    let hosts = roster.hosts();
    let is_here = host.is_none_or(|h| hosts.is_empty() || hosts.contains(h));
    let whole = |gpu: PciAddress| PciAddress { function: 0, ..gpu };
    let mut gpus = roster.members.iter().filter_map(|m| m.gpu).map(whole).peekable();
    let is_ours = match event.event.device {
        Some(device) => gpus.peek().is_none() || gpus.any(|gpu| gpu == whole(device)),
        None => true,
    };
    is_fault && is_here && is_ours
}

#[cfg(test)]
mod tests {
    use ringleader_model::TorchEvent;

    use super::shifted;
    use crate::Scene;
    use crate::staging::StagedCase;
    use crate::staging::kernel::BEGAN_S;

    fn hours(stage: &StagedCase) -> Vec<f64> {
        let scene = Scene::new(&stage.case);
        shifted(scene.kernel(), scene.roster(), scene.failure()).iter().map(|s| s.hours).collect()
    }

    /// Rank 1 dies of SIGKILL ten minutes after the job began.
    fn killed() -> StagedCase {
        let exit = TorchEvent::ChildExit { exit_code: -9, is_first: false };
        let stage = StagedCase::new().two_ranks().torch(Some(1), exit, "failed (exitcode: -9)");
        stage.at_s(BEGAN_S + 600).failed(1, -9, true)
    }

    #[test]
    fn a_log_eight_hours_behind() {
        let stage = killed().oom(77_123, "pt_main_thread").at_s(BEGAN_S + 598 - 8 * 3_600);
        assert_eq!(hours(&stage), [-8.0]);
        let stage = killed().xid("0000:3b:00", 79, 0, "x").at_s(BEGAN_S + 595 + 19_800);
        assert_eq!(hours(&stage), [5.5]);
    }

    #[test]
    fn other_times_gpus_and_programs() {
        assert!(hours(&killed().oom(5, "python3").at_s(BEGAN_S + 598 - 8 * 3_600 - 400)).is_empty());
        assert!(hours(&killed().oom(5, "mysqld").at_s(BEGAN_S + 598 - 8 * 3_600)).is_empty());
        assert!(hours(&killed().xid("0000:99:00", 79, 0, "x").at_s(BEGAN_S + 598 - 3_600)).is_empty());
        assert!(hours(&killed().xid("0000:3b:00", 63, 0, "x").at_s(BEGAN_S + 598 - 3_600)).is_empty());
        // Last week, and the moment itself.
        assert!(hours(&killed().oom(5, "python3").at_s(BEGAN_S + 598 - 7 * 86_400)).is_empty());
        assert!(hours(&killed().oom(5, "python3").at_s(BEGAN_S + 598)).is_empty());
    }
}
