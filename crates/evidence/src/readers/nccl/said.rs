//! What INFO lines say about set-up (versions, interfaces, variables) and about failures.

use std::sync::LazyLock;

use memchr::memmem;
use ringleader_model::{Cite, NcclProcess};

/// `NCCL version 2.28.9+cuda13.0`: the version.
pub(super) fn version(text: &[u8]) -> Option<&[u8]> {
    let rest = text.strip_prefix(b"NCCL version ")?;
    let end = rest.iter().position(u8::is_ascii_whitespace).unwrap_or(rest.len());
    rest.get(..end).filter(|v| v.first().is_some_and(u8::is_ascii_digit) && v.contains(&b'.'))
}

/// A variable and the value NCCL read: `X set by environment to 1.` for numbers, `… to eth0` for words; until 2.2x
/// also `X set to eth0`.
pub(super) fn setting(text: &[u8]) -> Option<(&[u8], &[u8])> {
    if !text.starts_with(b"NCCL_") {
        return None;
    }
    let end = memchr::memchr(b' ', text)?;
    let (name, rest) = text.split_at_checked(end)?;
    let value = rest.strip_prefix(b" set by environment to ").or_else(|| rest.strip_prefix(b" set to "))?;
    let value = value.trim_ascii_end();
    let number = value.strip_suffix(b".").filter(|v| {
        let digits = v.strip_prefix(b"-").unwrap_or(v);
        !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
    });
    Some((name, number.unwrap_or(value)))
}

/// Takes what a line says of its process's network and driver. False if it says nothing of the kind.
pub(super) fn set_up(process: &mut NcclProcess, text: &[u8], cite: Cite) -> bool {
    let set = |slot: &mut Option<Box<str>>, value: &[u8]| {
        let value = value.trim_ascii();
        if !value.is_empty() {
            *slot = Some(String::from_utf8_lossy(value).into());
        }
    };
    if let Some(version) = version(text) {
        set(&mut process.nccl_version, version);
        process.version_at = Some(cite);
    } else if let Some(number) = text.strip_prefix(b"cudaDriverVersion ") {
        process.cuda_driver_version =
            std::str::from_utf8(number.trim_ascii()).ok().and_then(|n| n.parse().ok());
    } else if let Some(network) = text.strip_prefix(b"Using network ") {
        set(&mut process.network, network);
    } else if let Some(rest) = text.strip_prefix(b"Bootstrap") {
        match rest.strip_prefix(b" : Using").or_else(|| rest.strip_prefix(b": Using")) {
            Some(interface) => {
                set(&mut process.bootstrap, interface);
                process.devices_at.get_or_insert(cite);
            }
            None => return false,
        }
    } else if let Some(interface) = text.strip_prefix(b"NET : Using interface ") {
        // Up to NCCL 2.3: the first of them serves bootstrap and data.
        set(&mut process.bootstrap, interface);
    } else if let Some(rest) = text.strip_prefix(b"NET/IB : Using") {
        let end = memmem::find(rest, b"; OOB").unwrap_or(rest.len());
        let devices = rest.get(..end).unwrap_or(rest);
        // Without devices only the flag of relaxed ordering is left: ` [RO]`.
        if memmem::find(devices, b"]").is_some() && memmem::find(devices, b":").is_some() {
            set(&mut process.ib_devices, devices);
            process.devices_at = Some(cite);
        }
    } else if let Some(devices) = text.strip_prefix(b"NET/Socket : Using") {
        set(&mut process.socket_devices, devices);
    } else {
        return false;
    }
    true
}

/// Whether an INFO line reports a failure: retries, events of a NIC, fall-backs, peers that went away, and what would
/// have been a WARN had NCCL not asked for silence.
///
/// Left out as harmless wherever NCCL runs: `NET/IB : No device found`, plugins that are not there, `dlvsym failed`,
/// topology files that cannot be read, `abort called`.
pub(super) fn is_failure(text: &[u8]) -> bool {
    static WORDS: LazyLock<Vec<memmem::Finder<'static>>> = LazyLock::new(|| {
        let words: [&[u8]; 25] = [
            b", retrying",
            b"- retrying",
            b"exceeded error retry count",
            b"Failed to extend",
            b"magic mismatch",
            b"Proceeding without NVLS",
            b"P2P is disabled between",
            b"async fatal event",
            b"async event",
            b"GID table change",
            b"do not appear to be working",
            b"Detected mixed local",
            b"Invalid value ",
            b"Cuda failure",
            b"marked as failed",
            b"Connection closed by",
            b"Connection refused",
            b"Connection reset",
            b"Connection timed out",
            b"No route to host",
            b"Network is unreachable",
            b"No space left on device",
            b"Error encountered",
            b"Revoke ",
            b"is deprecated",
        ];
        words.into_iter().map(memmem::Finder::new).collect()
    });
    if text.starts_with(b"Call to ") {
        return memmem::find(text, b" failed").is_some();
    }
    WORDS.iter().any(|word| word.find(text).is_some())
}

/// First words of lines that fill logs and tell nothing that is kept.
pub(super) fn is_filler(text: &[u8]) -> bool {
    const FILLERS: [&[u8]; 12] = [
        b"Connected to proxy",
        b"UDS converted",
        b"Imported shareable",
        b"Allocated shareable",
        b"New proxy",
        b"Ring ",
        b"Tree ",
        b"Trees ",
        b" ",
        b"Connected all",
        b"Pattern ",
        b"=== ",
    ];
    FILLERS.iter().any(|f| text.starts_with(f))
}
