//! NCCL's names as one-byte codes.
//!
//! The lists follow the order of NCCL's enumerations in 2.23, whose interface 1 sends the numbers themselves; newer
//! names follow at the end. A code is one more than the index in its list; 0 is no name, and codes from 128 on are
//! indices into the file's own region of names. Source: `src/collectives.cc` and `src/include/nccl_common.h` of NCCL.

/// Names of NCCL's functions.
pub const FUNCTIONS: &[&str] = &[
    "Broadcast",
    "Reduce",
    "AllGather",
    "ReduceScatter",
    "AllReduce",
    "SendRecv",
    "Send",
    "Recv",
    "AlltoAll",
    "Scatter",
    "Gather",
    "AllGatherV",
    "PutSignal",
    "Signal",
    "WaitSignal",
];
/// Types of elements.
pub const DATATYPES: &[&str] = &[
    "ncclInt8",
    "ncclUint8",
    "ncclInt32",
    "ncclUint32",
    "ncclInt64",
    "ncclUint64",
    "ncclFloat16",
    "ncclFloat32",
    "ncclFloat64",
    "ncclBfloat16",
    "ncclFloat8e4m3",
    "ncclFloat8e5m2",
];
/// Algorithms. `CE` is this project's name for copies by the GPU's copy engines.
pub const ALGORITHMS: &[&str] =
    &["TREE", "RING", "COLLNET_DIRECT", "COLLNET_CHAIN", "NVLS", "NVLS_TREE", "PAT", "Unknown", "CE"];
/// Protocols.
pub const PROTOCOLS: &[&str] = &["LL", "LL128", "SIMPLE", "Unknown"];

/// Code of the function `Broadcast`.
pub(crate) const BROADCAST: u8 = 1;
/// Code of the algorithm `Unknown`: symmetric kernels, which report no channels.
pub(crate) const ALGORITHM_UNKNOWN: u8 = 8;
/// Code of the algorithm `CE`.
pub const ALGORITHM_CE: u8 = 9;

/// NCCL names every type but one: `ncclDatatypeToString` of 2.23 to 2.32 lacks ncclUint8 and returns this instead.
const UNKNOWN: Key = key(b"Unknown");
/// Code of the type `ncclUint8`.
const UINT8: u8 = 2;

/// First code of a name in the file's own region.
pub(crate) const OWN: u8 = 128;

/// The list of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameKind {
    /// `FUNCTIONS`.
    Function,
    /// `DATATYPES`.
    Datatype,
    /// `ALGORITHMS`.
    Algorithm,
    /// `PROTOCOLS`.
    Protocol,
}

/// A name as four words: up to 31 bytes, the rest 0.
pub type Key = [u64; 4];

/// Longest name in a key, bytes, without the closing 0.
pub const KEY_BYTES: usize = 31;

/// The key of a text; longer texts are cut.
pub const fn key(text: &[u8]) -> Key {
    let mut words = [0_u64; 4];
    let mut rest = text;
    let mut at = 0;
    while let [byte, tail @ ..] = rest {
        if at >= KEY_BYTES {
            break;
        }
        let shift = (at % 8) * 8;
        let bits = (*byte as u64) << shift;
        match at / 8 {
            0 => words[0] |= bits,
            1 => words[1] |= bits,
            2 => words[2] |= bits,
            _ => words[3] |= bits,
        }
        rest = tail;
        at += 1;
    }
    words
}

const fn keys<const N: usize>(list: &[&str]) -> [Key; N] {
    let mut made = [[0; 4]; N];
    let mut rest = list;
    let mut left: &mut [Key] = &mut made;
    while let ([name, names @ ..], [place, places @ ..]) = (rest, left) {
        *place = key(name.as_bytes());
        rest = names;
        left = places;
    }
    made
}

static FUNCTION_KEYS: [Key; 15] = keys(FUNCTIONS);
static DATATYPE_KEYS: [Key; 12] = keys(DATATYPES);
static ALGORITHM_KEYS: [Key; 9] = keys(ALGORITHMS);
static PROTOCOL_KEYS: [Key; 4] = keys(PROTOCOLS);

impl NameKind {
    pub(crate) fn list(self) -> &'static [&'static str] {
        match self {
            Self::Function => FUNCTIONS,
            Self::Datatype => DATATYPES,
            Self::Algorithm => ALGORITHMS,
            Self::Protocol => PROTOCOLS,
        }
    }

    fn keys(self) -> &'static [Key] {
        match self {
            Self::Function => &FUNCTION_KEYS,
            Self::Datatype => &DATATYPE_KEYS,
            Self::Algorithm => &ALGORITHM_KEYS,
            Self::Protocol => &PROTOCOL_KEYS,
        }
    }

    /// The code of a name in the lists.
    pub(crate) fn code(self, name: &Key) -> Option<u8> {
        if *name == UNKNOWN && matches!(self, Self::Datatype) {
            return Some(UINT8);
        }
        self.keys().iter().position(|known| known == name).map(|at| at as u8 + 1)
    }

    /// The name of a code in the lists.
    pub(crate) fn key_of(self, code: u8) -> Option<&'static Key> {
        usize::from(code).checked_sub(1).and_then(|at| self.keys().get(at))
    }
}

/// Bytes of one element, by the code of its type; 0 if unknown.
pub(crate) fn element_bytes(datatype: u8) -> u64 {
    match datatype {
        1 | 2 | 11 | 12 => 1,
        7 | 10 => 2,
        3 | 4 | 8 => 4,
        5 | 6 | 9 => 8,
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::{ALGORITHM_CE, ALGORITHM_UNKNOWN, BROADCAST, DATATYPES, NameKind, element_bytes, key};
    use crate::CallArgs;

    #[test]
    fn every_known_name_has_its_own_code() {
        for kind in [NameKind::Function, NameKind::Datatype, NameKind::Algorithm, NameKind::Protocol] {
            for (at, name) in kind.list().iter().enumerate() {
                assert_eq!(kind.code(&key(name.as_bytes())), Some(at as u8 + 1), "{name}");
            }
            assert_eq!(kind.code(&key(b"AllReduceX")), None);
        }
        assert_eq!(NameKind::Datatype.code(&key(b"Unknown")), NameKind::Datatype.code(&key(b"ncclUint8")));
        assert_eq!(NameKind::Function.code(&key(b"Broadcast")), Some(BROADCAST));
        assert_eq!(NameKind::Algorithm.code(&key(b"CE")), Some(ALGORITHM_CE));
        assert_eq!(NameKind::Algorithm.code(&key(b"Unknown")), Some(ALGORITHM_UNKNOWN));
    }

    #[test]
    fn sizes_by_code_and_by_name_agree() {
        for (at, name) in DATATYPES.iter().enumerate() {
            let call = CallArgs { datatype: (*name).to_owned(), ..CallArgs::default() };
            assert_eq!(call.element_bytes(), Some(element_bytes(at as u8 + 1)), "{name}");
        }
    }
}
