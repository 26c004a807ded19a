//! A digest as bytes: four letters, one for the kind, then JSON packed with zstd. Bounded both ways.

use std::io::Read;

use ringleader_watch::digest::{Digest, SCHEMA};

/// Bytes of one packed digest. etcd refuses a request above 1.5 MiB; a digest of 8 ranks takes a few KiB.
pub const MAX_DIGEST_BYTES: usize = 128 << 10;
/// Bytes of one unpacked digest: a packed one that says more is refused, whatever it would be.
pub const MAX_UNPACKED_BYTES: usize = 8 << 20;

/// The format and its major version.
const MAGIC: [u8; 4] = *b"RLD1";
/// Level 1 packs nearly as well as 3 in half the time; docs/hub.md has the numbers.
const LEVEL: i32 = 1;

/// What lies under the key or in the file of a node.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Word {
    /// Its newest digest.
    Digest(Box<Digest>),
    /// It has left in good order.
    Bye,
}

/// Why bytes are no digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// Not ours, or of another major version.
    #[error("not a digest of this version")]
    Magic,
    /// More than the bound.
    #[error("longer than a digest may be")]
    TooLong,
    /// Damaged.
    #[error("damaged: {0}")]
    Damaged(String),
}

/// Packs a digest; what is too long is made shorter step by step, which its notes then say. Errors: the length in bytes
/// that is left when nothing more can be left out.
pub(crate) fn pack(digest: &Digest) -> Result<Vec<u8>, usize> {
    let mut bytes = packed(digest);
    if bytes.len() <= MAX_DIGEST_BYTES {
        return Ok(bytes);
    }
    let mut shorter = digest.clone();
    for step in 0..3 {
        let note = match step {
            0 => {
                for comm in shorter.ranks.iter_mut().flat_map(|rank| &mut rank.comms) {
                    comm.recent.clear();
                }
                "left out of the digest, which was too long: ended operations"
            }
            1 => {
                for rank in &mut shorter.ranks {
                    rank.comms.retain(|comm| !comm.is_ended);
                }
                "left out of the digest, which was too long: ended communicators"
            }
            _ => {
                // Those that wait are what a verdict needs.
                for rank in &mut shorter.ranks {
                    rank.comms.retain(|comm| comm.n_in_flight > 0);
                }
                "left out of the digest, which was too long: communicators with nothing in flight"
            }
        };
        shorter.notes.push(note.to_owned());
        bytes = packed(&shorter);
        if bytes.len() <= MAX_DIGEST_BYTES {
            return Ok(bytes);
        }
    }
    Err(bytes.len())
}

fn packed(digest: &Digest) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(b'd');
    // Neither fails for plain data into memory; an empty body is refused by the reader.
    let json = serde_json::to_vec(digest).unwrap_or_default();
    bytes.extend(zstd::bulk::compress(&json, LEVEL).unwrap_or_default());
    bytes
}

/// The word of an agent that leaves.
pub(crate) fn bye() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(b'b');
    bytes
}

/// Whether these bytes say goodbye, without unpacking.
pub(crate) fn is_bye(bytes: &[u8]) -> bool {
    bytes.strip_prefix(&MAGIC) == Some(b"b")
}

/// Unpacks what [`pack`] made, or anything else without harm.
pub(crate) fn unpack(bytes: &[u8]) -> Result<Word, Unreadable> {
    if bytes.len() > MAX_DIGEST_BYTES {
        return Err(Unreadable::TooLong);
    }
    match bytes.strip_prefix(&MAGIC).and_then(|rest| rest.split_first()) {
        Some((b'b', [])) => Ok(Word::Bye),
        Some((b'd', body)) => {
            let damaged = |error: &dyn std::fmt::Display| Unreadable::Damaged(error.to_string());
            let mut json = Vec::new();
            let reader = zstd::stream::read::Decoder::with_buffer(body).map_err(|error| damaged(&error))?;
            reader
                .take(MAX_UNPACKED_BYTES as u64 + 1)
                .read_to_end(&mut json)
                .map_err(|error| damaged(&error))?;
            if json.len() > MAX_UNPACKED_BYTES {
                return Err(Unreadable::TooLong);
            }
            let digest: Digest = serde_json::from_slice(&json).map_err(|error| damaged(&error))?;
            if digest.schema != SCHEMA {
                return Err(Unreadable::Magic);
            }
            Ok(Word::Digest(Box::new(digest)))
        }
        _ => Err(Unreadable::Magic),
    }
}

/// What makes one digest news after another: all but its number, its time, and the processor time that always grows.
pub(crate) fn is_news(old: &Digest, new: &Digest) -> bool {
    old.agent != new.agent
        || old.node != new.node
        || old.notes != new.notes
        || old.ranks.len() != new.ranks.len()
        || old.ranks.iter().zip(&new.ranks).any(|(old, new)| {
            if old.cpu_ms == new.cpu_ms {
                return old != new;
            }
            let mut new = new.clone();
            new.cpu_ms = old.cpu_ms;
            *old != new
        })
}
