//! df and `ls -l`.

use ringleader_model::{ListedFile, Listing, Mount};

use super::{MAX_ROWS, SystemReader, SystemTable};
use crate::ground::{Line, Sink};

/// What df's heading says of its columns.
pub(super) struct Columns {
    /// Bytes of one unit where a number has none of its own.
    unit: u64,
    is_inodes: bool,
    has_type: bool,
}

impl SystemReader {
    /// `Filesystem     1K-blocks  Used Available Use% Mounted on`.
    pub(super) fn df(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if !text.starts_with("Filesystem ") || !text.ends_with("Mounted on") {
            return false;
        }
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        let is_inodes = words.contains(&"Inodes");
        let unit = words.iter().find_map(|w| size(w.strip_suffix("-blocks")?, 1)).unwrap_or(if is_inodes {
            1
        } else {
            1024
        });
        let columns = Columns { unit, is_inodes, has_type: words.get(1) == Some(&"Type") };
        self.open(SystemTable::Df(columns), line, sink);
        true
    }

    /// `total 4096` begins a listing; a folder's own line (`ls -ld`) is one by itself.
    pub(super) fn listing(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let folder = self.asked.as_deref().and_then(folder_of);
        let mut listing = Listing { folder: folder.map(Into::into), ..Listing::default() };
        let is_total = text.strip_prefix("total ").is_some_and(|n| size(n, 1).is_some());
        if !is_total {
            if !listed(&mut listing, text, line.number) {
                return false;
            }
            // A lone file may be anybody's print.
            if listing.own.is_none() && listing.folder.is_none() && !is_of_interest(&listing) {
                return false;
            }
        }
        self.open(SystemTable::Listing(listing), line, sink);
        true
    }
}

/// `/dev/shm` of `ls -la /dev/shm`, or of the heading `/dev/shm:`.
fn folder_of(asked: &str) -> Option<&str> {
    if asked.starts_with('/') && !asked.contains(' ') {
        return Some(asked.trim_end_matches('/'));
    }
    let mut words = asked.split_ascii_whitespace();
    let program = words.find(|w| !matches!(*w, "sudo"))?;
    if program.rsplit('/').next() != Some("ls") {
        return None;
    }
    let target = words.find(|w| w.starts_with('/'))?;
    Some(target.split("/nccl-").next().unwrap_or(target).trim_end_matches('/'))
}

/// A row of df.
pub(super) fn mount(columns: &Columns, text: &str) -> Option<Mount> {
    let mut words = text.split_ascii_whitespace();
    let device = words.next()?;
    if columns.has_type {
        words.next()?;
    }
    let mut number = || size(words.next()?, columns.unit);
    let (size, used, available) = (number()?, number()?, number()?);
    let percent = words.next()?;
    if percent != "-" && percent.strip_suffix('%')?.parse::<u32>().is_err() {
        return None;
    }
    let at = words.collect::<Vec<_>>().join(" ");
    at.starts_with('/').then(|| Mount {
        device: device.into(),
        at: at.into(),
        size,
        used,
        available,
        is_inodes: columns.is_inodes,
    })
}

/// `64M`, `1.5G`, `1K`, `12345`, `-`: in bytes, or in units where it has none of its own.
pub(super) fn size(word: &str, unit: u64) -> Option<u64> {
    if word == "-" {
        return Some(0);
    }
    let digits = word.bytes().take_while(|b| b.is_ascii_digit() || *b == b'.').count();
    let (number, suffix) = word.split_at_checked(digits)?;
    let factor: u64 = match suffix {
        "" => unit,
        "B" => 1,
        "K" | "k" | "Ki" | "KiB" => 1 << 10,
        "M" | "Mi" | "MiB" => 1 << 20,
        "G" | "Gi" | "GiB" => 1 << 30,
        "T" | "Ti" | "TiB" => 1 << 40,
        "P" | "Pi" | "PiB" => 1 << 50,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        _ => return None,
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor);
    }
    number.parse::<f64>().ok().filter(|n| n.is_finite()).map(|n| (n * factor as f64) as u64)
}

/// Whether a line begins like a row of `ls -l`.
pub(super) fn may_be_listed(line: &[u8]) -> bool {
    let mut words = line.split(u8::is_ascii_whitespace).filter(|w| !w.is_empty());
    let is_mode = |w: &[u8]| (10..=11).contains(&w.len()) && w.iter().all(|b| b"-dlrwxstTSbcp.+".contains(b));
    words.next().is_some_and(is_mode) && words.next().is_some_and(|n| n.iter().all(u8::is_ascii_digit))
}

/// A row of `ls -l`: `-rw------- 1 root root 4194304 Nov 20 08:20 nccl-AbCdEf`.
pub(super) fn listed(listing: &mut Listing, text: &str, line: u32) -> bool {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let [mode, links, owner, _group, size, rest @ ..] = words.as_slice() else { return false };
    let is_mode = (10..=11).contains(&mode.len())
        && mode.bytes().all(|b| b"-dlrwxstTSbcp.+".contains(&b))
        && links.parse::<u32>().is_ok();
    let Ok(size) = size.parse::<u64>() else { return false };
    // `Nov 20 08:20`, or `2026-11-20 08:20`, also with seconds and zone.
    let n_when = match rest.first().map(|w| w.len()) {
        Some(3) => 3,
        Some(10) if rest.get(2).is_some_and(|w| w.starts_with(['+', '-']) && w.len() == 5) => 3,
        Some(10) => 2,
        _ => return false,
    };
    let Some((when, name)) = rest.split_at_checked(n_when).filter(|(_, name)| !name.is_empty()) else {
        return false;
    };
    if !is_mode {
        return false;
    }
    let name = name.join(" ");
    if mode.starts_with('d') && (name == "." || name == "/dev/shm") {
        listing.own = Some(((*mode).into(), (*owner).into()));
        if name != "." {
            listing.folder = Some(name.into());
        }
    } else if name != ".." && listing.files.len() < MAX_ROWS {
        listing.files.push(ListedFile {
            line,
            mode: (*mode).into(),
            owner: (*owner).into(),
            size,
            when: when.join(" ").into(),
            name: name.into(),
        });
    }
    true
}

/// Shared memory: identified by its folder, or by names that occur only there.
pub(super) fn is_of_interest(listing: &Listing) -> bool {
    let known = |name: &str| {
        let name = name.strip_prefix("/dev/shm/").unwrap_or(name);
        ["nccl-", "torch_", "cuda.shm.", "sem.", "psm_"].iter().any(|p| name.starts_with(p))
    };
    listing.folder.as_deref().is_some_and(|f| f.ends_with("/shm"))
        || listing.files.iter().any(|f| known(&f.name))
}
