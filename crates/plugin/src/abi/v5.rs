//! Interface 5, of NCCL 2.28.3: the program's calls are told, and parents are these calls.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use super::v4::{Args, record_event_state};
use super::{KernelCh, NAME, NetPlugin, Profiler, ProxyOp, ProxyStep, finalize, stop_event, v4};
use crate::core::{ApiCall, Call, Event, Init, Logger, Name, Quick, events};

/// `ncclProfilerEventDescr_v5_t`.
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
}

/// The program's call of a collective.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in NCCL's header")]
pub struct CollApi {
    pub func: *const c_char,
    pub count: usize,
    pub datatype: *const c_char,
    pub root: c_int,
    pub stream: *mut c_void,
    /// A C `bool`, read as a byte.
    pub graph_captured: u8,
}

/// The program's call of a send or receive.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in NCCL's header")]
pub struct P2pApi {
    pub func: *const c_char,
    pub count: usize,
    pub datatype: *const c_char,
    pub stream: *mut c_void,
    /// A C `bool`, read as a byte.
    pub graph_captured: u8,
}

/// A collective.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Coll {
    /// As before.
    pub coll: v4::Coll,
    /// The launch.
    pub parent_group: *mut c_void,
}

/// A send or receive.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct P2p {
    /// As before.
    pub p2p: v4::P2p,
    /// The launch.
    pub parent_group: *mut c_void,
}

const _: () = {
    assert!(size_of::<Descriptor>() == 112);
    assert!(offset_of!(Descriptor, parent) == 8);
    assert!(offset_of!(Descriptor, rank) == 16);
    assert!(offset_of!(Descriptor, of) == 24);
    assert!(offset_of!(CollApi, datatype) == 40 - 24);
    assert!(offset_of!(CollApi, root) == 48 - 24);
    assert!(offset_of!(CollApi, stream) == 56 - 24);
    assert!(offset_of!(CollApi, graph_captured) == 64 - 24);
    assert!(offset_of!(P2pApi, datatype) == 40 - 24);
    assert!(offset_of!(P2pApi, stream) == 48 - 24);
    assert!(offset_of!(P2pApi, graph_captured) == 56 - 24);
    assert!(offset_of!(Coll, parent_group) == 104 - 24);
    assert!(offset_of!(P2p, parent_group) == 64 - 24);
};

/// `init` of interfaces 5 and 6.
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

/// What NCCL looks for.
#[unsafe(no_mangle)]
pub static ncclProfiler_v5: Profiler<Init5, Descriptor, Args> =
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
    let told = Init { version: 5, id, name, nodes, size, rank };
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
        _ => Event::Other,
    };
    (descriptor.parent, event)
}

impl CollApi {
    pub(super) fn quick(&self) -> Quick {
        Quick::Call(ApiCall {
            function: self.func,
            datatype: self.datatype,
            count: self.count,
            root: self.root,
            is_p2p: false,
            is_captured: self.graph_captured != 0,
        })
    }

    pub(super) fn event(&self) -> Event {
        Event::Call(Call {
            function: Name::Text(self.func),
            datatype: Name::Text(self.datatype),
            count: self.count,
            root: self.root,
            is_captured: self.graph_captured != 0,
            ..Call::NOTHING
        })
    }
}

impl P2pApi {
    pub(super) fn quick(&self) -> Quick {
        Quick::Call(ApiCall {
            function: self.func,
            datatype: self.datatype,
            count: self.count,
            root: -1,
            is_p2p: true,
            is_captured: self.graph_captured != 0,
        })
    }

    pub(super) fn event(&self) -> Event {
        Event::Call(Call {
            function: Name::Text(self.func),
            datatype: Name::Text(self.datatype),
            is_p2p: true,
            count: self.count,
            is_captured: self.graph_captured != 0,
            ..Call::NOTHING
        })
    }
}

impl Coll {
    pub(super) fn event(&self) -> Event {
        Event::Launch { call: self.coll.call(), plan: self.parent_group }
    }
}

impl P2p {
    pub(super) fn event(&self) -> Event {
        Event::Launch { call: self.p2p.call(), plan: self.parent_group }
    }
}
