//! /dev/shm: room, and who holds the segments in it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use ringleader_knowledge::program;
use ringleader_node::{Segment, Shm};

use crate::procfs;
use crate::request::{ReadingError, Request};
use crate::sysfs::names;

/// Segments that are listed; the largest ones, and those of NCCL and torch first.
const MAX_SEGMENTS: usize = 512;

pub(super) fn take(request: &Request) -> Result<Shm, ReadingError> {
    let folder = request.roots.dev.join("shm");
    let space = match rustix::fs::statvfs(&folder) {
        Ok(space) => space,
        Err(rustix::io::Errno::NOENT) => return Err(ReadingError::Absent("there is no /dev/shm".to_owned())),
        Err(error) => return Err(ReadingError::Failed(format!("statvfs {}: {error}", folder.display()))),
    };
    let device = fs::metadata(&folder).map(|data| data.dev()).unwrap_or_default();
    let found = holders(&request.roots.proc, &folder, device);
    // A container may share the folder with the host or with others of its pod, whose processes it does not see.
    let unseen =
        procfs::hidden_by_mount(&request.roots.proc).or_else(|| procfs::pid_namespace(&request.roots.proc));
    let is_held_unknown = found.n_hidden > 0 || unseen.is_some();
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
                held_by: found.by_inode.get(&data.ino()).cloned().unwrap_or_default(),
                is_held_unknown,
                name,
            })
        })
        .collect();
    segments.sort_by_key(|segment| {
        let is_known = ["nccl-", "torch_"].iter().any(|head| segment.name.starts_with(head));
        (!is_known, std::cmp::Reverse(segment.allocated))
    });
    segments.truncate(MAX_SEGMENTS);
    let mut deleted: Vec<Segment> = found.deleted.into_values().collect();
    deleted.sort_by(|a, b| b.allocated.cmp(&a.allocated).then_with(|| a.name.cmp(&b.name)));
    deleted.truncate(MAX_SEGMENTS);
    Ok(Shm {
        size: space.f_blocks * space.f_frsize,
        available: space.f_bavail * space.f_frsize,
        inodes_free: (space.f_files > 0).then_some(space.f_favail),
        segments,
        deleted,
        unseen,
    })
}

/// Who maps or has open what.
#[derive(Default)]
struct Holders {
    /// Files that still have a name, by inode.
    by_inode: BTreeMap<u64, Vec<u32>>,
    /// Files that have none any more, by inode.
    deleted: BTreeMap<u64, Segment>,
    /// Processes that could not be looked into.
    n_hidden: u32,
}

impl Holders {
    fn hold(&mut self, inode: u64, pid: u32) {
        let pids = self.by_inode.entry(inode).or_default();
        if pids.last() != Some(&pid) {
            pids.push(pid);
        }
    }

    fn hold_deleted(&mut self, inode: u64, name: &str, pid: u32, mapped: u64, data: Option<fs::Metadata>) {
        let segment = self
            .deleted
            .entry(inode)
            .or_insert_with(|| Segment { name: name.to_owned(), ..Segment::default() });
        if let Some(data) = data {
            (segment.size, segment.allocated) = (data.size(), data.blocks() * 512);
            (segment.uid, segment.mode) = (data.uid(), data.mode() & 0o7777);
            segment.modified_ns = data.mtime() * 1_000_000_000 + data.mtime_nsec();
        } else if segment.allocated == 0 {
            // Its size cannot be asked for: what is mapped of it is the best there is.
            segment.size = segment.size.max(mapped);
        }
        if segment.held_by.last() != Some(&pid) {
            segment.held_by.push(pid);
        }
    }
}

/// Some sandboxes shield pid 1 even from root. An init is no rank; only where pid 1 is Python itself it may be one.
fn is_bare_init(process: &Path, pid: u32) -> bool {
    let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
    pid == 1 && !name.is_empty() && !program::runs_first(name.trim_end())
}

/// Who maps or has open which file of `folder`, which is on `device`.
///
/// A container may have a /dev/shm of its own under the same path: an inode number alone would name a file of another
/// file system, so the device has to agree as well.
fn holders(proc: &Path, folder: &Path, device: u64) -> Holders {
    let mut found = Holders::default();
    let prefix = format!("{}/", folder.display());
    let mut pids: Vec<u32> = names(proc).into_iter().filter_map(|name| name.parse().ok()).collect();
    pids.sort_unstable();
    for pid in pids {
        let of = proc.join(pid.to_string());
        match fs::read(of.join("maps")) {
            Ok(maps) => {
                for line in String::from_utf8_lossy(&maps).lines() {
                    let Some(map) = Map::parse(line, &prefix).filter(|map| map.is_on(device)) else {
                        continue;
                    };
                    match map.name.strip_suffix(" (deleted)") {
                        None => found.hold(map.inode, pid),
                        Some(name) => {
                            let data = fs::metadata(of.join("map_files").join(map.range)).ok();
                            let data = data.filter(|data| data.ino() == map.inode);
                            found.hold_deleted(map.inode, name, pid, map.bytes, data);
                        }
                    }
                }
            }
            // A process that has just ended is no secret.
            Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
                found.n_hidden += u32::from(!is_bare_init(&of, pid));
            }
            Err(_) => {}
        }
        for number in names(&of.join("fd")) {
            let link = of.join("fd").join(number);
            let Ok(path) = fs::read_link(&link) else { continue };
            let Some(path) = path.to_str().and_then(|path| path.strip_prefix(&prefix)) else { continue };
            let Ok(data) = fs::metadata(&link) else { continue };
            if data.dev() != device {
                continue;
            }
            match path.strip_suffix(" (deleted)") {
                None => found.hold(data.ino(), pid),
                Some(name) => found.hold_deleted(data.ino(), name, pid, 0, Some(data)),
            }
        }
    }
    found
}

/// A line of /proc/PID/maps: `start-end perms offset dev inode path`.
struct Map<'a> {
    range: &'a str,
    bytes: u64,
    /// `00:1a`, as the line has it.
    device: &'a str,
    inode: u64,
    name: &'a str,
}

impl<'a> Map<'a> {
    /// None if the line is not about a file under `prefix`.
    fn parse(line: &'a str, prefix: &str) -> Option<Self> {
        let at = line.find(prefix)?;
        let name = line.get(at + prefix.len()..)?;
        let mut words = line.get(..at)?.split_whitespace();
        let range = words.next()?;
        let (from, to) = range.split_once('-')?;
        let bytes = u64::from_str_radix(to, 16).ok()?.checked_sub(u64::from_str_radix(from, 16).ok()?)?;
        let device = words.nth(2)?;
        Some(Self { range, bytes, device, inode: words.next()?.parse().ok()?, name })
    }

    fn is_on(&self, device: u64) -> bool {
        let Some((major, minor)) = self.device.split_once(':') else { return false };
        let hex = |word| u32::from_str_radix(word, 16).ok();
        hex(major) == Some(rustix::fs::major(device)) && hex(minor) == Some(rustix::fs::minor(device))
    }
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
        let data = fs::metadata(shm.join("nccl-live")).unwrap();
        let device = |n: u32| {
            format!("{:02x}:{:02x}", rustix::fs::major(data.dev()), rustix::fs::minor(data.dev()) + n)
        };
        let at = shm.display();
        // The second line is a container's own /dev/shm whose inode has the number of our other segment.
        let other = fs::metadata(shm.join("nccl-stale")).unwrap().ino();
        let maps = format!(
            "7f00-7f10 rw-s 00000000 {} {}    {at}/nccl-live\n7f20-7f30 rw-s 0 {} {other} {at}/nccl-stale\n\
             7f40-8f40 rw-s 00000000 {} 777    {at}/nccl-gone (deleted)\n",
            device(0),
            data.ino(),
            device(1),
            device(0),
        );
        fs::write(root.path().join("proc/4711/maps"), maps).unwrap();
        let request = Request { roots: Roots::under(root.path()), ..Request::default() };
        let taken = take(&request).unwrap();
        let held: Vec<(&str, &[u32])> =
            taken.segments.iter().map(|s| (s.name.as_str(), s.held_by.as_slice())).collect();
        assert_eq!(held, [("nccl-live", [4711].as_slice()), ("nccl-stale", [].as_slice())]);
        let deleted: Vec<_> =
            taken.deleted.iter().map(|s| (s.name.as_str(), s.size, s.held_by.as_slice())).collect();
        assert_eq!(deleted, [("nccl-gone", 4096, [4711].as_slice())]);
    }

    #[test]
    fn who_holds_it_is_not_known_where_processes_do_not_show() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("dev/shm")).unwrap();
        fs::create_dir_all(root.path().join("proc/self/ns")).unwrap();
        fs::write(root.path().join("dev/shm/nccl-x"), "x").unwrap();
        let taken = || {
            let taken = take(&Request { roots: Roots::under(root.path()), ..Request::default() }).unwrap();
            (taken.segments[0].is_held_unknown, taken.unseen.unwrap_or_default())
        };
        assert_eq!(taken(), (false, String::new()));
        let namespace = root.path().join("proc/self/ns/pid");
        std::os::unix::fs::symlink("pid:[4026531836]", &namespace).unwrap();
        assert_eq!(taken(), (false, String::new()), "the namespace of the host");
        fs::remove_file(&namespace).unwrap();
        std::os::unix::fs::symlink("pid:[4026532777]", &namespace).unwrap();
        assert!(taken().0 && taken().1.contains("pid namespace"));
        let mounts = "22 27 0:21 / /proc rw,relatime - proc proc rw,hidepid=2\n";
        fs::write(root.path().join("proc/self/mountinfo"), mounts).unwrap();
        assert!(taken().0 && taken().1.contains("hidepid=2"));
    }

    #[test]
    fn a_file_that_this_very_process_holds_after_its_deletion() {
        let Ok(file) = tempfile::Builder::new().prefix("nccl-test-").tempfile_in("/dev/shm") else { return };
        file.as_file().set_len(1 << 16).unwrap();
        let name = file.path().file_name().unwrap().to_string_lossy().into_owned();
        let live = take(&Request::default()).unwrap();
        let own = std::process::id();
        assert!(live.segments.iter().any(|s| s.name == name && s.held_by == [own]));
        let (file, path) = file.into_parts();
        drop(path);
        let gone = take(&Request::default()).unwrap();
        assert!(gone.segments.iter().all(|s| s.name != name));
        assert!(gone.deleted.iter().any(|s| s.name == name && s.size == 1 << 16 && s.held_by == [own]));
        drop(file);
    }
}
