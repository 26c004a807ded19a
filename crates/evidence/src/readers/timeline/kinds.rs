//! What names of kernels and runtime calls mean. Each name is looked at once per file.

use ringleader_model::{OpKind, RuntimeCall, WorkKind};

/// What names of kernels that communicate hold, in lower case. Beside NCCL's and RCCL's: HCCL, oneCCL, NVSHMEM, DeepEP,
/// the all-reduce kernels of vLLM, TensorRT-LLM and SGLang, MSCCL++, and PyTorch's symmetric memory.
const COMM: [&str; 22] = [
    "nccldev",
    "ncclkernel",
    "ncclsymk",
    "rccl",
    "hccl",
    "oneccl",
    "nvshmem",
    "deep_ep",
    "internode::",
    "intranode::",
    "cross_device_reduce",
    "one_shot_all_reduce",
    "two_shot_all_reduce",
    "oneshotallreduce",
    "twoshotallreduce",
    "allreducefusion",
    "allreduce_fusion",
    "multimem_",
    "symm_mem",
    "mscclpp",
    "msccl",
    "all_gather_kernel_symm",
];

/// Whether a kernel communicates between ranks.
pub(super) fn is_comm_kernel(name: &str) -> bool {
    if name.starts_with("nccl") {
        return true;
    }
    let lower = name.to_ascii_lowercase();
    COMM.iter().any(|part| lower.contains(part))
}

/// What a call of the runtime or the driver does to the host.
pub(super) fn runtime_call(name: &str) -> RuntimeCall {
    let rest = ["cuda", "cu", "hip"].iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let has = |part: &str| rest.contains(part);
    if has("Synchronize") {
        RuntimeCall::Synchronize
    } else if rest.starts_with("Launch") || rest.starts_with("GraphLaunch") || has("LaunchKernel") {
        RuntimeCall::Launch
    } else if rest.starts_with("Memcpy") || rest.starts_with("Memset") {
        RuntimeCall::Copy
    } else if rest.starts_with("Malloc")
        || rest.starts_with("Free")
        || rest.starts_with("HostAlloc")
        || rest.starts_with("HostRegister")
        || rest.starts_with("MemCreate")
        || rest.starts_with("MemMap")
        || rest.starts_with("MemUnmap")
        || rest.starts_with("MemRelease")
        || rest.starts_with("MemSetAccess")
        || rest.starts_with("MemAddress")
        || rest.starts_with("MemAlloc")
        || rest.starts_with("MemFree")
    {
        RuntimeCall::Allocate
    } else {
        RuntimeCall::Other
    }
}

/// The kind of a copy or fill by its name: `Memcpy DtoH (Device -> Pageable)`.
pub(super) fn copy(name: &str) -> WorkKind {
    if name.starts_with("Memset") {
        return WorkKind::Fill;
    }
    let with_host = name.contains("HtoD") || name.contains("DtoH") || name.contains("Host");
    WorkKind::Copy { with_host, pageable: name.contains("Pageable") }
}

/// The kind of an operation by the name in its arguments (`allreduce`, `_allgather_base`), else by its kernel.
pub(super) fn op_kind(name: &str) -> Option<OpKind> {
    let letters: String =
        name.chars().filter(char::is_ascii_alphabetic).map(|c| c.to_ascii_lowercase()).collect();
    let has = |part: &str| letters.contains(part);
    let kind = if has("reducescatter") {
        OpKind::ReduceScatter
    } else if has("allreduce") || has("crossdevicereduce") {
        OpKind::AllReduce
    } else if has("allgather") {
        OpKind::AllGather
    } else if has("alltoall") {
        OpKind::AllToAll
    } else if has("broadcast") {
        OpKind::Broadcast
    } else if has("sendrecv") {
        return None;
    } else if has("barrier") {
        OpKind::Barrier
    } else if has("send") {
        OpKind::Send
    } else if has("recv") {
        OpKind::Recv
    } else if has("scatter") {
        OpKind::Scatter
    } else if has("gather") {
        OpKind::Gather
    } else if has("reduce") {
        OpKind::Reduce
    } else {
        return None;
    };
    Some(kind)
}

/// Bytes of an element of a type as PyTorch names it; 0 for an unknown one.
pub(super) fn element_bytes(dtype: &[u8]) -> u32 {
    match dtype {
        b"Double" | b"Long" | b"ComplexFloat" | b"UInt64" => 8,
        b"Float" | b"Int" | b"UInt32" | b"ComplexHalf" => 4,
        b"Half" | b"BFloat16" | b"Short" | b"UInt16" => 2,
        b"ComplexDouble" => 16,
        b"Byte" | b"Char" | b"Bool" => 1,
        other if other.starts_with(b"Float8") => 1,
        _ => 0,
    }
}

/// Bytes of an element of a type as NCCL names it (`ncclFloat32`); 0 for an unknown one.
pub(super) fn nccl_element_bytes(dtype: &[u8]) -> u32 {
    let name = dtype.strip_prefix(b"nccl").unwrap_or(dtype);
    if name.ends_with(b"64") || name == b"Double" {
        8
    } else if name.ends_with(b"32") || name == b"Float" || name == b"Int" {
        4
    } else if name.ends_with(b"16") || name == b"Half" {
        2
    } else {
        u32::from(name.ends_with(b"8") || name.starts_with(b"Float8") || name == b"Char")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_that_communicate() {
        for name in [
            "ncclKernel_AllReduce_RING_LL_Sum_float(ncclWorkElem)",
            "ncclDevKernel_Generic_1(ncclDevKernelArgsStorage<4096ul>)",
            "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
            "void deep_ep::internode::dispatch<true, 8>",
            "void c10d::symmetric_memory::multimem_all_reduce_kernel<float>",
            "nvshmemi_transfer_amo",
        ] {
            assert!(is_comm_kernel(name), "{name}");
        }
        for name in ["void gemm<true>", "reduce_kernel<512, 1, at::native::ReduceOp>", "all_reduce_host"] {
            assert!(!is_comm_kernel(name), "{name}");
        }
    }

    #[test]
    fn calls_by_what_they_do() {
        assert_eq!(runtime_call("cudaLaunchKernel_v7000"), RuntimeCall::Launch);
        assert_eq!(runtime_call("cuLaunchKernelEx"), RuntimeCall::Launch);
        assert_eq!(runtime_call("hipExtModuleLaunchKernel"), RuntimeCall::Launch);
        assert_eq!(runtime_call("cudaStreamSynchronize"), RuntimeCall::Synchronize);
        assert_eq!(runtime_call("cudaMallocAsync"), RuntimeCall::Allocate);
        assert_eq!(runtime_call("cuMemMap"), RuntimeCall::Allocate);
        assert_eq!(runtime_call("cudaMemsetAsync"), RuntimeCall::Copy);
        assert_eq!(runtime_call("cudaEventQuery"), RuntimeCall::Other);
    }

    #[test]
    fn operations_by_name() {
        assert_eq!(op_kind("_allgather_base"), Some(OpKind::AllGather));
        assert_eq!(op_kind("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"), Some(OpKind::ReduceScatter));
        assert_eq!(op_kind("ncclDevKernel_SendRecv"), None);
        assert_eq!(op_kind("all_to_allv"), Some(OpKind::AllToAll));
    }
}
