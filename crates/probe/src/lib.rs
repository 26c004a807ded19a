//! Active work on GPUs: `bench` measures what collectives reach, `verify` looks for GPUs and links that compute or carry wrong
//! values.
//!
//! CUDA's driver, NCCL and cuBLAS are opened at run time; without them everything that judges still works on recorded
//! tables. It changes no setting of a GPU, takes plain memory and gives it back.

#![cfg_attr(test, expect(clippy::unwrap_used, reason = "a test that cannot go on should stop"))]

pub mod bench;
pub mod collective;
pub mod facts;
pub mod find;
pub mod kernels;
pub mod reference;
pub mod schema;
pub mod sys;
pub mod team;
pub mod values;
pub mod verify;
pub mod world;
