//! Interface 2, of NCCL 2.24.3: names are strings.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use super::{Init1, NAME, Profiler, ProxyOp, ProxyStep, finalize, stop_event};
use crate::core::{Call, Event, Init, Name, events};
use crate::guard::guarded;

/// `ncclProfilerEventDescr_v2_t`.
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
}

/// A collective.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in NCCL's header")]
pub struct Coll {
    pub name: *const c_char,
    pub comm_hash: u64,
    pub seq_number: u64,
    pub func: *const c_char,
    pub send_buff: *const c_void,
    pub recv_buff: *mut c_void,
    pub count: usize,
    pub root: c_int,
    pub datatype: *const c_char,
    pub traffic_bytes: usize,
    pub n_max_channels: u8,
    pub n_warps: u8,
    pub algo: *const c_char,
    pub proto: *const c_char,
}

/// A send or receive.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in NCCL's header")]
pub struct P2p {
    pub name: *const c_char,
    pub comm_hash: u64,
    pub func: *const c_char,
    pub buff: *mut c_void,
    pub datatype: *const c_char,
    pub count: usize,
    pub peer: c_int,
}

const _: () = {
    assert!(size_of::<Descriptor>() == 128);
    assert!(offset_of!(Descriptor, parent) == 8);
    assert!(offset_of!(Descriptor, rank) == 16);
    assert!(offset_of!(Descriptor, of) == 24);
    assert!(offset_of!(Coll, comm_hash) == 32 - 24);
    assert!(offset_of!(Coll, seq_number) == 40 - 24);
    assert!(offset_of!(Coll, func) == 48 - 24);
    assert!(offset_of!(Coll, count) == 72 - 24);
    assert!(offset_of!(Coll, root) == 80 - 24);
    assert!(offset_of!(Coll, datatype) == 88 - 24);
    assert!(offset_of!(Coll, n_max_channels) == 104 - 24);
    assert!(offset_of!(Coll, algo) == 112 - 24);
    assert!(offset_of!(Coll, proto) == 120 - 24);
    assert!(offset_of!(Coll, traffic_bytes) == 96 - 24);
    assert!(offset_of!(P2p, comm_hash) == 32 - 24);
    assert!(offset_of!(P2p, func) == 40 - 24);
    assert!(offset_of!(P2p, datatype) == 56 - 24);
    assert!(offset_of!(P2p, count) == 64 - 24);
    assert!(offset_of!(P2p, peer) == 72 - 24);
};

/// `ncclProfilerEventStateArgs_v2_t`: nothing in it is used.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args {
    /// Bytes of a transfer.
    pub trans_size: usize,
    /// Steps.
    pub steps: c_int,
}

const _: () = assert!(size_of::<Args>() == 16);

/// What NCCL looks for.
#[unsafe(no_mangle)]
pub static ncclProfiler_v2: Profiler<Init1, Descriptor, Args> =
    Profiler { name: NAME, init, start_event, stop_event, record_event_state, finalize };

unsafe extern "C" fn init(context: *mut *mut c_void, mask: *mut c_int) -> c_int {
    let told = Init { version: 2, id: 0, name: std::ptr::null(), nodes: 0, size: 0, rank: -1 };
    // SAFETY: NCCL's pointers, as they are.
    unsafe { super::init(context, mask, None, &told) }
}

unsafe extern "C" fn start_event(
    context: *mut c_void,
    handle: *mut *mut c_void,
    descriptor: *mut Descriptor,
) -> c_int {
    // SAFETY: NCCL's pointers, as they are.
    unsafe { super::start(context, handle, descriptor, super::no_calls, event) }
}

unsafe extern "C" fn record_event_state(handle: *mut c_void, state: c_int, _args: *mut Args) -> c_int {
    guarded(|core| core.record(handle, state, || 0))
}

fn event(descriptor: &Descriptor) -> (*mut c_void, Event) {
    let of = &descriptor.of;
    let event = match u64::from(descriptor.kind) {
        events::GROUP => Event::Group,
        events::COLL => {
            // SAFETY: NCCL fills this part for this type.
            let coll = unsafe { &of.coll };
            let call = Call {
                function: Name::Text(coll.func),
                datatype: Name::Text(coll.datatype),
                algorithm: Name::Text(coll.algo),
                protocol: Name::Text(coll.proto),
                sequence: Some(coll.seq_number),
                count: coll.count,
                root: coll.root,
                channels: coll.n_max_channels,
                comm: Some((coll.comm_hash, descriptor.rank)),
                ..Call::NOTHING
            };
            Event::Launch { call, plan: descriptor.parent }
        }
        events::P2P => {
            // SAFETY: as above.
            let p2p = unsafe { &of.p2p };
            let call = Call {
                function: Name::Text(p2p.func),
                datatype: Name::Text(p2p.datatype),
                is_p2p: true,
                count: p2p.count,
                peer: Some(p2p.peer),
                comm: Some((p2p.comm_hash, descriptor.rank)),
                ..Call::NOTHING
            };
            Event::Launch { call, plan: descriptor.parent }
        }
        // SAFETY: as above.
        events::PROXY_OP => unsafe { &of.proxy_op }.event(),
        // SAFETY: as above.
        events::PROXY_STEP => Event::ProxyStep(unsafe { of.proxy_step }.step),
        _ => Event::Other,
    };
    (descriptor.parent, event)
}
