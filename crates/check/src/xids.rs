//! Xids and SXids of the kernel log, judged by the tables: whether they affect the job or the node.

use std::collections::BTreeMap;

use ringleader_knowledge::remedy::{Exclude, Kills, Move};
use ringleader_knowledge::{sxid, xid};
use ringleader_model::{KernelEventKind, PciAddress, Sxid, Xid};
use ringleader_node::{GPU_IS_LOST, Gpu, RESET_REQUIRED};

use crate::gpus;
use crate::view::{KernelLine, NodeView};

/// Without a known job, older events belong to an earlier one.
pub(crate) const HOUR_NS: i64 = 3_600_000_000_000;

/// All events with one code on one device.
#[derive(Clone, Debug)]
pub(crate) struct DeviceErrors<'a> {
    /// `GPU 3 (0000:5d:00.0)`, `NVSwitch 0000:05:00.0`.
    pub(crate) subject: String,
    /// `Xid 79`.
    pub(crate) code: String,
    /// Short name from the table; empty for an unknown code.
    pub(crate) name: &'static str,
    /// The recommended action.
    pub(crate) action: Option<Move>,
    /// Whether a job on the device ends.
    pub(crate) kills: Kills,
    /// Whether the node must be excluded, until a reset or for good.
    pub(crate) excludes: bool,
    /// Lines, oldest first.
    pub(crate) lines: Vec<&'a KernelLine<'a>>,
    /// Whether the GPU answers again and the driver requests no action.
    pub(crate) is_over: bool,
}

/// Time of an event relative to the job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum When {
    /// Since the job began.
    InJob,
    /// No job is known: within the last hour.
    LastHour,
    /// Before that.
    Earlier,
}

impl DeviceErrors<'_> {
    /// Time of the last event.
    pub(crate) fn when(&self, view: &NodeView<'_>) -> When {
        let knows_job = view.options.since_ns.is_some() || view.ranks().next().is_some();
        let Some(last) = self.lines.last() else { return When::Earlier };
        match (knows_job, last.is_recent) {
            (true, true) => When::InJob,
            (false, true) if view.node.at_ns - last.at_ns <= HOUR_NS => When::LastHour,
            _ => When::Earlier,
        }
    }

    /// `Xid 79 (GPU has fallen off the bus), 3 times`.
    pub(crate) fn text(&self) -> String {
        let name = if self.name.is_empty() { String::new() } else { format!(" ({})", self.name) };
        let times =
            if self.lines.len() > 1 { format!(", {} times", self.lines.len()) } else { String::new() };
        format!("{}{name}{times}", self.code)
    }

    /// The last line, cut.
    pub(crate) fn evidence(&self) -> String {
        let text = self.lines.last().map_or("", |line| line.text);
        format!("kernel log: {}", text.chars().take(200).collect::<String>())
    }
}

/// All codes of the kernel log, in the order of their first events.
pub(crate) fn cases<'a>(view: &'a NodeView<'a>, lines: &'a [KernelLine<'a>]) -> Vec<DeviceErrors<'a>> {
    let mut order: Vec<(bool, u32, Option<PciAddress>)> = Vec::new();
    let mut groups: BTreeMap<(bool, u32, Option<PciAddress>), Vec<&KernelLine<'_>>> = BTreeMap::new();
    for line in lines {
        let key = match &line.event.kind {
            KernelEventKind::Xid(xid) => (false, u32::from(xid.code), line.event.device),
            KernelEventKind::Sxid(sxid) => (true, sxid.code, line.event.device),
            _ => continue,
        };
        let group = groups.entry(key).or_default();
        if group.is_empty() {
            order.push(key);
        }
        group.push(line);
    }
    order.into_iter().filter_map(|key| case(view, key, groups.remove(&key)?)).collect()
}

fn case<'a>(
    view: &NodeView<'_>,
    (is_switch, code, device): (bool, u32, Option<PciAddress>),
    lines: Vec<&'a KernelLine<'a>>,
) -> Option<DeviceErrors<'a>> {
    let address = device.map(|device| device.to_string()).unwrap_or_default();
    let gpu =
        view.node.gpus.get().and_then(|gpus| gpus.gpus.iter().find(|gpu| gpu.pci == address && !is_switch));
    let subject = match gpu {
        Some(gpu) => gpus::name(gpu),
        None if is_switch => format!("NVSwitch {address}"),
        None => format!("GPU {address}"),
    };
    if is_switch {
        let row = sxid::get(code);
        let is_fatal =
            lines.iter().any(|line| matches!(&line.event.kind, KernelEventKind::Sxid(s) if printed_fatal(s)));
        let excludes = match row.map(|row| row.exclude_node) {
            Some(Exclude::Yes | Exclude::UntilReset) => true,
            Some(Exclude::No) => false,
            Some(Exclude::IfRepeated) => is_fatal || lines.len() > 1,
            Some(Exclude::Decode) | None => is_fatal,
        };
        return Some(DeviceErrors {
            subject,
            code: format!("SXid {code}"),
            name: row.map_or("", |row| row.unit),
            action: row.map(|row| row.action),
            kills: row.map_or(if is_fatal { Kills::Yes } else { Kills::No }, |row| row.kills_job),
            excludes,
            lines,
            is_over: false,
        });
    }
    let row = xid::get(u16::try_from(code).ok()?);
    let is_program = row.is_some_and(|row| row.class == xid::Class::Application);
    let excludes = match row.map(|row| row.exclude_node) {
        Some(Exclude::Yes | Exclude::UntilReset) => true,
        Some(Exclude::No) | None => false,
        // A faulty program fails again; that says nothing about the node.
        Some(Exclude::IfRepeated) => lines.len() > 1 && !is_program,
        Some(Exclude::Decode) => {
            lines.iter().any(|line| matches!(&line.event.kind, KernelEventKind::Xid(x) if decode(x)))
        }
    };
    Some(DeviceErrors {
        subject,
        code: format!("Xid {code}"),
        name: row.map_or("", |row| row.name),
        action: row.map(|row| row.action),
        kills: row.map_or(Kills::Maybe, |row| row.kills_job),
        excludes,
        lines,
        is_over: gpu.is_some_and(is_well),
    })
}

fn printed_fatal(sxid: &Sxid) -> bool {
    sxid.fatal == Some(true)
}

/// Whether the content of a line excludes the node although the code alone does not: a row of the decode sheet
/// that requires a reset, a recovery action that blocks new work, or `Fatal`.
fn decode(xid: &Xid) -> bool {
    if let Some(action) = xid.recovery_action {
        return xid::recovery_action(action).is_none_or(|row| row.blocks_new_jobs);
    }
    let is_fatal = xid.fatal == Some(true);
    let words = (xid.unit.as_deref(), xid.registers.first(), xid.registers.get(1));
    if let (Some(unit), Some(first), Some(status)) = words
        && let Some(row) = xid::nvlink_rule(xid.code, unit, *first, *status)
    {
        let fatal = Some(row.resolution_if_fatal).filter(|resolution| is_fatal && !resolution.is_empty());
        return fatal.unwrap_or(row.resolution) == "RESET_GPU";
    }
    is_fatal
}

fn is_well(gpu: &Gpu) -> bool {
    gpu.recovery_action.as_deref() == Some("none")
        && gpu.failures.iter().all(|(_, word)| word != GPU_IS_LOST && word != RESET_REQUIRED)
}
