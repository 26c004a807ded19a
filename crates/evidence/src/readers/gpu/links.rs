//! `nvidia-smi -L` and `nvidia-smi nvlink` with `-s` (state and speed), `-e` (errors), `-R` (remote ends), `-c`.
//!
//! ```text
//! GPU 0: NVIDIA H200 (UUID: GPU-fc51bf99-dcae-36ea-0335-328363b23d48)
//!          Link 0: 26.562 GB/s
//!          Link 1: <inactive>
//!          Link 0: Replay Errors: 0
//!          Link 0: Remote Device 00000000:86:00.0: Link 34
//! ```
//! NVLink 5 prints packet counts, error rates and FEC bins too; of those only error counts above zero are kept.

use ringleader_model::{GpuForm, GpuRow, GpuTable, NvLink};

use super::MAX_GPUS;

/// An output that is being read; all its state is in the GPUs read so far.
pub(super) struct Links;

/// Links of one GPU.
const MAX_LINKS: usize = 256;
/// Counters of a link beside those with a place of their own.
const MAX_OTHERS: usize = 32;

/// Index, name and UUID of `GPU 0: NVIDIA H200 (UUID: GPU-…)`.
pub(super) fn heading(text: &str) -> Option<(u32, &str, &str)> {
    let (index, rest) = text.strip_prefix("GPU ")?.split_once(": ")?;
    let (name, uuid) = rest.trim_ascii_end().strip_suffix(')')?.rsplit_once(" (UUID: ")?;
    Some((index.parse().ok()?, name, uuid))
}

impl Links {
    pub(super) fn line(table: &mut GpuTable, text: &str, line: u32) -> bool {
        if let Some((index, name, uuid)) = heading(text) {
            // Another command's output begins where a GPU is repeated.
            if table.gpus.iter().any(|g| g.index == Some(index)) {
                return again(table, index);
            }
            if table.gpus.len() < MAX_GPUS {
                let (name, uuid) = (Some(name.into()), Some(uuid.into()));
                table.gpus.push(GpuRow { line, index: Some(index), name, uuid, ..GpuRow::default() });
            }
            return true;
        }
        let text = text.trim();
        // A GPU's MIG instances.
        if text.starts_with("MIG ") && text.contains("(UUID: MIG-") {
            return true;
        }
        if text.starts_with("Unable to retrieve NVLink information as all links are in") {
            table.form = GpuForm::NvLink;
            return true;
        }
        let Some(rest) = text.strip_prefix("Link ") else { return false };
        let digits = rest.len() - rest.trim_start_matches(|c: char| c.is_ascii_digit()).len();
        let Some((number, said)) = rest.split_at_checked(digits) else { return false };
        let (Ok(number), Some(gpu)) = (number.parse(), table.gpus.last_mut()) else { return false };
        table.form = GpuForm::NvLink;
        // `Link 0, P2P is supported: true`: what the hardware can, not what it does.
        let Some(said) = said.strip_prefix(": ") else { return said.starts_with(", ") };
        let at = gpu.links.iter().position(|l| l.number == number);
        if at.is_none() && gpu.links.len() < MAX_LINKS {
            gpu.links.push(NvLink { line, number, ..NvLink::default() });
        }
        let link = match at {
            Some(at) => gpu.links.get_mut(at),
            None => gpu.links.last_mut().filter(|l| l.number == number),
        };
        if let Some(link) = link {
            say(link, said);
        }
        true
    }
}

/// The GPU is repeated: `-s` and `-e` in one file, whose links are the same.
fn again(table: &mut GpuTable, index: u32) -> bool {
    let Some(at) = table.gpus.iter().position(|g| g.index == Some(index)) else { return false };
    let gpu = table.gpus.remove(at);
    table.gpus.push(gpu);
    true
}

/// What is said of one link.
fn say(link: &mut NvLink, said: &str) {
    let said = said.trim();
    if let Some(speed) = said.strip_suffix(" GB/s") {
        link.speed_gb_s = speed.trim().parse().ok().filter(|s: &f32| s.is_finite());
        link.active = Some(link.speed_gb_s.is_some_and(|s| s > 0.0));
        return;
    }
    if said.starts_with("<inactive>") || said.eq_ignore_ascii_case("inactive") {
        link.active = Some(false);
        return;
    }
    let Some((name, value)) = said.rsplit_once(':') else { return };
    let Ok(n) = value.trim().parse::<u64>() else { return };
    let name = name.trim();
    match name {
        "Replay Errors" => link.replays = Some(n),
        "Recovery Errors" | "Total link recovery events" => link.recoveries = Some(n),
        "CRC Errors" | "CRC FLIT Errors" => link.crc_errors = Some(n),
        "Link recovery failed events" | "Link Recovery Failed" => link.failed_recoveries = Some(n),
        _ if n > 0
            && link.others.len() < MAX_OTHERS
            && (name.contains("rror") || name.contains("discard") || name.contains("integrity"))
            && !name.starts_with("FEC") =>
        {
            link.others.push((name.into(), n));
        }
        _ => {}
    }
}
