//! The CUDA driver. Signatures: cuda.h of CUDA 12.9 and 13.0, with the exported names of their newest versions.
//!
//! The primary context is used, because NCCL and cuBLAS go through the runtime, which uses it, too.

use std::ffi::{CStr, CString, c_char, c_void};
use std::fmt::Write as _;
use std::marker::PhantomData;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use super::library::{Handle, LibraryError, Scope, functions, open};

functions! {
    /// Functions of libcuda.so.1.
    Table of "libcuda.so.1" {
        init = "cuInit" (u32);
        driver_version = "cuDriverGetVersion" (*mut i32);
        device_count = "cuDeviceGetCount" (*mut i32);
        device_get = "cuDeviceGet" (*mut i32, i32);
        device_name = "cuDeviceGetName" (*mut c_char, i32, i32);
        device_attribute = "cuDeviceGetAttribute" (*mut i32, i32, i32);
        device_bus = "cuDeviceGetPCIBusId" (*mut c_char, i32, i32);
        device_uuid = "cuDeviceGetUuid_v2" (*mut [u8; 16], i32);
        context_retain = "cuDevicePrimaryCtxRetain" (*mut Handle, i32);
        context_release = "cuDevicePrimaryCtxRelease_v2" (i32);
        set_current = "cuCtxSetCurrent" (Handle);
        synchronize = "cuCtxSynchronize" ();
        memory_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
        alloc = "cuMemAlloc_v2" (*mut u64, usize);
        free = "cuMemFree_v2" (u64);
        alloc_host = "cuMemAllocHost_v2" (*mut Handle, usize);
        free_host = "cuMemFreeHost" (Handle);
        to_device = "cuMemcpyHtoD_v2" (u64, *const c_void, usize);
        to_host = "cuMemcpyDtoH_v2" (*mut c_void, u64, usize);
        copy = "cuMemcpyAsync" (u64, u64, usize, Handle);
        to_device_async = "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, Handle);
        to_host_async = "cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, Handle);
        set_bytes = "cuMemsetD8Async" (u64, u8, usize, Handle);
        stream_create = "cuStreamCreate" (*mut Handle, u32);
        stream_destroy = "cuStreamDestroy_v2" (Handle);
        stream_wait = "cuStreamSynchronize" (Handle);
        stream_query = "cuStreamQuery" (Handle);
        event_create = "cuEventCreate" (*mut Handle, u32);
        event_destroy = "cuEventDestroy_v2" (Handle);
        event_record = "cuEventRecord" (Handle, Handle);
        event_wait = "cuEventSynchronize" (Handle);
        event_elapsed = "cuEventElapsedTime" (*mut f32, Handle, Handle);
        module_load = "cuModuleLoadDataEx" (*mut Handle, *const c_void, u32, *mut i32, *mut Handle);
        module_unload = "cuModuleUnload" (Handle);
        module_function = "cuModuleGetFunction" (*mut Handle, Handle, *const c_char);
        launch = "cuLaunchKernel" (Handle, u32, u32, u32, u32, u32, u32, u32, Handle, *mut Handle, *mut Handle);
        can_access_peer = "cuDeviceCanAccessPeer" (*mut i32, i32, i32);
        enable_peer = "cuCtxEnablePeerAccess" (Handle, u32);
        capture = "cuStreamBeginCapture_v2" (Handle, i32);
        capture_end = "cuStreamEndCapture" (Handle, *mut Handle);
        graph_launch = "cuGraphLaunch" (Handle, Handle);
        graph_exec_destroy = "cuGraphExecDestroy" (Handle);
        graph_destroy = "cuGraphDestroy" (Handle);
        error_name = "cuGetErrorName" (i32, *mut *const c_char);
    } optional {
        // From CUDA 11.4 on. `cuGraphInstantiate` has three signatures under one name.
        graph_instantiate = "cuGraphInstantiateWithFlags" (*mut Handle, Handle, u64);
    }
}

const SUCCESS: i32 = 0;
const NOT_READY: i32 = 600;
const PEER_ACCESS_ALREADY_ENABLED: i32 = 704;
const STREAM_NON_BLOCKING: u32 = 1;
/// CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: other threads may allocate meanwhile.
const CAPTURE_THREAD_LOCAL: i32 = 1;
/// CU_JIT_ERROR_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES.
const JIT_LOG: [i32; 2] = [5, 6];

/// Numbers that a GPU states of itself (CUdevice_attribute).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i32)]
pub enum Attribute {
    /// Streaming multiprocessors.
    Multiprocessors = 16,
    /// Bytes of the L2 cache.
    L2Bytes = 38,
    /// 1 if ECC is on.
    Ecc = 32,
    /// Compute capability, major.
    Major = 75,
    /// Compute capability, minor.
    Minor = 76,
}

/// The driver, once loaded.
#[derive(Clone, Copy)]
pub struct Driver {
    table: &'static Table,
    version: i32,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Driver").field("version", &self.version).finish_non_exhaustive()
    }
}

/// Tables by path, so that a path is opened once.
fn tables() -> &'static Mutex<Vec<(String, &'static Table)>> {
    static TABLES: OnceLock<Mutex<Vec<(String, &'static Table)>>> = OnceLock::new();
    TABLES.get_or_init(Mutex::default)
}

impl Driver {
    /// Opens and starts the driver.
    ///
    /// # Errors
    /// If there is none, it is older than CUDA 11, or it finds no GPU.
    pub fn load(path: Option<&Path>) -> Result<Self, LibraryError> {
        let path = path.unwrap_or(Path::new("libcuda.so.1"));
        let key = path.display().to_string();
        let mut known = tables().lock().map_err(|_| LibraryError::Aborted)?;
        let table = if let Some((_, table)) = known.iter().find(|(name, _)| *name == key) {
            table
        } else {
            let table: &'static Table = Box::leak(Box::new(Table::find(open(path, Scope::Global)?)?));
            known.push((key, table));
            table
        };
        drop(known);
        let mut driver = Self { table, version: 0 };
        // SAFETY: cuInit takes flags, which must be 0.
        driver.check("cuInit", unsafe { (table.init)(0) })?;
        // SAFETY: the pointer is to a number that lives across the call.
        driver.check("cuDriverGetVersion", unsafe { (table.driver_version)(&raw mut driver.version) })?;
        Ok(driver)
    }

    /// The newest CUDA that the driver supports: 13000 is 13.0.
    pub fn version(self) -> i32 {
        self.version
    }

    /// GPUs that are visible to this process.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn n_devices(self) -> Result<usize, LibraryError> {
        let mut count = 0;
        // SAFETY: the pointer is to a number that lives across the call.
        self.check("cuDeviceGetCount", unsafe { (self.table.device_count)(&raw mut count) })?;
        Ok(usize::try_from(count).unwrap_or_default())
    }

    fn ordinal(self, device: usize) -> Result<i32, LibraryError> {
        let mut ordinal = 0;
        let wanted = i32::try_from(device).unwrap_or(i32::MAX);
        // SAFETY: the pointer is to a number that lives across the call.
        self.check("cuDeviceGet", unsafe { (self.table.device_get)(&raw mut ordinal, wanted) })?;
        Ok(ordinal)
    }

    /// The GPU's name, as `NVIDIA H200`.
    ///
    /// # Errors
    /// If there is no such GPU.
    pub fn name(self, device: usize) -> Result<String, LibraryError> {
        let ordinal = self.ordinal(device)?;
        let mut text = [0u8; 128];
        let length = text.len() as i32;
        // SAFETY: the driver writes at most `length` bytes, with a terminator, into the array.
        let code = unsafe { (self.table.device_name)(text.as_mut_ptr().cast(), length, ordinal) };
        self.check("cuDeviceGetName", code)?;
        Ok(text_of(&text))
    }

    /// PCI address, in lower case: `0000:00:08.0`.
    ///
    /// # Errors
    /// If there is no such GPU.
    pub fn bus(self, device: usize) -> Result<String, LibraryError> {
        let ordinal = self.ordinal(device)?;
        let mut text = [0u8; 32];
        let length = text.len() as i32;
        // SAFETY: the driver writes at most `length` bytes, with a terminator, into the array.
        let code = unsafe { (self.table.device_bus)(text.as_mut_ptr().cast(), length, ordinal) };
        self.check("cuDeviceGetPCIBusId", code)?;
        Ok(text_of(&text).to_ascii_lowercase())
    }

    /// UUID, as `GPU-…`.
    ///
    /// # Errors
    /// If there is no such GPU.
    pub fn uuid(self, device: usize) -> Result<String, LibraryError> {
        let ordinal = self.ordinal(device)?;
        let mut id = [0u8; 16];
        // SAFETY: the pointer is to 16 bytes, the size of a CUuuid.
        self.check("cuDeviceGetUuid_v2", unsafe { (self.table.device_uuid)(&raw mut id, ordinal) })?;
        let mut text = "GPU-".to_owned();
        for (n, byte) in id.iter().enumerate() {
            if [4, 6, 8, 10].contains(&n) {
                text.push('-');
            }
            let _ = write!(text, "{byte:02x}");
        }
        Ok(text)
    }

    /// One number of the GPU.
    ///
    /// # Errors
    /// If there is no such GPU.
    pub fn attribute(self, device: usize, which: Attribute) -> Result<i32, LibraryError> {
        let ordinal = self.ordinal(device)?;
        let mut value = 0;
        // SAFETY: the pointer is to a number that lives across the call.
        let code = unsafe { (self.table.device_attribute)(&raw mut value, which as i32, ordinal) };
        self.check("cuDeviceGetAttribute", code)?;
        Ok(value)
    }

    /// Whether one GPU can read and write the memory of another directly.
    ///
    /// # Errors
    /// If there is no such GPU.
    pub fn can_access_peer(self, device: usize, peer: usize) -> Result<bool, LibraryError> {
        let (device, peer) = (self.ordinal(device)?, self.ordinal(peer)?);
        let mut can = 0;
        // SAFETY: the pointer is to a number that lives across the call.
        let code = unsafe { (self.table.can_access_peer)(&raw mut can, device, peer) };
        self.check("cuDeviceCanAccessPeer", code)?;
        Ok(can != 0)
    }

    fn check(self, call: &'static str, code: i32) -> Result<(), LibraryError> {
        if code == SUCCESS {
            return Ok(());
        }
        let mut name: *const c_char = std::ptr::null();
        // SAFETY: the pointer is to a pointer that lives across the call.
        let known = unsafe { (self.table.error_name)(code, &raw mut name) } == SUCCESS && !name.is_null();
        let name = if known {
            // SAFETY: the driver answers with a constant text that ends in a zero.
            unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned()
        } else {
            "unknown error".to_owned()
        };
        Err(LibraryError::Cuda { call, code, name })
    }
}

fn text_of(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// A GPU whose primary context is the current one of this thread, and of this thread alone: it cannot leave it.
#[derive(Debug)]
pub struct Device {
    driver: Driver,
    index: usize,
    ordinal: i32,
    peers: Mutex<Vec<i32>>,
    in_one_thread: PhantomData<*const ()>,
}

impl Device {
    /// Makes a GPU current in this thread.
    ///
    /// # Errors
    /// If there is no such GPU, or it cannot be used.
    pub fn open(driver: Driver, index: usize) -> Result<Self, LibraryError> {
        let ordinal = driver.ordinal(index)?;
        let context = retain(driver, ordinal)?;
        let device = Self { driver, index, ordinal, peers: Mutex::default(), in_one_thread: PhantomData };
        // SAFETY: the context is retained until the device is dropped.
        driver.check("cuCtxSetCurrent", unsafe { (driver.table.set_current)(context) })?;
        Ok(device)
    }

    /// The driver.
    pub fn driver(&self) -> Driver {
        self.driver
    }

    /// Number of the GPU among those visible.
    pub fn index(&self) -> usize {
        self.index
    }

    /// Free and total memory, bytes.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn memory(&self) -> Result<(usize, usize), LibraryError> {
        let (mut free, mut total) = (0, 0);
        // SAFETY: the pointers are to numbers that live across the call.
        let code = unsafe { (self.driver.table.memory_info)(&raw mut free, &raw mut total) };
        self.driver.check("cuMemGetInfo", code)?;
        Ok((free, total))
    }

    /// Takes memory of the GPU.
    ///
    /// # Errors
    /// If it is full.
    pub fn alloc(&self, size_bytes: usize) -> Result<Buffer, LibraryError> {
        let mut address = 0;
        let size = size_bytes.max(16);
        // SAFETY: the pointer is to a number that lives across the call.
        self.driver.check("cuMemAlloc", unsafe { (self.driver.table.alloc)(&raw mut address, size) })?;
        Ok(Buffer {
            address,
            size_bytes,
            owner: MemoryOwner::Driver(self.driver),
            in_one_thread: PhantomData,
        })
    }

    /// Takes memory of the host that the GPU reaches directly.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn alloc_host(&self, size_bytes: usize) -> Result<Pinned, LibraryError> {
        let mut address = null_mut();
        let size = size_bytes.max(16);
        // SAFETY: the pointer is to a pointer that lives across the call.
        let code = unsafe { (self.driver.table.alloc_host)(&raw mut address, size) };
        self.driver.check("cuMemAllocHost", code)?;
        // SAFETY: the driver answered with `size` bytes of memory of this process.
        unsafe { std::ptr::write_bytes(address.cast::<u8>(), 0, size) };
        Ok(Pinned { driver: self.driver, address, size_bytes })
    }

    /// A stream that does not wait for the default one.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn stream(&self) -> Result<Stream, LibraryError> {
        let mut handle = null_mut();
        // SAFETY: the pointer is to a pointer that lives across the call.
        let code = unsafe { (self.driver.table.stream_create)(&raw mut handle, STREAM_NON_BLOCKING) };
        self.driver.check("cuStreamCreate", code)?;
        Ok(Stream { driver: self.driver, handle })
    }

    /// An event that keeps its time.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn event(&self) -> Result<CudaEvent, LibraryError> {
        let mut handle = null_mut();
        // SAFETY: the pointer is to a pointer that lives across the call.
        let code = unsafe { (self.driver.table.event_create)(&raw mut handle, 0) };
        self.driver.check("cuEventCreate", code)?;
        Ok(CudaEvent { driver: self.driver, handle })
    }

    /// Compiles PTX for this GPU.
    ///
    /// # Errors
    /// If the driver refuses it; the compiler's log is part of the error.
    pub fn module(&self, ptx: &str) -> Result<Module, LibraryError> {
        let text = CString::new(ptx).map_err(|error| LibraryError::World(error.to_string()))?;
        let mut log = vec![0u8; 4096];
        let mut options = JIT_LOG;
        let mut values: [Handle; 2] = [log.as_mut_ptr().cast(), std::ptr::without_provenance_mut(log.len())];
        let mut handle = null_mut();
        // SAFETY: the text ends in a zero; the options name a buffer and its size, both of which live across the call.
        let code = unsafe {
            (self.driver.table.module_load)(
                &raw mut handle,
                text.as_ptr().cast(),
                options.len() as u32,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        match self.driver.check("cuModuleLoadDataEx", code) {
            Ok(()) => Ok(Module { driver: self.driver, handle }),
            Err(LibraryError::Cuda { call, code, name }) => {
                let log = text_of(&log);
                let name = if log.is_empty() { name } else { format!("{name}: {}", log.trim()) };
                Err(LibraryError::Cuda { call, code, name })
            }
            Err(other) => Err(other),
        }
    }

    /// Lets this GPU reach another's memory directly, if they can. Answers whether they can.
    ///
    /// # Errors
    /// If the driver refuses for another reason than that they cannot.
    pub fn enable_peer(&self, peer: usize) -> Result<bool, LibraryError> {
        if peer == self.index || !self.driver.can_access_peer(self.index, peer)? {
            return Ok(false);
        }
        let ordinal = self.driver.ordinal(peer)?;
        let context = retain(self.driver, ordinal)?;
        if let Ok(mut peers) = self.peers.lock() {
            peers.push(ordinal);
        }
        // SAFETY: both contexts are retained until this device is dropped.
        let code = unsafe { (self.driver.table.enable_peer)(context, 0) };
        if code == PEER_ACCESS_ALREADY_ENABLED {
            return Ok(true);
        }
        self.driver.check("cuCtxEnablePeerAccess", code)?;
        Ok(true)
    }

    /// Waits for everything on this GPU.
    ///
    /// # Errors
    /// If something failed there.
    pub fn synchronize(&self) -> Result<(), LibraryError> {
        // SAFETY: it takes nothing.
        self.driver.check("cuCtxSynchronize", unsafe { (self.driver.table.synchronize)() })
    }
}

fn retain(driver: Driver, ordinal: i32) -> Result<Handle, LibraryError> {
    let mut context = null_mut();
    // SAFETY: the pointer is to a pointer that lives across the call.
    let code = unsafe { (driver.table.context_retain)(&raw mut context, ordinal) };
    driver.check("cuDevicePrimaryCtxRetain", code)?;
    Ok(context)
}

impl Drop for Device {
    fn drop(&mut self) {
        // SAFETY: null makes no context the current one.
        let _ = unsafe { (self.driver.table.set_current)(null_mut()) };
        let peers = self.peers.get_mut().map(std::mem::take).unwrap_or_default();
        for ordinal in peers.into_iter().chain([self.ordinal]) {
            // SAFETY: each was retained by this device once.
            let _ = unsafe { (self.driver.table.context_release)(ordinal) };
        }
    }
}

/// Gives memory back the way it was taken.
pub(crate) enum MemoryOwner {
    Driver(Driver),
    Other(Box<dyn Fn(u64)>),
}

/// Memory of a GPU.
pub struct Buffer {
    address: u64,
    size_bytes: usize,
    owner: MemoryOwner,
    /// It is given back in the thread whose context it is of.
    in_one_thread: PhantomData<*const ()>,
}

impl Buffer {
    pub(crate) fn other(address: u64, size_bytes: usize, free: Box<dyn Fn(u64)>) -> Self {
        Self { address, size_bytes, owner: MemoryOwner::Other(free), in_one_thread: PhantomData }
    }

    /// Where it is, in the address space that all GPUs of this process share.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Its size.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        match &self.owner {
            // SAFETY: the address is one that the driver gave, given back once.
            MemoryOwner::Driver(driver) => drop(unsafe { (driver.table.free)(self.address) }),
            MemoryOwner::Other(free) => free(self.address),
        }
    }
}

/// Memory of the host that a GPU reaches directly.
pub struct Pinned {
    driver: Driver,
    address: Handle,
    size_bytes: usize,
}

impl Pinned {
    /// Its size.
    pub fn size_bytes(&self) -> usize {
        self.size_bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: the address is one that the driver gave, given back once.
        let _ = unsafe { (self.driver.table.free_host)(self.address) };
    }
}

/// A queue of work on a GPU.
pub struct Stream {
    driver: Driver,
    handle: Handle,
}

impl Stream {
    pub(crate) fn handle(&self) -> Handle {
        self.handle
    }

    /// Waits for all that is queued.
    ///
    /// # Errors
    /// If something failed there.
    pub fn wait(&self) -> Result<(), LibraryError> {
        // SAFETY: the handle is of a stream that lives.
        let code = unsafe { (self.driver.table.stream_wait)(self.handle) };
        self.driver.check("cuStreamSynchronize", code)
    }

    /// Whether all that is queued is done.
    ///
    /// # Errors
    /// If something failed there.
    pub fn is_done(&self) -> Result<bool, LibraryError> {
        // SAFETY: the handle is of a stream that lives.
        match unsafe { (self.driver.table.stream_query)(self.handle) } {
            NOT_READY => Ok(false),
            code => self.driver.check("cuStreamQuery", code).map(|()| true),
        }
    }

    /// Copies between any two places in GPU memory.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn copy(&self, to: u64, from: u64, size_bytes: usize) -> Result<(), LibraryError> {
        // SAFETY: addresses of GPU memory; wrong ones stop the context.
        let code = unsafe { (self.driver.table.copy)(to, from, size_bytes, self.handle) };
        self.driver.check("cuMemcpyAsync", code)
    }

    /// Sets bytes of GPU memory.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn set(&self, to: u64, byte: u8, size_bytes: usize) -> Result<(), LibraryError> {
        // SAFETY: an address of GPU memory; a wrong one stops the context.
        let code = unsafe { (self.driver.table.set_bytes)(to, byte, size_bytes, self.handle) };
        self.driver.check("cuMemsetD8Async", code)
    }

    /// Copies the start of `from` to the GPU, without waiting.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn from_pinned(&self, to: u64, from: &Pinned, size_bytes: usize) -> Result<(), LibraryError> {
        let size = size_bytes.min(from.size_bytes);
        // SAFETY: `size` bytes of pinned memory. It is freed with a call that waits for the GPU.
        let code = unsafe { (self.driver.table.to_device_async)(to, from.address, size, self.handle) };
        self.driver.check("cuMemcpyHtoDAsync", code)
    }

    /// Copies from the GPU to the start of `to`, without waiting.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn to_pinned(&self, to: &mut Pinned, from: u64, size_bytes: usize) -> Result<(), LibraryError> {
        let size = size_bytes.min(to.size_bytes);
        // SAFETY: `size` bytes of pinned memory, which nothing on the host reads. It is freed with a call that waits.
        let code = unsafe { (self.driver.table.to_host_async)(to.address, from, size, self.handle) };
        self.driver.check("cuMemcpyDtoHAsync", code)
    }

    /// Copies from the GPU and waits for it, after all that is queued.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn read<T: Copy + Default>(&self, from: u64, n: usize) -> Result<Vec<T>, LibraryError> {
        self.wait()?;
        let mut out = vec![T::default(); n];
        // SAFETY: `out` is memory for exactly so many bytes, and the callers of this crate read plain numbers alone.
        let code = unsafe { (self.driver.table.to_host)(out.as_mut_ptr().cast(), from, size_of_val(&*out)) };
        self.driver.check("cuMemcpyDtoH", code)?;
        Ok(out)
    }

    /// Copies numbers to the GPU and waits for it, after all that is queued.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn write<T: Copy>(&self, to: u64, values: &[T]) -> Result<(), LibraryError> {
        self.wait()?;
        // SAFETY: exactly the bytes of the slice are read.
        let code = unsafe { (self.driver.table.to_device)(to, values.as_ptr().cast(), size_of_val(values)) };
        self.driver.check("cuMemcpyHtoD", code)
    }

    /// Queues what `work` queues as a graph, which can be launched repeatedly.
    ///
    /// # Errors
    /// If the driver refuses, or `work` does.
    pub fn graph(&self, work: impl FnOnce() -> Result<(), LibraryError>) -> Result<Graph, LibraryError> {
        let instantiate = self.driver.table.graph_instantiate.ok_or(LibraryError::NoFunction {
            library: "libcuda.so.1",
            function: "cuGraphInstantiateWithFlags",
        })?;
        // SAFETY: the handle is of a stream that lives.
        let code = unsafe { (self.driver.table.capture)(self.handle, CAPTURE_THREAD_LOCAL) };
        self.driver.check("cuStreamBeginCapture", code)?;
        let worked = work();
        let mut graph = null_mut();
        // SAFETY: the pointer is to a pointer that lives across the call.
        let code = unsafe { (self.driver.table.capture_end)(self.handle, &raw mut graph) };
        worked?;
        self.driver.check("cuStreamEndCapture", code)?;
        let mut exec = null_mut();
        // SAFETY: the graph was just made; the pointer is to a pointer that lives across the call.
        let code = unsafe { instantiate(&raw mut exec, graph, 0) };
        // SAFETY: the graph is not used after this.
        let _ = unsafe { (self.driver.table.graph_destroy)(graph) };
        self.driver.check("cuGraphInstantiateWithFlags", code)?;
        Ok(Graph { driver: self.driver, exec })
    }

    /// Notes the time when all that is queued before is done.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn record(&self, event: &CudaEvent) -> Result<(), LibraryError> {
        // SAFETY: both handles are of things that live.
        let code = unsafe { (self.driver.table.event_record)(event.handle, self.handle) };
        self.driver.check("cuEventRecord", code)
    }

    /// Queues a kernel. All of its parameters are 64-bit numbers.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn launch(&self, function: &Function, shape: Launch, params: &[u64]) -> Result<(), LibraryError> {
        let mut values = params.to_vec();
        let mut pointers: Vec<Handle> =
            values.iter_mut().map(|value| std::ptr::from_mut(value).cast()).collect();
        // SAFETY: the driver reads as many parameters as the kernel declares, each of 8 bytes; `Function::new` knows their
        // number, and a shorter list is refused above the call.
        let code = unsafe {
            if params.len() == function.n_params {
                (self.driver.table.launch)(
                    function.handle,
                    shape.blocks,
                    1,
                    1,
                    shape.threads,
                    1,
                    1,
                    0,
                    self.handle,
                    pointers.as_mut_ptr(),
                    null_mut(),
                )
            } else {
                // CUDA_ERROR_INVALID_VALUE.
                1
            }
        };
        self.driver.check("cuLaunchKernel", code)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: the handle is of a stream that lives, and is not used after this.
        let _ = unsafe { (self.driver.table.stream_destroy)(self.handle) };
    }
}

/// A moment on a GPU's clock.
pub struct CudaEvent {
    driver: Driver,
    handle: Handle,
}

impl CudaEvent {
    /// Time from an earlier moment to this one. Waits for both.
    ///
    /// # Errors
    /// If one of them was never recorded, or something failed before it.
    pub fn since(&self, earlier: &Self) -> Result<Duration, LibraryError> {
        // SAFETY: the handle is of an event that lives.
        self.driver.check("cuEventSynchronize", unsafe { (self.driver.table.event_wait)(self.handle) })?;
        let mut ms = 0f32;
        // SAFETY: the pointer is to a number that lives across the call; both handles are of events that live.
        let code = unsafe { (self.driver.table.event_elapsed)(&raw mut ms, earlier.handle, self.handle) };
        self.driver.check("cuEventElapsedTime", code)?;
        Ok(Duration::from_secs_f64(f64::from(ms.max(0.0)) / 1e3))
    }
}

impl Drop for CudaEvent {
    fn drop(&mut self) {
        // SAFETY: the handle is of an event that lives, and is not used after this.
        let _ = unsafe { (self.driver.table.event_destroy)(self.handle) };
    }
}

/// Work that was recorded once and is launched as a whole.
pub struct Graph {
    driver: Driver,
    exec: Handle,
}

impl Graph {
    /// Queues it.
    ///
    /// # Errors
    /// If the driver refuses.
    pub fn launch(&self, stream: &Stream) -> Result<(), LibraryError> {
        // SAFETY: both handles are of things that live.
        let code = unsafe { (self.driver.table.graph_launch)(self.exec, stream.handle) };
        self.driver.check("cuGraphLaunch", code)
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        // SAFETY: the handle is of a graph that lives, and is not used after this.
        let _ = unsafe { (self.driver.table.graph_exec_destroy)(self.exec) };
    }
}

/// Compiled PTX.
pub struct Module {
    driver: Driver,
    handle: Handle,
}

/// A kernel. It must not outlive its module, and a wrong use of it is refused by the driver.
pub struct Function {
    handle: Handle,
    n_params: usize,
}

/// Blocks, and threads in each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Blocks.
    pub blocks: u32,
    /// Threads in a block.
    pub threads: u32,
}

impl Module {
    /// The kernel with this name and number of 64-bit parameters.
    ///
    /// # Errors
    /// If there is none.
    pub fn function(&self, name: &str, n_params: usize) -> Result<Function, LibraryError> {
        let text = CString::new(name).map_err(|error| LibraryError::World(error.to_string()))?;
        let mut handle = null_mut();
        // SAFETY: the name ends in a zero; the pointer is to a pointer that lives across the call.
        let code =
            unsafe { (self.driver.table.module_function)(&raw mut handle, self.handle, text.as_ptr()) };
        self.driver.check("cuModuleGetFunction", code)?;
        Ok(Function { handle, n_params })
    }
}

impl Drop for Module {
    fn drop(&mut self) {
        // SAFETY: the handle is of a module that lives. Its functions are dropped with the struct that holds both.
        let _ = unsafe { (self.driver.table.module_unload)(self.handle) };
    }
}
