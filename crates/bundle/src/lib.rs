//! A bundle: what was collected of a job, in one file, with a manifest that says of each item where it came from, when,
//! and what is missing of it.
//!
//! The file is a zstd-compressed tar. Items stand in it under their names, raw; the last member is [`MANIFEST`]. So a
//! bundle whose writer was killed still gives its items, and anybody's tar opens it. `diagnose` reads it as it reads
//! any archive: an item in a bundle says what the same bytes in a folder say.
//!
//! This crate touches no file: the caller hands it a stream to write to and streams to read from.

mod manifest;
mod writer;

pub use crate::manifest::{Clock, Cut, Host, Item, MANIFEST, Manifest, Origin, Outcome, SCHEMA, Version};
pub use crate::writer::{Caps, Content, LEAST_SHARE, Source, Trouble, Writer};
