//! Interface 7, of NCCL 2.31: symmetric kernels are reported, and so are the program's own tags, which are not used
//! here.
//!
//! The newest header is that of NVIDIA/nccl at 889806836097; NCCL 2.32.3 asks for this interface.

use std::ffi::c_char;
use std::mem::offset_of;

pub use super::v4::Args;
use super::v6::CeColl as CeColl6;
use super::{Init5, KernelCh, NetPlugin, Profiler, ProxyOp, ProxyStep, init5, parts, profiler, v5};

/// `ncclProfilerEventDescr_v7_t`.
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

/// The program's call of a collective.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CollApi {
    /// Fields of interface 5.
    pub api: v5::CollApi,
    /// The program's own tag.
    pub user_tag: u64,
}

/// The program's call of a send or receive.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct P2pApi {
    /// Fields of interface 5.
    pub api: v5::P2pApi,
    /// The program's own tag.
    pub user_tag: u64,
}

/// A collective.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Coll {
    /// Fields of interface 5. The algorithm of a symmetric kernel is its variant, and only the first operation of its
    /// launch has channels.
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
    /// Fields of interface 5.
    pub p2p: v5::P2p,
    /// The program's own tag.
    pub user_tag: u64,
}

/// A collective by copy engines.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct CeColl {
    /// Fields of interface 6.
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

parts! {
    7, u64, ncclProfiler_v7:
    COLL => coll.coll,
    P2P => p2p.p2p,
    PROXY_OP => proxy_op,
    PROXY_STEP => proxy_step,
    KERNEL_CH => kernel_ch,
    NET_PLUGIN => net_plugin,
    COLL_API => coll_api.api,
    P2P_API => p2p_api.api,
    CE_COLL => ce_coll.ce_coll,
}

/// The table that NCCL looks up.
#[unsafe(no_mangle)]
pub static ncclProfiler_v7: Profiler<Init5, Descriptor, Args> = profiler::<Of, _>(init5::<Of>);
