//! `nvidia-smi --query-gpu=… --format=csv`, and `--query-remapped-rows`, `--query-compute-apps`.
//!
//! ```text
//! index, pci.bus_id, ecc.errors.uncorrected.volatile.total, power.draw [W], clocks_event_reasons.active
//! 0, 00000000:00:06.0, 0, 77.03 W, 0x0000000000000001
//! ```
//! With `nounits` the units of the values are gone, those of the heading stay. With `noheader` the command above the rows
//! names the columns. Without it, only the values themselves do: the address, the UUID, and a draw in watts, are taken; a
//! plain number might be anything.

use ringleader_model::{GpuRow, GpuTable, PciAddress, Pid};

use super::{MAX_GPUS, MAX_ROWS, field};

/// What the columns are.
pub(super) struct Csv {
    /// Empty without a heading.
    columns: Vec<String>,
    /// Columns of the output.
    n_columns: usize,
}

/// Columns that a heading may begin with, of those people ask for; any later one may be unknown.
const KNOWN: [&str; 24] = [
    "index",
    "uuid",
    "gpu_uuid",
    "pci.",
    "gpu_bus_id",
    "name",
    "gpu_name",
    "timestamp",
    "driver_version",
    "count",
    "power.",
    "temperature.",
    "clocks.",
    "clocks_event_reasons",
    "clocks_throttle_reasons",
    "utilization.",
    "memory.",
    "ecc.",
    "pcie.link.",
    "pstate",
    "remapped_rows.",
    "retired_pages.",
    "fabric.",
    "enforced.power.",
];

/// Names that are no words of other tools' tables.
fn is_certain(column: &str) -> bool {
    column == "uuid"
        || column == "gpu_uuid"
        || column == "gpu_bus_id"
        || column == "driver_version"
        || (column.contains('.') && KNOWN.iter().any(|k| k.ends_with('.') && column.starts_with(k)))
        || column.starts_with("clocks_event_reasons")
        || column.starts_with("clocks_throttle_reasons")
        || column == "used_gpu_memory"
}

/// The columns that a command without a heading asks for.
pub(super) fn asked(text: &str) -> Option<Vec<String>> {
    let (_, options) = text.split_once("nvidia-smi")?;
    let list = ["--query-gpu=", "--query-compute-apps=", "--query-remapped-rows="]
        .iter()
        .find_map(|name| Some(options.split_once(name)?.1))?;
    let list = list.split(char::is_whitespace).next()?.trim_matches(['"', '\'']);
    let columns: Vec<String> = list.split(',').map(str::to_owned).collect();
    (options.contains("noheader") && columns.len() > 1 && columns.len() <= 200).then_some(columns)
}

impl Csv {
    /// An output without a heading, by the columns of its command, if `text` may be its first row.
    pub(super) fn below(columns: &[String], text: &str) -> Option<Self> {
        (text.split(',').count() == columns.len())
            .then(|| Self { columns: columns.to_vec(), n_columns: columns.len() })
    }

    /// If the line is a heading, or a row of an output without one.
    pub(super) fn begin(text: &str) -> Option<Self> {
        let text = text.trim();
        let is_name = |c: &str| {
            !c.is_empty()
                && c.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'.'))
        };
        if text.starts_with(|c: char| c.is_ascii_lowercase()) {
            let begins = KNOWN.iter().any(|k| text.starts_with(k))
                || text.starts_with("pid,")
                || text.starts_with("process_name,");
            if !begins {
                return None;
            }
            let columns: Vec<String> = text
                .split(',')
                .map(|c| c.split_once('[').map_or(c, |(name, _)| name).trim().to_owned())
                .collect();
            let fits = columns.iter().all(|c| is_name(c)) && columns.iter().any(|c| is_certain(c));
            return (fits && columns.len() <= 200).then_some(Self { n_columns: columns.len(), columns });
        }
        // Most lines end here.
        memchr::memchr(b',', text.as_bytes())?;
        let values: Vec<&str> = text.split(',').map(str::trim).collect();
        // Digits and colons alone may be a time of day: an address has its domain here.
        let names_gpu = |v: &&str| is_uuid(v) || v.len() == 16 && PciAddress::parse(v).is_some();
        (values.len() > 1 && values.len() <= 200 && values.iter().any(names_gpu))
            .then(|| Self { columns: Vec::new(), n_columns: values.len() })
    }

    /// The line that opened it is a row.
    pub(super) fn is_data(&self) -> bool {
        self.columns.is_empty()
    }

    pub(super) fn line(&mut self, table: &mut GpuTable, text: &str, line: u32) -> bool {
        let values: Vec<&str> = text.split(',').map(str::trim).collect();
        if values.len() != self.n_columns || text.starts_with(char::is_whitespace) {
            return false;
        }
        if self
            .columns
            .first()
            .is_some_and(|c| values.first().is_some_and(|v| v.split(' ').next() == Some(c)))
        {
            // The heading again, of a loop with `-l`.
            return self.columns.len() > 1;
        }
        let mut row = GpuRow { line, ..GpuRow::default() };
        let mut pid = None;
        let mut n_read = 0;
        if self.columns.is_empty() {
            n_read = bare(&mut row, &values);
        }
        for (column, value) in self.columns.iter().zip(&values) {
            match column.as_str() {
                "pid" => pid = value.parse().ok().map(Pid),
                "driver_version" => table.driver_version = Some((*value).into()),
                "timestamp" => table.at = table.at.or_else(|| stamp(value)),
                "count" => table.attached = value.parse().ok(),
                _ if column.starts_with("ecc.errors.") => {
                    n_read += u32::from(field::csv_ecc(&mut row, column, value));
                }
                _ => n_read += u32::from(field::set(&mut row, column, value)),
            }
        }
        if let Some(pid) = pid {
            // A list of processes: its GPUs are known by address or UUID alone.
            if let (Some(index), true) = (row.index, table.processes.len() < MAX_ROWS) {
                table.processes.push((index, pid));
            }
            return true;
        }
        if n_read == 0 && !values.iter().any(|v| v.contains("N/A") || v.contains("Not Supported")) {
            return false;
        }
        // A loop prints every GPU again: the last row of each stands.
        let key = (row.pci, row.uuid.is_none(), row.index);
        let same = |g: &GpuRow| match key {
            (Some(_), _, _) => g.pci == key.0,
            (None, true, Some(_)) => g.index == key.2,
            _ => false,
        };
        let has_room = table.gpus.len() < MAX_GPUS;
        let known = table.gpus.iter().position(same);
        match known.and_then(|at| table.gpus.get_mut(at)) {
            Some(known) => {
                // What went wrong once stays told.
                row.has_error |= known.has_error;
                *known = row;
            }
            None if has_room => table.gpus.push(row),
            None => {}
        }
        true
    }
}

fn is_uuid(value: &str) -> bool {
    value
        .strip_prefix("GPU-")
        .is_some_and(|rest| rest.len() == 36 && rest.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-'))
}

/// A row without a heading. Returns how many values were understood.
fn bare(row: &mut GpuRow, values: &[&str]) -> u32 {
    let mut n_read = 0;
    for value in values {
        if is_uuid(value) {
            row.uuid = Some((*value).into());
        } else if value.len() == 16 && value.contains(':') {
            row.pci = PciAddress::parse(value).or(row.pci);
        } else if field::is_error(value) {
            row.has_error = true;
        } else if let (true, None) = (value.ends_with(" W"), row.power_w) {
            row.power_w = field::first_number(value);
        } else if let (true, None) = (value.ends_with(" %"), row.utilization_pct) {
            row.utilization_pct = field::first_number(value);
        } else {
            continue;
        }
        n_read += 1;
    }
    n_read
}

/// `2026/11/20 08:16:31.123`.
fn stamp(value: &str) -> Option<ringleader_model::WallTime> {
    let value = value.replace('/', "-");
    crate::ground::stamp::date_time(value.as_bytes(), b' ').map(|(at, _)| at)
}
