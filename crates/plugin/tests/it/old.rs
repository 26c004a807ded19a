//! The interfaces other than 6, each as its NCCL calls it.

use std::ffi::{c_int, c_void};
use std::ptr::{null, null_mut};

use ringleader_nccl::abi::{
    Init1, KernelCh, NetPlugin, Profiler, ProxyOp, ProxyStep, v1, v2, v3, v4, v5, v7,
};
use ringleader_nccl::events;
use ringleader_ring::{Comm, Phase};

use crate::driver::{directory, state};
use crate::loaded::{is_child, run};

struct Calls<D: 'static, A: 'static, I: 'static> {
    table: &'static Profiler<I, D, A>,
    context: *mut c_void,
}

impl<D, A, I> Calls<D, A, I> {
    fn start(&self, mut descriptor: D) -> *mut c_void {
        let mut handle = null_mut();
        // SAFETY: the pointers are valid.
        unsafe { (self.table.start_event)(self.context, &raw mut handle, &raw mut descriptor) };
        handle
    }
    fn stop(&self, handle: *mut c_void) {
        // SAFETY: a handle is a number.
        unsafe { (self.table.stop_event)(handle) };
    }
    fn record(&self, handle: *mut c_void, state: c_int) {
        // SAFETY: null arguments are allowed.
        unsafe { (self.table.record_event_state)(handle, state, null_mut()) };
    }
    fn finalize(&self) {
        // SAFETY: a context of ours.
        unsafe { (self.table.finalize)(self.context) };
    }
}

fn begin<D, A>(table: &'static Profiler<Init1, D, A>) -> (Calls<D, A, Init1>, c_int) {
    directory();
    let (mut context, mut mask) = (null_mut(), -1);
    // SAFETY: the pointers are valid.
    unsafe { (table.init)(&raw mut context, &raw mut mask) };
    (Calls { table, context }, mask)
}

fn seen(id: u64) -> Comm {
    state().comms.into_iter().find(|comm| comm.id == id).unwrap()
}

const PROXY: ProxyOp = ProxyOp { pid: 0, channel_id: 2, peer: 5, n_steps: 2, chunk_size: 1, is_send: 0 };

fn own_proxy() -> ProxyOp {
    ProxyOp { pid: std::process::id() as c_int, ..PROXY }
}

#[test]
fn interface_1_tells_numbers_and_ends_by_proxies() {
    let (nccl, mask) = begin(&v1::ncclProfiler_v1);
    assert_eq!(mask, 0b1_1110);
    let step = v1::Of { proxy_step: ProxyStep { step: 0 } };
    let of = |kind: u64, parent, of| v1::Descriptor { kind: kind as u8, parent, rank: 3, of };
    let group = nccl.start(of(events::GROUP, null_mut(), step));
    let coll = v1::Coll {
        name: null(),
        comm_hash: 0xb1,
        seq_number: 7,
        func: 4,
        send_buff: null(),
        recv_buff: null_mut(),
        count: 10,
        root: 0,
        datatype: 7,
        op: 0,
        traffic_bytes: 0,
        n_max_channels: 8,
        n_warps: 1,
        algo: 1,
        proto: 2,
        is_collnet: 0,
        is_nvls: 0,
    };
    let op = nccl.start(of(events::COLL, group, v1::Of { coll }));
    let proxy = nccl.start(of(events::PROXY_OP, op, v1::Of { proxy_op: own_proxy() }));
    nccl.stop(op);
    nccl.stop(group);
    let comm = seen(0xb1);
    assert_eq!((comm.rank, comm.size), (Some(3), 0));
    let call = &comm.in_flight[0].call;
    assert_eq!((call.function.as_str(), call.datatype.as_str()), ("AllReduce", "ncclFloat32"));
    assert_eq!((call.algorithm.as_str(), call.protocol.as_str(), call.sequence), ("RING", "SIMPLE", Some(7)));
    let transfer = nccl.start(of(events::PROXY_STEP, proxy, step));
    nccl.record(transfer, 10);
    let op = &seen(0xb1).in_flight[0];
    assert!(op.is_end_visible);
    assert_eq!((op.waits[0].peer, op.waits[0].phase), (5, Phase::RecvNet));
    nccl.stop(transfer);
    nccl.stop(proxy);
    let comm = seen(0xb1);
    assert_eq!((comm.in_flight.len(), comm.collectives_done), (0, 1));
    nccl.finalize();
    assert!(seen(0xb1).ended_ns.is_some());
}

#[test]
fn interface_2_tells_names() {
    let (nccl, mask) = begin(&v2::ncclProfiler_v2);
    assert_eq!(mask, 0b1_1110);
    let p2p = v2::P2p {
        name: null(),
        comm_hash: 0xb2,
        func: c"Recv".as_ptr(),
        buff: null_mut(),
        datatype: c"ncclFloat16".as_ptr(),
        count: 5,
        peer: 1,
    };
    let descriptor =
        v2::Descriptor { kind: events::P2P as u8, parent: null_mut(), rank: 0, of: v2::Of { p2p } };
    nccl.stop(nccl.start(descriptor));
    let op = &seen(0xb2).in_flight[0];
    assert_eq!(
        (op.call.function.as_str(), op.call.datatype.as_str(), op.call.peer),
        ("Recv", "ncclFloat16", Some(1))
    );
    assert!(op.is_p2p && !op.is_end_visible);
}

#[test]
fn interface_3_sees_kernels_but_not_how_many() {
    let (nccl, mask) = begin(&v3::ncclProfiler_v3);
    assert_eq!(mask, 0b101_1110);
    let of = |kind: u64, parent, of| v3::Descriptor { kind: kind as u8, parent, rank: 0, of };
    let coll = v3::Coll {
        name: null(),
        comm_hash: 0xb3,
        seq_number: 1,
        func: c"AllReduce".as_ptr(),
        send_buff: null(),
        recv_buff: null_mut(),
        count: 1,
        root: 0,
        datatype: c"ncclInt8".as_ptr(),
        n_max_channels: 16,
        n_warps: 1,
        algo: c"TREE".as_ptr(),
        proto: c"LL".as_ptr(),
    };
    let op = nccl.start(of(events::COLL, null_mut(), v3::Of { coll }));
    nccl.stop(op);
    assert!(seen(0xb3).in_flight[0].is_end_visible);
    let kernel =
        |channel_id| nccl.start(of(events::KERNEL_CH, op, v3::Of { kernel_ch: v3::KernelCh { channel_id } }));
    let kernels = [kernel(0), kernel(1)];
    nccl.stop(kernels[0]);
    assert_eq!(seen(0xb3).in_flight[0].open_channels, 0b10);
    nccl.stop(kernels[1]);
    assert!(seen(0xb3).in_flight.is_empty());
    let net = NetPlugin { id: 1, data: null_mut() };
    assert!(nccl.start(of(events::NET_PLUGIN, null_mut(), v3::Of { net_plugin: net })).is_null());
}

#[test]
fn interfaces_4_and_5_tell_the_communicator() {
    directory();
    let (mut context, mut mask) = (null_mut(), -1);
    let table = &v4::ncclProfiler_v4;
    // SAFETY: the pointers are valid.
    unsafe { (table.init)(&raw mut context, &raw mut mask, c"four".as_ptr(), 0xb4, 3, 24, 8, None) };
    let four = Calls { table, context };
    assert_eq!(mask, 0b101_1110);
    let comm = seen(0xb4);
    assert_eq!((comm.name.as_str(), comm.size, comm.rank, comm.nodes), ("four", 24, Some(8), 3));
    let p2p = v4::P2p {
        func: c"Send".as_ptr(),
        buff: null_mut(),
        datatype: c"ncclInt64".as_ptr(),
        count: 3,
        peer: 9,
        n_channels: 1,
    };
    let of = v4::Of { p2p };
    let send = four.start(v4::Descriptor { kind: events::P2P as u8, parent: null_mut(), rank: 8, of });
    four.stop(send);
    let of = v4::Of { kernel_ch: KernelCh { channel_id: 0, p_timer: 5 } };
    let kernel = four.start(v4::Descriptor { kind: events::KERNEL_CH as u8, parent: send, rank: 8, of });
    four.record(kernel, 22);
    four.stop(kernel);
    let comm = seen(0xb4);
    assert_eq!((comm.p2p, comm.p2p_done, comm.bytes_done), (1, 1, 24));

    let table = &v5::ncclProfiler_v5;
    // SAFETY: the pointers are valid; there is no name.
    unsafe { (table.init)(&raw mut context, 0xb5, &raw mut mask, null(), 1, 2, 0, None) };
    let five = Calls { table, context };
    assert_eq!(mask, 0x65e);
    let api = v5::CollApi {
        func: c"ReduceScatter".as_ptr(),
        count: 6,
        datatype: c"ncclFloat8e4m3".as_ptr(),
        root: 0,
        stream: null_mut(),
        graph_captured: 0,
    };
    let of = v5::Of { coll_api: api };
    five.start(v5::Descriptor { kind: events::COLL_API, parent: null_mut(), rank: 0, of });
    let op = &seen(0xb5).in_flight[0];
    assert_eq!((op.call.function.as_str(), op.call.count), ("ReduceScatter", 6));
    // Types that do not exist in interface 5.
    let of = v5::Of { proxy_step: ProxyStep { step: 0 } };
    assert!(five.start(v5::Descriptor { kind: events::CE_COLL, parent: null_mut(), rank: 0, of }).is_null());
    assert_eq!(PROXY.pid, 0);
}

/// In a process of its own, because the rules of the newest interface apply to the whole process.
#[test]
fn interface_7_tells_symmetric_kernels() {
    let dir = tempfile::tempdir().unwrap();
    run("old::child_of_interface_7", dir.path(), &[]);
}

#[test]
fn child_of_interface_7() {
    if !is_child() {
        return;
    }
    directory();
    let (mut context, mut mask) = (null_mut(), -1);
    let table = &v7::ncclProfiler_v7;
    // SAFETY: the pointers are valid.
    unsafe { (table.init)(&raw mut context, 0xb7, &raw mut mask, c"seven".as_ptr(), 1, 2, 0, None) };
    let seven = Calls { table, context };
    assert_eq!(mask, 0x165e);
    let start = |kind, parent, of| seven.start(v7::Descriptor { kind, parent, rank: 0, of });
    let api = v5::CollApi {
        func: c"AllGather".as_ptr(),
        count: 6,
        datatype: c"ncclBfloat16".as_ptr(),
        root: 0,
        stream: null_mut(),
        graph_captured: 0,
    };
    let of = v7::Of { coll_api: v7::CollApi { api, user_tag: 1 } };
    let calls = [start(events::COLL_API, null_mut(), of), start(events::COLL_API, null_mut(), of)];
    let group = start(events::GROUP, null_mut(), of);
    let launch = |call, n_channels| {
        let coll = v4::Coll {
            seq_number: 1,
            func: c"AllGather".as_ptr(),
            send_buff: null(),
            recv_buff: null_mut(),
            count: 12,
            root: 0,
            datatype: c"ncclInt8".as_ptr(),
            n_channels,
            n_warps: 1,
            algo: c"LL_R".as_ptr(),
            proto: c"".as_ptr(),
        };
        let coll = v5::Coll { coll, parent_group: group };
        let variant = c"AGxLL_R".as_ptr();
        let of = v7::Of { coll: v7::Coll { coll, kernel_variant: variant, is_sym_coll: 1, user_tag: 1 } };
        start(events::COLL, call, of)
    };
    // One kernel for both: the first has the channels.
    let ops = [launch(calls[0], 1), launch(calls[1], 0)];
    for op in ops {
        seven.stop(op);
    }
    let in_flight = seen(0xb7).in_flight;
    assert_eq!(in_flight.iter().map(|op| op.is_end_visible).collect::<Vec<_>>(), [true, false]);
    assert_eq!((in_flight[1].call.algorithm.as_str(), in_flight[1].call.protocol.as_str()), ("LL_R", ""));
    let of = v7::Of { kernel_ch: KernelCh { channel_id: 0, p_timer: 5 } };
    let kernel = start(events::KERNEL_CH, ops[0], of);
    seven.record(kernel, 22);
    seven.stop(kernel);
    assert_eq!(seen(0xb7).collectives_done, 1);
    // Phases of kernels are not requested and are ignored.
    assert!(start(1 << 15, kernel, of).is_null());
    // After any broadcast NCCL counts kernels wrongly.
    assert_eq!((mask, state().process.kernels_ended_ns), (0x165e, None));
    let api = v5::CollApi { func: c"Broadcast".as_ptr(), ..api };
    start(events::COLL_API, null_mut(), v7::Of { coll_api: v7::CollApi { api, user_tag: 1 } });
    assert_eq!(mask, 0x161e);
    assert!(state().process.kernels_ended_ns.is_some());
}
