//! Python: syntax, and what the names of a project mean.

pub(crate) mod ast;
pub(crate) mod index;
pub(crate) mod lower;
pub(crate) mod walk;
