//! Every status that headers and sources list has a row of its own kind, with a meaning of its own.

use std::collections::BTreeMap;

use crate::status::{self, Status};

/// Lists of names, by the word of the list that has their rows. CUDA's names belong together: a row has both.
const LISTS: &[(&str, &str, &str)] = &[
    ("cuda", "cuda_runtime", include_str!("../tests-data/names/cuda_runtime.txt")),
    ("cuda", "cuda_driver", include_str!("../tests-data/names/cuda_driver.txt")),
    ("cublas", "cublas", include_str!("../tests-data/names/cublas.txt")),
    ("cudnn", "cudnn", include_str!("../tests-data/names/cudnn.txt")),
    ("verbs", "ibv_wc_status", include_str!("../tests-data/names/ibv_wc_status.txt")),
    ("verbs", "ibv_event_type", include_str!("../tests-data/names/ibv_event_type.txt")),
    ("verbs", "rdma_cm_event_type", include_str!("../tests-data/names/rdma_cm_event_type.txt")),
    ("libfabric", "fi_errno", include_str!("../tests-data/names/fi_errno.txt")),
    ("ucx", "ucs_status", include_str!("../tests-data/names/ucs_status.txt")),
    ("mpi", "mpi", include_str!("../tests-data/names/mpi.txt")),
    ("slurm", "slurm_job_states", include_str!("../tests-data/names/slurm_job_states.txt")),
    ("slurm", "slurm_node_states", include_str!("../tests-data/names/slurm_node_states.txt")),
    ("slurm", "slurm_reasons", include_str!("../tests-data/names/slurm_reasons.txt")),
    ("kubernetes", "kubernetes", include_str!("../tests-data/names/kubernetes.txt")),
];

/// Name and number of each line of a list.
fn entries(list: &'static str) -> impl Iterator<Item = (&'static str, Option<i32>)> {
    list.lines().filter(|line| !line.starts_with('#')).map(|line| {
        let (name, number) = line.split_once(' ').unwrap_or((line, ""));
        (name, number.parse().ok())
    })
}

fn row(kind: &str, name: &str) -> Option<&'static Status> {
    status::named(name).find(|row| row.family().list == kind)
}

#[test]
fn every_listed_name_has_a_row_of_its_kind() {
    let mut missing = Vec::new();
    for (kind, list, text) in LISTS {
        assert!(text.starts_with("# "), "{list}: no source");
        for (name, number) in entries(text) {
            match row(kind, name) {
                Some(row) if number.is_none() || row.number == number => {
                    assert!(row.means.len() > 15 && !row.family().source.is_empty(), "{name}");
                }
                Some(row) => missing.push(format!("{name} is {number:?} and not {:?}", row.number)),
                None => missing.push(format!("{list} {name}")),
            }
        }
    }
    assert!(missing.is_empty(), "{} missing: {missing:#?}", missing.len());
}

/// A text that stands for many codes says nothing of any.
#[test]
fn every_listed_row_has_a_meaning_of_its_own() {
    let mut by_text: BTreeMap<(&str, &str), &str> = BTreeMap::new();
    let mut same = Vec::new();
    for (kind, _, text) in LISTS {
        for row in entries(text).filter_map(|(name, _)| row(kind, name)) {
            let first = *by_text.entry((row.family().id, row.means)).or_insert(row.name());
            if first != row.name() {
                same.push(format!("{first}, {}: {}", row.name(), row.means));
            }
        }
    }
    same.sort();
    same.dedup();
    assert!(same.is_empty(), "{} alike: {same:#?}", same.len());
}

/// A row that is asked for by its full name is the first answer.
#[test]
fn full_names_are_unique_and_find_their_row() {
    for row in status::all() {
        let name = row.full_name();
        assert_eq!(status::named(&name).next(), Some(row), "{name}");
    }
}

#[test]
fn a_whole_word_is_the_name_and_no_part_of_one() {
    for (asked, list, name) in [
        ("ALLOCATED", "slurm", "ALLOCATED"),
        ("allocated", "slurm", "ALLOCATED"),
        ("alloc", "slurm", "ALLOCATED"),
        ("IDLE", "slurm", "IDLE"),
        ("idle~", "slurm", "IDLE"),
        ("down*", "slurm", "DOWN"),
        ("slurm MIXED", "slurm", "MIXED"),
        ("slurm node mix", "slurm", "MIXED"),
        ("sinfo drng", "slurm", "DRAINING"),
        ("slurm Priority", "slurm", "Priority"),
        ("Priority", "slurm", "Priority"),
        ("FUTURE", "slurm", "FUTURE"),
        ("UNDRAIN", "slurm", "UNDRAIN"),
        ("INVALID_REG", "slurm", "INVAL"),
        ("POWER_DOWN", "slurm", "POWER_DOWN"),
        ("squeue Resources", "slurm", "Resources"),
        ("LaunchFailedRequeue", "slurm", "JobLaunchFailure"),
        ("PENDING", "slurm", "PENDING"),
        ("Pending", "kubernetes", "Pending"),
        ("pod pending", "kubernetes", "Pending"),
        ("FAILED", "slurm", "FAILED"),
        ("FailedMapVolume", "kubernetes", "FailedMapVolume"),
        ("IBV_WC_DRIVER1_ERR", "verbs", "IBV_WC_DRIVER1"),
        ("libfabric FI_EBUSY", "libfabric", "FI_EBUSY"),
    ] {
        let first = status::named(asked).next();
        assert_eq!(first.map(|row| (row.family().list, row.name())), Some((list, name)), "{asked}");
    }
    for part in ["ALLOC_FAILED", "LOCATED", "Prior", "IDL", "POWER", "slurm", "kubernetes"] {
        assert_eq!(status::named(part).count(), 0, "{part}");
    }
}
