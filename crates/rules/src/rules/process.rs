//! A process of the job that ended, stopped, never came or is busy elsewhere.

pub(super) mod launcher_waits;
pub(super) mod missing_rank;
pub(super) mod oom_killed;
pub(super) mod peer_process_died;
pub(super) mod process_crashed;
pub(super) mod process_killed;
pub(super) mod process_stopped;
pub(super) mod process_uninterruptible;
pub(super) mod rank_exited_early;
pub(super) mod ranks_never_met;
pub(super) mod scheduler_account;
pub(super) mod stands_apart;
pub(super) mod stopped_from_outside;
pub(super) mod stuck_outside_collective;
pub(super) mod two_looks;
pub(super) mod waited_in_vain;
