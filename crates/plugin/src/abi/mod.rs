//! NCCL's profiler interface, one file per version: only what the C side looks like, and the way to `core`.
//!
//! Every number in the assertions was printed by a C program compiled against NCCL's public headers
//! (`src/include/plugin/profiler/profiler_vN.h`, 2.30.7 for 1 to 6, x86-64; the same in the releases that brought each).

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

/// What NCCL finds under `ncclProfiler_vN`: five functions and a name.
#[derive(Debug)]
#[repr(C)]
pub struct Profiler<I, D, A> {
    /// For NCCL's log.
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

const _: () = assert!(size_of::<Profiler<Init1, (), ()>>() == 48);

/// The name in NCCL's log.
pub(crate) const NAME: *const c_char = c"ringleader".as_ptr();

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
    /// Which plugin and version.
    pub id: i64,
    /// Its own data.
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

impl ProxyOp {
    fn event(&self) -> Event {
        Event::ProxyOp {
            pid: self.pid,
            peer: self.peer,
            channel: self.channel_id,
            steps: self.n_steps,
            is_send: self.is_send != 0,
        }
    }
}

impl KernelCh {
    fn event(self) -> Event {
        Event::Kernel { channel: self.channel_id, gpu_ns: self.p_timer }
    }
}

/// Common end of every `init`.
///
/// # Safety
/// As NCCL calls it: pointers are null or good.
unsafe fn init(context: *mut *mut c_void, mask: *mut c_int, logger: Option<Logger>, told: &Init) -> c_int {
    let put = |handle: *mut c_void| {
        // SAFETY: NCCL's place for the context, or null.
        if let Some(context) = unsafe { context.as_mut() } {
            *context = handle;
        }
    };
    // One mask serves all communicators of the process: it may be in use by another thread right now.
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

/// Common end of every `startEvent`.
///
/// # Safety
/// As NCCL calls it: pointers are null or good, strings in the descriptor too.
#[inline]
unsafe fn start<D>(
    context: *mut c_void,
    handle: *mut *mut c_void,
    descriptor: *mut D,
    quick: impl FnOnce(&D) -> (*mut c_void, Quick),
    event: impl FnOnce(&D) -> (*mut c_void, Event),
) -> c_int {
    // SAFETY: NCCL's place for the handle, or null.
    let Some(handle) = (unsafe { handle.as_mut() }) else { return SUCCESS };
    *handle = std::ptr::null_mut();
    // SAFETY: NCCL's descriptor, or null.
    let Some(descriptor) = (unsafe { descriptor.as_ref() }) else { return SUCCESS };
    guarded(|core| {
        let (parent, quick) = quick(descriptor);
        // SAFETY: the strings are NCCL's, or null.
        *handle = unsafe { core.pass(context, parent, &quick) }.unwrap_or_else(|| {
            let (parent, event) = event(descriptor);
            // SAFETY: as above.
            unsafe { core.start(context, parent, &event) }
        });
    })
}

/// Interfaces before 5 do not tell the program's calls.
fn no_calls<D>(_: &D) -> (*mut c_void, Quick) {
    (std::ptr::null_mut(), Quick::Other)
}

/// `stopEvent` of every version.
///
/// # Safety
/// None: a handle is a number.
pub(crate) unsafe extern "C" fn stop_event(handle: *mut c_void) -> c_int {
    guarded(|core| core.stop(handle))
}

/// `finalize` of every version.
///
/// # Safety
/// None: a context is a number.
pub(crate) unsafe extern "C" fn finalize(context: *mut c_void) -> c_int {
    guarded(|core| core.end(context))
}
