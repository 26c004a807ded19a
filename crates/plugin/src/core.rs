//! What the plugin does with an event, independent of the version of the interface.

use std::ffi::{c_char, c_int, c_ulong, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::broadcasts::Broadcasts;
use crate::pace::Pace;
use crate::release;
use ringleader_ring::names::{ALGORITHM_CE, KEY_BYTES, Key, NameKind};
use ringleader_ring::{CallDescriptor, Handle, HandleKind, NewComm, Phase, RingOptions, Writer};

/// Bits of NCCL's event mask, and the types of events.
pub mod events {
    /// A launch.
    pub const GROUP: u64 = 1;
    /// A collective of a launch.
    pub const COLL: u64 = 1 << 1;
    /// A send or receive of a launch.
    pub const P2P: u64 = 1 << 2;
    /// One channel's traffic with one peer.
    pub const PROXY_OP: u64 = 1 << 3;
    /// One transfer of a proxy operation.
    pub const PROXY_STEP: u64 = 1 << 4;
    /// The proxy thread's own activity.
    pub const PROXY_CTRL: u64 = 1 << 5;
    /// One channel's kernel.
    pub const KERNEL_CH: u64 = 1 << 6;
    /// An event of the network plugin.
    pub const NET_PLUGIN: u64 = 1 << 7;
    /// A group of calls.
    pub const GROUP_API: u64 = 1 << 8;
    /// The program's call of a collective.
    pub const COLL_API: u64 = 1 << 9;
    /// The program's call of a send or receive.
    pub const P2P_API: u64 = 1 << 10;
    /// The launch of a kernel.
    pub const KERNEL_LAUNCH: u64 = 1 << 11;
    /// A collective by copy engines.
    pub const CE_COLL: u64 = 1 << 12;
}

/// States of `recordEventState` that are used here.
mod states {
    pub(super) const SEND_GPU_WAIT: i32 = 8;
    pub(super) const SEND_WAIT: i32 = 9;
    pub(super) const RECV_WAIT: i32 = 10;
    pub(super) const RECV_FLUSH_WAIT: i32 = 11;
    pub(super) const RECV_GPU_WAIT: i32 = 12;
    pub(super) const SEND_PEER_WAIT: i32 = 20;
    pub(super) const KERNEL_STOP: i32 = 22;
}

/// A name in a descriptor.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name {
    /// Unknown.
    None,
    /// NCCL's number, of interface 1.
    Number(u8),
    /// A string of NCCL's, or null.
    Text(*const c_char),
}

/// The content of a descriptor of `startEvent`, the same for all versions.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ProfilerEvent {
    /// A launch.
    Group,
    /// A group of calls.
    GroupApi,
    /// A call of the program.
    Call(Call),
    /// An operation of a launch.
    Launch { call: Call, plan: *mut c_void },
    /// A proxy operation.
    ProxyOp { pid: c_int, peer: c_int, channel: u8, steps: c_int, is_send: bool },
    /// A step of a proxy operation.
    ProxyStep(c_int),
    /// A channel's kernel, with the GPU's time or 0.
    Kernel { channel: u8, gpu_ns: u64 },
    /// An event of the network plugin.
    Net,
    /// An event that is not recorded.
    Other,
}

/// A call, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    pub(crate) function: Name,
    pub(crate) datatype: Name,
    pub(crate) algorithm: Name,
    pub(crate) protocol: Name,
    pub(crate) is_p2p: bool,
    pub(crate) is_ce: bool,
    pub(crate) is_captured: bool,
    pub(crate) sequence: Option<u64>,
    pub(crate) count: usize,
    pub(crate) root: c_int,
    pub(crate) peer: Option<c_int>,
    pub(crate) channels: u8,
    /// Communicator's hash and own rank, if only operations report them (interfaces 1 to 3).
    pub(crate) comm: Option<(u64, c_int)>,
}

impl Call {
    pub(crate) const NOTHING: Self = Self {
        function: Name::None,
        datatype: Name::None,
        algorithm: Name::None,
        protocol: Name::None,
        is_p2p: false,
        is_ce: false,
        is_captured: false,
        sequence: None,
        count: 0,
        root: -1,
        peer: None,
        channels: 0,
        comm: None,
    };
}

/// Checked first, because in a flood nothing else comes: this avoids building an event of 130 bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Quick {
    /// A group of calls.
    GroupApi,
    /// A call of the program.
    Call(ApiCall),
    /// Anything else.
    Other,
}

/// A call of the program, as interface 5 and later report it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ApiCall {
    pub(crate) function: *const c_char,
    pub(crate) datatype: *const c_char,
    pub(crate) count: usize,
    pub(crate) root: c_int,
    pub(crate) is_p2p: bool,
    pub(crate) is_captured: bool,
}

impl From<ApiCall> for Call {
    fn from(api: ApiCall) -> Self {
        Self {
            function: Name::Text(api.function),
            datatype: Name::Text(api.datatype),
            is_p2p: api.is_p2p,
            is_captured: api.is_captured,
            count: api.count,
            root: api.root,
            ..Self::NOTHING
        }
    }
}

/// The arguments of a communicator's `init`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Init {
    pub(crate) version: u8,
    pub(crate) id: u64,
    pub(crate) name: *const c_char,
    pub(crate) nodes: c_int,
    pub(crate) size: c_int,
    pub(crate) rank: c_int,
}

/// NCCL's logger: level, subsystems, file, line, format and its arguments.
pub(crate) type Logger = unsafe extern "C" fn(c_int, c_ulong, *const c_char, c_int, *const c_char, ...);

/// Level INFO and subsystem INIT of NCCL's log.
const LOG_INFO: c_int = 3;
const LOG_INIT: c_ulong = 1;

/// `RINGLEADER_PLUGIN=0`: request no events from NCCL.
const SWITCH: &str = "RINGLEADER_PLUGIN";
/// `RINGLEADER_PLUGIN_EVENTS`: the mask as a number, for measuring the cost of each kind of event.
const EVENTS: &str = "RINGLEADER_PLUGIN_EVENTS";
/// `RINGLEADER_PLUGIN_FOLLOW=all`: follow every operation to its end, regardless of the cost.
const FOLLOW: &str = "RINGLEADER_PLUGIN_FOLLOW";

/// The first release whose counts of kernels are right. 2.26.2 has the interface, too, but a call that is captured into
/// a CUDA graph makes its count diverge from that of the kernels whatever the mask is, and then `ncclCommDestroy` waits
/// forever.
const COUNTS_RIGHT: c_int = 22603;
/// The newest interface.
const LAST_VERSION: u8 = 7;

/// Code of the function Broadcast.
const BROADCAST: u8 = 1;
/// Codes of the functions that have a root: Broadcast, Reduce, Scatter, Gather.
const ROOTED: [u8; 4] = [BROADCAST, 2, 10, 11];

/// The plugin within one process.
#[derive(Debug)]
pub struct Core {
    writer: Writer,
    pid: c_int,
    mask: Option<u64>,
    pace: Pace,
    broadcasts: Broadcasts,
    /// Interface of the newest communicator; 0 before the first.
    version: AtomicI32,
}

impl Core {
    /// Creates the process's ring.
    ///
    /// # Errors
    /// The reason why there is none; empty if the environment switches the plugin off.
    pub(crate) fn new() -> Result<Self, String> {
        if std::env::var(SWITCH).is_ok_and(|value| value.trim() == "0") {
            return Err(String::new());
        }
        let mask = std::env::var(EVENTS).ok().and_then(|value| {
            let value = value.trim();
            value
                .strip_prefix("0x")
                .map_or_else(|| value.parse().ok(), |hex| u64::from_str_radix(hex, 16).ok())
        });
        let writer = Writer::create(&RingOptions::from_environment()).map_err(|error| error.to_string())?;
        let follows_all = std::env::var(FOLLOW).is_ok_and(|value| value.trim() == "all");
        let pace =
            Pace::new(mask.map(|mask| mask & followed(LAST_VERSION) != 0).or(follows_all.then_some(true)));
        Ok(Self {
            writer,
            pid: std::process::id() as c_int,
            mask,
            pace,
            broadcasts: Broadcasts::new(),
            version: AtomicI32::new(0),
        })
    }

    /// The process called `exit`.
    pub(crate) fn exits(&self, code: u8) {
        self.writer.exits(code);
    }

    /// Counts a fault of the plugin itself.
    pub(crate) fn fault(&self) {
        self.writer.fault();
    }

    /// Path of the ring.
    pub fn path(&self) -> &std::path::Path {
        self.writer.path()
    }

    /// The open file whose lock shows that this process is alive.
    pub(crate) fn lock(&self) -> std::os::fd::BorrowedFd<'_> {
        self.writer.lock()
    }

    /// The events to request while operations are followed.
    ///
    /// NCCL reports the parents of a child event even if they are not requested, so leaving out those of the program's
    /// calls would save nothing.
    fn mask(&self, version: u8) -> u64 {
        let mut mask = recorded(version) | followed(version);
        if version >= 6 {
            mask |= events::CE_COLL;
        }
        self.mask.unwrap_or(mask)
    }

    /// Begins a communicator: returns its context and the mask to request. NCCL keeps the mask at `mask`. `more` are the
    /// events that a second plugin requests; if they follow operations, this one follows all, since they are paid for.
    ///
    /// # Safety
    /// `init.name` is null or a string; `mask` is null or a variable that lives as long as NCCL does.
    pub(crate) unsafe fn begin(&self, init: &Init, mask: *mut c_int, more: c_int) -> (*mut c_void, c_int) {
        // SAFETY: the address is only looked up.
        let counts_wrong =
            || unsafe { release::of(mask.cast()) }.is_some_and(|release| release < COUNTS_RIGHT);
        let have_parted = self.broadcasts.have_parted();
        let without = if have_parted || init.version == 3 && counts_wrong() { events::KERNEL_CH } else { 0 };
        let followed = followed(init.version) & !without;
        // Kernels whose counts are wrong are reported to nobody.
        let more = more & !(without as c_int);
        self.pace.at(mask, followed as c_int & !more, recorded(init.version) as c_int | more);
        if more as u32 as u64 & self::followed(init.version) != 0 {
            self.pace.settle(true);
        }
        if followed & events::KERNEL_CH != 0 && recorded(init.version) & events::COLL_API == 0 {
            self.pace.settle(true);
        }
        let is_bound = self.mask.is_some() && !have_parted;
        let asked = self.mask(init.version) & if is_bound { u64::MAX } else { !without } | more as u32 as u64;
        if self.version.swap(c_int::from(init.version), Ordering::Relaxed) != c_int::from(init.version) {
            self.writer.interface(init.version);
            self.broadcasts.of_interface(init.version);
        }
        let mut name = [0_u8; 63];
        let mut length = 0;
        if !init.name.is_null() {
            for to in &mut name {
                // SAFETY: within the string: no earlier byte was its end.
                let from = unsafe { init.name.add(length) };
                // SAFETY: as above.
                let byte = unsafe { from.read() } as u8;
                if byte == 0 {
                    break;
                }
                *to = byte;
                length += 1;
            }
        }
        let new = NewComm {
            id: init.id,
            name: name.get(..length).unwrap_or(&[]),
            size: u32::try_from(init.size).unwrap_or(0),
            rank: u32::try_from(init.rank).ok(),
            nodes: u32::try_from(init.nodes).unwrap_or(0),
            sees_kernels: asked & events::KERNEL_CH != 0,
            sees_channels: init.version >= 4,
        };
        let comm = self.writer.comm_begins(&new);
        let mut asked = self.pace.now(asked as c_int);
        if self.broadcasts.have_parted() != have_parted {
            // It happened meanwhile, in another thread.
            self.pace.without(events::KERNEL_CH as c_int);
            self.writer.kernels_end();
            asked &= !(events::KERNEL_CH as c_int);
        }
        (pointer(comm), asked)
    }

    /// Records a broadcast call, in a group or for a graph.
    #[cold]
    fn broadcasts(&self, comm: Handle, group: Handle, root: c_int) {
        if self.broadcasts.called(comm.0, group.0, root) {
            self.pace.without(events::KERNEL_CH as c_int);
            self.writer.kernels_end();
        }
    }

    /// Ends a communicator.
    pub(crate) fn end(&self, context: *mut c_void) {
        self.writer.comm_ends(handle(context));
    }

    /// Records the start of an event that is not followed; None if the event must go through `Core::start`.
    ///
    /// # Safety
    /// Names in the call are null or strings.
    #[inline]
    pub(crate) unsafe fn pass(
        &self,
        context: *mut c_void,
        parent: *mut c_void,
        quick: &Quick,
    ) -> Option<*mut c_void> {
        let group = handle(parent);
        match quick {
            Quick::GroupApi if !self.pace.follows() => {
                self.pace.group_begins();
                Some(pointer(self.writer.passing_begins()))
            }
            Quick::Call(call) if group.kind() == Some(HandleKind::Passing) && !call.is_captured => {
                let now = self.writer.now_ns();
                if call.is_p2p {
                    self.pace.pairs();
                }
                // SAFETY: guaranteed by the caller.
                let function = unsafe { self.code(NameKind::Function, Name::Text(call.function)) };
                // Another thread may have switched the mask on meanwhile; this group has no room for broadcasts.
                if function != BROADCAST && self.pace.follows_at(now) {
                    return None;
                }
                if function == BROADCAST {
                    self.broadcasts(handle(context), group, call.root);
                }
                self.pace.called(now, false);
                // SAFETY: as above.
                let datatype = unsafe { self.code(NameKind::Datatype, Name::Text(call.datatype)) };
                let told = CallDescriptor {
                    function,
                    datatype,
                    is_p2p: call.is_p2p,
                    is_passed_over: true,
                    count: call.count as u64,
                    root: u32::try_from(call.root).ok().filter(|_| ROOTED.contains(&function)),
                    ..CallDescriptor::default()
                };
                Some(pointer(self.writer.passing_call(handle(context), group, &told, now)))
            }
            _ => None,
        }
    }

    /// Records the start of an event and returns its handle.
    ///
    /// # Safety
    /// Names in the event are null or strings.
    #[inline(never)]
    pub(crate) unsafe fn start(
        &self,
        context: *mut c_void,
        parent: *mut c_void,
        event: &ProfilerEvent,
    ) -> *mut c_void {
        let (comm, parent) = (handle(context), handle(parent));
        pointer(match event {
            ProfilerEvent::Group => self.writer.plan_begins(comm).following(self.pace.follows()),
            ProfilerEvent::GroupApi => {
                let group = self.writer.group_begins();
                if group == Handle::NONE {
                    self.pace.group_is_lost();
                } else {
                    self.pace.group_begins();
                }
                group
            }
            ProfilerEvent::Call(call) => {
                // SAFETY: guaranteed by the caller.
                let mut told = unsafe { self.told(call) };
                let now = self.writer.now_ns();
                if call.is_p2p {
                    self.pace.pairs();
                }
                if told.function == BROADCAST {
                    self.broadcasts(comm, parent, call.root);
                }
                // NCCL has just read the mask for this call, whatever it was when the group began.
                let is_followed =
                    if call.is_captured { self.pace.follows() } else { self.pace.follows_at(now) };
                told.is_passed_over = !is_followed;
                if call.is_captured {
                    self.pace.settle(is_followed);
                } else {
                    self.pace.called(now, is_followed);
                }
                self.writer.call(comm, parent, &told)
            }
            ProfilerEvent::Launch { call, plan } => {
                if let Some((id, rank)) = call.comm {
                    self.writer.comm_is(comm, id, u32::try_from(rank).ok());
                }
                // SAFETY: guaranteed by the caller.
                let mut told = unsafe { self.told(call) };
                let plan = handle(*plan);
                match parent.kind() {
                    // The call was already recorded.
                    Some(HandleKind::Call) => self.pace.spread(told.channels),
                    // The mask was switched between NCCL's reading and ours: the call is recorded, nothing more.
                    Some(HandleKind::Passed) => return std::ptr::null_mut(),
                    // A captured call is followed in every run or in none, as it was when it was captured.
                    Some(HandleKind::Captured) => told.is_passed_over = parent.is_followed() == Some(false),
                    _ => {
                        let is_followed = plan.is_followed().unwrap_or_else(|| self.pace.follows());
                        told.is_passed_over = !is_followed;
                        self.pace.called(self.writer.now_ns(), is_followed);
                        if is_followed {
                            self.pace.spread(told.channels);
                        }
                    }
                }
                self.writer.launch(comm, parent, plan, &told)
            }
            ProfilerEvent::Kernel { channel, gpu_ns } => self.writer.kernel_starts(parent, *channel, *gpu_ns),
            ProfilerEvent::ProxyOp { pid, peer, channel, steps, is_send } => {
                // With PXN the proxy of this process works for another process, whose handles are invalid here.
                let foreign = (*pid != self.pid).then_some(*pid as u32);
                self.writer.proxy_starts(parent, foreign, *peer as u32, *channel, *steps as u32, *is_send)
            }
            ProfilerEvent::ProxyStep(step) => self.writer.step_starts(parent, *step as u32),
            ProfilerEvent::Net => self.writer.net_starts(parent),
            ProfilerEvent::Other => Handle::NONE,
        })
    }

    /// # Safety
    /// Names in the call are null or strings.
    #[inline]
    unsafe fn told(&self, call: &Call) -> CallDescriptor {
        // SAFETY: guaranteed by the caller, here and below.
        let function = unsafe { self.code(NameKind::Function, call.function) };
        // SAFETY: as above.
        let datatype = unsafe { self.code(NameKind::Datatype, call.datatype) };
        // SAFETY: as above.
        let algorithm = unsafe { self.code(NameKind::Algorithm, call.algorithm) };
        // SAFETY: as above.
        let protocol = unsafe { self.code(NameKind::Protocol, call.protocol) };
        CallDescriptor {
            function,
            datatype,
            algorithm: if call.is_ce { ALGORITHM_CE } else { algorithm },
            protocol,
            channels: call.channels,
            is_p2p: call.is_p2p,
            is_captured: call.is_captured,
            is_passed_over: false,
            sequence: call.sequence,
            count: call.count as u64,
            root: u32::try_from(call.root).ok().filter(|_| ROOTED.contains(&function)),
            peer: call.peer.and_then(|peer| u32::try_from(peer).ok()),
        }
    }

    /// # Safety
    /// A text is null or a string.
    #[inline]
    unsafe fn code(&self, kind: NameKind, name: Name) -> u8 {
        match name {
            Name::None => 0,
            Name::Number(number) => number.saturating_add(1),
            Name::Text(text) if text.is_null() => 0,
            Name::Text(text) => {
                if let Some((code, key)) = self.writer.last_code(kind)
                    // SAFETY: guaranteed by the caller; it is not null.
                    && unsafe { is(text, key) }
                {
                    return code;
                }
                // SAFETY: as above.
                unsafe { self.code_of(kind, text) }
            }
        }
    }

    /// # Safety
    /// `text` is a string.
    #[inline(never)]
    unsafe fn code_of(&self, kind: NameKind, text: *const c_char) -> u8 {
        // SAFETY: guaranteed by the caller.
        let key = unsafe { key(text) };
        self.writer.code_of(kind, &key)
    }

    /// Records the stop of an event.
    #[inline]
    pub(crate) fn stop(&self, event: *mut c_void) {
        let handle = handle(event);
        match handle.kind() {
            Some(HandleKind::Op) => self.writer.handed_over(handle),
            Some(HandleKind::Kernel) => self.writer.kernel_stops(handle),
            Some(HandleKind::Wait) => self.writer.proxy_stops(handle),
            Some(HandleKind::Step) => self.writer.step_stops(handle),
            Some(HandleKind::Net) => self.writer.net_stops(handle),
            Some(HandleKind::Group) => {
                self.writer.group_ends(handle);
                self.pace.group_ends();
            }
            Some(HandleKind::Passing) => {
                self.writer.passing_ends(handle);
                self.pace.group_ends();
            }
            // The program's call returns, or a launch was issued: later events say more.
            Some(
                HandleKind::Call
                | HandleKind::Captured
                | HandleKind::Passed
                | HandleKind::Plan
                | HandleKind::Comm,
            )
            | None => {}
        }
    }

    /// Records a change of an event's state. `gpu_ns` is evaluated only in the state that has one.
    #[inline]
    pub(crate) fn record(&self, event: *mut c_void, state: c_int, gpu_ns: impl FnOnce() -> u64) {
        let handle = handle(event);
        let phase = match state {
            states::SEND_GPU_WAIT => Phase::SendGpu,
            states::SEND_PEER_WAIT => Phase::SendPeer,
            states::SEND_WAIT => Phase::SendNet,
            states::RECV_WAIT => Phase::RecvNet,
            states::RECV_FLUSH_WAIT => Phase::RecvFlush,
            states::RECV_GPU_WAIT => Phase::RecvGpu,
            states::KERNEL_STOP => return self.writer.kernel_tells_stop(handle, gpu_ns()),
            _ => return,
        };
        self.writer.step_waits(handle, phase);
    }
}

/// Events that record every operation: if the program's call is reported, it costs half as much as the launch.
fn recorded(version: u8) -> u64 {
    if version >= 5 { events::COLL_API | events::P2P_API } else { events::COLL | events::P2P }
}

/// Events that follow an operation.
fn followed(version: u8) -> u64 {
    let kernels = if version >= 3 { events::KERNEL_CH } else { 0 };
    let launches = if version >= 5 { events::COLL | events::P2P } else { 0 };
    kernels | launches | events::PROXY_OP | events::PROXY_STEP
}

/// A handle as NCCL keeps it: a number that is never dereferenced.
fn pointer(handle: Handle) -> *mut c_void {
    std::ptr::without_provenance_mut(handle.0 as usize)
}

fn handle(pointer: *mut c_void) -> Handle {
    Handle(pointer.addr() as u64)
}

/// Whether a string equals a key.
///
/// # Safety
/// `text` is a string.
unsafe fn is(text: *const c_char, key: &Key) -> bool {
    // In memory a key is a string of at most 31 bytes and its closing 0, if the low byte of a word comes first.
    // SAFETY: guaranteed by the caller; both are read only to their ends.
    cfg!(target_endian = "little") && unsafe { libc::strcmp(text, key.as_ptr().cast()) == 0 }
}

/// The first 31 bytes of a string.
///
/// # Safety
/// `text` is a string.
unsafe fn key(text: *const c_char) -> Key {
    // SAFETY: guaranteed by the caller: every byte up to the end of the string is part of it.
    let length = unsafe { libc::strnlen(text, KEY_BYTES) };
    // SAFETY: as above.
    let bytes = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), length) };
    let mut key: Key = [0; 4];
    for (word, bytes) in key.iter_mut().zip(bytes.chunks(8)) {
        *word = match bytes.first_chunk() {
            Some(whole) => u64::from_le_bytes(*whole),
            None => bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte)),
        };
    }
    key
}

/// Writes a line to NCCL's own log, at level INFO.
///
/// # Safety
/// `logger` is NCCL's.
pub(crate) unsafe fn log(logger: Option<Logger>, text: &str) {
    let Some(logger) = logger else { return };
    let Ok(text) = std::ffi::CString::new(text) else { return };
    // SAFETY: guaranteed by the caller; the format takes one string and gets one, and all strings outlive the call.
    unsafe {
        logger(
            LOG_INFO,
            LOG_INIT,
            c"ringleader".as_ptr(),
            0,
            c"PROFILER/Plugin: ringleader: %s".as_ptr(),
            text.as_ptr(),
        );
    }
}
