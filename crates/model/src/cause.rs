//! The closed list of causes.
//!
//! A cause is a variant here and a row in `knowledge/data/causes.toml` with its meaning and recommended actions. The
//! variants are written by hand rather than generated: this crate is below the table and reads no file, and a
//! generator that needs the program to compile could never add the first variant. The compiler keeps the two together:
//! the table's build refers to a variant for each row, in this order, so a row or a variant without its counterpart
//! does not compile.

use std::fmt;

macro_rules! causes {
    ($($variant:ident => $id:literal,)+) => {
        /// What went wrong, from the closed list.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Cause {
            $(#[doc = concat!("`", $id, "`")] $variant,)+
        }

        impl Cause {
            /// All causes, in the order of the list.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// The id that reports print: kebab-case, never reused.
            pub const fn id(self) -> &'static str {
                match self { $(Self::$variant => $id),+ }
            }
        }
    };
}

causes! {
    // General
    None => "none",
    Undecided => "undecided",
    // not a communication fault
    ApplicationException => "application-exception",
    FrameworkBuildWithoutNccl => "framework-build-without-nccl",
    // launch and rendezvous
    MissingRank => "missing-rank",
    RankEnvMisconfigured => "rank-env-misconfigured",
    DuplicateGpu => "duplicate-gpu",
    PortInUse => "port-in-use",
    HostnameResolution => "hostname-resolution",
    LauncherFailure => "launcher-failure",
    // collective logic
    SkippedCollective => "skipped-collective",
    ExtraCollective => "extra-collective",
    OpMismatch => "op-mismatch",
    ShapeMismatch => "shape-mismatch",
    DtypeMismatch => "dtype-mismatch",
    CollectiveOrderMismatch => "collective-order-mismatch",
    CollectiveDesync => "collective-desync",
    DeadlockCycle => "deadlock-cycle",
    ConcurrentCommunicators => "concurrent-communicators",
    UnmatchedP2p => "unmatched-p2p",
    UnevenInputs => "uneven-inputs",
    RankExitedEarly => "rank-exited-early",
    // processes and host
    ProcessKilled => "process-killed",
    ProcessCrashed => "process-crashed",
    PeerProcessDied => "peer-process-died",
    ProcessStopped => "process-stopped",
    StoppedFromOutside => "stopped-from-outside",
    ProcessUninterruptible => "process-uninterruptible",
    StorageFailure => "storage-failure",
    NodeLost => "node-lost",
    OomKilled => "oom-killed",
    StuckOutsideCollective => "stuck-outside-collective",
    SlowRankStall => "slow-rank-stall",
    TimeoutTooShort => "timeout-too-short",
    // GPU program
    CudaOom => "cuda-oom",
    IllegalMemoryAccess => "illegal-memory-access",
    DeviceAssert => "device-assert",
    GpuKernelStuck => "gpu-kernel-stuck",
    // GPU and fabric hardware
    GpuFallenOffBus => "gpu-fallen-off-bus",
    EccUncorrectable => "ecc-uncorrectable",
    RowRemapFailure => "row-remap-failure",
    NvlinkError => "nvlink-error",
    NvswitchError => "nvswitch-error",
    PcieError => "pcie-error",
    GspTimeout => "gsp-timeout",
    GpuThrottled => "gpu-throttled",
    FabricManagerDown => "fabric-manager-down",
    NvlsMulticast => "nvls-multicast",
    P2pAcsIommu => "p2p-acs-iommu",
    P2pUnsupported => "p2p-unsupported",
    GpuDriverBug => "gpu-driver-bug",
    CudaInitFailed => "cuda-init-failed",
    GpuBusy => "gpu-busy",
    GpuIsolation => "gpu-isolation",
    ImexDomain => "imex-domain",
    PcieDegraded => "pcie-degraded",
    // versions and settings
    DriverTooOldForCuda => "driver-too-old-for-cuda",
    NcclVersionMismatch => "nccl-version-mismatch",
    LibraryMismatch => "library-mismatch",
    NcclWrongGpuArch => "nccl-wrong-gpu-arch",
    NcclBugVersion => "nccl-bug-version",
    FrameworkBug => "framework-bug",
    NcclEnvMisconfigured => "nccl-env-misconfigured",
    NcclEnvMismatch => "nccl-env-mismatch",
    CumemConfig => "cumem-config",
    // host and container limits
    ShmFull => "shm-full",
    ShmPermission => "shm-permission",
    ShmStale => "shm-stale",
    ContainerConfig => "container-config",
    MemlockLimit => "memlock-limit",
    TooManyOpenFiles => "too-many-open-files",
    // network
    WrongInterface => "wrong-interface",
    FirewallOrPort => "firewall-or-port",
    RoutingOrRail => "routing-or-rail",
    NetworkConfigMismatch => "network-config-mismatch",
    NicHardware => "nic-hardware",
    NetworkLinkDown => "network-link-down",
    NetworkUnreachable => "network-unreachable",
    IbLinkDown => "ib-link-down",
    IbErrors => "ib-errors",
    IbGidOrRoceConfig => "ib-gid-or-roce-config",
    GdrPeermemMissing => "gdr-peermem-missing",
    MtuOrPfc => "mtu-or-pfc",
    NetPluginError => "net-plugin-error",
    TopologyFileError => "topology-file-error",
    // corruption
    SilentCorruption => "silent-corruption",
    NanLoss => "nan-loss",
    // performance
    Straggler => "straggler",
    SlowLink => "slow-link",
    WrongTransport => "wrong-transport",
    NoComputeOverlap => "no-compute-overlap",
    BandwidthBelowExpected => "bandwidth-below-expected",
    DataLoadingBound => "data-loading-bound",
    HostBound => "host-bound",
    SyncStalls => "sync-stalls",
    SmallMessages => "small-messages",
    AllocatorStalls => "allocator-stalls",
    TransferBound => "transfer-bound",
    LoadImbalance => "load-imbalance",
    PipelineBubble => "pipeline-bubble",
}

impl Cause {
    /// The cause with this id.
    pub fn of_id(id: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|cause| cause.id() == id)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.id())
    }
}

/// The default reaction of a supervisor of the job to a cause.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Restart: it may well succeed with the same nodes and program.
    Transient,
    /// Restart without the node.
    Node,
    /// Stop: a restart would fail at the same point.
    Program,
    /// The job was ended from outside: restarting it is not up to the supervisor.
    External,
    /// Restart within a small budget.
    Unknown,
}

impl Class {
    /// Stable name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::Node => "node",
            Self::Program => "program",
            Self::External => "external",
            Self::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::Cause;

    #[test]
    fn ids_find_their_variant() {
        for cause in Cause::ALL {
            assert_eq!(Cause::of_id(cause.id()), Some(*cause));
            // The id is the variant's name in kebab case: `UnmatchedP2p`, `unmatched-p2p`.
            assert_eq!(cause.id().replace('-', ""), format!("{cause:?}").to_lowercase());
        }
        assert_eq!(Cause::of_id("skipped collective"), None);
    }
}
