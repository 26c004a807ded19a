//! Counters: perfquery, sysfs, `ethtool -S`.

use ringleader_knowledge::port_counter;
use ringleader_model::{NetFact, PortCounters, RdmaPort};

use super::ports::state;
use super::{FabricForm, FabricReader, OpenBlock};
use crate::ground::{Line, Sink, shell};

/// Names of what was moved.
const MOVED: [&str; 4] = ["PortXmitData", "port_xmit_data", "tx_bytes_phy", "tx_bytes"];

/// Counters of one port that are kept.
const MAX_ERRORS: usize = 64;

impl FabricReader {
    /// `# Port counters: Lid 134 port 1 (CapMask: 0x5A00)`, also `extended`.
    pub(super) fn perfquery(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some((_, rest)) = text.strip_prefix("# Port ").and_then(|r| r.split_once("counters: Lid "))
        else {
            return false;
        };
        let words: Vec<&str> = rest.split_ascii_whitespace().collect();
        let [lid, "port", port, ..] = words.as_slice() else { return false };
        let counters = PortCounters {
            device: self.asked_device("perfquery", &["-C", "--Ca"]).unwrap_or_default().into(),
            port: port.parse().unwrap_or(0),
            lid: lid.parse().ok(),
            ..PortCounters::default()
        };
        self.open(FabricForm::Perfquery, NetFact::Counters(counters), line, sink);
        true
    }

    /// `NIC statistics:` below `ethtool -S eth0`.
    pub(super) fn nic_statistics(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) {
        let device = self
            .asked
            .as_deref()
            .filter(|c| shell::runs(c, "ethtool"))
            .and_then(|c| shell::argument(c, &["-S", "--statistics"]))
            .unwrap_or_default();
        let counters = PortCounters { device: device.into(), ..PortCounters::default() };
        self.open(FabricForm::EthtoolStats, NetFact::Counters(counters), line, sink);
    }

    /// `/sys/class/infiniband/mlx5_0/ports/1/counters/symbol_error:0`, as `grep .` prints files.
    pub(super) fn sysfs(&mut self, text: &str, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let Some(rest) = text.strip_prefix("/sys/class/infiniband/") else { return false };
        let Some((path, value)) = rest.split_once(':') else { return false };
        let parts: Vec<&str> = path.split('/').collect();
        let [device, "ports", port, tail @ ..] = parts.as_slice() else { return false };
        let Ok(port) = port.parse() else { return false };
        match tail {
            ["counters" | "hw_counters", name] => {
                let Ok(value) = value.trim().parse() else { return false };
                let is_same = |o: &OpenBlock| {
                    let NetFact::Counters(c) = &o.fact else { return false };
                    o.form == FabricForm::Sysfs && *c.device == **device && c.port == port
                };
                if !self.open.as_ref().is_some_and(is_same) {
                    let counters = PortCounters { device: (*device).into(), port, ..PortCounters::default() };
                    self.open(FabricForm::Sysfs, NetFact::Counters(counters), line, sink);
                }
                let Some(open) = &mut self.open else { return false };
                count(open, name, value, line.number);
                open.span.add(line, sink);
                true
            }
            [name @ ("state" | "phys_state" | "rate" | "link_layer")] => {
                let mut fact = RdmaPort { device: (*device).into(), port, ..RdmaPort::default() };
                match *name {
                    "state" => fact.state = Some(state(value)),
                    "phys_state" => fact.phys_state = Some(state(value)),
                    _ => return true,
                }
                self.push(NetFact::Port(fact), line, sink);
                true
            }
            _ => false,
        }
    }
}

/// `SymbolErrorCounter:..............0`.
pub(super) fn field(open: &mut OpenBlock, text: &str, line: u32) -> bool {
    let Some((name, value)) = text.split_once(":..") else { return false };
    let value = value.trim_start_matches('.').split_ascii_whitespace().next().unwrap_or_default();
    if let Ok(value) = value.parse() {
        count(open, name, value, line);
    }
    true
}

/// `     rx_discards_phy: 0`.
pub(super) fn statistic(open: &mut OpenBlock, text: &str, line: u32) -> bool {
    let Some((name, value)) = text.split_once(':') else { return false };
    if name.contains(char::is_whitespace) {
        return false;
    }
    let Ok(value) = value.trim().parse() else { return false };
    count(open, name, value, line);
    true
}

fn count(open: &mut OpenBlock, name: &str, value: u64, line: u32) {
    let NetFact::Counters(counters) = &mut open.fact else { return };
    if MOVED.contains(&name) {
        counters.moved = Some(value);
    } else if port_counter::is_error(name) && counters.errors.len() < MAX_ERRORS {
        counters.errors.push((line, name.into(), value));
    }
}
