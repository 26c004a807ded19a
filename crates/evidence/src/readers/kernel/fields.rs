//! Fields of a message: numbers, words, PCI addresses.

use ringleader_model::{PciAddress, Pid};

/// What follows the first `marker`.
pub(super) fn after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    let at = memchr::memmem::find(text.as_bytes(), marker.as_bytes())?;
    text.get(at + marker.len()..)
}

/// The text between the first `open` and the next `close`.
pub(super) fn between<'a>(text: &'a str, open: &str, close: &str) -> Option<&'a str> {
    after(text, open)?.split_once(close).map(|(inside, _)| inside)
}

/// A decimal number at the start, and what follows.
pub(super) fn number(text: &str) -> Option<(u64, &str)> {
    let end = text.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, rest) = text.split_at_checked(end)?;
    Some((digits.parse().ok()?, rest))
}

/// The number behind `key`.
pub(super) fn number_after(text: &str, key: &str) -> Option<u64> {
    Some(number(after(text, key)?.trim_start())?.0)
}

/// A process id that fits one.
pub(super) fn pid(number: u64) -> Option<Pid> {
    u32::try_from(number).ok().filter(|n| *n > 0).map(Pid)
}

/// `0x1f`, or hexadecimal digits alone.
pub(super) fn hex(text: &str) -> Option<u64> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    let end = digits.bytes().take_while(u8::is_ascii_hexdigit).count();
    u64::from_str_radix(digits.get(..end)?, 16).ok()
}

/// `0000:3b:00.0`, `0000:3b:00`, with a domain of four digits or more.
pub(super) fn pci(word: &str) -> Option<PciAddress> {
    let mut parts = word.split(':');
    let (domain, bus, device) = (parts.next()?, parts.next()?, parts.next()?);
    if parts.next().is_some() || !(4..=8).contains(&domain.len()) || bus.len() != 2 {
        return None;
    }
    let device_len = device.split('.').next().map_or(0, str::len);
    (device_len == 2).then(|| PciAddress::parse(word)).flatten()
}

/// The first PCI address with a domain in a text.
pub(super) fn pci_in(text: &str) -> Option<PciAddress> {
    text.split(|c: char| !(c.is_ascii_hexdigit() || matches!(c, ':' | '.')))
        .filter(|word| word.len() >= 10)
        .find_map(|word| pci(word.trim_matches(|c| matches!(c, ':' | '.'))))
}

/// `NAME[123]` at the start: name and process.
pub(super) fn named_pid(text: &str) -> Option<(&str, Pid, &str)> {
    let (head, rest) = text.split_once("]: ").or_else(|| text.split_once("] "))?;
    let (name, digits) = head.rsplit_once('[')?;
    let (number, left) = number(digits)?;
    if !left.is_empty() || name.is_empty() || name.len() > 64 {
        return None;
    }
    Some((name, pid(number)?, rest))
}
