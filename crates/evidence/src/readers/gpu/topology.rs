//! `nvidia-smi topo -m` and `topo -p2p r`.
//!
//! ```text
//!         GPU0    GPU1    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
//! GPU0     X      NV18    PXB     0-31    0               N/A
//! GPU1    NV18     X      SYS     0-31    0               N/A
//! ```
//! The heading is underlined on a terminal and in files alike (`ESC [4m`). Tabs may have become blanks on the way.

use ringleader_model::{CardPath, GpuPath, GpuTable};

use super::MAX_ROWS;

/// A matrix that is being read: what its columns are.
pub(super) struct Topology {
    columns: Vec<MatrixColumn>,
}

#[derive(Clone, Debug)]
enum MatrixColumn {
    Gpu(u32),
    /// A network card, by the name of its column.
    Card(Box<str>),
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
        let column =
            |word: &str| gpu(word).map_or_else(|| MatrixColumn::Card(word.into()), MatrixColumn::Gpu);
        let columns: Vec<MatrixColumn> =
            words(text).take_while(|w| is_device(w)).take(MAX_DEVICES).map(column).collect();
        let rest = words(text).nth(columns.len());
        // A row has paths behind its name.
        let fits = matches!(columns.first(), Some(MatrixColumn::Gpu(0)))
            && matches!(rest, None | Some("CPU" | "NUMA" | "mlx5_0"));
        let is_heading =
            text.starts_with(char::is_whitespace) || text.starts_with('\u{1b}') || columns.len() > 1;
        (fits && is_heading).then_some(Self { columns })
    }

    pub(super) fn line(&mut self, table: &mut GpuTable, text: &str, line: u32) -> bool {
        let mut words = words(text);
        let Some(name) = words.next() else { return false };
        if let Some(card) = name.strip_suffix(':').filter(|card| card.starts_with("NIC")) {
            // `NIC0: mlx5_0`, below the matrix.
            if let Some(meant) = words.next() {
                for path in table.card_paths.iter_mut().filter(|path| &*path.card == card) {
                    path.card = meant.into();
                }
            }
            return true;
        }
        if !is_device(name) {
            // `NIC Legend:` begins with a word like a card.
            return name == "Legend:" || text.starts_with("  ");
        }
        let Some(from) = gpu(name) else { return true };
        let mut n = 0;
        for (column, kind) in self.columns.iter().zip(words) {
            n += 1;
            if kind == "X" || !is_path(kind) {
                continue;
            }
            match column {
                MatrixColumn::Gpu(to) if table.paths.len() < MAX_ROWS => {
                    table.paths.push(GpuPath { line, from, to: *to, kind: kind.into() });
                }
                MatrixColumn::Card(card) if table.card_paths.len() < MAX_ROWS => {
                    table.card_paths.push(CardPath {
                        line,
                        gpu: from,
                        card: card.clone(),
                        kind: kind.into(),
                    });
                }
                _ => {}
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
