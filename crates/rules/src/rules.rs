//! The rules: one file each, in the folder of its family, and one entry in [`ALL`]. Rules that need nothing but a
//! message are rows of `knowledge/data/claims.toml`.

mod calls;
mod claimed;
mod fabric;
pub(crate) mod gpu;
mod host;
mod network;
mod process;
pub(crate) mod program;
mod settings;
mod timeline;

use crate::rule::Rule;

/// The rule of a message, by the id of its row.
macro_rules! claimed {
    ($id:literal) => {
        &claimed::rule::<{ ringleader_knowledge::claim::place($id) }>()
    };
}

/// All rules, one entry each. `verdict` orders their findings; this order only breaks ties.
pub static ALL: &[&Rule] = &[
    &calls::skipped_collective::RULE,
    &calls::extra_collective::RULE,
    &calls::op_mismatch::RULE,
    &calls::shape_mismatch::RULE,
    &calls::dtype_mismatch::RULE,
    &calls::collective_order_mismatch::RULE,
    &calls::concurrent_communicators::RULE,
    &calls::deadlock_cycle::RULE,
    &calls::unmatched_p2p::RULE,
    &calls::uneven_inputs::RULE,
    &calls::out_of_step::RULE,
    &calls::unseen_collective::RULE,
    &calls::other_tensors::RULE,
    &process::rank_exited_early::RULE,
    &process::process_killed::RULE,
    &process::process_crashed::RULE,
    &process::process_stopped::RULE,
    &process::process_uninterruptible::RULE,
    &process::stuck_outside_collective::RULE,
    &process::stands_apart::RULE,
    &process::two_looks::RULE,
    &process::stopped_from_outside::RULE,
    &process::waited_in_vain::RULE,
    &program::ranks_disagree::RULE,
    &program::gradient_not_finite::RULE,
    &program::loss_is_nan::RULE,
    &process::peer_process_died::RULE,
    &process::missing_rank::RULE,
    &process::ranks_never_met::RULE,
    &process::launcher_waits::RULE,
    &gpu::gpu_kernel_stuck::RULE,
    &network::network_link_down::RULE,
    &network::network_unreachable::RULE,
    &calls::straggler::RULE,
    &calls::one_differs::RULE,
    &gpu::gpu_throttled::RULE,
    &host::container_config::RULE,
    claimed!("cuda-oom"),
    claimed!("cumem-config"),
    claimed!("device-assert"),
    &gpu::ecc_uncorrectable::RULE,
    &fabric::fabric_manager_down::RULE,
    claimed!("framework-build-without-nccl"),
    &gpu::gpu_driver_bug::RULE,
    &gpu::gpu_fallen_off_bus::RULE,
    &gpu::gsp_timeout::RULE,
    claimed!("ib-errors"),
    &fabric::ib_link_down::RULE,
    &program::illegal_memory_access::RULE,
    claimed!("mtu-or-pfc"),
    claimed!("nan-loss"),
    claimed!("nccl-wrong-gpu-arch"),
    claimed!("net-plugin-error"),
    &fabric::nvlink_error::RULE,
    claimed!("nvls-multicast"),
    &fabric::nvswitch_error::RULE,
    &process::oom_killed::RULE,
    &fabric::p2p_acs_iommu::RULE,
    &gpu::pcie_error::RULE,
    &gpu::row_remap_failure::RULE,
    &fabric::p2p_unsupported::RULE,
    &settings::rank_env_misconfigured::RULE,
    claimed!("shm-full"),
    claimed!("shm-permission"),
    claimed!("shm-stale"),
    claimed!("topology-file-error"),
    &calls::wire_size_mismatch::RULE,
    &program::application_exception::RULE,
    &program::exited_by_itself::RULE,
    &program::data_loader_worker_died::RULE,
    &settings::driver_of_two_versions::RULE,
    &settings::driver_too_old_for_cuda::RULE,
    &settings::duplicate_gpu::RULE,
    &calls::fingerprint_mismatch::RULE,
    &network::firewall_or_port::RULE,
    &fabric::gdr_peermem_missing::RULE,
    &network::hostname_resolution::RULE,
    &fabric::ib_gid_or_roce_config::RULE,
    &host::memlock_limit::RULE,
    &program::message_names_cause::RULE,
    &program::signs_together::RULE,
    &settings::nccl_bug_version::RULE,
    &settings::nccl_env_misconfigured::RULE,
    &settings::nccl_env_mismatch::RULE,
    &settings::nccl_version_mismatch::RULE,
    &network::port_in_use::RULE,
    &fabric::routing_or_rail::RULE,
    &host::too_many_open_files::RULE,
    &network::wrong_interface::RULE,
    &network::wrong_transport::RULE,
    &fabric::gid_table::RULE,
    &network::interface_state::RULE,
    &fabric::measured_bandwidth::RULE,
    &settings::package_versions::RULE,
    &network::path_test::RULE,
    &gpu::pcie_width::RULE,
    &fabric::port_counters::RULE,
    &fabric::port_state::RULE,
    &process::scheduler_account::RULE,
    &host::shm_state::RULE,
    &gpu::wrong_results::RULE,
    &network::no_route::RULE,
    &fabric::perftest_bandwidth::RULE,
    &gpu::unlisted_gpu::RULE,
    &gpu::other_xid::RULE,
    &gpu::gpu_tool_failed::RULE,
    &calls::operations_in_flight::RULE,
    &timeline::time_lost::RULE,
];

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ringleader_correlate::Scene;

    use super::ALL;
    use crate::rule::Outcome;
    use crate::trial::StagedCase;

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
            let stage = StagedCase::new().xid("0000:3b:00", row.code, 0, "x");
            let outcome = (rule.check)(&Scene::new(&stage.case));
            assert!(!matches!(outcome, Outcome::Clear), "Xid {} alone says nothing to {}", row.code, rule.id);
            n += 1;
        }
        assert!(n > 20, "{n}");
    }
}
