//! A bundle: everything collected about a job, in one file. A manifest states where each item came from, when it was
//! taken, and what is missing from it.
//!
//! The file is a zstd-compressed tar. Items are stored raw under their names; the last member is [`MANIFEST`]. So a
//! bundle whose writer was killed still yields its items, and any tar program opens it. `diagnose` reads it like any
//! other archive: an item in a bundle gives the same observations as the same bytes in a folder.
//!
//! This crate opens no file: the caller passes a stream to write to and streams to read from.

mod manifest;
mod writer;

pub use crate::manifest::{Clock, Cut, Host, Item, ItemOutcome, MANIFEST, Manifest, Origin, SCHEMA, Version};
pub use crate::writer::{BundleError, BundleWriter, Caps, Content, ItemSource, LEAST_SHARE};
