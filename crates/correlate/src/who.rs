//! Identities: ranks, processes, hosts and GPUs, and the owners of dumps and of tools' output.

pub mod culprits;
pub mod dumps;
pub mod gpus;
pub mod hosts;
pub mod launch;
pub mod roster;
pub mod settings;
pub mod tools;
