//! Which environment variables are kept: names that matter to a multi-GPU job, and parts of names whose values are
//! secret.
//!
//! Two readers share these lists and extend them: `collect` reads whole environments of live processes and is
//! stricter with values; `evidence` reads what somebody chose to save and accepts more names of schedulers.

/// Prefixes of names that matter.
pub const FAMILIES: &[&str] = &[
    "NCCL_",
    "TORCH_",
    "TORCHELASTIC_",
    "PYTORCH_",
    "CUDA_",
    "GLOO_",
    "TP_",
    "OFI_NCCL_",
    "FI_",
    "UCX_",
    "SHARP_COLL_",
    "RCCL_",
    "MASTER_",
    "FR_TRACE_",
];

/// Single names that matter.
pub const NAMES: &[&str] = &[
    "RANK",
    "WORLD_SIZE",
    "LOCAL_RANK",
    "LOCAL_WORLD_SIZE",
    "GROUP_RANK",
    "NODE_RANK",
    "USE_LIBUV",
    "ENABLE_NCCL_HEALTH_CHECK",
    "TZ",
];

/// Parts of names whose values are secret.
pub const SECRETS: &[&str] =
    &["KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "JWT", "COOKIE", "AUTH", "CERT", "PRIVATE"];

/// Whether a variable of this name matters.
pub fn matters(name: &str) -> bool {
    NAMES.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
}
