//! What the job's own program and its framework report.

pub(crate) mod application_exception;
pub(super) mod data_loader_worker_died;
pub(super) mod exited_by_itself;
pub(super) mod gradient_not_finite;
pub(super) mod illegal_memory_access;
pub(super) mod loss_is_nan;
pub(crate) mod message_names_cause;
pub(super) mod ranks_disagree;
pub(super) mod signs_together;
