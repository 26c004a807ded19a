//! PCIe: error reporting (`drivers/pci/pcie/aer.c`, both wordings; the newer one since about Linux 6.8), reports of the
//! firmware (`drivers/acpi/apei/ghes.c`), containment (`dpc.c`), hot-plug slots (`pciehp_ctrl.c`), and the IOMMU
//! (`drivers/iommu`).
//!
//! ```text
//! pcieport 0000:00:03.0: AER: Multiple Uncorrected (Fatal) error received: 0000:00:03.0
//! pcieport 0000:00:03.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)
//! pcieport 0000:00:03.0:   device [8086:6f08] error status/mask=00004020/00000000
//! pcieport 0000:00:03.0:    [14] CmpltTO                (First)
//! ```

use ringleader_model::{KernelEventKind, PciAddress, PcieError, PcieSeverity};

use super::fields::{after, between, pci, pci_in};
use super::statements::{FamilyAnswer, Record, Statements};

/// Lines that one report may take.
const MAX_LINES: u32 = 40;

/// The report that is open: it takes several lines.
#[derive(Default)]
pub(super) struct OpenReport {
    report: Option<AerReport>,
    /// Whose report was opened since somebody asked.
    pub(super) opened: Option<Speaker>,
}

struct AerReport {
    index: usize,
    line: u32,
    /// Who writes the lines: reporter's address, or the number of a report of the firmware.
    speaker: Speaker,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    Device(PciAddress),
    Firmware(u64),
}

impl OpenReport {
    /// Opens a report.
    pub(super) fn begin(&mut self, made: &Statements, record: &Record<'_>, speaker: Speaker) {
        self.opened = Some(speaker);
        self.report = Some(AerReport { index: made.next_index(), line: record.line, speaker });
    }

    /// Whether the next line may belong to a report.
    pub(super) fn waits_until(&self) -> u32 {
        self.report.as_ref().map_or(0, |r| r.line.saturating_add(MAX_LINES))
    }

    pub(super) fn waits(&self, line: u32) -> bool {
        self.report.as_ref().is_some_and(|r| line.saturating_sub(r.line) <= MAX_LINES)
    }
}

fn severity(text: &str) -> PcieSeverity {
    if text.contains("(Fatal)") {
        PcieSeverity::Fatal
    } else if text.contains("(Non-Fatal)") || text.contains("Uncorrect") {
        PcieSeverity::NonFatal
    } else {
        PcieSeverity::Corrected
    }
}

/// `driver 0000:00:03.0: message`.
fn speaker(text: &str) -> Option<(&str, PciAddress, &str)> {
    let (driver, rest) = text.split_once(' ')?;
    let (address, message) = rest.split_once(": ")?;
    let device = pci(address)?;
    (!driver.is_empty()).then_some((driver, device, message))
}

/// Whether a line may go on with an open report of a device, `driver 0000:00:03.0: …`, or, if none of the words is in
/// it, with any. A cheap look: it refuses nearly all that do not.
pub(super) fn may_go_on(text: &[u8]) -> bool {
    // A message may be indented; whatever else begins so is worth a look.
    if !text.first().is_some_and(u8::is_ascii_alphanumeric) {
        return true;
    }
    let Some(rest) = memchr::memchr(b' ', text).and_then(|gap| text.get(gap + 1..)) else { return false };
    let n = rest.iter().take(9).take_while(|b| b.is_ascii_hexdigit()).count();
    n >= 4 && rest.get(n) == Some(&b':')
}

/// A line that goes on with an open report.
pub(super) fn go_on(open: &mut OpenReport, made: &mut Statements, text: &str, record: &Record<'_>) -> bool {
    if !open.waits(record.line) {
        open.report = None;
        return false;
    }
    let Some(report) = &open.report else { return false };
    if matches!(report.speaker, Speaker::Device(_)) && !may_go_on(text.as_bytes()) {
        return false;
    }
    let index = report.index;
    match report.speaker {
        Speaker::Firmware(number) => {
            let Some(message) = firmware(text).filter(|(n, _)| *n == number).map(|(_, m)| m) else {
                return false;
            };
            let Some(event) = made.amend(index, record) else { return true };
            let KernelEventKind::PcieError(error) = &mut event.kind else { return true };
            if let Some(section) = after(message, "section_type: ") {
                error.layer = section.trim().into();
            } else if let Some(address) = after(message, "device_id: ") {
                event.device = pci_in(address);
            }
            true
        }
        Speaker::Device(device) => {
            // `nvidia 0000:03:00.0: AER: can't recover`: the device below speaks of the same error.
            if let Some((_, _, message)) = speaker(text)
                && message.starts_with("AER: ")
                && (message.contains("can't recover") || message.contains("recovery failed"))
            {
                if let Some(event) = made.amend(index, record)
                    && let KernelEventKind::PcieError(error) = &mut event.kind
                {
                    error.unrecovered = true;
                }
                return true;
            }
            let Some((driver, _, message)) = speaker(text).filter(|(_, by, _)| *by == device) else {
                return false;
            };
            let trimmed = message.trim_start();
            if trimmed.starts_with("AER: ") && trimmed.contains("rror") {
                return false;
            }
            let is_bus_error = trimmed.contains("PCIe Bus Error:");
            let known = made.event(index).map(|e| &e.kind);
            if is_bus_error && matches!(known, Some(KernelEventKind::PcieError(e)) if !e.layer.is_empty()) {
                return false;
            }
            let bit = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']'));
            let belongs = is_bus_error
                || bit.is_some()
                || trimmed.starts_with("device [")
                || trimmed.contains("TLP Header")
                || trimmed.starts_with("AER: ");
            if !belongs {
                return false;
            }
            let Some(event) = made.amend(index, record) else { return true };
            let KernelEventKind::PcieError(error) = &mut event.kind else { return true };
            if is_bus_error {
                error.driver = driver.into();
                error.severity = error.severity.max(severity(trimmed));
                error.layer = between(trimmed, "type=", ",").unwrap_or_default().trim().into();
            } else if let Some((digits, name)) = bit
                && digits.trim().bytes().all(|b| b.is_ascii_digit())
                && let Some(name) = name.split_ascii_whitespace().next()
                && error.bits.len() < 32
            {
                error.bits.push(name.into());
            }
            true
        }
    }
}

/// `{1}[Hardware Error]: message`.
fn firmware(text: &str) -> Option<(u64, &str)> {
    let (number, rest) = super::fields::number(text.strip_prefix('{')?)?;
    Some((number, rest.strip_prefix("}[Hardware Error]:")?.trim()))
}

pub(super) fn read(
    open: &mut OpenReport,
    made: &mut Statements,
    text: &str,
    record: &Record<'_>,
) -> FamilyAnswer {
    if text.contains("DMAR: ") || text.contains("AMD-Vi: ") || text.contains("arm-smmu") {
        return iommu(text);
    }
    if let Some((number, message)) = firmware(text) {
        return match after(message, "event severity: ") {
            Some(word) => {
                let severity = match word.trim() {
                    "corrected" | "info" => PcieSeverity::Corrected,
                    "fatal" => PcieSeverity::Fatal,
                    _ => PcieSeverity::NonFatal,
                };
                open.begin(made, record, Speaker::Firmware(number));
                let error = PcieError { severity, driver: "firmware".into(), ..PcieError::default() };
                FamilyAnswer::event(None, KernelEventKind::PcieError(error.into()))
            }
            None => FamilyAnswer::Part,
        };
    }
    let Some((driver, device, message)) = speaker(text) else { return FamilyAnswer::Nothing };
    let message = message.trim_start();
    let message = message.strip_prefix("pciehp: ").map_or(message, |m| m);
    if message.starts_with("Slot(") {
        let gone = message.contains("Link Down") || message.contains("Card not present");
        return if gone {
            FamilyAnswer::event(Some(device), KernelEventKind::PcieLinkDown)
        } else {
            FamilyAnswer::Part
        };
    }
    let is_report = ["error received", "error message received"].iter().any(|w| message.contains(w));
    if message.starts_with("AER: ") && is_report {
        open.begin(made, record, Speaker::Device(device));
        // `… received: 0000:00:03.0`, `… received from 0000:00:03.0`, `id=00e5` (old).
        let source = after(message, "received").and_then(pci_in).unwrap_or(device);
        let error = PcieError { severity: severity(message), driver: driver.into(), ..PcieError::default() };
        return FamilyAnswer::event(Some(source), KernelEventKind::PcieError(error.into()));
    }
    if let Some(rest) = after(message, "PCIe Bus Error: ") {
        open.begin(made, record, Speaker::Device(device));
        let error = PcieError {
            severity: severity(rest),
            driver: driver.into(),
            layer: between(rest, "type=", ",").unwrap_or_default().trim().into(),
            ..PcieError::default()
        };
        return FamilyAnswer::event(Some(device), KernelEventKind::PcieError(error.into()));
    }
    if message.starts_with("DPC: containment event") {
        let error = PcieError {
            severity: PcieSeverity::Fatal,
            driver: driver.into(),
            layer: "containment".into(),
            ..PcieError::default()
        };
        return FamilyAnswer::event(Some(device), KernelEventKind::PcieError(error.into()));
    }
    if message.starts_with("AER: ") || message.starts_with("DPC: ") {
        FamilyAnswer::Part
    } else {
        FamilyAnswer::Nothing
    }
}

/// `DMAR: [DMA Write NO_PASID] Request device [3b:00.0] fault addr …`,
/// `nvidia 0000:3b:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=…]`.
fn iommu(text: &str) -> FamilyAnswer {
    if let Some(rest) = after(text, "DMAR: ") {
        let Some(word) = between(rest, "Request device [", "]") else { return FamilyAnswer::Part };
        let device = pci(word).or_else(|| PciAddress::parse(word));
        return if rest.contains("fault") {
            FamilyAnswer::event(device, KernelEventKind::IommuFault)
        } else {
            FamilyAnswer::Part
        };
    }
    if text.contains("IO_PAGE_FAULT") {
        let device = pci_in(text)
            .or_else(|| between(text, "device=", " ").and_then(|word| pci(word).or(PciAddress::parse(word))));
        return FamilyAnswer::event(device, KernelEventKind::IommuFault);
    }
    if text.contains("arm-smmu") && text.contains("event 0x10 received") {
        return FamilyAnswer::event(None, KernelEventKind::IommuFault);
    }
    FamilyAnswer::Part
}
