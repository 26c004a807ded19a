//! The recorded dumps. The checksums cover every field of every entry, and are those of what Python's own `pickle`
//! reads from the same files, printed in the same form.

use std::path::{Path, PathBuf};

use super::{dump_of, lines, read, summary};

/// Recorded dumps in order of their paths.
pub(super) fn dumps() -> Vec<(String, Vec<u8>)> {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let mut paths: Vec<PathBuf> = std::fs::read_dir(&cases)
        .unwrap()
        .filter_map(|case| std::fs::read_dir(case.unwrap().path().join("evidence")).ok())
        .flatten()
        .map(|file| file.unwrap().path())
        .filter(|path| path.file_name().unwrap().to_str().unwrap().starts_with("fr_rank"))
        .collect();
    paths.sort();
    paths
        .into_iter()
        .map(|path| {
            let name = path.strip_prefix(&cases).unwrap().to_str().unwrap().to_owned();
            (name, std::fs::read(path).unwrap())
        })
        .collect()
}

#[test]
fn all_recordings() {
    let texts: Vec<String> =
        dumps().iter().map(|(name, bytes)| format!("{name}\n{}", summary(&read(name, bytes)))).collect();
    insta::assert_snapshot!(texts.join("\n"));
}

/// The entries around a missing send, in full.
#[test]
fn missing_send() {
    let (name, bytes) = dumps()
        .into_iter()
        .find(|(name, _)| name.contains("p2p-missing-send") && name.ends_with("rank2"))
        .unwrap();
    let extract = read(&name, &bytes);
    insta::assert_snapshot!(lines(dump_of(&extract).unwrap()).join("\n"));
}
