//! Which environment variables may be kept.

use ringleader_knowledge::kept;

/// Families beside those that all readers keep: of schedulers, whatever it is, since somebody chose to save it.
const FAMILIES: [&str; 6] = ["OMPI_COMM_", "OMPI_MCA_", "PMI_", "PMIX_", "SLURM_", "NVIDIA_VISIBLE_"];
/// What scripts call NCCL's setting.
const NAMES: [&str; 1] = ["P2P_LEVEL"];
/// Longest value that is kept, bytes.
const MAX_VALUE_BYTES: usize = 4096;

/// Whether a variable is kept.
pub(crate) fn is_kept(name: &str) -> bool {
    let known = kept::matters(name)
        || NAMES.contains(&name)
        || FAMILIES.iter().any(|family| name.starts_with(family));
    known && !kept::SECRETS.iter().any(|part| name.contains(part))
}

/// Whether a value is one: several lines, or other records within it, may hold anything.
pub(crate) fn is_plain(value: &str) -> bool {
    value.len() <= MAX_VALUE_BYTES && !value.contains(char::is_control)
}

/// Whether a variable and its value are kept.
pub(crate) fn may_keep(name: &str, value: &str) -> bool {
    is_kept(name) && is_plain(value)
}
