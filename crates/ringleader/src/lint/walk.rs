//! The files of a source tree, by git's rules of what to leave out.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use ignore::WalkBuilder;
use rayon::prelude::*;
use ringleader_lint::{Language, SourceFile};

use crate::failure::Failure;

/// A file beyond this size is no source.
const MAX_BYTES: u64 = 4 << 20;
/// Folders and files of tests.
const TEST_FOLDERS: &[&str] = &["tests", "test", "testing"];

/// Reads what may be code or a launch file below the paths. A path that names a file is read whatever it is called.
///
/// # Errors
/// If a path does not exist.
pub(crate) fn sources(paths: &[PathBuf], with_tests: bool) -> Result<Vec<SourceFile>, Failure> {
    let mut files: Vec<PathBuf> = Vec::new();
    for path in paths {
        let help = "name the folder of the training code, or files of it: ringleader lint PATH…";
        let missing = |source| Failure::NoSuchPath { path: path.clone(), source, help };
        let about = std::fs::metadata(path).map_err(missing)?;
        if about.is_file() {
            files.push(path.clone());
            continue;
        }
        let walk = WalkBuilder::new(path)
            .hidden(false)
            .follow_links(false)
            .filter_entry(|e| e.file_name() != ".git")
            .build();
        for entry in walk.flatten() {
            let is_file = entry.file_type().is_some_and(|kind| kind.is_file());
            let relative = entry.path().strip_prefix(path).unwrap_or(entry.path());
            if is_file && (with_tests || !is_test(relative)) {
                files.push(entry.into_path());
            }
        }
    }
    files.sort();
    files.dedup();
    Ok(files.par_iter().filter_map(|path| read(path)).collect())
}

fn is_test(path: &Path) -> bool {
    let folders = path.parent().into_iter().flat_map(Path::components);
    let in_tests =
        folders.filter_map(|part| part.as_os_str().to_str()).any(|part| TEST_FOLDERS.contains(&part));
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    in_tests || name.starts_with("test_") || name.ends_with("_test.py") || name == "conftest.py"
}

fn read(path: &Path) -> Option<SourceFile> {
    let name = path.strip_prefix(".").unwrap_or(path).to_string_lossy().replace('\\', "/");
    let about = std::fs::metadata(path).ok()?;
    if about.len() > MAX_BYTES || !about.is_file() {
        return None;
    }
    let mut bytes = Vec::with_capacity(about.len() as usize);
    // A file may grow while it is read.
    std::fs::File::open(path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    if bytes.iter().take(1024).any(|byte| *byte == 0) {
        return None;
    }
    let text = match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    };
    (ringleader_lint::tell(&name, &text) != Language::Other).then_some(SourceFile { path: name, text })
}
