//! The content of an NCCL_DEBUG log, per process and communicator.

use crate::{Cite, GroupRank, Host, OpKind, PciAddress, Pid, WallTime, Who};

/// Everything read from the NCCL lines of one source.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NcclLog {
    /// Processes, by host and pid (and by launcher tag if lines lack both).
    pub processes: Vec<NcclProcess>,
    /// Communicators, one entry per process and pointer (a pointer reused after destroy is a new entry).
    pub comms: Vec<NcclComm>,
    /// COLL lines in file order.
    pub calls: Vec<NcclCall>,
    /// WARN lines, and INFO lines that report a failure (retries, async events).
    pub messages: Vec<NcclMessage>,
    /// `file:line -> code` back-trace lines.
    pub backtraces: Vec<NcclBacktrace>,
    /// `NCCL_X set by environment to …`.
    pub settings: Vec<NcclSetting>,
    /// Channels: the transport of each pair of ranks, with a count.
    pub links: Vec<NcclLink>,
    /// NCCL lines read.
    pub n_lines: u64,
    /// Number of COLL lines left out because a bound was reached; the oldest are left out.
    pub n_calls_dropped: u64,
    /// Whether the source ends within a line: more was written, so counts are lower bounds.
    pub truncated: bool,
    /// `n_calls_dropped` per communicator, by index into `comms`; empty if none was left out. The remaining calls of
    /// a communicator begin after this many.
    pub dropped_of_comm: Vec<u64>,
    /// Communicators that appear only in COLL lines, because the log begins later or INIT lines were masked. Calls
    /// of the first have `comm` = `u32::MAX`, of the second `u32::MAX - 1`, and so on.
    pub strangers: Vec<NcclStranger>,
}

/// A process that wrote NCCL lines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NcclProcess {
    /// Host, pid; rank and local rank only from a launcher's prefix.
    pub who: Who,
    /// `NCCL version 2.28.9+cuda13.0`, without the word.
    pub nccl_version: Option<Box<str>>,
    /// The line that states it.
    pub version_at: Option<Cite>,
    /// `cudaDriverVersion 13000`.
    pub cuda_driver_version: Option<u32>,
    /// Bootstrap interface and address: `eth0:192.0.2.2<0>`.
    pub bootstrap: Option<Box<str>>,
    /// `Using network X`.
    pub network: Option<Box<str>>,
    /// IB devices of `NET/IB : Using …`, as printed; None if there is no such line or it names none.
    pub ib_devices: Option<Box<str>>,
    /// Socket devices of `NET/Socket : Using …`.
    pub socket_devices: Option<Box<str>>,
    /// The line that names the IB devices, else the one that names the bootstrap interface.
    pub devices_at: Option<Cite>,
    /// First line of this process.
    pub first: Option<Cite>,
    /// Last line of this process before it fell silent.
    pub last: Option<Cite>,
    /// Time of the last line with a timestamp.
    pub last_at: Option<WallTime>,
}

/// One port of a list `[0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [RO]; OOB eth0:…`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VerbsPort<'a> {
    /// `mlx5_0`.
    pub device: &'a str,
    /// Its number.
    pub port: u32,
    /// `IB` or `RoCE`; empty if it is not printed.
    pub layer: &'a str,
}

impl VerbsPort<'_> {
    /// Of InfiniBand proper.
    pub fn is_infiniband(&self) -> bool {
        self.layer == "IB"
    }

    /// Of an Ethernet card.
    pub fn is_roce(&self) -> bool {
        self.layer.eq_ignore_ascii_case("RoCE")
    }
}

/// A network interface with its address: `[0]eth0:192.0.2.2<0>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket<'a> {
    /// `eth0`.
    pub interface: &'a str,
    /// `192.0.2.2`, as printed.
    pub address: &'a str,
}

impl<'a> Socket<'a> {
    /// None if the word names no interface.
    fn parse(word: &'a str) -> Option<Self> {
        let word =
            word.strip_prefix('[').and_then(|rest| rest.split_once(']')).map_or(word, |(_, rest)| rest);
        let (interface, rest) = word.split_once(':')?;
        let address = rest.split('<').next().unwrap_or_default();
        interface.bytes().any(|b| b.is_ascii_alphabetic()).then_some(Self { interface, address })
    }

    /// Whether the address is of IPv4's loopback.
    pub fn is_loopback(&self) -> bool {
        self.address.starts_with("127.") || self.address.contains(":127.")
    }
}

impl NcclProcess {
    /// The interface of the bootstrap.
    pub fn meets_at(&self) -> Option<Socket<'_>> {
        Socket::parse(self.bootstrap.as_deref()?.trim())
    }

    /// The interfaces of `socket_devices`.
    pub fn sockets(&self) -> impl Iterator<Item = Socket<'_>> {
        let devices = self.socket_devices.as_deref().unwrap_or_default();
        devices.split_whitespace().filter_map(Socket::parse)
    }

    /// NCCL chose its own network over sockets.
    pub fn uses_sockets(&self) -> bool {
        self.network.as_deref().is_some_and(|name| name.starts_with("Socket"))
    }

    /// NCCL chose its own network over InfiniBand or RoCE.
    pub fn uses_verbs(&self) -> bool {
        self.network.as_deref().is_some_and(|name| name.starts_with("IB"))
    }

    /// The ports of `ib_devices`.
    pub fn verbs_ports(&self) -> impl Iterator<Item = VerbsPort<'_>> {
        let list = self.ib_devices.as_deref().unwrap_or_default();
        let list = list.split(';').next().unwrap_or_default();
        list.split('[').filter_map(|part| {
            let (number, device) = part.split_once(']')?;
            number.parse::<u32>().ok()?;
            let (device, rest) = device.trim().split_once(':')?;
            let mut rest = rest.split('/').map(str::trim);
            Some(VerbsPort {
                device,
                port: rest.next()?.parse().ok()?,
                layer: rest.next().unwrap_or_default(),
            })
        })
    }
}

/// One communicator on one process, from init to destroy.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclComm {
    /// Index into `processes`.
    pub process: u32,
    /// Pointer; unique only inside its process.
    pub ptr: u64,
    /// Rank within the communicator.
    pub rank: GroupRank,
    /// Size.
    pub n_ranks: u32,
    /// CUDA device number of the process.
    pub cuda_dev: Option<u32>,
    /// NVML index.
    pub nvml_dev: Option<u32>,
    /// GPU.
    pub gpu: Option<PciAddress>,
    /// `commId`: equal on all members; absent for splits of NCCL 2.23 and later.
    pub comm_id: Option<u64>,
    /// Parent pointer of a split.
    pub parent: Option<u64>,
    /// Color of a split.
    pub color: Option<i64>,
    /// API that created it (`ncclCommInitRankConfig`, `ncclCommSplit`), if printed.
    pub api: Option<Box<str>>,
    /// `Init START` line; absent if the log begins later.
    pub started: Option<Cite>,
    /// `Init COMPLETE` line.
    pub completed: Option<Cite>,
    /// `Destroy COMPLETE` line.
    pub destroyed: Option<Cite>,
    /// `Abort START` or `Abort COMPLETE` line.
    pub aborted: Option<Cite>,
    /// Time of the first of these lines with a timestamp.
    pub at: Option<WallTime>,
}

/// One COLL line: the call was made (it does not show completion).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NcclCall {
    /// Number of elements.
    pub count: u64,
    /// Byte offset of the line.
    pub offset: u64,
    /// `opCount`; can stay 0 within a node.
    pub op_count: u64,
    /// Timestamp of the line, seconds since 1970; 0 = none.
    pub at_s: u32,
    /// Index into `comms`; beyond its end (`u32::MAX` and down, see `NcclLog::strangers`) if the communicator was
    /// never introduced.
    pub comm: u32,
    /// Line number.
    pub line: u32,
    /// Root of rooted collectives; the peer of send and recv.
    pub root: i32,
    /// Kind of operation.
    pub kind: OpKind,
    /// NCCL datatype number.
    pub datatype: u8,
    /// NCCL reduction number.
    pub redop: u8,
}

/// A communicator known only from COLL lines, which name neither rank nor GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NcclStranger {
    /// Index into `processes`; `u32::MAX` if the lines name no process.
    pub process: u32,
    /// Pointer.
    pub ptr: u64,
    /// Size.
    pub n_ranks: u32,
}

/// A WARN, or an INFO that reports a failure.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclMessage {
    /// Line.
    pub cite: Cite,
    /// Index into `processes`; `u32::MAX` if the line names no process.
    pub process: u32,
    /// Time, if stamped.
    pub at: Option<WallTime>,
    /// CUDA device of the calling thread.
    pub cuda_dev: Option<u32>,
    /// WARN (true) or INFO.
    pub is_warn: bool,
    /// `init.cc:904` as printed.
    pub origin: Option<Box<str>>,
    /// Text after `NCCL WARN `.
    pub text: Box<str>,
    /// Result code of the first back-trace line that followed in the same thread.
    pub result: Option<u8>,
}

/// `init.cc:1582 -> 5`.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclBacktrace {
    /// Line.
    pub cite: Cite,
    /// Index into `processes`.
    pub process: u32,
    /// `init.cc:1582`.
    pub origin: Box<str>,
    /// ncclResult_t.
    pub result: u8,
}

/// A variable that NCCL reports to have read.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclSetting {
    /// Line.
    pub cite: Cite,
    /// Index into `processes`.
    pub process: u32,
    /// `NCCL_NVLS_ENABLE`.
    pub name: Box<str>,
    /// Value as printed.
    pub value: Box<str>,
}

/// Channels between two ranks of one communicator over one transport.
#[derive(Clone, Debug, PartialEq)]
pub struct NcclLink {
    /// First such line.
    pub cite: Cite,
    /// Index into `processes`.
    pub process: u32,
    /// Sender's rank in the communicator.
    pub from: GroupRank,
    /// Receiver's rank.
    pub to: GroupRank,
    /// Text after `via `: `P2P/CUMEM`, `SHM/direct/direct`, `NET/IB/0/GDRDMA`.
    pub transport: Box<str>,
    /// What that is.
    pub over: NcclTransport,
    /// `[send]`/`[receive]` of NET lines: Some(true) = send.
    pub is_send: Option<bool>,
    /// Number of channels.
    pub n_channels: u32,
}

/// Over what a channel goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NcclTransport {
    /// Between GPUs of one host: `P2P/CUMEM`.
    PeerToPeer,
    /// Through shared memory of the host: `SHM/direct/direct`, older: `direct shared memory`.
    SharedMemory,
    /// Over sockets: `NET/Socket/0`.
    Sockets,
    /// Over InfiniBand or RoCE: `NET/IB/0`, with the number of the device in NCCL's list. A plugin's numbers are its own.
    Verbs(Option<u32>),
    /// Over another network.
    Network,
    /// Over anything else.
    Other,
}

impl NcclTransport {
    /// Of the text after `via `.
    pub fn parse(text: &str) -> Self {
        let mut parts = text.split('/');
        let (head, network) = (parts.next().unwrap_or_default(), parts.next());
        match network.filter(|_| head == "NET") {
            Some(name) if name.starts_with("Socket") => Self::Sockets,
            Some("IB") => Self::Verbs(parts.next().and_then(|n| n.parse().ok())),
            Some(name) if name.starts_with("IB") => Self::Verbs(None),
            Some(_) => Self::Network,
            None if head.starts_with("P2P") => Self::PeerToPeer,
            None if head.starts_with("SHM") || head.starts_with("direct shared") => Self::SharedMemory,
            None => Self::Other,
        }
    }
}

impl NcclLink {
    /// Through shared memory of the host.
    pub fn is_shared_memory(&self) -> bool {
        self.over == NcclTransport::SharedMemory
    }

    /// Over a network, of any kind.
    pub fn is_network(&self) -> bool {
        matches!(self.over, NcclTransport::Sockets | NcclTransport::Verbs(_) | NcclTransport::Network)
    }

    /// Over sockets.
    pub fn is_sockets(&self) -> bool {
        self.over == NcclTransport::Sockets
    }

    /// Over InfiniBand or RoCE.
    pub fn is_verbs(&self) -> bool {
        matches!(self.over, NcclTransport::Verbs(_))
    }

    /// Between NIC and GPU without the host's memory (GPUDirect RDMA).
    pub fn is_direct(&self) -> bool {
        self.transport.contains("GDRDMA")
    }
}

/// Host and pid as an NCCL line prints them.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPid {
    /// Host.
    pub host: Host,
    /// Process.
    pub pid: Pid,
}

#[cfg(test)]
mod tests {
    use super::NcclTransport;
    use super::{NcclProcess, Socket};

    #[test]
    fn transports_as_nccl_prints_them() {
        for (text, transport) in [
            ("P2P/CUMEM", NcclTransport::PeerToPeer),
            ("SHM/direct/direct", NcclTransport::SharedMemory),
            ("direct shared memory", NcclTransport::SharedMemory),
            ("NET/Socket/0", NcclTransport::Sockets),
            ("NET/IB/3/GDRDMA", NcclTransport::Verbs(Some(3))),
            ("NET/IBext_v9/0", NcclTransport::Verbs(None)),
            ("NET/Libfabric/1", NcclTransport::Network),
            ("COLLNET", NcclTransport::Other),
        ] {
            assert_eq!(NcclTransport::parse(text), transport, "{text}");
        }
    }

    #[test]
    fn sockets_of_a_process() {
        let process = |bootstrap: &str, devices: &str| NcclProcess {
            bootstrap: Some(bootstrap.into()),
            socket_devices: Some(devices.into()),
            ..NcclProcess::default()
        };
        let of = process("eth0:192.0.2.2<0>", "[0]bond0:192.168.42.7<0> [1]bond0.2973:10.0.106.189<0> [2]");
        assert_eq!(of.meets_at(), Some(Socket { interface: "eth0", address: "192.0.2.2" }));
        let names: Vec<_> = of.sockets().map(|s| (s.interface, s.address)).collect();
        assert_eq!(names, [("bond0", "192.168.42.7"), ("bond0.2973", "10.0.106.189")]);
        // NCCL 2.4 to 2.7 number the one interface of the bootstrap.
        let of = process("[0]lo:127.0.0.1<0>", "");
        assert!(of.meets_at().is_some_and(|s| s.interface == "lo" && s.is_loopback()));
        assert_eq!(process("", "").meets_at(), None);
    }
}
