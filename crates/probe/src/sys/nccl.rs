//! NCCL. Signatures: nccl.h of 2.7 (what is needed) to 2.30 (what is used where it is there).

use std::ffi::{CStr, c_char, c_void};
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::null_mut;

use super::cuda::{Buffer, Stream};
use super::library::{Handle, LibraryError, Scope, functions, open};

/// ncclUniqueId, passed by value.
#[derive(Clone, Copy)]
#[repr(C)]
struct RawId([c_char; 128]);

/// ncclConfig_t of 2.30: 96 bytes. An older library reads as much of it as it knows.
#[repr(C)]
struct Config {
    size: usize,
    magic: u32,
    version: u32,
    blocking: i32,
    cga_cluster_size: i32,
    min_ctas: i32,
    max_ctas: i32,
    net_name: Handle,
    split_share: i32,
    traffic_class: i32,
    comm_name: Handle,
    collnet_enable: i32,
    cta_policy: i32,
    shrink_share: i32,
    nvls_ctas: i32,
    n_channels_per_net_peer: i32,
    nvlink_centric_sched: i32,
    graph_usage_mode: i32,
    num_rma_ctx: i32,
    max_p2p_peers: i32,
    graph_stream_ordering: i32,
}

const _: () = assert!(size_of::<Config>() == 96);
const CONFIG_MAGIC: u32 = 0xcafe_beef;
/// NCCL_CONFIG_UNDEF_INT.
const UNSET: i32 = i32::MIN;

functions! {
    /// Functions of libnccl.so.2.
    Table of "libnccl.so.2" {
        version = "ncclGetVersion" (*mut i32);
        unique_id = "ncclGetUniqueId" (*mut RawId);
        init = "ncclCommInitRank" (*mut Handle, i32, RawId, i32);
        destroy = "ncclCommDestroy" (Handle);
        abort = "ncclCommAbort" (Handle);
        async_error = "ncclCommGetAsyncError" (Handle, *mut i32);
        group_start = "ncclGroupStart" ();
        group_end = "ncclGroupEnd" ();
        all_reduce = "ncclAllReduce" (u64, u64, usize, i32, i32, Handle, Handle);
        broadcast = "ncclBroadcast" (u64, u64, usize, i32, i32, Handle, Handle);
        reduce = "ncclReduce" (u64, u64, usize, i32, i32, i32, Handle, Handle);
        all_gather = "ncclAllGather" (u64, u64, usize, i32, Handle, Handle);
        reduce_scatter = "ncclReduceScatter" (u64, u64, usize, i32, i32, Handle, Handle);
        send = "ncclSend" (u64, usize, i32, i32, Handle, Handle);
        recv = "ncclRecv" (u64, usize, i32, i32, Handle, Handle);
    } optional {
        init_config = "ncclCommInitRankConfig" (*mut Handle, i32, RawId, i32, *mut Config);
        mem_alloc = "ncclMemAlloc" (*mut u64, usize);
        mem_free = "ncclMemFree" (u64);
        all_to_all = "ncclAlltoAll" (u64, u64, usize, i32, Handle, Handle);
        gather = "ncclGather" (u64, u64, usize, i32, i32, Handle, Handle);
        scatter = "ncclScatter" (u64, u64, usize, i32, i32, Handle, Handle);
        premul = "ncclRedOpCreatePreMulSum" (*mut i32, *mut c_void, i32, i32, Handle);
        op_destroy = "ncclRedOpDestroy" (i32, Handle);
    }
}

/// Texts of results; both answer with a pointer, so that they have a table of their own.
struct Texts {
    error: unsafe extern "C" fn(i32) -> *const c_char,
    last: Option<unsafe extern "C" fn(Handle) -> *const c_char>,
}

/// Type of an element (ncclDataType_t).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub enum DataType {
    /// Signed, 8 bits.
    I8 = 0,
    /// Unsigned, 8 bits.
    U8 = 1,
    /// Signed, 32 bits.
    I32 = 2,
    /// Unsigned, 32 bits.
    U32 = 3,
    /// Signed, 64 bits.
    I64 = 4,
    /// Unsigned, 64 bits.
    U64 = 5,
    /// IEEE half.
    F16 = 6,
    /// IEEE single.
    F32 = 7,
    /// IEEE double.
    F64 = 8,
    /// bfloat16, from NCCL 2.10 on.
    Bf16 = 9,
    /// 8 bits, 3 of them mantissa, from NCCL 2.24 on.
    F8E4m3 = 10,
    /// 8 bits, 2 of them mantissa, from NCCL 2.24 on.
    F8E5m2 = 11,
}

/// How elements are combined (ncclRedOp_t). `PreMulSum` is made for each communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RedOp {
    /// Sum.
    Sum,
    /// Product.
    Prod,
    /// Largest.
    Max,
    /// Smallest.
    Min,
    /// Mean, from NCCL 2.10 on.
    Avg,
    /// Sum of each rank's values times a number of its own, from NCCL 2.11 on.
    PreMulSum,
}

/// What makes ranks one communicator: made by one of them, known to all.
#[derive(Clone, Copy)]
pub struct UniqueId(RawId);

impl UniqueId {
    /// Its bytes, to be sent to the other ranks.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.0.iter().map(|byte| *byte as u8).collect()
    }

    /// From the bytes that another rank sent.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let mut raw = RawId([0; 128]);
        if bytes.len() != raw.0.len() {
            return None;
        }
        for (to, from) in raw.0.iter_mut().zip(bytes) {
            *to = *from as c_char;
        }
        Some(Self(raw))
    }
}

/// What a communicator is asked to be, where NCCL can be asked.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wish {
    /// Schedule for NVLink, as nccl-tests does (from 2.28 on).
    pub is_nvlink_centric: bool,
    /// At most so many channels (from 2.18 on).
    pub max_channels: Option<i32>,
}

/// NCCL, once loaded.
#[derive(Clone, Copy)]
pub struct Nccl {
    table: &'static Table,
    texts: &'static Texts,
    version: i32,
}

impl Nccl {
    /// Opens NCCL. Its variables are read from the environment at the first call of it.
    ///
    /// # Errors
    /// If there is none at this path or name, or it is older than 2.7.
    pub fn load(path: &Path) -> Result<Self, LibraryError> {
        type Text<A> = unsafe extern "C" fn(A) -> *const c_char;
        let library = open(path, Scope::Local)?;
        let table: &'static Table = Box::leak(Box::new(Table::find(library)?));
        // SAFETY: the signature is the one of nccl.h.
        let error: Option<Text<i32>> = unsafe { super::library::function(library, "ncclGetErrorString") };
        // SAFETY: the signature is the one of nccl.h.
        let last: Option<Text<Handle>> = unsafe { super::library::function(library, "ncclGetLastError") };
        let error = error
            .ok_or(LibraryError::NoFunction { library: "libnccl.so.2", function: "ncclGetErrorString" })?;
        let mut nccl = Self { table, texts: Box::leak(Box::new(Texts { error, last })), version: 0 };
        // SAFETY: the pointer is to a number that lives across the call.
        nccl.check("ncclGetVersion", unsafe { (table.version)(&raw mut nccl.version) }, null_mut())?;
        Ok(nccl)
    }

    /// Version as NCCL counts: 22809 is 2.28.9, and up to 2.8 2708 is 2.7.8.
    pub fn version(self) -> i32 {
        self.version
    }

    /// Version as people write it.
    pub fn version_text(self) -> String {
        version_text(self.version)
    }

    /// Whether this library is at least of that release.
    pub fn is_at_least(self, major: i32, minor: i32) -> bool {
        self.version
            >= if (major, minor) <= (2, 8) {
                major * 1000 + minor * 100
            } else {
                major * 10_000 + minor * 100
            }
    }

    /// Whether all_to_all, gather and scatter are calls of their own.
    pub fn has_native_all_to_all(self) -> bool {
        self.table.all_to_all.is_some()
    }

    /// A new id. This process must be one of the ranks that use it.
    ///
    /// # Errors
    /// If NCCL finds no interface to listen on.
    pub fn unique_id(self) -> Result<UniqueId, LibraryError> {
        let mut id = RawId([0; 128]);
        // SAFETY: the pointer is to the 128 bytes of an id.
        self.check("ncclGetUniqueId", unsafe { (self.table.unique_id)(&raw mut id) }, null_mut())?;
        Ok(UniqueId(id))
    }

    /// Starts a group of calls in this thread.
    ///
    /// # Errors
    /// If NCCL refuses.
    pub fn group_start(self) -> Result<(), LibraryError> {
        // SAFETY: it takes nothing.
        self.check("ncclGroupStart", unsafe { (self.table.group_start)() }, null_mut())
    }

    /// Ends a group of calls in this thread.
    ///
    /// # Errors
    /// If one of them was wrong.
    pub fn group_end(self) -> Result<(), LibraryError> {
        // SAFETY: it takes nothing.
        self.check("ncclGroupEnd", unsafe { (self.table.group_end)() }, null_mut())
    }

    /// Memory as NCCL likes it best, of the GPU that is current in this thread; `None` where this NCCL has no such call.
    ///
    /// # Errors
    /// If the GPU is full.
    pub fn alloc(self, size_bytes: usize) -> Result<Option<Buffer>, LibraryError> {
        let (Some(alloc), Some(free)) = (self.table.mem_alloc, self.table.mem_free) else { return Ok(None) };
        let mut address = 0;
        // SAFETY: the pointer is to a number of the size of a pointer that lives across the call.
        self.check("ncclMemAlloc", unsafe { alloc(&raw mut address, size_bytes.max(16)) }, null_mut())?;
        let give_back = move |address| {
            // SAFETY: the address is one that NCCL gave, given back once, when the buffer is dropped.
            let _ = unsafe { free(address) };
        };
        Ok(Some(Buffer::other(address, size_bytes, Box::new(give_back))))
    }

    /// Becomes one rank of a communicator, with the GPU that is current in this thread. Returns when all ranks are there.
    ///
    /// # Errors
    /// If NCCL cannot connect the ranks.
    pub fn init(
        self,
        n_ranks: usize,
        id: UniqueId,
        rank: usize,
        wish: Wish,
    ) -> Result<CommHandle, LibraryError> {
        let mut handle = null_mut();
        let (n, rank) = (n_ranks as i32, rank as i32);
        match self.table.init_config {
            Some(init) if self.takes(wish) => {
                let mut config = Config {
                    size: if self.is_at_least(2, 30) {
                        96
                    } else if self.is_at_least(2, 29) {
                        88
                    } else {
                        80
                    },
                    magic: CONFIG_MAGIC,
                    version: self.version as u32,
                    blocking: UNSET,
                    cga_cluster_size: UNSET,
                    min_ctas: UNSET,
                    max_ctas: wish.max_channels.unwrap_or(UNSET),
                    net_name: null_mut(),
                    split_share: UNSET,
                    traffic_class: UNSET,
                    comm_name: null_mut(),
                    collnet_enable: UNSET,
                    cta_policy: UNSET,
                    shrink_share: UNSET,
                    nvls_ctas: UNSET,
                    n_channels_per_net_peer: UNSET,
                    nvlink_centric_sched: if wish.is_nvlink_centric && self.is_at_least(2, 28) {
                        1
                    } else {
                        UNSET
                    },
                    graph_usage_mode: UNSET,
                    num_rma_ctx: UNSET,
                    max_p2p_peers: UNSET,
                    graph_stream_ordering: UNSET,
                };
                // SAFETY: both pointers are to what the header names, alive across the call; the size in the struct is no
                // larger than the struct.
                let code = unsafe { init(&raw mut handle, n, id.0, rank, &raw mut config) };
                self.check("ncclCommInitRankConfig", code, null_mut())?;
            }
            _ => {
                // SAFETY: the pointer is to a pointer that lives across the call.
                let code = unsafe { (self.table.init)(&raw mut handle, n, id.0, rank) };
                self.check("ncclCommInitRank", code, null_mut())?;
            }
        }
        Ok(CommHandle { nccl: self, handle, is_broken: false, in_one_thread: PhantomData })
    }

    /// Whether this NCCL can be asked for something of it: the number of channels from 2.18 on, the schedule from 2.28 on.
    pub fn takes(self, wish: Wish) -> bool {
        let is_known = wish.is_nvlink_centric && self.is_at_least(2, 28)
            || wish.max_channels.is_some() && self.is_at_least(2, 18);
        is_known && self.table.init_config.is_some()
    }

    fn check(self, call: &'static str, code: i32, comm: Handle) -> Result<(), LibraryError> {
        if code == 0 {
            return Ok(());
        }
        let text = |pointer: *const c_char| {
            if pointer.is_null() {
                return String::new();
            }
            // SAFETY: NCCL answers with a text that ends in a zero and stays.
            unsafe { CStr::from_ptr(pointer) }.to_string_lossy().into_owned()
        };
        // SAFETY: it takes any number.
        let name = text(unsafe { (self.texts.error)(code) });
        let last = self.texts.last.map_or_else(String::new, |last| {
            // SAFETY: the communicator may be null.
            text(unsafe { last(comm) })
        });
        let last = last.trim();
        let last = if last.is_empty() { String::new() } else { format!(": {last}") };
        Err(LibraryError::Nccl { call, code, name, last })
    }
}

/// 22809 is "2.28.9".
fn version_text(version: i32) -> String {
    if version < 10_000 {
        format!("{}.{}.{}", version / 1000, version % 1000 / 100, version % 100)
    } else {
        format!("{}.{}.{}", version / 10_000, version % 10_000 / 100, version % 100)
    }
}

/// A communicator, as one rank of it sees it.
pub struct CommHandle {
    nccl: Nccl,
    handle: Handle,
    is_broken: bool,
    in_one_thread: PhantomData<*const ()>,
}

impl CommHandle {
    /// The library.
    pub fn nccl(&self) -> Nccl {
        self.nccl
    }

    /// Fails if the communicator is known to be broken.
    ///
    /// # Errors
    /// With what broke it.
    pub fn check(&self) -> Result<(), LibraryError> {
        let mut state = 0;
        // SAFETY: the handle is of a communicator that lives; the pointer is to a number that lives across the call.
        let code = unsafe { (self.nccl.table.async_error)(self.handle, &raw mut state) };
        self.nccl.check("ncclCommGetAsyncError", code, self.handle)?;
        // 7: in progress.
        if state == 7 { Ok(()) } else { self.nccl.check("a collective", state, self.handle) }
    }

    /// Stops everything that runs. Afterwards it can only be dropped.
    pub fn abort(&mut self) {
        if !self.is_broken {
            self.is_broken = true;
            // SAFETY: the handle is of a communicator that lives, and is not used after this.
            let _ = unsafe { (self.nccl.table.abort)(self.handle) };
        }
    }

    /// Number of an operation in this communicator, for elements of this type; `scalar` are the bytes of this rank's factor
    /// for [`RedOp::PreMulSum`].
    ///
    /// # Errors
    /// If this NCCL has no such operation.
    pub fn op(&self, op: RedOp, dtype: DataType, scalar: [u8; 8]) -> Result<i32, LibraryError> {
        Ok(match op {
            RedOp::Sum => 0,
            RedOp::Prod => 1,
            RedOp::Max => 2,
            RedOp::Min => 3,
            RedOp::Avg => 4,
            RedOp::PreMulSum => {
                let create = self.nccl.table.premul.ok_or(LibraryError::NoFunction {
                    library: "libnccl.so.2",
                    function: "ncclRedOpCreatePreMulSum",
                })?;
                let (mut number, mut scalar) = (0, scalar);
                // SAFETY: 1 is ncclScalarHostImmediate: the scalar, at most 8 bytes, is read during the call.
                let code = unsafe {
                    create(&raw mut number, scalar.as_mut_ptr().cast(), dtype as i32, 1, self.handle)
                };
                self.nccl.check("ncclRedOpCreatePreMulSum", code, self.handle)?;
                number
            }
        })
    }

    /// Forgets an operation that [`CommHandle::op`] made.
    pub fn forget(&self, op: i32) {
        if op > 4
            && let Some(destroy) = self.nccl.table.op_destroy
        {
            // SAFETY: the handle is of a communicator that lives; a wrong number is refused.
            let _ = unsafe { destroy(op, self.handle) };
        }
    }
}

/// The calls. Addresses are of GPU memory of this rank; counts are of elements. Errors: if NCCL refuses.
#[allow(clippy::missing_errors_doc, reason = "said once for all")]
impl CommHandle {
    fn said(&self, call: &'static str, code: i32) -> Result<(), LibraryError> {
        self.nccl.check(call, code, self.handle)
    }

    /// Every rank gets the combination of all.
    pub fn all_reduce(
        &self,
        from: u64,
        to: u64,
        n: usize,
        dtype: DataType,
        op: i32,
        on: &Stream,
    ) -> Result<(), LibraryError> {
        // SAFETY: handles of things that live; wrong addresses of GPU memory stop the context and no more.
        let code =
            unsafe { (self.nccl.table.all_reduce)(from, to, n, dtype as i32, op, self.handle, on.handle()) };
        self.said("ncclAllReduce", code)
    }

    /// Every rank gets the root's values.
    pub fn broadcast(
        &self,
        from: u64,
        to: u64,
        n: usize,
        dtype: DataType,
        root: usize,
        on: &Stream,
    ) -> Result<(), LibraryError> {
        // SAFETY: as in all_reduce.
        let code = unsafe {
            (self.nccl.table.broadcast)(from, to, n, dtype as i32, root as i32, self.handle, on.handle())
        };
        self.said("ncclBroadcast", code)
    }

    /// The root gets the combination of all.
    #[expect(clippy::too_many_arguments, reason = "they are those of the call")]
    pub fn reduce(
        &self,
        from: u64,
        to: u64,
        n: usize,
        dtype: DataType,
        op: i32,
        root: usize,
        on: &Stream,
    ) -> Result<(), LibraryError> {
        // SAFETY: as in all_reduce.
        let code = unsafe {
            (self.nccl.table.reduce)(from, to, n, dtype as i32, op, root as i32, self.handle, on.handle())
        };
        self.said("ncclReduce", code)
    }

    /// Every rank gets the `n` values of each.
    pub fn all_gather(
        &self,
        from: u64,
        to: u64,
        n: usize,
        dtype: DataType,
        on: &Stream,
    ) -> Result<(), LibraryError> {
        // SAFETY: as in all_reduce.
        let code =
            unsafe { (self.nccl.table.all_gather)(from, to, n, dtype as i32, self.handle, on.handle()) };
        self.said("ncclAllGather", code)
    }

    /// Every rank gets `n` values of the combination of all.
    pub fn reduce_scatter(
        &self,
        from: u64,
        to: u64,
        n: usize,
        dtype: DataType,
        op: i32,
        on: &Stream,
    ) -> Result<(), LibraryError> {
        // SAFETY: as in all_reduce.
        let code = unsafe {
            (self.nccl.table.reduce_scatter)(from, to, n, dtype as i32, op, self.handle, on.handle())
        };
        self.said("ncclReduceScatter", code)
    }

    /// Sends to one rank.
    pub fn send(
        &self,
        from: u64,
        n: usize,
        dtype: DataType,
        peer: usize,
        on: &Stream,
    ) -> Result<(), LibraryError> {
        // SAFETY: as in all_reduce.
        let code =
            unsafe { (self.nccl.table.send)(from, n, dtype as i32, peer as i32, self.handle, on.handle()) };
        self.said("ncclSend", code)
    }

    /// Receives from one rank.
    pub fn recv(
        &self,
        to: u64,
        n: usize,
        dtype: DataType,
        peer: usize,
        on: &Stream,
    ) -> Result<(), LibraryError> {
        // SAFETY: as in all_reduce.
        let code =
            unsafe { (self.nccl.table.recv)(to, n, dtype as i32, peer as i32, self.handle, on.handle()) };
        self.said("ncclRecv", code)
    }

    /// Every rank sends `n` values to each. `None` where this NCCL has no such call (before 2.28).
    pub fn all_to_all(
        &self,
        from: u64,
        to: u64,
        n: usize,
        dtype: DataType,
        on: &Stream,
    ) -> Option<Result<(), LibraryError>> {
        let call = self.nccl.table.all_to_all?;
        // SAFETY: as in all_reduce.
        let code = unsafe { call(from, to, n, dtype as i32, self.handle, on.handle()) };
        Some(self.said("ncclAlltoAll", code))
    }

    /// The root gets the `n` values of each. `None` where this NCCL has no such call (before 2.28).
    pub fn gather(
        &self,
        from: u64,
        to: u64,
        n: usize,
        dtype: DataType,
        root: usize,
        on: &Stream,
    ) -> Option<Result<(), LibraryError>> {
        let call = self.nccl.table.gather?;
        // SAFETY: as in all_reduce.
        let code = unsafe { call(from, to, n, dtype as i32, root as i32, self.handle, on.handle()) };
        Some(self.said("ncclGather", code))
    }

    /// Every rank gets `n` values of the root. `None` where this NCCL has no such call (before 2.28).
    pub fn scatter(
        &self,
        from: u64,
        to: u64,
        n: usize,
        dtype: DataType,
        root: usize,
        on: &Stream,
    ) -> Option<Result<(), LibraryError>> {
        let call = self.nccl.table.scatter?;
        // SAFETY: as in all_reduce.
        let code = unsafe { call(from, to, n, dtype as i32, root as i32, self.handle, on.handle()) };
        Some(self.said("ncclScatter", code))
    }
}

impl Drop for CommHandle {
    fn drop(&mut self) {
        if !self.is_broken {
            // SAFETY: the handle is of a communicator that lives, and is not used after this.
            let _ = unsafe { (self.nccl.table.destroy)(self.handle) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_in_both_ways_of_counting() {
        assert_eq!(version_text(2708), "2.7.8");
        assert_eq!(version_text(21805), "2.18.5");
        assert_eq!(version_text(23007), "2.30.7");
    }

    #[test]
    fn an_id_survives_the_wire() {
        let bytes: Vec<u8> = (0..128).collect();
        assert_eq!(UniqueId::from_bytes(&bytes).map(|id| id.bytes()), Some(bytes));
        assert!(UniqueId::from_bytes(&[1, 2, 3]).is_none());
    }
}
