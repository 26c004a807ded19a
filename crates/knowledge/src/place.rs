//! What a process does, told from its stack: where ranks stand that hold others up.
//!
//! Sources: the modules of PyTorch 2.1 to 2.11 and of CPython 3.9 to 3.14 that are named; glibc's and CUDA's function
//! names as gdb and `py-spy --native` print them.

/// What a thread is busy with, or waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Activity {
    /// torch.compile, Triton, a C++ extension.
    Compilation,
    /// Saving or loading a checkpoint.
    Checkpoint,
    /// Waiting for, or making, the next batch.
    DataLoader,
    /// Loggers, trackers, progress bars.
    Logging,
    /// A program that it started.
    Child,
    /// Python's collector of garbage.
    GarbageCollection,
    /// The interpreter's lock.
    Gil,
    /// Files, local or remote.
    Storage,
    /// Waiting for the GPU.
    GpuWait,
    /// Another call of the CUDA runtime.
    CudaCall,
    /// The GPU's driver, below CUDA.
    Driver,
    /// A lock, a queue, another thread.
    Lock,
}

impl Activity {
    /// For people: `rank 2 stands in …`.
    pub fn words(self) -> &'static str {
        match self {
            Self::Compilation => "a compilation",
            Self::Checkpoint => "a checkpoint",
            Self::DataLoader => "the data loader",
            Self::Logging => "logging",
            Self::Child => "a wait for a program that it started",
            Self::GarbageCollection => "garbage collection",
            Self::Gil => "a wait for Python's lock (GIL)",
            Self::Storage => "work on files",
            Self::GpuWait => "a wait for its GPU",
            Self::CudaCall => "a CUDA call",
            Self::Driver => "the GPU's driver",
            Self::Lock => "a wait for a lock or another thread",
        }
    }
}

/// A place: part of the file's path, and function; an empty one is any.
type Place = (&'static str, &'static [&'static str]);

/// Libraries and modules, outermost meaning first: a checkpoint that waits for a lock is a checkpoint.
const MODULES: &[(Activity, &[Place])] = &[
    (
        Activity::Compilation,
        &[
            ("torch/_inductor/", &[]),
            ("torch/_dynamo/convert_frame.py", &[]),
            ("torch/_dynamo/symbolic_convert.py", &[]),
            ("torch/_dynamo/output_graph.py", &[]),
            ("torch/_functorch/aot_autograd.py", &["create_aot_dispatcher_function", "aot_module_simplified"]),
            ("torch/utils/cpp_extension.py", &[]),
            ("torch/fx/experimental/", &[]),
            ("triton/compiler/", &[]),
            ("triton/backends/", &[]),
            ("triton/runtime/autotuner.py", &[]),
            ("triton/runtime/build.py", &[]),
        ],
    ),
    (
        Activity::Checkpoint,
        &[
            ("torch/serialization.py", &["save", "_save", "_legacy_save", "load", "_load", "_legacy_load"]),
            ("torch/distributed/checkpoint/", &[]),
            ("safetensors/", &[]),
            ("orbax/checkpoint/", &[]),
            ("", &["save_checkpoint", "load_checkpoint", "_save_checkpoint", "save_state_dict"]),
        ],
    ),
    (
        Activity::DataLoader,
        &[
            ("torch/utils/data/", &[]),
            ("webdataset/", &[]),
            ("nvidia/dali/", &[]),
            ("streaming/base/", &[]),
            ("tensorflow/python/data/", &[]),
            ("datasets/iterable_dataset.py", &[]),
            ("datasets/arrow_dataset.py", &[]),
            ("", &["next_batch", "get_batch", "load_batch", "fetch_batch", "__getitem__"]),
        ],
    ),
    (
        Activity::Logging,
        &[
            ("logging/", &[]),
            ("wandb/", &[]),
            ("mlflow/", &[]),
            ("comet_ml/", &[]),
            ("tensorboard/", &[]),
            ("torch/utils/tensorboard/", &[]),
            ("tqdm/", &[]),
            ("loguru/", &[]),
        ],
    ),
    (Activity::Child, &[("subprocess.py", &["wait", "_wait", "_try_wait", "communicate", "_communicate", "run"])]),
    (
        Activity::Storage,
        &[
            ("fsspec/", &[]),
            ("s3fs/", &[]),
            ("gcsfs/", &[]),
            ("boto3/", &[]),
            ("botocore/", &[]),
            ("h5py/", &[]),
            ("zarr/", &[]),
            ("pyarrow/", &[]),
            ("numpy/lib/npyio", &[]),
            ("numpy/lib/_npyio", &[]),
            ("PIL/ImageFile.py", &[]),
            ("shutil.py", &[]),
            ("tarfile.py", &[]),
            ("zipfile", &[]),
            ("gzip.py", &[]),
            ("pathlib", &["read_bytes", "read_text", "write_bytes", "write_text", "open", "stat", "exists"]),
        ],
    ),
    (
        Activity::Lock,
        &[
            ("threading.py", &["wait", "acquire", "join", "_wait_for_tstate_lock", "wait_for", "__enter__"]),
            ("multiprocessing/synchronize.py", &[]),
            ("multiprocessing/queues.py", &["get", "put"]),
            ("multiprocessing/connection.py", &["recv", "_recv", "wait", "poll"]),
            ("queue.py", &["get", "put"]),
            ("concurrent/futures/_base.py", &["result", "wait"]),
            ("filelock/", &[]),
        ],
    ),
];

/// Functions of libraries in machine code, by their beginning; a stack has several, the first that is listed counts.
const NATIVE: &[(Activity, &[&str])] = &[
    (Activity::Gil, &["take_gil", "PyEval_RestoreThread", "PyEval_AcquireThread", "PyGILState_Ensure"]),
    (Activity::GarbageCollection, &["gc_collect_main", "_PyGC_Collect", "deduce_unreachable"]),
    (Activity::GpuWait, GPU_WAITS),
    (Activity::CudaCall, &["cudaMemcpy", "cudaMalloc", "cudaFree", "cudaLaunch", "cudaGraph", "cudaHost"]),
    (Activity::CudaCall, &["cuMem", "cuLaunch", "cuModule", "cuLibrary", "cuGraph", "cuCtx", "cuInit"]),
    (Activity::Driver, &["nvidia_", "nvmlInit", "rm_ioctl", "os_acquire"]),
    (Activity::Storage, &["__GI___read", "__libc_read", "__GI___write", "__libc_write", "__libc_pread", "pread64"]),
    (Activity::Storage, &["fsync", "__GI_fsync", "fdatasync", "__libc_open", "__GI___open", "openat", "__fxstat"]),
    (Activity::Lock, &["pthread_mutex_lock", "___pthread_mutex_lock", "__lll_lock_wait", "pthread_cond_wait"]),
    (Activity::Lock, &["___pthread_cond_", "futex_wait", "__futex_", "sem_wait", "__new_sem_wait", "do_futex_wait"]),
];

/// Calls that return once the GPU has done its work.
const GPU_WAITS: &[&str] = &[
    "cudaStreamSynchronize",
    "cudaDeviceSynchronize",
    "cudaEventSynchronize",
    "cuStreamSynchronize",
    "cuCtxSynchronize",
    "cuEventSynchronize",
    "cuMemcpyDtoH",
];

/// Whether a function in machine code waits for work on the GPU.
pub fn is_gpu_wait(function: &str) -> bool {
    GPU_WAITS.iter().any(|name| function.starts_with(name))
}

/// What a stack shows its thread to be doing, and which of its frames says so. Frames are (function, file), innermost
/// first. A Python module says more than what it stands on.
pub fn of<'f>(frames: impl Iterator<Item = (&'f str, &'f str)> + Clone) -> Option<(Activity, usize)> {
    // A name begins a part of the path: `mywandb/` is not `wandb/`.
    let is_in = |file: &str, part: &str| {
        part.is_empty() || file.match_indices(part).any(|(at, _)| at == 0 || file.as_bytes().get(at - 1) == Some(&b'/'))
    };
    let in_python = frames.clone().any(|(_, file)| file.ends_with(".py"));
    for (activity, places) in MODULES {
        let fits = |(function, file): (&str, &str)| {
            file.ends_with(".py")
                && places.iter().any(|(part, functions)| {
                    is_in(file, part) && (functions.is_empty() || functions.contains(&function))
                })
        };
        // Waiting is told by the innermost Python frame alone: every program stands below some queue of its launcher.
        let near = if *activity == Activity::Lock { NEAR } else { usize::MAX };
        let mut python = frames.clone().enumerate().filter(|(_, (_, file))| file.ends_with(".py")).take(near);
        if let Some((at, _)) = python.find(|(_, frame)| fits(*frame)) {
            let below = (*activity == Activity::Lock).then(|| native(frames.clone())).flatten();
            return Some(below.filter(|(a, _)| *a == Activity::Gil).unwrap_or((*activity, at)));
        }
    }
    let torch_cuda = |(function, file): (&str, &str)| {
        (file.ends_with("torch/cuda/__init__.py") || file.ends_with("torch/cuda/streams.py"))
            && matches!(function, "synchronize" | "wait")
    };
    if let Some(at) = frames.clone().position(torch_cuda) {
        return Some((Activity::GpuWait, at));
    }
    let found = native(frames);
    // Below Python's own lock any program stands, now and then.
    found.filter(|(activity, _)| in_python || *activity != Activity::Gil)
}

/// Python frames within which a wait counts as where the thread stands.
const NEAR: usize = 4;

fn native<'f>(frames: impl Iterator<Item = (&'f str, &'f str)> + Clone) -> Option<(Activity, usize)> {
    let mut machine = frames.enumerate().filter(|(_, (_, file))| !file.ends_with(".py"));
    machine.find_map(|(at, (function, _))| {
        let fits = |names: &[&str]| names.iter().any(|name| function.starts_with(name));
        // The waits that everything ends in say least; what called them says more, so they are looked at last.
        NATIVE.iter().find(|(a, names)| *a != Activity::Lock && fits(names)).map(|(activity, _)| (*activity, at))
    })
}

#[cfg(test)]
mod tests {
    use super::{Activity, is_gpu_wait, of};

    fn does(frames: &[(&str, &str)]) -> Option<Activity> {
        of(frames.iter().copied()).map(|(activity, _)| activity)
    }

    #[test]
    fn a_module_says_more_than_what_it_stands_on() {
        let queue = [("wait", "threading.py"), ("get", "queue.py")];
        let loader = ("_next_data", "/opt/site-packages/torch/utils/data/dataloader.py");
        assert_eq!(does(&[queue[0], queue[1], loader, ("main", "/srv/train.py")]), Some(Activity::DataLoader));
        assert_eq!(does(&[queue[0], queue[1], ("main", "/srv/train.py")]), Some(Activity::Lock));
        let save = ("save", "torch/serialization.py");
        assert_eq!(does(&[("__libc_write", "libc.so.6"), save, ("main", "/srv/train.py")]), Some(Activity::Checkpoint));
        assert_eq!(does(&[("_do_compile", "torch/_inductor/codecache.py")]), Some(Activity::Compilation));
        assert_eq!(does(&[("emit", "logging/__init__.py"), ("main", "t.py")]), Some(Activity::Logging));
    }

    #[test]
    fn machine_code() {
        let main = ("step", "/srv/train.py");
        assert_eq!(does(&[("take_gil", "libpython3.12.so"), main]), Some(Activity::Gil));
        assert_eq!(does(&[("ioctl", "libc.so.6"), ("cudaMalloc", "libcudart.so.13"), main]), Some(Activity::CudaCall));
        assert_eq!(does(&[("cudaStreamSynchronize", "libcudart.so.13"), main]), Some(Activity::GpuWait));
        assert_eq!(does(&[("pread64", "libc.so.6"), main]), Some(Activity::Storage));
        assert!(is_gpu_wait("cudaDeviceSynchronize") && !is_gpu_wait("cudaMalloc"));
    }

    #[test]
    fn own_code_is_nothing_known() {
        assert_eq!(does(&[("step", "/srv/train.py"), ("main", "/srv/train.py")]), None);
        // Checkpoints of activations, and a directory of the program's own that is called like a library.
        assert_eq!(does(&[("forward", "torch/utils/checkpoint.py"), ("main", "/srv/train.py")]), None);
        assert_eq!(does(&[("send", "/srv/mywandb/train.py")]), None);
        // A program below a launcher's queue, far from where it stands.
        let own = ("step", "/srv/train.py");
        assert_eq!(does(&[own, own, own, own, own, ("get", "queue.py")]), None);
    }
}
