//! Interned names, each classified once.

use ringleader_model::{RuntimeCall, WorkKind};

use super::kinds;
use crate::ground::intern::{Index, hash_of};

/// Most names of one file. Programs that number their annotations have many.
const MAX_NAMES: usize = 1 << 20;
/// Longest name that is kept, bytes: templates of C++ run to thousands.
const MAX_NAME_BYTES: usize = 400;

/// What a name means, whatever it is the name of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Meaning {
    pub(super) is_comm: bool,
    pub(super) runtime: RuntimeCall,
    pub(super) copy: WorkKind,
}

/// The names of one file.
#[derive(Debug, Default)]
pub(super) struct InternedNames {
    index: Index,
    all: Vec<Box<str>>,
    /// What the bytes were, where they differ from the name.
    hashes: Vec<u64>,
    meanings: Vec<Meaning>,
}

impl InternedNames {
    /// The index of a name.
    #[inline]
    pub(super) fn of(&mut self, bytes: &[u8]) -> u32 {
        let hash = hash_of(bytes);
        let next = self.all.len() as u32;
        let hashes = &self.hashes;
        let names = &self.all;
        let place = self.index.place(hash, next, |at| {
            let at = at as usize;
            hashes.get(at) == Some(&hash)
                && names.get(at).is_some_and(|name| {
                    let same = name.len().min(bytes.len()).min(32);
                    bytes.contains(&b'\\') || name.as_bytes().get(..same) == bytes.get(..same)
                })
        });
        if place == next {
            if self.all.len() >= MAX_NAMES {
                return 0;
            }
            self.add(bytes, hash);
        }
        place
    }

    #[cold]
    fn add(&mut self, bytes: &[u8], hash: u64) {
        let text = crate::ground::lossy(bytes.get(..MAX_NAME_BYTES).unwrap_or(bytes));
        let text =
            if text.contains('\\') { text.replace("\\\"", "\"").replace("\\\\", "\\") } else { text.into() };
        self.meanings.push(Meaning {
            is_comm: kinds::is_comm_kernel(&text),
            runtime: kinds::runtime_call(&text),
            copy: kinds::copy(&text),
        });
        self.all.push(text.into());
        self.hashes.push(hash);
    }

    pub(super) fn meaning(&self, at: u32) -> Meaning {
        const NOTHING: Meaning =
            Meaning { is_comm: false, runtime: RuntimeCall::Other, copy: WorkKind::Fill };
        self.meanings.get(at as usize).copied().unwrap_or(NOTHING)
    }

    pub(super) fn name(&self, at: u32) -> &str {
        self.all.get(at as usize).map_or("", |name| name)
    }

    pub(super) fn into_names(self) -> Vec<Box<str>> {
        self.all
    }
}
