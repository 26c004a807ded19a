//! Interface 5, of NCCL 2.28.3: the program's calls are reported and are the parents of operations.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

pub use super::v4::Args;
use super::{
    EventHead, Init5, KernelCh, NetPlugin, Profiler, ProxyOp, ProxyStep, UnionPart, init5, parts, profiler,
    v4,
};
use crate::core::{ApiCall, ProfilerEvent, Quick};

/// `ncclProfilerEventDescr_v5_t`.
pub type Descriptor = super::Descriptor<u64, Of>;

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
    /// Fields of interface 4.
    pub coll: v4::Coll,
    /// The launch.
    pub parent_group: *mut c_void,
}

/// A send or receive.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct P2p {
    /// Fields of interface 4.
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

parts! {
    5, u64, ncclProfiler_v5:
    COLL => coll,
    P2P => p2p,
    PROXY_OP => proxy_op,
    PROXY_STEP => proxy_step,
    KERNEL_CH => kernel_ch,
    NET_PLUGIN => net_plugin,
    COLL_API => coll_api,
    P2P_API => p2p_api,
}

/// The table that NCCL looks up.
#[unsafe(no_mangle)]
pub static ncclProfiler_v5: Profiler<Init5, Descriptor, Args> = profiler::<Of, _>(init5::<Of>);

impl CollApi {
    #[inline]
    fn call(&self) -> ApiCall {
        ApiCall {
            function: self.func,
            datatype: self.datatype,
            count: self.count,
            root: self.root,
            is_p2p: false,
            is_captured: self.graph_captured != 0,
        }
    }
}

impl P2pApi {
    #[inline]
    fn call(&self) -> ApiCall {
        ApiCall {
            function: self.func,
            datatype: self.datatype,
            count: self.count,
            root: -1,
            is_p2p: true,
            is_captured: self.graph_captured != 0,
        }
    }
}

impl UnionPart for CollApi {
    #[inline]
    fn quick(&self) -> Quick {
        Quick::Call(self.call())
    }

    fn event(&self, _: &EventHead) -> ProfilerEvent {
        ProfilerEvent::Call(self.call().into())
    }
}

impl UnionPart for P2pApi {
    #[inline]
    fn quick(&self) -> Quick {
        Quick::Call(self.call())
    }

    fn event(&self, _: &EventHead) -> ProfilerEvent {
        ProfilerEvent::Call(self.call().into())
    }
}

impl UnionPart for Coll {
    fn event(&self, _: &EventHead) -> ProfilerEvent {
        ProfilerEvent::Launch { call: self.coll.call(), plan: self.parent_group }
    }

    fn launch(&mut self) -> Option<&mut *mut c_void> {
        Some(&mut self.parent_group)
    }
}

impl UnionPart for P2p {
    fn event(&self, _: &EventHead) -> ProfilerEvent {
        ProfilerEvent::Launch { call: self.p2p.call(), plan: self.parent_group }
    }

    fn launch(&mut self) -> Option<&mut *mut c_void> {
        Some(&mut self.parent_group)
    }
}
