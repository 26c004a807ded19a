//! Statuses of the libraries, launchers and schedulers around NCCL, by name and by number: what is asked for by itself.
//!
//! What a line of a log says is a matter of `message`, whose families of codes are rows here, too.

use ringleader_model::{Cause, Impact};

use crate::tables::{STATUS_FAMILIES, STATUSES};

/// The family of the states of Slurm's nodes, which `sinfo` prints with a mark: `idle~`.
const NODES: &str = "slurm-node";
/// These marks.
const MARKS: &[char] = &['*', '~', '#', '!', '%', '$', '@', '^', '-', '+'];

/// The statuses of one library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusFamily {
    /// Kebab-case.
    pub id: &'static str,
    /// The word by which its list is asked for.
    pub list: &'static str,
    /// What its rows are: `cuBLAS status`.
    pub title: &'static str,
    /// Words before a number by which the family is meant, in lower case.
    pub asked: &'static [&'static str],
    /// Where names and numbers are from.
    pub source: &'static str,
}

/// One status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Index of its family.
    pub(crate) family: usize,
    /// Its number, where the library numbers it.
    pub number: Option<i32>,
    /// Its name, then other spellings and its text.
    pub names: &'static [&'static str],
    /// What it means.
    pub means: &'static str,
    /// What to do next; may be empty.
    pub action: &'static str,
    /// What that does to the job.
    pub impact: Impact,
    /// What it is commonly mistaken for; may be empty.
    pub is_not: &'static str,
    /// Causes that it may indicate, most likely first.
    pub causes: &'static [Cause],
}

impl Status {
    /// The family.
    pub fn family(&self) -> &'static StatusFamily {
        &STATUS_FAMILIES[self.family]
    }

    /// Its first name.
    pub fn name(&self) -> &'static str {
        self.names.first().copied().unwrap_or_default()
    }

    /// A name that nothing else has: an ordinary word follows the word of its list.
    pub fn full_name(&self) -> String {
        let name = self.name();
        let mut chars = name.chars();
        chars.next();
        let is_word = !name.contains('_')
            && (chars.clone().all(char::is_lowercase) || !name.chars().any(char::is_lowercase));
        if is_word || name.contains(' ') { format!("{} {name}", self.family().list) } else { name.to_owned() }
    }
}

/// All families.
pub fn families() -> &'static [StatusFamily] {
    STATUS_FAMILIES
}

/// All statuses, by family.
pub fn all() -> &'static [Status] {
    STATUSES
}

/// Statuses with this name in any case, with or without the family before it. Those that write it with the same capitals
/// come first: `Pending` is Kubernetes' word, `PENDING` Slurm's.
pub fn named(name: &str) -> impl Iterator<Item = &'static Status> {
    let mut found: Vec<&'static Status> = STATUSES.iter().filter(|status| has_name(status, name)).collect();
    let writes = |status: &Status| status.names.iter().any(|own| name.ends_with(own));
    found.sort_by_key(|status| !writes(status));
    found.into_iter()
}

fn has_name(status: &Status, name: &str) -> bool {
    let own = |asked: &str| {
        let asked = if status.family().id == NODES { asked.trim_end_matches(MARKS) } else { asked };
        status.names.iter().any(|n| n.eq_ignore_ascii_case(asked))
    };
    let after = |word: &str| {
        let head = name.get(..word.len()).is_some_and(|head| head.eq_ignore_ascii_case(word));
        head.then(|| name.get(word.len()..)).flatten().and_then(|rest| rest.strip_prefix(' '))
    };
    let family = status.family();
    own(name) || [family.id, family.list].iter().chain(family.asked).any(|word| after(word).is_some_and(own))
}

/// Statuses with this number (whatever its sign) of the families that these words mean, in lower case.
pub fn numbered(words: &str, number: u32) -> impl Iterator<Item = &'static Status> {
    STATUSES.iter().filter(move |status| {
        status.number.is_some_and(|own| own.unsigned_abs() == number)
            && status.family().asked.contains(&words)
    })
}

#[cfg(test)]
mod tests {
    use super::{named, numbered};

    #[test]
    fn names_that_libraries_and_schedulers_print_are_known() {
        const NAMES: &str = "
            CUDA_ERROR_MULTICAST_RESOURCE_FULL CUDA_ERROR_INSUFFICIENT_LOADER_VERSION CUDA_ERROR_STREAM_DETACHED
            CUDA_ERROR_GRAPH_RECAPTURE_FAILURE cudaErrorVersionTranslation cudaErrorInsufficientLoaderVersion
            cudaErrorStreamDetached cudaErrorGraphRecaptureFailure
            MPI_SUCCESS MPI_ERR_TOPOLOGY MPI_ERR_DIMS MPI_ERR_FILE MPI_ERR_ACCESS MPI_ERR_AMODE MPI_ERR_INFO
            MPI_ERR_INFO_KEY MPI_ERR_INFO_VALUE MPI_ERR_INFO_NOKEY MPI_ERR_KEYVAL MPI_ERR_LOCKTYPE MPI_ERR_QUOTA
            MPI_ERR_READ_ONLY MPI_ERR_SIZE MPI_ERR_DISP MPI_ERR_BASE MPI_ERR_ASSERT MPI_ERR_SESSION
            MPI_ERR_NO_SUCH_FILE MPI_ERR_NO_SPACE MPI_ERR_IO MPI_ERR_RMA_RANGE MPI_ERR_RMA_SYNC MPI_ERR_RMA_CONFLICT
            MPI_ERR_RMA_ATTACH MPI_ERR_RMA_SHARED MPI_ERR_RMA_FLAVOR MPIX_ERR_PROC_FAILED MPIX_ERR_REVOKED
            PLANNED POWERING_UP POWER_UP_NODE PERFCTRS DYNAMIC_NORM
            ContainerCreating PodInitializing PostStartHookError NodeNotSchedulable InvalidDiskCapacity
            UCS_OK UCS_INPROGRESS UCS_ERR_FIRST_LINK_FAILURE UCS_ERR_LAST_LINK_FAILURE
            UCS_ERR_FIRST_ENDPOINT_FAILURE UCS_ERR_LAST_ENDPOINT_FAILURE FI_SUCCESS";
        for name in NAMES.split_whitespace() {
            let rows: Vec<_> = named(name).collect();
            assert_eq!(rows.len(), 1, "{name}");
            assert!(rows[0].means.len() > 10, "{name}");
        }
    }

    #[test]
    fn numbers_are_those_of_the_headers() {
        let name = |words: &str, number: u32| numbered(words, number).next().map(super::Status::name);
        assert_eq!(name("cuda error", 10), Some("cudaErrorVersionTranslation"));
        assert_eq!(name("cuda error", 47), Some("CUDA_ERROR_MULTICAST_RESOURCE_FULL"));
        assert_eq!(name("cuda error", 227), Some("cudaErrorInsufficientLoaderVersion"));
        assert_eq!(name("cuda error", 917), Some("cudaErrorStreamDetached"));
        assert_eq!(name("cuda error", 918), Some("cudaErrorGraphRecaptureFailure"));
        assert_eq!(name("ucx", 0), Some("UCS_OK"));
        assert_eq!(name("ucx", 40), Some("UCS_ERR_FIRST_LINK_FAILURE"));
        assert_eq!(name("libfabric", 0), Some("FI_SUCCESS"));
    }
}
