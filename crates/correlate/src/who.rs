//! Who is who: ranks, processes, hosts and GPUs, and whose a dump or the output of a tool is.

pub mod culprits;
pub mod dumps;
pub mod gpus;
pub mod launch;
pub mod roster;
pub mod settings;
pub mod tools;
