//! `nvidia-smi -q`, whole or with `-d`, of drivers 4xx to 6xx.
//!
//! ```text
//! Attached GPUs                                          : 4
//! GPU 00000000:00:06.0
//!     Product Name                                       : NVIDIA H200
//!     Clocks Event Reasons
//!         HW Slowdown                                    : Not Active
//!             HW Thermal Slowdown                        : Not Active
//! ```
//! A level is four blanks; a name without a value opens one. Names differ between drivers: see `field`.

use ringleader_model::{GpuRow, GpuTable, PciAddress, Pid};

use super::{MAX_GPUS, MAX_ROWS, field};

/// The names that enclose the next line, each with its indentation.
#[derive(Default)]
pub(super) struct Query {
    levels: Vec<(usize, String)>,
}

/// Levels that are kept.
const MAX_DEPTH: usize = 12;

/// The address of `GPU 00000000:00:06.0`.
pub(super) fn gpu_heading(text: &str) -> Option<PciAddress> {
    let address = text.strip_prefix("GPU ")?.trim_ascii_end();
    address.contains(':').then(|| PciAddress::parse(address))?
}

/// Whether a command prints the sections of a query as they are: of several GPUs `grep` leaves lines that nothing tells apart.
pub(super) fn is_asked(command: &str) -> bool {
    let mut words = command.split_ascii_whitespace().skip_while(|word| !word.ends_with("nvidia-smi"));
    words.next().is_some()
        && command.split_ascii_whitespace().any(|word| matches!(word, "-q" | "--query"))
        && !command.contains('|')
}

/// Whether a line is one of a GPU's section, at its first level.
pub(super) fn is_section(text: &str) -> bool {
    let name = text.strip_prefix("    ").unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_uppercase()) && (name.contains(" : ") || !name.contains(':'))
}

impl Query {
    pub(super) fn line(&mut self, table: &mut GpuTable, text: &str, line: u32) -> bool {
        if let Some(pci) = gpu_heading(text) {
            self.levels.clear();
            if table.gpus.len() < MAX_GPUS {
                table.gpus.push(GpuRow { line, pci: Some(pci), ..GpuRow::default() });
            }
            return true;
        }
        let indent = text.len() - text.trim_ascii_start().len();
        let (name, value) = match text.split_once(" : ") {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (text.trim().trim_end_matches(':').trim_end(), None),
        };
        if name.is_empty() || name.len() > 80 {
            return false;
        }
        if indent == 0 {
            return heading(table, name, value);
        }
        if !indent.is_multiple_of(4) || table.gpus.is_empty() {
            return false;
        }
        while self.levels.last().is_some_and(|(i, _)| *i >= indent) {
            self.levels.pop();
        }
        if self.levels.len() >= MAX_DEPTH {
            return true;
        }
        let mut path = String::new();
        for (_, level) in &self.levels {
            path.push_str(level);
            path.push('.');
        }
        let name = field::plain(name);
        path.push_str(&name);
        if let Some(value) = value {
            let at = table.gpus.len() as u32 - 1;
            if path.starts_with("processes.") && name == "process_id" {
                if let (Ok(pid), true) = (value.parse(), table.processes.len() < MAX_ROWS) {
                    table.processes.push((at, Pid(pid)));
                }
            } else if let Some(gpu) = table.gpus.last_mut() {
                field::set(gpu, &path, value);
            }
        }
        self.levels.push((indent, name));
        true
    }
}

/// Lines above the GPUs.
fn heading(table: &mut GpuTable, name: &str, value: Option<&str>) -> bool {
    let Some(value) = value else { return name.contains("NVSMI LOG") };
    match name {
        "Timestamp" => table.at = crate::ground::clock::ctime(value).or(table.at),
        "Driver Version" => table.driver_version = Some(value.into()),
        "CUDA Version" => table.cuda_version = (value != "N/A" && value != "Not Found").then(|| value.into()),
        "Attached GPUs" => table.attached = value.parse().ok(),
        "HIC" | "System Uptime" => {}
        _ => return false,
    }
    true
}
