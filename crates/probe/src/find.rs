//! Where NCCL and cuBLAS are.

use std::path::{Path, PathBuf};

/// Files that may be NCCL, best first: the one that was named, the one that a process of the job maps, those that pip
/// installed, and what the loader finds by itself.
pub fn nccl(named: Option<&Path>, job: Option<u32>) -> Vec<PathBuf> {
    if let Some(named) = named {
        return vec![named.to_owned()];
    }
    let mut out: Vec<PathBuf> = job.and_then(|pid| mapped(pid, "libnccl.so")).into_iter().collect();
    out.extend(
        site_packages()
            .into_iter()
            .map(|site| site.join("nvidia/nccl/lib/libnccl.so.2"))
            .filter(|path| path.is_file()),
    );
    out.push(PathBuf::from("libnccl.so.2"));
    out
}

/// Folders that hold cuBLAS as pip installs it.
pub fn cublas() -> Vec<PathBuf> {
    let mut out = Vec::new();
    for site in site_packages() {
        for folder in ["nvidia/cu13/lib", "nvidia/cublas/lib"] {
            let folder = site.join(folder);
            if folder.is_dir() {
                out.push(folder);
            }
        }
    }
    for folder in ["/usr/local/cuda/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"] {
        if Path::new(folder).is_dir() {
            out.push(PathBuf::from(folder));
        }
    }
    out
}

/// The library of this name that a process maps.
fn mapped(pid: u32, name: &str) -> Option<PathBuf> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/maps")).ok()?;
    let line =
        maps.lines().find(|line| line.rsplit('/').next().is_some_and(|file| file.starts_with(name)))?;
    let path = line.split_whitespace().last()?;
    Some(PathBuf::from(format!("/proc/{pid}/root{path}"))).filter(|path| path.is_file())
}

/// Folders `site-packages` of the active environment and of each Python on the path.
fn site_packages() -> Vec<PathBuf> {
    let mut roots: Vec<PathBuf> = Vec::new();
    roots.extend(["VIRTUAL_ENV", "CONDA_PREFIX"].iter().filter_map(std::env::var_os).map(PathBuf::from));
    for folder in std::env::var_os("PATH").iter().flat_map(std::env::split_paths) {
        for name in ["python3", "python"] {
            if let Ok(program) = folder.join(name).canonicalize()
                && let Some(root) = folder.parent()
            {
                roots.push(root.to_owned());
                roots.extend(program.parent().and_then(Path::parent).map(Path::to_owned));
            }
        }
    }
    roots.push(PathBuf::from("/usr/local"));
    let mut out: Vec<PathBuf> = Vec::new();
    for site in std::env::var_os("PYTHONPATH").iter().flat_map(std::env::split_paths) {
        out.push(site);
    }
    for root in roots {
        let Ok(entries) = std::fs::read_dir(root.join("lib")) else { continue };
        let mut found: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3")))
            .flat_map(|path| [path.join("site-packages"), path.join("dist-packages")])
            .filter(|path| path.is_dir())
            .collect();
        found.sort();
        out.extend(found);
    }
    let mut seen = std::collections::BTreeSet::new();
    out.retain(|path| seen.insert(path.clone()));
    out
}
