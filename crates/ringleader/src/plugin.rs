//! Where the NCCL plugin is.

use std::path::{Path, PathBuf};

/// What it is called.
pub(crate) const LIBRARY: &str = "libringleader_nccl.so";

/// What to say where it is not found.
pub(crate) fn missing() -> String {
    format!("the NCCL plugin ({LIBRARY}) was not found: {}", where_from())
}

/// How to come by it.
pub(crate) fn where_from() -> String {
    format!(
        "a package or wheel installs it beside this program; in the source `cargo build --release -p ringleader-plugin` makes \
         target/release/{LIBRARY}, and RINGLEADER_PLUGIN names it"
    )
}

/// The plugin: `$RINGLEADER_PLUGIN`, else where an archive, a package or a wheel puts it.
pub(crate) fn find() -> Option<PathBuf> {
    // `0` is the plugin's own word for off.
    if let Some(path) = std::env::var_os("RINGLEADER_PLUGIN").filter(|path| !path.is_empty() && path != "0") {
        return Some(path.into());
    }
    beside(std::env::current_exe().ok()?.parent()?)
}

/// Beside the program, in `lib` and `lib/ringleader` next to its folder, or in the Python package of the same environment.
fn beside(folder: &Path) -> Option<PathBuf> {
    let lib = folder.parent().map(|prefix| prefix.join("lib")).unwrap_or_default();
    let plain = [folder.join(LIBRARY), lib.join(LIBRARY), lib.join("ringleader").join(LIBRARY)];
    if let Some(found) = plain.into_iter().find(|path| path.is_file()) {
        return Some(found);
    }
    let pythons = std::fs::read_dir(&lib).ok()?.flatten().map(|entry| entry.path());
    let is_python =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("python3"));
    let mut found: Vec<PathBuf> = pythons
        .filter(is_python)
        .map(|python| python.join("site-packages/ringleader/lib").join(LIBRARY))
        .filter(|path| path.is_file())
        .collect();
    found.sort();
    found.pop()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_packages_put_it() {
        for place in ["bin", "lib", "lib/ringleader", "lib/python3.11/site-packages/ringleader/lib"] {
            let root = tempfile::tempdir().expect("a folder");
            let bin = root.path().join("bin");
            std::fs::create_dir_all(&bin).expect("a folder");
            assert_eq!(beside(&bin), None);
            let path = root.path().join(place).join(LIBRARY);
            std::fs::create_dir_all(path.parent().expect("its folder")).expect("a folder");
            std::fs::write(&path, "").expect("a file");
            assert_eq!(beside(&bin), Some(path));
        }
    }
}
