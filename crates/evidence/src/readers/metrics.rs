//! Prometheus text of the exporters that clusters run: NVIDIA's DCGM exporter and node_exporter's InfiniBand collector.
//!
//! ```text
//! # TYPE DCGM_FI_DEV_XID_ERRORS gauge
//! DCGM_FI_DEV_XID_ERRORS{gpu="3",UUID="GPU-fc51…",pci_bus_id="00000000:18:00.0",Hostname="node7",err_code="79"} 79
//! node_infiniband_link_downed_total{device="mlx5_0",port="1"} 2
//! ```
//! Written by NVIDIA/dcgm-exporter (names are DCGM's field names, NVIDIA/DCGM dcgmlib/dcgm_fields.h) and
//! prometheus/node_exporter collector/infiniband_linux.go. An exporter says neither when an Xid came nor how often: the last
//! one stays until it restarts. Sums over all links of a GPU name no link and are left out.

use std::collections::BTreeMap;

use ringleader_knowledge::port_counter;
use ringleader_model::address::is_loopback_name;
use ringleader_model::{
    ClockReasons, Fact, GpuForm, GpuRow, GpuTable, Host, KernelEvent, KernelEventKind, NetFact, NvLink,
    PciAddress, PortCounters, RdmaPort, SourceKind, Xid,
};

use crate::ground::{Line, LineReader, Sink, TableSpan, Wants, host_of};

/// Names of the samples that are read.
const FAMILIES: [&str; 2] = ["DCGM_FI_", "node_infiniband_"];
/// GPUs and ports of one source.
const MAX_DEVICES: usize = 4_096;
const MAX_LINKS: usize = 256;

/// Samples.
pub(crate) const WANTS: Wants = Wants { words: || FAMILIES.to_vec(), begins: |_| false };

/// What exporters say, by host.
#[derive(Default)]
pub(crate) struct MetricsReader {
    gpus: BTreeMap<Option<Host>, (GpuTable, TableSpan)>,
    ports: BTreeMap<(Option<Host>, Box<str>, u32), Port>,
    xids: Vec<(KernelEvent, TableSpan)>,
    is_cut: bool,
}

struct Port {
    counters: PortCounters,
    state: RdmaPort,
    span: TableSpan,
}

impl LineReader for MetricsReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        let is_ours = |name: &[u8]| FAMILIES.iter().any(|family| name.starts_with(family.as_bytes()));
        let comment = [&b"# HELP "[..], b"# TYPE "].iter().find_map(|start| line.body.strip_prefix(*start));
        if let Some(name) = comment {
            return is_ours(name);
        }
        if !is_ours(line.body) || self.is_cut {
            return false;
        }
        let Some(sample) = std::str::from_utf8(line.body).ok().and_then(Sample::read) else { return false };
        match sample.name.strip_prefix("node_infiniband_") {
            Some(name) => self.port(name, &sample, line, sink),
            None => self.gpu(&sample, line, sink),
        }
        true
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        for (host, (mut fact, mut span)) in std::mem::take(&mut self.gpus) {
            span.on(host.as_ref());
            fact.gpus.sort_by_key(|gpu| (gpu.index, gpu.line));
            span.push(SourceKind::Dcgmi, Fact::Gpus(fact.into()), sink);
        }
        for (event, span) in std::mem::take(&mut self.xids) {
            span.push(SourceKind::Dcgmi, Fact::Kernel(event.into()), sink);
        }
        for ((host, ..), Port { counters, state, mut span }) in std::mem::take(&mut self.ports) {
            span.on(host.as_ref());
            if !counters.errors.is_empty() {
                span.clone().push(
                    SourceKind::Network,
                    Fact::Net(Box::new(NetFact::Counters(counters))),
                    sink,
                );
            }
            if state.state.is_some() || state.phys_state.is_some() {
                span.push(SourceKind::Network, Fact::Net(Box::new(NetFact::Port(state))), sink);
            }
        }
    }
}

/// `name{label="value",…} value [time]`.
struct Sample<'a> {
    name: &'a str,
    labels: &'a str,
    value: f64,
}

impl<'a> Sample<'a> {
    fn read(text: &'a str) -> Option<Self> {
        let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == ':'))?;
        let (name, rest) = text.split_at_checked(end)?;
        let (labels, rest) = match rest.strip_prefix('{') {
            Some(inside) => inside.rsplit_once('}')?,
            None => ("", rest),
        };
        let value: f64 = rest.split_ascii_whitespace().next()?.parse().ok()?;
        value.is_finite().then_some(Self { name, labels, value })
    }

    fn label(&self, wanted: &str) -> Option<&'a str> {
        let mut rest = self.labels;
        while let Some((name, after)) = rest.split_once("=\"") {
            let (value, after) = after.split_once('"')?;
            if name.trim_start_matches([',', ' ']) == wanted {
                return Some(value).filter(|value| !value.is_empty());
            }
            rest = after;
        }
        None
    }

    fn host(&self) -> Option<Host> {
        let name = ["Hostname", "hostname", "node", "instance"].iter().find_map(|label| self.label(label))?;
        // `instance` is the address that was scraped.
        let name = name
            .rsplit_once(':')
            .filter(|(_, port)| port.parse::<u16>().is_ok())
            .map_or(name, |(host, _)| host);
        (!is_loopback_name(name)).then(|| host_of(name))
    }

    fn count(&self) -> u64 {
        self.value.max(0.0) as u64
    }
}

impl MetricsReader {
    fn gpu(&mut self, sample: &Sample<'_>, line: &Line<'_>, sink: &Sink<'_>) {
        let index = sample.label("gpu").and_then(|n| n.parse().ok());
        let pci = sample.label("pci_bus_id").and_then(PciAddress::parse);
        let uuid = sample.label("UUID");
        if index.is_none() && uuid.is_none() {
            return;
        }
        let host = sample.host().or_else(|| line.tag.who.host.clone());
        if let (code @ 1..=999, "DCGM_FI_DEV_XID_ERRORS", true) =
            (sample.count(), sample.name, self.xids.len() < MAX_DEVICES)
        {
            let body = sample.label("err_msg").unwrap_or_default().into();
            let xid = Xid { code: code as u16, uuid: uuid.map(Into::into), body, ..Xid::default() };
            let kind = KernelEventKind::Xid(xid.into());
            let mut span = TableSpan::begin(line, sink);
            span.on(host.as_ref());
            self.xids.push((KernelEvent { uptime_us: None, boot: 0, device: pci, kind }, span));
        }
        let form = GpuForm::Metrics;
        let (table, span) = self
            .gpus
            .entry(host)
            .or_insert_with(|| (GpuTable { form, ..GpuTable::default() }, TableSpan::begin(line, sink)));
        span.add(line, sink);
        if table.driver_version.is_none() {
            table.driver_version = sample.label("DCGM_FI_DRIVER_VERSION").map(Into::into);
        }
        let same = |gpu: &GpuRow| gpu.index == index && (index.is_some() || gpu.uuid.as_deref() == uuid);
        let at = match table.gpus.iter().position(same) {
            Some(at) => at,
            None if table.gpus.len() < MAX_DEVICES => {
                table.gpus.push(GpuRow { line: line.number, index, ..GpuRow::default() });
                table.gpus.len() - 1
            }
            None => return,
        };
        let Some(gpu) = table.gpus.get_mut(at) else { return };
        gpu.pci = gpu.pci.or(pci);
        gpu.uuid = gpu.uuid.take().or_else(|| uuid.map(Into::into));
        gpu.name = gpu.name.take().or_else(|| sample.label("modelName").map(Into::into));
        set(gpu, sample, line.number);
    }

    /// A counter of a port, or its state.
    fn port(&mut self, name: &str, sample: &Sample<'_>, line: &Line<'_>, sink: &Sink<'_>) {
        let Some(device) = sample.label("device") else { return };
        let number = sample.label("port").and_then(|n| n.parse().ok()).unwrap_or(0);
        let host = sample.host().or_else(|| line.tag.who.host.clone());
        let key = (host, Box::<str>::from(device), number);
        if self.ports.len() >= MAX_DEVICES && !self.ports.contains_key(&key) {
            return;
        }
        let found = self.ports.entry(key).or_insert_with(|| Port {
            counters: PortCounters { device: device.into(), port: number, ..PortCounters::default() },
            state: RdmaPort { device: device.into(), port: number, ..RdmaPort::default() },
            span: TableSpan::begin(line, sink),
        });
        found.span.add(line, sink);
        match name {
            "state_id" => {
                let states = ["", "DOWN", "INIT", "ARMED", "ACTIVE"];
                found.state.state =
                    states.get(sample.count() as usize).filter(|s| !s.is_empty()).map(|s| (*s).into());
            }
            "physical_state_id" => {
                let states = ["", "SLEEP", "POLLING", "DISABLED", "PORTCONFIGURATIONTRAINING", "LINKUP"];
                found.state.phys_state =
                    states.get(sample.count() as usize).filter(|s| !s.is_empty()).map(|s| (*s).into());
            }
            "rate_bytes_per_second" => found.state.rate_gbps = Some(sample.value * 8.0 / 1e9),
            "port_data_transmitted_bytes_total" => found.counters.moved = Some(sample.count()),
            _ => {
                let of_sysfs = match name.strip_suffix("_total").unwrap_or(name) {
                    "port_errors_received" => "port_rcv_errors",
                    "port_receive_remote_physical_errors" => "port_rcv_remote_physical_errors",
                    "port_discards_transmitted" => "port_xmit_discards",
                    "link_error_recovery" => "link_error_recovery",
                    other => other,
                };
                let known = found.counters.errors.iter_mut().find(|(_, known, _)| **known == *of_sysfs);
                match known {
                    Some(known) => *known = (line.number, of_sysfs.into(), sample.count()),
                    None if port_counter::is_error(of_sysfs) => {
                        found.counters.errors.push((line.number, of_sysfs.into(), sample.count()));
                    }
                    None => {}
                }
            }
        }
    }
}

/// Puts a sample into its place.
fn set(gpu: &mut GpuRow, sample: &Sample<'_>, line: u32) {
    let (value, count) = (sample.value, sample.count());
    let Some(field) = sample.name.strip_prefix("DCGM_FI_DEV_") else { return };
    match field {
        "GPU_TEMP" => gpu.temperature_c = Some(value as f32),
        "MEMORY_TEMP" => gpu.memory_temperature_c = Some(value as f32),
        "POWER_USAGE" => gpu.power_w = Some(value as f32),
        "GPU_UTIL" => gpu.utilization_pct = Some(value as f32),
        "SM_CLOCK" => gpu.sm_clock_mhz = Some(count as u32),
        "MEM_CLOCK" => gpu.memory_clock_mhz = Some(count as u32),
        "FB_USED" => gpu.memory_used_mib = Some(count),
        "FB_TOTAL" => gpu.memory_total_mib = Some(count),
        "ECC_SBE_VOL_TOTAL" => gpu.volatile.total_corrected = Some(count),
        "ECC_DBE_VOL_TOTAL" => {
            gpu.volatile.total_uncorrected = Some(count);
            gpu.uncorrected_errors = Some(count);
        }
        "ECC_SBE_AGG_TOTAL" => gpu.aggregate.total_corrected = Some(count),
        "ECC_DBE_AGG_TOTAL" => gpu.aggregate.total_uncorrected = Some(count),
        "CORRECTABLE_REMAPPED_ROWS" => gpu.rows.corrected = Some(count),
        "UNCORRECTABLE_REMAPPED_ROWS" => gpu.rows.uncorrected = Some(count),
        "ROW_REMAP_PENDING" => gpu.rows.pending = Some(count > 0),
        "ROW_REMAP_FAILURE" => gpu.rows.failed = Some(count > 0),
        "RETIRED_SBE" => gpu.pages.single_bit = Some(count),
        "RETIRED_DBE" => gpu.pages.double_bit = Some(count),
        "RETIRED_PENDING" => gpu.pages.pending = Some(count > 0),
        "PCIE_REPLAY_COUNTER" => gpu.pcie.replays = Some(count),
        "CLOCK_THROTTLE_REASONS" | "CLOCKS_EVENT_REASONS" => gpu.clock_reasons = Some(ClockReasons(count)),
        "POWER_VIOLATION" => gpu.held_down.power_cap_us = Some(count),
        _ => link(gpu, field, count, line),
    }
}

/// `NVLINK_REPLAY_ERROR_COUNT_L3`.
fn link(gpu: &mut GpuRow, field: &str, count: u64, line: u32) {
    let Some((name, number)) = field.strip_prefix("NVLINK_").and_then(|f| f.rsplit_once("_COUNT_L")) else {
        return;
    };
    let Ok(number) = number.parse::<u32>() else { return };
    let at = gpu.links.iter().position(|link| link.number == number);
    if at.is_none() && gpu.links.len() < MAX_LINKS {
        gpu.links.push(NvLink { line, number, ..NvLink::default() });
    }
    let link = match at {
        Some(at) => gpu.links.get_mut(at),
        None => gpu.links.last_mut().filter(|link| link.number == number),
    };
    let Some(link) = link else { return };
    match name {
        "REPLAY_ERROR" => link.replays = Some(count),
        "RECOVERY_ERROR" => link.recoveries = Some(count),
        "CRC_FLIT_ERROR" => link.crc_errors = Some(count),
        _ => {}
    }
}

#[cfg(test)]
mod tests;
