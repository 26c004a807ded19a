//! A CUDA driver and NCCL in the host's memory, for tests without a GPU: `libfake_gpu.so`.
//!
//! Memory of the GPU is memory of the process, streams do their work at once, and kernels are what `reference` computes.
//! Collectives go through mailboxes between threads. `FAKE_GPUS` says how many GPUs there are (4), and `FAKE_FAULT` plants a
//! fault that the checks did not plant themselves: `recv:1` flips a bit in what rank 1 receives, `product:0` in what GPU 0
//! computes, `channel:5` in what channel 5 of a collective brings to rank 1.
#![allow(unsafe_code, reason = "it takes the place of C libraries")]
#![allow(missing_docs, reason = "the functions are those of cuda.h and nccl.h")]
#![allow(
    clippy::missing_safety_doc,
    clippy::undocumented_unsafe_blocks,
    reason = "addresses are the caller's, as in C"
)]
#![allow(clippy::multiple_unsafe_ops_per_block, clippy::too_many_arguments, reason = "as in C")]
#![allow(clippy::not_unsafe_ptr_arg_deref, reason = "as in C")]

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{CStr, c_char, c_void};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::time::Instant;

use ringleader_probe::kernels::Pass;
use ringleader_probe::reference::{self, BLOCK, Tensor, Unit};
use ringleader_probe::sys::RedOp;
use ringleader_probe::values::{ValueClass, ValuePlan};

type Handle = *mut c_void;

const MULTIPROCESSORS: i32 = 2;
const CHANNELS: i32 = 24;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
    static GROUP: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
    static CAPTURE: RefCell<Option<Vec<Call>>> = const { RefCell::new(None) };
}

fn n_gpus() -> i32 {
    std::env::var("FAKE_GPUS").ok().and_then(|n| n.parse().ok()).unwrap_or(4)
}

fn fault(kind: &str) -> bool {
    std::env::var("FAKE_FAULT").is_ok_and(|fault| fault == kind)
}

unsafe fn put<T>(to: *mut T, value: T) -> i32 {
    unsafe { to.write(value) };
    0
}

unsafe fn text(to: *mut c_char, length: i32, text: &str) -> i32 {
    for (n, byte) in text.bytes().chain([0]).take(length as usize).enumerate() {
        unsafe { to.add(n).write(byte as c_char) };
    }
    0
}

fn boxed<T>(value: T) -> Handle {
    Box::into_raw(Box::new(value)).cast()
}

/// Functions that do nothing and succeed.
macro_rules! nothing {
    ($($name:ident($($type:ty),*);)*) => {
        $(#[unsafe(no_mangle)] #[allow(non_snake_case, reason = "as in C")]
        pub extern "C" fn $name($(_: $type),*) -> i32 { 0 })*
    };
}

nothing! {
    cuInit(u32);
    cuDevicePrimaryCtxRelease_v2(i32);
    cuCtxSynchronize();
    cuStreamDestroy_v2(Handle);
    cuStreamSynchronize(Handle);
    cuStreamQuery(Handle);
    cuEventSynchronize(Handle);
    cuModuleUnload(Handle);
    cuCtxEnablePeerAccess(Handle, u32);
    cuGraphDestroy(Handle);
    ncclRedOpDestroy(i32, Handle);
    ncclCommAbort(Handle);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDriverGetVersion(version: *mut i32) -> i32 {
    unsafe { put(version, 13_000) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetCount(count: *mut i32) -> i32 {
    unsafe { put(count, n_gpus()) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGet(device: *mut i32, ordinal: i32) -> i32 {
    if ordinal < n_gpus() { unsafe { put(device, ordinal) } } else { 101 }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetName(name: *mut c_char, length: i32, _: i32) -> i32 {
    unsafe { text(name, length, "Fake GPU") }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetPCIBusId(name: *mut c_char, length: i32, device: i32) -> i32 {
    unsafe { text(name, length, &format!("0000:0{device}:00.0")) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetUuid_v2(id: *mut [u8; 16], device: i32) -> i32 {
    unsafe { put(id, [device as u8; 16]) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceGetAttribute(value: *mut i32, which: i32, _: i32) -> i32 {
    unsafe {
        put(
            value,
            match which {
                16 => MULTIPROCESSORS,
                75 => 9,
                _ => 0,
            },
        )
    }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDevicePrimaryCtxRetain(context: *mut Handle, device: i32) -> i32 {
    unsafe { put(context, std::ptr::without_provenance_mut(device as usize + 1)) }
}
#[unsafe(no_mangle)]
pub extern "C" fn cuCtxSetCurrent(context: Handle) -> i32 {
    CURRENT.set(context.addr().saturating_sub(1));
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> i32 {
    unsafe { put(free, 64 << 20) + put(total, 80 << 20) }
}

fn layout(size: usize) -> std::alloc::Layout {
    std::alloc::Layout::from_size_align(size + 16, 4096).expect("a size that memory can have")
}
static SIZES: Mutex<BTreeMap<u64, usize>> = Mutex::new(BTreeMap::new());

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAlloc_v2(address: *mut u64, size: usize) -> i32 {
    let memory = unsafe { std::alloc::alloc_zeroed(layout(size)) };
    SIZES.lock().expect("nobody panics with it").insert(memory as u64, size);
    unsafe { put(address, memory as u64) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFree_v2(address: u64) -> i32 {
    if let Some(size) = SIZES.lock().expect("nobody panics with it").remove(&address) {
        unsafe { std::alloc::dealloc(address as *mut u8, layout(size)) };
    }
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemAllocHost_v2(address: *mut Handle, size: usize) -> i32 {
    unsafe { cuMemAlloc_v2(address.cast(), size) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemFreeHost(address: Handle) -> i32 {
    unsafe { cuMemFree_v2(address as u64) }
}

unsafe fn copy(to: u64, from: u64, size: usize) -> i32 {
    unsafe { std::ptr::copy(from as *const u8, to as *mut u8, size) };
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoD_v2(to: u64, from: Handle, size: usize) -> i32 {
    unsafe { copy(to, from as u64, size) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoH_v2(to: Handle, from: u64, size: usize) -> i32 {
    unsafe { copy(to as u64, from, size) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyAsync(to: u64, from: u64, size: usize, _: Handle) -> i32 {
    unsafe { copy(to, from, size) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: u64, from: Handle, size: usize, _: Handle) -> i32 {
    unsafe { copy(to, from as u64, size) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: Handle, from: u64, size: usize, _: Handle) -> i32 {
    unsafe { copy(to as u64, from, size) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuMemsetD8Async(to: u64, byte: u8, size: usize, _: Handle) -> i32 {
    unsafe { std::ptr::write_bytes(to as *mut u8, byte, size) };
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamCreate(stream: *mut Handle, _: u32) -> i32 {
    unsafe { put(stream, boxed(0u8)) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventCreate(event: *mut Handle, _: u32) -> i32 {
    unsafe { put(event, boxed(Mutex::new(Instant::now()))) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventDestroy_v2(event: Handle) -> i32 {
    drop(unsafe { Box::from_raw(event.cast::<Mutex<Instant>>()) });
    0
}
unsafe fn moment<'a>(event: Handle) -> &'a Mutex<Instant> {
    unsafe { &*event.cast::<Mutex<Instant>>() }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventRecord(event: Handle, _: Handle) -> i32 {
    *unsafe { moment(event) }.lock().expect("nobody panics with it") = Instant::now();
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuEventElapsedTime(ms: *mut f32, from: Handle, to: Handle) -> i32 {
    let [from, to] = [from, to].map(|event| *unsafe { moment(event) }.lock().expect("nobody panics with it"));
    unsafe { put(ms, (to - from).as_secs_f32() * 1e3) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    _: Handle,
    _: u32,
    _: Handle,
    _: Handle,
) -> i32 {
    unsafe { put(module, boxed(0u8)) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuModuleGetFunction(function: *mut Handle, _: Handle, name: *const c_char) -> i32 {
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned();
    unsafe { put(function, boxed(name)) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuDeviceCanAccessPeer(can: *mut i32, _: i32, _: i32) -> i32 {
    unsafe { put(can, 1) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGetErrorName(_: i32, name: *mut *const c_char) -> i32 {
    unsafe { put(name, c"FAKE_ERROR".as_ptr()) }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuLaunchKernel(
    function: Handle,
    blocks: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: u32,
    _: Handle,
    params: *mut *mut u64,
    _: Handle,
) -> i32 {
    let name = unsafe { &*function.cast::<String>() };
    let p = |n: usize| unsafe { **params.add(n) };
    match name.as_str() {
        "rl_pattern" => unsafe { pattern(&[p(0), p(1), p(2), p(3), p(4), p(5), p(6), p(7)]) },
        "rl_values" => unsafe { values(&p) },
        "rl_digest" => {
            let words = unsafe { std::slice::from_raw_parts(p(0) as *const u64, p(1) as usize) };
            unsafe { *(p(2) as *mut u64) = reference::digest(words.iter().copied()) };
        }
        "rl_units" => {
            let kind = Unit::ALL[p(2) as usize];
            // Its special functions are another's, and as good.
            let real = if kind == Unit::Special { Unit::Single } else { kind };
            for block in 0..blocks {
                let words =
                    reference::units(real, p(3), p(1) as u32, block).expect("all but special functions");
                for (n, word) in words.into_iter().enumerate() {
                    unsafe { *(p(0) as *mut u64).add((block * BLOCK) as usize + n) = word };
                }
            }
        }
        "rl_tensor" => {
            for warp in 0..blocks * BLOCK / 32 {
                let words = reference::tensor(Tensor::ALL[p(2) as usize], p(3), p(1) as u32, warp);
                for (n, word) in words.concat().into_iter().enumerate() {
                    unsafe { *(p(0) as *mut u64).add(warp as usize * 64 + n) = word };
                }
            }
        }
        _ => return 500,
    }
    if matches!(name.as_str(), "rl_units" | "rl_tensor") && fault(&format!("product:{}", CURRENT.get())) {
        unsafe { *(p(0) as *mut u64) ^= 1 << 20 };
    }
    0
}

unsafe fn report(record: u64, index: u64, want: u64, got: u64) {
    let record = record as *mut u64;
    unsafe {
        let n = *record;
        *record += 1;
        *record.add(1) |= want ^ got;
        *record.add(2) = index.min(*record.add(2));
        if n < 32 {
            let slot = record.add(8 + 4 * n as usize);
            slot.write(index);
            slot.add(1).write(want);
            slot.add(2).write(got);
            slot.add(3).write(7);
        }
    }
}

unsafe fn pattern([address, units, kind, seed, invert, pass, record, base]: &[u64; 8]) {
    for unit in 0..*units {
        let want = reference::pattern(*kind, *seed, *invert, base + unit);
        for (n, want) in want.into_iter().enumerate() {
            let at = unsafe { (*address as *mut u64).add(2 * unit as usize + n) };
            let got = unsafe { *at };
            if *pass != Pass::Write as u64 && got != want {
                unsafe { report(*record, 2 * (base + unit) + n as u64, want, got) };
            }
            if *pass != Pass::Read as u64 {
                unsafe { *at = if *pass == Pass::Write as u64 { want } else { !want } };
            }
        }
    }
}

unsafe fn values(p: &dyn Fn(usize) -> u64) {
    let class =
        [ValueClass::Signed, ValueClass::Unsigned, ValueClass::Single, ValueClass::Double, ValueClass::Table]
            [p(3) as usize];
    let op = [None, Some(RedOp::Prod), Some(RedOp::Max), Some(RedOp::Min), None, Some(RedOp::PreMulSum)]
        [p(4) as usize];
    let length = if p(13) == 0 { 0 } else { 2 * p(14) as usize + 1 };
    let table =
        if length == 0 { &[] } else { unsafe { std::slice::from_raw_parts(p(13) as *const u16, length) } };
    let plan = ValuePlan {
        shift: p(2) as u32,
        class,
        op,
        n_ranks: p(7),
        seed: p(8),
        span: p(9),
        low: p(10).wrapping_neg(),
        scale: p(12),
        table: table.to_vec(),
        middle: p(14),
    };
    let size = 1usize << plan.shift;
    for n in 0..p(1) {
        let want = reference::value(&plan, op, (p(5), p(6)), p(11), p(15) + n).to_le_bytes();
        let at = unsafe { std::slice::from_raw_parts_mut((p(0) as *mut u8).add(n as usize * size), size) };
        if p(16) == 0 {
            at.copy_from_slice(&want[..size]);
        } else if *at != want[..size] {
            let mut got = [0; 8];
            got[..size].copy_from_slice(at);
            unsafe { report(p(17), n, u64::from_le_bytes(want), u64::from_le_bytes(got)) };
        }
    }
}

// --- graphs: the calls of NCCL that were captured

#[unsafe(no_mangle)]
pub extern "C" fn cuStreamBeginCapture_v2(_: Handle, _: i32) -> i32 {
    CAPTURE.set(Some(Vec::new()));
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuStreamEndCapture(_: Handle, graph: *mut Handle) -> i32 {
    unsafe { put(graph, boxed(CAPTURE.take().unwrap_or_default())) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphInstantiateWithFlags(exec: *mut Handle, graph: Handle, _: u64) -> i32 {
    unsafe { put(exec, graph) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphLaunch(exec: Handle, _: Handle) -> i32 {
    for call in unsafe { &*exec.cast::<Vec<Call>>() } {
        unsafe { perform(std::slice::from_ref(call)) };
    }
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuGraphExecDestroy(exec: Handle) -> i32 {
    drop(unsafe { Box::from_raw(exec.cast::<Vec<Call>>()) });
    0
}

// --- NCCL

/// Messages by communicator, sender and receiver.
type Mail = BTreeMap<(Vec<u8>, usize, usize), VecDeque<Vec<u8>>>;
static MAIL: LazyLock<(Mutex<Mail>, Condvar)> = LazyLock::new(Default::default);

#[derive(Clone)]
struct Comm {
    id: Vec<u8>,
    rank: usize,
    n: usize,
    n_channels: i32,
}

#[derive(Clone)]
enum What {
    Send(usize),
    Recv(usize),
    /// Number of the function: 0 all_reduce, 1 broadcast, 2 reduce, 3 all_gather, 4 reduce_scatter, 5 alltoall.
    All(u8, i32, usize),
}

#[derive(Clone)]
struct Call {
    comm: Arc<Comm>,
    what: What,
    from: u64,
    to: u64,
    n: usize,
    dtype: i32,
}

impl Comm {
    fn send(&self, to: usize, bytes: Vec<u8>) {
        let (mail, arrived) = &*MAIL;
        let key = (self.id.clone(), self.rank, to);
        mail.lock().expect("nobody panics with it").entry(key).or_default().push_back(bytes);
        arrived.notify_all();
    }

    fn recv(&self, from: usize) -> Vec<u8> {
        let (mail, arrived) = &*MAIL;
        let key = (self.id.clone(), from, self.rank);
        let mut mail = mail.lock().expect("nobody panics with it");
        loop {
            if let Some(bytes) = mail.get_mut(&key).and_then(VecDeque::pop_front) {
                return bytes;
            }
            mail = arrived.wait(mail).expect("nobody panics with it");
        }
    }
}

fn size_of(dtype: i32) -> usize {
    [1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1][dtype as usize]
}

/// A code as a number, and back.
fn number(dtype: i32, bytes: &[u8]) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let word = u64::from_le_bytes(word);
    let small = |exponent_bits: u32, mantissa_bits: u32| {
        let sign = if word >> (exponent_bits + mantissa_bits) & 1 == 1 { -1.0 } else { 1.0 };
        let exponent = (word >> mantissa_bits & ((1 << exponent_bits) - 1)) as i32;
        let mantissa = (word & ((1 << mantissa_bits) - 1)) as f64 / 2f64.powi(mantissa_bits as i32);
        let bias = (1 << (exponent_bits - 1)) - 1;
        sign * if exponent == 0 {
            mantissa * 2f64.powi(1 - bias)
        } else {
            (1.0 + mantissa) * 2f64.powi(exponent - bias)
        }
    };
    match dtype {
        6 => small(5, 10),
        7 => f64::from(f32::from_bits(word as u32)),
        8 => f64::from_bits(word),
        9 => small(8, 7),
        10 => small(4, 3),
        _ => small(5, 2),
    }
}

fn code(dtype: i32, value: f64) -> Vec<u8> {
    match dtype {
        7 => (value as f32).to_le_bytes().to_vec(),
        8 => value.to_le_bytes().to_vec(),
        _ => {
            // Exact by construction: the code whose number it is.
            static CODES: LazyLock<Mutex<BTreeMap<i32, BTreeMap<u64, u64>>>> = LazyLock::new(Mutex::default);
            let size = size_of(dtype);
            let mut codes = CODES.lock().expect("nobody panics with it");
            let of = codes.entry(dtype).or_insert_with(|| {
                let all = 0..1u64 << (8 * size);
                all.map(|code| (number(dtype, &code.to_le_bytes()[..size]).to_bits(), code)).collect()
            });
            of.get(&value.to_bits()).unwrap_or(&0).to_le_bytes()[..size].to_vec()
        }
    }
}

/// Elements of all ranks, combined.
fn combine(dtype: i32, op: i32, all: &[Vec<u8>]) -> Vec<u8> {
    let size = size_of(dtype);
    let n = all.len();
    let mut out = Vec::new();
    for at in (0..all[0].len()).step_by(size) {
        let elements = all.iter().map(|one| &one[at..at + size]);
        if dtype < 6 {
            let is_signed = dtype % 2 == 0;
            let integers = elements.map(|bytes| {
                let mut word = [if is_signed && bytes[size - 1] >= 128 { 255 } else { 0 }; 8];
                word[..size].copy_from_slice(bytes);
                i64::from_le_bytes(word)
            });
            let compare = |a: &i64, b: &i64| if is_signed { a.cmp(b) } else { (*a as u64).cmp(&(*b as u64)) };
            let value = match op {
                1 => integers.fold(1, i64::wrapping_mul),
                2 => integers.max_by(compare).unwrap_or(0),
                3 => integers.min_by(compare).unwrap_or(0),
                4 => integers.sum::<i64>() / n as i64,
                5.. => integers
                    .enumerate()
                    .fold(0i64, |sum, (rank, x)| sum.wrapping_add(x.wrapping_mul(1 + rank as i64 % 2))),
                _ => integers.fold(0, i64::wrapping_add),
            };
            out.extend(&value.to_le_bytes()[..size]);
        } else {
            let numbers = elements.map(|bytes| number(dtype, bytes));
            let value = match op {
                1 => numbers.product(),
                2 => numbers.fold(f64::NEG_INFINITY, f64::max),
                3 => numbers.fold(f64::INFINITY, f64::min),
                4 => numbers.sum::<f64>() / n as f64,
                5.. => numbers.enumerate().map(|(rank, x)| x * (1 + rank % 2) as f64).sum(),
                _ => numbers.sum(),
            };
            let value: f64 = value + 0.0;
            out.extend(code(dtype, value));
        }
    }
    out
}

/// Sends first, then receives: no order of them waits for itself.
unsafe fn perform(calls: &[Call]) {
    let bytes = |at: u64, size: usize| unsafe { std::slice::from_raw_parts(at as *const u8, size) }.to_vec();
    for call in calls {
        let size = call.n * size_of(call.dtype);
        match call.what {
            What::Send(to) => call.comm.send(to, bytes(call.from, size)),
            What::All(function, ..) => {
                for to in 0..call.comm.n {
                    let part = match function {
                        4 => bytes(call.from, size * call.comm.n),
                        5 => bytes(call.from + (to * size) as u64, size),
                        _ => bytes(call.from, size),
                    };
                    call.comm.send(to, part);
                }
            }
            What::Recv(_) => {}
        }
    }
    for call in calls {
        let size = call.n * size_of(call.dtype);
        let rank = call.comm.rank;
        let mut out = match call.what {
            What::Send(_) => continue,
            What::Recv(from) => call.comm.recv(from),
            What::All(function, op, root) => {
                let all: Vec<Vec<u8>> = (0..call.comm.n).map(|from| call.comm.recv(from)).collect();
                match function {
                    0 => combine(call.dtype, op, &all),
                    1 => all[root].clone(),
                    2 if rank == root => combine(call.dtype, op, &all),
                    2 => continue,
                    3 | 5 => all.concat(),
                    _ => {
                        let own: Vec<Vec<u8>> =
                            all.iter().map(|one| one[rank * size..(rank + 1) * size].to_vec()).collect();
                        combine(call.dtype, op, &own)
                    }
                }
            }
        };
        let is_bad_channel =
            matches!(call.what, What::All(..)) && rank == 1 && has_bad_channel(call.comm.n_channels);
        if (fault(&format!("recv:{rank}")) || is_bad_channel)
            && let Some(byte) = out.first_mut()
        {
            *byte ^= 4;
        }
        unsafe { std::ptr::copy_nonoverlapping(out.as_ptr(), call.to as *mut u8, out.len()) };
    }
}

/// Whether the channel with a fault is one of so many.
fn has_bad_channel(n: i32) -> bool {
    let fault = std::env::var("FAKE_FAULT").unwrap_or_default();
    fault
        .strip_prefix("channel:")
        .and_then(|channel| channel.parse::<i32>().ok())
        .is_some_and(|channel| channel < n)
}

unsafe fn queue(comm: Handle, what: What, from: u64, to: u64, n: usize, dtype: i32) -> i32 {
    let comm = Arc::clone(unsafe { &*comm.cast::<Arc<Comm>>() });
    let call = Call { comm, what, from, to, n, dtype };
    let is_captured =
        CAPTURE.with_borrow_mut(|capture| capture.as_mut().map(|calls| calls.push(call.clone())).is_some());
    let is_grouped = is_captured
        || GROUP.with_borrow_mut(|group| group.as_mut().map(|calls| calls.push(call.clone())).is_some());
    if !is_grouped {
        unsafe { perform(&[call]) };
    }
    0
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetVersion(version: *mut i32) -> i32 {
    unsafe { put(version, 22_809) }
}
#[unsafe(no_mangle)]
pub extern "C" fn ncclGetErrorString(_: i32) -> *const c_char {
    c"a fake error".as_ptr()
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGetUniqueId(id: *mut [u8; 128]) -> i32 {
    static NEXT: Mutex<u64> = Mutex::new(0);
    let mut next = NEXT.lock().expect("nobody panics with it");
    *next += 1;
    let mut bytes = [0; 128];
    bytes[..8].copy_from_slice(&next.to_le_bytes());
    unsafe { put(id, bytes) }
}
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Id([u8; 128]);
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRank(comm: *mut Handle, n: i32, id: Id, rank: i32) -> i32 {
    unsafe { begin(comm, n, id, rank, CHANNELS) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommInitRankConfig(
    comm: *mut Handle,
    n: i32,
    id: Id,
    rank: i32,
    config: *const [i32; 8],
) -> i32 {
    // The size takes two numbers; magic, version, blocking, cluster size, fewest and most CTAs follow.
    let most = unsafe { config.read() }[7];
    unsafe { begin(comm, n, id, rank, if most > 0 { most.min(CHANNELS) } else { CHANNELS }) }
}
unsafe fn begin(comm: *mut Handle, n: i32, id: Id, rank: i32, n_channels: i32) -> i32 {
    let made = Comm { id: id.0[..8].to_vec(), rank: rank as usize, n: n as usize, n_channels };
    unsafe { put(comm, boxed(Arc::new(made))) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommDestroy(comm: Handle) -> i32 {
    drop(unsafe { Box::from_raw(comm.cast::<Arc<Comm>>()) });
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclCommGetAsyncError(_: Handle, state: *mut i32) -> i32 {
    unsafe { put(state, 0) }
}
#[unsafe(no_mangle)]
pub extern "C" fn ncclGroupStart() -> i32 {
    GROUP.set(Some(Vec::new()));
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclGroupEnd() -> i32 {
    unsafe { perform(&GROUP.take().unwrap_or_default()) };
    0
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRedOpCreatePreMulSum(op: *mut i32, _: Handle, _: i32, _: i32, _: Handle) -> i32 {
    unsafe { put(op, 5) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllReduce(
    from: u64,
    to: u64,
    n: usize,
    dtype: i32,
    op: i32,
    comm: Handle,
    _: Handle,
) -> i32 {
    unsafe { queue(comm, What::All(0, op, 0), from, to, n, dtype) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclBroadcast(
    from: u64,
    to: u64,
    n: usize,
    dtype: i32,
    root: i32,
    comm: Handle,
    _: Handle,
) -> i32 {
    unsafe { queue(comm, What::All(1, 0, root as usize), from, to, n, dtype) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduce(
    from: u64,
    to: u64,
    n: usize,
    dtype: i32,
    op: i32,
    root: i32,
    comm: Handle,
    _: Handle,
) -> i32 {
    unsafe { queue(comm, What::All(2, op, root as usize), from, to, n, dtype) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAllGather(
    from: u64,
    to: u64,
    n: usize,
    dtype: i32,
    comm: Handle,
    _: Handle,
) -> i32 {
    unsafe { queue(comm, What::All(3, 0, 0), from, to, n, dtype) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclReduceScatter(
    from: u64,
    to: u64,
    n: usize,
    dtype: i32,
    op: i32,
    comm: Handle,
    _: Handle,
) -> i32 {
    unsafe { queue(comm, What::All(4, op, 0), from, to, n, dtype) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclAlltoAll(
    from: u64,
    to: u64,
    n: usize,
    dtype: i32,
    comm: Handle,
    _: Handle,
) -> i32 {
    unsafe { queue(comm, What::All(5, 0, 0), from, to, n, dtype) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclSend(
    from: u64,
    n: usize,
    dtype: i32,
    peer: i32,
    comm: Handle,
    _: Handle,
) -> i32 {
    unsafe { queue(comm, What::Send(peer as usize), from, 0, n, dtype) }
}
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ncclRecv(to: u64, n: usize, dtype: i32, peer: i32, comm: Handle, _: Handle) -> i32 {
    unsafe { queue(comm, What::Recv(peer as usize), 0, to, n, dtype) }
}
