use crate::tell::{read, tell, tell_recordings};

/// What is read from `input`, with the line of the source left away.
fn check(input: &str, expected: &str) {
    let told = tell(&read("stacks", input.as_bytes()));
    let told: Vec<&str> = told.lines().skip(1).map(str::trim).collect();
    let expected: Vec<&str> = expected.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    assert_eq!(told, expected);
}

#[test]
fn recordings() {
    insta::assert_snapshot!(tell_recordings(|name| name.starts_with("stack_")));
}

#[test]
fn pyspy_with_locals_native_frames_and_children() {
    check(
        r#"Collecting samples...
Process 1347: python3 -u train.py --name a: b
Python v3.12.3 (/usr/bin/python3.12)

Thread 1347 (active+gil): "MainThread"
    ncclAllReduce (libnccl.so.2.28.9)
    c10d::ProcessGroupNCCL::allreduce(at::Tensor&, int) (libtorch_cuda.so)
    sync_grads (train.py:83)
        Arguments:
            model: <DDP at 0x7f (x:1)>
        Locals:
            step: 44
    <module> (train.py:120)
Thread 0x7F2F41FFB640 (idle)
Process 1400: python3 -c from multiprocessing import spawn
Python v3.12.3 (/usr/bin/python3.12)
Parent Process 1347: python3 -u train.py

Thread 1400 (idle): "pt_data_worker (x)"
    wait (threading.py:355)
"#,
        r#"
        line 2 pid 1347: PySpy Some(Pid(1347)) command Some("python3 -u train.py --name a: b") failure None
        Some(1347) MainThread active Some(true) gil: 4 frames: ncclAllReduce (libnccl.so.2.28.9:0) < c10d::ProcessGroupNCCL::allreduce(at::Tensor&, int) (libtorch_cuda.so:0) < sync_grads (train.py:83) < <module> (train.py:120)
        Some(139840947467840) - active Some(false): 0 frames: 
        line 15 pid 1400: PySpy Some(Pid(1400)) command Some("python3 -c from multiprocessing import spawn") failure None
        Some(1400) pt_data_worker (x) active Some(false): 1 frames: wait (threading.py:355)
        "#,
    );
}

/// As `collect` writes them: what is said of native frames is no frame, and a program without Python has a dump too.
#[test]
fn native_frames_of_collect() {
    check(
        r#"Process 1347: python3
Python v3.12.3 (/usr/bin/python3.12)

Thread 1347 (idle): "MainThread"
    read (libc.so.6)
    0x1f2e3c (libcuda.so.1)
    fetch (train.py:83)
        native frames: cut: in libcuda.so.1 the next frame needs register rbp, which the kernel does not report
Thread 1390 (active+gil): "loader"
    work (train.py:12)
        native frames: it runs: frames can only be taken of a blocked thread
Thread 1391 (idle): "cuda-EvtHandlr"
    poll (libc.so.6)
12 threads more were not looked into for native frames
Process 1400: all_reduce_perf

Thread 1400 (idle): "all_reduce_perf"
    main (all_reduce_perf)
"#,
        r#"
        line 1 pid 1347: PySpy Some(Pid(1347)) command Some("python3") failure None
        Some(1347) MainThread active Some(false): 3 frames: read (libc.so.6:0) < 0x1f2e3c (libcuda.so.1:0) < fetch (train.py:83)
        Some(1390) loader active Some(true) gil: 1 frames: work (train.py:12)
        Some(1391) cuda-EvtHandlr active Some(false): 1 frames: poll (libc.so.6:0)
        line 15 pid 1400: PySpy Some(Pid(1400)) command Some("all_reduce_perf") failure None
        Some(1400) all_reduce_perf active Some(false): 1 frames: main (all_reduce_perf:0)
        "#,
    );
}

/// A loop over processes prints their main threads alone, one after the other.
#[test]
fn main_threads_in_a_row() {
    check(
        r#"Thread 61015 (idle): "MainThread"
    barrier (torch/distributed/distributed_c10d.py:4551)
Thread 61016 (idle): "MainThread"
    barrier (torch/distributed/distributed_c10d.py:4551)
Thread 61090 (idle): "Thread-1"
    wait (threading.py:320)
"#,
        r"
        line 1 pid 61015: PySpy Some(Pid(61015)) command None failure None
        Some(61015) MainThread active Some(false): 1 frames: barrier (torch/distributed/distributed_c10d.py:4551)
        line 3 pid 61016: PySpy Some(Pid(61016)) command None failure None
        Some(61016) MainThread active Some(false): 1 frames: barrier (torch/distributed/distributed_c10d.py:4551)
        Some(61090) Thread-1 active Some(false): 1 frames: wait (threading.py:320)
        ",
    );
}

#[test]
fn old_pyspy_behind_the_number_of_a_process() {
    check(
        "== 30210\nThread 0x7F1D2DD49700 (active)\n  backward (torch/tensor.py:102)\n  main (train.py:71)\n",
        r"
        line 2 pid 30210: PySpy Some(Pid(30210)) command None failure None
        Some(139763299686144) - active Some(true): 2 frames: backward (torch/tensor.py:102) < main (train.py:71)
        ",
    );
}

#[test]
fn a_tool_that_failed_says_so() {
    check(
        "process is stopped (T)\n",
        "line 1: PySpy None command None failure Some(\"process is stopped (T)\")",
    );
    check(
        "Error: Failed to get stack traces from process\nReason: Permission denied (os error 13)\n",
        "line 1: PySpy None command None failure Some(\"Error: Failed to get stack traces from process: Permission denied (os error 13)\")",
    );
    check(
        "Attaching to process 99\nptrace: Operation not permitted.\n",
        "line 2 pid 99: PySpy Some(Pid(99)) command None failure Some(\"ptrace: Operation not permitted.\")",
    );
    check("Error: CUDA out of memory\nReason: none\nProcess 3: done\nThread 5 joined\n", "");
}

const FAULTHANDLER: &str = r#"Thread 0x00007f2f41ffb640 [worker] (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 355 in wait
  File "/srv/train/a "b".py", line 9 in <module>

Current thread 0x00007f2f9a7e1740 (most recent call first):
  File "/srv/train/train.py", line 83 in sync_grads
  ...
"#;

#[test]
fn faulthandler_on_request_is_read_and_a_crash_is_not() {
    let stacks = r#"Faulthandler None command None failure None
        Some(139840947467840) worker active None: 2 frames: wait (/usr/lib/python3.12/threading.py:355) < <module> (/srv/train/a "b".py:9)
        Some(139842432145216) - active None current: 1 frames: sync_grads (/srv/train/train.py:83)"#;
    check(FAULTHANDLER, &format!("line 1: {stacks}"));
    check(
        &format!("Timeout (0:00:10)!\n{FAULTHANDLER}{FAULTHANDLER}"),
        &format!("line 2: {stacks}\nline 9: {stacks}"),
    );
    let crash =
        tell(&read("x", format!("Fatal Python error: Segmentation fault\n\n{FAULTHANDLER}").as_bytes()));
    assert!(!crash.contains("Faulthandler"), "{crash}");
}

#[test]
fn gdb_with_headings_without_and_wrapped() {
    check(
        r#"Attaching to process 1347
[New LWP 1390]
Thread 2 (Thread 0x7f2f41ffb640 (LWP 1390) "pt_main (a)"):
#0  0x00007f2f9a8e88dd in syscall () at ../sysdeps/unix/sysv/linux/x86_64/syscall.S:38
#1  0x00007f2f5b0a1f04 in std::function<void (int)>::operator()(int) const (this=0x1, x="at (home)") from /usr/lib/libnccl.so.2
#2  ncclProxyProgress (proxyState_=0x55) at proxy.cc:912
#3  0x00007f2f5b0a1f05 in ?? ()

Thread 1 (Thread 0x7f2f9a7e1740 (LWP 1347) "python3"):
#0  cuStreamSynchronize (stream=0x0)
    at ../src/stream.c:77
#10 main ()
"#,
        r"
        line 3 pid 1347: Gdb Some(Pid(1347)) command None failure None
        Some(1390) pt_main (a) active None: 4 frames: syscall (../sysdeps/unix/sysv/linux/x86_64/syscall.S:38) < std::function<void (int)>::operator()(int) const (/usr/lib/libnccl.so.2:0) < ncclProxyProgress (proxy.cc:912) < ?? (:0)
        Some(1347) python3 active None: 2 frames: cuStreamSynchronize (../src/stream.c:77) < main (:0)
        ",
    );
    check(
        "#0  0x00007f2f9a8e88dd in poll () from /lib/libc.so.6\n#1  0x01 in main ()\n",
        "line 1: Gdb None command None failure None
        None - active None: 2 frames: poll (/lib/libc.so.6:0) < main (:0)",
    );
    check(
        "Thread 1 (process 4242):\n#0  0x01 in poll () from /lib/libc.so.6\n",
        "line 1 pid 4242: Gdb Some(Pid(4242)) command None failure None
        Some(4242) - active None: 1 frames: poll (/lib/libc.so.6:0)",
    );
    check(
        "#0 c10::Error::Error(c10::SourceLocation) from ??:0\n#4 x from y.cpp:1\nframe #0: a + 0x1 (0x2 in b.so)\n",
        "",
    );
}

#[test]
fn kernel_stacks_are_told_apart_by_their_headings() {
    check(
        "\
==> /proc/1347/stack <==
[<0>] futex_wait_queue+0x60/0x90
[<0>] os_acquire_rwlock_write+0x35/0x50 [nvidia]

==> /proc/1348/stack <==
[<ffffffffc0a1b2c3>] nvidia_ioctl+0x1f/0x90 [nvidia]
[<ffffffffffffffff>] 0xffffffffffffffff
[<stdin>] no stack
",
        "
        line 2 pid 1347: Kernel Some(Pid(1347)) command None failure None
        None - active None: 2 frames: futex_wait_queue (:0) < os_acquire_rwlock_write (nvidia:0)
        line 6 pid 1348: Kernel Some(Pid(1348)) command None failure None
        None - active None: 2 frames: nvidia_ioctl (nvidia:0) < 0xffffffffffffffff (:0)
        ",
    );
}

#[test]
fn pyspy_json_is_grouped_by_process() {
    check(
        r#"[{"pid": 7, "thread_id": 140, "thread_name": "MainThread", "os_thread_id": 7, "active": true, "owns_gil": true,
            "frames": [{"name": "f", "filename": "/a/b.py", "short_filename": "b.py", "module": null, "line": 3, "locals": null}],
            "process_info": {"pid": 7, "ppid": 1, "command_line": "python3 x.py"}},
            {"pid": 8, "thread_id": 141, "thread_name": null, "os_thread_id": null, "active": false, "owns_gil": false, "frames": []}]"#,
        r#"
        line 1 pid 7: PySpy Some(Pid(7)) command Some("python3 x.py") failure None
        Some(7) MainThread active Some(true) gil: 1 frames: f (b.py:3)
        line 1 pid 8: PySpy Some(Pid(8)) command None failure None
        Some(141) - active Some(false): 0 frames: 
        "#,
    );
}

#[test]
fn dumps_that_a_command_or_a_heading_names() {
    let text = r#"$ py-spy dump --pid 44120   # rank 0, 09:50
Thread 44120 (active): "MainThread"
    train (faiss/class_wrappers.py:85)
$ py-spy dump --pid 44121   # rank 1
Thread 44121 (idle): "MainThread"
    barrier (torch/distributed/distributed_c10d.py:3690)
=== node3 rank 2 ===
Thread 44122 (idle): "MainThread"
    barrier (torch/distributed/distributed_c10d.py:3690)
"#;
    let case = read("stacks", text.as_bytes());
    let seen: Vec<_> =
        case.observations.iter().map(|o| (o.who.rank.map(|r| r.0), o.who.pid.map(|p| p.0))).collect();
    assert_eq!(seen, [(Some(0), Some(44120)), (Some(1), Some(44121)), (Some(2), Some(44122))]);
}

/// With processes, with threads, and bare; a line that is cut at the end of the file is left out.
#[test]
fn folded_samples() {
    check(
        "process 1347:\"python\";<module> (train.py:90);main (train.py:70);load (data.py:33) 31\n\
         process 1347:\"python\";<module> (train.py:90);main (train.py:72);ncclAllReduce (libnccl.so.2) 9\n\
         process 1348:\"python\";thread (0x7F01): \"MainThread\";<module> (train.py:90) 40\n\
         process 1348:\"python\";thread (0x7F02): \"Thread-1\";_bootstrap (threading.py:1030) 40\n",
        r"
        line 1 pid 1347: samples of Some(Pid(1347))
        31 x 3 frames: load (data.py:33) < main (train.py:70) < <module> (train.py:90)
        9 x 3 frames: ncclAllReduce (libnccl.so.2:0) < main (train.py:72) < <module> (train.py:90)
        line 3 pid 1348: samples of Some(Pid(1348))
        40 x 1 frames: <module> (train.py:90)
        ",
    );
    check(
        "<module> (train.py:90);main (train.py:70) 31\nint f (void); return g (x) 3\n<module> (a.py:1);main (a.py:70) 1",
        r"
        line 1: samples of None
        31 x 2 frames: main (train.py:70) < <module> (train.py:90)
        ",
    );
}
