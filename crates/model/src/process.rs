//! Processes: stacks, process lists, limits.

use crate::{Frame, PciAddress, Pid};

/// Stacks of one process, at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessStacks {
    /// Process, if the dump says so.
    pub pid: Option<Pid>,
    /// Command line, if printed.
    pub command: Option<Box<str>>,
    /// Tool that took them.
    pub tool: StackTool,
    /// Threads, in file order.
    pub threads: Vec<ThreadStack>,
    /// The tool failed on this process: what it said (`process is stopped (T)`).
    pub failure: Option<Box<str>>,
}

/// Who took a stack.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StackTool {
    /// py-spy dump.
    #[default]
    PySpy,
    /// Python's faulthandler, on request or on a crash.
    Faulthandler,
    /// gdb.
    Gdb,
    /// `/proc/PID/stack`.
    Kernel,
}

/// One thread.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ThreadStack {
    /// Thread id: native id (py-spy, gdb) or pthread handle (faulthandler).
    pub tid: Option<u64>,
    /// Name.
    pub name: Option<Box<str>>,
    /// py-spy's `active`/`idle`; None where the tool does not tell.
    pub active: Option<bool>,
    /// faulthandler's `Current thread`: the one that crashed.
    pub current: bool,
    /// Holds the GIL, where the tool tells.
    pub holds_gil: bool,
    /// Innermost first. Native frames have an empty or library file.
    pub frames: Vec<Frame>,
}

/// A list of processes: everybody's, as `ps` prints it, or those of a job, as a snapshot picks them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessTable {
    /// Rows.
    pub rows: Vec<ProcessRow>,
    /// What is known beyond the rows, if it was picked.
    pub pick: Option<Pick>,
}

/// How far whoever picked a job's processes could look.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pick {
    /// Processes of the node that it was not allowed to look into: some may have been the job's.
    pub n_hidden: u32,
    /// Why there are no rows, if the list could not be had.
    pub unread: Option<Box<str>>,
    /// Others that were there and may be ranks, though nothing has joined them to the job.
    pub others: Vec<Pid>,
}

/// One process of a listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessRow {
    /// Line in the source, counted from 1.
    pub line: u32,
    /// Process.
    pub pid: Option<Pid>,
    /// Parent.
    pub ppid: Option<Pid>,
    /// `STAT` as printed; the first letter is the state.
    pub state: Box<str>,
    /// Kernel function it sleeps in; empty if `-` or not printed.
    pub wchan: Box<str>,
    /// Seconds since its start, if printed.
    pub elapsed_s: Option<u64>,
    /// CPU share, percent, if printed.
    pub cpu_pct: Option<f32>,
    /// Command line.
    pub command: Box<str>,
    /// What a snapshot tells beyond that, of a process of a job.
    pub picked: Option<Box<PickedProcess>>,
}

/// What a snapshot of a node tells of a process that `ps` does not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PickedProcess {
    /// It is the job's own: it has a rank, or was asked for. Launchers, shells and other parents are not.
    pub is_of_job: bool,
    /// Start, ns since 1970.
    pub started_ns: Option<i64>,
    /// Its number on the node, where a container counts anew: kernels name it by this one.
    pub outer_pid: Option<Pid>,
    /// GPUs whose device files it has open: which it could use.
    pub gpus: Vec<PciAddress>,
    /// Threads that stayed in state D, without having run, from one look to the next: number and kernel function.
    pub blocked: Vec<(u32, Box<str>)>,
    /// It could not be looked into: why.
    pub hidden: Option<Box<str>>,
}

/// One resource limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Line in the source.
    pub line: u32,
    /// What.
    pub kind: LimitKind,
    /// Soft limit in its own unit (bytes for locked memory, count for files); None = unlimited.
    pub soft: Option<u64>,
    /// Hard limit; None = unlimited, or not printed (`ulimit -a`).
    pub hard: Option<u64>,
}

/// Limits that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKind {
    /// Locked memory, bytes.
    LockedMemory,
    /// Open files.
    OpenFiles,
}
