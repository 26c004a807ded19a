//! NCCL's profiler interface, one file per version: only the layouts of the C side, and their translation for `core`.
//!
//! Every number in the assertions was printed by a C program compiled against NCCL's public headers
//! (`src/include/plugin/profiler/profiler_vN.h`, 2.30.7 for 1 to 6, x86-64; the same in the releases that introduced
//! each).

pub mod v1;
pub mod v2;
pub mod v3;
pub mod v4;
pub mod v5;
pub mod v6;
pub mod v7;

use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, Ordering};

use crate::core::{Init, Logger, ProfilerEvent, Quick, log};
use crate::guard::{SUCCESS, guarded, guarded_init};
use crate::next::{self, Begun};

/// The table that NCCL looks up as `ncclProfiler_vN`: five functions and a name.
#[derive(Debug)]
#[repr(C)]
pub struct Profiler<I, D, A> {
    /// Name for NCCL's log.
    pub name: *const c_char,
    /// A communicator begins.
    pub init: I,
    /// An event starts.
    pub start_event: unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut D) -> c_int,
    /// An event stops.
    pub stop_event: unsafe extern "C" fn(*mut c_void) -> c_int,
    /// An event changes.
    pub record_event_state: unsafe extern "C" fn(*mut c_void, c_int, *mut A) -> c_int,
    /// A communicator ends.
    pub finalize: unsafe extern "C" fn(*mut c_void) -> c_int,
}

// SAFETY: all it holds is addresses of constants and functions.
unsafe impl<I, D, A> Sync for Profiler<I, D, A> {}

/// `init` of interfaces 1 to 3.
pub type Init1 = unsafe extern "C" fn(*mut *mut c_void, *mut c_int) -> c_int;

/// `init` of interface 4.
pub(crate) type Init4 = unsafe extern "C" fn(
    *mut *mut c_void,
    *mut c_int,
    *const c_char,
    u64,
    c_int,
    c_int,
    c_int,
    Option<Logger>,
) -> c_int;

/// `init` of interfaces 5 to 7.
pub(crate) type Init5 = unsafe extern "C" fn(
    *mut *mut c_void,
    u64,
    *mut c_int,
    *const c_char,
    c_int,
    c_int,
    c_int,
    Option<Logger>,
) -> c_int;

const _: () = assert!(size_of::<Profiler<Init1, (), ()>>() == 48);

/// `ncclProfilerEventDescr_vN_t`: the description of an event. Its type is a byte in interfaces 1 to 4, later 64
/// bits.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Descriptor<Kind, Of> {
    /// Type of the event.
    pub kind: Kind,
    /// Parent. For operations: a group before interface 5, since then the program's call.
    pub parent: *mut c_void,
    /// Own rank.
    pub rank: c_int,
    /// The fields that depend on the type.
    pub of: Of,
}

/// `proxyOp` of a descriptor, in all versions.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProxyOp {
    /// Process that the operation belongs to.
    pub pid: c_int,
    /// Channel.
    pub channel_id: u8,
    /// Peer.
    pub peer: c_int,
    /// Transfers.
    pub n_steps: c_int,
    /// Bytes of one.
    pub chunk_size: c_int,
    /// Direction.
    pub is_send: c_int,
}

/// `proxyStep` of a descriptor, in all versions.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProxyStep {
    /// Its number.
    pub step: c_int,
}

/// `netPlugin` of a descriptor, since interface 3.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct NetPlugin {
    /// Identifies plugin and version.
    pub id: i64,
    /// The plugin's own data.
    pub data: *mut c_void,
}

/// `kernelCh` of a descriptor, since interface 4.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct KernelCh {
    /// Channel.
    pub channel_id: u8,
    /// The GPU's timer at the start.
    pub p_timer: u64,
}

const _: () = {
    assert!(size_of::<ProxyOp>() == 24);
    assert!(std::mem::offset_of!(ProxyOp, channel_id) == 4);
    assert!(std::mem::offset_of!(ProxyOp, peer) == 8);
    assert!(std::mem::offset_of!(ProxyOp, n_steps) == 12);
    assert!(std::mem::offset_of!(ProxyOp, is_send) == 20);
    assert!(std::mem::offset_of!(NetPlugin, data) == 8);
    assert!(std::mem::offset_of!(KernelCh, p_timer) == 8);
};

/// Fields that all types of events share.
pub(crate) struct EventHead {
    pub(crate) parent: *mut c_void,
    pub(crate) rank: c_int,
}

/// A part of a descriptor's union, translated.
pub(crate) trait UnionPart {
    /// The event that it describes.
    fn event(&self, head: &EventHead) -> ProfilerEvent;

    /// The event, if it is a call of the program.
    #[inline]
    fn quick(&self) -> Quick {
        Quick::Other
    }

    /// The handle of the launch, if the part holds it besides the parent.
    #[inline]
    fn launch(&mut self) -> Option<&mut *mut c_void> {
        None
    }
}

impl UnionPart for ProxyOp {
    fn event(&self, _: &EventHead) -> ProfilerEvent {
        ProfilerEvent::ProxyOp {
            pid: self.pid,
            peer: self.peer,
            channel: self.channel_id,
            steps: self.n_steps,
            is_send: self.is_send != 0,
        }
    }
}

impl UnionPart for ProxyStep {
    fn event(&self, _: &EventHead) -> ProfilerEvent {
        ProfilerEvent::ProxyStep(self.step)
    }
}

impl UnionPart for KernelCh {
    fn event(&self, _: &EventHead) -> ProfilerEvent {
        ProfilerEvent::Kernel { channel: self.channel_id, gpu_ns: self.p_timer }
    }
}

impl UnionPart for NetPlugin {
    fn event(&self, _: &EventHead) -> ProfilerEvent {
        ProfilerEvent::Net
    }
}

/// `ncclProfilerEventStateArgs_vN_t`.
pub(crate) trait StateArgs {
    /// The GPU's timer when a channel's kernel stops, or 0 if the interface does not report it.
    #[inline]
    fn gpu_ns(&self) -> u64 {
        0
    }
}

/// One version of the interface: its layouts, and the part of the union that each type of event fills. The callbacks
/// below are generic over it. [`parts!`] implements it for the union.
pub(crate) trait Interface: Copy {
    /// Its number.
    const VERSION: u8;
    /// Type of `kind` in a descriptor.
    type Kind: Copy + Into<u64>;
    /// Arguments of `recordEventState`.
    type Args: StateArgs;

    /// The address of our table.
    fn own() -> *const c_void;

    /// The event that a descriptor of this type describes.
    ///
    /// # Safety
    /// The part of this type is filled.
    unsafe fn event(&self, kind: u64, head: &EventHead) -> ProfilerEvent;

    /// The event, if it is a call of the program or a group of calls: these are checked first because they come in
    /// floods.
    ///
    /// # Safety
    /// As above.
    unsafe fn quick(&self, kind: u64) -> Quick;

    /// The handle of the launch that a descriptor of this type holds besides its parent.
    ///
    /// # Safety
    /// As above.
    unsafe fn launch(&mut self, kind: u64) -> Option<&mut *mut c_void>;
}

/// Describes the version of the file that uses it, whose types are `Descriptor`, `Of` and `Args`: its number, and for
/// each type of event the field of the union, or what is in it.
macro_rules! parts {
    ($version:literal, $type:ty, $table:ident: $($kind:ident => $field:ident $(. $within:ident)?),+ $(,)?) => {
        impl super::Interface for Of {
            const VERSION: u8 = $version;
            type Kind = $type;
            type Args = Args;

            fn own() -> *const std::ffi::c_void {
                (&raw const $table).cast()
            }

            #[inline]
            unsafe fn event(&self, kind: u64, head: &super::EventHead) -> crate::core::ProfilerEvent {
                use crate::core::events;
                match kind {
                    events::GROUP => crate::core::ProfilerEvent::Group,
                    events::GROUP_API => crate::core::ProfilerEvent::GroupApi,
                    $(
                        // SAFETY: guaranteed by the caller: NCCL fills this part for this type.
                        events::$kind => super::UnionPart::event(unsafe { &self.$field $(. $within)? }, head),
                    )+
                    _ => crate::core::ProfilerEvent::Other,
                }
            }

            #[inline]
            unsafe fn quick(&self, kind: u64) -> crate::core::Quick {
                use crate::core::events;
                match kind {
                    events::GROUP_API => crate::core::Quick::GroupApi,
                    $(
                        // SAFETY: as above.
                        events::$kind => super::UnionPart::quick(unsafe { &self.$field $(. $within)? }),
                    )+
                    _ => crate::core::Quick::Other,
                }
            }

            #[inline]
            unsafe fn launch(&mut self, kind: u64) -> Option<&mut *mut std::ffi::c_void> {
                use crate::core::events;
                match kind {
                    $(
                        // SAFETY: as above.
                        events::$kind => super::UnionPart::launch(unsafe { &mut self.$field $(. $within)? }),
                    )+
                    _ => None,
                }
            }
        }
    };
}
use parts;

/// What a `Coll` and a `P2p` of interfaces 1 to 3 say: their fields have the same names, and a name is of this form. Where they
/// lie, each version's file says.
macro_rules! launches {
    (@ $form:ident coll) => {
        impl super::UnionPart for Coll {
            fn event(&self, head: &super::EventHead) -> crate::core::ProfilerEvent {
                let call = crate::core::Call {
                    function: crate::core::Name::$form(self.func),
                    datatype: crate::core::Name::$form(self.datatype),
                    algorithm: crate::core::Name::$form(self.algo),
                    protocol: crate::core::Name::$form(self.proto),
                    sequence: Some(self.seq_number),
                    count: self.count,
                    root: self.root,
                    channels: self.n_max_channels,
                    comm: Some((self.comm_hash, head.rank)),
                    ..crate::core::Call::NOTHING
                };
                crate::core::ProfilerEvent::Launch { call, plan: head.parent }
            }
        }
    };
    (@ $form:ident p2p) => {
        impl super::UnionPart for P2p {
            fn event(&self, head: &super::EventHead) -> crate::core::ProfilerEvent {
                let call = crate::core::Call {
                    function: crate::core::Name::$form(self.func),
                    datatype: crate::core::Name::$form(self.datatype),
                    is_p2p: true,
                    count: self.count,
                    peer: Some(self.peer),
                    comm: Some((self.comm_hash, head.rank)),
                    ..crate::core::Call::NOTHING
                };
                crate::core::ProfilerEvent::Launch { call, plan: head.parent }
            }
        }
    };
    ($form:ident: $($part:ident),+) => {
        $($crate::abi::launches! { @ $form $part })+
    };
}
use launches;

/// The table that NCCL looks up, for one version.
const fn profiler<V: Interface, I: Copy>(init: I) -> Profiler<I, Descriptor<V::Kind, V>, V::Args> {
    Profiler {
        name: c"ringleader".as_ptr(),
        init,
        start_event: start_event::<V>,
        stop_event: stop_event::<V>,
        record_event_state: record_event_state::<V>,
        finalize: finalize::<V>,
    }
}

/// `init` of interfaces 1 to 3.
///
/// # Safety
/// Called by NCCL: pointers are null or valid.
unsafe extern "C" fn init1<V: Interface>(context: *mut *mut c_void, mask: *mut c_int) -> c_int {
    let told = Init { version: V::VERSION, id: 0, name: std::ptr::null(), nodes: 0, size: 0, rank: -1 };
    let call = |init: *const c_void, context: *mut *mut c_void, mask: *mut c_int| {
        // SAFETY: the `init` of a table of this interface.
        let init = unsafe { std::mem::transmute::<*const c_void, Init1>(init) };
        // SAFETY: NCCL's arguments, and valid places.
        unsafe { init(context, mask) }
    };
    // SAFETY: the logger is NCCL's, the table that of this version.
    let second = unsafe { next::begin(V::VERSION, V::own(), None, call) };
    // SAFETY: NCCL's pointers, as they are.
    unsafe { begin(context, mask, None, &told, second) }
}

/// `init` of interface 4.
///
/// # Safety
/// As above.
unsafe extern "C" fn init4<V: Interface>(
    context: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    id: u64,
    nodes: c_int,
    size: c_int,
    rank: c_int,
    logger: Option<Logger>,
) -> c_int {
    let told = Init { version: V::VERSION, id, name, nodes, size, rank };
    let call = |init: *const c_void, context: *mut *mut c_void, mask: *mut c_int| {
        // SAFETY: the `init` of a table of this interface.
        let init = unsafe { std::mem::transmute::<*const c_void, Init4>(init) };
        // SAFETY: NCCL's arguments, and valid places.
        unsafe { init(context, mask, name, id, nodes, size, rank, logger) }
    };
    // SAFETY: the logger is NCCL's, the table that of this version.
    let second = unsafe { next::begin(V::VERSION, V::own(), logger, call) };
    // SAFETY: NCCL's pointers, as they are.
    unsafe { begin(context, mask, logger, &told, second) }
}

/// `init` of interfaces 5 to 7.
///
/// # Safety
/// As above.
unsafe extern "C" fn init5<V: Interface>(
    context: *mut *mut c_void,
    id: u64,
    mask: *mut c_int,
    name: *const c_char,
    nodes: c_int,
    size: c_int,
    rank: c_int,
    logger: Option<Logger>,
) -> c_int {
    let told = Init { version: V::VERSION, id, name, nodes, size, rank };
    let call = |init: *const c_void, context: *mut *mut c_void, mask: *mut c_int| {
        // SAFETY: the `init` of a table of this interface.
        let init = unsafe { std::mem::transmute::<*const c_void, Init5>(init) };
        // SAFETY: NCCL's arguments, and valid places.
        unsafe { init(context, id, mask, name, nodes, size, rank, logger) }
    };
    // SAFETY: the logger is NCCL's, the table that of this version.
    let second = unsafe { next::begin(V::VERSION, V::own(), logger, call) };
    // SAFETY: NCCL's pointers, as they are.
    unsafe { begin(context, mask, logger, &told, second) }
}

/// The common part of every `init`.
///
/// # Safety
/// Called by NCCL: pointers are null or valid.
unsafe fn begin(
    context: *mut *mut c_void,
    mask: *mut c_int,
    logger: Option<Logger>,
    told: &Init,
    second: Option<Begun>,
) -> c_int {
    // What the second plugin requests, and its context, which leads to ours.
    let more = second.map_or(0, |second| second.mask);
    let put = |handle: *mut c_void| {
        let handle = match (second, next::of(told.version)) {
            (Some(second), Some(next)) => {
                next.join(second.context, handle);
                second.context
            }
            _ => handle,
        };
        // SAFETY: NCCL's place for the context, or null.
        if let Some(context) = unsafe { context.as_mut() } {
            *context = handle;
        }
    };
    // One mask serves all communicators of the process: another thread may be using it right now.
    let set = |bits: c_int| {
        // SAFETY: NCCL's place for the mask, or null; NCCL reads it atomically.
        if let Some(mask) = unsafe { mask.cast::<AtomicI32>().as_ref() } {
            mask.store(bits, Ordering::Relaxed);
        }
    };
    put(std::ptr::null_mut());
    guarded_init(|core| match core {
        Ok(core) => {
            // SAFETY: the name is NCCL's string, or null; the mask is NCCL's variable, or null.
            let (handle, bits) = unsafe { core.begin(told, mask, more) };
            put(handle);
            set(bits);
            let text = format!("recording to {}", core.path().display());
            // SAFETY: the logger is NCCL's.
            unsafe { log(logger, &text) };
        }
        Err(why) if why.is_empty() => set(more),
        Err(why) => {
            set(more);
            // SAFETY: the logger is NCCL's.
            unsafe { log(logger, &format!("off: failed to {why}")) };
        }
    })
}

/// `startEvent` of every version.
///
/// # Safety
/// Called by NCCL: pointers are null or valid, including strings in the descriptor.
unsafe extern "C" fn start_event<V: Interface>(
    context: *mut c_void,
    handle: *mut *mut c_void,
    descriptor: *mut Descriptor<V::Kind, V>,
) -> c_int {
    // SAFETY: NCCL's place for the handle, or null.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return SUCCESS };
    *handle = std::ptr::null_mut();
    // SAFETY: NCCL's descriptor, or null.
    let Some(descriptor) = (unsafe { descriptor.as_ref() }) else { return SUCCESS };
    let next = next::of(V::VERSION);
    let own = |handle: *mut c_void| next.map_or(handle, |next| next.own(handle));
    let kind = descriptor.kind.into();
    guarded(|core| {
        let (context, parent) = (own(context), own(descriptor.parent));
        // SAFETY: NCCL fills the part of this type.
        let quick = unsafe { descriptor.of.quick(kind) };
        // SAFETY: the strings are NCCL's, or null.
        *handle = unsafe { core.pass(context, parent, &quick) }.unwrap_or_else(|| {
            let head = EventHead { parent, rank: descriptor.rank };
            // SAFETY: NCCL fills the part of this type.
            let mut event = unsafe { descriptor.of.event(kind, &head) };
            if let ProfilerEvent::Launch { plan, .. } = &mut event {
                *plan = own(*plan);
            }
            // SAFETY: the strings are NCCL's, or null.
            unsafe { core.start(context, parent, &event) }
        });
    });
    if let Some(next) = next
        && next.is_told(context, kind)
    {
        // SAFETY: the context is the second plugin's, the descriptor NCCL's.
        let theirs = unsafe { tell(next, context, *descriptor) };
        if !theirs.is_null() {
            if !next.join(theirs, *handle) {
                // Nobody would stop it.
                guarded(|core| core.stop(*handle));
            }
            *handle = theirs;
        }
    }
    SUCCESS
}

/// Tells the second plugin of an event; returns its handle. It never gets a handle of ours.
///
/// # Safety
/// The context is its own, the descriptor is NCCL's.
unsafe fn tell<V: Interface>(
    next: &next::Next,
    context: *mut c_void,
    mut descriptor: Descriptor<V::Kind, V>,
) -> *mut c_void {
    let not_ours = |handle: &mut *mut c_void| {
        if !next::is_theirs(*handle) {
            *handle = std::ptr::null_mut();
        }
    };
    not_ours(&mut descriptor.parent);
    let kind = descriptor.kind.into();
    // SAFETY: NCCL fills the part of this type.
    if let Some(launch) = unsafe { descriptor.of.launch(kind) } {
        not_ours(launch);
    }
    // SAFETY: guaranteed by the caller.
    unsafe { next.start(context, (&raw mut descriptor).cast()) }
}

/// `recordEventState` of every version.
///
/// # Safety
/// Called by NCCL: a handle is one that it got, the arguments are null or valid.
unsafe extern "C" fn record_event_state<V: Interface>(
    handle: *mut c_void,
    state: c_int,
    args: *mut V::Args,
) -> c_int {
    let next = next::of(V::VERSION);
    guarded(|core| {
        core.record(next.map_or(handle, |next| next.own(handle)), state, || {
            // SAFETY: NCCL's arguments, or null.
            unsafe { args.as_ref() }.map_or(0, StateArgs::gpu_ns)
        });
    });
    if let Some(next) = next {
        // SAFETY: NCCL's handle and arguments.
        unsafe { next.record(handle, state, args.cast()) };
    }
    SUCCESS
}

/// `stopEvent` of every version.
///
/// # Safety
/// A handle is one that NCCL got.
unsafe extern "C" fn stop_event<V: Interface>(handle: *mut c_void) -> c_int {
    let next = next::of(V::VERSION);
    // Ours first: afterwards the second plugin may give the same address to another event.
    guarded(|core| core.stop(next.map_or(handle, |next| next.own(handle))));
    if let Some(next) = next {
        // SAFETY: NCCL's handle.
        unsafe { next.stop(handle) };
    }
    SUCCESS
}

/// `finalize` of every version.
///
/// # Safety
/// A context is one that NCCL got.
unsafe extern "C" fn finalize<V: Interface>(context: *mut c_void) -> c_int {
    let next = next::of(V::VERSION);
    guarded(|core| core.end(next.map_or(context, |next| next.own(context))));
    if let Some(next) = next {
        // SAFETY: NCCL's context.
        unsafe { next.end(context) };
    }
    SUCCESS
}
