//! What a GPU is, how it is linked, and what else goes on there: from the driver, NVML and sysfs.
//!
//! NVML is optional: what it would tell is then absent, and a note says so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nvml_wrapper::bitmasks::device::ThrottleReasons;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::{Device, Nvml};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sys::{Attribute, Driver, LibraryError};

/// What is known of one rank's GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gpu {
    /// Rank of this run.
    pub rank: usize,
    /// Host.
    pub host: String,
    /// Number among the GPUs that are visible to its process.
    pub device: usize,
    /// Name.
    pub name: String,
    /// PCI address.
    pub bus: String,
    /// UUID.
    pub uuid: String,
    /// Compute capability, as 90.
    pub capability: i32,
    /// Streaming multiprocessors.
    pub multiprocessors: i32,
    /// NVLinks that are up; none if NVML does not tell.
    pub nvlinks: Option<u32>,
    /// NVLinks that are down.
    pub nvlinks_down: Option<u32>,
    /// What the links that are up carry together in one direction, GB/s.
    pub nvlink_gb_s: Option<f64>,
    /// PCIe under load, where a sample was taken; else at rest, when a link may save power.
    pub pcie: Pcie,
    /// Ranks of this run whose memory it can reach directly.
    pub reaches: Vec<usize>,
    /// Share of time with a kernel running before this run, percent.
    pub busy_pct: Option<u32>,
    /// Memory in use before this run, bytes.
    pub used_bytes: Option<u64>,
    /// Other processes that use the GPU, where NVML sees them.
    pub processes: Vec<u32>,
    /// Reasons for low clocks that were seen during the run, apart from idleness and the set limit of power.
    pub slowed_by: Vec<String>,
    /// Lowest and highest clock of the multiprocessors during the run, MHz.
    pub clock_mhz: Option<(u32, u32)>,
    /// Highest temperature during the run, °C.
    pub hottest_c: Option<u32>,
    /// RDMA ports of this host that are up, and their rates, GB/s.
    pub rdma_gb_s: Vec<(String, f64)>,
}

/// A PCIe link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Pcie {
    /// Generation now.
    pub generation: Option<u32>,
    /// Lanes now.
    pub width: Option<u32>,
    /// Generation that both ends can.
    pub generation_max: Option<u32>,
    /// Lanes that both ends have.
    pub width_max: Option<u32>,
}

/// Counters of memory errors, to be read before and after.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Errors {
    /// Corrected since the driver was loaded.
    pub corrected: Option<u64>,
    /// Uncorrected since the driver was loaded.
    pub uncorrected: Option<u64>,
}

/// Rate of one NVLink in one direction, GB/s, by the version that NVML states.
fn nvlink_rate(version: u32) -> f64 {
    match version {
        0 | 1 => 20.0,
        // 2.0 to 4.0.
        2..=6 => 25.0,
        _ => 50.0,
    }
}

/// NVML_NVLINK_MAX_LINKS.
const MOST_NVLINKS: u32 = 18;

/// NVML, if it can be opened.
pub struct Meter {
    nvml: Option<Nvml>,
}

impl Default for Meter {
    fn default() -> Self {
        Self::new()
    }
}

impl Meter {
    /// Opens NVML.
    pub fn new() -> Self {
        Self { nvml: Nvml::init().ok() }
    }

    /// Whether it could be opened.
    pub fn is_there(&self) -> bool {
        self.nvml.is_some()
    }

    fn device(&self, bus: &str) -> Option<Device<'_>> {
        self.nvml.as_ref()?.device_by_pci_bus_id(bus).ok()
    }

    /// What is known of a GPU before the run.
    ///
    /// # Errors
    /// If the driver knows no such GPU.
    pub fn gpu(&self, driver: Driver, device: usize, rank: usize) -> Result<Gpu, LibraryError> {
        let number = |which| driver.attribute(device, which);
        let mut out = Gpu {
            rank,
            host: host(),
            device,
            name: driver.name(device)?,
            bus: driver.bus(device)?,
            uuid: driver.uuid(device).unwrap_or_default(),
            capability: number(Attribute::Major)? * 10 + number(Attribute::Minor)?,
            multiprocessors: number(Attribute::Multiprocessors)?,
            rdma_gb_s: rdma(),
            ..Gpu::default()
        };
        let Some(of) = self.device(&out.bus) else { return Ok(out) };
        let (mut up, mut down, mut rate) = (0, 0, 0.0);
        for number in 0..MOST_NVLINKS {
            let link = of.link_wrapper_for(number);
            match link.is_active() {
                Ok(true) => {
                    up += 1;
                    rate += nvlink_rate(link.version().unwrap_or(2));
                }
                Ok(false) => down += 1,
                // It has no such link.
                Err(_) => {}
            }
        }
        (out.nvlinks, out.nvlinks_down, out.nvlink_gb_s) = (Some(up), Some(down), (up > 0).then_some(rate));
        out.pcie = pcie(&of);
        out.busy_pct = busy(&of);
        out.used_bytes = of.memory_info().ok().map(|memory| memory.used);
        let own = std::process::id();
        out.processes = of
            .running_compute_processes()
            .map(|all| all.into_iter().map(|process| process.pid).filter(|pid| *pid != own).collect())
            .unwrap_or_default();
        Ok(out)
    }

    /// Errors of the memory so far.
    pub fn errors(&self, bus: &str) -> Errors {
        use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError};
        let Some(of) = self.device(bus) else { return Errors::default() };
        let count = |kind| of.total_ecc_errors(kind, EccCounter::Volatile).ok();
        Errors { corrected: count(MemoryError::Corrected), uncorrected: count(MemoryError::Uncorrected) }
    }
}

/// The most of several looks: a kernel may just have ended.
fn busy(of: &Device<'_>) -> Option<u32> {
    let mut most = None;
    for _ in 0..5 {
        most = most.max(of.utilization_rates().ok().map(|rates| rates.gpu));
        std::thread::sleep(Duration::from_millis(60));
    }
    most
}

fn pcie(of: &Device<'_>) -> Pcie {
    Pcie {
        generation: of.current_pcie_link_gen().ok(),
        width: of.current_pcie_link_width().ok(),
        generation_max: of.max_pcie_link_gen().ok(),
        width_max: of.max_pcie_link_width().ok(),
    }
}

/// This host's name.
pub fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .unwrap_or_default()
}

/// RDMA ports that are up, with their rates.
fn rdma() -> Vec<(String, f64)> {
    let mut out = Vec::new();
    for device in std::fs::read_dir("/sys/class/infiniband").into_iter().flatten().flatten() {
        for port in std::fs::read_dir(device.path().join("ports")).into_iter().flatten().flatten() {
            let read = |name: &str| std::fs::read_to_string(port.path().join(name)).unwrap_or_default();
            if !read("state").contains("ACTIVE") {
                continue;
            }
            // "400 Gb/sec (4X NDR)"
            let rate = read("rate").split_whitespace().next().and_then(|rate| rate.parse::<f64>().ok());
            let name =
                format!("{}/{}", device.file_name().to_string_lossy(), port.file_name().to_string_lossy());
            out.extend(rate.map(|gbit| (name, gbit / 8.0)));
        }
    }
    out.sort_by(|a, b| a.0.cmp(&b.0));
    out
}

/// Looks at GPUs ten times a second while they work.
pub struct Sampler {
    stop: Arc<AtomicBool>,
    rest: Arc<AtomicBool>,
    thread: std::thread::JoinHandle<Vec<Sampled>>,
}

/// What was seen of one GPU.
#[derive(Clone, Debug, Default)]
struct Sampled {
    bus: String,
    reasons: u64,
    clock: Option<(u32, u32)>,
    hottest: Option<u32>,
    pcie: Pcie,
}

impl Sampler {
    /// Starts. The GPUs are named by PCI address.
    pub fn start(buses: Vec<String>) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let rest = Arc::new(AtomicBool::new(false));
        let rests = Arc::clone(&rest);
        let thread = std::thread::spawn(move || {
            let meter = Meter::new();
            let mut all: Vec<Sampled> =
                buses.into_iter().map(|bus| Sampled { bus, ..Sampled::default() }).collect();
            while meter.is_there() && !flag.load(Ordering::Relaxed) {
                for one in all.iter_mut().filter(|_| !rests.load(Ordering::Relaxed)) {
                    let Some(of) = meter.device(&one.bus) else { continue };
                    one.reasons |= of.current_throttle_reasons().map_or(0, |reasons| reasons.bits());
                    if let Ok(clock) = of.clock_info(Clock::SM) {
                        let (low, high) = one.clock.unwrap_or((clock, clock));
                        one.clock = Some((low.min(clock), high.max(clock)));
                    }
                    one.hottest = one.hottest.max(of.temperature(TemperatureSensor::Gpu).ok());
                    let now = pcie(&of);
                    one.pcie = Pcie {
                        generation: one.pcie.generation.max(now.generation),
                        width: one.pcie.width.max(now.width),
                        ..now
                    };
                }
                std::thread::sleep(Duration::from_millis(100));
            }
            all
        });
        Self { stop, rest, thread }
    }

    /// Looks no more, or again: a look takes locks of the driver, which a call of ten microseconds would feel.
    pub fn rest(&self, rests: bool) {
        self.rest.store(rests, Ordering::Relaxed);
    }

    /// Stops, and adds what was seen.
    pub fn finish(self, gpus: &mut [Gpu]) {
        self.stop.store(true, Ordering::Relaxed);
        for seen in self.thread.join().unwrap_or_default() {
            for gpu in gpus.iter_mut().filter(|gpu| gpu.bus == seen.bus && gpu.host == host()) {
                gpu.slowed_by = reasons(seen.reasons);
                gpu.clock_mhz = seen.clock;
                gpu.hottest_c = seen.hottest;
                if seen.pcie.width.is_some() {
                    gpu.pcie = seen.pcie;
                }
            }
        }
    }
}

/// Reasons for low clocks that are none of ours: neither idleness, nor a limit that was set, nor the cap on power, which a
/// busy GPU reaches in health.
fn reasons(bits: u64) -> Vec<String> {
    let reasons = ThrottleReasons::from_bits_truncate(bits);
    [
        (ThrottleReasons::HW_SLOWDOWN, "hardware slowdown"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, "thermal slowdown by hardware"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, "thermal slowdown by the driver"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, "power brake"),
    ]
    .into_iter()
    .filter(|(reason, _)| reasons.contains(*reason))
    .map(|(_, name)| name.to_owned())
    .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_no_reason() {
        let idle = (ThrottleReasons::GPU_IDLE | ThrottleReasons::SW_POWER_CAP).bits();
        assert_eq!(reasons(idle), Vec::<String>::new());
        assert_eq!(reasons(ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN.bits()), ["power brake"]);
    }
}
