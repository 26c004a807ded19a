//! `ncclResult_t`: numbers, names, texts and what they mean in practice. Source: `src/nccl.h.in` and
//! `ncclGetErrorString` in `src/init.cc` of NVIDIA/nccl, 2.14.3 to 2.30.7.

/// One result code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclResult {
    /// Number, as in `init.cc:904 -> 5`.
    pub code: u8,
    /// `ncclInvalidUsage`.
    pub name: &'static str,
    /// `ncclGetErrorString`, up to the hint in parentheses that older releases lack.
    pub text: &'static str,
    /// What it means in practice.
    pub meaning: &'static str,
}

static RESULTS: [NcclResult; 9] = [
    NcclResult { code: 0, name: "ncclSuccess", text: "no error", meaning: "nothing is wrong" },
    NcclResult {
        code: 1,
        name: "ncclUnhandledCudaError",
        text: "unhandled cuda error",
        meaning: "a CUDA call failed: with an Xid in the kernel log follow the Xid; without one think of memory, a bad \
                  pointer, peer access, multicast set-up, or a driver that is too old",
    },
    NcclResult {
        code: 2,
        name: "ncclSystemError",
        text: "unhandled system error",
        meaning: "a call of the host failed (socket, mmap, shared memory, verbs, NVML): the WARN before it names the \
                  call and its errno",
    },
    NcclResult {
        code: 3,
        name: "ncclInternalError",
        text: "internal error",
        meaning: "a check inside NCCL failed, mostly because a helper got nonsense (proxy, topology, mixed versions); \
                  seldom a bug of NCCL alone",
    },
    NcclResult {
        code: 4,
        name: "ncclInvalidArgument",
        text: "invalid argument",
        meaning: "a bad argument of this rank's own call; a size or type that differs between ranks never gives it",
    },
    NcclResult {
        code: 5,
        name: "ncclInvalidUsage",
        text: "invalid usage",
        meaning: "the interface was used against its rules: one GPU twice, no interface of that name, mixed versions, \
                  or ranks that disagree",
    },
    NcclResult {
        code: 6,
        name: "ncclRemoteError",
        text: "remote process exited or there was a network error",
        meaning: "the other side went away: look for the first rank that stopped, never at the reporter",
    },
    NcclResult {
        code: 7,
        name: "ncclInProgress",
        text: "NCCL operation in progress",
        meaning: "a non-blocking call is not finished; no error",
    },
    NcclResult {
        code: 8,
        name: "ncclTimeout",
        text: "timeout",
        meaning: "a device-side barrier of 2.30.3 or later ran out of time; ordinary collectives never give it",
    },
];

/// All codes in order.
pub fn all() -> &'static [NcclResult] {
    &RESULTS
}

/// By number.
pub fn get(code: u8) -> Option<&'static NcclResult> {
    RESULTS.get(code as usize)
}

/// The code that a text names, by its name (`ncclSystemError`) or its words (`unhandled system error`).
pub fn in_text(text: &str) -> Option<&'static NcclResult> {
    let failures = || RESULTS.iter().filter(|r| !matches!(r.code, 0 | 7));
    failures().find(|r| text.contains(r.name)).or_else(|| {
        // `timeout` and `invalid argument` are words of many other programs.
        failures().filter(|r| !matches!(r.code, 4 | 8)).find(|r| text.contains(r.text))
    })
}
