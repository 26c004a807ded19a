//! Networks: RDMA ports, interfaces, routes, listeners, tested connections.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A port of an RDMA device (/sys/class/infiniband).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RdmaPort {
    /// `mlx5_0`.
    pub device: String,
    /// Port number, from 1.
    pub port: u32,
    /// State of the link: `ACTIVE`, `DOWN`, `INIT`, `ARMED`.
    pub state: String,
    /// Physical state: `LinkUp`, `Polling`, `Disabled`.
    pub phys_state: String,
    /// Rate, Gb/s.
    pub rate_gbps: Option<f64>,
    /// Rate as sysfs prints it: `4X EDR`.
    pub rate_text: String,
    /// Link layer: `InfiniBand`, `Ethernet`.
    pub link_layer: String,
    /// Local identifier.
    pub lid: Option<u32>,
    /// Local identifier of the subnet manager; 0 if none was seen.
    pub sm_lid: Option<u32>,
    /// Version of the firmware.
    pub firmware: String,
    /// Identifier of the board.
    pub board: String,
    /// PCI address of the device.
    pub pci: Option<String>,
    /// Network interface of the port.
    pub netdev: Option<String>,
    /// Model name from the driver, `MT4129`.
    pub model: String,
    /// Current speed of the device's PCIe link, GT/s.
    pub pcie_gt_s: Option<f64>,
    /// Highest speed of that link, GT/s.
    pub pcie_gt_s_max: Option<f64>,
    /// Current number of its lanes.
    pub pcie_width: Option<u32>,
    /// Highest number of its lanes.
    pub pcie_width_max: Option<u32>,
    /// Whether it is a virtual function whose physical function is on this node as well.
    pub is_virtual: bool,
    /// Global identifiers that are set.
    pub gids: Vec<Gid>,
    /// Counters (`counters`, `hw_counters`): name -> first value, second value some hundred milliseconds later.
    pub counters: BTreeMap<String, (u64, Option<u64>)>,
    /// Time between the two readings, milliseconds.
    pub window_ms: u64,
}

/// A global identifier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gid {
    /// Index.
    pub index: u32,
    /// The identifier as text.
    pub gid: String,
    /// Its type: `IB/RoCE v1`, `RoCE v2`.
    pub kind: String,
    /// Network interface.
    pub netdev: Option<String>,
}

/// Interfaces, routes, listeners.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Network {
    /// Interfaces.
    pub interfaces: Vec<Interface>,
    /// Routes of the main table.
    pub routes: Vec<Route>,
    /// TCP sockets that listen.
    pub listeners: Vec<Listener>,
    /// Network namespace that all this was read in, to distinguish containers.
    pub namespace: Option<u64>,
    /// What could not be determined: `processes of other users hold listening sockets`.
    pub notes: Vec<String>,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Index in the kernel: programs that take "the first" interface use this order.
    pub index: u32,
    /// Whether the administrator has set it up.
    pub is_up: bool,
    /// The kernel's operational state: `up`, `down`, `unknown`, `lowerlayerdown`.
    pub operstate: String,
    /// Whether it is loopback.
    pub is_loopback: bool,
    /// Whether it belongs to a physical card (unlike veth, bridge, docker, tunnel).
    pub is_physical: bool,
    /// MTU, bytes.
    pub mtu: u32,
    /// Speed, Mb/s, if the card reports it.
    pub speed_mbps: Option<u32>,
    /// Addresses with prefix length, `10.0.0.7/24`.
    pub addresses: Vec<String>,
    /// PCI address of the card.
    pub pci: Option<String>,
    /// Kernel driver of the card.
    pub driver: Option<String>,
    /// Bridge or bond it belongs to.
    pub master: Option<String>,
    /// Counters of packets, errors, drops and carrier changes: name -> first value, second value.
    pub counters: BTreeMap<String, (u64, Option<u64>)>,
    /// Times the carrier changed since boot.
    pub carrier_changes: Option<u64>,
    /// Time between the two readings, milliseconds.
    pub window_ms: u64,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    /// Destination: `10.0.0.0/24`, `default`; IPv6's default is `::/0`.
    pub to: String,
    /// Gateway.
    pub via: Option<String>,
    /// Interface.
    pub interface: String,
    /// Metric.
    pub metric: u32,
}

/// A listening socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Listener {
    /// Address.
    pub address: String,
    /// Port.
    pub port: u16,
    /// Process that listens, if known.
    pub pid: Option<u32>,
    /// Its command, one word.
    pub command: Option<String>,
}

/// Purpose of a [`Reach`]: another node of the checked fleet, by the name that the testing node has for it.
pub const FLEET_PEER: &str = "fleet-peer";

/// A connection test or a name lookup.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reach {
    /// Purpose: `master-address`, `interface`, `peer`, [`FLEET_PEER`].
    pub purpose: String,
    /// Target as given: name or address, with port.
    pub target: String,
    /// The name or address without port.
    pub host: String,
    /// Port. A port of a job is never tested: [`Reach::seen`] holds what the kernel shows of it.
    pub port: Option<u16>,
    /// Processes whose environment contains the target.
    pub asked_by: Vec<u32>,
    /// Whether it is an address of this node.
    pub is_local: bool,
    /// Time to resolve the name, milliseconds.
    pub resolved_ms: Option<f64>,
    /// Addresses that the name resolves to.
    pub addresses: Vec<String>,
    /// Interface whose address the test was bound to, if any.
    pub interface: Option<String>,
    /// Source address.
    pub from: Option<String>,
    /// Time to the answer, milliseconds.
    pub answered_ms: Option<f64>,
    /// Whether nothing listens: the peer refused, or the kernel of this node shows no such socket.
    pub is_refused: bool,
    /// What the socket tables of this node show of a port that was not tested.
    pub seen: Option<PortSeen>,
    /// Why it failed: `name does not resolve`, `no route to host`, `timed out after 500 ms`.
    pub failure: Option<String>,
    /// The kind of failure.
    pub failure_kind: Option<ReachFailure>,
    /// Largest packet that passed the path unfragmented, bytes, if tested.
    pub path_mtu: Option<u32>,
    /// Whether packets of the interface's MTU were lost silently while smaller ones passed.
    pub large_vanish: bool,
}

/// What the socket tables of this node show of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortSeen {
    /// The address is of this node, and a socket listens.
    Listening,
    /// A process whose environment contains the target is connected to it.
    Connected,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// Why a target was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReachFailure {
    /// The name is unknown.
    Unresolved,
    /// The name service did not answer in time.
    LookupTimedOut,
    /// The kernel or a router has no route.
    NoRoute,
    /// No answer in time.
    TimedOut,
    /// It was not tested.
    NotTried,
    /// Anything else.
    #[serde(other)]
    Other,
}
