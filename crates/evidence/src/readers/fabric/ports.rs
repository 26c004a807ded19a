//! Ports of RDMA devices.

use ringleader_model::{GidEntry, Host, NetFact, PortCounters, RdmaPort};

use super::{FabricForm, FabricReader, OpenBlock};
use crate::ground::{Line, Sink};

impl FabricReader {
    /// Headings of ibstat, ibstatus, ibv_devinfo and mlxlink.
    pub(super) fn port(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some(name) = text.strip_prefix("CA '").and_then(|r| r.strip_suffix('\'')) {
            self.close(sink);
            self.device = Some(name.into());
            return true;
        }
        if let Some(name) = text.strip_prefix("hca_id:") {
            self.close(sink);
            self.device = Some(name.trim().into());
            return true;
        }
        if let Some(rest) = text.strip_prefix("Infiniband device '") {
            let Some((device, rest)) = rest.split_once("' port ") else { return false };
            let Some(port) = rest.strip_suffix(" status:").and_then(|n| n.parse().ok()) else { return false };
            let port = RdmaPort { device: device.into(), port, ..RdmaPort::default() };
            self.open(FabricForm::Ibstatus, NetFact::Port(port), line, sink);
            return true;
        }
        if text == "Operational Info" {
            let device = self.asked_device("mlxlink", &["-d", "--device"]).unwrap_or_default().into();
            let port = RdmaPort { device, port: 1, ..RdmaPort::default() };
            self.open(FabricForm::Mlxlink, NetFact::Port(port), line, sink);
            return true;
        }
        let Some(device) = self.device.clone() else { return false };
        let ibstat = text.strip_prefix("Port ").and_then(|r| r.strip_suffix(':')?.parse().ok());
        let devinfo = text.strip_prefix("port:").and_then(|r| r.trim().parse().ok());
        let (form, port) = match (ibstat, devinfo) {
            (Some(port), _) => (FabricForm::Ibstat, port),
            (_, Some(port)) => (FabricForm::Devinfo, port),
            _ => return false,
        };
        self.open(form, NetFact::Port(RdmaPort { device, port, ..RdmaPort::default() }), line, sink);
        true
    }

    /// `link mlx5_0/1 state ACTIVE physical_state LINK_UP netdev ens1`; older: `1/1: mlx5_0/1: state ACTIVE …`.
    pub(super) fn rdma_link(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let rest = match text.strip_prefix("link ") {
            Some(rest) => rest,
            None => match text.split_once(": ") {
                Some((index, rest)) if index.contains('/') && index.len() < 12 => rest,
                _ => return false,
            },
        };
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let [name, "state", ..] = words.as_slice() else { return false };
        let Some((device, port)) = name.trim_end_matches(':').split_once('/') else { return false };
        let Ok(port) = port.parse() else { return false };
        let after = |key: &str| {
            let at = words.iter().position(|w| *w == key)?;
            words.get(at + 1).copied()
        };
        let port = RdmaPort {
            device: device.into(),
            port,
            state: after("state").map(state),
            phys_state: after("physical_state").map(state),
            netdev: after("netdev").map(Into::into),
            lid: after("lid").and_then(|l| l.parse().ok()),
            ..RdmaPort::default()
        };
        self.push(NetFact::Port(port), line, sink);
        true
    }

    /// Rows of show_gids; the IPv4 address is in those that have one.
    pub(super) fn gids(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        if matches!(words.as_slice(), ["DEV", "PORT", "INDEX", "GID", ..]) {
            self.close(sink);
            self.in_gids = true;
            return true;
        }
        if !self.in_gids {
            return false;
        }
        if text.starts_with("---") || text.starts_with("n_gids_found") {
            return true;
        }
        let [device, port, index, gid, rest @ ..] = words.as_slice() else { return false };
        let (ipv4, version, netdev) = match rest {
            [ip, version, netdev] => (Some(*ip), *version, *netdev),
            [version, netdev] => (None, *version, *netdev),
            [version] => (None, *version, ""),
            _ => return false,
        };
        let (Ok(port), Ok(index)) = (port.parse(), index.parse()) else { return false };
        if !gid.contains(':') || !matches!(version, "v1" | "v2") {
            return false;
        }
        let entry = GidEntry {
            device: (*device).into(),
            port,
            index,
            gid: (*gid).into(),
            ipv4: ipv4.map(Into::into),
            is_v2: version == "v2",
            netdev: netdev.into(),
        };
        self.push(NetFact::Gid(entry), line, sink);
        self.in_gids = true;
        true
    }

    /// `-E- …`, `-W- …` of ibdiagnet, and the rows of its summary:
    ///
    /// ```text
    /// -I- Stage                     Warnings   Errors     Comment
    /// -I- Port Counters             0          2
    /// ```
    pub(super) fn ibdiagnet(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if let Some(row) = text.strip_prefix("-I- ") {
            return self.ibdiagnet_stage(row, line, sink);
        }
        let (is_error, rest) = match (text.strip_prefix("-E- "), text.strip_prefix("-W- ")) {
            (Some(rest), _) => (true, rest),
            (_, Some(rest)) => (false, rest),
            _ => return false,
        };
        self.push(NetFact::Fabric { is_error, nodes: nodes(rest), text: rest.into() }, line, sink);
        true
    }
}

impl FabricReader {
    /// A row of the summary that counts anything; those of healthy stages are passed over.
    fn ibdiagnet_stage(&mut self, row: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        if row.starts_with("Stage ") && row.contains(" Warnings ") && row.contains(" Errors") {
            self.close(sink);
            self.in_stages = Some(line.number);
            return true;
        }
        // Rows follow their heading; other `-I-` lines are prose.
        if self.in_stages.is_none_or(|at| line.number.saturating_sub(at) > 1) {
            return false;
        }
        let words: Vec<&str> = row.split_ascii_whitespace().collect();
        let Some(at) = words.windows(2).position(|w| w.iter().all(|n| n.parse::<u32>().is_ok())) else {
            return false;
        };
        self.in_stages = Some(line.number);
        let count = |at: usize| words.get(at).and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
        let (warnings, errors) = (count(at), count(at + 1));
        let stage = words.get(..at).unwrap_or_default().join(" ");
        if warnings > 0 || errors > 0 {
            let text = format!("{stage}: {errors} errors, {warnings} warnings").into();
            let is_error = errors > 0;
            self.push(NetFact::Fabric { is_error, nodes: Vec::new(), text }, line, sink);
        }
        true
    }
}

/// The names in the path of a port: `node3` and `U1` of `node3/U1/P1`, `"node3 mlx5_0"/P1` likewise.
fn nodes(text: &str) -> Vec<Host> {
    let is_port = |word: &str| {
        word.strip_prefix('P').is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    let words = text.split(|c: char| c.is_whitespace() || matches!(c, ':' | ',' | '"' | '(' | ')' | '='));
    let paths = words.filter_map(|word| word.rsplit_once('/')).filter(|(_, port)| is_port(port));
    paths.flat_map(|(path, _)| path.split('/')).filter(|name| !name.is_empty()).map(Host::from).collect()
}

/// A line of ibstat, ibstatus or ibv_devinfo below its port's heading.
pub(super) fn field(open: &mut OpenBlock, text: &str) -> bool {
    let NetFact::Port(port) = &mut open.fact else { return false };
    let Some((key, value)) = text.split_once(':') else { return false };
    let value = value.trim();
    let first = value.split_ascii_whitespace().next().unwrap_or_default();
    match key.trim() {
        "State" | "state" => port.state = Some(state(value)),
        "Physical state" | "phys state" | "phys_state" => port.phys_state = Some(state(value)),
        "Rate" | "rate" => {
            port.rate_gbps = first.parse().ok();
            port.lanes = value.split_once('(').and_then(|(_, r)| r.split_once('X')?.0.parse().ok());
        }
        "Link layer" | "link_layer" => port.link_layer = Some(value.into()),
        "Base lid" | "base lid" | "port_lid" => port.lid = number(first),
        "active_mtu" => port.active_mtu = first.parse().ok(),
        "max_mtu" => port.max_mtu = first.parse().ok(),
        "active_width" => port.lanes = first.trim_end_matches('X').parse().ok(),
        "active_speed" => {
            port.rate_gbps =
                first.parse::<f64>().ok().map(|per_lane| per_lane * f64::from(port.lanes.unwrap_or(1)));
        }
        "CA type" | "Number of ports" | "Firmware version" | "Hardware version" | "Node GUID" | "LMC"
        | "System image GUID" | "SM lid" | "sm lid" | "sm_lid" | "port_lmc" | "Capability mask"
        | "Port GUID" | "default gid" | "max_msg_sz" | "port_cap_flags" | "max_vl_num" | "GID[  0]" => {}
        _ => return false,
    }
    true
}

/// A line of mlxlink: `State                              : Active`.
pub(super) fn mlxlink_field(open: &mut OpenBlock, text: &str, line: u32) -> bool {
    let Some((key, value)) = text.split_once(" : ") else {
        return text.ends_with(" Info") || text.starts_with("----");
    };
    let (key, value) = (key.trim(), value.trim());
    let NetFact::Port(port) = &mut open.fact else { return false };
    mlxlink_value(port, &mut open.counters, key, value, line);
    true
}

/// One field of mlxlink, by its name.
pub(super) fn mlxlink_value(
    port: &mut RdmaPort,
    counters: &mut PortCounters,
    key: &str,
    value: &str,
    line: u32,
) {
    match key {
        "State" => port.state = Some(state(value)),
        "Physical state" => port.phys_state = Some(state(value)),
        "Width" => port.lanes = value.trim_end_matches('x').parse().ok(),
        "Speed" => port.rate_gbps = speed(value),
        "Symbol Errors"
        | "Effective Physical Errors"
        | "Link Down Counter"
        | "Link Error Recovery Counter" => {
            if let Ok(n) = value.parse() {
                counters.device = port.device.clone();
                counters.port = port.port;
                counters.errors.push((line, key.into(), n));
            }
        }
        _ => {}
    }
}

/// `IB-NDR`, `100G`, `400GbE`.
fn speed(value: &str) -> Option<f64> {
    let rates = [("SDR", 8.0), ("DDR", 16.0), ("QDR", 32.0), ("FDR10", 40.0), ("FDR", 54.5), ("EDR", 100.0)];
    let newer = [("HDR", 200.0), ("NDR", 400.0), ("XDR", 800.0)];
    if let Some(name) = value.strip_prefix("IB-") {
        return rates.iter().chain(&newer).find(|(n, _)| *n == name).map(|(_, rate)| *rate);
    }
    let digits = value.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = value.split_at_checked(digits)?;
    unit.starts_with('G').then(|| number.parse().ok()).flatten()
}

/// `Active`, `4: ACTIVE`, `PORT_ACTIVE (4)` and `LINK_UP` become `ACTIVE` and `LINKUP`.
pub(super) fn state(value: &str) -> Box<str> {
    let value = value.split_once(": ").map_or(value, |(_, name)| name);
    let value = value.split_once(" (").map_or(value, |(name, _)| name);
    let name = value.trim().trim_start_matches("PORT_").to_ascii_uppercase().replace(['_', ' '], "");
    match name.as_str() {
        "INITIALIZING" | "INITIALIZE" => "INIT".into(),
        _ => name.into(),
    }
}

fn number(word: &str) -> Option<u32> {
    match word.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok(),
        None => word.parse().ok(),
    }
}
