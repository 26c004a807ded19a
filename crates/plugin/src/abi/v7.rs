//! Interface 7, of NCCL 2.31: symmetric kernels are told, as are the program's own tags, which are not used.
//!
//! The newest header, that of NVIDIA/nccl at 889806836097; NCCL 2.32.3 asks for this interface.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use super::v4::{Args, record_event_state};
use super::v5::{self, Init5};
use super::v6::CeColl as CeColl6;
use super::{KernelCh, NAME, NetPlugin, Profiler, ProxyOp, ProxyStep, finalize, stop_event};
use crate::core::{Event, Init, Logger, Quick, events};

/// `ncclProfilerEventDescr_v7_t`.
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

/// The program's call of a collective.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CollApi {
    /// As before.
    pub api: v5::CollApi,
    /// The program's own tag.
    pub user_tag: u64,
}

/// The program's call of a send or receive.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct P2pApi {
    /// As before.
    pub api: v5::P2pApi,
    /// The program's own tag.
    pub user_tag: u64,
}

/// A collective.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Coll {
    /// As before. A symmetric kernel's variant stands for the algorithm, and only the first of its launch has channels.
    pub coll: v5::Coll,
    /// Variant of a symmetric kernel, or null.
    pub kernel_variant: *const c_char,
    /// A C `bool`, read as a byte.
    pub is_sym_coll: u8,
    /// The program's own tag.
    pub user_tag: u64,
}

/// A send or receive.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct P2p {
    /// As before.
    pub p2p: v5::P2p,
    /// The program's own tag.
    pub user_tag: u64,
}

/// A collective by copy engines.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CeColl {
    /// As before.
    pub ce_coll: CeColl6,
    /// The program's own tag.
    pub user_tag: u64,
}

const _: () = {
    assert!(size_of::<Descriptor>() == 136);
    assert!(offset_of!(Descriptor, parent) == 8);
    assert!(offset_of!(Descriptor, rank) == 16);
    assert!(offset_of!(Descriptor, of) == 24);
    assert!(offset_of!(CollApi, user_tag) == 72 - 24);
    assert!(offset_of!(P2pApi, user_tag) == 64 - 24);
    assert!(offset_of!(Coll, kernel_variant) == 112 - 24);
    assert!(offset_of!(Coll, is_sym_coll) == 120 - 24);
    assert!(offset_of!(Coll, user_tag) == 128 - 24);
    assert!(offset_of!(P2p, user_tag) == 72 - 24);
    assert!(offset_of!(CeColl, user_tag) == 112 - 24);
};

/// What NCCL looks for.
#[unsafe(no_mangle)]
pub static ncclProfiler_v7: Profiler<Init5, Descriptor, Args> =
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
    let told = Init { version: 7, id, name, nodes, size, rank };
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
        events::COLL_API => unsafe { &descriptor.of.coll_api }.api.quick(),
        // SAFETY: as above.
        events::P2P_API => unsafe { &descriptor.of.p2p_api }.api.quick(),
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
        events::COLL_API => unsafe { &of.coll_api }.api.event(),
        // SAFETY: as above.
        events::P2P_API => unsafe { &of.p2p_api }.api.event(),
        // SAFETY: as above.
        events::COLL => unsafe { &of.coll }.coll.event(),
        // SAFETY: as above.
        events::P2P => unsafe { &of.p2p }.p2p.event(),
        // SAFETY: as above.
        events::PROXY_OP => unsafe { &of.proxy_op }.event(),
        // SAFETY: as above.
        events::PROXY_STEP => Event::ProxyStep(unsafe { of.proxy_step }.step),
        // SAFETY: as above.
        events::KERNEL_CH => unsafe { of.kernel_ch }.event(),
        events::NET_PLUGIN => Event::Net,
        // SAFETY: as above.
        events::CE_COLL => unsafe { &of.ce_coll }.ce_coll.event(),
        _ => Event::Other,
    };
    (descriptor.parent, event)
}
