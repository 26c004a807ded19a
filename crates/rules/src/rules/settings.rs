//! Variables, versions and builds that the job runs with.

pub(super) mod driver_of_two_versions;
pub(super) mod driver_too_old_for_cuda;
pub(super) mod duplicate_gpu;
pub(super) mod nccl_bug_version;
pub(super) mod nccl_env_misconfigured;
pub(super) mod nccl_env_mismatch;
pub(super) mod nccl_version_mismatch;
pub(super) mod package_versions;
pub(super) mod rank_env_misconfigured;
mod remarks;
