//! The only module with unsafe code: the CUDA driver, NCCL and cuBLAS, opened at run time.
//!
//! Each library is a table of functions, declared by hand with the header that each signature is from. A library is never
//! closed: its threads and exit handlers outlive every user. Addresses in GPU memory are numbers here; a wrong one stops
//! the GPU's context and touches nothing of the host. Whatever reads or writes the host's memory takes a slice or a
//! [`Pinned`] buffer.
#![allow(unsafe_code, reason = "calls into C, each with the reason why it is sound")]

mod cublas;
mod cuda;
mod library;
mod nccl;

pub use cublas::{Blas, BlasHandle, Product};
pub use cuda::{
    Attribute, Buffer, CudaEvent, Device, Driver, Function, Graph, Launch, Module, Pinned, Stream,
};
pub use library::LibraryError;
pub use nccl::{CommHandle, DataType, Nccl, RedOp, UniqueId, Wish};

/// Sets a variable of this process. NCCL and cuBLAS read theirs from the environment when they are first called.
///
/// Call it before the first thread is started: nothing may read the environment at the same time.
pub(crate) fn set_variable(name: &str, value: Option<&str>) {
    match value {
        // SAFETY: by this function's contract no other thread runs yet.
        Some(value) => unsafe { std::env::set_var(name, value) },
        // SAFETY: by this function's contract no other thread runs yet.
        None => unsafe { std::env::remove_var(name) },
    }
}
