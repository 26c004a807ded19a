//! NVIDIA's driver: Xids (`kernel_rc.c`, `nvErrorLog`), SXids (`error_nvswitch.h`), and what it says without a number.
//!
//! `NVRM: Xid (PCI:0000:cb:00): 13, pid='<unknown>', name=<unknown>, Graphics SM Warp Exception on …`
//! `NVRM: Xid (PCI:0000:cb:00 GPU-I:01): 43, pid=1797828, name=pt_main_thread, Ch 00000008`
//! `NVRM: Xid (0000:03:00): 14, Channel 00000001` (old)
//! `Xid (PCI:0000:65:00): 79, GPU has fallen off the bus.` (as tools and tickets quote it)

use std::collections::BTreeMap;

use ringleader_model::{KernelEventKind, PciAddress, Sxid, Xid};

use super::fields::{after, between, hex, number, number_after, pci_in, pid};
use super::statements::{FamilyAnswer, Record, Statements};

/// GPUs whose UUID is kept.
const MAX_UUIDS: usize = 1_024;

/// What is open.
#[derive(Default)]
pub(super) struct OpenFault {
    /// `The NVIDIA GPU 0000:b3:00.0`, whose sentence goes on in the next lines.
    subject: Option<(u32, PciAddress)>,
    /// `API mismatch: …`, likewise: its index, its line.
    mismatch: Option<(u32, usize)>,
    uuids: BTreeMap<PciAddress, Box<str>>,
}

impl OpenFault {
    /// UUID of the GPU at this address.
    pub(super) fn uuid(&self, at: PciAddress) -> Option<Box<str>> {
        self.uuids.get(&at).cloned()
    }
}

pub(super) fn read(
    open: &mut OpenFault,
    made: &mut Statements,
    text: &str,
    record: &Record<'_>,
) -> FamilyAnswer {
    if let Some(rest) = after(text, "SXid (") {
        return sxid(text, rest);
    }
    let Some(said) = after(text, "NVRM: ") else { return quoted(text) };
    if let Some(rest) = said.strip_prefix("Xid (") {
        return match xid(rest) {
            Some((device, xid)) => FamilyAnswer::event(device, KernelEventKind::Xid(xid.into())),
            None => FamilyAnswer::Part,
        };
    }
    plain(open, made, said, record)
}

/// Without the driver's mark: the form is its own where a line begins with it and names a device.
fn quoted(text: &str) -> FamilyAnswer {
    match text.strip_prefix("Xid (").filter(|rest| rest.starts_with("PCI:")).and_then(xid) {
        Some((Some(device), xid)) => FamilyAnswer::event(Some(device), KernelEventKind::Xid(xid.into())),
        _ => FamilyAnswer::Nothing,
    }
}

/// What follows `Xid (`.
fn xid(rest: &str) -> Option<(Option<PciAddress>, Xid)> {
    let (place, rest) = rest.split_once("): ")?;
    let (code, rest) = number(rest)?;
    let mut xid = Xid { code: u16::try_from(code).ok()?, ..Xid::default() };
    let mut rest = rest.strip_prefix(',')?.trim_start();
    xid.gpu_instance = number_after(place, "GPU-I:").and_then(|n| u32::try_from(n).ok());
    xid.uuid = place.split_ascii_whitespace().find(|word| is_uuid(word)).map(Into::into);
    if let Some(value) = rest.strip_prefix("pid=") {
        let (word, after_pid) = value.split_once(", ").unwrap_or((value, ""));
        xid.pid = number(word.trim_matches('\'')).and_then(|(n, left)| pid(n).filter(|_| left.is_empty()));
        rest = after_pid;
        if let Some(value) = rest.strip_prefix("name=") {
            let (name, after_name) = value.split_once(", ").unwrap_or((value, ""));
            let known = !name.is_empty() && !name.starts_with('<') && !name.starts_with("'<");
            xid.name = known.then(|| name.into());
            rest = after_name;
        }
    }
    body(&mut xid, rest);
    Some((pci_in(place), xid))
}

/// `GPU-509665ad-…`.
fn is_uuid(word: &str) -> bool {
    word.strip_prefix("GPU-").is_some_and(|id| {
        id.len() > 12 && id.bytes().all(|b| b.is_ascii_hexdigit() || b == b'-') && id.contains('-')
    })
}

fn body(xid: &mut Xid, body: &str) {
    xid.body = body.into();
    xid.caused_by = number_after(body, "caused by previous Xid ").and_then(|n| u16::try_from(n).ok());
    if let Some((_, to)) = body.split_once(" changed from ").and_then(|(_, c)| c.split_once(" to ")) {
        xid.recovery_action = hex(to).and_then(|n| u8::try_from(n).ok());
    }
    if let Some(word) = after(body, "RST: ") {
        xid.needs_reset = Some(word.starts_with("Yes"));
    }
    // `NVLink: fatal error detected on link 14(0x0, …)`
    if let Some(rest) = after(body, "detected on link ") {
        xid.link = number(rest).and_then(|(n, _)| i32::try_from(n).ok());
        xid.fatal = Some(body.contains("fatal error"));
        xid.registers = registers(rest);
        return;
    }
    // `NETIR_LINK_EVT  Fatal   XC0 i0 Link 01 (0x021425c6 …)`
    let mut words = body.split_ascii_whitespace();
    let (Some(unit), Some(word)) = (words.next(), words.next()) else { return };
    let fatal = match word {
        "Fatal" => true,
        "Nonfatal" | "Non-fatal" => false,
        _ => return,
    };
    xid.unit = Some(unit.into());
    xid.fatal = Some(fatal);
    if let Some(rest) = after(body, " Link ") {
        let (sign, digits) = rest.strip_prefix('-').map_or((1, rest), |digits| (-1, digits));
        xid.link = number(digits).and_then(|(n, _)| i32::try_from(n).ok()).map(|n| n * sign);
        xid.registers = registers(rest);
    }
}

/// The hexadecimal words in the next parentheses, at most eight.
fn registers(text: &str) -> Vec<u32> {
    let Some(inside) = after(text, "(") else { return Vec::new() };
    inside
        .split([',', ' ', ')'])
        .filter(|word| word.starts_with("0x"))
        .take(8)
        .filter_map(|word| hex(word).and_then(|n| u32::try_from(n).ok()))
        .collect()
}

/// What follows `SXid (`: one event is three lines; the first has the text.
fn sxid(text: &str, rest: &str) -> FamilyAnswer {
    let Some((place, rest)) = rest.split_once("): ") else { return FamilyAnswer::Nothing };
    let Some((code, rest)) = number(rest) else { return FamilyAnswer::Nothing };
    let (Ok(code), Some(said)) = (u32::try_from(code), rest.strip_prefix(", ")) else {
        return FamilyAnswer::Nothing;
    };
    let said = said.trim();
    if said.starts_with("Severity ") || said.starts_with("Data ") {
        return FamilyAnswer::Part;
    }
    let (fatal, words) = match said.split_once(", ") {
        Some(("Fatal", words)) => (Some(true), words),
        Some(("Non-fatal" | "Nonfatal" | "Correctable", words)) => (Some(false), words),
        _ => (None, said),
    };
    let link = words.strip_prefix("Link ").and_then(number);
    let sxid = Sxid {
        switch: number_after(text, "nvidia-nvswitch").and_then(|n| u32::try_from(n).ok()).unwrap_or(0),
        code,
        fatal,
        link: link.and_then(|(n, _)| u32::try_from(n).ok()),
        first: words.ends_with("(First)"),
        text: link.map_or(words, |(_, rest)| rest.trim()).into(),
    };
    FamilyAnswer::event(pci_in(place), KernelEventKind::Sxid(sxid.into()))
}

/// Lines of the driver without a number. Most mean nothing.
fn plain(open: &mut OpenFault, made: &mut Statements, said: &str, record: &Record<'_>) -> FamilyAnswer {
    let near = |line: u32| record.line.saturating_sub(line) <= 4;
    if said.contains("fallen off the bus") {
        let subject = open.subject.take().filter(|(line, _)| near(*line));
        return FamilyAnswer::event(pci_in(said).or(subject.map(|(_, gpu)| gpu)), KernelEventKind::GpuLost);
    }
    if let Some(rest) = said.strip_prefix("GPU at PCI:") {
        // `0000:9b:00: GPU-509665ad-…`
        if let (Some(gpu), Some(id)) = (pci_in(rest), rest.split_ascii_whitespace().find(|w| is_uuid(w)))
            && open.uuids.len() < MAX_UUIDS
        {
            open.uuids.insert(gpu, id.into());
        }
        return FamilyAnswer::Part;
    }
    if said.starts_with("The NVIDIA GPU ") {
        open.subject = pci_in(said).map(|gpu| (record.line, gpu));
        return FamilyAnswer::Part;
    }
    if said.contains("RmInitAdapter failed") {
        let code = between(said, "failed! (", ")").map(Into::into);
        return FamilyAnswer::event(pci_in(said), KernelEventKind::GpuInitFailed { code });
    }
    if said.starts_with("Rate limiting GSP RPC error prints") || said.contains("GPU likely needs to be reset")
    {
        return FamilyAnswer::event(pci_in(said), KernelEventKind::GspSilent);
    }
    if let Some(rest) = said.strip_prefix("API mismatch: ") {
        open.mismatch = Some((record.line, made.next_index()));
        let kind = KernelEventKind::DriverMismatch {
            client: version(rest, "has the version "),
            module: version(rest, "kernel module has the version "),
            pid: number_after(rest, "(pid ").and_then(pid),
        };
        return FamilyAnswer::event(None, kind);
    }
    if said.contains("has the version ")
        && let Some((line, index)) = open.mismatch
        && record.line.saturating_sub(line) <= 4
        && let Some(event) = made.amend(index, record)
        && let KernelEventKind::DriverMismatch { client, module, .. } = &mut event.kind
    {
        let found = version(said, "kernel module has the version ");
        let starts_with_client = said.starts_with("has the version ");
        *module = module.take().or(found);
        if starts_with_client {
            *client = client.take().or_else(|| version(said, "has the version "));
        }
        return FamilyAnswer::Part;
    }
    if said.starts_with("loading NVIDIA ") {
        let version = said.split_ascii_whitespace().find(|word| {
            word.contains('.') && word.bytes().all(|b| b.is_ascii_digit() || b == b'.') && word.len() > 3
        });
        return match version {
            Some(version) => {
                FamilyAnswer::event(None, KernelEventKind::DriverLoaded { version: version.into() })
            }
            None => FamilyAnswer::Part,
        };
    }
    let failed = ["Assertion failed", "Check failed", "nvAssert", "nvCheckOk", "crash dump has been created"];
    if failed.iter().any(|f| said.contains(f)) {
        return FamilyAnswer::event(pci_in(said), KernelEventKind::DriverAssertion);
    }
    FamilyAnswer::Part
}

/// A version number behind `key`.
fn version(text: &str, key: &str) -> Option<Box<str>> {
    let rest = after(text, key)?;
    let end = rest.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let version = rest.get(..end)?.trim_end_matches('.');
    (!version.is_empty()).then(|| version.into())
}
