//! cuBLAS and cuBLASLt. Signatures: cublas_api.h and cublasLt.h of CUDA 11 to 13.

use std::ffi::c_void;
use std::path::{Path, PathBuf};
use std::ptr::null_mut;

use super::cuda::{Buffer, Device, Stream};
use super::library::{Handle, LibraryError, Scope, functions, open};

functions! {
    /// Functions of libcublas.so.
    Table of "libcublas.so" {
        create = "cublasCreate_v2" (*mut Handle);
        destroy = "cublasDestroy_v2" (Handle);
        set_stream = "cublasSetStream_v2" (Handle, Handle);
        set_workspace = "cublasSetWorkspace_v2" (Handle, u64, usize);
        version = "cublasGetVersion_v2" (Handle, *mut i32);
        gemm = "cublasGemmEx" (
            Handle, i32, i32, i32, i32, i32, *const c_void, u64, i32, i32, u64, i32, i32, *const c_void, u64, i32, i32, i32, i32,
        );
    } optional {
        set_emulation = "cublasSetEmulationStrategy" (Handle, i32);
    }
}

functions! {
    /// Functions of libcublasLt.so.
    LtTable of "libcublasLt.so" {
        create = "cublasLtCreate" (*mut Handle);
        destroy = "cublasLtDestroy" (Handle);
        desc_create = "cublasLtMatmulDescCreate" (*mut Handle, i32, i32);
        desc_set = "cublasLtMatmulDescSetAttribute" (Handle, i32, *const c_void, usize);
        desc_destroy = "cublasLtMatmulDescDestroy" (Handle);
        layout_create = "cublasLtMatrixLayoutCreate" (*mut Handle, i32, u64, u64, i64);
        layout_destroy = "cublasLtMatrixLayoutDestroy" (Handle);
        preference_create = "cublasLtMatmulPreferenceCreate" (*mut Handle);
        preference_set = "cublasLtMatmulPreferenceSetAttribute" (Handle, i32, *const c_void, usize);
        preference_destroy = "cublasLtMatmulPreferenceDestroy" (Handle);
        heuristic = "cublasLtMatmulAlgoGetHeuristic" (
            Handle, Handle, Handle, Handle, Handle, Handle, Handle, i32, *mut Heuristic, *mut i32,
        );
        matmul = "cublasLtMatmul" (
            Handle, Handle, *const c_void, u64, Handle, u64, Handle, *const c_void, u64, Handle, u64, Handle, *const Heuristic,
            u64, usize, Handle,
        );
    } optional {
    }
}

/// cublasLtMatmulHeuristicResult_t. It begins with the algorithm, of 64 bytes, which is what a pointer to it is taken for.
#[derive(Clone, Copy)]
#[repr(C)]
struct Heuristic {
    algo: [u64; 8],
    workspace_bytes: usize,
    state: i32,
    waves: f32,
    reserved: [i32; 4],
}

const _: () = assert!(size_of::<Heuristic>() == 96);

/// cublasOperation_t.
const NONE: i32 = 0;
const TRANSPOSE: i32 = 1;
/// CUBLAS_GEMM_DEFAULT.
const DEFAULT: i32 = -1;
/// The same on every GPU: heuristics look at it.
const WORKSPACE_BYTES: usize = 32 << 20;
const DESC_TRANSPOSE_A: i32 = 3;
const PREFERENCE_WORKSPACE: i32 = 1;
const PREFERENCE_REDUCTIONS: i32 = 3;

/// A kind of matrix product, by the types of what goes in, what comes out, and what is computed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Product {
    /// bfloat16, added in single precision, kept in single precision.
    Bf16,
    /// Half, likewise.
    F16,
    /// Single, rounded to TF32 on the way into the tensor cores.
    Tf32,
    /// Single.
    F32,
    /// Double.
    F64,
    /// 8 bits of float (E4M3), through cuBLASLt.
    F8,
}

impl Product {
    /// All.
    pub const ALL: [Self; 6] = [Self::Bf16, Self::F16, Self::Tf32, Self::F32, Self::F64, Self::F8];

    /// cudaDataType of the inputs, of the output, and cublasComputeType_t.
    fn types(self) -> (i32, i32, i32) {
        match self {
            Self::Bf16 => (14, 0, 68),
            Self::F16 => (2, 0, 68),
            Self::Tf32 => (0, 0, 77),
            Self::F32 => (0, 0, 68),
            Self::F64 => (1, 1, 70),
            Self::F8 => (28, 0, 68),
        }
    }

    /// Bytes of an element that goes in.
    pub fn in_bytes(self) -> usize {
        match self {
            Self::Bf16 | Self::F16 => 2,
            Self::Tf32 | Self::F32 => 4,
            Self::F64 => 8,
            Self::F8 => 1,
        }
    }

    /// Bytes of an element that comes out.
    pub fn out_bytes(self) -> usize {
        if self == Self::F64 { 8 } else { 4 }
    }
}

/// cuBLAS, once loaded.
#[derive(Clone, Copy)]
pub struct Blas {
    table: &'static Table,
    lt: &'static LtTable,
}

impl Blas {
    /// Opens cuBLAS 11 to 13 in one of these folders, else where the loader looks.
    ///
    /// # Errors
    /// If there is none.
    pub fn load(folders: &[PathBuf]) -> Result<(Self, PathBuf), LibraryError> {
        let places = folders.iter().map(PathBuf::as_path).chain([Path::new("")]);
        let mut last = None;
        for folder in places {
            for major in [13, 12, 11] {
                let path = |name: &str| folder.join(format!("{name}.so.{major}"));
                if !folder.as_os_str().is_empty() && !path("libcublas").exists() {
                    continue;
                }
                // cuBLAS needs the cublasLt beside it, which the loader finds because it is there already.
                let opened = open(&path("libcublasLt"), Scope::Global)
                    .and_then(|lt| Ok((lt, open(&path("libcublas"), Scope::Local)?)));
                match opened {
                    Ok((lt, library)) => {
                        let lt = Box::leak(Box::new(LtTable::find(lt)?));
                        let table = Box::leak(Box::new(Table::find(library)?));
                        return Ok((Self { table, lt }, path("libcublas")));
                    }
                    Err(error) => last = last.or(Some(error)),
                }
            }
        }
        Err(last.unwrap_or(LibraryError::NoLibrary {
            name: "libcublas.so".to_owned(),
            why: "not found".to_owned(),
        }))
    }

    /// A handle for the GPU that is current in this thread, with a workspace and a stream of its own.
    ///
    /// # Errors
    /// If cuBLAS cannot be started or the GPU is full.
    pub fn handle(self, device: &Device, stream: &Stream) -> Result<BlasHandle, LibraryError> {
        let workspace = device.alloc(WORKSPACE_BYTES)?;
        let (mut handle, mut lt) = (null_mut(), null_mut());
        // SAFETY: the pointer is to a pointer that lives across the call.
        check("cublasCreate", unsafe { (self.table.create)(&raw mut handle) })?;
        // SAFETY: the pointer is to a pointer that lives across the call.
        let code = unsafe { (self.lt.create)(&raw mut lt) };
        let out = BlasHandle { blas: self, handle, lt, workspace };
        check("cublasLtCreate", code)?;
        // SAFETY: both handles are of things that live.
        check("cublasSetStream", unsafe { (self.table.set_stream)(handle, stream.handle()) })?;
        // SAFETY: the workspace lives as long as the handle.
        let code = unsafe { (self.table.set_workspace)(handle, out.workspace.address(), WORKSPACE_BYTES) };
        check("cublasSetWorkspace", code)?;
        if let Some(set) = self.table.set_emulation {
            // SAFETY: 0 is CUBLAS_EMULATION_STRATEGY_DEFAULT: only what the math mode allows, and the default allows none.
            let _ = unsafe { set(handle, 0) };
        }
        Ok(out)
    }
}

fn check(call: &'static str, code: i32) -> Result<(), LibraryError> {
    if code == 0 { Ok(()) } else { Err(LibraryError::Blas { call, code }) }
}

/// cuBLAS on one GPU.
pub struct BlasHandle {
    blas: Blas,
    handle: Handle,
    lt: Handle,
    workspace: Buffer,
}

impl BlasHandle {
    /// cuBLAS's version: 130100 is 13.1.
    pub fn version(&self) -> i32 {
        let mut version = 0;
        // SAFETY: the pointer is to a number that lives across the call.
        let _ = unsafe { (self.blas.table.version)(self.handle, &raw mut version) };
        version
    }

    /// Queues C = Aᵀ B for square matrices of `n` rows, column after column. `n` is a multiple of 16.
    ///
    /// # Errors
    /// If cuBLAS refuses; see [`LibraryError::is_unsupported`].
    pub fn product(
        &self,
        kind: Product,
        n: usize,
        (a, b, c): (u64, u64, u64),
        stream: &Stream,
    ) -> Result<(), LibraryError> {
        let (of_in, of_out, compute) = kind.types();
        let size = n as i32;
        let (single, double) = ([1f32, 0f32], [1f64, 0f64]);
        let scale = |k: usize| -> *const c_void {
            if kind == Product::F64 {
                std::ptr::from_ref(&double[k]).cast()
            } else {
                std::ptr::from_ref(&single[k]).cast()
            }
        };
        if kind == Product::F8 {
            return self.product_lt(kind, n, (a, b, c), (scale(0), scale(1)), stream);
        }
        // SAFETY: the scalars live across the call and are of the type that the compute type names; wrong addresses of GPU
        // memory stop the context and no more.
        let code = unsafe {
            (self.blas.table.gemm)(
                self.handle,
                TRANSPOSE,
                NONE,
                size,
                size,
                size,
                scale(0),
                a,
                of_in,
                size,
                b,
                of_in,
                size,
                scale(1),
                c,
                of_out,
                size,
                compute,
                DEFAULT,
            )
        };
        check("cublasGemmEx", code)
    }

    fn product_lt(
        &self,
        kind: Product,
        n: usize,
        (a, b, c): (u64, u64, u64),
        (one, zero): (*const c_void, *const c_void),
        stream: &Stream,
    ) -> Result<(), LibraryError> {
        let lt = self.blas.lt;
        let (of_in, of_out, compute) = kind.types();
        let desc = BlasDescriptor::new("cublasLtMatmulDescCreate", lt.desc_destroy, |out| {
            // SAFETY: the pointer is to a pointer that lives across the call.
            unsafe { (lt.desc_create)(out, compute, of_out) }
        })?;
        let transpose = TRANSPOSE;
        // SAFETY: the attribute is a number of 4 bytes that lives across the call.
        let code = unsafe {
            (lt.desc_set)(
                desc.handle,
                DESC_TRANSPOSE_A,
                std::ptr::from_ref(&transpose).cast(),
                size_of::<i32>(),
            )
        };
        check("cublasLtMatmulDescSetAttribute", code)?;
        let layout = |of: i32| {
            BlasDescriptor::new("cublasLtMatrixLayoutCreate", lt.layout_destroy, |out| {
                // SAFETY: the pointer is to a pointer that lives across the call.
                unsafe { (lt.layout_create)(out, of, n as u64, n as u64, n as i64) }
            })
        };
        let (of_a, of_b, of_c) = (layout(of_in)?, layout(of_in)?, layout(of_out)?);
        let preference =
            BlasDescriptor::new("cublasLtMatmulPreferenceCreate", lt.preference_destroy, |out| {
                // SAFETY: the pointer is to a pointer that lives across the call.
                unsafe { (lt.preference_create)(out) }
            })?;
        let (bytes, reductions) = (WORKSPACE_BYTES as u64, 0u32);
        // SAFETY: the attribute is a number of 8 bytes that lives across the call.
        let code = unsafe {
            (lt.preference_set)(preference.handle, PREFERENCE_WORKSPACE, std::ptr::from_ref(&bytes).cast(), 8)
        };
        check("cublasLtMatmulPreferenceSetAttribute", code)?;
        // SAFETY: the attribute is a number of 4 bytes that lives across the call.
        let code = unsafe {
            (lt.preference_set)(
                preference.handle,
                PREFERENCE_REDUCTIONS,
                std::ptr::from_ref(&reductions).cast(),
                4,
            )
        };
        check("cublasLtMatmulPreferenceSetAttribute", code)?;
        let mut best = Heuristic { algo: [0; 8], workspace_bytes: 0, state: 0, waves: 0.0, reserved: [0; 4] };
        let mut found = 0;
        // SAFETY: all handles are of things that live; one result of the header's layout is asked for.
        let code = unsafe {
            (lt.heuristic)(
                self.lt,
                desc.handle,
                of_a.handle,
                of_b.handle,
                of_c.handle,
                of_c.handle,
                preference.handle,
                1,
                &raw mut best,
                &raw mut found,
            )
        };
        check("cublasLtMatmulAlgoGetHeuristic", code)?;
        if found == 0 {
            return Err(LibraryError::Blas { call: "cublasLtMatmulAlgoGetHeuristic", code: 15 });
        }
        // SAFETY: all handles are of things that live; the algorithm is the one that cuBLASLt gave, at the start of the result.
        let code = unsafe {
            (lt.matmul)(
                self.lt,
                desc.handle,
                one,
                a,
                of_a.handle,
                b,
                of_b.handle,
                zero,
                c,
                of_c.handle,
                c,
                of_c.handle,
                &raw const best,
                self.workspace.address(),
                WORKSPACE_BYTES,
                stream.handle(),
            )
        };
        check("cublasLtMatmul", code)
    }
}

impl Drop for BlasHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is of this struct, and is not used after this.
        let _ = unsafe { (self.blas.table.destroy)(self.handle) };
        if !self.lt.is_null() {
            // SAFETY: the handle is of this struct, and is not used after this.
            let _ = unsafe { (self.blas.lt.destroy)(self.lt) };
        }
    }
}

/// A description that cuBLASLt made, and how it is given back.
struct BlasDescriptor {
    handle: Handle,
    destroy: unsafe extern "C" fn(Handle) -> i32,
}

impl BlasDescriptor {
    fn new(
        call: &'static str,
        destroy: unsafe extern "C" fn(Handle) -> i32,
        create: impl FnOnce(*mut Handle) -> i32,
    ) -> Result<Self, LibraryError> {
        let mut handle = null_mut();
        check(call, create(&raw mut handle))?;
        Ok(Self { handle, destroy })
    }
}

impl Drop for BlasDescriptor {
    fn drop(&mut self) {
        // SAFETY: the handle is of what this struct made, and is not used after this.
        let _ = unsafe { (self.destroy)(self.handle) };
    }
}
