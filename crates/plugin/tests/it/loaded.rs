//! The built library, opened as NCCL opens it; each test in a process of its own.

use std::ffi::{CStr, CString, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::ptr::null_mut;

use ringleader_nccl::abi::v4::Args;
use ringleader_nccl::abi::v6::{Descriptor, Of};
use ringleader_nccl::abi::{Init1, Profiler, ProxyStep};
use ringleader_ring::{Reader, State, rings_in};

type Table6 = Profiler<
    unsafe extern "C" fn(
        *mut *mut c_void,
        u64,
        *mut c_int,
        *const i8,
        c_int,
        c_int,
        c_int,
        *mut c_void,
    ) -> c_int,
    Descriptor,
    Args,
>;

/// The library next to this test binary: cargo builds it for the same profile.
pub(crate) fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    let name = "libringleader_nccl.so";
    [deps.join(name), deps.parent().unwrap().join(name)].into_iter().find(|path| path.exists()).unwrap()
}

struct Library(*mut c_void);

impl Library {
    fn open() -> Self {
        let path = CString::new(library().into_os_string().into_encoded_bytes()).unwrap();
        // SAFETY: a library of ours.
        let library = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!library.is_null());
        Self(library)
    }
    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: an open library.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
    fn table(&self) -> &'static Table6 {
        // SAFETY: the symbol is this table; the library stays loaded.
        unsafe { &*self.symbol(c"ncclProfiler_v6").cast::<Table6>() }
    }
    fn close(self) {
        // SAFETY: an open library.
        assert_eq!(unsafe { libc::dlclose(self.0) }, 0);
    }
}

fn init(table: &Table6, id: u64) -> (*mut c_void, c_int) {
    let (mut context, mut mask) = (null_mut(), -1);
    // SAFETY: the pointers are valid.
    let result = unsafe {
        (table.init)(&raw mut context, id, &raw mut mask, c"c".as_ptr().cast(), 1, 2, 0, null_mut())
    };
    assert_eq!(result, 0);
    (context, mask)
}

fn group(table: &Table6, context: *mut c_void) -> *mut c_void {
    let of = Of { proxy_step: ProxyStep { step: 0 } };
    let mut descriptor = Descriptor { kind: 1, parent: null_mut(), rank: 0, of };
    let mut handle = null_mut();
    // SAFETY: the pointers are valid.
    unsafe { (table.start_event)(context, &raw mut handle, &raw mut descriptor) };
    handle
}

/// Runs one of the children below in a process of its own.
pub(crate) fn run(child: &str, dir: &Path, more: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([child, "--exact", "--nocapture"])
        .env("PLUGIN_TEST_CHILD", "1")
        .env("RINGLEADER_RING_DIR", dir)
        .envs(more.iter().copied());
    let out = command.output().unwrap();
    assert!(
        out.status.success(),
        "{}{}",
        String::from_utf8_lossy(&out.stdout),
        String::from_utf8_lossy(&out.stderr)
    );
    out
}

pub(crate) fn is_child() -> bool {
    std::env::var_os("PLUGIN_TEST_CHILD").is_some()
}

/// QEMU's user emulation runs this (tools/arm64.sh): it forwards neither what programs advise about memory nor filters of system
/// calls, and has a thread of its own.
pub(crate) fn is_emulated() -> bool {
    cfg!(target_arch = "aarch64") && std::env::var_os("ARM64_QEMU").is_some()
}

fn only_ring(dir: &Path) -> State {
    let rings = rings_in(dir);
    assert_eq!(rings.len(), 1);
    Reader::open(&rings[0]).unwrap().state().unwrap()
}

#[test]
fn child_opens_and_closes() {
    if !is_child() {
        return;
    }
    for round in 0..300 {
        let library = Library::open();
        for name in [
            c"ncclProfiler_v1",
            c"ncclProfiler_v2",
            c"ncclProfiler_v3",
            c"ncclProfiler_v4",
            c"ncclProfiler_v5",
            c"ncclProfiler_v6",
            c"ncclProfiler_v7",
        ] {
            let symbol = library.symbol(name);
            assert!(!symbol.is_null(), "{name:?}");
            // SAFETY: every table begins with the name.
            let table = unsafe { &*symbol.cast::<Profiler<Init1, (), ()>>() };
            // SAFETY: a string.
            assert_eq!(unsafe { CStr::from_ptr(table.name) }, c"ringleader");
        }
        assert!(library.symbol(c"ncclProfiler_v8").is_null());
        let table = library.table();
        let (context, mask) = init(table, round);
        assert!(!context.is_null() && mask != 0);
        assert!(!group(table, context).is_null());
        // SAFETY: a context of ours.
        unsafe { (table.finalize)(context) };
        library.close();
    }
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert_eq!(maps.lines().filter(|line| line.contains("/ring-")).count(), 1);
    assert_eq!(
        std::fs::read_dir("/proc/self/task").unwrap().count(),
        2 + usize::from(is_emulated()),
        "libtest's two threads, none of ours"
    );
}

#[test]
fn nccl_may_open_and_close_it_for_every_communicator() {
    let dir = tempfile::tempdir().unwrap();
    run("loaded::child_opens_and_closes", dir.path(), &[("RANK", "5"), ("WORLD_SIZE", "8")]);
    let state = only_ring(dir.path());
    assert!(state.process.is_ended);
    assert_eq!((state.comms.len(), state.process.rank, state.process.interface), (300, Some(5), 6));
}

#[test]
fn child_forks() {
    if !is_child() {
        return;
    }
    let table = Library::open().table();
    let (context, _) = init(table, 1);
    // SAFETY: the child only calls the plugin and leaves.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let is_off = group(table, context).is_null();
        // SAFETY: as above.
        unsafe { (table.finalize)(context) };
        // A new communicator of the child has a ring of its own.
        let (own, mask) = init(table, 2);
        let has_own = !own.is_null() && mask != 0 && !group(table, own).is_null();
        // SAFETY: leaves at once.
        unsafe { libc::_exit(if is_off && has_own { 42 } else { 1 }) };
    }
    let mut status = 0;
    // SAFETY: our child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(libc::WEXITSTATUS(status), 42);
    assert!(!group(table, context).is_null(), "the parent goes on");
}

#[test]
fn a_forked_child_leaves_its_parents_ring_alone() {
    let dir = tempfile::tempdir().unwrap();
    run("loaded::child_forks", dir.path(), &[]);
    let mut states: Vec<State> =
        rings_in(dir.path()).iter().map(|path| Reader::open(path).unwrap().state().unwrap()).collect();
    states.sort_by_key(|state| state.comms[0].id);
    assert_eq!(states.len(), 2);
    assert_eq!(
        states.iter().map(|state| (state.comms.len(), state.comms[0].id)).collect::<Vec<_>>(),
        [(1, 1), (1, 2)]
    );
    assert!(states.iter().all(|state| state.comms[0].ended_ns.is_none()));
    let codes = states.iter().map(|state| state.process.exit.map(|exit| exit.code)).collect::<Vec<_>>();
    assert_eq!(codes, [Some(0), None], "the child called _exit");
    assert_ne!(states[0].process.pid, states[1].process.pid);
}

#[test]
#[expect(clippy::exit, reason = "that it exits is what is tested")]
fn child_exits() {
    if !is_child() {
        return;
    }
    let table = Library::open().table();
    init(table, 1);
    // SAFETY: the child leaves as Python's own children do, through `exit`.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: handlers of this process run, the plugin's among them.
        unsafe { libc::exit(9) };
    }
    let mut status = 0;
    // SAFETY: our child.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    let said = only_ring(Path::new(&std::env::var("RINGLEADER_RING_DIR").unwrap())).process.exit;
    assert_eq!((libc::WEXITSTATUS(status), said), (9, None), "the end of a child is not its parent's");
    std::process::exit(0);
}

#[test]
fn a_process_that_calls_exit_leaves_its_code() {
    let dir = tempfile::tempdir().unwrap();
    run("loaded::child_exits", dir.path(), &[]);
    let exit = only_ring(dir.path()).process.exit.unwrap();
    assert_eq!(exit.code, 0);
    assert!(exit.at_ns > 0);
    let out = Command::new(std::env::current_exe().unwrap())
        .args(["loaded::child_fails", "--exact"])
        .envs([("PLUGIN_TEST_CHILD", "1".as_ref()), ("RINGLEADER_RING_DIR", dir.path().as_os_str())])
        .output()
        .unwrap();
    assert_eq!(out.status.code(), Some(7));
    let mut codes = rings_in(dir.path())
        .into_iter()
        .map(|path| Reader::open(&path).unwrap().state().unwrap().process.exit);
    assert!(codes.any(|exit| exit.is_some_and(|exit| exit.code == 7)));
}

#[test]
#[expect(clippy::exit, reason = "that it exits is what is tested")]
fn child_fails() {
    if !is_child() {
        return;
    }
    init(Library::open().table(), 1);
    std::process::exit(7);
}

#[test]
fn child_leaves_a_fork() {
    if !is_child() {
        return;
    }
    let table = Library::open().table();
    init(table, 1);
    // SAFETY: the child only sleeps.
    let child = unsafe { libc::fork() };
    if child == 0 {
        for said in [1, 2] {
            // SAFETY: otherwise a reader of the parent's output would also wait for the child.
            unsafe { libc::close(said) };
        }
        // SAFETY: it only waits.
        unsafe { libc::sleep(60) };
        // SAFETY: leaves at once.
        unsafe { libc::_exit(0) };
    }
    std::fs::write(std::env::var("RINGLEADER_RING_DIR").unwrap() + "/child", child.to_string()).unwrap();
}

/// As a worker of a data loader does.
#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn a_forked_child_that_outlives_its_parent_does_not_hold_the_ring() {
    if is_emulated() {
        println!("SKIPPED: QEMU ignores MADV_DONTFORK");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    run("loaded::child_leaves_a_fork", dir.path(), &[]);
    let held = Reader::open(&rings_in(dir.path())[0]).unwrap().is_held();
    let child: i32 = std::fs::read_to_string(dir.path().join("child")).unwrap().parse().unwrap();
    // SAFETY: the child of our child, which sleeps.
    assert_eq!(unsafe { libc::kill(child, libc::SIGKILL) }, 0, "it outlived its parent");
    assert!(!held);
}

#[test]
fn child_is_off() {
    if !is_child() {
        return;
    }
    let table = Library::open().table();
    for _ in 0..3 {
        let (context, mask) = init(table, 1);
        assert!(context.is_null());
        assert_eq!(mask, 0);
        assert!(group(table, context).is_null());
        // SAFETY: null.
        unsafe { (table.finalize)(context) };
    }
}

#[test]
fn it_is_off_when_told_or_when_there_is_no_place() {
    let dir = tempfile::tempdir().unwrap();
    let out = run("loaded::child_is_off", dir.path(), &[("RINGLEADER_PLUGIN", "0")]);
    assert!(rings_in(dir.path()).is_empty());
    assert!(!String::from_utf8_lossy(&out.stderr).contains("ringleader:"));
    run("loaded::child_is_off", Path::new("/proc/nowhere"), &[]);
}

#[test]
fn child_with_a_fault() {
    if !is_child() {
        return;
    }
    let nccl = crate::driver::Nccl::init(1, c"fault");
    assert!(!nccl.group().0.is_null());
    assert_eq!(ringleader_nccl::guarded(|_| panic!("planted")), 0);
    // Off from then on, also for new communicators.
    assert!(nccl.group().0.is_null());
    assert_eq!(crate::driver::Nccl::init(2, c"later").mask, 0);
}

#[test]
fn a_fault_is_counted_and_switches_it_off() {
    let dir = tempfile::tempdir().unwrap();
    run("loaded::child_with_a_fault", dir.path(), &[]);
    let state = only_ring(dir.path());
    assert_eq!((state.lost.faults, state.comms.len()), (1, 1));
}

#[test]
fn child_asks_for_other_events() {
    if !is_child() {
        return;
    }
    assert_eq!(crate::driver::Nccl::init(1, c"mask").mask, 0xde);
}

#[test]
fn the_events_can_be_chosen() {
    let dir = tempfile::tempdir().unwrap();
    run("loaded::child_asks_for_other_events", dir.path(), &[("RINGLEADER_PLUGIN_EVENTS", "0xde")]);
}

/// The checker of `zoo/versions.py`, with a stand-in for NCCL that calls this library in its own processes:
/// it accepts correct rings and reports the errors of incorrect ones.
#[test]
#[expect(clippy::print_stdout, reason = "a test that is skipped says so")]
fn the_checker_of_versions_knows_right_from_wrong() {
    if is_emulated() {
        println!("SKIPPED: the Python of this machine does not load a library for another one");
        return;
    }
    let new_enough = Command::new("python3")
        .args(["-c", "import sys; sys.exit(sys.version_info < (3, 9))"])
        .status()
        .is_ok_and(|status| status.success());
    // An example of the crate `ring`: built with the workspace's tests.
    let reader = library().ancestors().find_map(|at| Some(at.join("examples/dump")).filter(|at| at.exists()));
    let Some(reader) = reader.filter(|_| new_enough) else {
        println!("SKIPPED: no python3 of 3.9 or newer here, or no reader of rings");
        return;
    };
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../zoo/versions.py");
    let done = Command::new("python3")
        .arg(script)
        .args(["--self-test", "--plugin"])
        .arg(library())
        .arg("--reader")
        .arg(reader)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(
        done.status.success() && said.contains("the judge is right"),
        "{said}\n{}",
        String::from_utf8_lossy(&done.stderr)
    );
}
