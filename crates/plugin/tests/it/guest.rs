//! No harm to the job: no allocation, no system call, and no call of NCCL's that does damage.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use ringleader_nccl::abi::v6::ncclProfiler_v6;

use crate::allocations;
use crate::driver::{NULL, Nccl, Ptr, directory, record, state, stop, stop_kernel};
use crate::loaded::{is_child, run};

/// The own pid, without a system call each time.
fn own_pid() -> u32 {
    static PID: std::sync::OnceLock<u32> = std::sync::OnceLock::new();
    *PID.get_or_init(std::process::id)
}

/// One event of each kind.
pub(crate) fn all_events(nccl: &Nccl) {
    nccl.all_reduce(2);
    let send = nccl.p2p(nccl.p2p_api(c"Send", 4), nccl.group(), c"Send", 0, 1);
    let proxy = nccl.proxy(send, own_pid(), 0, 0, true);
    stop(send);
    let kernel = nccl.kernel(send, 0, 1);
    for number in 0..3 {
        let step = nccl.step(proxy, number);
        for state in [8, 20, 20, 9] {
            record(step, state, 0);
        }
        let net = nccl.other(1 << 7, step);
        stop(net);
        stop(step);
    }
    stop(proxy);
    stop_kernel(kernel, 2);
    for kind in [1 << 5, 1 << 11, 1 << 13, 1 << 14, 1 << 40] {
        let handle = nccl.other(kind, NULL);
        record(handle, 13, 0);
        stop(handle);
    }
}

#[test]
fn child_that_must_not_allocate() {
    if !is_child() {
        return;
    }
    let nccl = Nccl::init(0xc1, c"quiet");
    all_events(&nccl);
    let before = allocations();
    for _ in 0..1000 {
        all_events(&nccl);
    }
    assert_eq!(allocations(), before);
    // Not even when a region is full and everything is dropped.
    let api: Vec<Ptr> = (0..5000).map(|_| nccl.coll_api(c"AllReduce", 1, false)).collect();
    let before = allocations();
    for _ in 0..1000 {
        all_events(&nccl);
    }
    assert_eq!(allocations(), before);
    assert_eq!(api.len(), 5000);
    assert!(state().lost.ops > 0);
}

#[test]
fn no_event_allocates() {
    let dir = tempfile::tempdir().unwrap();
    run("guest::child_that_must_not_allocate", dir.path(), &[]);
}

/// From here on the kernel ends this thread for any system call but exit. (Seccomp's strict mode is unsuitable: it also
/// forbids reading the processor's clock.)
fn forbid_system_calls() {
    let load_number = libc::sock_filter { code: 0x20, jt: 0, jf: 0, k: 0 };
    let is_exit = libc::sock_filter { code: 0x15, jt: 0, jf: 1, k: libc::SYS_exit as u32 };
    let answer = |k| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k };
    let mut program =
        [load_number, is_exit, answer(libc::SECCOMP_RET_ALLOW), answer(libc::SECCOMP_RET_KILL_THREAD)];
    let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    // SAFETY: it takes no pointers.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) }, 0);
    // SAFETY: a program and its length, both alive.
    assert_eq!(unsafe { libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const filter) }, 0);
}

/// The child process of `no_event_calls_the_system`.
#[test]
fn child_without_system_calls() {
    if !is_child() {
        return;
    }
    let nccl = Nccl::init(0xc2, c"strict");
    all_events(&nccl);
    let worker = |rounds: u32, calls_the_system: bool| {
        let is_done = std::sync::Arc::new(AtomicBool::new(false));
        let done = is_done.clone();
        let _runs = thread::spawn(move || {
            forbid_system_calls();
            for _ in 0..rounds {
                all_events(&nccl);
            }
            if calls_the_system {
                // SAFETY: it takes no pointers.
                unsafe { libc::getppid() };
            }
            done.store(true, Ordering::Relaxed);
            loop {
                // SAFETY: it ends this thread.
                unsafe { libc::syscall(libc::SYS_exit, 0) };
            }
        });
        is_done
    };
    let (quiet, loud) = (worker(10_000, false), worker(1, true));
    for _ in 0..1000 {
        if quiet.load(Ordering::Relaxed) {
            break;
        }
        thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(quiet.load(Ordering::Relaxed));
    assert!(!loud.load(Ordering::Relaxed), "the kernel did not look");
}

#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn no_event_calls_the_system() {
    if crate::loaded::is_emulated() {
        println!("SKIPPED: QEMU takes no filter of system calls");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    run("guest::child_without_system_calls", dir.path(), &[]);
}

#[test]
fn nothing_that_nccl_does_wrong_hurts() {
    let nccl = Nccl::init(0xc3, c"wrong");
    let before = nccl.seen();
    for address in [0_usize, 1, 77, 1 << 60, 5 << 60, usize::MAX, 0x7f00_0000_1000] {
        let wild = Ptr(std::ptr::without_provenance_mut(address));
        stop(wild);
        for state in [-1, 0, 8, 9, 19, 20, 21, 22, 23, 99, i32::MIN] {
            record(wild, state, 1);
        }
        assert!(nccl.kernel(wild, 255, 1).0.is_null());
        assert!(nccl.step(wild, -1).0.is_null());
        assert!(nccl.proxy(wild, std::process::id(), -1, 255, true).0.is_null());
        for table_function in [ncclProfiler_v6.stop_event, ncclProfiler_v6.finalize] {
            // SAFETY: a number that is not one of our handles.
            assert_eq!(unsafe { table_function(wild.0) }, 0);
        }
    }
    let mut handle = std::ptr::without_provenance_mut(7);
    let start = ncclProfiler_v6.start_event;
    // SAFETY: the test passes null pointers, here and below.
    assert_eq!(unsafe { start(nccl.context.0, null_mut(), null_mut()) }, 0);
    // SAFETY: as above.
    assert_eq!(unsafe { start(nccl.context.0, &raw mut handle, null_mut()) }, 0);
    assert!(handle.is_null());
    // SAFETY: as above.
    assert_eq!(unsafe { (ncclProfiler_v6.record_event_state)(null_mut(), 22, null_mut()) }, 0);
    let init = ncclProfiler_v6.init;
    // SAFETY: as above.
    let result = unsafe { init(null_mut(), 0, null_mut(), std::ptr::null(), -1, -1, -1, None) };
    assert_eq!(result, 0);
    // A communicator that was never created, or is gone.
    let none = Nccl { context: NULL, ..nccl };
    assert!(none.coll_api(c"AllReduce", 1, false).0.is_null());
    assert!(none.coll(NULL, NULL, c"AllReduce", 1).0.is_null());
    assert_eq!(nccl.seen(), before);
    nccl.finalize();
    nccl.finalize();
    assert!(nccl.group().0.is_null());
    // Null names.
    let other = Nccl::init(0xc4, c"x");
    assert!(!other.ce_coll(NULL, std::ptr::null()).0.is_null());
    assert_eq!(other.seen().in_flight[0].call.function, "");
}

#[test]
fn child_with_threads() {
    if !is_child() {
        return;
    }
    directory();
    // Four GPUs in one process: each has an application thread and a proxy thread, and splits begin and end all the
    // while.
    thread::scope(|scope| {
        for gpu in 0..4_u64 {
            scope.spawn(move || {
                let main = Nccl::init(0xd0 + gpu, c"main");
                let (send, receive) = std::sync::mpsc::sync_channel::<(Nccl, Ptr, u8)>(64);
                let proxy = scope.spawn(move || {
                    for (nccl, coll, channels) in receive {
                        let kernels: Vec<Ptr> =
                            (0..channels).map(|channel| nccl.kernel(coll, channel, 5)).collect();
                        for kernel in kernels {
                            stop_kernel(kernel, 9);
                        }
                    }
                });
                for round in 0..500 {
                    let split = Nccl::init(0xe0 + gpu, c"split");
                    for nccl in [main, split, main] {
                        let channels = (round % 7) as u8 + 1;
                        let api = nccl.coll_api(c"AllReduce", 1, false);
                        let group = nccl.group();
                        let coll = nccl.coll(api, group, c"AllReduce", channels);
                        // The proxy thread may see the kernel before the launch returns.
                        send.send((nccl, coll, channels)).unwrap();
                        stop(coll);
                        stop(group);
                    }
                    split.finalize();
                }
                drop(send);
                proxy.join().unwrap();
            });
        }
    });
    let state = state();
    for gpu in 0..4 {
        let comm = state.comms.iter().find(|comm| comm.id == 0xd0 + gpu).unwrap();
        assert_eq!((comm.collectives, comm.collectives_done, comm.in_flight.len()), (1000, 1000, 0));
    }
    assert_eq!((state.lost.comms, state.lost.ops, state.lost.faults), (0, 0, 0));
}

#[test]
fn threads_gpus_and_communicators_at_once() {
    let dir = tempfile::tempdir().unwrap();
    run("guest::child_with_threads", dir.path(), &[]);
}
