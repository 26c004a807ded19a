//! Interface 6, of NCCL 2.29.2: as 5, plus collectives by copy engines.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

pub use super::v4::Args;
use super::v5::{Coll, CollApi, P2p, P2pApi};
use super::{
    EventHead, Init5, KernelCh, NetPlugin, Profiler, ProxyOp, ProxyStep, UnionPart, init5, parts, profiler,
};
use crate::core::{Call, Name, ProfilerEvent};

/// `ncclProfilerEventDescr_v6_t`.
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

parts! {
    6, u64, ncclProfiler_v6:
    COLL => coll,
    P2P => p2p,
    PROXY_OP => proxy_op,
    PROXY_STEP => proxy_step,
    KERNEL_CH => kernel_ch,
    NET_PLUGIN => net_plugin,
    COLL_API => coll_api,
    P2P_API => p2p_api,
    CE_COLL => ce_coll,
}

/// The table that NCCL looks up.
#[unsafe(no_mangle)]
pub static ncclProfiler_v6: Profiler<Init5, Descriptor, Args> = profiler::<Of, _>(init5::<Of>);

impl UnionPart for CeColl {
    /// The copies are queued, and their end is not reported.
    fn event(&self, _: &EventHead) -> ProfilerEvent {
        let call = Call {
            function: Name::Text(self.func),
            datatype: Name::Text(self.datatype),
            is_ce: true,
            sequence: Some(self.seq_number),
            count: self.count,
            root: self.root,
            ..Call::NOTHING
        };
        ProfilerEvent::Launch { call, plan: std::ptr::null_mut() }
    }
}
