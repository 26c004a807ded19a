//! The fabric and the network, from the output of their tools.

use std::net::Ipv4Addr;

use crate::{Host, PciAddress, Pid};

/// One output of a network tool.
#[derive(Clone, Debug, PartialEq)]
pub enum NetFact {
    /// A port of an RDMA device: ibstat, ibstatus, ibv_devinfo, `rdma link`, mlxlink, sysfs.
    Port(RdmaPort),
    /// Counters of a port or an interface at one moment: perfquery, sysfs, `ethtool -S`.
    Counters(PortCounters),
    /// A row of show_gids.
    Gid(GidEntry),
    /// A network interface: `ip addr`, `ip -br addr`, `ip link`, ethtool.
    Interface(Interface),
    /// A route of `ip route`.
    Route(Route),
    /// A listening socket: `ss -l`, netstat.
    Listener {
        /// Address and port as printed: `0.0.0.0:29500`.
        local: Box<str>,
        /// Program and process that hold the socket (`ss -p`, `netstat -p`); None if the tool was not asked for it
        /// or lacked permission.
        holder: Option<(Box<str>, Pid)>,
    },
    /// A test of one path: nc, ping.
    Reach(Reach),
    /// A measurement of perftest (ib_write_bw and its siblings).
    Perftest(Perftest),
    /// A problem that ibdiagnet found.
    Fabric {
        /// Whether it is an error rather than a warning.
        is_error: bool,
        /// The names in the path of its port: of the node, and of the system that it belongs to.
        nodes: Vec<Host>,
        /// The text.
        text: Box<str>,
    },
}

/// A port of an RDMA device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RdmaPort {
    /// `mlx5_0`; empty if the tool's output does not name it.
    pub device: Box<str>,
    /// Port number, from 1.
    pub port: u32,
    /// State of the link: `ACTIVE`, `DOWN`, `INIT`, `ARMED`, in capitals.
    pub state: Option<Box<str>>,
    /// Physical state as printed, in capitals: `LINKUP`, `POLLING`, `DISABLED`.
    pub phys_state: Option<Box<str>>,
    /// Data rate, Gb/s.
    pub rate_gbps: Option<f64>,
    /// Lanes, if printed (`4X`).
    pub lanes: Option<u32>,
    /// `InfiniBand` or `Ethernet`.
    pub link_layer: Option<Box<str>>,
    /// Current MTU, bytes (ibv_devinfo).
    pub active_mtu: Option<u32>,
    /// Largest MTU, bytes.
    pub max_mtu: Option<u32>,
    /// Network interface, if the tool names it.
    pub netdev: Option<Box<str>>,
    /// Local identifier, by which perfquery names the port.
    pub lid: Option<u32>,
}

impl RdmaPort {
    /// Whether data can flow; None if the tool does not show it.
    pub fn is_up(&self) -> Option<bool> {
        self.state.as_deref().map(|s| s == "ACTIVE")
    }
}

/// Counters at one moment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PortCounters {
    /// Verbs device or network interface; empty if there is only a `lid`.
    pub device: Box<str>,
    /// Port number; 0 if it has none.
    pub port: u32,
    /// Local identifier, if perfquery printed it.
    pub lid: Option<u32>,
    /// Error counters as printed: line, name and value; traffic counters are left out.
    pub errors: Vec<(u32, Box<str>, u64)>,
    /// Bytes or words transferred, to distinguish an idle port from a busy one.
    pub moved: Option<u64>,
}

/// A row of show_gids.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GidEntry {
    /// `mlx5_0`.
    pub device: Box<str>,
    /// Port.
    pub port: u32,
    /// Index, the value for NCCL_IB_GID_INDEX.
    pub index: u32,
    /// The GID.
    pub gid: Box<str>,
    /// IPv4 address, if the GID contains one.
    pub ipv4: Option<Box<str>>,
    /// RoCE v2 (true) or v1 (false).
    pub is_v2: bool,
    /// Network interface.
    pub netdev: Box<str>,
}

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interface {
    /// `eth0`.
    pub name: Box<str>,
    /// `UP`, `DOWN`, `UNKNOWN`, `LOWERLAYERDOWN`; None if not printed.
    pub state: Option<Box<str>>,
    /// Flags in the angle brackets: `BROADCAST,MULTICAST,UP,LOWER_UP`.
    pub flags: Box<str>,
    /// MTU, bytes.
    pub mtu: Option<u32>,
    /// Addresses without their prefix length.
    pub addresses: Vec<Box<str>>,
    /// IPv4 networks of these addresses (`192.0.2.0/24`), where the prefix length is printed.
    pub networks: Vec<Box<str>>,
    /// Speed, Mb/s (ethtool).
    pub speed_mbps: Option<u64>,
    /// `Link detected` of ethtool.
    pub link_detected: Option<bool>,
}

impl Interface {
    /// The IPv4 network of an address with its prefix length: `192.0.2.0/24` of `192.0.2.7/24`; None without a length, and of
    /// links between two hosts (`/31`, `/32`).
    pub fn network_of(address: &str) -> Option<Box<str>> {
        let (base, length) = address.split_once('/')?;
        let (base, length): (Ipv4Addr, u32) = (base.parse().ok()?, length.parse().ok()?);
        let host_bits = 32_u32.checked_sub(length).filter(|bits| *bits > 1)?;
        let mask = u32::MAX.checked_shl(host_bits).unwrap_or(0);
        Some(format!("{}/{length}", Ipv4Addr::from(u32::from(base) & mask)).into())
    }

    /// Whether the tool reports that the link works; None if it does not say.
    pub fn is_up(&self) -> Option<bool> {
        if let Some(link) = self.link_detected {
            return Some(link);
        }
        match self.state.as_deref()? {
            "UP" => Some(true),
            "DOWN" | "LOWERLAYERDOWN" | "NOTPRESENT" => Some(false),
            // Loopback and tunnels have no carrier.
            _ => None,
        }
    }
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Route {
    /// `default` or `192.0.2.0/24`.
    pub to: Box<str>,
    /// Gateway.
    pub via: Option<Box<str>>,
    /// Interface.
    pub device: Option<Box<str>>,
    /// `linkdown`, `unreachable`, `blackhole`, `prohibit`: the route carries nothing.
    pub is_dead: bool,
}

impl Route {
    /// Whether it is a row of a table, which names a network; `ip route get` prints one address.
    pub fn names_network(&self) -> bool {
        self.to.contains('/')
    }

    /// How many bits of its network an address shares, if it is in it: the longest one is taken.
    pub fn covers(&self, address: Ipv4Addr) -> Option<u32> {
        if &*self.to == "default" {
            return Some(0);
        }
        let (base, length) = self.to.split_once('/').unwrap_or((&self.to, "32"));
        let (base, length): (Ipv4Addr, u32) = (base.parse().ok()?, length.parse().ok()?);
        let mask = u32::MAX.checked_shl(32_u32.checked_sub(length)?).unwrap_or(0);
        (u32::from(base) & mask == u32::from(address) & mask).then_some(length)
    }
}

/// A test of one path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reach {
    /// `nc` or `ping`.
    pub tool: Box<str>,
    /// Target.
    pub host: Box<str>,
    /// Port; None for ping.
    pub port: Option<u32>,
    /// Outcome.
    pub outcome: ReachOutcome,
    /// Payload, bytes, if printed (`ping -s`).
    pub payload_bytes: Option<u32>,
    /// MTU that the packet exceeded, if fragmentation was forbidden and it was too large.
    pub too_large_for: Option<u32>,
}

/// Outcome of a path test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReachOutcome {
    /// It answers.
    Answers,
    /// The host answers, but nothing listens on the port.
    Refused,
    /// No answer.
    #[default]
    TimedOut,
    /// There is no route.
    NoRoute,
    /// The name cannot be resolved.
    UnknownHost,
    /// Some packets were lost: percent.
    Lossy(u8),
}

/// A run of perftest.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Perftest {
    /// `RDMA_Write BW Test`.
    pub test: Box<str>,
    /// Device.
    pub device: Option<Box<str>>,
    /// Sizes and average bandwidth: line, bytes, Gb/s.
    pub rows: Vec<(u32, u64, f64)>,
    /// Failure: line and message.
    pub failure: Option<(u32, Box<str>)>,
}

/// A PCI device in lspci's output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PciDevice {
    /// Line.
    pub line: u32,
    /// Address.
    pub address: Option<PciAddress>,
    /// Class and name as printed.
    pub name: Box<str>,
    /// Line, and control bits that are set: `SrcValid`, `ReqRedir`, `CmpltRedir`, `UpstreamFwd`.
    pub acs: Option<(u32, Vec<Box<str>>)>,
    /// Current width and speed: line, lanes, GT/s.
    pub link: Option<(u32, u32, f64)>,
    /// Highest width and speed: lanes, GT/s.
    pub link_max: Option<(u32, f64)>,
    /// Kernel driver in use.
    pub driver: Option<Box<str>>,
}

impl PciDevice {
    /// A GPU of NVIDIA, by lspci's words.
    pub fn is_nvidia_gpu(&self) -> bool {
        self.name.contains("controller: NVIDIA") && !self.name.contains("Audio")
    }

    /// Every read of it returns ones: it does not answer on the bus.
    pub fn is_dead(&self) -> bool {
        self.name.contains("(rev ff)")
    }
}
