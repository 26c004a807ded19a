//! Content of a folder: which entries are checkpoints, their layout, and whether each is complete.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde_json::Value as Json;

use super::files::{self, Examined, json, unread};
use super::pickle::{self, PickleValue};
use super::{FoundCheckpoint, Layout, Loads, Soundness, entries};

/// Longest `.metadata` that is read, bytes.
const MAX_METADATA: u64 = 512 << 20;
/// Longest pointer file, bytes.
const MAX_POINTER: u64 = 4096;
/// Shards that are newer than their `.metadata` by more than this were overwritten later; a copy of the folder explains
/// less.
const COPY_NOISE: Duration = Duration::from_mins(10);
/// Other files that programs write next to a checkpoint.
const COMPANIONS: [&str; 9] = [
    "optimizer",
    "scheduler",
    "scaler",
    "rng_state",
    "random_states",
    "training_args",
    "sampler",
    "dl_state_dict",
    "custom_checkpoint",
];
/// Files that no resume needs, and that may come and go.
const IDLE: [&str; 5] =
    ["README.md", "training_args.bin", "generation_config.json", "zero_to_fp32.py", "zero_to_torch.py"];
/// File name endings of `torch.save`.
const TORCH: [&str; 4] = [".pt", ".pth", ".ckpt", ".bin"];

/// A possible checkpoint.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub(super) path: PathBuf,
    pub(super) layout: Layout,
    /// From its name.
    pub(super) step: Option<u64>,
    pub(super) modified: SystemTime,
    /// Files that ranks wrote side by side.
    beside: Vec<PathBuf>,
    /// A reason that makes it incomplete regardless of its content.
    marked: Option<String>,
}

/// All candidates below a folder. Errors: it cannot be listed.
pub(super) fn candidates(dir: &Path, depth: u32, notes: &mut Vec<String>) -> io::Result<Vec<Candidate>> {
    let all = entries(dir)?;
    let mut found = Vec::new();
    let mut files: BTreeMap<String, Vec<PathBuf>> = BTreeMap::new();
    let names: BTreeSet<&str> = all.iter().map(|(name, _)| name.as_str()).collect();
    for (name, path) in &all {
        // The target of a link inside the folder is found under its own name; a link out of the folder is not followed.
        let Ok(metadata) = fs::symlink_metadata(path) else { continue };
        if metadata.is_dir() {
            let mut candidate = folder(name, path);
            if candidate.is_none() && depth > 0 {
                match candidates(path, depth - 1, notes) {
                    Ok(below) => found.extend(below),
                    Err(error) => notes.push(format!("{}: {error}", path.display())),
                }
            }
            if let Some(candidate) = &mut candidate {
                mark(name, &names, candidate);
            }
            found.extend(candidate);
        } else if metadata.is_file() && is_saved(name) {
            files.entry(without_rank(name)).or_default().push(path.clone());
        }
    }
    found.extend(single(files, &names));
    // The given folder may be a checkpoint itself.
    let own = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
    if found.iter().all(|candidate| candidate.path.parent() == Some(dir) && candidate.path.is_file())
        && let Some(candidate) = folder(&own, dir)
    {
        return Ok(vec![candidate]);
    }
    Ok(found)
}

/// Single files: one candidate for each set of rank files.
fn single(files: BTreeMap<String, Vec<PathBuf>>, names: &BTreeSet<&str>) -> Vec<Candidate> {
    let mut found = Vec::new();
    for (name, beside) in files {
        let Some(path) = beside.first().cloned() else { continue };
        let modified =
            beside.iter().filter_map(|path| modified(path)).max().unwrap_or(SystemTime::UNIX_EPOCH);
        let layout = if name.ends_with(".safetensors") { Layout::Safetensors } else { Layout::Torch };
        let mut candidate = Candidate { path, layout, step: number(&name), modified, beside, marked: None };
        mark(&name, names, &mut candidate);
        found.push(candidate);
    }
    found
}

/// Markers beside or inside a checkpoint until it is complete.
#[expect(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "frameworks write these endings in small letters"
)]
fn mark(name: &str, names: &BTreeSet<&str>, candidate: &mut Candidate) {
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    for marker in [format!("{name}-unfinished"), format!("{stem}-unfinished")] {
        if names.contains(marker.as_str()) {
            candidate.marked = Some(format!("{marker} is beside it"));
        }
    }
    if candidate.path.join("checkpoint-is-incomplete.txt").exists() {
        candidate.marked = Some("checkpoint-is-incomplete.txt is in it".to_owned());
    }
    if name.contains(".orbax-checkpoint-tmp") || name.ends_with(".tmp") {
        candidate.marked = Some("its name shows that it is still being written".to_owned());
    }
}

fn is_saved(name: &str) -> bool {
    let is_of = |end: &&str| name.ends_with(*end);
    let is_companion = COMPANIONS.iter().any(|companion| name.starts_with(companion));
    !name.starts_with('.') && !is_companion && (TORCH.iter().any(is_of) || name.ends_with(".safetensors"))
}

/// `ep3-ba20-rank1.pt` becomes `ep3-ba20.pt`.
fn without_rank(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    for word in ["rank", "mp_", "shard"] {
        let Some(at) = lower.rfind(word) else { continue };
        let digits = lower.get(at + word.len()..).unwrap_or_default().trim_start_matches(['_', '-']);
        let n = digits.bytes().take_while(u8::is_ascii_digit).count();
        if n > 0 {
            let head = name.get(..at).unwrap_or_default().trim_end_matches(['_', '-', '.']);
            let tail = name.get(name.len() - digits.len() + n..).unwrap_or_default();
            return format!("{head}{tail}");
        }
    }
    name.to_owned()
}

/// The last number in a name, which is usually the step.
fn number(name: &str) -> Option<u64> {
    if let Some(step) = worded(name) {
        return Some(step);
    }
    let lower = name.to_ascii_lowercase();
    let stem = lower.split_once('.').map_or(lower.as_str(), |(stem, _)| stem);
    let end = stem.trim_end_matches(|c: char| !c.is_ascii_digit());
    let n = end.bytes().rev().take_while(u8::is_ascii_digit).count();
    end.get(end.len() - n..)?.parse().ok()
}

/// The number after a word that means a step.
fn worded(name: &str) -> Option<u64> {
    let lower = name.to_ascii_lowercase();
    for word in ["global_step", "step", "iter", "checkpoint", "ckpt", "ba"] {
        let behind = lower.rfind(word).and_then(|at| lower.get(at + word.len()..));
        let digits = behind.map(|behind| behind.trim_start_matches(['_', '-', '=', '.', '+']));
        let n = digits.map_or(0, |digits| digits.bytes().take_while(u8::is_ascii_digit).count());
        if n > 0 {
            return digits?.get(..n)?.parse().ok();
        }
    }
    None
}

/// File names that every checkpoint of one job contains: saved files and their companions, without rank files and
/// shards, whose number may differ, and without names that are hashes.
fn lasting(path: &Path) -> BTreeSet<String> {
    fn look(path: &Path, above: &str, depth: u32, names: &mut BTreeSet<String>) {
        for (name, path) in entries(path).unwrap_or_default() {
            if path.is_dir() {
                if depth > 0 && number(&name).is_none() {
                    look(&path, &format!("{above}{name}/"), depth - 1, names);
                }
                continue;
            }
            let is_hash = name.len() >= 24 && name.bytes().all(|b| b.is_ascii_hexdigit());
            let is_part = name.contains("-of-") || name.contains("rank") || name.contains("_state_");
            let is_numbered = number(&name).is_some() || name.ends_with(".distcp");
            if !is_hash && !is_part && !is_numbered && !IDLE.contains(&name.as_str()) && names.len() < 256 {
                names.insert(format!("{above}{name}"));
            }
        }
    }
    let mut names = BTreeSet::new();
    look(path, "", 1, &mut names);
    names
}

fn modified(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|metadata| metadata.modified()).ok()
}

/// The layout of a folder, if it is a checkpoint.
#[expect(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "frameworks write these endings in small letters"
)]
fn folder(name: &str, path: &Path) -> Option<Candidate> {
    let all = entries(path).ok()?;
    let has = |wanted: &str| all.iter().any(|(name, _)| name == wanted);
    let any = |is: &dyn Fn(&str) -> bool| all.iter().any(|(name, _)| is(name));
    let is_dcp = has(".metadata") || has(".metadata.tmp") || any(&|name| name.ends_with(".distcp"));
    let is_numbered = |prefix: &str| {
        name.strip_prefix(prefix)
            .is_some_and(|rest| !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit()))
    };
    let is_item = |(_, path): &(String, PathBuf)| {
        path.is_dir() && ["_METADATA", "manifest.ocdbt"].iter().any(|file| path.join(file).is_file())
    };
    let is_orbax = has("_CHECKPOINT_METADATA") || number(name).is_some() && all.iter().any(is_item);
    let layout = if is_orbax || name.contains(".orbax-checkpoint-tmp") {
        Layout::Orbax
    } else if has("trainer_state.json") || is_numbered("checkpoint-") && !is_dcp {
        Layout::Trainer
    } else if any(&|name| name.ends_with("_model_states.pt") || name.ends_with("_optim_states.pt")) {
        Layout::DeepSpeed
    } else if is_numbered("iter_") || any(&|name| name.starts_with("mp_rank_")) {
        Layout::Megatron
    } else if is_dcp && name.ends_with(".ckpt") {
        Layout::LightningSharded
    } else if is_dcp
        || has("0.metadata")
        || any(&|name| name.starts_with("__") && name.ends_with(".metadata"))
    {
        Layout::Dcp
    } else if any(&|name| name.starts_with("random_states_")) {
        Layout::Accelerate
    } else if has("model.safetensors.index.json") {
        Layout::Safetensors
    } else if number(name).is_some()
        && any(&is_saved)
        && !any(&|name| is_saved(name) && worded(name).is_some())
    {
        // `step_100/model.pt`: everything in it was saved together. Files with steps of their own are checkpoints each.
        Layout::Torch
    } else {
        return None;
    };
    let newest = all.iter().filter_map(|(_, path)| modified(path)).max();
    Some(Candidate {
        path: path.to_owned(),
        layout,
        step: number(name),
        modified: newest.or_else(|| modified(path)).unwrap_or(SystemTime::UNIX_EPOCH),
        beside: Vec::new(),
        marked: None,
    })
}

/// Examines a candidate.
pub(super) fn examine(candidate: &Candidate, hash: bool) -> FoundCheckpoint {
    let mut sight = Sight { hash, ..Sight::default() };
    if let Some(why) = &candidate.marked {
        sight.lacks(why.clone());
    } else if candidate.beside.is_empty() {
        sight.folder(candidate);
    } else {
        // A single file belongs to all ranks.
        sight.rank_files = if candidate.beside.len() > 1 { candidate.beside.len() } else { 0 };
        for path in &candidate.beside {
            sight.file(path);
        }
    }
    // A part of a folder may contain a different step, such as an optimizer's; the step in a single file counts more
    // than its name.
    let is_own = candidate.layout == Layout::Trainer || !candidate.beside.is_empty();
    let step = if is_own { sight.step.or(candidate.step) } else { candidate.step.or(sight.step) };
    FoundCheckpoint {
        path: candidate.path.clone(),
        layout: candidate.layout,
        step,
        soundness: sight.worst.unwrap_or(Soundness::Complete),
        modified: candidate.modified,
        n_rank_files: sight.rank_files,
        loads: loads(candidate),
        is_misfit: false,
        files: if candidate.beside.is_empty() { lasting(&candidate.path) } else { BTreeSet::new() },
    }
}

/// The numbers of ranks that can load a candidate.
fn loads(candidate: &Candidate) -> Loads {
    let path = &candidate.path;
    if !candidate.beside.is_empty() {
        return if candidate.beside.iter().any(|path| is_of_rank(&file_name(path))) {
            Loads::by_writers(candidate.beside.len())
        } else if candidate.beside.iter().all(|path| file_name(path).to_ascii_lowercase().contains("mp_")) {
            Loads::by_multiples(candidate.beside.len())
        } else {
            Loads::Any
        };
    }
    let all = entries(path).unwrap_or_default();
    let n = |is: &dyn Fn(&str) -> bool| all.iter().filter(|(name, _)| is(name)).count();
    match candidate.layout {
        Layout::DeepSpeed => zero(&all),
        Layout::Megatron => {
            let is_sharded =
                n(&|name| name.ends_with(".distcp") || name == ".metadata" || name == "metadata.json") > 0;
            if is_sharded { Loads::Any } else { Loads::by_multiples(n(&|name| name.starts_with("mp_rank_"))) }
        }
        Layout::Trainer | Layout::Accelerate | Layout::Torch => {
            let own = Loads::by_writers(n(&is_of_rank));
            // DeepSpeed's part, under its tag.
            let tags = all.iter().filter(|(_, path)| path.is_dir());
            let of_tags = tags.map(|(_, path)| zero(&entries(path).unwrap_or_default()));
            std::iter::once(own).chain(of_tags).find(|loads| *loads != Loads::Any).unwrap_or_default()
        }
        Layout::Dcp | Layout::Safetensors | Layout::LightningSharded | Layout::Orbax => Loads::Any,
    }
}

/// DeepSpeed: ZeRO's optimizer is in one part for each rank; without ZeRO, or in the universal form, it is in none.
fn zero(all: &[(String, PathBuf)]) -> Loads {
    let n = |start: &str, end: &str| {
        all.iter().filter(|(name, _)| name.starts_with(start) && name.ends_with(end)).count()
    };
    let zero = all
        .iter()
        .filter(|(name, _)| name.contains("zero_pp_rank_") && name.ends_with("_optim_states.pt"))
        .count();
    let is_universal = all.iter().any(|(name, path)| name == "zero" && path.is_dir());
    match zero {
        _ if is_universal => Loads::Any,
        0 => Loads::by_multiples(n("mp_rank_", "_model_states.pt")),
        n => Loads::by(n),
    }
}

/// A file with a rank's part of the model or the optimizer. States of random generators are not missed.
fn is_of_rank(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    let is_random = ["rng", "random", "loader", "sampler"].iter().any(|word| lower.contains(word));
    let has_rank = lower.rfind("rank").is_some_and(|at| {
        let digits = lower.get(at + 4..).unwrap_or_default().trim_start_matches(['_', '-']);
        digits.starts_with(|c: char| c.is_ascii_digit())
    });
    has_rank && !is_random && TORCH.iter().chain(&[".safetensors", ".pkl"]).any(|end| lower.ends_with(end))
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Observations of one checkpoint.
#[derive(Default)]
struct Sight {
    /// Read every byte and compare checksums.
    hash: bool,
    step: Option<u64>,
    worst: Option<Soundness>,
    rank_files: usize,
}

fn grade(soundness: &Soundness) -> u8 {
    match soundness {
        Soundness::Complete => 0,
        Soundness::Doubtful(_) => 1,
        Soundness::Unproven(_) => 2,
        Soundness::Incomplete(_) => 3,
    }
}

impl Sight {
    /// The most severe reason counts, the first one among equals.
    fn note(&mut self, soundness: Soundness) {
        if grade(&soundness) > self.worst.as_ref().map_or(0, grade) {
            self.worst = Some(soundness);
        }
    }

    fn lacks(&mut self, why: String) {
        self.note(Soundness::Incomplete(why));
    }

    fn file(&mut self, path: &Path) {
        let Examined { soundness, step } = files::examine(path, self.hash);
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let soundness = match soundness {
            Soundness::Incomplete(why) => Soundness::Incomplete(format!("{name}: {why}")),
            other => other,
        };
        self.note(soundness);
        self.step = self.step.or(step);
    }

    fn list(&mut self, path: &Path) -> Vec<(String, PathBuf)> {
        entries(path).unwrap_or_else(|error| {
            self.note(unread(path, &error));
            Vec::new()
        })
    }

    fn folder(&mut self, candidate: &Candidate) {
        let path = &candidate.path;
        match candidate.layout {
            Layout::Dcp => self.dcp(path),
            Layout::LightningSharded => {
                self.dcp(path);
                self.file(&path.join("meta.pt"));
            }
            Layout::Trainer => self.trainer(path),
            Layout::Accelerate => self.every_file(path, "random_states_"),
            Layout::DeepSpeed => {
                if !self.list(path).iter().any(|(name, _)| name.ends_with("_model_states.pt")) {
                    self.lacks("the states of the model are missing".to_owned());
                }
                self.every_file(path, "_optim_states.pt");
            }
            Layout::Megatron => self.megatron(path),
            Layout::Safetensors => self.index(path),
            Layout::Torch => self.every_file(path, "rank"),
            Layout::Orbax => self.orbax(path),
        }
        if matches!(
            candidate.layout,
            Layout::Trainer | Layout::Safetensors | Layout::Torch | Layout::Accelerate
        ) {
            self.texts(path);
        }
        if self.hash {
            self.manifest(path);
        }
    }

    /// JSON files that a load reads are intact; a model in parts has its index.
    fn texts(&mut self, path: &Path) {
        let all = self.list(path);
        let is_part = |name: &str| name.contains("-of-") && name.ends_with(".safetensors");
        if all.iter().any(|(name, _)| is_part(name))
            && !all.iter().any(|(name, _)| name.ends_with(".safetensors.index.json"))
        {
            self.lacks("model.safetensors.index.json is missing, and the model is in parts".to_owned());
        }
        let is_text =
            |name: &str| name.rsplit_once('.').is_some_and(|(_, end)| end == "json") && !IDLE.contains(&name);
        for (name, path) in all.iter().filter(|(name, path)| is_text(name) && path.is_file()) {
            if let Err(Soundness::Incomplete(why)) = json(path) {
                self.lacks(if why.contains(name.as_str()) { why } else { format!("{name}: {why}") });
            }
        }
    }

    /// Every file of the folder is intact, and rank files are numbered without gaps.
    fn every_file(&mut self, path: &Path, of_rank: &str) {
        let all = self.list(path);
        let mut ranks = BTreeSet::new();
        let mut n = 0;
        for (name, path) in &all {
            if name.contains(of_rank) {
                ranks.extend(rank_number(name));
                self.rank_files += 1;
            }
            let is_saved = TORCH.iter().any(|end| name.ends_with(end))
                || [".pkl", ".safetensors"].iter().any(|end| name.ends_with(end));
            if is_saved && path.is_file() {
                n += 1;
                self.file(path);
            }
        }
        if n == 0 {
            self.lacks("it contains no saved file".to_owned());
        }
        let gap = ranks.iter().enumerate().find(|(at, rank)| *at as u64 != **rank);
        if let Some((at, _)) = gap {
            self.lacks(format!("the file of rank {at} is missing"));
        }
    }

    fn trainer(&mut self, path: &Path) {
        let all = self.list(path);
        match json(&path.join("trainer_state.json")) {
            Ok(state) => self.step = state.get("global_step").and_then(Json::as_u64),
            // It is written last.
            Err(soundness) => return self.note(soundness),
        }
        let has = |wanted: &str| all.iter().any(|(name, _)| name == wanted);
        if has("model.safetensors.index.json") {
            self.index(path);
        }
        if has(".metadata") {
            self.dcp(path);
        }
        let mut ranks = BTreeSet::new();
        for (name, path) in &all {
            if path.is_dir() {
                // Sharded model and optimizer, or DeepSpeed's tag.
                match folder(name, path) {
                    Some(below) if below.layout == Layout::Dcp => self.dcp(path),
                    Some(below) if below.layout == Layout::DeepSpeed => {
                        self.every_file(path, "_optim_states.pt");
                    }
                    _ => {}
                }
                continue;
            }
            if name.starts_with("rng_state_") {
                ranks.extend(rank_number(name));
                self.rank_files += 1;
            }
            let is_saved = TORCH.iter().any(|end| name.ends_with(end)) || name.ends_with(".safetensors");
            if is_saved {
                self.file(path);
            }
        }
        if let Some((at, _)) = ranks.iter().enumerate().find(|(at, rank)| *at as u64 != **rank) {
            self.lacks(format!("rng_state_{at}.pth is missing"));
        }
    }

    fn megatron(&mut self, path: &Path) {
        let all = self.list(path);
        let has = |wanted: &str| all.iter().any(|(name, _)| name == wanted);
        if has(".metadata") || has("metadata.json") || all.iter().any(|(name, _)| name.ends_with(".distcp")) {
            // Megatron writes it after all ranks have reported, and refuses a folder without it.
            if let Err(soundness) = json(&path.join("metadata.json")) {
                self.note(soundness);
            }
            if has(".metadata.bck") && !has(".metadata") {
                return self.lacks("`.metadata` is missing; `.metadata.bck` is its copy".to_owned());
            }
            if has("common.pt") {
                self.file(&path.join("common.pt"));
            }
            return self.dcp(path);
        }
        let mut n = 0;
        for (name, path) in all.iter().filter(|(name, path)| name.starts_with("mp_rank_") && path.is_dir()) {
            n += 1;
            let below = self.list(path);
            if below.is_empty() {
                self.lacks(format!("{name} is empty"));
            }
            for (_, file) in below.iter().filter(|(_, file)| file.is_file()) {
                self.file(file);
            }
        }
        self.rank_files = n;
        if n == 0 {
            self.lacks("it contains no mp_rank_ folder".to_owned());
        }
    }

    /// A model in shards: the index is written last.
    fn index(&mut self, path: &Path) {
        let index = match json(&path.join("model.safetensors.index.json")) {
            Ok(index) => index,
            Err(soundness) => return self.note(soundness),
        };
        let weights = index.get("weight_map").and_then(Json::as_object);
        let shards: BTreeSet<&str> =
            weights.into_iter().flat_map(|map| map.values()).filter_map(Json::as_str).collect();
        if shards.is_empty() {
            self.lacks("its index names no file".to_owned());
        }
        for shard in shards {
            if shard.contains('/') || shard.contains("..") {
                self.lacks(format!("its index names {shard}, which is missing"));
                continue;
            }
            self.file(&path.join(shard));
        }
    }

    fn orbax(&mut self, path: &Path) {
        match json(&path.join("_CHECKPOINT_METADATA")) {
            Ok(metadata) => {
                if metadata.get("commit_timestamp_nsecs").is_none_or(Json::is_null) {
                    self.lacks("it was not committed".to_owned());
                }
            }
            Err(soundness) => self.note(soundness),
        }
        for (name, item) in self.list(path).iter().filter(|(_, path)| path.is_dir()) {
            self.item(name, item);
        }
    }

    /// One item of an Orbax checkpoint: checks its JSON files and the manifest of its database, and that no file is
    /// empty. The expected lengths of the other database files are stored only inside the database's tree.
    fn item(&mut self, item: &str, path: &Path) {
        for text in ["_METADATA", "_sharding"] {
            if path.join(text).exists()
                && let Err(Soundness::Incomplete(why)) = json(&path.join(text))
            {
                self.lacks(format!("{item}: {why}"));
            }
        }
        let has_data = path.join("d").is_dir() || path.join("_METADATA").is_file();
        match whole_manifest(&path.join("manifest.ocdbt")) {
            Ok(true) => {}
            Ok(false) => self.lacks(format!("{item}/manifest.ocdbt is truncated")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if has_data && path.join("d").is_dir() {
                    self.lacks(format!("{item}/manifest.ocdbt is missing"));
                }
            }
            Err(error) => self.note(unread(&path.join("manifest.ocdbt"), &error)),
        }
        let mut folders = vec![path.join("d")];
        let of_ranks = self.list(path).into_iter().filter(|(name, _)| name.starts_with("ocdbt.process_"));
        folders.extend(of_ranks.map(|(_, path)| path.join("d")));
        for (name, file) in folders.iter().flat_map(|folder| entries(folder).unwrap_or_default()) {
            if fs::metadata(&file).is_ok_and(|metadata| metadata.is_file() && metadata.len() == 0) {
                self.lacks(format!("{item}: {name} is empty"));
            }
        }
    }

    /// Shards and `.metadata`, which lists the byte range of each tensor in its shard.
    fn dcp(&mut self, path: &Path) {
        let all = self.list(path);
        let of_ranks: Vec<&(String, PathBuf)> =
            all.iter().filter(|(name, _)| name.starts_with("__") && name.ends_with(".metadata")).collect();
        let own = path.join(".metadata");
        let metadata: Vec<PathBuf> = if own.exists() || of_ranks.is_empty() {
            vec![own]
        } else {
            of_ranks.iter().map(|(_, path)| path.clone()).collect()
        };
        let mut lengths: BTreeMap<String, u64> = BTreeMap::new();
        for file in &metadata {
            match shards(file) {
                Ok(named) => {
                    for (name, end) in named {
                        let length = lengths.entry(name).or_default();
                        *length = end.max(*length);
                    }
                }
                Err(soundness) => return self.note(soundness),
            }
        }
        let written = metadata.iter().filter_map(|path| modified(path)).max();
        for (name, length) in &lengths {
            if name.starts_with('/') || name.contains("..") {
                self.lacks(format!(".metadata names {name}, which is missing"));
                continue;
            }
            self.shard(&path.join(name), name, *length, written);
        }
    }

    fn shard(&mut self, path: &Path, name: &str, length: u64, written: Option<SystemTime>) {
        let metadata = match fs::metadata(path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return self.lacks(format!("{name} is missing"));
            }
            Err(error) => return self.note(unread(path, &error)),
        };
        if metadata.len() < length {
            return self.lacks(format!("{name} has {} bytes instead of {length}", metadata.len()));
        }
        if metadata.len() > length {
            self.note(Soundness::Doubtful(format!(
                "{name} has {} bytes, but .metadata requires {length}",
                metadata.len()
            )));
        }
        let is_newer = metadata
            .modified()
            .ok()
            .zip(written)
            .is_some_and(|(shard, all)| shard.duration_since(all).is_ok_and(|later| later > COPY_NOISE));
        if is_newer {
            self.note(Soundness::Doubtful(format!(
                "{name} is newer than .metadata: it may have been overwritten"
            )));
        }
        // A hole at the end of a shard is visible in its last bytes.
        if length >= 4 && ends_with_zeros(path, length).unwrap_or(false) {
            self.note(Soundness::Doubtful(format!("{name} ends with zeros")));
        }
    }

    /// Compares with `SHA256SUMS`, as written by sha256sum, if there is one.
    fn manifest(&mut self, path: &Path) {
        let Ok(text) = fs::read_to_string(path.join("SHA256SUMS")) else { return };
        for line in text.lines().take(100_000) {
            let Some((sum, name)) = line.split_once(char::is_whitespace) else { continue };
            let name = name.trim_start_matches([' ', '*']);
            if name.contains("..") || name.starts_with('/') {
                continue;
            }
            match sha256(&path.join(name)) {
                Ok(found) if found.eq_ignore_ascii_case(sum) => {}
                Ok(_) => self.lacks(format!("{name} differs from SHA256SUMS")),
                Err(error) => self.note(unread(&path.join(name), &error)),
            }
        }
    }
}

/// Whether an OCDBT manifest (TensorStore) has the length that it states: 4 bytes of magic, big-endian, then its length
/// in 8 bytes, little-endian.
fn whole_manifest(path: &Path) -> io::Result<bool> {
    let mut head = [0; 12];
    let mut file = File::open(path)?;
    let length = file.metadata()?.len();
    if length < 12 {
        return Ok(false);
    }
    file.read_exact(&mut head)?;
    let (magic, rest) = head.split_at(4);
    let said = rest.try_into().map_or(u64::MAX, u64::from_le_bytes);
    Ok(magic == [0x0c, 0xdb, 0x3a, 0x2a] && said <= length)
}

fn sha256(path: &Path) -> io::Result<String> {
    use sha2::Digest as _;
    use std::fmt::Write as _;
    let mut hasher = sha2::Sha256::new();
    io::copy(&mut File::open(path)?, &mut hasher)?;
    let mut out = String::new();
    for byte in hasher.finalize() {
        // Writing to a String cannot fail.
        let _ = write!(out, "{byte:02x}");
    }
    Ok(out)
}

fn ends_with_zeros(path: &Path, length: u64) -> io::Result<bool> {
    use std::os::unix::fs::FileExt as _;
    let n = length.min(4096);
    let mut tail = vec![0; n as usize];
    File::open(path)?.read_exact_at(&mut tail, length - n)?;
    Ok(n >= 22 && tail.iter().all(|byte| *byte == 0))
}

/// The files named in a `.metadata`, each with the end of its last byte range.
fn shards(path: &Path) -> Result<Vec<(String, u64)>, Soundness> {
    let file = File::open(path).map_err(|error| unread(path, &error))?;
    let mut bytes = Vec::new();
    file.take(MAX_METADATA).read_to_end(&mut bytes).map_err(|error| unread(path, &error))?;
    let tree = pickle::read(&bytes).map_err(|why| Soundness::Incomplete(format!(".metadata: {why}")))?;
    let part = |value: &PickleValue| {
        let class = tree.class(value)?;
        if !class.ends_with("_StorageInfo") {
            return None;
        }
        let name = tree.text(tree.field(value, "relative_path")?)?.to_owned();
        let offset = u64::try_from(tree.int(tree.field(value, "offset")?)?).ok()?;
        let length = u64::try_from(tree.int(tree.field(value, "length")?)?).ok()?;
        Some((name, offset.checked_add(length)?))
    };
    Ok(tree.values().iter().filter_map(part).collect())
}

/// The rank in `zero_pp_rank_3_mp_rank_00_optim_states.pt`, `rng_state_3.pth`, `random_states_3.pkl`, `model-rank3.pt`.
fn rank_number(name: &str) -> Option<u64> {
    let digits = ["pp_rank_", "rng_state_", "random_states_", "rank"].iter().find_map(|word| {
        let behind = name.get(name.find(word)? + word.len()..)?;
        Some(behind.trim_start_matches(['_', '-']))
    })?;
    let n = digits.bytes().take_while(u8::is_ascii_digit).count();
    digits.get(..n)?.parse().ok()
}

/// The pointer file of the folder, and its content.
pub(super) fn pointer(dir: &Path) -> Option<(PathBuf, String)> {
    for name in ["latest", "latest_checkpointed_iteration.txt", "latest_universal"] {
        let path = dir.join(name);
        if let Ok(target) = fs::read_link(&path) {
            return Some((path, target.display().to_string()));
        }
        let Ok(file) = File::open(&path) else { continue };
        let mut text = String::new();
        if file.take(MAX_POINTER).read_to_string(&mut text).is_ok() {
            return Some((path, text.trim().to_owned()));
        }
    }
    None
}

/// Whether the content of a pointer file means this checkpoint.
pub(super) fn is_named(word: &str, found: &FoundCheckpoint) -> bool {
    let name = found.path.file_name().unwrap_or_default().to_string_lossy();
    let word = word.trim_end_matches('/').rsplit('/').next().unwrap_or_default();
    word == name || found.step.is_some() && word.parse().ok() == found.step
}
