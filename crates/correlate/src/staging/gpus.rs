//! Outputs of the driver's tools made by hand for the tests of rules.

use ringleader_model::{
    Fact, GpuForm, GpuPath, GpuRow, GpuService, GpuTable, GpuTest, GpuTestStatus, GpuTests, NvLink,
    PciAddress, SourceKind, WallTime, Who,
};

use crate::staging::StagedCase;

/// Buses of the GPUs of these tests; the first two are those of [`StagedCase::two_ranks`].
const BUSES: [u8; 8] = [0x1a, 0x3b, 0x4c, 0x5d, 0x9a, 0xab, 0xba, 0xcb];

/// A GPU with its names and nothing else.
pub fn gpu(index: u32) -> GpuRow {
    let bus = BUSES.get(index as usize).copied().unwrap_or(0xff);
    GpuRow {
        line: 10 + index,
        index: Some(index),
        pci: Some(PciAddress { domain: 0, bus, device: 0, function: 0 }),
        name: Some("NVIDIA H100 80GB HBM3".into()),
        ..GpuRow::default()
    }
}

/// Several such GPUs, each changed by `change`.
pub fn gpus(n: u32, change: impl Fn(u32, &mut GpuRow)) -> Vec<GpuRow> {
    (0..n)
        .map(|index| {
            let mut row = gpu(index);
            change(index, &mut row);
            row
        })
        .collect()
}

/// Links, this many of them up.
pub fn links(n_up: u32, n: u32) -> Vec<NvLink> {
    (0..n)
        .map(|number| NvLink { line: 20 + number, number, active: Some(number < n_up), ..NvLink::default() })
        .collect()
}

impl StagedCase {
    /// An output that shows these GPUs.
    pub fn shows(self, gpus: Vec<GpuRow>) -> Self {
        self.table(GpuTable { form: GpuForm::Query, gpus, ..GpuTable::default() })
    }

    /// The same at this second.
    pub fn shows_at(self, second: i64, gpus: Vec<GpuRow>) -> Self {
        let at = WallTime { ns: second * 1_000_000_000, error_ns: 0, has_year: true };
        self.table(GpuTable { form: GpuForm::Query, gpus, at: Some(at), ..GpuTable::default() })
    }

    /// What nvidia-smi says in place of a table.
    pub fn smi_fails(self, text: &str) -> Self {
        self.table(GpuTable { failures: vec![(1, text.into())], ..GpuTable::default() })
    }

    /// `topo -m`; each row the paths of one GPU, `X` to itself.
    pub fn topology(self, rows: &[&str]) -> Self {
        let mut paths = Vec::new();
        for (from, row) in (0..).zip(rows) {
            for (to, kind) in (0..).zip(row.split_ascii_whitespace()) {
                if kind != "X" {
                    paths.push(GpuPath { line: 2 + from, from, to, kind: kind.into() });
                }
            }
        }
        self.table(GpuTable { form: GpuForm::Topology, paths, ..GpuTable::default() })
    }

    fn table(self, table: GpuTable) -> Self {
        self.push(SourceKind::NvidiaSmi, Who::default(), Fact::Gpus(table.into()))
    }

    /// A test of dcgmi that failed.
    pub fn test_fails(self, name: &str, gpu: Option<u32>, warning: &str) -> Self {
        let test = GpuTest {
            line: 12,
            name: name.into(),
            gpu,
            status: GpuTestStatus::Fail,
            warnings: vec![warning.into()],
        };
        let tests = GpuTests { results: vec![test], ..GpuTests::default() };
        self.push(SourceKind::Dcgmi, Who::default(), Fact::GpuTests(tests.into()))
    }

    /// A log of the Fabric Manager: texts of its errors, each a second after the one before.
    pub fn fabric_log(self, first_s: i64, said: &[&str]) -> Self {
        let at = |n: i64| WallTime { ns: (first_s + n) * 1_000_000_000, error_ns: 0, has_year: true };
        let errors = (0..).zip(said).map(|(n, text)| (n as u32 + 5, Some(at(n)), (*text).into())).collect();
        let service = GpuService { name: "nvidia-fabricmanager".into(), errors, ..GpuService::default() };
        self.push(SourceKind::GpuServices, Who::default(), Fact::GpuService(service.into()))
    }

    /// A service of the driver; `said` is what it logged as errors.
    pub fn service(self, name: &str, active: &str, said: &[&str]) -> Self {
        let errors = (5..).zip(said).map(|(line, text)| (line, None, (*text).into())).collect();
        let service = GpuService {
            name: name.into(),
            active: (!active.is_empty()).then(|| active.into()),
            errors,
            ..GpuService::default()
        };
        self.push(SourceKind::GpuServices, Who::default(), Fact::GpuService(service.into()))
    }
}
