//! NCCL's part: makes the same calls in the same order as `src/plugin/profiler.cc` and the transports.

use std::ffi::{CStr, c_int, c_void};
use std::path::{Path, PathBuf};
use std::ptr::null_mut;
use std::sync::OnceLock;

use ringleader_nccl::abi::v4::{Args, Coll as Coll4, P2p as P2p4};
use ringleader_nccl::abi::v5::{Coll, CollApi, P2p, P2pApi};
use ringleader_nccl::abi::v6::{CeColl, Descriptor, Of, ncclProfiler_v6};
use ringleader_nccl::abi::{KernelCh, ProxyOp, ProxyStep};
use ringleader_nccl::events;
use ringleader_ring::{Comm, Reader, State, rings_in};

/// The ring directory of this test process, set before anything is created.
pub(crate) fn directory() -> &'static Path {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    DIRECTORY.get_or_init(|| {
        let given = std::env::var_os("RINGLEADER_RING_DIR");
        given.map_or_else(
            || {
                let dir = tempfile::tempdir().unwrap().keep();
                // SAFETY: every test calls this first, and other threads read the environment only through the
                // standard library, which locks it.
                unsafe { std::env::set_var("RINGLEADER_RING_DIR", &dir) };
                dir
            },
            PathBuf::from,
        )
    })
}

pub(crate) fn state() -> State {
    let rings = rings_in(directory());
    assert_eq!(rings.len(), 1, "{rings:?}");
    Reader::open(&rings[0]).unwrap().state().unwrap()
}

/// A handle as NCCL keeps it, usable from any thread.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ptr(pub(crate) *mut c_void);
// SAFETY: it is never dereferenced.
unsafe impl Send for Ptr {}
// SAFETY: as above.
unsafe impl Sync for Ptr {}

pub(crate) const NULL: Ptr = Ptr(null_mut());

/// One communicator of interface 6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nccl {
    pub(crate) context: Ptr,
    pub(crate) mask: c_int,
    pub(crate) id: u64,
}

fn nothing(kind: u64, parent: Ptr) -> Descriptor {
    Descriptor { kind, parent: parent.0, rank: 1, of: Of { proxy_step: ProxyStep { step: 0 } } }
}

impl Nccl {
    pub(crate) fn init(id: u64, name: &CStr) -> Self {
        directory();
        let (mut context, mut mask) = (null_mut(), -1);
        // SAFETY: the pointers are valid.
        let result = unsafe {
            (ncclProfiler_v6.init)(&raw mut context, id, &raw mut mask, name.as_ptr(), 2, 4, 1, None)
        };
        assert_eq!(result, 0);
        Self { context: Ptr(context), mask, id }
    }

    pub(crate) fn finalize(self) {
        // SAFETY: a context of ours.
        assert_eq!(unsafe { (ncclProfiler_v6.finalize)(self.context.0) }, 0);
    }

    pub(crate) fn start(&self, mut descriptor: Descriptor) -> Ptr {
        let mut handle = std::ptr::without_provenance_mut(77);
        // SAFETY: the pointers are valid.
        let result =
            unsafe { (ncclProfiler_v6.start_event)(self.context.0, &raw mut handle, &raw mut descriptor) };
        assert_eq!(result, 0);
        Ptr(handle)
    }

    /// The call of a collective by the program.
    pub(crate) fn coll_api(&self, function: &CStr, count: usize, graph: bool) -> Ptr {
        self.coll_api_in(NULL, function, count, graph)
    }

    pub(crate) fn group_api(&self) -> Ptr {
        self.start(nothing(events::GROUP_API, NULL))
    }

    pub(crate) fn coll_api_in(&self, group: Ptr, function: &CStr, count: usize, graph: bool) -> Ptr {
        self.rooted_api(group, function, count, graph, 2)
    }

    pub(crate) fn rooted_api(
        &self,
        group: Ptr,
        function: &CStr,
        count: usize,
        graph: bool,
        root: c_int,
    ) -> Ptr {
        let api = CollApi {
            func: function.as_ptr(),
            count,
            datatype: c"ncclBfloat16".as_ptr(),
            root,
            stream: null_mut(),
            graph_captured: u8::from(graph),
        };
        let handle = self.start(Descriptor { of: Of { coll_api: api }, ..nothing(events::COLL_API, group) });
        stop(handle);
        handle
    }

    pub(crate) fn p2p_api(&self, function: &CStr, count: usize) -> Ptr {
        self.p2p_api_in(NULL, function, count)
    }

    pub(crate) fn p2p_api_in(&self, group: Ptr, function: &CStr, count: usize) -> Ptr {
        let api = P2pApi {
            func: function.as_ptr(),
            count,
            datatype: c"ncclInt8".as_ptr(),
            stream: null_mut(),
            graph_captured: 0,
        };
        let handle = self.start(Descriptor { of: Of { p2p_api: api }, ..nothing(events::P2P_API, group) });
        stop(handle);
        handle
    }

    pub(crate) fn group(&self) -> Ptr {
        self.start(nothing(events::GROUP, NULL))
    }

    pub(crate) fn coll(&self, api: Ptr, group: Ptr, function: &CStr, channels: u8) -> Ptr {
        let coll = Coll4 {
            seq_number: 41,
            func: function.as_ptr(),
            send_buff: null_mut(),
            recv_buff: null_mut(),
            count: 4096,
            root: 2,
            datatype: c"ncclInt8".as_ptr(),
            n_channels: channels,
            n_warps: 16,
            algo: c"RING".as_ptr(),
            proto: c"SIMPLE".as_ptr(),
        };
        let of = Of { coll: Coll { coll, parent_group: group.0 } };
        self.start(Descriptor { of, ..nothing(events::COLL, api) })
    }

    pub(crate) fn p2p(&self, api: Ptr, group: Ptr, function: &CStr, peer: c_int, channels: u8) -> Ptr {
        let p2p = P2p4 {
            func: function.as_ptr(),
            buff: null_mut(),
            datatype: c"ncclInt8".as_ptr(),
            count: 512,
            peer,
            n_channels: channels,
        };
        let of = Of { p2p: P2p { p2p, parent_group: group.0 } };
        self.start(Descriptor { of, ..nothing(events::P2P, api) })
    }

    pub(crate) fn ce_coll(&self, api: Ptr, function: *const std::ffi::c_char) -> Ptr {
        let ce_coll = CeColl {
            seq_number: 3,
            func: function,
            send_buff: null_mut(),
            recv_buff: null_mut(),
            count: 64,
            root: -1,
            datatype: std::ptr::null(),
            sync_strategy: c"UC".as_ptr(),
            intra_batch_sync: 0,
            batch_size: 0,
            num_batches: 0,
            ce_seq_num: 3,
            stream: null_mut(),
        };
        self.start(Descriptor { of: Of { ce_coll }, ..nothing(events::CE_COLL, api) })
    }

    pub(crate) fn kernel(&self, task: Ptr, channel: u8, gpu_ns: u64) -> Ptr {
        let of = Of { kernel_ch: KernelCh { channel_id: channel, p_timer: gpu_ns } };
        self.start(Descriptor { of, ..nothing(events::KERNEL_CH, task) })
    }

    pub(crate) fn proxy(&self, task: Ptr, pid: u32, peer: c_int, channel: u8, is_send: bool) -> Ptr {
        let of = Of {
            proxy_op: ProxyOp {
                pid: pid as c_int,
                channel_id: channel,
                peer,
                n_steps: 3,
                chunk_size: 1 << 19,
                is_send: c_int::from(is_send),
            },
        };
        self.start(Descriptor { of, ..nothing(events::PROXY_OP, task) })
    }

    pub(crate) fn step(&self, proxy: Ptr, step: c_int) -> Ptr {
        let of = Of { proxy_step: ProxyStep { step } };
        self.start(Descriptor { of, ..nothing(events::PROXY_STEP, proxy) })
    }

    pub(crate) fn other(&self, kind: u64, parent: Ptr) -> Ptr {
        self.start(nothing(kind, parent))
    }

    /// A collective from its call to its end.
    pub(crate) fn all_reduce(&self, channels: u8) {
        let calls = self.group_api();
        record(calls, 23, 0);
        let api = self.coll_api_in(calls, c"AllReduce", 1000, false);
        record(calls, 24, 0);
        let group = self.group();
        let coll = self.coll(api, group, c"AllReduce", channels);
        stop(coll);
        stop(group);
        stop(calls);
        for channel in 0..channels {
            let kernel = self.kernel(coll, channel, 1000);
            stop_kernel(kernel, 2000);
        }
    }

    /// Its communicator as the ring shows it.
    pub(crate) fn seen(&self) -> Comm {
        state().comms.into_iter().find(|comm| comm.id == self.id && comm.ended_ns.is_none()).unwrap()
    }
}

pub(crate) fn stop(handle: Ptr) {
    // SAFETY: a handle is a number.
    assert_eq!(unsafe { (ncclProfiler_v6.stop_event)(handle.0) }, 0);
}

pub(crate) fn record(handle: Ptr, state: c_int, gpu_ns: u64) {
    let mut args = Args { p_timer: gpu_ns };
    // SAFETY: the pointers are valid.
    assert_eq!(unsafe { (ncclProfiler_v6.record_event_state)(handle.0, state, &raw mut args) }, 0);
}

pub(crate) fn stop_kernel(kernel: Ptr, gpu_ns: u64) {
    record(kernel, 22, gpu_ns);
    stop(kernel);
}
