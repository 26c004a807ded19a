//! Links the library so that it is never unloaded (`-z nodelete`): NCCL closes it with its last communicator, while
//! other threads may still be returning from a callback, and opens it again for the next one.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
