//! Which PyTorch and NCCL are installed: read from the files of packages and libraries, nothing is imported or started.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use ringleader_collect::libraries;

/// A package or library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) version: String,
    pub(crate) path: PathBuf,
}

/// What is installed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Installed {
    pub(crate) python: Option<PathBuf>,
    pub(crate) torch: Option<Package>,
    pub(crate) nccl: Option<Package>,
}

/// Versions of Python whose folders are looked into, of one installation.
const MAX_VERSIONS: usize = 16;
/// Bytes of a text file that are looked at.
const MAX_TEXT: usize = 1 << 16;

/// What the Python that `python` names would import, else the one that a shell here would start.
pub(crate) fn find(python: Option<&Path>) -> Installed {
    let python = python.map(Path::to_owned).or_else(default_python);
    let folders = python.as_deref().map(packages).unwrap_or_default();
    let torch = folders.iter().find_map(|folder| torch(folder));
    let nccl =
        folders.iter().find_map(|folder| nccl_of_pip(folder)).or_else(|| nccl_of_system(python.as_deref()));
    Installed { python, torch, nccl }
}

/// The interpreter of the active environment, else the first of the search path.
fn default_python() -> Option<PathBuf> {
    let of_variable =
        |name: &str| Some(PathBuf::from(env::var_os(name).filter(|path| !path.is_empty())?).join("bin"));
    let search: Vec<PathBuf> =
        env::var_os("PATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    let folders = ["VIRTUAL_ENV", "CONDA_PREFIX"].into_iter().filter_map(of_variable).chain(search);
    let mut found = folders.flat_map(|folder| ["python3", "python"].map(|name| folder.join(name)));
    found.find(|path| path.is_file()).map(|path| behind_shim(&path).unwrap_or(path))
}

/// pyenv puts scripts before its interpreters.
fn behind_shim(path: &Path) -> Option<PathBuf> {
    let folder = path.parent().filter(|folder| folder.ends_with("shims"))?;
    let root = folder.parent()?;
    let named = env::var("PYENV_VERSION").ok().or_else(|| text(&root.join("version")))?;
    let name = named.split([':', '\n']).next()?.trim().to_owned();
    Some(root.join("versions").join(name).join("bin/python3")).filter(|path| path.is_file())
}

fn text(path: &Path) -> Option<String> {
    let bytes = fs::read(path).ok()?;
    Some(String::from_utf8_lossy(bytes.get(..bytes.len().min(MAX_TEXT))?).into_owned())
}

/// The folders from which this interpreter imports packages, in its order.
fn packages(python: &Path) -> Vec<PathBuf> {
    let mut out: Vec<PathBuf> =
        env::var_os("PYTHONPATH").map(|path| env::split_paths(&path).collect()).unwrap_or_default();
    let prefix = |python: &Path| python.parent().and_then(Path::parent).map(Path::to_owned);
    let about = prefix(python).map(|prefix| prefix.join("pyvenv.cfg")).and_then(|path| text(&path));
    let real = python.canonicalize().unwrap_or_else(|_| python.to_owned());
    let version = real.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    if let Some(own) = prefix(python).filter(|_| about.is_some()) {
        out.extend(of_prefix(&own, &version));
    }
    let sees_all = about.is_none_or(|about| {
        about
            .lines()
            .any(|line| line.replace(' ', "").eq_ignore_ascii_case("include-system-site-packages=true"))
    });
    if sees_all {
        let home = env::var_os("HOME").map(|home| PathBuf::from(home).join(".local"));
        let whole = prefix(&real);
        for place in home.into_iter().chain(whole.clone()) {
            out.extend(of_prefix(&place, &version));
        }
        if whole.as_deref() == Some(Path::new("/usr")) {
            out.extend(of_prefix(Path::new("/usr/local"), &version));
            out.push("/usr/lib/python3/dist-packages".into());
        }
    }
    out.retain(|folder| folder.is_dir());
    out
}

/// `lib/python3.11/site-packages` and its kin. `version` is the interpreter's name: `python3.11` shows which.
fn of_prefix(prefix: &Path, version: &str) -> Vec<PathBuf> {
    let mut out = Vec::new();
    for lib in ["lib", "lib64"] {
        let entries = fs::read_dir(prefix.join(lib)).into_iter().flatten().flatten();
        let mut pythons: Vec<String> = entries
            .map(|entry| entry.file_name().to_string_lossy().into_owned())
            .filter(|name| name.starts_with("python3."))
            .filter(|name| !version.contains('.') || name == version)
            .take(MAX_VERSIONS)
            .collect();
        pythons
            .sort_by_key(|name| std::cmp::Reverse(name.get(8..).and_then(|minor| minor.parse::<u32>().ok())));
        for python in pythons {
            for kind in ["site-packages", "dist-packages"] {
                out.push(prefix.join(lib).join(&python).join(kind));
            }
        }
    }
    out
}

/// PyTorch says its version in a file of its own.
fn torch(folder: &Path) -> Option<Package> {
    let path = folder.join("torch");
    let about = text(&path.join("version.py"))?;
    let line = about.lines().find_map(|line| line.strip_prefix("__version__ = "))?;
    Some(Package { version: line.trim().trim_matches(['\'', '"']).to_owned(), path })
}

/// The library that PyTorch's wheels bring. Its package names the version; a library that was put in its place names its own.
fn nccl_of_pip(folder: &Path) -> Option<Package> {
    let entries = fs::read_dir(folder.join("nvidia")).ok()?.flatten();
    let mut libraries: Vec<PathBuf> =
        entries.map(|entry| entry.path().join("lib/libnccl.so.2")).filter(|path| path.is_file()).collect();
    libraries.sort();
    libraries.into_iter().find_map(of_library)
}

/// A library of NCCL by its path: the version comes from its file name, else from its content.
fn of_library(path: PathBuf) -> Option<Package> {
    let real = path.canonicalize().ok()?;
    let name = real.file_name()?.to_string_lossy().into_owned();
    let of_name =
        name.strip_prefix("libnccl.so.").filter(|rest| rest.split('.').count() == 3).map(str::to_owned);
    let version = of_name.or_else(|| libraries::nccl_version(&real))?;
    Some(Package { version, path })
}

/// Where the loader would look, and where distributions put it.
fn nccl_of_system(python: Option<&Path>) -> Option<Package> {
    let search = env::var_os("LD_LIBRARY_PATH");
    let search = search.map(|path| env::split_paths(&path).collect::<Vec<_>>()).unwrap_or_default();
    let conda = python.and_then(Path::parent).and_then(Path::parent).map(|prefix| prefix.join("lib"));
    let machine = std::env::consts::ARCH;
    let usual = [
        format!("/usr/lib/{machine}-linux-gnu"),
        "/usr/lib64".to_owned(),
        "/usr/local/lib".to_owned(),
        "/usr/local/cuda/lib64".to_owned(),
        "/usr/local/nccl/lib".to_owned(),
    ];
    let folders = search.into_iter().chain(conda).chain(usual.map(PathBuf::from));
    folders.map(|folder| folder.join("libnccl.so.2")).filter(|path| path.is_file()).find_map(of_library)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().expect("a folder")).expect("made");
        fs::write(path, text).expect("written");
    }

    #[test]
    fn a_virtual_environment_with_what_its_wheels_bring() {
        let root = tempfile::tempdir().expect("a folder");
        let site = root.path().join("lib/python3.11/site-packages");
        write(&root.path().join("bin/python3"), "");
        write(&root.path().join("pyvenv.cfg"), "home = /usr/bin\ninclude-system-site-packages = false\n");
        write(
            &site.join("torch/version.py"),
            "from typing import Optional\n__version__ = '2.7.1+cu126'\ncuda = '12.6'\n",
        );
        write(
            &site.join("nvidia/nccl/lib/libnccl.so.2"),
            "\0NCCL version %d\0NCCL version 2.26.2+cuda12.2\0",
        );
        let found = find(Some(&root.path().join("bin/python3")));
        let torch = found.torch.expect("PyTorch");
        assert_eq!((torch.version.as_str(), torch.path), ("2.7.1+cu126", site.join("torch")));
        assert_eq!(found.nccl.expect("NCCL").version, "2.26.2");
    }

    #[test]
    fn the_name_of_a_file_tells_the_version() {
        let root = tempfile::tempdir().expect("a folder");
        write(&root.path().join("libnccl.so.2.21.5"), "");
        std::os::unix::fs::symlink("libnccl.so.2.21.5", root.path().join("libnccl.so.2")).expect("a link");
        let package = of_library(root.path().join("libnccl.so.2")).expect("it is one");
        assert_eq!(package.version, "2.21.5");
        write(&root.path().join("other/libnccl.so.2"), "nothing of the kind");
        assert_eq!(of_library(root.path().join("other/libnccl.so.2")), None);
    }

    #[test]
    fn an_interpreter_with_a_version_sees_its_own_packages_alone() {
        let root = tempfile::tempdir().expect("a folder");
        for minor in [9, 11, 12] {
            fs::create_dir_all(root.path().join(format!("lib/python3.{minor}/site-packages"))).expect("made");
        }
        assert_eq!(of_prefix(root.path(), "python3.9").len(), 2);
        let all = of_prefix(root.path(), "python3");
        assert!(all[0].ends_with("python3.12/site-packages"), "{all:?}");
    }
}
