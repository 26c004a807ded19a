//! Networks: RDMA ports, interfaces, routes, listeners, tried connections.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// A port of an RDMA device (/sys/class/infiniband).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RdmaPort {
    /// `mlx5_0`.
    pub device: String,
    /// From 1.
    pub port: u32,
    /// `ACTIVE`, `DOWN`, `INIT`, `ARMED`.
    pub state: String,
    /// `LinkUp`, `Polling`, `Disabled`.
    pub phys_state: String,
    /// Gb/s.
    pub rate_gbps: Option<f64>,
    /// `4X EDR`.
    pub rate_text: String,
    /// `InfiniBand`, `Ethernet`.
    pub link_layer: String,
    /// Local identifier.
    pub lid: Option<u32>,
    /// Identifier of the subnet manager; 0 if none was seen.
    pub sm_lid: Option<u32>,
    /// Firmware.
    pub firmware: String,
    /// Board.
    pub board: String,
    /// PCI address of the device.
    pub pci: Option<String>,
    /// Network interface over it.
    pub netdev: Option<String>,
    /// What the driver calls the device, `MT4129`.
    pub model: String,
    /// GT/s of the device's PCIe link now.
    pub pcie_gt_s: Option<f64>,
    /// GT/s, most.
    pub pcie_gt_s_max: Option<f64>,
    /// Lanes of it now.
    pub pcie_width: Option<u32>,
    /// Lanes, most.
    pub pcie_width_max: Option<u32>,
    /// A virtual function whose physical one is on this node as well.
    pub is_virtual: bool,
    /// Table of global identifiers that are set.
    pub gids: Vec<Gid>,
    /// Counters (`counters`, `hw_counters`): name -> first value, second value some hundred milliseconds later.
    pub counters: BTreeMap<String, (u64, Option<u64>)>,
    /// Time between the two looks, milliseconds.
    pub window_ms: u64,
}

/// A global identifier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gid {
    /// Index.
    pub index: u32,
    /// Text.
    pub gid: String,
    /// `IB/RoCE v1`, `RoCE v2`.
    pub kind: String,
    /// Interface.
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
    /// Network namespace all this was read in, to tell containers apart.
    pub namespace: Option<u64>,
    /// What could not be told: `processes of other users hold listening sockets`.
    pub notes: Vec<String>,
}

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// The kernel's number of it: programs that take "the first" interface go by it.
    pub index: u32,
    /// Up by the administrator's will.
    pub is_up: bool,
    /// The kernel's operational state: `up`, `down`, `unknown`, `lowerlayerdown`.
    pub operstate: String,
    /// Loopback.
    pub is_loopback: bool,
    /// A real card stands behind it (not veth, bridge, docker, tunnel).
    pub is_physical: bool,
    /// Bytes.
    pub mtu: u32,
    /// Mb/s, if the card tells.
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
    /// Time between the two looks, milliseconds.
    pub window_ms: u64,
}

/// A route.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Route {
    /// `10.0.0.0/24`, `default`; IPv6's default is `::/0`.
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
    /// Process, if it could be told.
    pub pid: Option<u32>,
    /// Its command, one word.
    pub command: Option<String>,
}

/// Purpose of a [`Reach`]: another node of the fleet that is being checked, by the name that the asking node has for it.
pub const FLEET_PEER: &str = "fleet-peer";

/// A connection that was tried, or a name that was looked up.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Reach {
    /// What for: `master-address`, `interface`, `peer`, [`FLEET_PEER`].
    pub purpose: String,
    /// As given: name or address, with port.
    pub target: String,
    /// The name or address alone.
    pub host: String,
    /// Port that is meant. One of a job is not tried: [`Reach::seen`] tells what the kernel shows of it.
    pub port: Option<u16>,
    /// Processes whose environment names it.
    pub asked_by: Vec<u32>,
    /// It is an address of this node.
    pub is_local: bool,
    /// Milliseconds until the name was resolved.
    pub resolved_ms: Option<f64>,
    /// What the name resolves to.
    pub addresses: Vec<String>,
    /// Interface whose address it was bound to, if any.
    pub interface: Option<String>,
    /// Address it was sent from.
    pub from: Option<String>,
    /// Milliseconds until it answered.
    pub answered_ms: Option<f64>,
    /// Nobody listens: the peer refused, or it is this node and the kernel shows no such socket.
    pub is_refused: bool,
    /// What the kernel's tables show of a port that was not tried.
    pub seen: Option<PortSeen>,
    /// Why not: `name does not resolve`, `no route to host`, `timed out after 500 ms`.
    pub failure: Option<String>,
    /// The kind of it.
    pub failure_kind: Option<ReachFailure>,
    /// Largest packet the path let through whole, bytes, if it was tried.
    pub path_mtu: Option<u32>,
    /// Packets as large as the interface allows were lost without a word, smaller ones were not.
    pub large_vanish: bool,
}

/// What the tables of this node's kernel show of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PortSeen {
    /// It is of this node, and somebody listens.
    Listening,
    /// A process that names it is connected to it.
    Connected,
    /// Anything else.
    #[serde(other)]
    Other,
}

/// Why something was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReachFailure {
    /// The name is not known.
    Unresolved,
    /// The name service did not answer in time.
    LookupTimedOut,
    /// The kernel or a router knows no way.
    NoRoute,
    /// No answer in time.
    TimedOut,
    /// It was not tried.
    NotTried,
    /// Anything else.
    #[serde(other)]
    Other,
}
