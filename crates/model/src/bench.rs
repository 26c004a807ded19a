//! Benchmarks and tests with known answers: nccl-tests, copies between GPUs.

use crate::{Host, PciAddress, Pid, Rank};

/// One run of a program of nccl-tests.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BenchRun {
    /// The command that started it, if a shell prompt line shows it.
    pub command: Option<Box<str>>,
    /// `all_reduce`, without `_perf`.
    pub collective: Option<Box<str>>,
    /// NCCL's release, as printed: `2.28.9+cuda13.0`.
    pub nccl_version: Option<Box<str>>,
    /// `NCCL_*` settings of the command line or of the environment that its JSON lists.
    pub settings: Vec<(Box<str>, Box<str>)>,
    /// GPUs that take part.
    pub devices: Vec<BenchDevice>,
    /// Sizes measured, in file order.
    pub rows: Vec<BenchRow>,
    /// Line and number of `Out of bounds values`.
    pub out_of_bounds: Option<(u32, u64)>,
    /// Line and value of `Avg bus bandwidth`, GB/s (10^9 bytes). Small sizes weigh as much as large ones in it.
    pub avg_busbw_gbs: Option<(u32, f64)>,
    /// Line and status of `echo $?` right behind it; 124 is that of `timeout`.
    pub exit_status: Option<(u32, i32)>,
}

/// A GPU in the list at the top of the output.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BenchDevice {
    /// Line.
    pub line: u32,
    /// Rank in the test.
    pub rank: Option<Rank>,
    /// Process.
    pub pid: Option<Pid>,
    /// Host.
    pub host: Option<Host>,
    /// CUDA device number.
    pub device: Option<u32>,
    /// PCI address; older versions print only the bus.
    pub pci: Option<PciAddress>,
    /// `NVIDIA H200`.
    pub name: Box<str>,
}

/// Results for one message size.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BenchRow {
    /// Line; that of the whole document if it is JSON.
    pub line: u32,
    /// Bytes, as nccl-tests counts them for this collective.
    pub size_bytes: u64,
    /// Out of place.
    pub out_of_place: Option<BenchFigure>,
    /// In place; absent if the run ended within the row.
    pub in_place: Option<BenchFigure>,
}

/// The measurements of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BenchFigure {
    /// Microseconds.
    pub time_us: f64,
    /// Algorithm bandwidth, GB/s (10^9 bytes).
    pub algbw_gbs: f64,
    /// Bus bandwidth, GB/s (10^9 bytes).
    pub busbw_gbs: f64,
    /// Wrong elements; None if the column says `N/A` or counts errors as a float (releases before 2.13).
    pub n_wrong: Option<u64>,
}

impl BenchRun {
    /// Wrong elements in all rows; None if nothing was checked.
    pub fn n_wrong(&self) -> Option<u64> {
        let in_rows = self
            .rows
            .iter()
            .flat_map(|r| [r.out_of_place, r.in_place])
            .flatten()
            .filter_map(|f| f.n_wrong)
            .reduce(u64::saturating_add);
        in_rows.max(self.out_of_bounds.map(|(_, n)| n))
    }

    /// Hosts that take part, each listed once.
    pub fn hosts(&self) -> Vec<&Host> {
        let mut hosts: Vec<&Host> = self.devices.iter().filter_map(|d| d.host.as_ref()).collect();
        hosts.sort_unstable();
        hosts.dedup();
        hosts
    }

    /// Value of a setting of this run, if it was set.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.iter().rev().find(|(n, _)| **n == *name).map(|(_, v)| &**v)
    }
}

/// A copy of known data from one GPU to another, compared afterwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CopyTest {
    /// GPU that it came from, if stated.
    pub from: Option<u32>,
    /// GPU that it went to, if stated.
    pub to: Option<u32>,
    /// Whether the data arrived unchanged.
    pub is_right: bool,
    /// The statement that compares them.
    pub compared: Box<str>,
}
