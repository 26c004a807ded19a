//! Processes: stacks, process lists, limits.

use crate::{Frame, PciAddress, Pid};

/// Stacks of one process at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessStacks {
    /// Process, if the dump names it.
    pub pid: Option<Pid>,
    /// Command line, if printed.
    pub command: Option<Box<str>>,
    /// Tool that took them.
    pub tool: StackTool,
    /// Threads, in file order.
    pub threads: Vec<ThreadStack>,
    /// Message of the tool if it failed on this process (`process is stopped (T)`).
    pub failure: Option<Box<str>>,
}

/// The tool that took a stack.
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
    /// py-spy's `active`/`idle`; None if the tool does not report it.
    pub active: Option<bool>,
    /// faulthandler's `Current thread`: the one that crashed.
    pub current: bool,
    /// Whether it holds the GIL, if the tool reports that.
    pub holds_gil: bool,
    /// Innermost first. The file of a native frame is empty or a library.
    pub frames: Vec<Frame>,
}

/// Stacks of the main thread of one process, taken many times while it ran.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StackSamples {
    /// Process, if the samples name it.
    pub pid: Option<Pid>,
    /// Each different stack, in file order.
    pub stacks: Vec<SampledStack>,
}

/// One stack of a process that was looked at many times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SampledStack {
    /// In how many of the samples it was seen.
    pub n: u32,
    /// Innermost first, as in [`ThreadStack::frames`].
    pub frames: Vec<Frame>,
}

/// A list of processes: all, as `ps` prints them, or those of a job, as a snapshot selects them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProcessTable {
    /// Rows.
    pub rows: Vec<ProcessRow>,
    /// How the rows were selected, if they were.
    pub pick: Option<Pick>,
    /// It ends within a row: others may have followed.
    pub is_cut: bool,
}

/// The limits of a selection of a job's processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pick {
    /// Processes of the node that were unreadable: some may have belonged to the job.
    pub n_hidden: u32,
    /// Why there are no rows, if the list could not be read.
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
    /// Parent process.
    pub ppid: Option<Pid>,
    /// `STAT` as printed; the first letter is the state.
    pub state: Box<str>,
    /// How a zombie ended: exit code, or the number of its signal, negative.
    pub exit_code: Option<i64>,
    /// Kernel function that it sleeps in; empty if `-` or not printed.
    pub wchan: Box<str>,
    /// Seconds since its start, if printed.
    pub elapsed_s: Option<u64>,
    /// CPU share, percent, if printed.
    pub cpu_pct: Option<f32>,
    /// Command line.
    pub command: Box<str>,
    /// Additional data on a process of a job, from a snapshot.
    pub picked: Option<Box<PickedProcess>>,
}

/// What a node's snapshot contains about a process in addition to `ps`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PickedProcess {
    /// Whether it belongs to the job itself: it has a rank, or was asked for. Launchers, shells and other parents
    /// do not.
    pub is_of_job: bool,
    /// Whether it was asked for, as a launcher is.
    pub was_asked_for: bool,
    /// Start, ns since 1970.
    pub started_ns: Option<i64>,
    /// Its pid on the node, if it is in a container with its own pids: the kernel uses this one.
    pub outer_pid: Option<Pid>,
    /// GPUs whose device files it has open, so that it could use them.
    pub gpus: Vec<PciAddress>,
    /// Threads that were in state D at both readings without having run: thread id and kernel function.
    pub blocked: Vec<(u32, Box<str>)>,
    /// Why it was unreadable.
    pub hidden: Option<Box<str>>,
    /// The second reading, some seconds later.
    pub again: Option<SecondLook>,
}

/// A second reading of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SecondLook {
    /// Time since the first reading, milliseconds.
    pub after_ms: u64,
    /// Processor time used since its start, at the first reading, milliseconds.
    pub first_cpu_ms: u64,
    /// The same at the second reading.
    pub cpu_ms: u64,
    /// How many times its main thread went to sleep between the two, if both were readable.
    pub n_sleeps: Option<u64>,
    /// State letter.
    pub state: Box<str>,
    /// Kernel function in which it sleeps; empty if unknown.
    pub wchan: Box<str>,
}

/// One resource limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limit {
    /// Line in the source.
    pub line: u32,
    /// Which limit.
    pub kind: LimitKind,
    /// Soft limit in its own unit (bytes for locked memory, count for files); None = unlimited.
    pub soft: Option<u64>,
    /// Hard limit; None = unlimited, or not printed (`ulimit -a`).
    pub hard: Option<u64>,
}

/// Limits that matter to a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LimitKind {
    /// Locked memory, bytes.
    LockedMemory,
    /// Open files.
    OpenFiles,
}
