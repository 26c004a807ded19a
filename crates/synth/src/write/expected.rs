//! Observations that a reader must find in the evidence.

/// One Flight Recorder dump.
#[derive(Clone, Debug)]
pub struct ExpectedDump {
    /// File that contains it.
    pub file: String,
    /// Rank that wrote it.
    pub rank: u32,
    /// Entries, oldest first.
    pub ops: Vec<ExpectedOp>,
}

/// One entry, as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpectedOp {
    /// Group name.
    pub group: String,
    /// Members of the group.
    pub members: Vec<u32>,
    /// `collective_seq_id`.
    pub seq: u32,
    /// `p2p_seq_id`.
    pub p2p_seq: u32,
    /// `record_id`.
    pub record_id: u32,
    /// `profiling_name` without `nccl:`.
    pub name: String,
    /// Input shape.
    pub input: Vec<u64>,
    /// Output shape.
    pub output: Vec<u64>,
    /// Type.
    pub dtype: String,
    /// Whether its state is `completed`.
    pub completed: bool,
    /// `is_p2p`.
    pub is_p2p: bool,
    /// `time_created_ns`.
    pub created_ns: i64,
    /// Function of each frame, innermost first.
    pub functions: Vec<String>,
}
