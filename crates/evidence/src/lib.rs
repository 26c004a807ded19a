//! From bytes to observations. One module per format; content decides which reads what, never a file's name.
//!
//! A reader never fails: what it cannot read becomes a [`Note`](ringleader_model::Note) with its place, and what came before stays. It opens
//! no file: the caller hands it a stream, so that archives, bundles and standard input take the same path.
//! It executes nothing: a pickle is data.
//!
//! Formats and their versions end here: a new version of a format changes nothing above. Readers borrow, intern and
//! stream; dumps of one job share equal tables.

mod archive;
mod around;
mod document;
mod ground;
mod named;
mod readers;
mod scratch;
mod sniff;
#[cfg(test)]
mod tell;
mod text;

use std::io::Read;

use ringleader_model::Case;

pub use crate::around::{Around, Citation, around};
pub use crate::ground::{Extract, Limits};
pub use crate::scratch::Scratch;

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
            observation.fact.cites_mut(&mut |cite| cite.source.0 += base);
        }
        for note in &mut extract.notes {
            note.cite.source.0 += base;
        }
        case.sources.append(&mut extract.sources);
        case.observations.append(&mut extract.observations);
        case.notes.append(&mut extract.notes);
    }
    named::name_speakers(&mut case);
    case
}
