//! From bytes to observations. One module per format; content decides which reads what, never a file's name.
//!
//! A reader never fails: what it cannot read becomes a [`Note`] with its place, and what came before stays. It opens
//! no file: the caller hands it a stream, so that archives, bundles and standard input take the same path.

mod archive;
mod bench;
mod bundle;
mod clock;
mod document;
mod environment;
mod fabric;
mod flight;
mod gpu;
mod intern;
mod kernel;
mod nccl;
mod node;
mod ras;
mod ring;
mod sink;
mod sniff;
mod stacks;
mod system;
mod tables;
#[cfg(test)]
mod tell;
mod text;
mod torch;
mod watch;

use std::io::Read;

use ringleader_model::{Case, Note, Observation, Source};

pub use crate::sink::Limits;

/// What was read from one file: one source, or several if it is an archive.
#[derive(Debug, Default)]
pub struct Extract {
    /// Sources; ids of observations and notes count from 0 within this extract until [`merge`].
    pub sources: Vec<Source>,
    /// Observations.
    pub observations: Vec<Observation>,
    /// Notes.
    pub notes: Vec<Note>,
}

/// What is kept from file to file: buffers, and what files of one job share.
#[derive(Debug, Default)]
pub struct Scratch {
    pub(crate) block: Vec<u8>,
    pub(crate) whole: document::Whole,
    pub(crate) dumps: flight::Before,
}

/// Reads one file, archive or stream. `path` is what citations will show.
///
/// Memory stays within the size of a binary dump, or a block of a text file, plus what is kept of its content.
pub fn read(path: &str, input: &mut dyn Read, scratch: &mut Scratch, limits: &Limits) -> Extract {
    let mut extract = Extract::default();
    archive::read_any(path, input, scratch, limits, &mut extract);
    extract
}

/// Joins extracts into a case, in an order that depends on their content and paths alone, never on the order given.
pub fn merge(mut extracts: Vec<Extract>) -> Case {
    extracts.sort_by(|a, b| {
        let [a, b] = [a, b].map(|e| e.sources.first().map_or("", |s| s.path.as_str()));
        a.cmp(b)
    });
    let mut case = Case::default();
    for mut extract in extracts {
        let base = case.sources.len() as u32;
        for observation in &mut extract.observations {
            observation.cite.source.0 += base;
            sink::shift_sources(&mut observation.fact, base);
        }
        for note in &mut extract.notes {
            note.cite.source.0 += base;
        }
        case.sources.append(&mut extract.sources);
        case.observations.append(&mut extract.observations);
        case.notes.append(&mut extract.notes);
    }
    case
}
