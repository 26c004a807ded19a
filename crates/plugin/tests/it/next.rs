//! A second plugin: it gets what NCCL would tell it alone, and the ring stays what it is without it.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

use ringleader_nccl::events;

use crate::driver::{Nccl, record, state, stop};
use crate::guest::all_events;
use crate::loaded::{is_child, library, run};

/// The C program of this folder as a plugin of an interface.
fn second(dir: &Path, version: u32) -> PathBuf {
    let path = dir.join(format!("libnccl-profiler-second{version}.so"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/second.c");
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", &format!("-DVERSION={version}"), "-o"])
        .args([&path, &source])
        .status();
    assert!(status.unwrap().success());
    path
}

#[derive(Debug, PartialEq, Eq)]
struct Counts {
    inits: u64,
    ends: u64,
    starts: u64,
    stops: u64,
    records: u64,
    wrong: u64,
    types: u64,
}

/// What the second plugin of this process has counted.
fn counts() -> Counts {
    let path = CString::new(std::env::var("RINGLEADER_PLUGIN_NEXT").unwrap()).unwrap();
    // SAFETY: a string; the library is loaded already.
    let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    assert!(!library.is_null());
    // SAFETY: an open library and a string.
    let found = unsafe { libc::dlsym(library, c"second_counts".as_ptr()) };
    assert!(!found.is_null());
    // SAFETY: its signature, in second.c.
    let tell: unsafe extern "C" fn(*mut u64) = unsafe { std::mem::transmute(found) };
    let mut out = [0_u64; 7];
    // SAFETY: room for all numbers.
    unsafe { tell(out.as_mut_ptr()) };
    let [inits, ends, starts, stops, records, wrong, types] = out;
    Counts { inits, ends, starts, stops, records, wrong, types }
}

#[test]
fn child_with_a_second() {
    if !is_child() {
        return;
    }
    let nccl = Nccl::init(0xd1, c"two plugins");
    assert_eq!(nccl.mask as u64 & events::KERNEL_CH, events::KERNEL_CH);
    for _ in 0..3 {
        all_events(&nccl);
    }
    let other = Nccl::init(0xd2, c"another");
    other.all_reduce(4);
    let seen = other.seen();
    assert_eq!((seen.collectives, seen.collectives_done, seen.in_flight.len()), (1, 1, 0));
    let seen = nccl.seen();
    assert_eq!((seen.collectives, seen.collectives_done, seen.p2p, seen.p2p_done), (3, 3, 3, 3));
    assert!(seen.in_flight.is_empty(), "{:?}", seen.in_flight);
    nccl.finalize();
    let told = counts();
    assert_eq!((told.inits, told.ends, told.wrong), (2, 1, 0), "{told:?}");
    // It asked for kernels: their operations, calls and groups come with them, the network's events do not.
    let kinds = events::KERNEL_CH
        | events::COLL
        | events::P2P
        | events::GROUP
        | events::COLL_API
        | events::P2P_API
        | events::GROUP_API;
    assert_eq!(told.types, kinds, "{told:?}");
    // A collective is a group of calls, a call, a launch, an operation and a kernel for each channel; a send has no group
    // of calls. Launches got no handle, so they are not stopped.
    let starts = 3 * ((4 + 2) + (3 + 1)) + (4 + 4);
    assert_eq!((told.starts, told.stops), (starts, starts - 3 * 2 - 1), "{told:?}");
    // The group of calls twice, each kernel once.
    assert_eq!(told.records, 3 * (2 + 2 + 1) + (2 + 4), "{told:?}");
    assert_eq!(state().lost.ops, 0);
}

#[test]
fn a_second_plugin_gets_its_own_events_with_its_own_handles() {
    let dir = tempfile::tempdir().unwrap();
    // Interface 5 is the beginning of 6: Inspector has only that.
    for version in [5, 6] {
        let path = second(dir.path(), version);
        let rings = tempfile::tempdir().unwrap();
        let next = [("RINGLEADER_PLUGIN_NEXT", path.to_str().unwrap()), ("SECOND_MASK", "0x40")];
        run("next::child_with_a_second", rings.path(), &next);
    }
}

#[test]
fn the_ring_is_the_same_beside_a_second_plugin() {
    let dir = tempfile::tempdir().unwrap();
    let path = second(dir.path(), 6);
    // All tests of what is recorded, with everything told to the second plugin, too. One after the other, since some stop an
    // event twice, when its address may be that of another test's event.
    for mask in ["0x5e", "0x165e", "0x2"] {
        let rings = tempfile::tempdir().unwrap();
        let out = Command::new(std::env::current_exe().unwrap())
            .args(["record::", "--test-threads=1"])
            .env("RINGLEADER_RING_DIR", rings.path())
            .env("RINGLEADER_PLUGIN_NEXT", &path)
            .env("SECOND_MASK", mask)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && !text.contains(" 0 passed"), "{mask}: {text}");
    }
}

#[test]
fn child_alone() {
    if !is_child() {
        return;
    }
    let nccl = Nccl::init(0xd3, c"alone");
    assert_eq!(nccl.mask, 0x165e);
    nccl.all_reduce(1);
    assert_eq!(nccl.seen().collectives_done, 1);
}

#[test]
fn a_second_plugin_that_cannot_be_used_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let own = library();
    let fails = second(dir.path(), 6);
    let older = second(dir.path(), 4);
    for (path, more) in [
        (Path::new("/nowhere/libnccl-profiler-x.so"), ""),
        (Path::new("no-such-plugin"), ""),
        (&own, ""),
        (&fails, "SECOND_FAILS"),
        (&older, ""),
    ] {
        let rings = tempfile::tempdir().unwrap();
        let more = if more.is_empty() { "SECOND_UNUSED" } else { more };
        run(
            "next::child_alone",
            rings.path(),
            &[("RINGLEADER_PLUGIN_NEXT", path.to_str().unwrap()), (more, "1")],
        );
    }
}

#[test]
fn child_that_is_off() {
    if !is_child() {
        return;
    }
    let nccl = Nccl::init(0xd4, c"off");
    assert_eq!(nccl.mask, 0x240);
    let api = nccl.coll_api(c"AllReduce", 1, false);
    let coll = nccl.coll(api, nccl.group(), c"AllReduce", 1);
    stop(coll);
    let kernel = nccl.kernel(coll, 0, 1);
    record(kernel, 22, 5);
    stop(kernel);
    nccl.finalize();
    let told = counts();
    assert_eq!((told.inits, told.ends, told.wrong), (1, 1, 0), "{told:?}");
    assert_eq!((told.starts, told.stops, told.records), (4, 3, 1), "{told:?}");
    assert!(ringleader_ring::rings_in(crate::driver::directory()).is_empty());
}

#[test]
fn a_second_plugin_goes_on_where_the_first_is_off() {
    let dir = tempfile::tempdir().unwrap();
    let path = second(dir.path(), 6);
    let rings = tempfile::tempdir().unwrap();
    let next = [
        ("RINGLEADER_PLUGIN_NEXT", path.to_str().unwrap()),
        ("SECOND_MASK", "0x240"),
        ("RINGLEADER_PLUGIN", "0"),
    ];
    run("next::child_that_is_off", rings.path(), &next);
}

#[test]
fn child_of_many_threads() {
    if !is_child() {
        return;
    }
    let comms: Vec<Nccl> = (0..4).map(|n| Nccl::init(0xe0 + n, c"threads")).collect();
    std::thread::scope(|scope| {
        for nccl in &comms {
            scope.spawn(|| (0..2000).for_each(|_| nccl.all_reduce(3)));
        }
    });
    let told = counts();
    assert_eq!(told.wrong, 0, "{told:?}");
    for nccl in &comms {
        let seen = nccl.seen();
        assert_eq!((seen.collectives, seen.collectives_done), (2000, 2000));
    }
}

#[test]
fn threads_do_not_mix_handles() {
    let dir = tempfile::tempdir().unwrap();
    let path = second(dir.path(), 6);
    let rings = tempfile::tempdir().unwrap();
    let next = [
        ("RINGLEADER_PLUGIN_NEXT", path.to_str().unwrap()),
        ("SECOND_MASK", "0x40"),
        ("RINGLEADER_PLUGIN_FOLLOW", "all"),
    ];
    run("next::child_of_many_threads", rings.path(), &next);
}
