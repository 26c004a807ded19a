//! Interface 1, of NCCL 2.23.4: names are numbers, operations name their communicator, kernels are not reported.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

use super::{Init1, Profiler, ProxyOp, ProxyStep, StateArgs, init1, launches, parts, profiler};

/// `ncclProfilerEventDescr_v1_t`.
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
}

/// A collective.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in NCCL's header")]
pub struct Coll {
    pub name: *const c_char,
    pub comm_hash: u64,
    pub seq_number: u64,
    pub func: u8,
    pub send_buff: *const c_void,
    pub recv_buff: *mut c_void,
    pub count: usize,
    pub root: c_int,
    pub datatype: u8,
    pub op: u32,
    pub traffic_bytes: usize,
    pub n_max_channels: u8,
    pub n_warps: u8,
    pub algo: u8,
    pub proto: u8,
    pub is_collnet: c_int,
    pub is_nvls: c_int,
}

/// A send or receive.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
#[expect(missing_docs, reason = "names as in NCCL's header")]
pub struct P2p {
    pub name: *const c_char,
    pub comm_hash: u64,
    pub func: u8,
    pub buff: *mut c_void,
    pub datatype: u8,
    pub count: usize,
    pub peer: c_int,
}

const _: () = {
    assert!(size_of::<Descriptor>() == 120);
    assert!(offset_of!(Descriptor, parent) == 8);
    assert!(offset_of!(Descriptor, rank) == 16);
    assert!(offset_of!(Descriptor, of) == 24);
    assert!(offset_of!(Coll, comm_hash) == 32 - 24);
    assert!(offset_of!(Coll, seq_number) == 40 - 24);
    assert!(offset_of!(Coll, func) == 48 - 24);
    assert!(offset_of!(Coll, count) == 72 - 24);
    assert!(offset_of!(Coll, root) == 80 - 24);
    assert!(offset_of!(Coll, datatype) == 84 - 24);
    assert!(offset_of!(Coll, n_max_channels) == 104 - 24);
    assert!(offset_of!(Coll, algo) == 106 - 24);
    assert!(offset_of!(Coll, proto) == 107 - 24);
    assert!(offset_of!(Coll, is_nvls) == 112 - 24);
    assert!(offset_of!(P2p, comm_hash) == 32 - 24);
    assert!(offset_of!(P2p, func) == 40 - 24);
    assert!(offset_of!(P2p, datatype) == 56 - 24);
    assert!(offset_of!(P2p, count) == 64 - 24);
    assert!(offset_of!(P2p, peer) == 72 - 24);
};

/// `ncclProfilerEventStateArgs_v1_t`: none of it is used.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Args {
    /// Bytes of a transfer.
    pub trans_size: usize,
    /// Steps.
    pub steps: c_int,
}

const _: () = assert!(size_of::<Args>() == 16);

impl StateArgs for Args {}

parts! {
    1, u8, ncclProfiler_v1:
    COLL => coll,
    P2P => p2p,
    PROXY_OP => proxy_op,
    PROXY_STEP => proxy_step,
}

/// The table that NCCL looks up.
#[unsafe(no_mangle)]
pub static ncclProfiler_v1: Profiler<Init1, Descriptor, Args> = profiler::<Of, _>(init1::<Of>);

launches!(Number: coll, p2p);
