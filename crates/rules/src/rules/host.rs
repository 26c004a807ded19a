//! Limits and memory of a host and its containers.

pub(super) mod container_config;
pub(super) mod memlock_limit;
pub(super) mod shm_state;
pub(super) mod too_many_open_files;
