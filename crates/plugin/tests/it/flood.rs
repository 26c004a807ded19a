//! A flood of small operations: the mask is reset, calls are recorded all the same, and after a pause everything is
//! followed again. In a process of its own, because the credit belongs to the process.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, Ordering};
use std::time::Duration;

use ringleader_nccl::abi::v6::ncclProfiler_v6;

use crate::driver::{NULL, Nccl, Ptr, directory, record, state, stop, stop_kernel};
use crate::loaded::{is_child, run};

/// Calls of interface 5 and later, and copies by the engines of interface 6.
const CALLS: i32 = 0x1600;
const KERNELS: i32 = 0x40;

/// As NCCL keeps it: one mask for the life of the process.
static MASK: AtomicI32 = AtomicI32::new(-1);

fn init(id: u64) -> Nccl {
    directory();
    let mut context = null_mut();
    let mask = MASK.as_ptr();
    // SAFETY: the pointers are valid.
    let result =
        unsafe { (ncclProfiler_v6.init)(&raw mut context, id, mask, c"flood".as_ptr(), 2, 4, 1, None) };
    assert_eq!(result, 0);
    Nccl { context: Ptr(context), mask: MASK.load(Ordering::Relaxed), id }
}

#[test]
fn child_in_a_flood() {
    if !is_child() {
        return;
    }
    let nccl = init(0xf1);
    assert_eq!(nccl.mask, 0x165e);
    let mut called = 0;
    while MASK.load(Ordering::Relaxed) & KERNELS != 0 {
        nccl.all_reduce(1);
        called += 1;
        assert!(called < 10_000, "it is never enough");
    }
    assert_eq!(MASK.load(Ordering::Relaxed), CALLS);
    let seen = nccl.seen();
    assert_eq!((seen.collectives, seen.collectives_done, seen.in_flight.len()), (called, called, 0));

    // Not followed: known from the call on, handed over with the group. Reading the ring was a pause.
    nccl.all_reduce(1);
    called += 1;
    while MASK.load(Ordering::Relaxed) & KERNELS != 0 {
        nccl.all_reduce(1);
        called += 1;
    }
    let calls = nccl.group_api();
    record(calls, 23, 0);
    let api = nccl.coll_api_in(calls, c"Broadcast", 1000, false);
    nccl.coll_api_in(calls, c"MyOwnCollective", 7, false);
    record(calls, 24, 0);
    let seen = nccl.seen();
    let open: Vec<_> = seen.in_flight.iter().filter(|op| op.handed_over_ns.is_none()).collect();
    assert_eq!(open.iter().map(|op| op.number).collect::<Vec<_>>(), [called, called + 1]);
    let first = &open[0].call;
    assert_eq!((first.function.as_str(), first.count, first.root), ("Broadcast", 1000, Some(2)));
    assert_eq!(first.datatype, "ncclBfloat16");
    assert_eq!(open[1].call.function, "MyOwnCollective");
    // NCCL read the mask before it was reset: the call is recorded once, and none of its events is awaited.
    let launch = nccl.coll(api, nccl.group(), c"Broadcast", 1);
    assert!(launch.0.is_null());
    assert!(nccl.kernel(launch, 0, 1).0.is_null());
    stop(launch);
    assert_eq!(nccl.seen(), seen);
    assert_eq!(nccl.seen().collectives, called + 2);
    stop(calls);
    assert!(nccl.seen().in_flight.iter().all(|op| op.handed_over_ns.is_some() && !op.is_end_visible));
    // On a communicator that does not exist.
    let none = Nccl { context: NULL, ..nccl };
    let calls = none.group_api();
    assert!(none.coll_api_in(calls, c"AllReduce", 1, false).0.is_null());
    stop(calls);

    // After a pause the next call but one is followed at the latest, and shows that the earlier ones are over.
    std::thread::sleep(Duration::from_millis(50));
    nccl.all_reduce(1);
    assert_eq!(MASK.load(Ordering::Relaxed), 0x165e);
    nccl.all_reduce(1);
    let seen = nccl.seen();
    assert_eq!((seen.collectives, seen.collectives_done, seen.in_flight.len()), (called + 4, called + 4, 0));
}

#[test]
fn child_with_graphs() {
    if !is_child() {
        return;
    }
    let nccl = init(0xf2);
    let is_flooded = std::env::var_os("FLOOD").is_some();
    while is_flooded && MASK.load(Ordering::Relaxed) & KERNELS != 0 {
        nccl.all_reduce(1);
    }
    let before = nccl.seen().collectives;
    let calls = nccl.group_api();
    let api = nccl.coll_api_in(calls, c"AllReduce", 1, true);
    assert!(!api.0.is_null());
    stop(calls);
    assert_eq!(nccl.seen().collectives, before, "no call of this moment");
    // The mask stays as it was when the call was captured: through a pause, and through a flood.
    let mask = if is_flooded { CALLS } else { 0x165e };
    assert_eq!(MASK.load(Ordering::Relaxed), mask);
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..1000 {
        nccl.all_reduce(1);
        assert_eq!(MASK.load(Ordering::Relaxed), mask);
    }
    assert_eq!(init(0xf3).mask, mask);
    let seen = nccl.seen();
    let in_flight = if is_flooded { 7 } else { 0 };
    assert_eq!((seen.collectives, seen.in_flight.len()), (before + 1000, in_flight));
    assert_eq!(seen.collectives_done, before + 1000 - in_flight as u64);
}

#[test]
fn the_mask_stays_once_a_graph_was_recorded() {
    let dir = tempfile::tempdir().unwrap();
    run("flood::child_with_graphs", &dir.path().join("a"), &[]);
    run("flood::child_with_graphs", &dir.path().join("b"), &[("FLOOD", "1")]);
}

/// NCCL reads the mask for each call of a group, and must find the same: it makes one work of a send and a receive.
#[test]
fn child_with_a_long_group() {
    if !is_child() {
        return;
    }
    let nccl = init(0xf5);
    let is_asked = || MASK.load(Ordering::Relaxed) & KERNELS != 0;
    for is_on in [true, false] {
        while is_asked() {
            nccl.all_reduce(1);
        }
        // First a group that begins with a small credit and uses it up, then one without that earns some. A small credit
        // is used up by few calls, however slow the machine is.
        while !is_asked() {
            std::thread::sleep(Duration::from_millis(2));
            nccl.all_reduce(1);
        }
        while !is_on && is_asked() {
            nccl.all_reduce(1);
        }
        let calls = nccl.group_api();
        let mut told = Vec::new();
        for number in 0..300 {
            if !is_on && number == 150 {
                std::thread::sleep(Duration::from_millis(50));
            }
            assert_eq!(is_asked(), is_on, "call {number}");
            let function = if number % 2 == 0 { c"Send" } else { c"Recv" };
            told.push((function, nccl.p2p_api_in(calls, function, 1)));
            // Not an unbroken row of calls, because a call within a microsecond of the switch does not count as
            // followed.
            let until = std::time::Instant::now() + Duration::from_micros(2);
            while std::time::Instant::now() < until {}
        }
        let group = nccl.group();
        let launched: Vec<Ptr> = told
            .iter()
            .filter(|_| is_on)
            .map(|(function, api)| nccl.p2p(*api, group, function, 0, 1))
            .collect();
        for op in &launched {
            stop(*op);
        }
        stop(group);
        assert_eq!(is_asked(), is_on);
        stop(calls);
        assert_eq!(is_asked(), !is_on, "the group's end is the moment");
        let kernels: Vec<Ptr> = launched.iter().map(|op| nccl.kernel(*op, 0, 1)).collect();
        for kernel in kernels {
            stop_kernel(kernel, 2);
        }
        let seen = nccl.seen();
        assert!(
            seen.in_flight.iter().all(|op| op.handed_over_ns.is_some() && !op.is_end_visible),
            "what is not launched is not awaited: {:?}",
            seen.in_flight
        );
        assert_eq!(seen.in_flight.len(), if is_on { 0 } else { 7 });
        assert_eq!(seen.p2p, seen.p2p_done + seen.in_flight.len() as u64);
    }
}

#[test]
fn within_a_group_all_calls_are_followed_or_none() {
    let dir = tempfile::tempdir().unwrap();
    run("flood::child_with_a_long_group", dir.path(), &[]);
}

/// Parts of unequal size are gathered by broadcasts in one group, for which NCCL makes a launch that it does not
/// count.
#[test]
fn child_with_uneven_parts() {
    if !is_child() {
        return;
    }
    let is = |name: &str| std::env::var_os(name).is_some();
    let nccl = init(0xf6);
    while is("FLOOD") && MASK.load(Ordering::Relaxed) & KERNELS != 0 {
        nccl.all_reduce(1);
    }
    let gather = |roots: &[i32]| {
        let calls = nccl.group_api();
        for root in roots {
            nccl.rooted_api(calls, c"Broadcast", 10, is("GRAPH"), *root);
        }
        stop(calls);
    };
    let before = MASK.load(Ordering::Relaxed);
    gather(&[1, 1]);
    gather(&[0]);
    assert_eq!(MASK.load(Ordering::Relaxed), before, "each of one root");
    assert_eq!(state().process.kernels_ended_ns, None);
    // Launched before, not yet seen to run: it is still reported, whatever follows.
    let calls = nccl.group_api();
    let api = nccl.coll_api_in(calls, c"AllReduce", 9, false);
    let earlier = nccl.coll(api, nccl.group(), c"AllReduce", 1);
    stop(earlier);
    stop(calls);

    gather(&[0, 1]);
    if is("OFF") {
        assert_eq!((MASK.load(Ordering::Relaxed), state().process.kernels_ended_ns), (before, None));
        return;
    }
    assert_eq!(MASK.load(Ordering::Relaxed) & KERNELS, 0);
    assert!(state().process.kernels_ended_ns.is_some());
    if !is("FLOOD") {
        assert!(nccl.seen().in_flight.iter().any(|op| op.call.count == 9 && op.is_end_visible));
        stop_kernel(nccl.kernel(earlier, 0, 1000), 2000);
        assert!(state().recent.iter().any(|op| op.call.count == 9 && op.is_end_seen));
    }
    // Without kernels, and through a pause; proxies are requested as before.
    for _ in 0..20 {
        nccl.all_reduce(0);
    }
    std::thread::sleep(Duration::from_millis(50));
    nccl.all_reduce(0);
    nccl.all_reduce(0);
    let mask = if is("BOUND") { 0x240 } else { 0x165e };
    let is_settled = is("GRAPH") && is("FLOOD");
    assert_eq!(MASK.load(Ordering::Relaxed), if is_settled { CALLS } else { mask & !KERNELS });
    assert_eq!(init(0xf7).mask & KERNELS, 0);
    let seen = nccl.seen();
    assert!(seen.in_flight.iter().all(|op| op.handed_over_ns.is_some() && !op.is_end_visible), "{seen:?}");
    // The newest operations that are not followed remain as well.
    assert!((7..=14).contains(&seen.in_flight.len()), "{seen:?}");
}

#[test]
fn kernels_are_given_up_where_nccl_counts_them_wrongly() {
    let dir = tempfile::tempdir().unwrap();
    let cases: [&[(&str, &str)]; 6] = [
        &[],
        &[("FLOOD", "1")],
        &[("GRAPH", "1")],
        &[("GRAPH", "1"), ("FLOOD", "1")],
        &[("BOUND", "1"), ("RINGLEADER_PLUGIN_EVENTS", "0x240")],
        &[("OFF", "1"), ("NCCL_ALLGATHERV_ENABLE", "0")],
    ];
    for (number, more) in cases.into_iter().enumerate() {
        run("flood::child_with_uneven_parts", &dir.path().join(number.to_string()), more);
    }
}

#[test]
fn child_without_kernels() {
    if !is_child() {
        return;
    }
    let nccl = init(0xf4);
    assert_eq!(nccl.mask, 0x600);
    for _ in 0..20 {
        let calls = nccl.group_api();
        nccl.coll_api_in(calls, c"AllReduce", 1, false);
        assert!(nccl.seen().in_flight.iter().any(|op| op.handed_over_ns.is_none() && !op.is_end_visible));
        stop(calls);
        assert!(nccl.seen().in_flight.iter().all(|op| op.handed_over_ns.is_some() && !op.is_end_visible));
    }
    assert_eq!((nccl.seen().collectives, nccl.seen().in_flight.len()), (20, 7));
}

#[test]
fn calls_alone_may_be_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    run("flood::child_without_kernels", dir.path(), &[("RINGLEADER_PLUGIN_EVENTS", "0x600")]);
}

#[test]
fn a_flood_is_recorded_though_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    run("flood::child_in_a_flood", dir.path(), &[]);
}
