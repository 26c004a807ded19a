//! nvidia-smi's default table, of drivers 3xx to 6xx.
//!
//! ```text
//! | NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
//! |   2  NVIDIA H200                    On  |   00000000:00:08.0 Off |                    0 |
//! | N/A   37C    P0            121W /  700W |    1699MiB / 143771MiB |    100%      Default |
//! |    2   N/A  N/A            1347      C   /opt/train/.venv/bin/python3           1690MiB |
//! ```
//! Widths differ between drivers, cells do not. `N/A` and `ERR!` may replace any number. Older tables have no `GI` and
//! `CI` columns; rows of MIG instances have no PCI address and are passed over.

use ringleader_model::{GpuRow, GpuTable, PciAddress, Pid};

use super::{MAX_GPUS, MAX_ROWS};

/// A table that is being read.
#[derive(Default)]
pub(super) struct SmiTable {
    /// The next row belongs to the last GPU.
    in_gpu: bool,
    in_processes: bool,
    /// The last line was a rule between rows.
    is_ruled: bool,
}

/// Driver and CUDA version.
type Versions = (Option<Box<str>>, Option<Box<str>>);

/// The versions of the table's first row; None if this is none.
pub(super) fn versions(text: &str) -> Option<Versions> {
    let rest = text.trim_ascii().strip_prefix("| NVIDIA-SMI ")?;
    // `Driver Version:` of a table may be `KMD Version:` on newer drivers.
    let after = |labels: [&str; 2]| {
        let rest = labels.iter().find_map(|label| rest.split_once(label))?.1;
        let version = rest.split_ascii_whitespace().next()?;
        (version != "N/A" && version != "ERR!").then(|| version.into())
    };
    Some((after(["Driver Version:", "KMD Version:"]), after(["CUDA Version:", "CUDA UMD Version:"])))
}

impl SmiTable {
    /// Whether the list of processes, which comes last, has begun, or at least the row of a GPU is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.in_processes || self.is_ruled
    }

    pub(super) fn line(&mut self, table: &mut GpuTable, text: &str, line: u32) -> bool {
        let body = text.trim_ascii();
        if !body.starts_with(['|', '+']) || body.starts_with("| NVIDIA-SMI ") {
            return false;
        }
        self.is_ruled = body.starts_with('+');
        if let Some(cells) = body.strip_prefix('|').and_then(|b| b.strip_suffix('|')) {
            self.row(table, cells, line);
        }
        true
    }

    fn row(&mut self, table: &mut GpuTable, cells: &str, line: u32) {
        if self.in_processes {
            process(table, cells);
            return;
        }
        let mut parts = cells.split('|');
        let (Some(left), middle, right) = (parts.next(), parts.next(), parts.next()) else { return };
        let Some(middle) = middle else {
            self.in_processes |= left.trim_start().starts_with("Processes:");
            return;
        };
        let right = right.unwrap_or_default();
        let pci = middle.split_ascii_whitespace().next().filter(|w| w.contains(':'));
        let index = left.split_ascii_whitespace().next().and_then(|w| w.parse().ok());
        if let (Some(index), Some(pci)) = (index, pci) {
            if table.gpus.len() >= MAX_GPUS {
                return;
            }
            table.gpus.push(GpuRow {
                line,
                index: Some(index),
                pci: PciAddress::parse(pci),
                uncorrected_errors: right.split_ascii_whitespace().next().and_then(|w| w.parse().ok()),
                has_error: cells.contains("ERR!"),
                name: name(left),
                ..GpuRow::default()
            });
            self.in_gpu = true;
        } else if std::mem::take(&mut self.in_gpu)
            && let Some(gpu) = table.gpus.last_mut()
        {
            let number = |cell: &str, unit: &str| {
                let word = cell
                    .split_ascii_whitespace()
                    .find(|w| w.ends_with(unit) && w.starts_with(|c: char| c.is_ascii_digit()));
                word.and_then(|w| w.strip_suffix(unit)?.parse::<f32>().ok())
            };
            let (draw, limit) = left.rsplit_once('/').unwrap_or((left, ""));
            let (used, total) = middle.split_once('/').unwrap_or((middle, ""));
            gpu.temperature_c = number(left, "C");
            gpu.power_w = number(draw, "W");
            gpu.power_limit_w = number(limit, "W");
            gpu.memory_used_mib = number(used, "MiB").map(|m| m as u64);
            gpu.memory_total_mib = number(total, "MiB").map(|m| m as u64);
            gpu.utilization_pct = number(right, "%");
            gpu.performance_state =
                left.split_ascii_whitespace().find_map(|w| w.strip_prefix('P')?.parse().ok());
            gpu.has_error |= cells.contains("ERR!");
        }
    }
}

/// `NVIDIA H200` of `   2  NVIDIA H200                    On  `; cut names end in dots and stay so.
fn name(left: &str) -> Option<Box<str>> {
    let words: Vec<&str> = left.split_ascii_whitespace().skip(1).collect();
    let (_, name) = words.split_last()?;
    (!name.is_empty() && !name.contains(&"ERR!")).then(|| name.join(" ").into())
}

/// `0   N/A  N/A   1345   C   python3   1690MiB`, or without the two columns of MIG.
fn process(table: &mut GpuTable, cells: &str) {
    let words: Vec<&str> = cells.split_ascii_whitespace().take(6).collect();
    let type_at = words.iter().position(|w| matches!(*w, "C" | "G" | "C+G" | "M" | "M+C" | "M+C+G"));
    let pid = type_at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok());
    if let (Some(Ok(gpu)), Some(pid), true) = (words.first().map(|w| w.parse()), pid, type_at > Some(1))
        && table.processes.len() < MAX_ROWS
    {
        table.processes.push((gpu, Pid(pid)));
    }
}
