//! RDMA ports, interfaces, routes, listeners, tried connections.

use ringleader_knowledge::port_counter;
use ringleader_model::{
    GidEntry, Interface, NetFact, Pid, PortCounters, RdmaPort as ModelPort, Reach as ModelReach,
    ReachOutcome, Route,
};
use ringleader_node::{Network, PortSeen, RdmaPort, Reach};

use super::gpus::boxed;
use super::{MAX_ROWS, SnapshotReader};

impl SnapshotReader<'_, '_, '_> {
    pub(super) fn rdma(&mut self, ports: &[RdmaPort]) {
        for port in ports.iter().take(MAX_ROWS) {
            let cite = self.places.next("device", &port.device, self.sink);
            let upper = |text: &str| (!text.is_empty()).then(|| text.to_ascii_uppercase().into());
            let fact = ModelPort {
                device: port.device.as_str().into(),
                port: port.port,
                state: upper(&port.state),
                phys_state: upper(&port.phys_state),
                rate_gbps: port.rate_gbps,
                lanes: port
                    .rate_text
                    .split_once('X')
                    .and_then(|(lanes, _)| lanes.rsplit(|c: char| !c.is_ascii_digit()).next()?.parse().ok()),
                link_layer: Some(port.link_layer.as_str()).filter(|l| !l.is_empty()).map(Into::into),
                netdev: boxed(port.netdev.as_deref()),
                lid: port.lid.filter(|lid| *lid > 0),
                ..ModelPort::default()
            };
            let text = format!(
                "{}/{}: {} {} {} {}",
                port.device, port.port, port.state, port.phys_state, port.rate_text, port.link_layer
            );
            self.push_net(cite, NetFact::Port(fact), &text);
            for gid in port.gids.iter().take(MAX_ROWS) {
                let cite = self.places.next("gid", &gid.gid, self.sink);
                let fact = GidEntry {
                    device: port.device.as_str().into(),
                    port: port.port,
                    index: gid.index,
                    gid: gid.gid.as_str().into(),
                    ipv4: ipv4_of(&gid.gid).map(Into::into),
                    is_v2: gid.kind.contains("v2"),
                    netdev: gid.netdev.as_deref().or(port.netdev.as_deref()).unwrap_or_default().into(),
                };
                let text = format!("{}/{} {} {} {}", port.device, port.port, gid.index, gid.gid, gid.kind);
                self.push_net(cite, NetFact::Gid(fact), &text);
            }
            let counters: Vec<(&String, &(u64, Option<u64>))> = port.counters.iter().collect();
            self.counters(&port.device, port.port, port.lid, &counters);
        }
    }

    /// Two looks are two readings: what grew between them is what counts.
    fn counters(
        &mut self,
        device: &str,
        port: u32,
        lid: Option<u32>,
        counters: &[(&String, &(u64, Option<u64>))],
    ) {
        let mut looks = [PortCounters::default(), PortCounters::default()];
        let mut first = None;
        for (name, (before, after)) in counters.iter().take(MAX_ROWS) {
            if matches!(name.as_str(), "port_xmit_data" | "tx_bytes" | "tx_bytes_phy") {
                looks[0].moved = Some(*before);
                looks[1].moved = *after;
            }
            if !port_counter::is_error(name) {
                continue;
            }
            let cite = self.places.next_text(name, self.sink);
            first = first.or(Some(cite));
            looks[0].errors.push((cite.line, name.as_str().into(), *before));
            looks[1].errors.extend(after.map(|after| (cite.line, name.as_str().into(), after)));
        }
        let Some(cite) = first else { return };
        for look in looks {
            if look.errors.is_empty() {
                continue;
            }
            let shown: Vec<String> = look.errors.iter().map(|(_, name, n)| format!("{name} {n}")).collect();
            let fact = PortCounters { device: device.into(), port, lid, ..look };
            self.push_net(cite, NetFact::Counters(fact), &format!("{device}/{port}: {}", shown.join(", ")));
        }
    }

    pub(super) fn network(&mut self, net: &Network) {
        for interface in net.interfaces.iter().take(MAX_ROWS) {
            let cite = self.places.next("name", &interface.name, self.sink);
            let mut flags = Vec::new();
            flags.extend(interface.is_loopback.then_some("LOOPBACK"));
            flags.extend(interface.is_up.then_some("UP"));
            let state = interface.operstate.to_ascii_uppercase();
            let fact = Interface {
                name: interface.name.as_str().into(),
                state: (!state.is_empty()).then(|| state.as_str().into()),
                flags: flags.join(",").into(),
                mtu: (interface.mtu > 0).then_some(interface.mtu),
                addresses: interface
                    .addresses
                    .iter()
                    .take(64)
                    .map(|a| a.split('/').next().unwrap_or(a).into())
                    .collect(),
                networks: interface.addresses.iter().filter_map(|a| Interface::network_of(a)).collect(),
                speed_mbps: interface.speed_mbps.map(u64::from),
                link_detected: None,
            };
            let text = format!(
                "{}: {state} mtu {} {}",
                interface.name,
                interface.mtu,
                interface.addresses.join(" ")
            );
            self.push_net(cite, NetFact::Interface(fact), &text);
            let counters: Vec<(&String, &(u64, Option<u64>))> = interface.counters.iter().collect();
            self.counters(&interface.name, 0, None, &counters);
        }
        for route in net.routes.iter().take(MAX_ROWS) {
            let cite = self.places.next("to", &route.to, self.sink);
            let fact = Route {
                to: route.to.as_str().into(),
                via: boxed(route.via.as_deref()),
                device: Some(route.interface.as_str().into()),
                is_dead: false,
            };
            let via = route.via.as_deref().map_or_else(String::new, |via| format!(" via {via}"));
            let text = format!("{}{via} dev {} metric {}", route.to, route.interface, route.metric);
            self.push_net(cite, NetFact::Route(fact), &text);
        }
        for listener in net.listeners.iter().take(MAX_ROWS) {
            let cite = self.places.next("address", &listener.address, self.sink);
            let address = &listener.address;
            let local = if address.contains(':') && !address.starts_with('[') {
                format!("[{address}]:{}", listener.port)
            } else {
                format!("{address}:{}", listener.port)
            };
            let whose = listener.pid.map_or_else(String::new, |pid| {
                format!(" of pid {pid} {}", listener.command.as_deref().unwrap_or_default())
            });
            let text = format!("listens at {local}{whose}");
            let holder =
                listener.pid.map(|pid| (listener.command.as_deref().unwrap_or_default().into(), Pid(pid)));
            self.push_net(cite, NetFact::Listener { local: local.into(), holder }, &text);
        }
    }

    pub(super) fn reach(&mut self, tried: &[Reach]) {
        for reach in tried.iter().take(MAX_ROWS) {
            let cite = self.places.next("target", &reach.target, self.sink);
            let (host, port) = match reach.target.rsplit_once(':') {
                Some((host, port)) if port.bytes().all(|b| b.is_ascii_digit()) && !port.is_empty() => {
                    (host, port.parse().ok())
                }
                _ => (reach.target.as_str(), None),
            };
            let failure = reach.failure.as_deref().unwrap_or_default().to_ascii_lowercase();
            let outcome = if reach.is_refused {
                ReachOutcome::Refused
            } else if (reach.answered_ms.is_some() || reach.seen.is_some()) && failure.is_empty() {
                ReachOutcome::Answers
            } else if failure.contains("resolve") || failure.contains("unknown host") {
                ReachOutcome::UnknownHost
            } else if failure.contains("no route") || failure.contains("unreachable") {
                ReachOutcome::NoRoute
            } else if failure.contains("timed out") {
                ReachOutcome::TimedOut
            } else {
                // Not tried to the end: a port of our own, a lack of permission.
                continue;
            };
            let fact = ModelReach {
                tool: if port.is_some() { "nc" } else { "ping" }.into(),
                host: host.trim_matches(['[', ']']).into(),
                port,
                outcome,
                payload_bytes: None,
                too_large_for: None,
            };
            let said = reach.failure.clone().unwrap_or_else(|| {
                let said = match reach.seen {
                    _ if reach.is_refused && reach.answered_ms.is_some() => "refused",
                    _ if reach.is_refused => "nothing listens",
                    Some(PortSeen::Connected) => "connected",
                    Some(PortSeen::Listening) => "a process listens",
                    _ => "answers",
                };
                said.to_owned()
            });
            let text = format!("{} {}: {said}", reach.purpose, reach.target);
            self.push_net(cite, NetFact::Reach(fact), &text);
        }
    }
}

/// `0000:0000:0000:0000:0000:ffff:c000:0202` holds 192.0.2.2.
fn ipv4_of(gid: &str) -> Option<String> {
    let address: std::net::Ipv6Addr = gid.parse().ok()?;
    address.to_ipv4_mapped().map(|v4| v4.to_string())
}
