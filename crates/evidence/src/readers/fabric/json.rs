//! `ip -j addr`: `[{"ifindex":2,"ifname":"eth0","flags":["BROADCAST","UP"],"mtu":1500,"operstate":"UP",
//! "addr_info":[{"local":"192.0.2.2"}]}]`. iproute2 lib/json_print.c, ip/ipaddress.c.
//!
//! `rdma -j link`: `[{"ifindex":0,"ifname":"mlx5_0","port":1,"state":"ACTIVE","physical_state":"LINK_UP",
//! "netdev":"ens1f0np0"}]`. iproute2 rdma/link.c.
//!
//! `mlxlink --json`: `{"status":{"code":0},"result":{"output":{"Operational Info":{"State":"Active",
//! "Physical state":"LinkUp","Speed":"IB-NDR","Width":"4x"},"Physical Counters and BER Info":{"Symbol Errors":"0"},
//! "Troubleshooting Info":{"Recommendation":"No issue was observed"}}}}`, the same names as in its text.
//! Mellanox/mstflint mlxlink. It does not name the device it was asked for.

use ringleader_model::{Fact, Interface, NetFact, PortCounters, RdmaPort, SourceKind, Who};
use serde_json::Value;

use super::ports;
use crate::ground::{Document, Sink};

/// Interfaces of one document.
const MAX_INTERFACES: usize = 1_000;

/// Reads a document, if it lists interfaces or ports.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    rdma_links(document, sink) || mlxlink(document, sink) || interfaces(document, sink)
}

fn push(fact: NetFact, document: &Document<'_>, sink: &mut Sink<'_>) {
    sink.saw(SourceKind::Network);
    let fact = Fact::Net(Box::new(fact));
    sink.push(document.cite(sink), Who::default(), None, fact, document.bytes);
}

/// Ports of `rdma -j link`. Its devices (`rdma -j dev`) have a node_type and no port.
fn rdma_links(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let Some(list) = document.value.as_array() else { return false };
    let is_port = |v: &Value| v.get("ifname").is_some() && v.get("port").is_some_and(Value::is_u64);
    if !list.first().is_some_and(|v| is_port(v) && v.get("state").is_some()) {
        return false;
    }
    for value in list.iter().filter(|v| is_port(v)).take(MAX_INTERFACES) {
        let text = |key: &str| value.get(key).and_then(Value::as_str);
        let number = |key: &str| value.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
        let port = RdmaPort {
            device: text("ifname").unwrap_or_default().into(),
            port: number("port").unwrap_or_default(),
            state: text("state").map(ports::state),
            phys_state: text("physical_state").map(ports::state),
            netdev: text("netdev").map(Into::into),
            lid: number("lid"),
            ..RdmaPort::default()
        };
        push(NetFact::Port(port), document, sink);
    }
    true
}

/// Fields of one port, in groups as mlxlink prints them.
fn mlxlink(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let output = document.value.get("result").and_then(|r| r.get("output")).and_then(Value::as_object);
    let Some(output) = output.filter(|o| o.contains_key("Operational Info")) else { return false };
    let mut port = RdmaPort { port: 1, ..RdmaPort::default() };
    let mut counters = PortCounters { port: 1, ..PortCounters::default() };
    let groups = output.iter().filter(|(name, _)| name.ends_with(" Info")).take(64);
    for (key, value) in groups.filter_map(|(_, fields)| fields.as_object()).flatten().take(1_000) {
        if let Some(value) = value.as_str() {
            ports::mlxlink_value(&mut port, &mut counters, key, value, 0);
        }
    }
    if !counters.errors.is_empty() {
        push(NetFact::Counters(counters), document, sink);
    }
    push(NetFact::Port(port), document, sink);
    true
}

fn interfaces(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let Some(list) = document.value.as_array() else { return false };
    // A device of `rdma -j dev` has a name and a number too.
    let is_interface =
        |v: &Value| v.get("ifname").is_some() && v.get("ifindex").is_some() && v.get("mtu").is_some();
    if !list.first().is_some_and(is_interface) {
        return false;
    }
    let words = |v: Option<&Value>, key: Option<&str>| -> Vec<Box<str>> {
        let list = v.and_then(Value::as_array).into_iter().flatten().take(64);
        list.filter_map(|v| key.map_or(Some(v), |k| v.get(k)).and_then(Value::as_str))
            .map(Into::into)
            .collect()
    };
    sink.saw(SourceKind::Network);
    for value in list.iter().filter(|v| is_interface(v)).take(MAX_INTERFACES) {
        let text = |key: &str| value.get(key).and_then(Value::as_str).map(Box::<str>::from);
        let interface = Interface {
            name: text("ifname").unwrap_or_default(),
            state: text("operstate"),
            flags: words(value.get("flags"), None).join(",").into(),
            mtu: value.get("mtu").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()),
            addresses: words(value.get("addr_info"), Some("local")),
            networks: networks(value),
            speed_mbps: None,
            link_detected: None,
        };
        let fact = Fact::Net(Box::new(NetFact::Interface(interface)));
        sink.push(document.cite(sink), Who::default(), None, fact, document.bytes);
    }
    true
}

/// The IPv4 networks of an interface's `addr_info`.
fn networks(value: &Value) -> Vec<Box<str>> {
    let all = value.get("addr_info").and_then(Value::as_array).into_iter().flatten();
    let of = |one: &Value| {
        let (local, length) = (one.get("local")?.as_str()?, one.get("prefixlen")?.as_u64()?);
        Interface::network_of(&format!("{local}/{length}"))
    };
    all.take(MAX_INTERFACES).filter_map(of).collect()
}
