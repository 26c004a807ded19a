//! `ringleader`: names the rank that stalls, breaks or poisons a multi-GPU job, and proves it.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    ringleader::run(std::env::args_os())
}

/// A third of the time of a big diagnosis was the C library's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;
