//! What ranks called: calls that differ, are missing, come late or wait for each other.

pub(super) mod collective_order_mismatch;
pub(super) mod concurrent_communicators;
pub(super) mod deadlock_cycle;
pub(super) mod dtype_mismatch;
pub(super) mod extra_collective;
pub(super) mod fingerprint_mismatch;
mod mismatch;
pub(super) mod one_differs;
pub(super) mod op_mismatch;
pub(super) mod operations_in_flight;
pub(super) mod other_tensors;
pub(super) mod out_of_step;
pub(super) mod shape_mismatch;
pub(super) mod skipped_collective;
pub(super) mod straggler;
pub(super) mod uneven_inputs;
pub(super) mod unmatched_p2p;
pub(super) mod unseen_collective;
pub(super) mod wire_size_mismatch;
