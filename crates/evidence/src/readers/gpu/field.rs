//! One name of a field, one place in the model: the same things are called three ways in three outputs.
//!
//! | `-q` | `-q -x` | `--query-gpu` |
//! |---|---|---|
//! | `ECC Errors / Volatile / DRAM Uncorrectable` | `ecc_errors/volatile/dram_uncorrectable` | `ecc.errors.uncorrected.volatile.dram` |
//! | `Clocks Event Reasons / HW Slowdown` | `…/clocks_event_reason_hw_slowdown` | `clocks_event_reasons.hw_slowdown` |
//! | `Remapped Rows / Pending` | `remapped_rows/remapped_row_pending` | `remapped_rows.pending` |
//!
//! Names are brought to one form (lower case, `_` between words, `.` between levels) and looked up together. Drivers
//! before 535 say `Throttle` for `Event`, and before 530 `Power Readings` without `GPU`.

use ringleader_model::{ClockReasons, EccCounts, GpuForm, GpuRow, GpuTable, PciAddress};

/// A name as it is looked up: `HW Power Brake Slowdown` becomes `hw_power_brake_slowdown`.
pub(super) fn plain(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for c in name.trim().chars() {
        if c.is_ascii_alphanumeric() {
            out.push(c.to_ascii_lowercase());
        } else if !out.ends_with('_') && !out.is_empty() {
            out.push('_');
        }
    }
    if out.ends_with('_') {
        out.pop();
    }
    out
}

/// Whether a value says that the driver could not read it from the GPU.
pub(super) fn is_error(value: &str) -> bool {
    const ERRORS: [&str; 5] =
        ["ERR!", "Unknown Error", "GPU is lost", "GPU requires reset", "GPU access blocked"];
    ERRORS.iter().any(|e| value.contains(e))
}

/// Puts a value into its place. False if the name means nothing to us.
pub(super) fn set(row: &mut GpuRow, path: &str, value: &str) -> bool {
    let value = value.trim();
    if is_error(value) {
        row.has_error = true;
        return true;
    }
    if matches!(
        value,
        "" | "N/A" | "[N/A]" | "Not Supported" | "[Not Supported]" | "[Insufficient Permissions]"
    ) {
        return false;
    }
    if let Some(leaf) = under(path, &["clocks_event_reasons.", "clocks_throttle_reasons."]) {
        return clock_reason(row, leaf, value);
    }
    if let Some(leaf) = under(path, &["clocks_event_reasons_counters.", "clocks_throttle_reasons_counters."])
    {
        return held_down(row, leaf, value);
    }
    if let Some(rest) = path.strip_prefix("ecc_errors.") {
        return ecc(row, rest, value);
    }
    if let Some(leaf) = path.strip_prefix("remapped_rows.") {
        return rows(row, leaf, value);
    }
    if let Some(leaf) = path.strip_prefix("fabric.health.") {
        if !matches!(value, "Healthy" | "False" | "None" | "Full" | "Yes" | "Not Degraded") {
            row.fabric_health.push(format!("{leaf}: {value}").into());
        }
        return true;
    }
    let number = || first_number(value);
    let count = || whole(value);
    let text = || Some(value.into());
    match path {
        "gpu_uuid" | "uuid" => row.uuid = text(),
        "product_name" | "name" | "gpu_name" => row.name = text(),
        "index" => row.index = count().map(|n| n as u32).or(row.index),
        "pci.bus_id" | "pci.pci_bus_id" | "gpu_bus_id" | "pci_bus_id" => {
            row.pci = PciAddress::parse(value).or(row.pci);
        }
        "persistence_mode" => row.persistence = yes(value),
        "mig_mode.current" | "mig_mode.current_mig" | "mig.mode.current" => row.mig = yes(value),
        "compute_mode" => row.compute_mode = text(),
        "gpu_recovery_action" => row.recovery_action = text(),
        "performance_state" | "pstate" => {
            row.performance_state = value.strip_prefix('P').and_then(|n| n.parse().ok());
        }
        "fb_memory_usage.total" | "memory.total" => row.memory_total_mib = count(),
        "fb_memory_usage.used" | "memory.used" => row.memory_used_mib = count(),
        "utilization.gpu" | "utilization.gpu_util" => row.utilization_pct = number(),
        "temperature.gpu_current_temp" | "temperature.gpu_temp" | "temperature.gpu" => {
            row.temperature_c = number();
        }
        "temperature.gpu_t_limit_temp" | "temperature.gpu_temp_tlimit" | "temperature.gpu.tlimit" => {
            row.temperature_left_c = number();
        }
        "temperature.memory_current_temp" | "temperature.memory_temp" | "temperature.memory" => {
            row.memory_temperature_c = number();
        }
        "clocks.sm" | "clocks.sm_clock" | "clocks.current.sm" => row.sm_clock_mhz = count().map(|n| n as u32),
        "clocks.memory" | "clocks.mem" | "clocks.mem_clock" | "clocks.current.memory" => {
            row.memory_clock_mhz = count().map(|n| n as u32);
        }
        "max_clocks.sm" | "max_clocks.sm_clock" | "clocks.max.sm" => {
            row.sm_clock_max_mhz = count().map(|n| n as u32);
        }
        "fabric.state" => row.fabric_state = text(),
        "fabric.status" => row.fabric_status = text(),
        "retired_pages.single_bit_ecc"
        | "retired_pages.multiple_single_bit_retirement.retired_count"
        | "retired_pages.sbe"
        | "retired_pages.single_bit_ecc.count" => row.pages.single_bit = count(),
        "retired_pages.double_bit_ecc"
        | "retired_pages.double_bit_retirement.retired_count"
        | "retired_pages.dbe"
        | "retired_pages.double_bit.count" => row.pages.double_bit = count(),
        "retired_pages.pending_page_blacklist"
        | "retired_pages.pending_blacklist"
        | "retired_pages.pending" => {
            row.pages.pending = yes(value);
        }
        "pci.replays_since_reset" | "pci.replay_counter" => row.pcie.replays = count(),
        "pci.replay_number_rollovers" | "pci.replay_rollover_counter" => row.pcie.replay_rollovers = count(),
        _ => return power(row, path, value) || pcie(row, path, value),
    }
    true
}

fn under<'p>(path: &'p str, sections: &[&str]) -> Option<&'p str> {
    let rest = sections.iter().find_map(|s| path.strip_prefix(s))?;
    Some(rest.rsplit_once('.').map_or(rest, |(_, leaf)| leaf))
}

fn clock_reason(row: &mut GpuRow, leaf: &str, value: &str) -> bool {
    let leaf = leaf
        .strip_prefix("clocks_event_reason_")
        .or_else(|| leaf.strip_prefix("clocks_throttle_reason_"))
        .unwrap_or(leaf);
    if leaf == "active" {
        let mask = value.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        row.clock_reasons = mask.map(ClockReasons).or(row.clock_reasons);
        return true;
    }
    let bit = match leaf {
        "idle" | "gpu_idle" => ClockReasons::IDLE,
        "applications_clocks_setting" => ClockReasons::USER,
        "sw_power_cap" => ClockReasons::POWER_CAP,
        "hw_slowdown" => ClockReasons::HW_SLOWDOWN,
        "hw_thermal_slowdown" => ClockReasons::HW_THERMAL,
        "hw_power_brake_slowdown" => ClockReasons::HW_POWER_BRAKE,
        "sync_boost" => ClockReasons::SYNC_BOOST,
        "sw_thermal_slowdown" => ClockReasons::SW_THERMAL,
        "display_clock_setting" | "display_clocks_setting" => ClockReasons::DISPLAY,
        _ => return false,
    };
    let mask = row.clock_reasons.get_or_insert_default();
    match value {
        "Active" => mask.0 |= bit,
        "Not Active" => mask.0 &= !bit,
        _ => return false,
    }
    true
}

fn held_down(row: &mut GpuRow, leaf: &str, value: &str) -> bool {
    let leaf = leaf.strip_prefix("clocks_event_reasons_counters_").unwrap_or(leaf);
    let held = &mut row.held_down;
    let place = match leaf {
        "sw_power_capping" | "sw_power_cap" => &mut held.power_cap_us,
        "sw_thermal_slowdown" | "sw_therm_slowdown" => &mut held.sw_thermal_us,
        "hw_thermal_slowdown" | "hw_therm_slowdown" => &mut held.hw_thermal_us,
        "hw_power_braking" | "hw_power_brake" | "hw_power_brake_slowdown" => &mut held.hw_power_brake_us,
        _ => return false,
    };
    *place = whole(value);
    true
}

/// `volatile.dram_uncorrectable`, `volatile.double_bit.total`, `unrepairable_memory`.
fn ecc(row: &mut GpuRow, rest: &str, value: &str) -> bool {
    match rest {
        "aggregate.sram_threshold_exceeded" => {
            row.sram_threshold_exceeded = yes(value);
            return true;
        }
        "unrepairable_memory" => {
            row.unrepairable_memory = yes(value);
            return true;
        }
        _ => {}
    }
    let (Some((life, leaf)), Some(n)) = (rest.split_once('.'), whole(value)) else { return false };
    let counts = match life {
        "volatile" => &mut row.volatile,
        "aggregate" => &mut row.aggregate,
        _ => return false,
    };
    let add = |place: &mut Option<u64>| *place = Some(place.unwrap_or(0).saturating_add(n));
    match leaf {
        "sram_correctable" => counts.sram_corrected = Some(n),
        // Newer drivers print parity and SEC-DED apart.
        "sram_uncorrectable"
        | "sram_uncorrectable_parity"
        | "sram_uncorrectable_sec_ded"
        | "sram_uncorrectable_secded" => {
            add(&mut counts.sram_uncorrected);
        }
        "dram_correctable" | "single_bit.device_memory" => counts.dram_corrected = Some(n),
        "dram_uncorrectable" | "double_bit.device_memory" => counts.dram_uncorrected = Some(n),
        "single_bit.total" => counts.total_corrected = Some(n),
        "double_bit.total" => counts.total_uncorrected = Some(n),
        _ => return false,
    }
    if life == "volatile" {
        row.uncorrected_errors = row.volatile.uncorrected().or(row.uncorrected_errors);
    }
    true
}

/// `ecc.errors.uncorrected.volatile.dram` of a CSV.
pub(super) fn csv_ecc(row: &mut GpuRow, name: &str, value: &str) -> bool {
    let mut parts = name.strip_prefix("ecc.errors.").unwrap_or_default().splitn(3, '.');
    let (Some(sort), Some(life), Some(place)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    if is_error(value) {
        row.has_error = true;
        return true;
    }
    let Some(n) = whole(value) else { return false };
    let counts: &mut EccCounts = match life {
        "volatile" => &mut row.volatile,
        "aggregate" => &mut row.aggregate,
        _ => return false,
    };
    match (sort, place) {
        ("corrected", "total") => counts.total_corrected = Some(n),
        ("uncorrected", "total") => counts.total_uncorrected = Some(n),
        ("corrected", "dram" | "device_memory") => counts.dram_corrected = Some(n),
        ("uncorrected", "dram" | "device_memory") => counts.dram_uncorrected = Some(n),
        ("corrected", "sram") => counts.sram_corrected = Some(n),
        ("uncorrected", "sram") => counts.sram_uncorrected = Some(n),
        _ => return false,
    }
    row.uncorrected_errors = row.volatile.uncorrected().or(row.uncorrected_errors);
    true
}

fn rows(row: &mut GpuRow, leaf: &str, value: &str) -> bool {
    let rows = &mut row.rows;
    match leaf {
        "correctable_error" | "remapped_row_corr" | "correctable" => rows.corrected = whole(value),
        "uncorrectable_error" | "remapped_row_unc" | "uncorrectable" => rows.uncorrected = whole(value),
        "pending" | "remapped_row_pending" => rows.pending = yes(value),
        "remapping_failure_occurred" | "remapped_row_failure" | "failure" => rows.failed = yes(value),
        _ => {
            let (_, bank) = leaf.rsplit_once(['.', '_']).unwrap_or(("", leaf));
            match bank {
                "none" => rows.banks_exhausted = whole(value),
                "low" => rows.banks_low = whole(value),
                _ => return false,
            }
        }
    }
    true
}

fn power(row: &mut GpuRow, path: &str, value: &str) -> bool {
    let leaf = match path.rsplit_once('.') {
        Some(("gpu_power_readings" | "power_readings", leaf)) => leaf,
        _ if path.starts_with("power.") || path == "enforced.power.limit" => path,
        _ => return false,
    };
    let watts = first_number(value);
    match leaf {
        "average_power_draw" | "power_draw" | "power.draw" | "power.draw.average" => row.power_w = watts,
        "instantaneous_power_draw" | "instant_power_draw" | "power.draw.instant" => {
            row.power_w = row.power_w.or(watts);
        }
        "current_power_limit"
        | "power_limit"
        | "enforced_power_limit"
        | "power.limit"
        | "enforced.power.limit" => {
            row.power_limit_w = watts;
        }
        "default_power_limit" | "power.default_limit" => row.power_default_w = watts,
        _ => return false,
    }
    true
}

fn pcie(row: &mut GpuRow, path: &str, value: &str) -> bool {
    let link = &mut row.pcie;
    let n = || value.trim_end_matches('x').parse().ok();
    match path {
        "pci.gpu_link_info.pcie_generation.max"
        | "pci.pci_gpu_link_info.pcie_gen.max_link_gen"
        | "pcie.link.gen.max" => link.generation_max = n(),
        "pci.gpu_link_info.pcie_generation.current"
        | "pci.pci_gpu_link_info.pcie_gen.current_link_gen"
        | "pcie.link.gen.current"
        | "pcie.link.gen.gpucurrent" => link.generation = n(),
        "pci.gpu_link_info.link_width.max"
        | "pci.pci_gpu_link_info.link_widths.max_link_width"
        | "pcie.link.width.max" => link.width_max = n(),
        "pci.gpu_link_info.link_width.current"
        | "pci.pci_gpu_link_info.link_widths.current_link_width"
        | "pcie.link.width.current" => link.width = n(),
        _ => return false,
    }
    true
}

/// The number a value begins with.
pub(super) fn first_number(value: &str) -> Option<f32> {
    value.split_ascii_whitespace().next()?.parse().ok().filter(|n: &f32| n.is_finite())
}

/// The whole number a value begins with.
pub(super) fn whole(value: &str) -> Option<u64> {
    value.split_ascii_whitespace().next()?.parse().ok()
}

fn yes(value: &str) -> Option<bool> {
    match value {
        "Yes" | "Enabled" | "On" | "1" => Some(true),
        "No" | "Disabled" | "Off" | "0" => Some(false),
        _ => None,
    }
}

/// Gives GPUs that were listed without an index the one of their order, if the list is known to be whole: NVML counts
/// in the order of PCI addresses, and so do all outputs.
pub(super) fn number_gpus(table: &mut GpuTable) {
    let whole = table.attached.is_some_and(|n| n as usize == table.gpus.len());
    if matches!(table.form, GpuForm::Query | GpuForm::Xml) {
        if whole {
            for (index, gpu) in (0..).zip(&mut table.gpus) {
                gpu.index = gpu.index.or(Some(index));
            }
        } else {
            // Which of the machine's GPUs a process is on is not known by their order.
            table.processes.clear();
        }
    }
}
