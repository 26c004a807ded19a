//! For tests: trees of small files as the kernel shows them.

#![expect(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::path::Path;

/// Puts files below `root`, each with the line end that the kernel gives.
pub(crate) fn put(root: &Path, files: &[(&str, &str)]) {
    for (name, content) in files {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let end = if content.ends_with('\n') { "" } else { "\n" };
        fs::write(path, format!("{content}{end}")).unwrap();
    }
}
