//! A bundle says what the same files say loose: same verdict, same findings, same words; only paths differ.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use ringleader_bundle::{BundleWriter, Caps, Content, Item, Manifest, Origin, SCHEMA};
use serde_json::Value;

/// Every file below `folder`, by its path within, sorted.
pub(crate) fn files(folder: &Path) -> Vec<(String, PathBuf)> {
    fn list(root: &Path, folder: &Path, into: &mut Vec<(String, PathBuf)>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                list(root, &path, into);
            } else {
                into.push((path.strip_prefix(root).unwrap().to_str().unwrap().to_owned(), path));
            }
        }
    }
    let mut files = Vec::new();
    list(folder, folder, &mut files);
    files.sort();
    files
}

pub(crate) fn bundle(folder: &Path, to: &Path) {
    let mut writer = BundleWriter::new(File::create(to).unwrap(), Caps::default()).unwrap();
    for (name, path) in files(folder) {
        let mut file = File::open(&path).unwrap();
        let size = file.metadata().unwrap().len();
        let origin = Origin::Path(path.to_str().unwrap().to_owned());
        let item = Item { name, kind: "log".to_owned(), origin, ..Item::default() };
        assert_eq!(writer.add(item, Content::Binary, size, &mut file).unwrap(), size);
    }
    writer.finish(Manifest { schema: SCHEMA.to_owned(), ..Manifest::default() }).unwrap();
}

/// The report as JSON, the bundle's path taken out of every text and its manifest out of the list of sources.
fn report(path: &Path) -> Value {
    let diagnosis = ringleader::diagnose(&[path.to_owned()], false).unwrap();
    let before = format!("{}!", path.display());
    let text = diagnosis.report().to_json().unwrap().replace(&before, "");
    let mut report: Value = serde_json::from_str(&text).unwrap();
    for value in report.as_object_mut().unwrap().values_mut() {
        if let Some(list) = value.as_array_mut() {
            list.retain(|entry| entry.get("kind").and_then(Value::as_str) != Some("bundle-manifest"));
        }
    }
    report
}

#[test]
fn a_bundle_says_what_its_files_say_loose() {
    let scratch = tempfile::tempdir().unwrap();
    let mut n_findings = 0;
    let mut n_compared = 0;
    // Every fourth case, and those with folders, dumps or archives within.
    for (at, judged) in crate::judged().iter().enumerate() {
        let (name, evidence) = (&judged.name, judged.folder.join("evidence"));
        let has_more = files(&evidence).iter().any(|(name, _)| {
            name.contains('/') || ["gz", "zst", "tar", "zip"].iter().any(|end| name.ends_with(end))
        });
        if at % 4 != 0 && !has_more {
            continue;
        }
        let packed = scratch.path().join(format!("{name}.tar.zst"));
        bundle(&evidence, &packed);
        let (loose, packed) = (report(&evidence), report(&packed));
        n_findings += loose["findings"].as_array().map_or(0, Vec::len);
        n_compared += 1;
        assert_eq!(packed, loose, "{name}: left the bundle, right the loose files");
    }
    assert!(n_compared > 20 && n_findings > 20, "{n_compared} cases, {n_findings} findings");
}
