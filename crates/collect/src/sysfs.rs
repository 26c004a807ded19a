//! Small files of /proc and /sys.

use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::str::FromStr;

/// Content without its last newline; None if it is not there or not readable.
pub(crate) fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim_end_matches(['\n', '\0']).to_owned())
}

/// Content as a number.
pub(crate) fn number<T: FromStr>(path: &Path) -> Option<T> {
    text(path)?.trim().parse().ok()
}

/// Names in a folder, sorted; empty if it is not there.
pub(crate) fn names(path: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let mut names: Vec<String> =
        entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Last part of what a link points to.
pub(crate) fn link_name(path: &Path) -> Option<String> {
    Some(fs::read_link(path).ok()?.file_name()?.to_string_lossy().into_owned())
}

/// The first bytes of a file; what could be read if the rest could not.
pub(crate) fn bytes(path: &Path, most: u64) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let file = fs::File::open(path).ok()?;
    // Without root the kernel ends the file early; that is no error.
    let _ = file.take(most).read_to_end(&mut bytes);
    Some(bytes)
}
