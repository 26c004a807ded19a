//! /dev/shm: room, and who holds the segments in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ringleader_node::{Segment, Shm};

use crate::probes::Trouble;
use crate::request::Request;
use crate::sysfs::names;

/// Segments that are listed; the largest ones, and those of NCCL and torch first.
const MAX_SEGMENTS: usize = 512;

pub(super) fn take(request: &Request) -> Result<Shm, Trouble> {
    let folder = request.roots.dev.join("shm");
    let space = match rustix::fs::statvfs(&folder) {
        Ok(space) => space,
        Err(rustix::io::Errno::NOENT) => return Err(Trouble::Absent("there is no /dev/shm".to_owned())),
        Err(error) => return Err(Trouble::Failed(format!("statvfs {}: {error}", folder.display()))),
    };
    let (holders, n_hidden) = holders(&request.roots.proc, &folder);
    let mut segments: Vec<Segment> = names(&folder)
        .into_iter()
        .filter_map(|name| {
            let data = fs::symlink_metadata(folder.join(&name)).ok()?;
            data.is_file().then(|| Segment {
                size: data.size(),
                allocated: data.blocks() * 512,
                uid: data.uid(),
                mode: data.mode() & 0o7777,
                modified_ns: data.mtime() * 1_000_000_000 + data.mtime_nsec(),
                held_by: holders.get(&data.ino()).cloned().unwrap_or_default(),
                is_held_unknown: n_hidden > 0,
                name,
            })
        })
        .collect();
    segments.sort_by_key(|segment| {
        let is_known = ["nccl-", "torch_"].iter().any(|head| segment.name.starts_with(head));
        (!is_known, std::cmp::Reverse(segment.allocated))
    });
    segments.truncate(MAX_SEGMENTS);
    Ok(Shm {
        size: space.f_blocks * space.f_frsize,
        available: space.f_bavail * space.f_frsize,
        inodes_free: (space.f_files > 0).then_some(space.f_favail),
        segments,
    })
}

/// Who maps or has open which file of `folder`, by inode; and how many processes could not be looked into. A deleted
/// file is nobody's: its inode is not listed.
fn holders(proc: &Path, folder: &Path) -> (BTreeMap<u64, Vec<u32>>, u32) {
    let mut holders: BTreeMap<u64, Vec<u32>> = BTreeMap::new();
    let mut n_hidden = 0;
    let prefix = format!("{}/", folder.display());
    for name in names(proc) {
        let Ok(pid) = name.parse::<u32>() else { continue };
        let of = proc.join(&name);
        let mut inodes = Vec::new();
        match fs::read(of.join("maps")) {
            Ok(maps) => {
                for line in String::from_utf8_lossy(&maps).lines() {
                    // start-end perms offset dev inode path
                    let mut words = line.split_whitespace();
                    let (Some(inode), Some(path)) = (words.nth(4), words.next()) else { continue };
                    if path.starts_with(&prefix) {
                        inodes.extend(inode.parse::<u64>());
                    }
                }
            }
            // A process that has just ended is no secret.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => n_hidden += 1,
            Err(_) => {}
        }
        for number in names(&of.join("fd")) {
            let link = of.join("fd").join(number);
            if fs::read_link(&link).is_ok_and(|path| path.starts_with(folder)) {
                inodes.extend(fs::metadata(&link).map(|data| data.ino()));
            }
        }
        inodes.sort_unstable();
        inodes.dedup();
        for inode in inodes {
            holders.entry(inode).or_default().push(pid);
        }
    }
    for pids in holders.values_mut() {
        pids.sort_unstable();
    }
    (holders, n_hidden)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use super::*;
    use crate::request::Roots;

    #[test]
    fn a_mapped_segment_has_its_holder_and_an_unmapped_one_none() {
        let root = tempfile::tempdir().unwrap();
        let shm = root.path().join("dev/shm");
        fs::create_dir_all(&shm).unwrap();
        fs::create_dir_all(root.path().join("proc/4711/fd")).unwrap();
        fs::write(shm.join("nccl-live"), "x").unwrap();
        fs::write(shm.join("nccl-stale"), "x").unwrap();
        let inode = fs::metadata(shm.join("nccl-live")).unwrap().ino();
        let map = format!("7f00-7f10 rw-s 00000000 00:1a {inode}    {}/nccl-live\n", shm.display());
        fs::write(root.path().join("proc/4711/maps"), map).unwrap();
        let request = Request { roots: Roots::under(root.path()), ..Request::default() };
        let taken = take(&request).unwrap();
        let held: Vec<(&str, &[u32])> =
            taken.segments.iter().map(|s| (s.name.as_str(), s.held_by.as_slice())).collect();
        assert_eq!(held, [("nccl-live", [4711].as_slice()), ("nccl-stale", [].as_slice())]);
    }
}
