//! One rule a file; one line here.

mod application_exception;
mod collective_order_mismatch;
mod concurrent_communicators;
mod container_config;
mod cuda_oom;
mod cumem_config;
mod data_loader_worker_died;
mod deadlock_cycle;
mod device_assert;
mod driver_too_old_for_cuda;
mod dtype_mismatch;
mod duplicate_gpu;
mod ecc_uncorrectable;
mod extra_collective;
mod fabric_manager_down;
mod fingerprint_mismatch;
mod firewall_or_port;
mod framework_build_without_nccl;
mod gdr_peermem_missing;
mod gid_table;
mod gpu_driver_bug;
mod gpu_fallen_off_bus;
mod gpu_kernel_stuck;
mod gpu_throttled;
mod gpu_tool_failed;
mod gsp_timeout;
mod hostname_resolution;
mod ib_errors;
mod ib_gid_or_roce_config;
mod ib_link_down;
mod illegal_memory_access;
mod interface_state;
mod measured_bandwidth;
mod memlock_limit;
pub(crate) mod message_names_cause;
mod missing_rank;
mod mtu_or_pfc;
mod nan_loss;
mod nccl_bug_version;
mod nccl_env_misconfigured;
mod nccl_env_mismatch;
mod nccl_version_mismatch;
mod nccl_wrong_gpu_arch;
mod net_plugin_error;
mod network_link_down;
mod network_unreachable;
mod no_route;
mod nvlink_error;
mod nvls_multicast;
mod nvswitch_error;
mod oom_killed;
mod op_mismatch;
mod operations_in_flight;
mod other_xid;
mod p2p_acs_iommu;
mod p2p_unsupported;
mod package_versions;
mod path_test;
mod pcie_error;
mod pcie_width;
mod peer_process_died;
mod perftest_bandwidth;
mod port_counters;
mod port_in_use;
mod port_state;
mod process_crashed;
mod process_killed;
mod process_stopped;
mod process_uninterruptible;
mod rank_env_misconfigured;
mod rank_exited_early;
mod ranks_never_met;
mod routing_or_rail;
mod row_remap_failure;
mod scheduler_account;
mod shape_mismatch;
mod shm_full;
mod shm_permission;
mod shm_stale;
mod shm_state;
mod skipped_collective;
mod straggler;
mod stuck_outside_collective;
mod too_many_open_files;
mod topology_file_error;
mod uneven_inputs;
mod unlisted_gpu;
mod unmatched_p2p;
mod wire_size_mismatch;
mod wrong_interface;
mod wrong_results;
mod wrong_transport;

use crate::rule::Rule;

/// All rules. The order decides nothing: `verdict` does.
pub static ALL: &[&Rule] = &[
    &skipped_collective::RULE,
    &extra_collective::RULE,
    &op_mismatch::RULE,
    &shape_mismatch::RULE,
    &dtype_mismatch::RULE,
    &collective_order_mismatch::RULE,
    &concurrent_communicators::RULE,
    &deadlock_cycle::RULE,
    &unmatched_p2p::RULE,
    &uneven_inputs::RULE,
    &rank_exited_early::RULE,
    &process_killed::RULE,
    &process_crashed::RULE,
    &process_stopped::RULE,
    &process_uninterruptible::RULE,
    &stuck_outside_collective::RULE,
    &peer_process_died::RULE,
    &missing_rank::RULE,
    &ranks_never_met::RULE,
    &gpu_kernel_stuck::RULE,
    &network_link_down::RULE,
    &network_unreachable::RULE,
    &straggler::RULE,
    &gpu_throttled::RULE,
    &container_config::RULE,
    &cuda_oom::RULE,
    &cumem_config::RULE,
    &device_assert::RULE,
    &ecc_uncorrectable::RULE,
    &fabric_manager_down::RULE,
    &framework_build_without_nccl::RULE,
    &gpu_driver_bug::RULE,
    &gpu_fallen_off_bus::RULE,
    &gsp_timeout::RULE,
    &ib_errors::RULE,
    &ib_link_down::RULE,
    &illegal_memory_access::RULE,
    &mtu_or_pfc::RULE,
    &nan_loss::RULE,
    &nccl_wrong_gpu_arch::RULE,
    &net_plugin_error::RULE,
    &nvlink_error::RULE,
    &nvls_multicast::RULE,
    &nvswitch_error::RULE,
    &oom_killed::RULE,
    &p2p_acs_iommu::RULE,
    &pcie_error::RULE,
    &row_remap_failure::RULE,
    &p2p_unsupported::RULE,
    &rank_env_misconfigured::RULE,
    &shm_full::RULE,
    &shm_permission::RULE,
    &shm_stale::RULE,
    &topology_file_error::RULE,
    &wire_size_mismatch::RULE,
    &application_exception::RULE,
    &data_loader_worker_died::RULE,
    &driver_too_old_for_cuda::RULE,
    &duplicate_gpu::RULE,
    &fingerprint_mismatch::RULE,
    &firewall_or_port::RULE,
    &gdr_peermem_missing::RULE,
    &hostname_resolution::RULE,
    &ib_gid_or_roce_config::RULE,
    &memlock_limit::RULE,
    &message_names_cause::RULE,
    &nccl_bug_version::RULE,
    &nccl_env_misconfigured::RULE,
    &nccl_env_mismatch::RULE,
    &nccl_version_mismatch::RULE,
    &port_in_use::RULE,
    &routing_or_rail::RULE,
    &too_many_open_files::RULE,
    &wrong_interface::RULE,
    &wrong_transport::RULE,
    &gid_table::RULE,
    &interface_state::RULE,
    &measured_bandwidth::RULE,
    &package_versions::RULE,
    &path_test::RULE,
    &pcie_width::RULE,
    &port_counters::RULE,
    &port_state::RULE,
    &scheduler_account::RULE,
    &shm_state::RULE,
    &wrong_results::RULE,
    &no_route::RULE,
    &perftest_bandwidth::RULE,
    &unlisted_gpu::RULE,
    &other_xid::RULE,
    &gpu_tool_failed::RULE,
    &operations_in_flight::RULE,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ringleader_correlate::Scene;

    use super::ALL;
    use crate::rule::Outcome;
    use crate::trial::Stage;

    /// Headings that a rule's doc comment must have, in this order.
    const HEADINGS: [&str; 6] = [
        "# What it shows",
        "# Why it happens",
        "# Evidence",
        "# What looks like it but is not",
        "# What to do",
        "# References",
    ];

    #[test]
    fn every_rule_explains_itself() {
        for rule in ALL {
            let text = rule.explanation();
            let found: Vec<&str> = text.lines().filter(|l| l.starts_with("# ")).collect();
            assert_eq!(found, HEADINGS, "headings of {}", rule.id);
            for section in text.split("\n# ") {
                let body = section.lines().skip(1).map(str::trim).collect::<String>();
                assert!(body.len() > 10, "an empty section in {}: {section}", rule.id);
            }
        }
    }

    #[test]
    fn ids_are_unique_and_kebab() {
        let ids: BTreeSet<&str> = ALL.iter().map(|r| r.id).collect();
        assert_eq!(ids.len(), ALL.len());
        for rule in ALL {
            assert!(
                rule.id.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-'),
                "{}",
                rule.id
            );
            assert!(!rule.title.is_empty() && !rule.since.is_empty(), "{}", rule.id);
        }
    }

    /// What other rules leave to the rule of a number must not fall between them.
    #[test]
    fn every_xid_of_a_rule_is_read_by_it() {
        let mut n = 0;
        for row in ringleader_knowledge::xid::all().iter().filter(|row| !row.rule.is_empty()) {
            let rule = ALL.iter().find(|rule| rule.id == row.rule);
            let rule = rule.unwrap_or_else(|| panic!("Xid {} names no rule: {}", row.code, row.rule));
            let stage = Stage::new().xid("0000:3b:00", row.code, 0, "x");
            let outcome = (rule.check)(&Scene::new(&stage.case));
            assert!(!matches!(outcome, Outcome::Clear), "Xid {} alone says nothing to {}", row.code, rule.id);
            n += 1;
        }
        assert!(n > 20, "{n}");
    }
}
