//! Interface 4, of NCCL 2.27.3: `init` tells the communicator, kernels the GPU's time, and channels are exact.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use super::{KernelCh, NAME, NetPlugin, Profiler, ProxyOp, ProxyStep, finalize, stop_event};
use crate::core::{Call, Event, Init, Logger, Name, events};
use crate::guard::guarded;

/// `ncclProfilerEventDescr_v4_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Descriptor {
    /// Type of the event.
    pub kind: u8,
    /// Parent: a group for operations.
    pub parent: *mut c_void,
    /// Own rank.
    pub rank: c_int,
    /// The rest, by type.
    pub of: Of,
}

/// The union of a descriptor.
#[derive(Clone, Copy)]
#[repr(C)]
pub union Of {
    /// Collective.
    pub coll: Coll,
    /// Send or receive.
    pub p2p: P2p,
    /// Proxy operation.
    pub proxy_op: ProxyOp,
    /// Step.
    pub proxy_step: ProxyStep,
    /// A channel's kernel.
    pub kernel_ch: KernelCh,
    /// Network plugin.
    pub net_plugin: NetPlugin,
}

/// A collective.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in NCCL's header")]
pub struct Coll {
    pub seq_number: u64,
    pub func: *const c_char,
    pub send_buff: *const c_void,
    pub recv_buff: *mut c_void,
    pub count: usize,
    pub root: c_int,
    pub datatype: *const c_char,
    pub n_channels: u8,
    pub n_warps: u8,
    pub algo: *const c_char,
    pub proto: *const c_char,
}

/// A send or receive.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in NCCL's header")]
pub struct P2p {
    pub func: *const c_char,
    pub buff: *mut c_void,
    pub datatype: *const c_char,
    pub count: usize,
    pub peer: c_int,
    pub n_channels: u8,
}

/// `ncclProfilerEventStateArgs_v4_t`: for the stop of a kernel, the GPU's timer.
#[derive(Clone, Copy)]
#[repr(C)]
pub union Args {
    /// The GPU's timer at the stop of a channel's kernel.
    pub p_timer: u64,
    /// Bytes of a transfer.
    pub trans_size: usize,
}

const _: () = {
    assert!(size_of::<Descriptor>() == 104);
    assert!(size_of::<Args>() == 8);
    assert!(offset_of!(Descriptor, parent) == 8);
    assert!(offset_of!(Descriptor, rank) == 16);
    assert!(offset_of!(Descriptor, of) == 24);
    assert!(offset_of!(Coll, func) == 32 - 24);
    assert!(offset_of!(Coll, count) == 56 - 24);
    assert!(offset_of!(Coll, root) == 64 - 24);
    assert!(offset_of!(Coll, datatype) == 72 - 24);
    assert!(offset_of!(Coll, n_channels) == 80 - 24);
    assert!(offset_of!(Coll, algo) == 88 - 24);
    assert!(offset_of!(Coll, proto) == 96 - 24);
    assert!(offset_of!(P2p, datatype) == 40 - 24);
    assert!(offset_of!(P2p, count) == 48 - 24);
    assert!(offset_of!(P2p, peer) == 56 - 24);
    assert!(offset_of!(P2p, n_channels) == 60 - 24);
};

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

/// What NCCL looks for.
#[unsafe(no_mangle)]
pub static ncclProfiler_v4: Profiler<Init4, Descriptor, Args> =
    Profiler { name: NAME, init, start_event, stop_event, record_event_state, finalize };

unsafe extern "C" fn init(
    context: *mut *mut c_void,
    mask: *mut c_int,
    name: *const c_char,
    id: u64,
    nodes: c_int,
    size: c_int,
    rank: c_int,
    logger: Option<Logger>,
) -> c_int {
    let told = Init { version: 4, id, name, nodes, size, rank };
    // SAFETY: NCCL's pointers, as they are.
    unsafe { super::init(context, mask, logger, &told) }
}

unsafe extern "C" fn start_event(
    context: *mut c_void,
    handle: *mut *mut c_void,
    descriptor: *mut Descriptor,
) -> c_int {
    // SAFETY: NCCL's pointers, as they are.
    unsafe { super::start(context, handle, descriptor, super::no_calls, event) }
}

pub(super) unsafe extern "C" fn record_event_state(
    handle: *mut c_void,
    state: c_int,
    args: *mut Args,
) -> c_int {
    guarded(|core| {
        core.record(handle, state, || {
            // SAFETY: NCCL's arguments, or null.
            let args = unsafe { args.as_ref() };
            // SAFETY: NCCL fills this part for the state that asks for it.
            args.map_or(0, |args| unsafe { args.p_timer })
        });
    })
}

fn event(descriptor: &Descriptor) -> (*mut c_void, Event) {
    let of = &descriptor.of;
    let event = match u64::from(descriptor.kind) {
        events::GROUP => Event::Group,
        // SAFETY: NCCL fills this part for this type.
        events::COLL => Event::Launch { call: unsafe { &of.coll }.call(), plan: descriptor.parent },
        // SAFETY: as above.
        events::P2P => Event::Launch { call: unsafe { &of.p2p }.call(), plan: descriptor.parent },
        // SAFETY: as above.
        events::PROXY_OP => unsafe { &of.proxy_op }.event(),
        // SAFETY: as above.
        events::PROXY_STEP => Event::ProxyStep(unsafe { of.proxy_step }.step),
        // SAFETY: as above.
        events::KERNEL_CH => unsafe { of.kernel_ch }.event(),
        events::NET_PLUGIN => Event::Net,
        _ => Event::Other,
    };
    (descriptor.parent, event)
}

impl Coll {
    pub(super) fn call(&self) -> Call {
        Call {
            function: Name::Text(self.func),
            datatype: Name::Text(self.datatype),
            algorithm: Name::Text(self.algo),
            protocol: Name::Text(self.proto),
            sequence: Some(self.seq_number),
            count: self.count,
            root: self.root,
            channels: self.n_channels,
            ..Call::NOTHING
        }
    }
}

impl P2p {
    pub(super) fn call(&self) -> Call {
        Call {
            function: Name::Text(self.func),
            datatype: Name::Text(self.datatype),
            is_p2p: true,
            count: self.count,
            peer: Some(self.peer),
            channels: self.n_channels,
            ..Call::NOTHING
        }
    }
}
