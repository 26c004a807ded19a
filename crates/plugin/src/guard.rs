//! The boundary between NCCL and the plugin: the one `Core` of the process, and the handling of faults in it.

use std::ffi::c_int;
#[cfg(target_env = "gnu")]
use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use crate::core::Core;

/// NCCL's `ncclSuccess`: the only result it ever gets.
pub(crate) const SUCCESS: c_int = 0;

/// The core; null before it is made, after a fault, and in a forked child.
///
/// It is never freed: a callback in another thread may be using it.
static CORE: AtomicPtr<Core> = AtomicPtr::new(std::ptr::null_mut());
/// Set by a fault: the plugin stays off for the rest of the process.
static IS_OFF: AtomicBool = AtomicBool::new(false);
/// Lock for the thread that makes the core; rare, and never held across an event.
static MAKING: AtomicU32 = AtomicU32::new(0);

/// The open file that holds the ring's lock (-1 = none), and its device and inode.
static LOCK: AtomicI32 = AtomicI32::new(-1);
static LOCKED: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

fn core() -> Option<&'static Core> {
    let core = CORE.load(Ordering::Acquire);
    // SAFETY: it is null or came from `Box::leak` in `make`, whose box is never freed; `Core` is only used by shared
    // reference.
    unsafe { core.as_ref() }
}

/// Runs one callback. A panic is counted and turns the plugin off. NCCL always gets success.
#[inline]
pub fn guarded(callback: impl FnOnce(&'static Core)) -> c_int {
    if let Some(core) = core()
        && catch_unwind(AssertUnwindSafe(|| callback(core))).is_err()
    {
        core.fault();
        IS_OFF.store(true, Ordering::Relaxed);
        CORE.store(std::ptr::null_mut(), Ordering::Release);
    }
    SUCCESS
}

/// As `guarded`, for `init`: makes the core if this is the first communicator of the process. `callback` gets the
/// reason why there is none, once.
pub(crate) fn guarded_init(callback: impl FnOnce(Result<&'static Core, String>)) -> c_int {
    let outcome = catch_unwind(AssertUnwindSafe(|| callback(core_or_new())));
    if outcome.is_err() {
        if let Some(core) = core() {
            core.fault();
        }
        IS_OFF.store(true, Ordering::Relaxed);
        CORE.store(std::ptr::null_mut(), Ordering::Release);
    }
    SUCCESS
}

fn core_or_new() -> Result<&'static Core, String> {
    if IS_OFF.load(Ordering::Relaxed) {
        return Err(String::new());
    }
    // Several threads may create communicators at once; the first makes the core, the others wait for it: `init` may
    // wait.
    while MAKING.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
        std::thread::yield_now();
    }
    let made = core().map_or_else(make, Ok);
    MAKING.store(0, Ordering::Release);
    made
}

fn make() -> Result<&'static Core, String> {
    let core = match catch_unwind(Core::new) {
        Ok(made) => made?,
        Err(_) => return Err("a fault".to_owned()),
    };
    // A child must not write into its parent's ring.
    // SAFETY: `off_in_child` is async-signal-safe: it stores to atomics, and calls fstat and close. The C library
    // removes the handler when the library is closed.
    let _registered = unsafe { libc::pthread_atfork(None, None, Some(off_in_child)) };
    at_exit();
    let core = Box::leak(Box::new(core));
    let lock = core.lock().as_raw_fd();
    if let Some(which) = which(lock) {
        LOCKED.iter().zip(which).for_each(|(place, number)| place.store(number, Ordering::Relaxed));
        LOCK.store(lock, Ordering::Relaxed);
    }
    CORE.store(core, Ordering::Release);
    Ok(core)
}

/// A launcher that collects its children at once leaves nobody else the code with which a rank ended.
#[cfg(target_env = "gnu")]
fn at_exit() {
    unsafe extern "C" {
        fn on_exit(function: extern "C" fn(c_int, *mut c_void), argument: *mut c_void) -> c_int;
    }
    // SAFETY: as the GNU C library declares it. The library is never unloaded (build.rs), so the function is there when the
    // process ends.
    let _registered = unsafe { on_exit(exits, std::ptr::null_mut()) };
}

#[cfg(not(target_env = "gnu"))]
fn at_exit() {}

/// In a forked child there is no core.
#[cfg(target_env = "gnu")]
extern "C" fn exits(status: c_int, _: *mut c_void) {
    guarded(|core| core.exits(status as u8));
}

extern "C" fn off_in_child() {
    CORE.store(std::ptr::null_mut(), Ordering::Relaxed);
    MAKING.store(0, Ordering::Relaxed);
    // The lock shows that the parent is alive, so a child that outlives it must not hold it. The program may have
    // closed the file and opened another one with the same descriptor.
    let lock = LOCK.swap(-1, Ordering::Relaxed);
    let locked = LOCKED.each_ref().map(|place| place.load(Ordering::Relaxed));
    if lock >= 0 && which(lock) == Some(locked) {
        // SAFETY: the file is ours, and nobody uses it in the child: the parent's core is never called or dropped
        // here.
        unsafe { libc::close(lock) };
    }
}

/// Device and inode of an open file.
fn which(file: c_int) -> Option<[u64; 2]> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat fills the buffer if it succeeds, and reads nothing from it.
    let is_filled = unsafe { libc::fstat(file, stat.as_mut_ptr()) } == 0;
    // SAFETY: filled.
    is_filled.then(|| unsafe { stat.assume_init() }).map(|stat| [stat.st_dev, stat.st_ino])
}

/// For tests: resets the state to that of a new process.
pub fn forget() {
    CORE.store(std::ptr::null_mut(), Ordering::Release);
    IS_OFF.store(false, Ordering::Relaxed);
}
