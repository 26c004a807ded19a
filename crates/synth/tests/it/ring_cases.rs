//! The recorded ring cases equal the output of their scripts: `RINGLEADER_BLESS=1` writes them again.

use std::path::Path;

use ringleader_synth::accuracy::case_of;
use ringleader_synth::{JobEvidence, ring_cases};

#[test]
fn cases_are_what_their_scripts_make() {
    let cases = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../cases");
    let bless = std::env::var_os("RINGLEADER_BLESS").is_some();
    for case in ring_cases() {
        let mut files: Vec<(String, Vec<u8>)> = vec![("case.toml".to_owned(), case.truth().into_bytes())];
        files.extend(case.files.iter().map(|(name, bytes)| (format!("evidence/{name}"), bytes.clone())));
        for (name, bytes) in files {
            let path = cases.join(case.name).join(name);
            if bless {
                std::fs::create_dir_all(path.parent().expect("it is below cases")).expect("a folder");
                std::fs::write(&path, &bytes).expect("a file");
            }
            let found = std::fs::read(&path).unwrap_or_default();
            assert!(found == bytes, "{} is not what its script makes", path.display());
        }
    }
}

#[test]
fn cases_are_judged_right() {
    let mut wrong = Vec::new();
    for case in ring_cases() {
        let verdict = ringleader_rules::diagnose(&case_of(&JobEvidence { files: case.files.clone() }));
        let mut ranks: Vec<u32> = verdict.culprits.iter().filter_map(|c| c.rank.map(|r| r.0)).collect();
        ranks.sort_unstable();
        let place = verdict.culprits.iter().find_map(|c| c.place.as_ref().map(|p| &*p.function));
        if verdict.cause.id() != case.cause || ranks != case.culprits || place.unwrap_or("") != case.place {
            wrong.push(format!(
                "{}: {} {ranks:?} at {place:?}: {}",
                case.name, verdict.cause, verdict.summary
            ));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
