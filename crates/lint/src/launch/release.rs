//! The release of NCCL that an image or a file of requirements installs.

use std::sync::OnceLock;

use aho_corasick::AhoCorasick;
use ringleader_knowledge::version::NcclVersion;

/// PyTorch's releases for Linux, and the NCCL that the metadata of their wheels on PyPI pins (read on 23 November 2026). The
/// images pytorch/pytorch:RELEASE hold the same.
const WHEELS: &[(&str, [u16; 3])] = &[
    ("2.1", [2, 18, 1]),
    ("2.2", [2, 19, 3]),
    ("2.3", [2, 20, 5]),
    ("2.4", [2, 20, 5]),
    ("2.5", [2, 21, 5]),
    ("2.6", [2, 21, 5]),
    ("2.7", [2, 26, 2]),
    ("2.8", [2, 27, 3]),
    ("2.9", [2, 27, 5]),
    ("2.10", [2, 27, 5]),
    ("2.11", [2, 28, 9]),
];

/// The text before a release.
const WHEEL: &str = "nvidia-nccl-cu";
const TORCH: &str = "torch==";
const IMAGE: &str = "pytorch/pytorch:";

/// The release that a text pins: `nvidia-nccl-cu12==2.21.5`, `torch==2.4.0`, `pytorch/pytorch:2.4.0-cuda12.1`.
pub(crate) fn pinned(text: &str) -> Option<NcclVersion> {
    static WORDS: OnceLock<Option<AhoCorasick>> = OnceLock::new();
    let words = WORDS.get_or_init(|| AhoCorasick::new([WHEEL, TORCH, IMAGE]).ok());
    if words.as_ref().is_some_and(|words| !words.is_match(text)) {
        return None;
    }
    let wheel = after(text, WHEEL).find_map(|rest| {
        let rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start();
        version(rest.strip_prefix("==")?)
    });
    let torch = || {
        let pins = after(text, TORCH).chain(after(text, IMAGE));
        pins.filter_map(version).find_map(of_torch)
    };
    wheel.or_else(torch)
}

/// What follows a word that no other word ends with.
fn after<'t>(text: &'t str, word: &'t str) -> impl Iterator<Item = &'t str> {
    text.match_indices(word).filter_map(move |(at, _)| {
        let before = text.get(..at)?.chars().next_back();
        let is_part = before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | '-' | '.'));
        (!is_part).then(|| text.get(at + word.len()..)).flatten()
    })
}

fn version(text: &str) -> Option<NcclVersion> {
    let text = text.trim_start();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let mut numbers = text.get(..end)?.split('.').map(str::parse);
    let mut next = || numbers.next()?.ok();
    Some(NcclVersion { major: next()?, minor: next()?, patch: next().unwrap_or_default() })
}

fn of_torch(torch: NcclVersion) -> Option<NcclVersion> {
    let name = format!("{}.{}", torch.major, torch.minor);
    let (_, [major, minor, patch]) = WHEELS.iter().find(|(release, _)| *release == name)?;
    Some(NcclVersion { major: *major, minor: *minor, patch: *patch })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(text: &str) -> Option<String> {
        pinned(text).map(|v| format!("{}.{}.{}", v.major, v.minor, v.patch))
    }

    #[test]
    fn wheels_and_images_lead_to_a_release() {
        assert_eq!(said("nvidia-nccl-cu12==2.21.5 ; linux").as_deref(), Some("2.21.5"));
        assert_eq!(said("numpy\ntorch==2.4.1+cu121\n").as_deref(), Some("2.20.5"));
        assert_eq!(said("FROM pytorch/pytorch:2.8.0-cuda12.8-cudnn9-devel").as_deref(), Some("2.27.3"));
        assert_eq!(said("torch>=2.4"), None);
        assert_eq!(said("intel-extension-for-pytorch==2.4.0"), None);
        assert_eq!(said("torch==nightly"), None);
    }
}
