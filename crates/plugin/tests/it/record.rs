//! The records of each event.

use ringleader_ring::Phase;

use crate::driver::{NULL, Nccl, record, state, stop, stop_kernel};

#[test]
fn a_collective_is_over_when_its_channels_are() {
    let nccl = Nccl::init(0xa1, c"data parallel");
    assert_eq!(nccl.mask, 0x165e);
    let seen = nccl.seen();
    assert_eq!((seen.name.as_str(), seen.size, seen.rank, seen.nodes), ("data parallel", 4, Some(1), 2));

    let api = nccl.coll_api(c"AllReduce", 1000, false);
    let op = nccl.seen().in_flight[0].clone();
    assert_eq!(
        (op.number, op.is_launched, op.call.count, op.call.datatype.as_str()),
        (0, false, 1000, "ncclBfloat16")
    );
    assert_eq!(op.call.root, None, "AllReduce has none, whatever the descriptor says");

    let group = nccl.group();
    let coll = nccl.coll(api, group, c"AllReduce", 2);
    stop(coll);
    stop(group);
    let op = nccl.seen().in_flight[0].clone();
    assert!(op.is_launched && op.handed_over_ns.is_some() && op.started_ns.is_none() && op.is_end_visible);
    assert_eq!(
        (op.call.algorithm.as_str(), op.call.protocol.as_str(), op.call.channels),
        ("RING", "SIMPLE", 2)
    );
    assert_eq!((op.call.sequence, op.call.count), (Some(41), 1000));

    let kernels = [nccl.kernel(coll, 3, 500), nccl.kernel(coll, 5, 510)];
    stop_kernel(kernels[0], 900);
    let op = nccl.seen().in_flight[0].clone();
    assert_eq!((op.channels_started, op.channels_stopped, op.open_channels), (2, 1, 1 << 5));
    stop_kernel(kernels[1], 950);
    let seen = nccl.seen();
    assert!(seen.in_flight.is_empty());
    assert_eq!((seen.collectives, seen.collectives_done, seen.bytes_done), (1, 1, 2000));
    let done = state().recent.into_iter().find(|done| done.comm == seen.slot).unwrap();
    assert_eq!((done.gpu_started_ns, done.gpu_ns), (Some(500), Some(450)));
}

#[test]
fn roots_and_peers() {
    let nccl = Nccl::init(0xa2, c"");
    let api = nccl.coll_api(c"Broadcast", 8, false);
    nccl.coll(api, nccl.group(), c"Broadcast", 1);
    let p2p = nccl.p2p_api(c"Send", 9);
    nccl.p2p(p2p, nccl.group(), c"Send", 3, 1);
    let seen = nccl.seen();
    let (broadcast, send) = (&seen.in_flight[0], &seen.in_flight[1]);
    assert_eq!(
        (broadcast.call.root, broadcast.call.peer, broadcast.is_p2p, broadcast.number),
        (Some(2), None, false, 0)
    );
    assert_eq!((send.call.root, send.call.peer, send.is_p2p, send.number), (None, Some(3), true, 0));
    assert_eq!((seen.collectives, seen.p2p), (1, 1));
}

#[test]
fn a_proxy_tells_its_peer_and_what_it_waits_for() {
    let nccl = Nccl::init(0xa3, c"net");
    let coll = nccl.coll(nccl.coll_api(c"AllGather", 1, false), nccl.group(), c"AllGather", 1);
    let proxies =
        [nccl.proxy(coll, std::process::id(), 0, 0, true), nccl.proxy(coll, std::process::id(), 2, 0, false)];
    stop(coll);
    record(proxies[0], 19, 0);
    let kernel = nccl.kernel(coll, 0, 10);
    let sent = nccl.step(proxies[0], 0);
    let received = nccl.step(proxies[1], 0);
    for (state, phase) in [(8, Phase::SendGpu), (20, Phase::SendPeer), (9, Phase::SendNet)] {
        record(sent, state, 4096);
        let waits = nccl.seen().in_flight[0].waits.clone();
        let send = waits.iter().find(|wait| wait.is_send).unwrap();
        assert_eq!((send.peer, send.phase, send.steps), (0, phase, 3));
    }
    for (state, phase) in [(10, Phase::RecvNet), (11, Phase::RecvFlush), (12, Phase::RecvGpu)] {
        record(received, state, 4096);
        let waits = nccl.seen().in_flight[0].waits.clone();
        let receive = waits.iter().find(|wait| !wait.is_send).unwrap();
        assert_eq!((receive.peer, receive.phase), (2, phase));
    }
    // The network plugin's own events.
    let net = nccl.other(1 << 7, sent);
    assert_eq!(nccl.seen().in_flight[0].waits.iter().map(|wait| wait.net_open).sum::<u32>(), 1);
    stop(net);
    assert_eq!(nccl.seen().in_flight[0].waits.iter().map(|wait| wait.net_open).sum::<u32>(), 0);
    stop(sent);
    stop(received);
    stop(proxies[0]);
    stop_kernel(kernel, 20);
    assert_eq!(nccl.seen().in_flight.len(), 1, "one proxy still works");
    stop(proxies[1]);
    assert!(nccl.seen().in_flight.is_empty());
}

#[test]
fn a_proxy_of_another_process_is_not_followed() {
    let nccl = Nccl::init(0xa4, c"pxn");
    let coll = nccl.coll(nccl.coll_api(c"AllGather", 1, false), nccl.group(), c"AllGather", 1);
    // The parent looks like ours but belongs to another process.
    let proxy = nccl.proxy(coll, 1_000_000, 3, 7, true);
    record(nccl.step(proxy, 0), 20, 0);
    assert!(nccl.seen().in_flight[0].waits.is_empty());
    let foreign = state().foreign.into_iter().find(|foreign| foreign.pid == 1_000_000).unwrap();
    assert_eq!((foreign.wait.peer, foreign.wait.channel, foreign.wait.phase), (3, 7, Phase::SendPeer));
    stop(proxy);
    assert!(!state().foreign.iter().any(|foreign| foreign.pid == 1_000_000));
}

#[test]
fn every_run_of_a_graph_is_an_operation() {
    let nccl = Nccl::init(0xa5, c"graph");
    let api = nccl.coll_api(c"AllReduce", 1, true);
    assert!(nccl.seen().in_flight.is_empty());
    for run in 0..20 {
        let group = nccl.group();
        let coll = nccl.coll(api, group, c"AllReduce", 1);
        stop(coll);
        stop(group);
        let op = nccl.seen().in_flight[0].clone();
        assert_eq!((op.number, op.call.is_captured), (run, true));
        stop_kernel(nccl.kernel(coll, 0, 1), 2);
    }
    assert_eq!((nccl.seen().collectives, nccl.seen().collectives_done), (20, 20));
}

#[test]
fn copies_by_the_engines_have_no_end_that_is_seen() {
    let nccl = Nccl::init(0xa6, c"ce");
    for _ in 0..30 {
        let api = nccl.coll_api(c"AllGather", 64, false);
        stop(nccl.ce_coll(api, c"AllGather".as_ptr()));
    }
    let seen = nccl.seen();
    assert_eq!(seen.collectives, 30);
    assert_eq!(seen.in_flight.len(), 7);
    assert!(seen.in_flight.iter().all(|op| op.call.algorithm == "CE" && !op.is_end_visible));
}

#[test]
fn broadcasts_that_nccl_does_not_report_are_no_hang() {
    // 2.29 and later: only the call of a broadcast is reported.
    let nccl = Nccl::init(0xa8, c"broadcasts");
    for _ in 0..10 {
        let calls = nccl.group_api();
        nccl.coll_api_in(calls, c"Broadcast", 5, false);
        assert!(
            nccl.seen().in_flight.iter().any(|op| op.is_end_visible),
            "until the group ends it may hang in NCCL"
        );
        stop(calls);
        assert!(nccl.seen().in_flight.iter().all(|op| !op.is_end_visible));
    }
    nccl.all_reduce(1);
    assert_eq!((nccl.seen().collectives_done, nccl.seen().in_flight.len()), (11, 0));
}

#[test]
fn numbers_are_those_of_the_calls() {
    // Within a group NCCL launches in its own order.
    let nccl = Nccl::init(0xa7, c"order");
    let first = nccl.coll_api(c"AllReduce", 1, false);
    let second = nccl.coll_api(c"ReduceScatter", 2, false);
    let group = nccl.group();
    let launched = [nccl.coll(second, group, c"ReduceScatter", 1), nccl.coll(first, group, c"AllReduce", 1)];
    launched.into_iter().for_each(stop);
    let names: Vec<_> =
        nccl.seen().in_flight.iter().map(|op| (op.number, op.call.function.clone())).collect();
    assert_eq!(names, [(0, "AllReduce".to_owned()), (1, "ReduceScatter".to_owned())]);
    // Stops come in any order; late or repeated ones change nothing.
    let kernels = [nccl.kernel(launched[1], 0, 1), nccl.kernel(launched[0], 0, 1)];
    for kernel in kernels.into_iter().chain(kernels) {
        stop_kernel(kernel, 2);
    }
    launched.into_iter().for_each(stop);
    assert_eq!((nccl.seen().collectives_done, nccl.seen().in_flight.len()), (2, 0));
    // A second plugin gives a handle, whatever ours is.
    let late = nccl.kernel(launched[0], 0, 1);
    assert!(late.0 == NULL.0 || std::env::var_os("RINGLEADER_PLUGIN_NEXT").is_some());
    assert_eq!((nccl.seen().collectives_done, nccl.seen().in_flight.len()), (2, 0));
}
