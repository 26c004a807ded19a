//! The library stays in the process once it is loaded: NCCL closes it with its last communicator, while other threads
//! may still be on their way out of a callback, and opens it again for the next one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
