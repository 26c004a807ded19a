//! nvidia-smi's default table, of drivers 3xx to 5xx. Written by NVIDIA's closed tool; its layout is all there is.
//!
//! ```text
//! | NVIDIA-SMI 580.159.04             Driver Version: 580.159.04     CUDA Version: 13.0     |
//! |   2  NVIDIA H200                    On  |   00000000:00:08.0 Off |                    0 |
//! | N/A   37C    P0            121W /  700W |    1699MiB / 143771MiB |    100%      Default |
//! |    2   N/A  N/A            1347      C   /opt/train/.venv/bin/python3           1690MiB |
//! ```
//! Widths differ between drivers, cells do not. `N/A` and `ERR!` may stand for any number. Older tables have no `GI` and
//! `CI` columns; rows of MIG instances have no PCI address and are passed over.

use ringleader_model::{Fact, GpuRow, GpuTable, PciAddress, Pid, SourceKind};

use super::{Span, TableReader};
use crate::sink::Sink;
use crate::text::Line;

/// A table that is being read.
pub(super) struct Table {
    fact: GpuTable,
    span: Span,
    /// The next row belongs to the last GPU.
    in_gpu: bool,
    in_processes: bool,
}

impl Table {
    fn begin(line: &Line<'_>, sink: &Sink<'_>) -> Self {
        Self { fact: GpuTable::default(), span: Span::begin(line, sink), in_gpu: false, in_processes: false }
    }
}

/// What the tool prints in place of a table, or of one GPU.
const FAILURES: [&str; 5] = [
    "NVIDIA-SMI has failed because",
    "Unable to determine the device handle for",
    "Failed to initialize NVML",
    "No devices were found",
    "GPU is lost",
];

/// Lines after its last row within which a table goes on.
const MAX_GAP_LINES: u32 = 8;

impl TableReader {
    pub(super) fn gpu_line(&mut self, line: &Line<'_>, first: u8, sink: &mut Sink<'_>) -> bool {
        if matches!(first, b'M' | b'T' | b'W' | b'F' | b'S') && line.body.len() < 64 {
            let at = std::str::from_utf8(line.body).ok().and_then(crate::clock::ctime);
            self.date = at.map(|at| (line.number, at)).or(self.date);
        }
        if self.gpu.as_ref().is_some_and(|g| line.number > g.span.last_line.saturating_add(MAX_GAP_LINES)) {
            self.close_gpu(sink);
        }
        if matches!(first, b'N' | b'U' | b'F' | b'G') {
            return self.failure(line, sink);
        }
        if first != b'|' && first != b'+' {
            return false;
        }
        let Ok(body) = std::str::from_utf8(line.body.trim_ascii()) else { return false };
        if let Some(rest) = body.strip_prefix("| NVIDIA-SMI ") {
            self.close_gpu(sink);
            let mut table = Table::begin(line, sink);
            let after = |label: &str| {
                let version = rest.split_once(label)?.1.split_ascii_whitespace().next()?;
                (version != "N/A" && version != "ERR!").then(|| version.into())
            };
            table.fact.driver_version = after("Driver Version:");
            table.fact.cuda_version = after("CUDA Version:");
            table.fact.at = self
                .date
                .filter(|(n, _)| line.number <= n.saturating_add(3))
                .map(|(_, at)| at)
                .or(line.tag.at);
            table.span.at = table.fact.at;
            self.gpu = Some(table);
            return true;
        }
        let Some(table) = &mut self.gpu else { return false };
        table.span.add(line, sink);
        if let Some(cells) = body.strip_prefix('|').and_then(|b| b.strip_suffix('|')) {
            table.row(cells, line.number);
        }
        true
    }

    fn failure(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if !FAILURES.iter().any(|f| line.body.trim_ascii_start().starts_with(f.as_bytes())) {
            return false;
        }
        let text = crate::sink::bounded_text(line.body, 300).into_boxed_str();
        let table = self.gpu.get_or_insert_with(|| Table::begin(line, sink));
        if table.fact.failures.len() < 1_000 {
            table.fact.failures.push((line.number, text));
        }
        table.span.last_line = line.number;
        true
    }

    pub(super) fn close_gpu(&mut self, sink: &mut Sink<'_>) {
        if let Some(Table { fact, span, .. }) = self.gpu.take() {
            span.push(SourceKind::NvidiaSmi, Fact::Gpus(fact.into()), sink);
        }
    }
}

impl Table {
    fn row(&mut self, cells: &str, line: u32) {
        if self.in_processes {
            self.process(cells);
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
            self.fact.gpus.push(GpuRow {
                line,
                index,
                pci: PciAddress::parse(pci),
                uncorrected_errors: right.split_ascii_whitespace().next().and_then(|w| w.parse().ok()),
                has_error: cells.contains("ERR!"),
                ..GpuRow::default()
            });
            self.in_gpu = true;
        } else if std::mem::take(&mut self.in_gpu)
            && let Some(gpu) = self.fact.gpus.last_mut()
        {
            let number = |cell: &str, unit: &str| {
                let word = cell
                    .split_ascii_whitespace()
                    .find(|w| w.ends_with(unit) && w.starts_with(|c: char| c.is_ascii_digit()));
                word.and_then(|w| w.strip_suffix(unit)?.parse::<f32>().ok())
            };
            let (draw, _) = left.rsplit_once('/').unwrap_or((left, ""));
            let (used, total) = middle.split_once('/').unwrap_or((middle, ""));
            gpu.temperature_c = number(left, "C");
            gpu.power_w = number(draw, "W");
            gpu.memory_used_mib = number(used, "MiB").map(|m| m as u64);
            gpu.memory_total_mib = number(total, "MiB").map(|m| m as u64);
            gpu.utilization_pct = number(right, "%");
            gpu.has_error |= cells.contains("ERR!");
        }
    }

    /// `0   N/A  N/A   1345   C   python3   1690MiB`, or without the two columns of MIG.
    fn process(&mut self, cells: &str) {
        let words: Vec<&str> = cells.split_ascii_whitespace().take(6).collect();
        let type_at = words.iter().position(|w| matches!(*w, "C" | "G" | "C+G" | "M" | "M+C" | "M+C+G"));
        let pid = type_at.and_then(|at| words.get(at.checked_sub(1)?)?.parse().ok());
        if let (Some(Ok(gpu)), Some(pid), true) = (words.first().map(|w| w.parse()), pid, type_at > Some(1))
            && self.fact.processes.len() < 100_000
        {
            self.fact.processes.push((gpu, Pid(pid)));
        }
    }
}
