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

use crate::core::{Event, Init, Logger, Quick, log};
use crate::guard::{SUCCESS, guarded, guarded_init};

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
pub(crate) struct Head {
    pub(crate) parent: *mut c_void,
    pub(crate) rank: c_int,
}

/// A part of a descriptor's union, translated.
pub(crate) trait Part {
    /// The event that it describes.
    fn event(&self, head: &Head) -> Event;

    /// The event, if it is a call of the program.
    #[inline]
    fn quick(&self) -> Quick {
        Quick::Other
    }
}

impl Part for ProxyOp {
    fn event(&self, _: &Head) -> Event {
        Event::ProxyOp {
            pid: self.pid,
            peer: self.peer,
            channel: self.channel_id,
            steps: self.n_steps,
            is_send: self.is_send != 0,
        }
    }
}

impl Part for ProxyStep {
    fn event(&self, _: &Head) -> Event {
        Event::ProxyStep(self.step)
    }
}

impl Part for KernelCh {
    fn event(&self, _: &Head) -> Event {
        Event::Kernel { channel: self.channel_id, gpu_ns: self.p_timer }
    }
}

impl Part for NetPlugin {
    fn event(&self, _: &Head) -> Event {
        Event::Net
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
pub(crate) trait Interface: Sized {
    /// Its number.
    const VERSION: u8;
    /// Type of `kind` in a descriptor.
    type Kind: Copy + Into<u64>;
    /// Arguments of `recordEventState`.
    type Args: StateArgs;

    /// The event that a descriptor of this type describes.
    ///
    /// # Safety
    /// The part of this type is filled.
    unsafe fn event(&self, kind: u64, head: &Head) -> Event;

    /// The event, if it is a call of the program or a group of calls: these are checked first because they come in
    /// floods.
    ///
    /// # Safety
    /// As above.
    unsafe fn quick(&self, kind: u64) -> Quick;
}

/// Describes the version of the file that uses it, whose types are `Descriptor`, `Of` and `Args`: its number, and for
/// each type of event the field of the union, or what is in it.
macro_rules! parts {
    ($version:literal, $type:ty: $($kind:ident => $field:ident $(. $within:ident)?),+ $(,)?) => {
        impl super::Interface for Of {
            const VERSION: u8 = $version;
            type Kind = $type;
            type Args = Args;

            #[inline]
            unsafe fn event(&self, kind: u64, head: &super::Head) -> crate::core::Event {
                use crate::core::events;
                match kind {
                    events::GROUP => crate::core::Event::Group,
                    events::GROUP_API => crate::core::Event::GroupApi,
                    $(
                        // SAFETY: guaranteed by the caller: NCCL fills this part for this type.
                        events::$kind => super::Part::event(unsafe { &self.$field $(. $within)? }, head),
                    )+
                    _ => crate::core::Event::Other,
                }
            }

            #[inline]
            unsafe fn quick(&self, kind: u64) -> crate::core::Quick {
                use crate::core::events;
                match kind {
                    events::GROUP_API => crate::core::Quick::GroupApi,
                    $(
                        // SAFETY: as above.
                        events::$kind => super::Part::quick(unsafe { &self.$field $(. $within)? }),
                    )+
                    _ => crate::core::Quick::Other,
                }
            }
        }
    };
}
use parts;

/// The table that NCCL looks up, for one version.
const fn profiler<V: Interface, I: Copy>(init: I) -> Profiler<I, Descriptor<V::Kind, V>, V::Args> {
    Profiler {
        name: c"ringleader".as_ptr(),
        init,
        start_event: start_event::<V>,
        stop_event,
        record_event_state: record_event_state::<V>,
        finalize,
    }
}

/// `init` of interfaces 1 to 3.
///
/// # Safety
/// Called by NCCL: pointers are null or valid.
unsafe extern "C" fn init1<V: Interface>(context: *mut *mut c_void, mask: *mut c_int) -> c_int {
    let told = Init { version: V::VERSION, id: 0, name: std::ptr::null(), nodes: 0, size: 0, rank: -1 };
    // SAFETY: NCCL's pointers, as they are.
    unsafe { begin(context, mask, None, &told) }
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
    // SAFETY: NCCL's pointers, as they are.
    unsafe { begin(context, mask, logger, &told) }
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
    // SAFETY: NCCL's pointers, as they are.
    unsafe { begin(context, mask, logger, &told) }
}

/// The common part of every `init`.
///
/// # Safety
/// Called by NCCL: pointers are null or valid.
unsafe fn begin(context: *mut *mut c_void, mask: *mut c_int, logger: Option<Logger>, told: &Init) -> c_int {
    let put = |handle: *mut c_void| {
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
            let (handle, bits) = unsafe { core.begin(told, mask) };
            put(handle);
            set(bits);
            let text = format!("recording to {}", core.path().display());
            // SAFETY: the logger is NCCL's.
            unsafe { log(logger, &text) };
        }
        Err(why) if why.is_empty() => set(0),
        Err(why) => {
            set(0);
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
    guarded(|core| {
        let (kind, parent) = (descriptor.kind.into(), descriptor.parent);
        // SAFETY: NCCL fills the part of this type.
        let quick = unsafe { descriptor.of.quick(kind) };
        // SAFETY: the strings are NCCL's, or null.
        *handle = unsafe { core.pass(context, parent, &quick) }.unwrap_or_else(|| {
            let head = Head { parent, rank: descriptor.rank };
            // SAFETY: NCCL fills the part of this type.
            let event = unsafe { descriptor.of.event(kind, &head) };
            // SAFETY: the strings are NCCL's, or null.
            unsafe { core.start(context, parent, &event) }
        });
    })
}

/// `recordEventState` of every version.
///
/// # Safety
/// Called by NCCL: a handle is a number, the arguments are null or valid.
unsafe extern "C" fn record_event_state<V: Interface>(
    handle: *mut c_void,
    state: c_int,
    args: *mut V::Args,
) -> c_int {
    guarded(|core| {
        core.record(handle, state, || {
            // SAFETY: NCCL's arguments, or null.
            unsafe { args.as_ref() }.map_or(0, StateArgs::gpu_ns)
        });
    })
}

/// `stopEvent` of every version.
///
/// # Safety
/// None: a handle is a number.
unsafe extern "C" fn stop_event(handle: *mut c_void) -> c_int {
    guarded(|core| core.stop(handle))
}

/// `finalize` of every version.
///
/// # Safety
/// None: a context is a number.
unsafe extern "C" fn finalize(context: *mut c_void) -> c_int {
    guarded(|core| core.end(context))
}
