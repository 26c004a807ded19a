//! The handle that NCCL stores for the plugin between two callbacks: a number, never an address.
//!
//! A handle may come back late, twice, from another process (PXN) or never. So it contains an index and a generation,
//! and every use checks whether it is still valid.

/// Kind (4 bits), index (20), generation (24), extra (16).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handle(pub u64);

/// Kind of object that a handle refers to. 0 is no handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum HandleKind {
    /// A communicator: what NCCL calls the context.
    Comm = 1,
    /// A call of the program, not yet launched.
    Call = 2,
    /// A call that is captured into a CUDA graph.
    Captured = 3,
    /// A launch: index is the communicator, the rest is the number of the launch.
    Plan = 4,
    /// An operation.
    Op = 5,
    /// One channel's kernel of an operation; extra is the channel.
    Kernel = 6,
    /// A proxy operation.
    Wait = 7,
    /// A step of a proxy operation; extra is the step's low bits.
    Step = 8,
    /// An event of the network plugin for a step.
    Net = 9,
    /// A group of calls: index and generation refer to the writer's own list of open groups.
    Group = 10,
    /// A group of calls that is not followed: its number, and the place of its first call in the region.
    Passing = 11,
    /// A call of a group that is not followed.
    Passed = 12,
}

/// Generations in handles have 24 bits.
pub(crate) const GENERATION: u64 = 0xff_ffff;

/// Bit of a launch's handle: the launch is not followed.
const PLAN_PASSED: u64 = 1 << 39;

/// Bits of the number of a group that is not followed.
const PASSING_GROUP: u64 = 0xfff_ffff;

impl Handle {
    /// No handle: NCCL's null.
    pub const NONE: Self = Self(0);
    /// A captured call needs no entry.
    pub const CAPTURED: Self = Self((HandleKind::Captured as u64) << 60);

    /// A call that is not followed: none of its later events is recorded.
    pub const PASSED: Self = Self((HandleKind::Passed as u64) << 60);

    /// A group of calls that is not followed: 28 bits of its number, 32 bits of the place of its first call.
    pub(crate) const fn passing(group: u64, place: u64) -> Self {
        Self((HandleKind::Passing as u64) << 60 | (group & PASSING_GROUP) << 32 | place & 0xffff_ffff)
    }
    pub(crate) const fn passing_group(self) -> u64 {
        self.0 >> 32 & PASSING_GROUP
    }
    pub(crate) const fn passing_place(self) -> u32 {
        self.0 as u32
    }

    pub(crate) const fn new(kind: HandleKind, index: usize, generation: u64, extra: u64) -> Self {
        Self(
            (kind as u64) << 60
                | (index as u64 & 0xf_ffff) << 40
                | (generation & GENERATION) << 16
                | extra & 0xffff,
        )
    }

    /// The kind; None if this is not a handle of ours.
    pub const fn kind(self) -> Option<HandleKind> {
        Some(match self.0 >> 60 {
            1 => HandleKind::Comm,
            2 => HandleKind::Call,
            3 => HandleKind::Captured,
            4 => HandleKind::Plan,
            5 => HandleKind::Op,
            6 => HandleKind::Kernel,
            7 => HandleKind::Wait,
            8 => HandleKind::Step,
            9 => HandleKind::Net,
            10 => HandleKind::Group,
            11 => HandleKind::Passing,
            12 => HandleKind::Passed,
            _ => return None,
        })
    }

    pub(crate) const fn index(self) -> usize {
        (self.0 >> 40) as usize & 0xf_ffff
    }
    pub(crate) const fn generation(self) -> u64 {
        self.0 >> 16 & GENERATION
    }
    pub(crate) const fn extra(self) -> u64 {
        self.0 & 0xffff
    }
    /// The number of the launch in a handle of a launch: 39 bits.
    pub(crate) const fn plan(self) -> u64 {
        self.0 & (PLAN_PASSED - 1)
    }

    /// The bit that marks a group, a launch or a captured call as not followed.
    const fn passed(self) -> u64 {
        match self.kind() {
            Some(HandleKind::Plan) => PLAN_PASSED,
            Some(HandleKind::Group | HandleKind::Captured) => 1,
            _ => 0,
        }
    }

    /// The same group, launch or captured call, marked as followed to its end or not.
    #[must_use]
    pub const fn following(self, is_followed: bool) -> Self {
        if is_followed { Self(self.0 & !self.passed()) } else { Self(self.0 | self.passed()) }
    }

    /// Whether its members are followed; None for handles without this mark.
    pub const fn is_followed(self) -> Option<bool> {
        match self.kind() {
            Some(HandleKind::Passing | HandleKind::Passed) => Some(false),
            _ if self.passed() == 0 => None,
            _ => Some(self.0 & self.passed() == 0),
        }
    }
}
