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

/// How tokens of well-known services begin, and how much follows at least.
pub const TOKENS: &[(&str, usize)] = &[
    ("AKIA", 12),
    ("ASIA", 12),
    ("ghp_", 8),
    ("gho_", 8),
    ("ghu_", 8),
    ("ghs_", 8),
    ("ghr_", 8),
    ("github_pat_", 8),
    ("glpat-", 8),
    ("hf_", 12),
    ("sk-", 12),
    ("sk_", 12),
    ("rk_live_", 8),
    ("pk_live_", 8),
    ("xoxa-", 8),
    ("xoxb-", 8),
    ("xoxp-", 8),
    ("xoxr-", 8),
    ("xoxs-", 8),
    ("AIza", 20),
    ("ya29.", 8),
    ("eyJ", 8),
    ("npm_", 12),
    ("pypi-", 12),
    ("dckr_pat_", 8),
    ("dop_v1_", 8),
    ("SG.", 12),
    ("nvapi-", 8),
    ("hvs.", 8),
    ("age-secret-key-", 4),
    ("AGE-SECRET-KEY-", 4),
    ("wandb_v1_", 8),
];

/// Whether a variable of this name matters.
pub fn matters(name: &str) -> bool {
    NAMES.contains(&name) || FAMILIES.iter().any(|family| name.starts_with(family))
}
