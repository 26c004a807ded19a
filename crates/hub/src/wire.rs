//! A digest as bytes: four letters, one for the kind, the shape of a digest, then postcard packed with zstd. Bounded both
//! ways.
//!
//! postcard names no fields, so both ends must agree on them. The shape is a number made of the names and the order of
//! all fields; a digest of another shape is refused, and the node that sent it named. All agents of a job run the same
//! program anyway.

use std::io::Read;
use std::sync::LazyLock;

use ringleader_watch::digest::{
    CommDigest, Digest, DoneDigest, OpDigest, PeriodDigest, RankDigest, SCHEMA, WaitDigest,
};

/// Bytes of one packed digest. etcd refuses a request above 1.5 MiB; a digest of 8 ranks takes a few KiB.
pub const MAX_DIGEST_BYTES: usize = 128 << 10;
/// Bytes of one unpacked digest: a packed one that says more is refused, whatever it would be.
pub const MAX_UNPACKED_BYTES: usize = 2 << 20;

/// The format and its major version.
const MAGIC: [u8; 4] = *b"RLD1";
/// Level 1 packs as well as 3; docs/hub.md has the numbers.
const LEVEL: i32 = 1;

/// FNV-1a over a digest with one of everything in it, as JSON: names, order and kind of all fields.
static SHAPE: LazyLock<[u8; 4]> = LazyLock::new(|| {
    let op = OpDigest { waits: vec![WaitDigest::default()], ..OpDigest::default() };
    let done = DoneDigest { longest_wait: Some(Default::default()), ..DoneDigest::default() };
    let comm = CommDigest {
        in_flight: vec![op],
        recent: vec![done],
        period: Some(PeriodDigest::default()),
        ..CommDigest::default()
    };
    let rank = RankDigest { comms: vec![comm], ..RankDigest::default() };
    let digest = Digest { ranks: vec![rank], ..Digest::default() };
    let json = serde_json::to_vec(&digest).unwrap_or_default();
    let hash =
        json.iter().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
    hash.to_le_bytes()
});

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
    /// Not ours.
    #[error("not a digest")]
    Magic,
    /// Of another version of the program.
    #[error("a digest of another version of ringleader")]
    Version,
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
    bytes.extend(*SHAPE);
    // Neither fails for plain data into memory; an empty body is refused by the reader.
    let body = postcard::to_stdvec(digest).unwrap_or_default();
    bytes.extend(zstd::bulk::compress(&body, LEVEL).unwrap_or_default());
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
            let Some((shape, body)) = body.split_first_chunk() else {
                return Err(Unreadable::Damaged("it is cut".to_owned()));
            };
            if shape != &*SHAPE {
                return Err(Unreadable::Version);
            }
            let mut plain = Vec::new();
            let reader = zstd::stream::read::Decoder::with_buffer(body).map_err(|error| damaged(&error))?;
            reader
                .take(MAX_UNPACKED_BYTES as u64 + 1)
                .read_to_end(&mut plain)
                .map_err(|error| damaged(&error))?;
            if plain.len() > MAX_UNPACKED_BYTES {
                return Err(Unreadable::TooLong);
            }
            let (digest, rest) =
                postcard::take_from_bytes::<Digest>(&plain).map_err(|error| damaged(&error))?;
            if !rest.is_empty() {
                return Err(Unreadable::Damaged("something follows it".to_owned()));
            }
            if digest.schema != SCHEMA {
                return Err(Unreadable::Version);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n_comms: u64, n_recent: u64) -> Digest {
        let comm = |number: u64| CommDigest {
            id: format!("{number:x}"),
            is_ended: number % 2 == 1,
            n_in_flight: u32::from(number.is_multiple_of(64)),
            recent: (0..n_recent)
                .map(|at| DoneDigest {
                    // Does not pack.
                    ran_ns: (number * 7919 + at).wrapping_mul(0x9e37_79b9_7f4a_7c15),
                    longest_wait: Some(("recv-net".to_owned(), 3, at)),
                    ..DoneDigest::default()
                })
                .collect(),
            ..CommDigest::default()
        };
        Digest {
            schema: SCHEMA.to_owned(),
            node: "n".to_owned(),
            ranks: vec![RankDigest {
                comms: (0..n_comms).map(comm).collect(),
                wchan: Some("x".to_owned()),
                ..RankDigest::default()
            }],
            ..Digest::default()
        }
    }

    #[test]
    fn there_and_back() {
        let digest = digest(4, 16);
        assert_eq!(unpack(&pack(&digest).unwrap()).unwrap(), Word::Digest(Box::new(digest)));
        assert_eq!(unpack(&bye()).unwrap(), Word::Bye);
        assert!(is_bye(&bye()) && !is_bye(b"RLD1d"));
    }

    #[test]
    fn what_is_too_long_is_made_shorter() {
        let left = |digest: &Digest| {
            let Ok(Word::Digest(digest)) = unpack(&pack(digest).unwrap()) else { panic!() };
            let comms = &digest.ranks[0].comms;
            (comms.len(), comms.iter().map(|comm| comm.recent.len()).sum::<usize>(), digest.notes.len())
        };
        assert_eq!(left(&digest(64, 16)), (64, 1024, 0));
        assert_eq!(left(&digest(2_000, 16)), (2_000, 0, 1));
        // Names that do not pack either.
        let mut wide = digest(4_000, 0);
        for comm in &mut wide.ranks[0].comms {
            let mut x = u64::from_str_radix(&comm.id, 16).unwrap() + 1;
            comm.name = (0..10)
                .map(|_| {
                    x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
                    format!("{x:x}")
                })
                .collect();
        }
        assert_eq!(left(&wide), (63, 0, 3));
        wide.ranks[0].comms.iter_mut().for_each(|comm| comm.n_in_flight = 1);
        wide.ranks[0].comms.iter_mut().for_each(|comm| comm.is_ended = false);
        assert!(pack(&wide).unwrap_err() > MAX_DIGEST_BYTES);
    }

    #[test]
    fn hostile_bytes() {
        let whole = pack(&digest(4, 16)).unwrap();
        for end in 0..whole.len() {
            assert!(unpack(&whole[..end]).is_err(), "cut at {end}");
        }
        for at in 0..whole.len() {
            let mut bytes = whole.clone();
            bytes[at] ^= 0x55;
            // Whatever it is now, it is read or refused.
            unpack(&bytes).ok();
        }
        let mut other = whole.clone();
        other[5] ^= 1;
        assert_eq!(unpack(&other), Err(Unreadable::Version));
        let bomb =
            |body: &[u8]| [&MAGIC[..], b"d", &*SHAPE, &zstd::bulk::compress(body, 19).unwrap()].concat();
        assert_eq!(unpack(&bomb(&vec![0; 64 << 20])), Err(Unreadable::TooLong));
        // Lengths that are not there.
        assert!(matches!(unpack(&bomb(&[0xff; 64])), Err(Unreadable::Damaged(_))));
        assert_eq!(unpack(&vec![b'R'; MAX_DIGEST_BYTES + 1]), Err(Unreadable::TooLong));
    }

    #[test]
    fn news() {
        let old = digest(4, 4);
        let mut new = old.clone();
        (new.at_ns, new.sequence, new.ranks[0].cpu_ms) = (5, 5, Some(5));
        assert!(!is_news(&old, &new));
        new.ranks[0].comms[3].collectives += 1;
        assert!(is_news(&old, &new));
    }
}
