//! `nvidia-smi -q -x`, of drivers 4xx to 6xx (`nvsmi_device_v10.dtd` to `v13`).
//!
//! ```text
//! <gpu id="00000000:00:06.0">
//!         <remapped_rows>
//!                 <remapped_row_pending>No</remapped_row_pending>
//! ```
//! The tool writes one element a line, so that a scan of tags is enough: entities, comments and attributes other than
//! the address of a GPU do not occur in it. Read line by line it needs no memory, and a cut file gives what it holds.

use ringleader_model::{GpuRow, GpuTable, PciAddress, Pid};

use super::{MAX_GPUS, MAX_ROWS, field};

/// Elements that enclose what comes next, from the GPU down.
#[derive(Default)]
pub(super) struct Xml {
    levels: Vec<String>,
    in_gpu: bool,
    is_complete: bool,
    /// Text since the last tag.
    text: String,
}

const MAX_DEPTH: usize = 32;

impl Xml {
    /// Whether the line begins such a document, or the rest of one whose head is gone.
    pub(super) fn begin(text: &str) -> Option<Self> {
        let text = text.trim_ascii_start();
        let known = ["<nvidia_smi_log", "<!DOCTYPE nvidia_smi_log", "<gpu id=\""];
        (known.iter().any(|k| text.starts_with(k))
            || text.starts_with("<?xml") && text.contains("<nvidia_smi_log"))
        .then(Self::default)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    pub(super) fn line(&mut self, table: &mut GpuTable, text: &str, line: u32) -> bool {
        if self.is_complete {
            return false;
        }
        // Lists of one value are on a line of their own, between tags.
        if !text.contains('<') {
            return self.in_gpu && text.starts_with(['\t', ' ']);
        }
        let mut rest = text;
        self.text.clear();
        while let Some((before, tag_on)) = rest.split_once('<') {
            self.text.push_str(before.trim());
            let Some((tag, after)) = tag_on.split_once('>') else { break };
            self.tag(table, tag, line);
            rest = after;
        }
        true
    }

    fn tag(&mut self, table: &mut GpuTable, tag: &str, line: u32) {
        if let Some(name) = tag.strip_prefix('/') {
            self.end(table, name.trim());
        } else if !tag.starts_with(['?', '!']) && !tag.ends_with('/') {
            self.text.clear();
            let name = tag.split_ascii_whitespace().next().unwrap_or_default();
            if name == "gpu" && self.levels.len() < 2 {
                let id = tag.split_once("id=\"").and_then(|(_, rest)| rest.split_once('"'));
                self.levels.clear();
                self.in_gpu = true;
                if table.gpus.len() < MAX_GPUS {
                    let pci = id.and_then(|(id, _)| PciAddress::parse(id));
                    table.gpus.push(GpuRow { line, pci, ..GpuRow::default() });
                }
            } else if name != "nvidia_smi_log" && self.levels.len() < MAX_DEPTH {
                self.levels.push(name.to_ascii_lowercase());
            }
        }
    }

    fn end(&mut self, table: &mut GpuTable, name: &str) {
        let text = std::mem::take(&mut self.text);
        if name == "nvidia_smi_log" {
            self.is_complete = true;
        } else if self.in_gpu && name == "gpu" && self.levels.is_empty() {
            self.in_gpu = false;
        } else if self.in_gpu {
            // Only the innermost element holds text.
            if !text.is_empty() {
                let path = self.levels.join(".");
                if path == "processes.process_info.pid" {
                    let at = table.gpus.len() as u32;
                    if let (Ok(pid), Some(at), true) =
                        (text.parse(), at.checked_sub(1), table.processes.len() < MAX_ROWS)
                    {
                        table.processes.push((at, Pid(pid)));
                    }
                } else if let Some(gpu) = table.gpus.last_mut() {
                    field::set(gpu, &path, &text);
                }
            }
            self.levels.pop();
        } else {
            match name {
                "timestamp" => table.at = crate::ground::clock::ctime(&text).or(table.at),
                "driver_version" => table.driver_version = Some(text.as_str().into()),
                "cuda_version" => table.cuda_version = (text != "N/A").then(|| text.as_str().into()),
                "attached_gpus" => table.attached = text.parse().ok(),
                _ => {}
            }
            self.levels.pop();
        }
    }
}
