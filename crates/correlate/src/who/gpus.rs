//! What the driver's tools say of GPUs, and whose each GPU is.
//!
//! Outputs name a GPU by its index, its UUID, its PCI address, or some of them; those with two names lend them to those
//! with one. A rank is found by the process that runs on the GPU, else by the address that NCCL's logs give.

use std::collections::BTreeMap;

use ringleader_knowledge::wording::TestFault;
use ringleader_model::{
    Case, Cite, Culprit, Evidence, Fact, GpuRow, GpuTable, GpuTest, GpuTests, Host, Observation, PciAddress,
    SourceKind, Who,
};

use crate::who::culprits::add_culprit;
use crate::who::roster::Roster;

/// How a GPU belongs to the job, the weakest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Use {
    /// The job's GPUs are known, and this is none of them.
    Other,
    /// Nothing is known.
    Unknown,
    /// There is no job in the evidence: the output is judged by itself.
    Alone,
    /// A rank runs on it.
    Rank,
}

/// One GPU as one output shows it.
#[derive(Clone, Debug)]
pub struct SeenGpu<'a> {
    /// The output.
    pub observation: &'a Observation,
    /// The table of GPUs in that output.
    pub table: &'a GpuTable,
    /// The row of this GPU in the table.
    pub row: &'a GpuRow,
    /// Its address, from here or another output of the same machine.
    pub pci: Option<PciAddress>,
    /// How it belongs to the job.
    pub used: Use,
    /// Whom it means.
    pub culprit: Culprit,
}

impl SeenGpu<'_> {
    /// Uncorrectable errors that it counts since the driver was loaded.
    pub fn uncorrected(&self) -> Option<u64> {
        self.row.volatile.uncorrected().max(self.row.uncorrected_errors).filter(|n| *n > 0)
    }

    /// Cites its row.
    pub fn cite(&self) -> Cite {
        Cite { line: self.row.line, ..self.observation.cite }
    }

    /// As cited evidence, in the words of a rule.
    pub fn evidence(&self, text: impl Into<String>) -> Evidence {
        Evidence { cite: self.cite(), text: text.into(), kind: SourceKind::NvidiaSmi }
    }

    /// `GPU 3 (0000:3b:00.0)`, with what is known.
    pub fn name(&self) -> String {
        match (self.row.index, self.pci) {
            (Some(index), Some(pci)) => format!("GPU {index} ({pci})"),
            (Some(index), None) => format!("GPU {index}"),
            (None, Some(pci)) => format!("GPU {pci}"),
            (None, None) => self.row.uuid.as_ref().map_or_else(|| "a GPU".to_owned(), |u| format!("GPU {u}")),
        }
    }

    /// The name, and its rank or host.
    pub fn whose(&self) -> String {
        match (self.culprit.rank, &self.culprit.host) {
            (Some(rank), _) => format!("{} of rank {}", self.name(), rank.0),
            (None, Some(host)) => format!("{} on {host}", self.name()),
            (None, None) => self.name(),
        }
    }

    /// Whether two rows show the same GPU.
    pub fn is_same(&self, other: &Self) -> bool {
        let machine = |g: &Self| (g.observation.who.host.clone(), g.culprit.host.clone());
        if machine(self) != machine(other) {
            return false;
        }
        match (&self.row.uuid, &other.row.uuid) {
            (Some(a), Some(b)) => return a == b,
            _ if self.pci.is_some() && other.pci.is_some() => return self.pci == other.pci,
            _ => {}
        }
        self.row.index.is_some() && self.row.index == other.row.index
    }
}

/// Names of GPUs of one machine, from outputs that print two of them.
#[derive(Default)]
struct GpuNames<'a> {
    by_uuid: BTreeMap<&'a str, PciAddress>,
    /// None where two outputs disagree.
    by_index: BTreeMap<u32, Option<PciAddress>>,
}

/// All outputs of the driver's tools.
#[derive(Clone, Debug, Default)]
pub struct Gpus<'a> {
    /// GPUs in file order.
    pub seen: Vec<SeenGpu<'a>>,
}

impl<'a> Gpus<'a> {
    /// Joins the outputs with the job.
    pub fn new(case: &'a Case, roster: &Roster, has_job: bool) -> Self {
        let tables: Vec<(&Observation, &GpuTable)> = case
            .observations
            .iter()
            .filter_map(|o| match &o.fact {
                Fact::Gpus(table) => Some((o, &**table)),
                _ => None,
            })
            .collect();
        let mut names: BTreeMap<(Option<&Host>, &str), GpuNames<'a>> = BTreeMap::new();
        for (observation, table) in &tables {
            let names = names.entry(machine(case, observation)).or_default();
            for row in &table.gpus {
                let Some(pci) = row.pci else { continue };
                if let Some(uuid) = row.uuid.as_deref() {
                    names.by_uuid.insert(uuid, pci);
                }
                if let Some(index) = row.index {
                    let known = names.by_index.entry(index).or_insert(Some(pci));
                    *known = known.filter(|k| *k == pci);
                }
            }
        }
        let mut seen = Vec::new();
        for (observation, table) in tables {
            let names = names.get(&machine(case, observation));
            for row in &table.gpus {
                let pci = row.pci.or_else(|| {
                    let names = names?;
                    let by_uuid = row.uuid.as_deref().and_then(|u| names.by_uuid.get(u).copied());
                    by_uuid.or_else(|| names.by_index.get(&row.index?).copied().flatten())
                });
                let (used, culprit) = whose(roster, has_job, observation, table, row, pci);
                seen.push(SeenGpu { observation, table, row, pci, used, culprit });
            }
        }
        Self { seen }
    }

    /// GPUs of each output, output by output.
    pub fn tables(&self) -> impl Iterator<Item = &[SeenGpu<'a>]> {
        self.seen.chunk_by(|a, b| std::ptr::eq(a.observation, b.observation))
    }

    /// The GPU with this index, as any output near this place shows it.
    pub fn by_index(&self, observation: &Observation, index: u32) -> Option<&SeenGpu<'a>> {
        let fits =
            |g: &&SeenGpu<'_>| g.row.index == Some(index) && g.observation.who.host == observation.who.host;
        self.seen.iter().filter(fits).max_by_key(|g| g.used)
    }
}

/// Outputs of one host, or of one folder where no host is named, are of one machine.
fn machine<'a>(case: &'a Case, observation: &'a Observation) -> (Option<&'a Host>, &'a str) {
    let source = case.sources.get(observation.cite.source.0 as usize);
    (observation.who.host.as_ref(), source.map_or("", ringleader_model::Source::folder))
}

fn whose(
    roster: &Roster,
    has_job: bool,
    observation: &Observation,
    table: &GpuTable,
    row: &GpuRow,
    pci: Option<PciAddress>,
) -> (Use, Culprit) {
    let host = observation.who.host.as_ref();
    let nobody = Culprit { host: host.cloned(), gpu: pci, ..Culprit::default() };
    if !has_job {
        return (Use::Alone, nobody);
    }
    if host.is_some_and(|h| roster.is_elsewhere(h)) {
        return (Use::Other, nobody);
    }
    let pids = table.processes.iter().filter(|(index, _)| Some(*index) == row.index).map(|(_, pid)| *pid);
    for pid in pids {
        let who = Who { pid: Some(pid), host: host.cloned(), ..Who::default() };
        if let Some(member) = roster.find(&who).filter(|m| m.rank.is_some() || m.gpu.is_some()) {
            let culprit = roster.culprit(&Who { rank: member.rank, ..who });
            return (Use::Rank, Culprit { gpu: pci.or(culprit.gpu), ..culprit });
        }
    }
    let Some(pci) = pci else { return (Use::Unknown, nobody) };
    match owner(roster, pci, host) {
        GpuOwner::One(culprit) => (Use::Rank, culprit),
        GpuOwner::Several => (Use::Rank, nobody),
        GpuOwner::Nobody => (Use::Other, nobody),
        GpuOwner::Unknown => (Use::Unknown, nobody),
    }
}

enum GpuOwner {
    One(Culprit),
    /// Ranks use it; which of them is not known.
    Several,
    Nobody,
    Unknown,
}

/// The rank with the GPU of this address.
fn owner(roster: &Roster, pci: PciAddress, host: Option<&Host>) -> GpuOwner {
    let same = |gpu: PciAddress| PciAddress { function: 0, ..gpu } == PciAddress { function: 0, ..pci };
    let with_gpu: Vec<_> = roster.members.iter().filter(|m| m.gpu.is_some()).collect();
    if with_gpu.is_empty() {
        return holder(roster, same, host);
    }
    let mut here: Vec<_> = with_gpu
        .iter()
        .filter(|m| {
            m.gpu.is_some_and(same) && (host.is_none() || m.host.is_none() || m.host.as_ref() == host)
        })
        .collect();
    here.dedup_by_key(|m| (m.rank, m.pid, m.host.clone()));
    match here.as_slice() {
        [] => GpuOwner::Nobody,
        [one] => {
            let who = Who { rank: one.rank, pid: one.pid, host: one.host.clone(), ..Who::default() };
            GpuOwner::One(Culprit { gpu: Some(pci), ..roster.culprit(&who) })
        }
        // The same address on several hosts: which one is meant is not known.
        _ => GpuOwner::Unknown,
    }
}

/// The same where only a snapshot shows which process runs on which GPU, or could.
fn holder(roster: &Roster, same: impl Fn(PciAddress) -> bool, host: Option<&Host>) -> GpuOwner {
    let is_here =
        |m: &&crate::who::roster::Member| host.is_none() || m.host.is_none() || m.host.as_ref() == host;
    let here: Vec<_> = roster.members.iter().filter(|m| !m.holds.is_empty()).filter(is_here).collect();
    let holders: Vec<_> = here.iter().filter(|m| m.holds.iter().any(|gpu| same(*gpu))).collect();
    match holders.as_slice() {
        // Who has not opened its GPU yet is in no list: nobody is known not to use it.
        [] => GpuOwner::Unknown,
        [one] => {
            let who = Who { rank: one.rank, pid: one.pid, host: one.host.clone(), ..Who::default() };
            let culprit = roster.culprit(&who);
            let gpu = one.holds.iter().copied().find(|gpu| same(*gpu));
            GpuOwner::One(Culprit { gpu: gpu.or(culprit.gpu), ..culprit })
        }
        _ => GpuOwner::Several,
    }
}

/// The rank with the GPU of this address, or the address alone; and how it belongs to the job.
pub fn of_address(roster: &Roster, has_job: bool, pci: PciAddress, host: Option<&Host>) -> (Use, Culprit) {
    let nobody = Culprit { host: host.cloned(), gpu: Some(pci), ..Culprit::default() };
    if !has_job {
        return (Use::Alone, nobody);
    }
    match owner(roster, pci, host) {
        GpuOwner::One(culprit) => (Use::Rank, culprit),
        GpuOwner::Several => (Use::Rank, nobody),
        GpuOwner::Nobody => (Use::Other, nobody),
        GpuOwner::Unknown => (Use::Unknown, nobody),
    }
}

/// A pair of GPUs of one host as `topo -m` and `topo -p2p r` show it.
#[derive(Clone, Debug, Default)]
pub struct Pair {
    /// NVLinks between them: `NV18`, with the row.
    pub nvlink: Option<Evidence>,
    /// Whether one may read the other's memory, as printed (`OK`, `CNS`), with the row.
    pub access: Option<(Box<str>, Evidence)>,
}

/// What is between two GPUs of a host, by their numbers.
pub fn pair(case: &Case, host: Option<&Host>, from: u32, to: u32) -> Pair {
    let mut pair = Pair::default();
    for observation in &case.observations {
        let Fact::Gpus(table) = &observation.fact else { continue };
        if host.is_some() && observation.who.host.is_some() && observation.who.host.as_ref() != host {
            continue;
        }
        for path in
            table.paths.iter().filter(|p| (p.from, p.to) == (from, to) || (p.from, p.to) == (to, from))
        {
            let cite = Cite { line: path.line, ..observation.cite };
            let text = format!("GPU{} to GPU{}: {}", path.from, path.to, path.kind);
            let evidence = Evidence { cite, text, kind: SourceKind::NvidiaSmi };
            if path.is_nvlink() {
                pair.nvlink.get_or_insert(evidence);
            } else if matches!(&*path.kind, "OK" | "CNS" | "GNS" | "TNS" | "NS" | "U") {
                pair.access.get_or_insert((path.kind.clone(), evidence));
            }
        }
    }
    pair
}

/// Tests of dcgmi of one sort that failed.
#[derive(Clone, Debug)]
pub struct FailedTests {
    /// How the GPUs belong to the job: the closest of them.
    pub used: Use,
    /// Whose GPUs they are.
    pub culprits: Vec<Culprit>,
    /// The failures.
    pub evidence: Vec<Evidence>,
    /// Name of the last test that is cited.
    pub name: Box<str>,
}

/// Failures of tests that are cited.
const CITED_TESTS: usize = 6;

impl Gpus<'_> {
    /// Tests of dcgmi that failed by this fault.
    pub fn failed_tests(&self, case: &Case, has_job: bool, fault: TestFault) -> Option<FailedTests> {
        let mut used = None;
        let mut found =
            FailedTests { used: Use::Other, culprits: Vec::new(), evidence: Vec::new(), name: "".into() };
        for (observation, _, test) in failed_tests(case) {
            if !fault.is_of(&test.name, &test.warnings) {
                continue;
            }
            let gpu = test.gpu.and_then(|index| self.by_index(observation, index));
            let mine = match gpu {
                Some(gpu) => gpu.used,
                None if has_job => Use::Unknown,
                None => Use::Alone,
            };
            used = used.max(Some(mine));
            if let Some(gpu) = gpu {
                add_culprit(&mut found.culprits, gpu.culprit.clone());
            }
            if found.evidence.len() < CITED_TESTS {
                let of = test.gpu.map_or(String::new(), |g| format!(" on GPU {g}"));
                let warning = test.warnings.first().map_or(String::new(), |w| format!(": {w}"));
                let mut cite = observation.cite;
                if test.line > 0 {
                    cite.line = test.line;
                }
                let text = format!("dcgmi's test {} fails{of}{warning}", test.name);
                found.evidence.push(Evidence { cite, text, kind: SourceKind::Dcgmi });
                found.name = test.name.clone();
            }
        }
        found.used = used?;
        Some(found)
    }
}

/// Tests of dcgmi that failed, with the run each belongs to.
pub fn failed_tests(case: &Case) -> impl Iterator<Item = (&Observation, &GpuTests, &GpuTest)> {
    case.observations.iter().flat_map(|o| {
        let tests = match &o.fact {
            Fact::GpuTests(tests) => Some(&**tests),
            _ => None,
        };
        let failed = |t: &&GpuTest| t.status == ringleader_model::GpuTestStatus::Fail;
        tests.into_iter().flat_map(move |all| all.results.iter().filter(failed).map(move |t| (o, all, t)))
    })
}

/// A card that plugs into PCIe, alone or bridged to a neighbour, by its name: no NVSwitch is behind it.
pub fn is_card(name: &str) -> bool {
    ["PCI", "NVL", "RTX", "GeForce"].iter().any(|sort| name.contains(sort))
}
