//! `rocm-smi` without arguments: one row per AMD GPU.
//!
//! ```text
//! GPU  Temp (DieEdge)  AvgPwr  SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%
//! 0    41.0c           92.0W   800Mhz   1600Mhz  0%   auto  560.0W   35%   0%
//! Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    Fan  Perf  PwrCap  VRAM%  GPU%
//! 0       2     0x74a1,   28851  40.0°C      137.0W    NPS1, SPX, 0        132Mhz  900Mhz  0%   auto  750.0W  0%     0%
//! ```
//! Columns come and go with the release, and their headings hold blanks: values are known by their units, the last two by their
//! place. The second GPU of a card prints no power of its own.
//!
//! Source: ROCm/rocm_smi_lib python_smi_tools/rocm_smi.py, showAllConcise.

use ringleader_model::{GpuRow, GpuTable};

use super::MAX_GPUS;

/// Whether the line is the heading.
pub(super) fn begins(text: &str) -> bool {
    let text = text.trim();
    (text.starts_with("GPU ") || text.starts_with("Device "))
        && text.ends_with("GPU%")
        && text.contains("VRAM%")
}

/// Takes a row of the table, or a line around the rows; false for any other line.
pub(super) fn line(table: &mut GpuTable, text: &str, number: u32) -> bool {
    let text = text.trim();
    if text.is_empty() || text.starts_with("====") || text.starts_with("(DID,") {
        return true;
    }
    match row(text, number) {
        Some(row) if table.gpus.len() < MAX_GPUS => {
            table.gpus.push(row);
            true
        }
        Some(_) => true,
        None => begins(text),
    }
}

fn row(text: &str, line: u32) -> Option<GpuRow> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let index = words.first()?.parse().ok()?;
    let [.., memory, used] = words.as_slice() else { return None };
    memory.strip_suffix('%')?.parse::<f32>().ok()?;
    let used: f32 = used.strip_suffix('%')?.parse().ok()?;
    let of = |units: &[&str]| {
        words
            .iter()
            .filter_map(|word| units.iter().find_map(|unit| word.strip_suffix(unit)?.parse::<f32>().ok()))
            .collect::<Vec<_>>()
    };
    let watts = of(&["W"]);
    let (power, limit) = match watts.as_slice() {
        [power, .., limit] => (Some(*power), Some(*limit)),
        [limit] => (None, Some(*limit)),
        [] => (None, None),
    };
    Some(GpuRow {
        line,
        index: Some(index),
        power_w: power,
        power_limit_w: limit.filter(|watts| *watts > 0.0),
        utilization_pct: Some(used),
        temperature_c: of(&["°C", "c", "C"]).first().copied(),
        sm_clock_mhz: of(&["Mhz", "MHz"]).first().map(|mhz| *mhz as u32),
        ..GpuRow::default()
    })
}

#[cfg(test)]
mod tests {
    use ringleader_model::GpuTable;

    use super::{begins, line};

    #[test]
    fn rows_of_two_releases() {
        let mut table = GpuTable::default();
        let old = "GPU  Temp (DieEdge)  AvgPwr  SCLK     MCLK     Fan  Perf  PwrCap  VRAM%  GPU%";
        assert!(begins(old));
        assert!(line(
            &mut table,
            "0    41.0c           92.0W   800Mhz   1600Mhz  0%   auto  560.0W   35%   91%",
            3
        ));
        assert!(line(
            &mut table,
            "1    38.0c           N/A     800Mhz   1600Mhz  0%   auto  0.0W     35%   0%",
            4
        ));
        assert!(line(&mut table, "==========================", 5));
        let new = "Device  Node  IDs              Temp        Power     Partitions          SCLK    MCLK    Fan  Perf  PwrCap  VRAM%  GPU%";
        assert!(begins(new));
        assert!(line(
            &mut table,
            "              (DID,     GUID)  (Junction)  (Socket)  (Mem, Compute, ID)",
            6
        ));
        assert!(line(
            &mut table,
            "0       2     0x74a1,   28851  40.0°C      137.0W    NPS1, SPX, 0        132Mhz  900Mhz  0%   auto  750.0W  0%     7%",
            7
        ));
        for other in ["x", "0 1 2", "GPU  Temp", "-1 3% 4%"] {
            assert!(!line(&mut table, other, 8), "{other}");
        }
        let seen: Vec<_> = table
            .gpus
            .iter()
            .map(|g| {
                (g.index, g.utilization_pct, g.power_w, g.power_limit_w, g.temperature_c, g.sm_clock_mhz)
            })
            .collect();
        let expected = [
            (Some(0), Some(91.0), Some(92.0), Some(560.0), Some(41.0), Some(800)),
            (Some(1), Some(0.0), None, None, Some(38.0), Some(800)),
            (Some(0), Some(7.0), Some(137.0), Some(750.0), Some(40.0), Some(132)),
        ];
        assert_eq!(seen, expected);
    }
}
