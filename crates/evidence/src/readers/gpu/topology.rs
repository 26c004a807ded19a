//! `nvidia-smi topo -m` and `topo -p2p r`.
//!
//! ```text
//!         GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
//! GPU0     X      NV18    PXB     0-31    0               N/A
//! GPU1    NV18     X      SYS     0-31    0               N/A
//! ```
//! The heading is underlined on a terminal and in files alike (`ESC [4m`). Tabs may have become blanks on the way.

use ringleader_model::{GpuPath, GpuTable};

use super::MAX_ROWS;

/// A matrix that is being read: what its columns are.
pub(super) struct Topology {
    /// Index of the GPU of each column; None for a network card.
    columns: Vec<Option<u32>>,
}

/// Devices of one machine.
const MAX_DEVICES: usize = 512;

fn is_device(word: &str) -> bool {
    gpu(word).is_some()
        || word.starts_with("NIC")
        || word.starts_with("mlx")
        || word.starts_with("bnxt")
        || word.starts_with("rdmap")
}

fn gpu(word: &str) -> Option<u32> {
    word.strip_prefix("GPU")?.parse().ok()
}

/// Without the escapes that underline it.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| c.is_ascii_whitespace())
        .filter(|w| !w.is_empty())
        .map(|w| {
            let w = w.strip_prefix("\u{1b}[4m").unwrap_or(w);
            w.strip_suffix("\u{1b}[0m").unwrap_or(w)
        })
        .filter(|w| !w.is_empty())
}

impl Topology {
    /// If the line is a heading.
    pub(super) fn begin(text: &str) -> Option<Self> {
        let begins = text.trim_start().trim_start_matches("\u{1b}[4m");
        if !begins.starts_with("GPU") {
            return None;
        }
        let columns: Vec<Option<u32>> =
            words(text).take_while(|w| is_device(w)).take(MAX_DEVICES).map(gpu).collect();
        let rest = words(text).nth(columns.len());
        // A row has paths behind its name.
        let fits =
            columns.first() == Some(&Some(0)) && matches!(rest, None | Some("CPU" | "NUMA" | "mlx5_0"));
        let is_heading =
            text.starts_with(char::is_whitespace) || text.starts_with('\u{1b}') || columns.len() > 1;
        (fits && is_heading).then_some(Self { columns })
    }

    pub(super) fn line(&mut self, table: &mut GpuTable, text: &str, line: u32) -> bool {
        let mut words = words(text);
        let Some(name) = words.next() else { return false };
        if !is_device(name) {
            return name == "Legend:" || text.starts_with("  ");
        }
        let Some(from) = gpu(name) else { return true };
        let mut n = 0;
        for (column, kind) in self.columns.iter().zip(words) {
            n += 1;
            if let (Some(to), true) = (*column, table.paths.len() < MAX_ROWS)
                && kind != "X"
                && is_path(kind)
            {
                table.paths.push(GpuPath { line, from, to, kind: kind.into() });
            }
        }
        n == self.columns.len()
    }
}

fn is_path(kind: &str) -> bool {
    matches!(
        kind,
        "PIX" | "PXB" | "PHB" | "NODE" | "SYS" | "SOC" | "PSB" | "OK" | "CNS" | "GNS" | "TNS" | "NS" | "U"
    ) || kind.strip_prefix("NV").is_some_and(|n| n.bytes().all(|b| b.is_ascii_digit()))
}
