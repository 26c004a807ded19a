//! CUDA errors as `cudaGetErrorString` words them: number, name, text. Source: the CUDA runtime reference, enum
//! `cudaError`, and the strings that NCCL and torch print (`Cuda failure 700 '…'`, `CUDA error: …`).

/// One error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CudaError {
    /// `cudaError` number.
    pub code: u16,
    /// Name.
    pub name: &'static str,
    /// Text.
    pub text: &'static str,
    /// After it every later CUDA call of the process fails with the same error: only the first one tells.
    pub sticky: bool,
}

const fn row(code: u16, name: &'static str, text: &'static str, sticky: bool) -> CudaError {
    CudaError { code, name, text, sticky }
}

static ERRORS: [CudaError; 30] = [
    row(1, "cudaErrorInvalidValue", "invalid argument", false),
    row(2, "cudaErrorMemoryAllocation", "out of memory", false),
    row(3, "cudaErrorInitializationError", "initialization error", false),
    row(
        35,
        "cudaErrorInsufficientDriver",
        "CUDA driver version is insufficient for CUDA runtime version",
        false,
    ),
    row(46, "cudaErrorDevicesUnavailable", "CUDA-capable device(s) is/are busy or unavailable", false),
    row(98, "cudaErrorInvalidDeviceFunction", "invalid device function", false),
    row(100, "cudaErrorNoDevice", "no CUDA-capable device is detected", false),
    row(101, "cudaErrorInvalidDevice", "invalid device ordinal", false),
    row(205, "cudaErrorMapBufferObjectFailed", "mapping of buffer object failed", false),
    row(
        209,
        "cudaErrorNoKernelImageForDevice",
        "no kernel image is available for execution on the device",
        false,
    ),
    row(214, "cudaErrorECCUncorrectable", "uncorrectable ECC error encountered", true),
    row(
        217,
        "cudaErrorPeerAccessUnsupported",
        "peer access is not supported between these two devices",
        false,
    ),
    row(
        220,
        "cudaErrorNvlinkUncorrectable",
        "uncorrectable NVLink error detected during the execution",
        true,
    ),
    row(
        222,
        "cudaErrorUnsupportedPtxVersion",
        "the provided PTX was compiled with an unsupported toolchain.",
        false,
    ),
    row(304, "cudaErrorOperatingSystem", "OS call failed or operation not supported on this OS", false),
    row(400, "cudaErrorInvalidResourceHandle", "invalid resource handle", false),
    row(700, "cudaErrorIllegalAddress", "an illegal memory access was encountered", true),
    row(702, "cudaErrorLaunchTimeout", "the launch timed out and was terminated", true),
    row(704, "cudaErrorPeerAccessAlreadyEnabled", "peer access is already enabled", false),
    row(710, "cudaErrorAssert", "device-side assert triggered", true),
    row(711, "cudaErrorTooManyPeers", "peer mapping resources exhausted", false),
    row(715, "cudaErrorIllegalInstruction", "an illegal instruction was encountered", true),
    row(716, "cudaErrorMisalignedAddress", "misaligned address", true),
    row(719, "cudaErrorLaunchFailure", "unspecified launch failure", true),
    row(800, "cudaErrorNotPermitted", "operation not permitted", false),
    row(801, "cudaErrorNotSupported", "operation not supported", false),
    row(802, "cudaErrorSystemNotReady", "system not yet initialized", false),
    row(
        803,
        "cudaErrorSystemDriverMismatch",
        "system has unsupported display driver / cuda driver combination",
        false,
    ),
    row(
        804,
        "cudaErrorCompatNotSupportedOnDevice",
        "forward compatibility was attempted on non supported HW",
        false,
    ),
    row(999, "cudaErrorUnknown", "unknown error", false),
];

/// All rows, by number.
pub fn all() -> &'static [CudaError] {
    &ERRORS
}

/// The error that a text names: by its words in NCCL's or torch's frame around them, or by its name.
pub fn in_text(text: &str) -> Option<&'static CudaError> {
    let framed =
        ["Cuda failure", "CUDA error", "CUDA failure", "CUDA driver error"].iter().any(|f| text.contains(f));
    ERRORS
        .iter()
        .filter(|e| framed && text.contains(e.text) || text.contains(e.name))
        .max_by_key(|e| e.text.len())
}
