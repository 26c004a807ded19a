//! Interface 6, of NCCL 2.29.2: as 5, and collectives by copy engines.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use super::v4::{Args, record_event_state};
use super::v5::{Coll, CollApi, Init5, P2p, P2pApi};
use super::{KernelCh, NAME, NetPlugin, Profiler, ProxyOp, ProxyStep, finalize, stop_event};
use crate::core::{Call, Event, Init, Logger, Name, Quick, events};

/// `ncclProfilerEventDescr_v6_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Descriptor {
    /// Type of the event.
    pub kind: u64,
    /// Parent: the program's call for operations.
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
    /// The program's call of a collective.
    pub coll_api: CollApi,
    /// The program's call of a send or receive.
    pub p2p_api: P2pApi,
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
    /// Collective by copy engines.
    pub ce_coll: CeColl,
}

/// A collective by copy engines.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in NCCL's header")]
pub struct CeColl {
    pub seq_number: u64,
    pub func: *const c_char,
    pub send_buff: *const c_void,
    pub recv_buff: *mut c_void,
    pub count: usize,
    pub root: c_int,
    pub datatype: *const c_char,
    pub sync_strategy: *const c_char,
    /// A C `bool`, read as a byte.
    pub intra_batch_sync: u8,
    pub batch_size: u32,
    pub num_batches: u32,
    pub ce_seq_num: u32,
    pub stream: *mut c_void,
}

const _: () = {
    assert!(size_of::<Descriptor>() == 112);
    assert!(offset_of!(Descriptor, parent) == 8);
    assert!(offset_of!(Descriptor, rank) == 16);
    assert!(offset_of!(Descriptor, of) == 24);
    assert!(offset_of!(CeColl, func) == 32 - 24);
    assert!(offset_of!(CeColl, count) == 56 - 24);
    assert!(offset_of!(CeColl, root) == 64 - 24);
    assert!(offset_of!(CeColl, datatype) == 72 - 24);
    assert!(offset_of!(CeColl, sync_strategy) == 80 - 24);
    assert!(offset_of!(CeColl, batch_size) == 92 - 24);
    assert!(offset_of!(CeColl, ce_seq_num) == 100 - 24);
    assert!(offset_of!(CeColl, stream) == 104 - 24);
};

/// What NCCL looks for.
#[unsafe(no_mangle)]
pub static ncclProfiler_v6: Profiler<Init5, Descriptor, Args> =
    Profiler { name: NAME, init, start_event, stop_event, record_event_state, finalize };

unsafe extern "C" fn init(
    context: *mut *mut c_void,
    id: u64,
    mask: *mut c_int,
    name: *const c_char,
    nodes: c_int,
    size: c_int,
    rank: c_int,
    logger: Option<Logger>,
) -> c_int {
    let told = Init { version: 6, id, name, nodes, size, rank };
    // SAFETY: NCCL's pointers, as they are.
    unsafe { super::init(context, mask, logger, &told) }
}

unsafe extern "C" fn start_event(
    context: *mut c_void,
    handle: *mut *mut c_void,
    descriptor: *mut Descriptor,
) -> c_int {
    // SAFETY: NCCL's pointers, as they are.
    unsafe { super::start(context, handle, descriptor, quick, event) }
}

fn quick(descriptor: &Descriptor) -> (*mut c_void, Quick) {
    let quick = match descriptor.kind {
        events::GROUP_API => Quick::GroupApi,
        // SAFETY: NCCL fills this part for this type.
        events::COLL_API => unsafe { &descriptor.of.coll_api }.quick(),
        // SAFETY: as above.
        events::P2P_API => unsafe { &descriptor.of.p2p_api }.quick(),
        _ => Quick::Other,
    };
    (descriptor.parent, quick)
}

fn event(descriptor: &Descriptor) -> (*mut c_void, Event) {
    let of = &descriptor.of;
    let event = match descriptor.kind {
        events::GROUP => Event::Group,
        events::GROUP_API => Event::GroupApi,
        // SAFETY: NCCL fills this part for this type.
        events::COLL_API => unsafe { &of.coll_api }.event(),
        // SAFETY: as above.
        events::P2P_API => unsafe { &of.p2p_api }.event(),
        // SAFETY: as above.
        events::COLL => unsafe { &of.coll }.event(),
        // SAFETY: as above.
        events::P2P => unsafe { &of.p2p }.event(),
        // SAFETY: as above.
        events::PROXY_OP => unsafe { &of.proxy_op }.event(),
        // SAFETY: as above.
        events::PROXY_STEP => Event::ProxyStep(unsafe { of.proxy_step }.step),
        // SAFETY: as above.
        events::KERNEL_CH => unsafe { of.kernel_ch }.event(),
        events::NET_PLUGIN => Event::Net,
        // SAFETY: as above.
        events::CE_COLL => unsafe { &of.ce_coll }.event(),
        _ => Event::Other,
    };
    (descriptor.parent, event)
}

impl CeColl {
    /// Copies are queued and nobody tells of their end.
    pub(super) fn event(&self) -> Event {
        let call = Call {
            function: Name::Text(self.func),
            datatype: Name::Text(self.datatype),
            is_ce: true,
            sequence: Some(self.seq_number),
            count: self.count,
            root: self.root,
            ..Call::NOTHING
        };
        Event::Launch { call, plan: std::ptr::null_mut() }
    }
}
