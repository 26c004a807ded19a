//! The rules, one file each, and the one list of them.

use crate::LintRule;

mod all_send_first;
mod callback_by_rank;
mod collective_before_set_device;
mod collective_in_background;
mod collective_in_rank_zero_function;
mod collective_order_by_rank;
mod collective_under_local_condition;
mod collective_under_rank_condition;
mod debugging_left_in;
mod decided_by_one_rank;
mod destroyed_while_in_use;
mod exit_before_collective;
mod fixed_port;
mod gloo_on_another_network;
mod group_by_rank;
mod group_never_destroyed;
mod handler_skips_collective;
pub(crate) mod ignore_without_reason;
mod launcher_per_task;
mod local_rank_as_rank;
mod local_stop_decision;
mod localhost_master;
mod loop_count_by_rank;
mod misread_value;
mod no_set_device;
mod no_shared_memory;
mod no_timeout;
mod node_rank_fixed;
mod non_contiguous_tensor;
mod not_diagnosable;
mod processes_do_not_multiply;
mod rdma_out_of_reach;
mod root_by_rank;
mod same_device_on_all_ranks;
mod sampler_without_epoch;
mod seed_by_rank;
mod seed_equal_on_all_ranks;
mod sharded_call_under_rank_condition;
mod shuffle_before_split;
mod size_by_rank;
mod type_by_rank;
mod uneven_loader;
mod unordered_collectives;
mod unread_variable;
pub(crate) mod unused_ignore;

/// All rules, in the order of the documentation.
pub static ALL: &[&LintRule] = &[
    &collective_under_rank_condition::RULE,
    &exit_before_collective::RULE,
    &collective_in_rank_zero_function::RULE,
    &sharded_call_under_rank_condition::RULE,
    &collective_order_by_rank::RULE,
    &loop_count_by_rank::RULE,
    &collective_under_local_condition::RULE,
    &local_stop_decision::RULE,
    &decided_by_one_rank::RULE,
    &callback_by_rank::RULE,
    &uneven_loader::RULE,
    &handler_skips_collective::RULE,
    &group_by_rank::RULE,
    &all_send_first::RULE,
    &root_by_rank::RULE,
    &size_by_rank::RULE,
    &type_by_rank::RULE,
    &unordered_collectives::RULE,
    &collective_in_background::RULE,
    &non_contiguous_tensor::RULE,
    &local_rank_as_rank::RULE,
    &same_device_on_all_ranks::RULE,
    &seed_by_rank::RULE,
    &seed_equal_on_all_ranks::RULE,
    &sampler_without_epoch::RULE,
    &no_timeout::RULE,
    &group_never_destroyed::RULE,
    &destroyed_while_in_use::RULE,
    &no_set_device::RULE,
    &collective_before_set_device::RULE,
    &shuffle_before_split::RULE,
    &unread_variable::RULE,
    &misread_value::RULE,
    &debugging_left_in::RULE,
    &localhost_master::RULE,
    &processes_do_not_multiply::RULE,
    &launcher_per_task::RULE,
    &node_rank_fixed::RULE,
    &no_shared_memory::RULE,
    &rdma_out_of_reach::RULE,
    &fixed_port::RULE,
    &gloo_on_another_network::RULE,
    &not_diagnosable::RULE,
    &unused_ignore::RULE,
    &ignore_without_reason::RULE,
];

/// All rules.
pub fn all() -> impl Iterator<Item = &'static LintRule> {
    ALL.iter().copied()
}
