//! One rule a file; one line here.

mod collective_order_mismatch;
mod deadlock_cycle;
mod dtype_mismatch;
mod extra_collective;
mod gpu_kernel_stuck;
mod missing_rank;
mod network_link_down;
mod network_unreachable;
mod op_mismatch;
mod peer_process_died;
mod process_crashed;
mod process_killed;
mod process_stopped;
mod process_uninterruptible;
mod rank_exited_early;
mod shape_mismatch;
mod skipped_collective;
mod straggler;
mod stuck_outside_collective;
mod uneven_inputs;
mod unmatched_p2p;

use crate::rule::Rule;

/// All rules, in the order of causes.toml. The order decides nothing: `verdict` does.
pub static ALL: &[&Rule] = &[
    &skipped_collective::RULE,
    &extra_collective::RULE,
    &op_mismatch::RULE,
    &shape_mismatch::RULE,
    &dtype_mismatch::RULE,
    &collective_order_mismatch::RULE,
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
    &gpu_kernel_stuck::RULE,
    &network_link_down::RULE,
    &network_unreachable::RULE,
    &straggler::RULE,
];
