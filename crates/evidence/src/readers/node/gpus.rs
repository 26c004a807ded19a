//! GPUs as NVML reported them, and the services of their driver.

use ringleader_model::{
    ClockReasons, EccCounts, Fact, GpuForm, GpuRow, GpuService, GpuTable, NvLink, PciAddress, PcieLink, Pid,
    RowRemapping, Service as SystemService, SystemFact,
};
use ringleader_node::{Ecc, Gpu, Gpus, Service};

use super::{MAX_ROWS, SnapshotReader};

impl SnapshotReader<'_, '_, '_> {
    pub(super) fn gpus(&mut self, gpus: &Gpus) {
        let cite = self.places.next_number("n_counted", u64::from(gpus.n_counted), self.sink);
        let mut table = GpuTable {
            // What lists GPUs whole, as `nvidia-smi -q` does.
            form: GpuForm::Query,
            at: self.at(),
            driver_version: boxed(gpus.driver_version.as_deref()),
            cuda_version: boxed(gpus.cuda_version.as_deref()),
            attached: Some(gpus.n_counted),
            ..GpuTable::default()
        };
        for gpu in gpus.gpus.iter().take(MAX_ROWS) {
            let place = self.places.next("pci", &gpu.pci, self.sink);
            table.gpus.push(row(gpu, place.line));
            table.processes.extend(gpu.processes.iter().map(|p| (gpu.index, Pid(p.pid))));
        }
        for (index, word) in gpus.failures.iter().take(MAX_ROWS) {
            let line = self.places.next_text(word, self.sink).line;
            let text = format!("Unable to determine the device handle for GPU {index}: {word}");
            table.failures.push((line, text.into()));
        }
        let text = format!(
            "driver {}, {} GPUs counted, {} opened",
            gpus.driver_version.as_deref().unwrap_or("unknown"),
            gpus.n_counted,
            gpus.gpus.len()
        );
        self.push(cite, Fact::Gpus(Box::new(table)), &text);
    }

    pub(super) fn services(&mut self, services: &[Service]) {
        for service in services.iter().take(MAX_ROWS) {
            let cite = self.places.next("name", &service.name, self.sink);
            let text = format!("{}: {} {} {}", service.name, service.load, service.active, service.sub);
            let unit = service.name.trim_end_matches(".service");
            if unit.starts_with("nvidia-") {
                // systemctl's word for a unit that is not there is `inactive`, its load state tells.
                let active = if service.load == "not-found" { "not-found" } else { &service.active };
                let fact = GpuService {
                    name: unit.into(),
                    active: Some(active.into()),
                    detail: service.sub.as_str().into(),
                    version: boxed(service.version.as_deref()),
                    ..GpuService::default()
                };
                self.push(cite, Fact::GpuService(Box::new(fact)), &text);
            } else if service.load != "not-found" {
                let fact = SystemService {
                    name: service.name.as_str().into(),
                    state: service.active.as_str().into(),
                    detail: service.sub.as_str().into(),
                };
                self.push_system(cite, SystemFact::Service(fact), &text);
            }
        }
    }
}

fn row(gpu: &Gpu, line: u32) -> GpuRow {
    let float = |n: Option<u32>| n.map(|n| n as f32);
    let rows = gpu.rows.map_or_else(RowRemapping::default, |rows| RowRemapping {
        corrected: Some(u64::from(rows.corrected)),
        uncorrected: Some(u64::from(rows.uncorrected)),
        pending: Some(rows.pending),
        failed: Some(rows.failed),
        banks_exhausted: rows.banks_exhausted.map(u64::from),
        banks_low: rows.banks_low.map(u64::from),
    });
    let fabric_state = gpu.fabric_state.as_deref().map(|state| match state {
        "not-supported" => "N/A",
        "not-started" => "Not Started",
        "in-progress" => "In Progress",
        "completed" => "Completed",
        other => other,
    });
    let recovery = gpu.recovery_action.as_deref().map(|action| match action {
        "none" => "None",
        "reset" => "Reset",
        "reboot" => "Reboot",
        "drain-p2p" => "Drain P2P",
        "drain-and-reset" => "Drain and Reset",
        other => other,
    });
    let mode = gpu.compute_mode.as_deref().map(|mode| match mode {
        "default" => "Default",
        "exclusive-process" => "Exclusive_Process",
        "exclusive-thread" => "Exclusive_Thread",
        "prohibited" => "Prohibited",
        other => other,
    });
    let volatile = ecc(&gpu.volatile);
    GpuRow {
        line,
        index: Some(gpu.index),
        uuid: boxed(gpu.uuid.as_deref()),
        pci: PciAddress::parse(&gpu.pci),
        name: Some(gpu.name.as_str()).filter(|name| !name.is_empty()).map(Into::into),
        power_w: gpu.power_w.map(|w| w as f32),
        power_limit_w: gpu.power_limit_w.map(|w| w as f32),
        power_default_w: gpu.power_default_w.map(|w| w as f32),
        utilization_pct: float(gpu.utilization_pct),
        temperature_c: float(gpu.temperature_c),
        temperature_left_c: gpu
            .slowdown_c
            .zip(gpu.temperature_c)
            .map(|(slowdown, now)| slowdown as f32 - now as f32),
        memory_used_mib: gpu.memory_used_mib,
        memory_total_mib: gpu.memory_total_mib,
        sm_clock_mhz: gpu.sm_clock_mhz,
        sm_clock_max_mhz: gpu.sm_clock_max_mhz,
        memory_clock_mhz: gpu.memory_clock_mhz,
        performance_state: gpu.performance_state.and_then(|state| u8::try_from(state).ok()),
        clock_reasons: gpu.clock_reasons.map(ClockReasons),
        uncorrected_errors: volatile.uncorrected(),
        volatile,
        aggregate: ecc(&gpu.aggregate),
        rows,
        pcie: PcieLink {
            generation: gpu.pcie.generation.and_then(|n| u8::try_from(n).ok()),
            generation_max: gpu.pcie.generation_max.and_then(|n| u8::try_from(n).ok()),
            width: gpu.pcie.width.and_then(|n| u8::try_from(n).ok()),
            width_max: gpu.pcie.width_max.and_then(|n| u8::try_from(n).ok()),
            replays: gpu.pcie.replays,
            replay_rollovers: None,
        },
        links: gpu.links.iter().take(MAX_ROWS).map(|l| link(l, line)).collect(),
        fabric_state: boxed(fabric_state),
        fabric_status: gpu.fabric_status.map(|status| match status {
            0 => "Success".into(),
            other => format!("status {other}").into(),
        }),
        recovery_action: boxed(recovery),
        compute_mode: boxed(mode),
        persistence: gpu.persistence,
        mig: gpu.mig,
        has_error: gpu.failures.iter().any(|(_, word)| {
            let word = word.to_ascii_lowercase();
            ["lost", "unknown error", "reset required", "requires reset"].iter().any(|w| word.contains(w))
        }),
        ..GpuRow::default()
    }
}

fn ecc(counts: &Ecc) -> EccCounts {
    EccCounts {
        sram_corrected: counts.sram_corrected,
        sram_uncorrected: counts.sram_uncorrected,
        dram_corrected: counts.dram_corrected,
        dram_uncorrected: counts.dram_uncorrected,
        total_corrected: counts.total_corrected,
        total_uncorrected: counts.total_uncorrected,
    }
}

/// NVML names its counters `replay`, `recovery`, `crc_flit`, `crc_data` and the like; what comes after the second look
/// is the newer value.
fn link(link: &ringleader_node::NvLink, line: u32) -> NvLink {
    let mut found = NvLink { line, number: link.number, active: link.active, ..NvLink::default() };
    for (name, first, second) in link.counters.iter().take(64) {
        let value = second.unwrap_or(*first);
        let add = |place: &mut Option<u64>| *place = Some(place.unwrap_or(0).saturating_add(value));
        let name = name.to_ascii_lowercase();
        if name.contains("replay") {
            add(&mut found.replays);
        } else if name.contains("recovery") && name.contains("fail") {
            add(&mut found.failed_recoveries);
        } else if name.contains("recovery") {
            add(&mut found.recoveries);
        } else if name.contains("crc") {
            add(&mut found.crc_errors);
        } else if value > 0 {
            found.others.push((name.into(), value));
        }
    }
    found
}

pub(super) fn boxed(text: Option<&str>) -> Option<Box<str>> {
    text.map(Into::into)
}
