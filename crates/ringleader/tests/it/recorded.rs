//! The recorded cases as data: files, truth, and a diagnosis of any set of files.

use std::fs;
use std::path::{Path, PathBuf};

use ringleader_evidence::{Limits, Scratch, merge, read};
use ringleader_model::{Case, Verdict};
use serde::Deserialize;

/// Truth of a case, as `case.toml` states it.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Truth {
    pub(crate) cause: String,
    pub(crate) also_right: Vec<String>,
    pub(crate) culprit_ranks: Vec<u32>,
    #[serde(default)]
    pub(crate) culprit_also: Vec<Vec<u32>>,
    pub(crate) culprit_host: String,
    #[serde(rename = "where")]
    pub(crate) place: String,
    pub(crate) category: String,
}

/// One case with its evidence in memory.
pub(crate) struct Recorded {
    pub(crate) name: String,
    pub(crate) truth: Truth,
    pub(crate) files: Vec<(String, Vec<u8>)>,
}

/// How a verdict compares with the truth.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Score {
    pub(crate) right: bool,
    /// None if the truth names nobody.
    pub(crate) culprit: Option<bool>,
    pub(crate) place: Option<bool>,
}

pub(crate) fn root() -> PathBuf {
    crate::root()
}

/// All cases, by name.
pub(crate) fn all() -> Vec<Recorded> {
    let mut names: Vec<PathBuf> = fs::read_dir(root().join("cases"))
        .expect("cases")
        .map(|e| e.expect("entry").path())
        .filter(|p| p.join("case.toml").exists())
        .collect();
    names.sort();
    names.iter().map(|path| load(path)).collect()
}

/// The truth of the case in this folder.
pub(crate) fn truth(folder: &Path) -> Truth {
    let toml = fs::read_to_string(folder.join("case.toml")).expect("case.toml");
    toml::from_str(&toml).expect("truth")
}

fn load(path: &Path) -> Recorded {
    let truth = truth(path);
    let mut files = Vec::new();
    add_files(&path.join("evidence"), "", &mut files);
    files.sort();
    Recorded { name: path.file_name().expect("name").to_string_lossy().into_owned(), truth, files }
}

/// Files of a folder and of those in it, by their path below the first.
fn add_files(folder: &Path, within: &str, files: &mut Vec<(String, Vec<u8>)>) {
    for entry in fs::read_dir(folder).expect("evidence") {
        let path = entry.expect("entry").path();
        let name = format!("{within}{}", path.file_name().expect("name").to_string_lossy());
        if path.is_dir() {
            add_files(&path, &format!("{name}/"), files);
        } else {
            files.push((name, fs::read(&path).expect("file")));
        }
    }
}

/// Reads files as the binary does.
pub(crate) fn case_of(files: &[(String, Vec<u8>)]) -> Case {
    let mut scratch = Scratch::default();
    let limits = Limits::default();
    merge(
        files.iter().map(|(name, bytes)| read(name, &mut bytes.as_slice(), &mut scratch, &limits)).collect(),
    )
}

/// Verdict over files.
pub(crate) fn diagnose(files: &[(String, Vec<u8>)]) -> Verdict {
    ringleader_rules::diagnose(&case_of(files))
}

impl Truth {
    pub(crate) fn score(&self, verdict: &Verdict) -> Score {
        let mut ranks: Vec<u32> = verdict.culprits.iter().filter_map(|c| c.rank.map(|r| r.0)).collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut want = self.culprit_ranks.clone();
        want.sort_unstable();
        let right =
            verdict.cause.id() == self.cause || self.also_right.iter().any(|c| c == verdict.cause.id());
        let culprit = (!want.is_empty()).then(|| ranks == want || self.culprit_also.contains(&ranks));
        let place = (!self.place.is_empty()).then(|| {
            verdict.culprits.iter().any(|c| c.place.as_ref().is_some_and(|p| *p.function == *self.place))
        });
        Score { right, culprit, place }
    }
}
