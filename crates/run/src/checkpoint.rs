//! Finds the newest complete checkpoint. Folders are read and never changed, not even their times: programs sort by
//! them.
//!
//! A new name does not prove that a checkpoint is complete, and neither does the pointer file (`latest`), which is
//! written by truncation. The proof depends on the layout: the file written last exists, every file that it names
//! exists with the size that it states, zip directories are intact. Zeros within a file are detected only with `hash`.
//!
//! | layout | written last | checked |
//! |---|---|---|
//! | `torch.save` | end record of the zip | directory against the file's length |
//! | torch.distributed.checkpoint | `.metadata` | each shard's length, end of each shard |
//! | Hugging Face Trainer | `trainer_state.json` | model, optimizer, states of random generators of all ranks |
//! | accelerate | nothing | every file, states of all ranks |
//! | DeepSpeed | nothing: `latest` precedes other ranks' files | every file, all ranks |
//! | Megatron | `metadata.json`, or every file (older) | shards as above |
//! | safetensors | the index | each shard's header and length |
//! | Lightning | end record; `meta.pt` if sharded | as `torch.save`, as shards |
//! | Orbax | rename | commit time in `_CHECKPOINT_METADATA` |

pub mod files;
mod layouts;
mod loads;
pub mod pickle;
pub mod zip;

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

pub use self::loads::{Fit, Loads};
use crate::journal::Chosen;

/// Number of entries of a folder that are read.
pub(crate) const MAX_ENTRIES: usize = 20_000;
/// Number of checkpoints of a folder that are examined, newest first.
const MAX_EXAMINED: usize = 64;
/// Levels of folders below the given one.
const MAX_DEPTH: u32 = 2;

/// Layout of a checkpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Layout {
    /// Files of `torch.save`.
    Torch,
    /// torch.distributed.checkpoint.
    Dcp,
    /// Hugging Face Trainer's `checkpoint-N`.
    Trainer,
    /// `save_state` of accelerate.
    Accelerate,
    /// A tag of DeepSpeed.
    DeepSpeed,
    /// `iter_N` of Megatron.
    Megatron,
    /// safetensors, with or without index.
    Safetensors,
    /// A sharded `.ckpt` of Lightning.
    LightningSharded,
    /// Orbax.
    Orbax,
}

impl Layout {
    /// Name for people.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Torch => "torch.save",
            Self::Dcp => "torch.distributed.checkpoint",
            Self::Trainer => "Hugging Face Trainer",
            Self::Accelerate => "accelerate",
            Self::DeepSpeed => "DeepSpeed",
            Self::Megatron => "Megatron",
            Self::Safetensors => "safetensors",
            Self::LightningSharded => "Lightning, sharded",
            Self::Orbax => "Orbax",
        }
    }
}

/// Whether a checkpoint can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Soundness {
    /// Everything that its layout requires is there.
    Complete,
    /// Nothing is missing, but something is suspicious; used if there is no complete one.
    Doubtful(String),
    /// Something is missing.
    Incomplete(String),
    /// It could not be examined: a file system error is not damage.
    Unproven(String),
}

/// One checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoundCheckpoint {
    /// File or folder; the first file if ranks wrote several side by side.
    pub path: PathBuf,
    /// Its layout.
    pub layout: Layout,
    /// Its step, from its content or its name.
    pub step: Option<u64>,
    /// Whether it can be used.
    pub soundness: Soundness,
    /// When it was last written.
    pub modified: SystemTime,
    /// Files written per rank.
    pub n_rank_files: usize,
    /// The numbers of ranks that can load it.
    pub loads: Loads,
    /// The next attempt has another number.
    pub is_misfit: bool,
    /// Files that every checkpoint of the job contains under the same name.
    pub files: BTreeSet<String>,
}

/// Result of a search.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The examined checkpoints, newest first.
    pub all: Vec<FoundCheckpoint>,
    /// Index in `all` of the checkpoint to use.
    pub chosen: Option<usize>,
    /// Further remarks.
    pub notes: Vec<String>,
}

impl Search {
    /// Chooses the checkpoint for these ranks: the newest complete one that they can load, else the newest doubtful one.
    pub fn choose(&mut self, dir: &Path, options: &CheckpointOptions) {
        let CheckpointOptions { ranks, worlds, .. } = options;
        for found in &mut self.all {
            found.is_misfit = ranks.is_some_and(|ranks| !found.loads.on(ranks, worlds));
        }
        let is_complete =
            |found: &FoundCheckpoint| found.soundness == Soundness::Complete && !found.is_misfit;
        let is_usable = |found: &FoundCheckpoint| found.is_usable() && !found.is_misfit;
        self.chosen = self.all.iter().position(is_complete).or_else(|| self.all.iter().position(is_usable));
        let Some(found) = self.chosen() else { return };
        let told = layouts::pointer(dir).filter(|(_, to)| !layouts::is_named(to, found));
        if let Some((file, to)) = told {
            let note = format!(
                "{} points to {to}: a program that follows it resumes from that checkpoint, not from {}",
                file.display(),
                found.path.display()
            );
            self.notes.push(note);
        }
    }

    /// The checkpoint to use.
    pub fn chosen(&self) -> Option<&FoundCheckpoint> {
        self.chosen.and_then(|at| self.all.get(at))
    }

    /// Newer checkpoints than the chosen one that were skipped, each with the reason.
    pub fn passed_over(&self) -> Vec<String> {
        let newer = self.all.get(..self.chosen.unwrap_or(self.all.len())).unwrap_or_default();
        newer.iter().map(|found| format!("{}: {}", found.path.display(), found.words())).collect()
    }

    /// The chosen checkpoint as a journal record.
    pub fn record(&self) -> Option<Chosen> {
        let found = self.chosen()?;
        Some(Chosen {
            path: found.path.display().to_string(),
            layout: found.layout.name().to_owned(),
            step: found.step,
            passed_over: self.passed_over(),
        })
    }
}

impl FoundCheckpoint {
    /// Whether a job can start from it, if its number of ranks is right.
    fn is_usable(&self) -> bool {
        matches!(self.soundness, Soundness::Complete | Soundness::Doubtful(_))
    }

    /// Why it is not the best one.
    fn words(&self) -> String {
        match &self.soundness {
            Soundness::Complete if self.is_misfit => self.loads.words(),
            Soundness::Doubtful(_) if self.is_misfit => {
                format!("{}; {}", self.soundness.words(), self.loads.words())
            }
            soundness => soundness.words(),
        }
    }
}

impl Soundness {
    /// A phrase for people.
    pub fn words(&self) -> String {
        match self {
            Self::Complete => "complete".to_owned(),
            Self::Doubtful(why) => format!("doubtful: {why}"),
            Self::Incomplete(why) => format!("incomplete: {why}"),
            Self::Unproven(why) => format!("not examined: {why}"),
        }
    }
}

/// How thoroughly to look, and for whom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointOptions {
    /// Read every byte and compare checksums.
    pub hash: bool,
    /// Ranks of the next attempt; None if unknown: then each checkpoint is taken as loadable.
    pub ranks: Option<u32>,
    /// Numbers of ranks of the earlier attempts: a checkpoint with as many rank files lacks none.
    pub worlds: Vec<u32>,
}

/// Searches the folder. Errors: it cannot be listed.
pub fn search(dir: &Path, options: &CheckpointOptions) -> io::Result<Search> {
    let mut search = look(dir, options)?;
    search.choose(dir, options);
    Ok(search)
}

/// Examines the checkpoints of the folder, and chooses none. Errors: it cannot be listed.
pub fn look(dir: &Path, options: &CheckpointOptions) -> io::Result<Search> {
    let mut notes = Vec::new();
    let mut candidates = layouts::candidates(dir, MAX_DEPTH, &mut notes)?;
    candidates.sort_by(newest_first);
    if candidates.len() > MAX_EXAMINED {
        notes.push(format!("{} checkpoints; the newest {MAX_EXAMINED} are examined", candidates.len()));
        candidates.truncate(MAX_EXAMINED);
    }
    let mut all: Vec<FoundCheckpoint> =
        candidates.iter().map(|candidate| layouts::examine(candidate, options.hash)).collect();
    // The number in a file's name may differ from the step inside the file.
    all.sort_by(found_newest_first);
    compare_ranks(&mut all, &options.worlds);
    compare_files(&mut all);
    Ok(Search { all, chosen: None, notes })
}

/// Marks a checkpoint that lacks files of the next older complete one of its layout, since a program saves the same
/// files each time. Its configuration may also have changed, so this makes it only doubtful.
fn compare_files(all: &mut [FoundCheckpoint]) {
    for at in (0..all.len()).rev() {
        let Some(found) = all.get(at).filter(|found| found.soundness == Soundness::Complete) else {
            continue;
        };
        let older = all.get(at + 1..).unwrap_or_default();
        let Some(other) =
            older.iter().find(|other| other.layout == found.layout && other.soundness == Soundness::Complete)
        else {
            continue;
        };
        let lacking: Vec<&String> = other.files.difference(&found.files).take(3).collect();
        if lacking.is_empty() {
            continue;
        }
        let names = lacking.iter().map(|name| name.as_str()).collect::<Vec<_>>().join(", ");
        let name = other.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let why = format!("it lacks {names}, which {name} has");
        if let Some(found) = all.get_mut(at) {
            found.soundness = Soundness::Doubtful(why);
        }
    }
}

/// Marks a checkpoint with fewer rank files than its neighbours, since these layouts do not record how many there must be. The
/// world size may also have been smaller, so this makes it only doubtful; if an attempt had as many ranks, it is complete.
fn compare_ranks(all: &mut [FoundCheckpoint], worlds: &[u32]) {
    for at in 0..all.len() {
        let Some(found) = all.get(at) else { continue };
        let most = all
            .iter()
            .filter(|other| other.layout == found.layout && other.soundness == Soundness::Complete)
            .map(|other| other.n_rank_files)
            .max()
            .unwrap_or(0);
        let n = found.n_rank_files;
        if n < most
            && !worlds.iter().any(|world| *world as usize == n)
            && let Some(found) = all.get_mut(at).filter(|found| found.soundness == Soundness::Complete)
        {
            found.soundness = Soundness::Doubtful(format!("files of {n} ranks, others have {most}"));
        }
    }
}

fn newest_first(a: &layouts::Candidate, b: &layouts::Candidate) -> Ordering {
    match (a.step, b.step) {
        (Some(a_step), Some(b_step)) if a_step != b_step => b_step.cmp(&a_step),
        _ => b.modified.cmp(&a.modified).then_with(|| b.path.cmp(&a.path)),
    }
}

fn found_newest_first(a: &FoundCheckpoint, b: &FoundCheckpoint) -> Ordering {
    match (a.step, b.step) {
        (Some(a_step), Some(b_step)) if a_step != b_step => b_step.cmp(&a_step),
        _ => b.modified.cmp(&a.modified).then_with(|| b.path.cmp(&a.path)),
    }
}

/// Entries of a folder, sorted by name. Errors: it cannot be listed.
pub(crate) fn entries(dir: &Path) -> io::Result<Vec<(String, PathBuf)>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(dir)?.take(MAX_ENTRIES) {
        let entry = entry?;
        if let Ok(name) = entry.file_name().into_string() {
            all.push((name, entry.path()));
        }
    }
    all.sort();
    Ok(all)
}

#[cfg(test)]
mod tests;
