//! A digest as bytes: four bytes of magic, one for the kind, then JSON compressed with zstd. Its length is bounded
//! packed and unpacked. JSON names its fields and omits default values, so agents of neighbouring versions understand
//! each other.

use std::io::Read;

use ringleader_watch::digest::{Digest, RankDigest, SCHEMA};

/// Largest packed digest, bytes. etcd refuses a request above 1.5 MiB; a digest of 8 ranks takes a few KiB.
pub const MAX_DIGEST_BYTES: usize = 128 << 10;
/// Largest unpacked digest, bytes; anything longer is refused.
pub const MAX_UNPACKED_BYTES: usize = 4 << 20;

/// The format and its major version.
const MAGIC: [u8; 4] = *b"RLD1";
/// Level 1 compresses as well as level 3; docs/hub.md has the numbers.
const LEVEL: i32 = 1;

/// The content of a node's key or file.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum NodeRecord {
    /// The node's newest digest.
    Digest(Box<Digest>),
    /// The node has left in an orderly way.
    Bye,
}

/// Why bytes are not a digest.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// They lack the magic bytes.
    #[error("not a digest")]
    Magic,
    /// They come from another version of the program.
    #[error("a digest of another version of ringleader")]
    Version,
    /// They exceed the bound.
    #[error("longer than a digest may be")]
    TooLong,
    /// They are damaged.
    #[error("damaged: {0}")]
    Damaged(String),
}

/// Packs a digest. A digest that is too long is shortened step by step, and its notes say so. Errors: the remaining
/// length in bytes if nothing more can be left out.
pub(crate) fn pack(digest: &Digest) -> Result<Vec<u8>, usize> {
    let mut bytes = packed(digest);
    if bytes.len() <= MAX_DIGEST_BYTES {
        return Ok(bytes);
    }
    let mut shorter = digest.clone();
    for step in 0..3 {
        let note = match step {
            0 => {
                shorter = thin(&shorter);
                "left out of the digest, which was too long: ended operations"
            }
            1 => {
                for rank in &mut shorter.ranks {
                    rank.comms.retain(|comm| !comm.is_ended);
                }
                "left out of the digest, which was too long: ended communicators"
            }
            _ => {
                // A verdict needs the communicators that wait.
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

/// The digest without completed operations, which make up most of its length.
pub(crate) fn thin(digest: &Digest) -> Digest {
    let mut digest = digest.clone();
    for rank in &mut digest.ranks {
        rank.tcp = None;
        for comm in &mut rank.comms {
            comm.recent = Vec::new();
            comm.steps = Vec::new();
        }
    }
    digest
}

fn packed(digest: &Digest) -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(b'd');
    // Neither fails for plain data in memory; the reader refuses an empty body.
    let body = serde_json::to_vec(digest).unwrap_or_default();
    bytes.extend(zstd::bulk::compress(&body, LEVEL).unwrap_or_default());
    bytes
}

/// The goodbye of an agent that leaves.
pub(crate) fn bye() -> Vec<u8> {
    let mut bytes = MAGIC.to_vec();
    bytes.push(b'b');
    bytes
}

/// Whether these bytes are a goodbye, without unpacking.
pub(crate) fn is_bye(bytes: &[u8]) -> bool {
    bytes.strip_prefix(&MAGIC) == Some(b"b")
}

/// Unpacks what [`pack`] returned; any other input is refused safely.
pub(crate) fn unpack(bytes: &[u8]) -> Result<NodeRecord, Unreadable> {
    if bytes.len() > MAX_DIGEST_BYTES {
        return Err(Unreadable::TooLong);
    }
    match bytes.strip_prefix(&MAGIC).and_then(|rest| rest.split_first()) {
        Some((b'b', [])) => Ok(NodeRecord::Bye),
        Some((b'd', body)) => {
            let damaged = |error: &dyn std::fmt::Display| Unreadable::Damaged(error.to_string());
            let mut plain = Vec::new();
            let reader = zstd::stream::read::Decoder::with_buffer(body).map_err(|error| damaged(&error))?;
            reader
                .take(MAX_UNPACKED_BYTES as u64 + 1)
                .read_to_end(&mut plain)
                .map_err(|error| damaged(&error))?;
            if plain.len() > MAX_UNPACKED_BYTES {
                return Err(Unreadable::TooLong);
            }
            let digest: Digest = serde_json::from_slice(&plain).map_err(|error| damaged(&error))?;
            if digest.schema != SCHEMA {
                return Err(Unreadable::Version);
            }
            Ok(NodeRecord::Digest(Box::new(digest)))
        }
        _ => Err(Unreadable::Magic),
    }
}

/// Whether a digest contains news: a change of anything but its number, its time, and counts that always change.
pub(crate) fn is_news(old: &Digest, new: &Digest) -> bool {
    old.agent != new.agent
        || old.node != new.node
        || old.notes != new.notes
        || old.ranks.len() != new.ranks.len()
        || old.ranks.iter().zip(&new.ranks).any(|(old, new)| {
            let counts = |rank: &RankDigest| (rank.cpu_ms, rank.below_cpu_ms, rank.switches);
            if counts(old) == counts(new) && old.tcp == new.tcp {
                return old != new;
            }
            let mut new = new.clone();
            (new.cpu_ms, new.below_cpu_ms, new.switches) = (old.cpu_ms, old.below_cpu_ms, old.switches);
            new.tcp.clone_from(&old.tcp);
            *old != new
        })
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use ringleader_watch::digest::{CommDigest, DoneDigest, StepDigest, TcpDigest};

    use super::*;

    fn digest(n_comms: u64, n_recent: u64) -> Digest {
        let comm = |number: u64| CommDigest {
            id: format!("{number:x}"),
            is_ended: number % 2 == 1,
            n_in_flight: u32::from(number.is_multiple_of(64)),
            recent: (0..n_recent)
                .map(|at| DoneDigest {
                    // Does not compress.
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
        assert_eq!(unpack(&pack(&digest).unwrap()).unwrap(), NodeRecord::Digest(Box::new(digest)));
        assert_eq!(unpack(&bye()).unwrap(), NodeRecord::Bye);
        assert!(is_bye(&bye()) && !is_bye(b"RLD1d"));
    }

    #[test]
    fn what_is_too_long_is_made_shorter() {
        let left = |digest: &Digest| {
            let Ok(NodeRecord::Digest(digest)) = unpack(&pack(digest).unwrap()) else { panic!() };
            let comms = &digest.ranks[0].comms;
            (comms.len(), comms.iter().map(|comm| comm.recent.len()).sum::<usize>(), digest.notes.len())
        };
        assert_eq!(left(&digest(64, 16)), (64, 1024, 0));
        assert_eq!(left(&digest(2_000, 16)), (2_000, 0, 1));
        // Names that do not compress either.
        let mut wide = digest(4_000, 0);
        for comm in &mut wide.ranks[0].comms {
            let mut x = u64::from_str_radix(&comm.id, 16).unwrap() + 1;
            for _ in 0..10 {
                x = x.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23);
                let _ = write!(comm.name, "{x:x}");
            }
        }
        assert_eq!(left(&wide), (63, 0, 3));
        wide.ranks[0].comms.iter_mut().for_each(|comm| comm.n_in_flight = 1);
        wide.ranks[0].comms.iter_mut().for_each(|comm| comm.is_ended = false);
        assert!(pack(&wide).unwrap_err() > MAX_DIGEST_BYTES);
    }

    #[test]
    fn thin_digests_keep_what_is_in_flight() {
        let mut whole = digest(4, 16);
        whole.ranks[0].comms[0].steps = vec![StepDigest::default()];
        let before = whole.clone();
        whole.ranks[0].tcp = Some(TcpDigest { span_ms: 6000, ..TcpDigest::default() });
        assert!(!is_news(&before, &whole), "its counts are never the same twice");
        let thin = thin(&whole);
        whole.ranks[0].tcp = None;
        assert!(pack(&thin).unwrap().len() * 4 < pack(&whole).unwrap().len());
        for comm in whole.ranks.iter_mut().flat_map(|rank| &mut rank.comms) {
            (comm.recent, comm.steps) = (Vec::new(), Vec::new());
        }
        assert_eq!(thin, whole);
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
            // Whatever it contains now, it is read or refused.
            unpack(&bytes).ok();
        }
        let bomb = |body: &[u8]| [&MAGIC[..], b"d", &zstd::bulk::compress(body, 19).unwrap()].concat();
        assert_eq!(unpack(&bomb(&vec![0; 64 << 20])), Err(Unreadable::TooLong));
        assert!(matches!(unpack(&bomb(&vec![b'['; 1 << 20])), Err(Unreadable::Damaged(_))), "deeply nested");
        assert_eq!(unpack(&bomb(b"{}")), Err(Unreadable::Version));
        assert_eq!(unpack(&bomb(br#"{"schema":"ringleader.digest.v2"}"#)), Err(Unreadable::Version));
        let newer = br#"{"schema":"ringleader.digest.v1","node":"n","what":[1]}"#;
        assert!(matches!(unpack(&bomb(newer)), Ok(NodeRecord::Digest(digest)) if digest.node == "n"));
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
