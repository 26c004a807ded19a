//! Interface 4, of NCCL 2.27.3: `init` names the communicator, kernels have the GPU's time, and channels are
//! exact.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use super::{
    EventHead, Init4, KernelCh, NetPlugin, Profiler, ProxyOp, ProxyStep, StateArgs, UnionPart, init4, parts,
    profiler,
};
use crate::core::{Call, Name, ProfilerEvent};

/// `ncclProfilerEventDescr_v4_t`.
pub type Descriptor = super::Descriptor<u8, Of>;

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

impl StateArgs for Args {
    #[inline]
    fn gpu_ns(&self) -> u64 {
        // SAFETY: called only in the state for which NCCL fills this part; any bytes are a valid number.
        unsafe { self.p_timer }
    }
}

parts! {
    4, u8, ncclProfiler_v4:
    COLL => coll,
    P2P => p2p,
    PROXY_OP => proxy_op,
    PROXY_STEP => proxy_step,
    KERNEL_CH => kernel_ch,
    NET_PLUGIN => net_plugin,
}

/// The table that NCCL looks up.
#[unsafe(no_mangle)]
pub static ncclProfiler_v4: Profiler<Init4, Descriptor, Args> = profiler::<Of, _>(init4::<Of>);

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

impl UnionPart for Coll {
    fn event(&self, head: &EventHead) -> ProfilerEvent {
        ProfilerEvent::Launch { call: self.call(), plan: head.parent }
    }
}

impl UnionPart for P2p {
    fn event(&self, head: &EventHead) -> ProfilerEvent {
        ProfilerEvent::Launch { call: self.call(), plan: head.parent }
    }
}
