//! A second profiler plugin. NCCL loads one; this one calls another (`RINGLEADER_PLUGIN_NEXT`) with all that NCCL would
//! have told it alone.
//!
//! An event has one handle in NCCL. Where the second plugin gives one, NCCL keeps that, because only the second plugin
//! can tell what it points to; [`Handles`] leads from it to ours. So the second plugin gets its own handles back as
//! parents, untouched, and ours never: they are numbers from 2^60 on, and no address is that large.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::unix::ffi::OsStringExt as _;
use std::ptr::null_mut;
use std::sync::Once;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU64, AtomicUsize};

use crate::core::{Logger, events, log};

/// The second plugin: a path, or a name such as `inspector` for `libnccl-profiler-inspector.so`.
const NEXT: &str = "RINGLEADER_PLUGIN_NEXT";
/// Interfaces, numbered from 1.
const VERSIONS: usize = 8;
/// The first interface whose descriptors are the beginnings of all later ones, with the same `init`: a plugin of
/// interface 5 can be told what NCCL says in interface 7.
const FIRST_ALIKE: u8 = 5;

/// Events that belong to an operation: for these NCCL reports the operation and its call, too.
const WITHIN: u64 = events::PROXY_OP | events::PROXY_STEP | events::KERNEL_CH | events::NET_PLUGIN;
/// Events of copy engines: the collective, its synchronisation, its batches.
const CE: u64 = events::CE_COLL | 1 << 13 | 1 << 14;
/// Events that interface 5 has.
const OF_5: u64 = (1 << 12) - 1;

/// For each type of event the types for which NCCL reports it (`src/plugin/profiler.cc`, 2.30).
const REPORTED_FOR: [(u64, u64); 9] = [
    (
        events::GROUP_API,
        events::P2P_API
            | events::COLL_API
            | events::KERNEL_LAUNCH
            | events::GROUP
            | events::COLL
            | events::P2P
            | WITHIN
            | CE,
    ),
    (events::COLL_API, events::COLL | WITHIN | CE),
    (events::P2P_API, events::P2P | WITHIN),
    (events::GROUP, events::COLL | events::P2P | WITHIN),
    (events::COLL, WITHIN),
    (events::P2P, WITHIN),
    (events::PROXY_OP, events::PROXY_STEP | events::NET_PLUGIN),
    (events::PROXY_STEP, events::NET_PLUGIN),
    (events::CE_COLL, CE),
];

/// A table of any version: its functions have the same places in all.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
struct ProfilerTable {
    name: *const c_char,
    init: *const c_void,
    start_event: Option<unsafe extern "C" fn(*mut c_void, *mut *mut c_void, *mut c_void) -> c_int>,
    stop_event: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
    record_event_state: Option<unsafe extern "C" fn(*mut c_void, c_int, *mut c_void) -> c_int>,
    finalize: Option<unsafe extern "C" fn(*mut c_void) -> c_int>,
}

/// The second plugin, as one version of NCCL's interface calls it.
#[derive(Debug)]
pub(crate) struct Next {
    table: ProfilerTable,
    version: u8,
    /// What it requested; its `init` gets the address and may keep it.
    requested: AtomicI32,
    /// The types of events that it is told.
    told: AtomicU64,
    handles: Handles,
}

/// A communicator that the second plugin has begun.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Begun {
    pub(crate) context: *mut c_void,
    /// The events that it requests.
    pub(crate) mask: c_int,
}

/// Null where no second plugin is named or fits. Never freed: a callback in another thread may be using it.
static LOADED: [AtomicPtr<Next>; VERSIONS] = [const { AtomicPtr::new(null_mut()) }; VERSIONS];
static LOADING: [Once; VERSIONS] = [const { Once::new() }; VERSIONS];

/// The second plugin for a version of the interface.
#[inline]
pub(crate) fn of(version: u8) -> Option<&'static Next> {
    let loaded = LOADED.get(usize::from(version))?.load(Acquire);
    // SAFETY: null, or leaked by `begin`.
    unsafe { loaded.as_ref() }
}

/// Begins a communicator of the second plugin, which is loaded for the first. `call` calls its `init`, given as an
/// address, with the places for context and mask.
///
/// # Safety
/// The logger is NCCL's; `own` is our table of this version.
pub(crate) unsafe fn begin(
    version: u8,
    own: *const c_void,
    logger: Option<Logger>,
    call: impl FnOnce(*const c_void, *mut *mut c_void, *mut c_int) -> c_int,
) -> Option<Begun> {
    LOADING.get(usize::from(version))?.call_once(|| {
        let Some(name) = std::env::var_os(NEXT).filter(|name| !name.is_empty()) else { return };
        // SAFETY: guaranteed by the caller.
        let text = match unsafe { load(name.clone().into_vec(), version, own) } {
            Ok(next) => {
                let text = format!("second plugin {} (v{})", name.display(), next.version);
                if let Some(place) = LOADED.get(usize::from(version)) {
                    place.store(Box::leak(Box::new(next)), Release);
                }
                text
            }
            Err(why) => format!("second plugin {}: {why}", name.display()),
        };
        // SAFETY: guaranteed by the caller.
        unsafe { log(logger, &text) };
    });
    let next = of(version)?;
    let mut context = null_mut();
    let result = call(next.table.init, &raw mut context, next.requested.as_ptr());
    if result != 0 || context.is_null() {
        // SAFETY: guaranteed by the caller.
        unsafe { log(logger, &format!("second plugin: init returned {result}; it is told nothing here")) };
        return None;
    }
    let mask = next.requested.load(Relaxed);
    next.told.store(told(mask as u32 as u64, next.version), Relaxed);
    Some(Begun { context, mask })
}

/// The types of events that NCCL reports to a plugin that requests `mask`, as far as its interface has them.
fn told(mask: u64, version: u8) -> u64 {
    let parents =
        REPORTED_FOR.iter().filter(|(_, children)| mask & children != 0).fold(0, |all, (kind, _)| all | kind);
    (mask | parents) & if version == FIRST_ALIKE { OF_5 } else { u64::MAX }
}

/// # Safety
/// `own` is our table of this version.
unsafe fn load(name: Vec<u8>, version: u8, own: *const c_void) -> Result<Next, String> {
    let long = [b"libnccl-profiler-".as_slice(), &name, b".so"].concat();
    let names = if name.contains(&b'/') { vec![name] } else { vec![name, long] };
    let mut library = null_mut();
    for name in names {
        let name = CString::new(name).map_err(|_| "its name holds a zero byte".to_owned())?;
        // SAFETY: a string; the user asked for this library to run in the process.
        library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if !library.is_null() {
            break;
        }
    }
    if library.is_null() {
        // SAFETY: the loader's own string, valid until the next call in this thread, or null.
        let why = unsafe { libc::dlerror() };
        if why.is_null() {
            return Err("it cannot be loaded".to_owned());
        }
        // SAFETY: as above, and not null.
        return Err(unsafe { CStr::from_ptr(why) }.to_string_lossy().into_owned());
    }
    let oldest = if version > FIRST_ALIKE { FIRST_ALIKE } else { version };
    for version in (oldest..=version).rev() {
        let Ok(symbol) = CString::new(format!("ncclProfiler_v{version}")) else { continue };
        // SAFETY: an open library, which stays open, and a string.
        let found = unsafe { libc::dlsym(library, symbol.as_ptr()) };
        if found.is_null() {
            continue;
        }
        if found.cast_const() == own {
            return Err("this is the first plugin itself".to_owned());
        }
        // SAFETY: the symbol is such a table by NCCL's interface.
        let table = unsafe { found.cast::<ProfilerTable>().read() };
        let is_whole = !table.init.is_null()
            && table.start_event.is_some()
            && table.stop_event.is_some()
            && table.record_event_state.is_some()
            && table.finalize.is_some();
        if !is_whole {
            return Err(format!("its table of interface {version} lacks a function"));
        }
        return Ok(Next {
            table,
            version,
            requested: AtomicI32::new(0),
            told: AtomicU64::new(0),
            handles: Handles::new(),
        });
    }
    Err(format!("it has no interface {version}, which this NCCL asks for"))
}

impl Next {
    /// Whether it is told of events of this type in this communicator.
    #[inline]
    pub(crate) fn is_told(&self, context: *mut c_void, kind: u64) -> bool {
        self.told.load(Relaxed) & kind != 0 && is_theirs(context)
    }

    /// Its handle for an event, or null.
    ///
    /// # Safety
    /// The context is its own; the descriptor is one of its version, or of a later one that begins alike.
    #[inline]
    pub(crate) unsafe fn start(&self, context: *mut c_void, descriptor: *mut c_void) -> *mut c_void {
        let mut handle = null_mut();
        let Some(start) = self.table.start_event else { return handle };
        // SAFETY: guaranteed by the caller.
        let result = unsafe { start(context, &raw mut handle, descriptor) };
        if result == 0 && is_theirs(handle) { handle } else { null_mut() }
    }

    /// Stops an event. Nothing is known of its handle afterwards but that it may still be a parent.
    ///
    /// # Safety
    /// The handle is one that NCCL got.
    #[inline]
    pub(crate) unsafe fn stop(&self, handle: *mut c_void) {
        if is_theirs(handle)
            && let Some(stop) = self.table.stop_event
        {
            self.handles.stopped(handle);
            // SAFETY: guaranteed by the caller.
            unsafe { stop(handle) };
        }
    }

    /// Changes an event's state.
    ///
    /// # Safety
    /// The handle is one that NCCL got, the arguments are NCCL's.
    #[inline]
    pub(crate) unsafe fn record(&self, handle: *mut c_void, state: c_int, args: *mut c_void) {
        if is_theirs(handle)
            && let Some(record) = self.table.record_event_state
        {
            // SAFETY: guaranteed by the caller.
            unsafe { record(handle, state, args) };
        }
    }

    /// Ends a communicator.
    ///
    /// # Safety
    /// The context is one that NCCL got.
    pub(crate) unsafe fn end(&self, context: *mut c_void) {
        if is_theirs(context)
            && let Some(finalize) = self.table.finalize
        {
            self.handles.stopped(context);
            // SAFETY: guaranteed by the caller.
            unsafe { finalize(context) };
        }
    }

    /// Our handle for one that NCCL got.
    #[inline]
    pub(crate) fn own(&self, handle: *mut c_void) -> *mut c_void {
        if is_theirs(handle) { self.handles.get(handle) } else { handle }
    }

    /// Remembers our handle for the second plugin's; false if there is no room.
    #[inline]
    pub(crate) fn join(&self, theirs: *mut c_void, own: *mut c_void) -> bool {
        self.handles.put(theirs, own)
    }
}

/// Whether a handle is an address, and not one of our numbers.
#[inline]
pub(crate) fn is_theirs(handle: *mut c_void) -> bool {
    !handle.is_null() && handle.addr() >> 60 == 0
}

/// Handles of the second plugin and ours for the same events: a hash table without locks and of fixed size, whose
/// entries are replaced once their event has stopped and another needs the place.
#[derive(Debug)]
struct Handles {
    slots: Vec<Slot>,
}

#[derive(Debug)]
struct Slot {
    /// The address and, in the lowest bit, whether the event has stopped; 0 is an empty slot.
    key: AtomicUsize,
    own: AtomicU64,
}

/// Entries: 1 MiB. A plugin reuses its objects, so that far fewer addresses occur.
const SLOTS: usize = 1 << 16;
/// Places for one address.
const PROBES: usize = 32;

impl Handles {
    fn new() -> Self {
        Self {
            slots: (0..SLOTS).map(|_| Slot { key: AtomicUsize::new(0), own: AtomicU64::new(0) }).collect(),
        }
    }

    /// The places for an address, from the first. Fibonacci hashing: the high bits are the mixed ones.
    #[inline]
    fn places(&self, address: usize) -> impl Iterator<Item = &Slot> {
        let first = ((address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
        self.slots.iter().cycle().skip(first % SLOTS).take(PROBES)
    }

    /// The slot of an address. A slot is never emptied, so an empty one ends the search.
    #[inline]
    fn find(&self, address: usize) -> Option<&Slot> {
        self.places(address)
            .map(|slot| (slot, slot.key.load(Acquire)))
            .take_while(|(_, key)| *key != 0)
            .find(|(_, key)| key >> 1 == address)
            .map(|(slot, _)| slot)
    }

    #[inline]
    fn get(&self, handle: *mut c_void) -> *mut c_void {
        let own = self.find(handle.addr()).map_or(0, |slot| slot.own.load(Relaxed));
        std::ptr::without_provenance_mut(own as usize)
    }

    #[inline]
    fn stopped(&self, handle: *mut c_void) {
        if let Some(slot) = self.find(handle.addr()) {
            slot.key.fetch_or(1, Relaxed);
        }
    }

    /// Called by one thread at a time for one address: the second plugin has just given it out.
    #[inline]
    fn put(&self, handle: *mut c_void, own: *mut c_void) -> bool {
        let (address, own) = (handle.addr(), own.addr() as u64);
        if let Some(slot) = self.find(address) {
            slot.own.store(own, Relaxed);
            slot.key.store(address << 1, Release);
            return true;
        }
        let is_free: [fn(usize) -> bool; 2] = [|key| key == 0, |key| key & 1 == 1];
        for is_free in is_free {
            for slot in self.places(address) {
                let key = slot.key.load(Acquire);
                if is_free(key) && slot.key.compare_exchange(key, address << 1, AcqRel, Relaxed).is_ok() {
                    slot.own.store(own, Release);
                    return true;
                }
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pointer(address: usize) -> *mut c_void {
        std::ptr::without_provenance_mut(address)
    }

    #[test]
    fn handles_are_found_until_their_place_is_needed() {
        let handles = Handles::new();
        let address = |n: usize| pointer(0x7f00_0000_0000 + 64 * n);
        for n in 0..SLOTS / 2 {
            assert!(handles.put(address(n), pointer(n << 40 | 1 << 60)));
        }
        assert!((0..SLOTS / 2).all(|n| handles.get(address(n)) == pointer(n << 40 | 1 << 60)));
        assert!(handles.get(address(SLOTS)).is_null());
        // An address that is given out again leads to the new event.
        handles.stopped(address(7));
        assert_eq!(
            handles.get(address(7)),
            pointer(7 << 40 | 1 << 60),
            "a stopped event may still be a parent"
        );
        assert!(handles.put(address(7), pointer(5)));
        assert_eq!(handles.get(address(7)), pointer(5));
    }

    #[test]
    fn stopped_events_make_room() {
        let handles = Handles::new();
        let address = |n: usize| pointer(4096 + 8 * n);
        for n in 0..20 * SLOTS {
            assert!(handles.put(address(n), pointer(n + 1)), "{n}");
            assert_eq!(handles.get(address(n)), pointer(n + 1));
            handles.stopped(address(n));
        }
        // Events that never stop fill it, and that is said.
        let open = (20 * SLOTS..23 * SLOTS).filter(|n| handles.put(address(*n), pointer(1))).count();
        assert!(open <= SLOTS && open > SLOTS / 2, "{open}");
    }

    #[test]
    fn events_are_those_of_ncclprofiler_alone() {
        assert_eq!(told(0, 6), 0);
        assert_eq!(told(events::GROUP_API, 6), events::GROUP_API);
        let kernels = told(events::KERNEL_CH, 6);
        assert_eq!(kernels & (events::PROXY_OP | events::PROXY_STEP | events::CE_COLL), 0);
        assert_eq!(kernels & events::COLL, events::COLL);
        assert_eq!(kernels & events::GROUP_API, events::GROUP_API);
        assert_eq!(told(events::CE_COLL, 5) & events::CE_COLL, 0, "interface 5 does not have it");
        assert!(
            is_theirs(pointer(0x7fff_ffff_f000)) && !is_theirs(pointer(0)) && !is_theirs(pointer(5 << 60))
        );
    }
}
