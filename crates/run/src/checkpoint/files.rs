//! Single files of a checkpoint.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use serde_json::Value as Json;

use super::Soundness;
use super::pickle::{self, PickleTree, PickleValue};
use super::zip::{self, ZipEntry, ZipError};

/// First bytes of a file that `torch.save` wrote before it used zip: a pickled number.
const LEGACY: [u8; 15] =
    [0x80, 0x02, 0x8a, 0x0a, 0x6c, 0xfc, 0x9c, 0x46, 0xf9, 0x20, 0x6a, 0xa8, 0x50, 0x19, 0x2e];
/// Longest `data.pkl` that is searched for a step, bytes.
const MAX_PICKLE: u64 = 64 << 20;
/// Longest header of a safetensors file: the format's own limit.
const MAX_HEADER: u64 = 100 << 20;
/// Longest JSON of a checkpoint that is read, bytes.
const MAX_JSON: u64 = 256 << 20;
/// Keys of a saved dictionary that hold its step, the most reliable first.
const STEPS: [&str; 6] = ["global_step", "global_steps", "step", "iteration", "iter", "num_steps"];

/// A file of a checkpoint: whether it is intact, and its step if it contains one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Examined {
    /// Whether it is intact.
    pub soundness: Soundness,
    /// The step that it contains.
    pub step: Option<u64>,
}

fn whole(step: Option<u64>) -> Examined {
    Examined { soundness: Soundness::Complete, step }
}

fn broken(why: String) -> Examined {
    Examined { soundness: Soundness::Incomplete(why), step: None }
}

/// A file system error says nothing about the checkpoint.
pub(crate) fn unread(path: &Path, error: &io::Error) -> Soundness {
    if error.kind() == io::ErrorKind::NotFound {
        return Soundness::Incomplete(format!("{} is missing", path.display()));
    }
    Soundness::Unproven(format!("{}: {error}", path.display()))
}

fn of_fault(path: &Path, fault: ZipError) -> Examined {
    match fault {
        ZipError::Damaged(why) => broken(why),
        ZipError::Foreign => {
            Examined { soundness: Soundness::Doubtful("unknown format".to_owned()), step: None }
        }
        ZipError::Read(error) => Examined { soundness: unread(path, &error), step: None },
    }
}

/// Examines a file of any kind that a checkpoint may have.
#[expect(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "frameworks write these endings in small letters"
)]
pub fn examine(path: &Path, hash: bool) -> Examined {
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) => return Examined { soundness: unread(path, &error), step: None },
    };
    if name.ends_with(".safetensors") {
        return safetensors(&mut file).map_or_else(|fault| of_fault(path, fault), |()| whole(None));
    }
    if name.ends_with(".json") {
        return match json(path) {
            Ok(value) => whole(value.get("global_step").and_then(Json::as_u64)),
            Err(soundness) => Examined { soundness, step: None },
        };
    }
    torch(&mut file, hash).map_or_else(|fault| of_fault(path, fault), whole)
}

/// Checks a file of `torch.save`; returns its step if it contains one. Errors: damage, or the file system's.
pub fn torch(file: &mut (impl Read + Seek), hash: bool) -> Result<Option<u64>, ZipError> {
    let mut head = [0; 15];
    file.seek(SeekFrom::Start(0))?;
    let n = file.read(&mut head)?;
    if n == 0 {
        return Err(ZipError::Damaged("the file is empty".to_owned()));
    }
    if head.get(..n) == Some(&LEGACY) {
        return legacy(file).map(|()| None);
    }
    if !head.starts_with(b"PK\x03\x04") {
        // Another kind of pickle, or a file of zeros after a power failure.
        if head.iter().all(|byte| *byte == 0) {
            return Err(ZipError::Damaged("the file begins with zeros".to_owned()));
        }
        if n < head.len() {
            return Err(ZipError::Damaged("the file is truncated".to_owned()));
        }
        return if head[0] == 0x80 { Ok(None) } else { Err(ZipError::Foreign) };
    }
    let entries = zip::directory(file)?;
    let data = entries.iter().find(|entry| entry.name.ends_with("/data.pkl"));
    for entry in &entries {
        zip::body(file, entry)?;
    }
    if hash {
        zip::checksums(file, &entries)?;
    }
    let Some(data) = data.filter(|data| data.is_stored) else { return Ok(None) };
    if data.size > MAX_PICKLE {
        return Ok(None);
    }
    let bytes = zip::bytes(file, data, MAX_PICKLE)?;
    let tree = pickle::read(&bytes).map_err(|why| ZipError::Damaged(format!("data.pkl: {why}")))?;
    Ok(step_of(&tree, file, &entries))
}

/// The step of a saved dictionary: a number at its top level, or a tensor with one element.
fn step_of(tree: &PickleTree, file: &mut (impl Read + Seek), entries: &[ZipEntry]) -> Option<u64> {
    let root = tree.root()?;
    STEPS.iter().find_map(|key| {
        let id = tree.field(root, key)?;
        match tree.get(id)? {
            PickleValue::Int(n) => u64::try_from(*n).ok(),
            PickleValue::Float(n) if n.fract() == 0.0 && *n >= 0.0 => Some(*n as u64),
            tensor @ PickleValue::Object { args, .. } if tree.class(tensor)?.contains("_rebuild_tensor") => {
                scalar(tree, tree.get(*args)?, file, entries)
            }
            _ => None,
        }
    })
}

fn scalar(
    tree: &PickleTree,
    args: &PickleValue,
    file: &mut (impl Read + Seek),
    entries: &[ZipEntry],
) -> Option<u64> {
    let PickleValue::Items(args) = args else { return None };
    let PickleValue::Persistent(of) = tree.get(*args.first()?)? else { return None };
    let PickleValue::Items(parts) = tree.get(*of)? else { return None };
    let kind = tree.text(*parts.get(1)?)?;
    let key = tree.text(*parts.get(2)?)?;
    let entry = entries.iter().find(|entry| entry.name.ends_with(&format!("/data/{key}")))?;
    let bytes = zip::bytes(file, entry, 8).ok()?;
    let number = match kind.rsplit('.').next()? {
        "LongStorage" => i64::from_le_bytes(bytes.get(..8)?.try_into().ok()?) as f64,
        "IntStorage" => f64::from(i32::from_le_bytes(bytes.get(..4)?.try_into().ok()?)),
        "FloatStorage" => f64::from(f32::from_le_bytes(bytes.get(..4)?.try_into().ok()?)),
        "DoubleStorage" => f64::from_le_bytes(bytes.get(..8)?.try_into().ok()?),
        _ => return None,
    };
    (number >= 0.0 && number.fract() == 0.0).then_some(number as u64)
}

/// The legacy format ends with the raw bytes of each storage, preceded by their length. Only the end can be missing. No
/// field says where the storages begin: five pickles precede them, and the last pickle names the storages.
fn legacy(file: &mut (impl Read + Seek)) -> Result<(), ZipError> {
    let len = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(0))?;
    let mut head = Vec::new();
    file.by_ref().take(MAX_PICKLE).read_to_end(&mut head)?;
    let mut rest = head.as_slice();
    let mut keys = 0;
    for n in 0..5 {
        let tree = pickle::read(rest).map_err(|why| ZipError::Damaged(format!("pickle {n} of 5: {why}")))?;
        rest = rest.get(tree.n_bytes()..).unwrap_or_default();
        if n == 4
            && let Some(PickleValue::Items(items)) = tree.root()
        {
            keys = items.len() as u64;
        }
    }
    // Each storage has eight bytes for its length and at least one byte.
    let left = len - (head.len() - rest.len()) as u64;
    if left < keys * 9 {
        return Err(ZipError::Damaged(format!("{keys} storages do not fit into the last {left} bytes")));
    }
    Ok(())
}

/// Checks a safetensors file: its header states its length. Errors: damage, or the file system's.
pub fn safetensors(file: &mut (impl Read + Seek)) -> Result<(), ZipError> {
    let len = file.seek(SeekFrom::End(0))?;
    if len < 8 {
        return Err(ZipError::Damaged(
            if len == 0 { "the file is empty" } else { "the file is truncated" }.to_owned(),
        ));
    }
    let head = zip::read(file, 0, 8)?;
    let n = head.try_into().map_or(0, u64::from_le_bytes);
    if n > MAX_HEADER || n + 8 > len {
        return Err(ZipError::Damaged("its header does not match the file".to_owned()));
    }
    let header = zip::read(file, 8, n)?;
    let header: Json = serde_json::from_slice(&header)
        .map_err(|error| ZipError::Damaged(format!("its header is damaged: {error}")))?;
    let Json::Object(tensors) = header else {
        return Err(ZipError::Damaged("its header is not a JSON object".to_owned()));
    };
    let ends = tensors.values().filter_map(|tensor| tensor.get("data_offsets")?.get(1)?.as_u64());
    let expected = (8 + n).saturating_add(ends.max().unwrap_or(0));
    if expected != len {
        return Err(ZipError::Damaged(format!("{len} bytes instead of {expected}")));
    }
    Ok(())
}

/// Reads JSON. Errors: absent, damaged, or unreadable.
pub(crate) fn json(path: &Path) -> Result<Json, Soundness> {
    let file = File::open(path).map_err(|error| unread(path, &error))?;
    let mut bytes = Vec::new();
    file.take(MAX_JSON).read_to_end(&mut bytes).map_err(|error| unread(path, &error))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    serde_json::from_slice(&bytes).map_err(|error| Soundness::Incomplete(format!("{name}: {error}")))
}
