//! Interface 2, of NCCL 2.24.3: names are strings.

use std::ffi::{c_char, c_int, c_void};
use std::mem::offset_of;

pub use super::v1::Args;
use super::{Init1, Profiler, ProxyOp, ProxyStep, init1, launches, parts, profiler};

/// `ncclProfilerEventDescr_v2_t`.
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

const _: () = assert!(size_of::<Args>() == 16);

parts! {
    2, u8, ncclProfiler_v2:
    COLL => coll,
    P2P => p2p,
    PROXY_OP => proxy_op,
    PROXY_STEP => proxy_step,
}

/// The table that NCCL looks up.
#[unsafe(no_mangle)]
pub static ncclProfiler_v2: Profiler<Init1, Descriptor, Args> = profiler::<Of, _>(init1::<Of>);

launches!(Text: coll, p2p);
