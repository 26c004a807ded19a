//! What of an environment is kept: the names that matter to a job of many GPUs, and the parts of a name that say that
//! its value is nobody's business.
//!
//! Two readers share these lists and add what is theirs: `collect` reads whole environments of live processes and is
//! stricter with values; `evidence` reads what somebody chose to save and is wider with names of schedulers.

/// Families that matter, by their beginning.
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

/// Parts of a name that say that its value is nobody's business.
pub const SECRETS: &[&str] =
    &["KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL", "JWT", "COOKIE", "AUTH", "CERT", "PRIVATE"];

/// Whether a variable of this name is one of the field's.
pub fn matters(name: &str) -> bool {
    NAMES.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
}
