//! One GPU, reading by reading.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::{
    Clock, ComputeMode, EccCounter, MemoryError, MemoryLocation, PerformanceState, TemperatureSensor,
    TemperatureThreshold,
};
use nvml_wrapper::enums::device::UsedGpuMemory;
use nvml_wrapper_sys::bindings::field_id::{
    NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, NVML_FI_DEV_MEMORY_TEMP, NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT,
};
use ringleader_node::{Ecc, Gpu, GpuProcess, PcieLink, Rows};

use super::asker::{Asker, address};
use super::links;
use crate::sys::nvml::{self, Field};

/// Reads one GPU; counters twice, `window_ms` apart, if that is not zero.
pub(super) fn read(device: &Device<'_>, index: u32, window_ms: u64, doing: Arc<Mutex<&'static str>>) -> Gpu {
    let mut asker = Asker { doing, failures: Vec::new(), is_lost: false };
    let ask = &mut asker;
    let mut gpu = Gpu { index, ..Gpu::default() };
    let began = Instant::now();
    gpu.pci =
        ask.ask("nvmlDeviceGetPciInfo", || device.pci_info()).map(|p| address(&p.bus_id)).unwrap_or_default();
    gpu.links = links::read(device, ask);
    let counted = Instant::now();
    gpu.pcie.replays = replays(device, ask);
    gpu.uuid = ask.ask("nvmlDeviceGetUUID", || device.uuid());
    gpu.name = ask.ask("nvmlDeviceGetName", || device.name()).unwrap_or_default();
    gpu.serial = ask.ask("nvmlDeviceGetSerial", || device.serial()).filter(|s| !s.is_empty() && s != "0");
    gpu.vbios = ask.ask("nvmlDeviceGetVbiosVersion", || device.vbios_version());
    heat_and_power(device, ask, &mut gpu);
    modes(device, ask, &mut gpu);
    memory(device, ask, &mut gpu);
    let pcie = &mut gpu.pcie;
    *pcie = PcieLink {
        generation: ask.ask("nvmlDeviceGetCurrPcieLinkGeneration", || device.current_pcie_link_gen()),
        generation_max: ask.ask("nvmlDeviceGetMaxPcieLinkGeneration", || device.max_pcie_link_gen()),
        width: ask.ask("nvmlDeviceGetCurrPcieLinkWidth", || device.current_pcie_link_width()),
        width_max: ask.ask("nvmlDeviceGetMaxPcieLinkWidth", || device.max_pcie_link_width()),
        ..*pcie
    };
    fabric(device, ask, &mut gpu);
    gpu.processes = ask
        .ask("nvmlDeviceGetComputeRunningProcesses", || device.running_compute_processes())
        .unwrap_or_default()
        .into_iter()
        .map(|process| GpuProcess {
            pid: process.pid,
            memory_mib: match process.used_gpu_memory {
                UsedGpuMemory::Used(bytes) => Some(bytes >> 20),
                UsedGpuMemory::Unavailable => None,
            },
        })
        .collect();
    if window_ms > 0 {
        let window = std::time::Duration::from_millis(window_ms);
        std::thread::sleep(window.saturating_sub(counted.elapsed()));
        links::read_again(device, ask, &mut gpu.links);
        gpu.pcie.replays_later = replays(device, ask);
        gpu.window_ms = Some(counted.elapsed().max(counted - began).as_millis() as u64);
    }
    gpu.failures = asker.failures;
    gpu
}

fn replays(device: &Device<'_>, ask: &mut Asker) -> Option<u64> {
    ask.ask("nvmlDeviceGetPcieReplayCounter", || device.pcie_replay_counter()).map(u64::from)
}

fn heat_and_power(device: &Device<'_>, ask: &mut Asker, gpu: &mut Gpu) {
    let watts = |milliwatts: u32| f64::from(milliwatts) / 1000.0;
    gpu.power_w = ask.ask("nvmlDeviceGetPowerUsage", || device.power_usage()).map(watts);
    gpu.power_limit_w =
        ask.ask("nvmlDeviceGetEnforcedPowerLimit", || device.enforced_power_limit()).map(watts);
    gpu.power_default_w = ask
        .ask("nvmlDeviceGetPowerManagementDefaultLimit", || device.power_management_limit_default())
        .map(watts);
    gpu.temperature_c = ask.ask("nvmlDeviceGetTemperature", || device.temperature(TemperatureSensor::Gpu));
    gpu.slowdown_c = ask.ask("nvmlDeviceGetTemperatureThreshold", || {
        device.temperature_threshold(TemperatureThreshold::Slowdown)
    });
    gpu.margin_c = ask.ask("nvmlDeviceGetMarginTemperature", || nvml::margin_c(device));
    let wanted = [NVML_FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, NVML_FI_DEV_MEMORY_TEMP];
    let fields = wanted.map(|id| Field { id, scope: 0 });
    let values = ask.ask("nvmlDeviceGetFieldValues", || nvml::fields(device, &fields)).unwrap_or_default();
    let value = |at: usize| values.get(at)?.as_ref().ok().copied();
    // Below zero as a rule, and printed as an unsigned number by some drivers.
    gpu.slowdown_margin_c = value(0).map(|degrees| degrees as i32);
    gpu.memory_temperature_c = value(1).map(|degrees| degrees as u32);
    gpu.utilization_pct =
        ask.ask("nvmlDeviceGetUtilizationRates", || device.utilization_rates()).map(|u| u.gpu);
    gpu.sm_clock_mhz = ask.ask("nvmlDeviceGetClockInfo", || device.clock_info(Clock::SM));
    gpu.sm_clock_max_mhz = ask.ask("nvmlDeviceGetMaxClockInfo", || device.max_clock_info(Clock::SM));
    gpu.memory_clock_mhz = ask.ask("nvmlDeviceGetClockInfo", || device.clock_info(Clock::Memory));
    gpu.clock_reasons = ask.ask("nvmlDeviceGetCurrentClocksEventReasons", || nvml::clock_reasons(device));
    gpu.performance_state =
        ask.ask("nvmlDeviceGetPerformanceState", || device.performance_state()).and_then(performance_state);
}

fn performance_state(state: PerformanceState) -> Option<u32> {
    let number = state.as_c();
    (number <= 15).then_some(number)
}

fn modes(device: &Device<'_>, ask: &mut Asker, gpu: &mut Gpu) {
    gpu.persistence = ask.ask("nvmlDeviceGetPersistenceMode", || device.is_in_persistent_mode());
    gpu.compute_mode = ask.ask("nvmlDeviceGetComputeMode", || device.compute_mode()).map(|mode| {
        let name = match mode {
            ComputeMode::Default => "default",
            ComputeMode::ExclusiveThread => "exclusive-thread",
            ComputeMode::Prohibited => "prohibited",
            ComputeMode::ExclusiveProcess => "exclusive-process",
        };
        name.to_owned()
    });
    gpu.mig = ask.ask("nvmlDeviceGetMigMode", || device.mig_mode()).map(|mode| mode.current != 0);
    let field = [Field { id: NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, scope: 0 }];
    gpu.recovery_action = ask
        .ask("nvmlDeviceGetFieldValues", || nvml::fields(device, &field))
        .and_then(|values| values.first()?.as_ref().ok().copied())
        .map(recovery_action);
}

/// nvmlDeviceGpuRecoveryAction_t; the fifth is newer than the bindings.
fn recovery_action(number: i64) -> String {
    match number {
        0 => "none".to_owned(),
        1 => "reset".to_owned(),
        2 => "reboot".to_owned(),
        3 => "drain-p2p".to_owned(),
        4 => "drain-and-reset".to_owned(),
        5 => "recover-imex-domain".to_owned(),
        other => other.to_string(),
    }
}

fn memory(device: &Device<'_>, ask: &mut Asker, gpu: &mut Gpu) {
    if let Some(memory) = ask.ask("nvmlDeviceGetMemoryInfo", || device.memory_info()) {
        gpu.memory_used_mib = Some(memory.used >> 20);
        gpu.memory_total_mib = Some(memory.total >> 20);
    }
    gpu.ecc = ask.ask("nvmlDeviceGetEccMode", || device.is_ecc_enabled()).map(|mode| mode.currently_enabled);
    if gpu.ecc != Some(false) {
        gpu.volatile = ecc(device, ask, EccCounter::Volatile);
        gpu.aggregate = ecc(device, ask, EccCounter::Aggregate);
        gpu.sram_threshold_exceeded =
            ask.ask("nvmlDeviceGetSramEccErrorStatus", || nvml::sram_threshold_exceeded(device));
    }
    gpu.rows = ask.ask("nvmlDeviceGetRemappedRows", || nvml::remapped(device)).map(|rows| {
        let banks = ask.ask("nvmlDeviceGetRowRemapperHistogram", || nvml::banks_low_and_exhausted(device));
        Rows {
            corrected: rows.corrected,
            uncorrected: rows.uncorrected,
            pending: rows.pending,
            failed: rows.failed,
            banks_exhausted: banks.map(|(_, exhausted)| exhausted),
            banks_low: banks.map(|(low, _)| low),
        }
    });
}

fn ecc(device: &Device<'_>, ask: &mut Asker, counter: EccCounter) -> Ecc {
    let mut at = |error: MemoryError, location: MemoryLocation| {
        let call = || device.memory_error_counter(error, counter, location);
        ask.ask("nvmlDeviceGetMemoryErrorCounter", call)
    };
    let mut ecc = Ecc {
        sram_corrected: at(MemoryError::Corrected, MemoryLocation::SRAM),
        sram_uncorrected: at(MemoryError::Uncorrected, MemoryLocation::SRAM),
        dram_corrected: at(MemoryError::Corrected, MemoryLocation::Device),
        dram_uncorrected: at(MemoryError::Uncorrected, MemoryLocation::Device),
        ..Ecc::default()
    };
    let mut total = |error: MemoryError| {
        ask.ask("nvmlDeviceGetTotalEccErrors", || device.total_ecc_errors(error, counter))
    };
    ecc.total_corrected = total(MemoryError::Corrected);
    ecc.total_uncorrected = total(MemoryError::Uncorrected);
    ecc
}

fn fabric(device: &Device<'_>, ask: &mut Asker, gpu: &mut Gpu) {
    let Some(fabric) = ask.ask("nvmlDeviceGetGpuFabricInfo", || nvml::fabric(device)) else { return };
    let state = match fabric.state {
        0 => "not-supported".to_owned(),
        1 => "not-started".to_owned(),
        2 => "in-progress".to_owned(),
        3 => "completed".to_owned(),
        other => other.to_string(),
    };
    if state == "completed" {
        gpu.fabric_status = Some(fabric.status);
        gpu.fabric_health_mask = fabric.health_mask;
        gpu.fabric_health_summary = fabric.health_summary.map(u32::from);
        gpu.fabric_clique = Some(fabric.clique);
        gpu.fabric_cluster = (fabric.cluster != [0; 16]).then(|| uuid(&fabric.cluster));
    }
    gpu.fabric_state = Some(state);
}

fn uuid(bytes: &[u8; 16]) -> String {
    let mut text = String::with_capacity(36);
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        // Writing to a string does not fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
