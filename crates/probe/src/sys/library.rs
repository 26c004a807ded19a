//! How a library is found and its functions are looked up.

use std::ffi::c_void;
use std::path::Path;

/// What a library gives for an object of its own, and takes back.
pub(super) type Handle = *mut c_void;

/// What went wrong with a library of the GPU.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// It cannot be opened.
    #[error("open {name}: {why}")]
    NoLibrary {
        /// Name or path.
        name: String,
        /// What the loader says.
        why: String,
    },
    /// It lacks a function that is needed.
    #[error("find {function} in {library}, which may be too old")]
    NoFunction {
        /// The library.
        library: &'static str,
        /// The symbol.
        function: &'static str,
    },
    /// The CUDA driver refused.
    #[error("{call}: {name} ({code})")]
    Cuda {
        /// The function.
        call: &'static str,
        /// CUresult.
        code: i32,
        /// Its name, `CUDA_ERROR_…`.
        name: String,
    },
    /// NCCL refused.
    #[error("{call}: {name} ({code}){last}")]
    Nccl {
        /// The function.
        call: &'static str,
        /// ncclResult_t.
        code: i32,
        /// Its text.
        name: String,
        /// What ncclGetLastError says, after a colon; else empty.
        last: String,
    },
    /// cuBLAS refused.
    #[error("{call}: cuBLAS status {code}")]
    Blas {
        /// The function.
        call: &'static str,
        /// cublasStatus_t.
        code: i32,
    },
    /// A wait passed its deadline.
    #[error("wait for {what}: nothing after {seconds} s")]
    Timeout {
        /// For what.
        what: String,
        /// How long.
        seconds: u64,
    },
    /// Another thread or process of this run failed first.
    #[error("continue: another rank of this run failed first")]
    Aborted,
    /// Ranks of a run cannot reach each other, or disagree.
    #[error("{0}")]
    World(String),
}

impl LibraryError {
    /// The CUDA driver says that the GPU or its memory is in use or full.
    pub fn is_out_of_memory(&self) -> bool {
        matches!(self, Self::Cuda { code: 2, .. })
    }

    /// cuBLAS says that this GPU or version has no such product.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Blas { code: 7 | 8 | 15, .. } | Self::NoFunction { .. })
    }
}

/// How much of a library its users see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    Local,
    /// Libraries that are opened later find its symbols.
    Global,
}

/// Opens a library for good.
pub(crate) fn open(name: &Path, scope: Scope) -> Result<&'static libloading::Library, LibraryError> {
    #[cfg(unix)]
    let opened = {
        use libloading::os::unix::{Library, RTLD_GLOBAL, RTLD_LOCAL, RTLD_NOW};
        let flags = RTLD_NOW | if scope == Scope::Global { RTLD_GLOBAL } else { RTLD_LOCAL };
        // SAFETY: the constructors of the driver's, NCCL's and cuBLAS's libraries ask nothing of their caller; a path of
        // the user's own choice is as trusted as a program that they start.
        unsafe { Library::open(Some(name), flags) }.map(libloading::Library::from)
    };
    #[cfg(not(unix))]
    let opened = {
        let _ = scope;
        // SAFETY: as above.
        unsafe { libloading::Library::new(name) }
    };
    let library = opened.map_err(|error| {
        let mut why = error.to_string();
        if let Some(source) = std::error::Error::source(&error) {
            why = source.to_string();
        }
        LibraryError::NoLibrary { name: name.display().to_string(), why }
    })?;
    Ok(Box::leak(Box::new(library)))
}

/// The function of this name, as a pointer of type `F`.
///
/// # Safety
/// `F` is the type of a pointer to a function with the signature that the library's header gives.
pub(crate) unsafe fn function<F: Copy + 'static>(
    library: &'static libloading::Library,
    name: &'static str,
) -> Option<F> {
    // SAFETY: by this function's contract.
    unsafe { library.get::<F>(name.as_bytes()) }.ok().map(|symbol| *symbol)
}

/// Declares a table of functions. Those under `optional` may be absent.
macro_rules! functions {
    (
        $(#[$doc:meta])* $table:ident of $library:literal {
            $($field:ident = $symbol:literal ($($arg:ty),* $(,)?);)*
            } optional {
            $($may:ident = $may_symbol:literal ($($may_arg:ty),* $(,)?);)*
        }
    ) => {
        $(#[$doc])*
        struct $table {
            $($field: unsafe extern "C" fn($($arg),*) -> i32,)*
            $($may: Option<unsafe extern "C" fn($($may_arg),*) -> i32>,)*
        }

        impl $table {
            fn find(library: &'static libloading::Library) -> Result<Self, LibraryError> {
                use $crate::sys::library::function;
                Ok(Self {
                    $($field: {
                        // SAFETY: the signature is the one of the header that the table names.
                        let found: Option<unsafe extern "C" fn($($arg),*) -> i32> = unsafe { function(library, $symbol) };
                        found.ok_or(LibraryError::NoFunction { library: $library, function: $symbol })?
                    },)*
                    $($may: {
                        // SAFETY: the signature is the one of the header that the table names.
                        unsafe { function(library, $may_symbol) }
                    },)*
                })
            }
        }
    };
}
pub(crate) use functions;
