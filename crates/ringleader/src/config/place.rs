//! Where files of configuration are looked for.

use std::env;
use std::fs::Metadata;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use crate::config::Layer;

/// The name of the file, in any place.
const NAME: &str = "ringleader.toml";
const SYSTEM: &str = "/etc/ringleader";
/// Folders above the working directory that are looked into.
const MAX_UP: usize = 64;

/// A file that is there.
pub(super) struct ConfigFile {
    pub(super) path: PathBuf,
    pub(super) layer: Layer,
}

/// The files that are there and count. `evidence` are the paths that are about to be read.
pub(super) fn files(evidence: &[PathBuf]) -> Vec<ConfigFile> {
    let is_off = |name: &str| env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    if is_off("RINGLEADER_NO_CONFIG") {
        return Vec::new();
    }
    let mut out = Vec::new();
    if let Ok(here) = env::current_dir() {
        out.extend(project(&here, evidence).map(|path| ConfigFile { path, layer: Layer::Project }));
    }
    let user = env::var_os("XDG_CONFIG_HOME").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    let user = user.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".config")));
    let places =
        [(user.map(|folder| folder.join("ringleader")), Layer::User), (Some(SYSTEM.into()), Layer::System)];
    for (folder, layer) in places {
        let path = folder.map(|folder| folder.join(NAME));
        out.extend(path.filter(|path| path.is_file()).map(|path| ConfigFile { path, layer }));
    }
    out
}

/// The nearest file from the working directory upward that is neither in evidence nor above it: evidence is other
/// people's, and must not decide how it is judged.
fn project(here: &Path, evidence: &[PathBuf]) -> Option<PathBuf> {
    let evidence: Vec<PathBuf> = evidence.iter().filter_map(|path| path.canonicalize().ok()).collect();
    let touches =
        |folder: &Path| evidence.iter().any(|path| path.starts_with(folder) || folder.starts_with(path));
    let path = here.ancestors().take(MAX_UP).map(|folder| folder.join(NAME)).find(|path| path.is_file())?;
    let folder = path.parent()?.canonicalize().ok()?;
    if touches(&folder) {
        return None;
    }
    if path.metadata().is_ok_and(|data| is_foreign(&data)) {
        // Somebody else's file in a shared folder above. Nobody is left to tell if standard error is gone.
        let _ = writeln!(
            std::io::stderr(),
            "note: {} belongs to another user and is not read",
            ringleader_report::quote::plain(&path.display().to_string())
        );
        return None;
    }
    Some(path)
}

#[cfg(unix)]
fn is_foreign(data: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    data.uid() != 0 && data.uid() != rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn is_foreign(_: &Metadata) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_file_that_is_not_in_or_above_evidence() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path().canonicalize().expect("its path");
        let deep = root.join("project/deep");
        for folder in ["project/deep/logs", "elsewhere/logs"] {
            std::fs::create_dir_all(root.join(folder)).expect("a folder");
        }
        let own = root.join("project").join(NAME);
        std::fs::write(&own, "").expect("a file");
        assert_eq!(project(&deep, &[]), Some(own.clone()));
        assert_eq!(project(&deep, &[root.join("elsewhere/logs")]), Some(own));
        // Above the evidence, and within it.
        assert_eq!(project(&deep, &[deep.join("logs")]), None);
        assert_eq!(project(&deep, std::slice::from_ref(&root)), None);
        assert_eq!(project(&root.join("elsewhere"), &[]), None);
    }
}
