//! The base of the readers: lines and documents as they arrive, and the sink for what is found.
//!
//! A reader imports from here and from its own files, from nothing else of this crate. Nothing here knows a reader.

pub(crate) mod clock;
mod document;
mod host;
pub(crate) mod intern;
mod kept;
mod line;
mod repair;
pub(crate) mod scan;
pub(crate) mod shell;
mod sink;
mod span;
pub(crate) mod stamp;
mod wants;

pub use self::sink::{Extract, Limits};

pub(crate) use self::document::Document;
pub(crate) use self::host::host_of;
pub(crate) use self::kept::{is_kept, is_plain, may_keep};
pub(crate) use self::line::{Line, LineReader, NoLines, Tag};
pub(crate) use self::repair::mend;
pub(crate) use self::sink::{CapReached, Sink, bounded_text, lossy, stop_kind};
pub(crate) use self::span::TableSpan;
pub(crate) use self::wants::Wants;
