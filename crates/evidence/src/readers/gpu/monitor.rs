//! `nvidia-smi dmon` and `pmon`: one line per GPU and second, under headings that repeat.
//!
//! ```text
//! # gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk  pviol  tviol
//! # Idx      W      C      C      %      %      %      %      %      %    MHz    MHz      %   bool
//!     0     79     34     37      0      0      0      0      0      0   3201    345      0      0
//! ```
//! A GPU's samples are joined: power, utilisation and clocks by their mean, temperatures by the highest, error counts by
//! the last. `pviol` and `tviol` say that the power limit or the temperature held the clocks down in that second.

use std::collections::BTreeMap;

use ringleader_model::{ClockReasons, GpuForm, GpuRow, GpuTable, Pid};

use super::{MAX_GPUS, MAX_ROWS};

/// Columns, and what was summed so far.
pub(super) struct Monitor {
    columns: Vec<String>,
    sums: BTreeMap<u32, Sums>,
}

#[derive(Default)]
struct Sums {
    line: u32,
    power: Mean,
    busy: Mean,
    clock: Mean,
    temperature: Option<f32>,
    memory_temperature: Option<f32>,
    corrected: Option<u64>,
    uncorrected: Option<u64>,
    reasons: Option<u64>,
}

#[derive(Default)]
struct Mean {
    sum: f64,
    n: u32,
}

impl Mean {
    fn add(&mut self, value: Option<f32>) {
        if let Some(value) = value {
            self.sum += f64::from(value);
            self.n = self.n.saturating_add(1);
        }
    }

    fn get(&self) -> Option<f32> {
        (self.n > 0).then(|| (self.sum / f64::from(self.n)) as f32)
    }
}

impl Monitor {
    /// If the line is a heading.
    pub(super) fn begin(text: &str) -> Option<Self> {
        let columns = columns(text)?;
        let knows = |name: &str| columns.iter().any(|c| c == name);
        let fits =
            knows("gpu") && (knows("pwr") || knows("sm") || knows("pid") || knows("mclk") || knows("fb"));
        fits.then_some(Self { columns, sums: BTreeMap::new() })
    }

    pub(super) fn form(&self) -> GpuForm {
        if self.columns.iter().any(|c| c == "pid") { GpuForm::ProcessMonitor } else { GpuForm::Monitor }
    }

    pub(super) fn line(&mut self, table: &mut GpuTable, text: &str, line: u32) -> bool {
        if text.starts_with('#') {
            // The headings again, or the units.
            return match columns(text) {
                Some(again) if again.iter().any(|c| c == "gpu") => again == self.columns,
                _ => true,
            };
        }
        let values: Vec<&str> = text.split_ascii_whitespace().take(self.columns.len()).collect();
        let value = |name: &str| {
            let at = self.columns.iter().position(|c| c == name)?;
            values.get(at).copied()
        };
        let Some(Ok(index)) = value("gpu").map(str::parse::<u32>) else { return false };
        if values.len() + 1 < self.columns.len() {
            return false;
        }
        if let Some(pid) = value("pid") {
            let pair = pid.parse().ok().map(|pid| (index, Pid(pid)));
            if let Some(pair) =
                pair.filter(|p| table.processes.len() < MAX_ROWS && !table.processes.contains(p))
            {
                table.processes.push(pair);
            }
            return true;
        }
        let number = |name: &str| value(name)?.parse::<f32>().ok().filter(|n| n.is_finite());
        let count = |name: &str| value(name)?.parse::<u64>().ok();
        let (power, busy, clock) = (number("pwr"), number("sm"), number("pclk"));
        let (hot, memory_hot) = (number("gtemp").or_else(|| number("temp")), number("mtemp"));
        let (corrected, uncorrected) = (count("sbecc"), count("dbecc"));
        let held = [(number("pviol"), ClockReasons::POWER_CAP), (number("tviol"), ClockReasons::SW_THERMAL)];
        if !self.sums.contains_key(&index) && self.sums.len() >= MAX_GPUS {
            return true;
        }
        let sums = self.sums.entry(index).or_insert_with(|| Sums { line, ..Sums::default() });
        sums.power.add(power);
        sums.busy.add(busy);
        sums.clock.add(clock);
        let highest = |a: Option<f32>, b: Option<f32>| match (a, b) {
            (Some(a), Some(b)) => Some(a.max(b)),
            _ => a.or(b),
        };
        sums.temperature = highest(sums.temperature, hot);
        sums.memory_temperature = highest(sums.memory_temperature, memory_hot);
        sums.corrected = corrected.or(sums.corrected);
        sums.uncorrected = uncorrected.or(sums.uncorrected);
        for (value, bit) in held {
            if let Some(value) = value {
                let mask = sums.reasons.get_or_insert(0);
                *mask |= if value > 0.0 { bit } else { 0 };
            }
        }
        true
    }

    pub(super) fn finish(&self, table: &mut GpuTable) {
        for (index, sums) in &self.sums {
            let mut row = GpuRow {
                line: sums.line,
                index: Some(*index),
                power_w: sums.power.get(),
                utilization_pct: sums.busy.get(),
                sm_clock_mhz: sums.clock.get().map(|c| c as u32),
                temperature_c: sums.temperature,
                memory_temperature_c: sums.memory_temperature,
                uncorrected_errors: sums.uncorrected,
                clock_reasons: sums.reasons.map(ClockReasons),
                ..GpuRow::default()
            };
            row.volatile.total_corrected = sums.corrected;
            row.volatile.total_uncorrected = sums.uncorrected;
            table.gpus.push(row);
        }
    }
}

fn columns(text: &str) -> Option<Vec<String>> {
    let names = text.strip_prefix('#')?;
    let columns: Vec<String> = names.split_ascii_whitespace().take(64).map(str::to_owned).collect();
    (columns.len() > 1).then_some(columns)
}
