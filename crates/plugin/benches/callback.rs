//! Nanoseconds per callback, without a GPU: `cargo bench -p ringleader-plugin`.
//!
//! The budget is for the whole plugin: 100 ns per event, as the mean over a run in NCCL's order of calls. The best of
//! several rounds counts, because other load on the machine only adds time. With `--check` a breach is an error.

#![allow(
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench is run by hand and prints its numbers"
)]

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::ptr::null_mut;
use std::time::Instant;

use ringleader_nccl::abi::v4::{Args, Coll as Coll4};
use ringleader_nccl::abi::v5::{Coll, CollApi};
use ringleader_nccl::abi::v6::{Descriptor, Of, ncclProfiler_v6};
use ringleader_nccl::abi::{KernelCh, ProxyOp, ProxyStep};
use ringleader_nccl::events;

/// Budget of an event, nanoseconds.
const BUDGET_NS: f64 = 100.0;
const ROUNDS: usize = 30;
const CALLS: u32 = 2_000;

fn start(context: *mut c_void, kind: u64, parent: *mut c_void, of: Of) -> *mut c_void {
    let mut descriptor = Descriptor { kind, parent, rank: 0, of };
    let mut handle = null_mut();
    // SAFETY: the pointers are valid.
    unsafe { (ncclProfiler_v6.start_event)(context, &raw mut handle, black_box(&raw mut descriptor)) };
    handle
}

fn stop(handle: *mut c_void) {
    // SAFETY: a handle is a number.
    unsafe { (ncclProfiler_v6.stop_event)(handle) };
}

fn record(handle: *mut c_void, state: c_int) {
    let mut args = Args { p_timer: 77 };
    // SAFETY: the pointers are valid.
    unsafe { (ncclProfiler_v6.record_event_state)(handle, state, black_box(&raw mut args)) };
}

fn coll_api(context: *mut c_void) -> *mut c_void {
    coll_api_in(context, null_mut())
}

fn coll_api_in(context: *mut c_void, calls: *mut c_void) -> *mut c_void {
    let coll_api = CollApi {
        func: c"AllReduce".as_ptr(),
        count: 1 << 20,
        datatype: c"ncclBfloat16".as_ptr(),
        root: 0,
        stream: null_mut(),
        graph_captured: 0,
    };
    start(context, events::COLL_API, calls, Of { coll_api })
}

fn coll(context: *mut c_void, api: *mut c_void, group: *mut c_void, channels: u8) -> *mut c_void {
    let coll = Coll4 {
        seq_number: 3,
        func: c"AllReduce".as_ptr(),
        send_buff: null_mut(),
        recv_buff: null_mut(),
        count: 1 << 20,
        root: 0,
        datatype: c"ncclBfloat16".as_ptr(),
        n_channels: channels,
        n_warps: 16,
        algo: c"RING".as_ptr(),
        proto: c"SIMPLE".as_ptr(),
    };
    start(context, events::COLL, api, Of { coll: Coll { coll, parent_group: group } })
}

fn nothing() -> Of {
    Of { proxy_step: ProxyStep { step: 0 } }
}

/// A collective within one machine, as NCCL 2.29 reports it. Returns the number of events.
fn collective(context: *mut c_void, channels: u8) -> u32 {
    let calls = start(context, events::GROUP_API, null_mut(), nothing());
    record(calls, 23);
    let api = coll_api(context);
    stop(api);
    record(calls, 24);
    let group = start(context, events::GROUP, null_mut(), nothing());
    let op = coll(context, api, group, channels);
    stop(op);
    stop(group);
    let mut kernels = [null_mut(); 64];
    for (channel, kernel) in kernels.iter_mut().enumerate().take(usize::from(channels)) {
        let of = Of { kernel_ch: KernelCh { channel_id: channel as u8, p_timer: 5 } };
        *kernel = start(context, events::KERNEL_CH, op, of);
    }
    for kernel in kernels.into_iter().take(usize::from(channels)) {
        record(kernel, 22);
        stop(kernel);
    }
    stop(calls);
    10 + 3 * u32::from(channels)
}

/// A collective that is not followed.
fn passed(context: *mut c_void) -> u32 {
    let calls = start(context, events::GROUP_API, null_mut(), nothing());
    record(calls, 23);
    stop(coll_api_in(context, calls));
    record(calls, 24);
    stop(calls);
    6
}

/// One channel's send over the network in eight transfers.
fn network(context: *mut c_void) -> u32 {
    let group = start(context, events::GROUP, null_mut(), nothing());
    let op = coll(context, null_mut(), group, 1);
    let proxy_op = ProxyOp {
        pid: std::process::id() as c_int,
        channel_id: 0,
        peer: 1,
        n_steps: 8,
        chunk_size: 1 << 19,
        is_send: 1,
    };
    let proxy = start(context, events::PROXY_OP, op, Of { proxy_op });
    stop(op);
    stop(group);
    let kernel =
        start(context, events::KERNEL_CH, op, Of { kernel_ch: KernelCh { channel_id: 0, p_timer: 5 } });
    record(proxy, 19);
    for step in 0..8 {
        let step = start(context, events::PROXY_STEP, proxy, Of { proxy_step: ProxyStep { step } });
        for state in [8, 20, 20, 9] {
            record(step, state);
        }
        stop(step);
    }
    stop(proxy);
    record(kernel, 22);
    stop(kernel);
    10 + 8 * 6
}

/// Best and median nanoseconds per event.
fn measure(name: &str, mut once: impl FnMut() -> u32) -> f64 {
    let mut rounds: Vec<f64> = (0..ROUNDS)
        .map(|_| {
            let began = Instant::now();
            let events: u32 = (0..CALLS).map(|_| once()).sum();
            began.elapsed().as_nanos() as f64 / f64::from(events)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    let (best, median) = (rounds[0], rounds[ROUNDS / 2]);
    println!("{name:<44} {best:>7.1} ns  median {median:>7.1} ns  budget {BUDGET_NS} ns");
    best
}

/// Starts the plugin with its own ring, following the operations that `follow` selects.
fn begin(directory: &std::path::Path, follow: &str) -> *mut c_void {
    // SAFETY: the only thread.
    unsafe { std::env::set_var("RINGLEADER_RING_DIR", directory) };
    // SAFETY: as above.
    unsafe { std::env::set_var("RINGLEADER_PLUGIN_FOLLOW", follow) };
    // NCCL's own mask lives as long as the process.
    let mask: &'static mut c_int = Box::leak(Box::new(0));
    let mut context = null_mut();
    // SAFETY: the pointers are valid.
    unsafe { (ncclProfiler_v6.init)(&raw mut context, 1, mask, c"bench".as_ptr(), 1, 2, 0, None) };
    assert!(!context.is_null() && *mask != 0, "the plugin is on");
    context
}

fn main() {
    let directory = tempfile::tempdir().expect("a directory for the ring");
    let context = begin(directory.path(), "all");
    measure("the clock alone, which is not ours", || {
        black_box(ringleader_ring::mono_ns());
        1
    });
    let mut all = vec![
        ("collective", measure("collective, 1 channel: 13 events", || collective(context, 1))),
        ("collective", measure("collective, 16 channels: 58 events", || collective(context, 16))),
        ("network", measure("send over the network: 58 events", || network(context))),
    ];
    all.push((
        "call",
        measure("call and launch: 8 events", || {
            let api = coll_api(context);
            stop(api);
            let group = start(context, events::GROUP, null_mut(), nothing());
            let op = coll(context, api, group, 1);
            stop(op);
            stop(group);
            let kernel = start(
                context,
                events::KERNEL_CH,
                op,
                Of { kernel_ch: KernelCh { channel_id: 0, p_timer: 5 } },
            );
            stop(kernel);
            8
        }),
    ));
    let flooded = tempfile::tempdir().expect("a directory for the ring");
    ringleader_nccl::forget();
    let context = begin(flooded.path(), "some");
    all.push(("passed", measure("call that is not followed: 6 events", || passed(context))));
    if std::env::args().any(|argument| argument == "--check") {
        assert!(all.iter().all(|(_, best)| *best <= BUDGET_NS), "over the budget: {all:?}");
    }
}
