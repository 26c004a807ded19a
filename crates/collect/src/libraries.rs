//! Libraries that a process has loaded, with their versions.
//!
//! The version comes from the file's name where that is whole (`libcuda.so.580.95.05`), else from what the file says of
//! itself (NCCL's `NCCL version 2.28.9+cuda13.0`) or what is beside it (torch's `version.py`).

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use ringleader_node::BETWEEN_COPIES;

use crate::sysfs::text;

/// Libraries that matter, by the beginning of their file's name.
const LIBRARIES: &[&str] = &[
    "libnccl.so",
    "libnccl-net",
    "libnccl-tuner",
    "libnccl-profiler",
    "libnccl-env",
    "librccl.so",
    "libcuda.so",
    "libcudart.so",
    "libcudart-",
    "libcudnn.so",
    "libcublas.so",
    "libnvidia-ml.so",
    "libtorch_cuda.so",
    "libibverbs.so",
    "libmlx5.so",
    "libfabric.so",
    "libefa.so",
    "libucp.so",
    "libmpi.so",
];
/// What NCCL says of itself, before its digits.
const MARK: &[u8] = b"NCCL version ";
/// Bytes of a library that are searched: read-only data precedes the code for GPUs.
const MAX_SEARCHED: u64 = 96 << 20;
const BLOCK: usize = 1 << 20;

/// Versions of files by device and number: a file is read once.
pub type Versions = BTreeMap<(u64, u64), String>;

/// Libraries of one process with their versions.
///
/// # Errors
/// If its mappings cannot be read.
pub fn of_process(proc: &Path, pid: u32, versions: &mut Versions) -> io::Result<BTreeMap<String, String>> {
    let at = proc.join(pid.to_string());
    let maps = fs::read(at.join("maps"))?;
    let mut libraries = BTreeMap::new();
    for path in paths(&String::from_utf8_lossy(&maps)) {
        let file = path.rsplit('/').next().unwrap_or_default();
        let Some(name) = name_of(file) else { continue };
        let version = version_in_name(file).unwrap_or_else(|| {
            // The process may live in a container: its root is looked through.
            let whole = at.join("root").join(path.trim_start_matches('/'));
            let whole = if whole.exists() { whole } else { PathBuf::from(&path) };
            let key = fs::metadata(&whole).map(|data| (data.dev(), data.ino()));
            match key {
                Ok(key) => versions.entry(key).or_insert_with(|| version_in_file(file, &whole)).clone(),
                Err(_) => String::new(),
            }
        });
        let known: &mut String = libraries.entry(name).or_default();
        // Two copies of one library in one process are a fault of their own.
        if known.is_empty() {
            *known = version;
        } else if *known != version && !version.is_empty() {
            *known = format!("{known}{BETWEEN_COPIES}{version}");
        }
    }
    Ok(libraries)
}

/// Files that are mapped, each once, in their order.
fn paths(maps: &str) -> Vec<String> {
    let mut paths: Vec<String> = Vec::new();
    for line in maps.lines() {
        let Some(at) = line.find('/') else { continue };
        let path = line.get(at..).unwrap_or_default().trim_end_matches(" (deleted)");
        if path.contains(".so") && !paths.iter().any(|known| known == path) {
            paths.push(path.to_owned());
        }
    }
    paths
}

/// The name a library is compared by: `libnccl.so.2` of `libnccl.so.2.28.9`, `libnccl-net-aws-ofi.so`.
fn name_of(file: &str) -> Option<String> {
    LIBRARIES.iter().find(|head| file.starts_with(**head))?;
    let (stem, numbers) = file.split_once(".so")?;
    // cudart's private copies carry a hash: libcudart-9335f6a2.so.12.8.57
    let stem = if stem.starts_with("libcudart-") { "libcudart" } else { stem };
    // libcuda.so.1 always has the driver's version.
    let major = numbers.trim_start_matches('.').split('.').next().unwrap_or_default();
    let is_driver = ["libcuda", "libnvidia-ml"].contains(&stem);
    match major {
        _ if is_driver => Some(format!("{stem}.so.1")),
        "" => Some(format!("{stem}.so")),
        major => Some(format!("{stem}.so.{major}")),
    }
}

/// A whole version in a file's name.
fn version_in_name(file: &str) -> Option<String> {
    let (_, numbers) = file.split_once(".so.")?;
    let is_version = numbers.contains('.') && numbers.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    is_version.then(|| numbers.to_owned())
}

/// What a file, or what is beside it, says; empty if nothing.
fn version_in_file(file: &str, path: &Path) -> String {
    if file.starts_with("libnccl.so") {
        return nccl_version(path).unwrap_or_default();
    }
    let folder = path.parent();
    if file.starts_with("libtorch_cuda.so") {
        // site-packages/torch/lib/libtorch_cuda.so and site-packages/torch/version.py
        let about = folder
            .and_then(Path::parent)
            .and_then(|torch| text(&torch.join("version.py")))
            .unwrap_or_default();
        let line = about.lines().find_map(|line| line.strip_prefix("__version__ = "));
        return line.unwrap_or_default().trim_matches(['\'', '"']).to_owned();
    }
    String::new()
}

/// The version that a library of NCCL says of itself; its text is searched, nothing is loaded.
pub fn nccl_version(path: &Path) -> Option<String> {
    let mut file = File::open(path).ok()?;
    file.seek(SeekFrom::Start(0)).ok()?;
    let mut file = file.take(MAX_SEARCHED);
    let mut window: Vec<u8> = Vec::with_capacity(BLOCK + 256);
    loop {
        let kept = window.len().min(128);
        window.drain(..window.len() - kept);
        let before = window.len();
        (&mut file).take(BLOCK as u64).read_to_end(&mut window).ok()?;
        if window.len() == before {
            return None;
        }
        if let Some(version) = version_at(&window) {
            return Some(version);
        }
    }
}

/// The first mark that digits follow: the same words also begin a format string.
fn version_at(window: &[u8]) -> Option<String> {
    let mut from = 0;
    while let Some(at) = memchr::memmem::find(window.get(from..)?, MARK) {
        let start = from + at + MARK.len();
        let tail = window.get(start..)?;
        let end = tail.iter().position(|b| !(b.is_ascii_alphanumeric() || matches!(b, b'.' | b'+' | b'-')));
        let word = tail.get(..end?)?;
        if word.first().is_some_and(u8::is_ascii_digit) && word.contains(&b'.') && word.len() < 40 {
            let word = String::from_utf8_lossy(word);
            // `2.28.9+cuda13.0`: the CUDA it was built with is another matter.
            return Some(word.split('+').next().unwrap_or_default().to_owned());
        }
        from = start;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_versions() {
        assert_eq!(name_of("libnccl.so.2.28.9").as_deref(), Some("libnccl.so.2"));
        assert_eq!(name_of("libcuda.so.580.95.05").as_deref(), Some("libcuda.so.1"));
        assert_eq!(name_of("libnccl-net-aws-ofi.so").as_deref(), Some("libnccl-net-aws-ofi.so"));
        assert_eq!(name_of("libcudart-9335f6a2.so.12.8.57").as_deref(), Some("libcudart.so.12"));
        assert_eq!(name_of("libc.so.6"), None);
        assert_eq!(version_in_name("libcuda.so.580.95.05").as_deref(), Some("580.95.05"));
        assert_eq!(version_in_name("libnccl.so.2"), None);
    }

    #[test]
    fn the_words_of_nccl_behind_a_format_string_and_over_the_edge_of_a_block() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("libnccl.so.2");
        let mut bytes = b"NCCL version %d.%d.%d compiled with CUDA\0".to_vec();
        bytes.resize(BLOCK - 7, 0);
        bytes.extend_from_slice(b"NCCL version 2.28.9+cuda13.0\0");
        fs::write(&path, bytes).unwrap();
        assert_eq!(nccl_version(&path).as_deref(), Some("2.28.9"));
        fs::write(&path, b"NCCL version %s").unwrap();
        assert_eq!(nccl_version(&path), None);
    }

    #[test]
    fn what_a_rank_has_loaded() {
        let root = tempfile::tempdir().unwrap();
        let torch = root.path().join("site/torch");
        fs::create_dir_all(torch.join("lib")).unwrap();
        fs::create_dir_all(root.path().join("proc/4711")).unwrap();
        fs::write(torch.join("version.py"), "__version__ = '2.11.0+cu130'\ndebug = False\n").unwrap();
        fs::write(torch.join("lib/libtorch_cuda.so"), "x").unwrap();
        fs::write(root.path().join("libnccl.so.2"), "\0NCCL version 2.28.9+cuda13.0\0").unwrap();
        let maps = format!(
            "7f00-7f10 r--p 00000000 08:01 1    {0}/libnccl.so.2\n7f10-7f20 r-xp 00001000 08:01 1    {0}/libnccl.so.2\n\
             7f30-7f40 r--p 00000000 08:01 2    {1}/lib/libtorch_cuda.so\n7f50-7f60 r--p 0 08:01 3   /usr/lib/libcuda.so.580.95.05\n\
             7f70-7f80 rw-p 00000000 00:00 0    [heap]\n",
            root.path().display(),
            torch.display()
        );
        let rank = root.path().join("proc/4711");
        fs::write(rank.join("maps"), maps).unwrap();
        let taken = of_process(&root.path().join("proc"), 4711, &mut Versions::new()).unwrap();
        let told: Vec<(&str, &str)> =
            taken.iter().map(|(name, version)| (name.as_str(), version.as_str())).collect();
        assert_eq!(
            told,
            [("libcuda.so.1", "580.95.05"), ("libnccl.so.2", "2.28.9"), ("libtorch_cuda.so", "2.11.0+cu130")]
        );
    }
}
