//! The data types of ringleader: facts, where they were read, and conclusions from them.
//!
//! This crate contains plain data and no input or output: no files, clocks, environment, network or processes,
//! and no serialisation (the printed report has its own types, so these can change freely).
//!
//! Besides the types it holds what several crates need: host lists, civil dates, medians, addresses, and the
//! walk over the citations of a fact.

pub mod address;
mod bench;
mod case;
mod cause;
mod cites;
mod civil;
mod collective;
mod environment;
mod finding;
mod flight;
mod gpu;
mod guard;
pub mod hostlist;
mod ids;
mod kernel;
pub mod median;
mod nccl;
mod net;
mod picture;
mod process;
mod ras;
mod ring;
mod said;
mod shell;
mod source;
mod system;
mod timeline;
mod torch;
mod watch;

pub use bench::*;
pub use case::*;
pub use cause::*;
pub use civil::*;
pub use collective::*;
pub use environment::*;
pub use finding::*;
pub use flight::*;
pub use gpu::*;
pub use guard::*;
pub use ids::*;
pub use kernel::*;
pub use nccl::*;
pub use net::*;
pub use picture::*;
pub use process::*;
pub use ras::*;
pub use ring::*;
pub use said::*;
pub use shell::*;
pub use source::*;
pub use system::*;
pub use timeline::*;
pub use torch::*;
pub use watch::*;
