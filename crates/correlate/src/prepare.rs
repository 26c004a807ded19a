//! Before anything is joined: copies of files left out, sizes of communicators completed, several jobs separated.

pub mod copies;
pub mod jobs;
pub mod owners;
pub mod rings;
pub mod sizes;
