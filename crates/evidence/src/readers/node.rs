//! A node's snapshot, `ringleader.node.v1`: what `ringleader check --format node-json` prints and `collect` puts into a
//! bundle. The same observations come of it as of the tools whose readings it replaces (nvidia-smi, ps, df, ibstat, ip,
//! dmesg …), each with its host and its time.
//!
//! ```text
//! {"schema": "ringleader.node.v1", "host": "node7", "at_ns": 1795163314000000000,
//!  "gpus": {"at_ns": …, "took_ms": 41, "outcome": {"seen": {"gpus": [{"index": 0, …}]}}},
//!  "pci": {"outcome": {"failed": "…"}}, "kernel_log": {"outcome": {"seen": {"lines": ["4,812,…"]}}}, …}
//! ```
//!
//! Written by `crates/collect`; the types are in `crates/node`. Each part is read by itself: one that is malformed costs
//! the others nothing. A part that is not there says why, and that is a note: not read is not health.

use ringleader_model::{
    Cite, Environment, Fact, Host, NetFact, NoteKind, SourceKind, SystemFact, WallTime, Who,
};
use ringleader_node::{
    Gpus, Jobs, KernelLog, Mount, Network, Outcome, Part, Pci, RdmaPort, Reach, Service, Shm, System,
};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ground::{Document, LineReader, Sink, host_of};

mod gpus;
mod host;
mod jobs;
mod network;
mod places;

use places::Places;

/// Rows of one list that are read: more processes, links or files than a node has that matter.
const MAX_ROWS: usize = 20_000;

/// Reads a snapshot; false if the document is none. `L` reads the lines of its kernel log.
pub(crate) fn read_json<L: LineReader + Default>(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let schema = document.value.get("schema").and_then(Value::as_str).unwrap_or_default();
    let Some(version) = schema.strip_prefix("ringleader.node.v") else { return false };
    sink.saw(SourceKind::NodeSnapshot);
    if version != "1" {
        let text =
            format!("a snapshot of format {version}, this program reads 1; a newer ringleader reads it");
        sink.note(document.cite(sink), NoteKind::UnknownVersion, text);
        return true;
    }
    let name = document.value.get("host").and_then(Value::as_str).unwrap_or_default();
    let host = host_of(name);
    let at_ns = document.value.get("at_ns").and_then(Value::as_i64).unwrap_or(0);
    let mut reader = SnapshotReader {
        document: *document,
        places: Places::new(document),
        host: (!host.is_empty()).then_some(host),
        at_ns,
        sink,
    };
    reader.run::<L>();
    true
}

/// One snapshot as it is read.
struct SnapshotReader<'r, 'd, 's> {
    document: Document<'d>,
    places: Places<'d>,
    host: Option<Host>,
    at_ns: i64,
    sink: &'r mut Sink<'s>,
}

impl SnapshotReader<'_, '_, '_> {
    fn run<L: LineReader + Default>(&mut self) {
        let system: Option<System> = self.part("system");
        let jobs: Option<Jobs> = self.part("jobs");
        let no_jobs = if jobs.is_none() { self.why_not("jobs") } else { None };
        let pci: Option<Pci> = self.part("pci");
        if let Some(system) = &system {
            self.places.enter("system");
            self.system(system);
        }
        if let Some(gpus) = self.part::<Gpus>("gpus") {
            self.places.enter("gpus");
            self.gpus(&gpus);
        }
        if let Some(pci) = &pci {
            self.places.enter("pci");
            self.pci(pci);
        }
        if let Some(log) = self.part::<KernelLog>("kernel_log") {
            self.places.enter("kernel_log");
            self.kernel_log::<L>(&log, system.as_ref());
        }
        if let Some(services) = self.part::<Vec<Service>>("services") {
            self.places.enter("services");
            self.services(&services);
        }
        if let Some(ports) = self.part::<Vec<RdmaPort>>("rdma") {
            self.places.enter("rdma");
            self.rdma(&ports);
        }
        if let Some(net) = self.part::<Network>("net") {
            self.places.enter("net");
            self.network(&net);
        }
        if let Some(tried) = self.part::<Vec<Reach>>("reach") {
            self.places.enter("reach");
            self.reach(&tried);
        }
        if let Some(shm) = self.part::<Shm>("shm") {
            self.places.enter("shm");
            self.shm(&shm);
        }
        if let Some(mounts) = self.part::<Vec<Mount>>("mounts") {
            self.places.enter("mounts");
            self.mounts(&mounts);
        }
        if let Some(jobs) = &jobs {
            self.places.enter("jobs");
            self.jobs(jobs);
        } else if let Some(why) = no_jobs {
            self.no_jobs(&why);
        }
    }

    /// Why a part that was asked for is not there.
    fn why_not(&self, name: &str) -> Option<String> {
        let value = self.document.value.get(name).filter(|value| !value.is_null())?;
        let Ok(part) = <Part<Value> as serde::Deserialize>::deserialize(value) else {
            return Some("they could not be parsed".to_owned());
        };
        let why =
            part.seen().err().map_or_else(|| "they could not be parsed".to_owned(), |missing| missing.why);
        (!matches!(part.outcome, Outcome::NotAsked)).then_some(why)
    }

    /// A part's reading; why there is none becomes a note, unless nobody asked for it.
    fn part<T: DeserializeOwned>(&mut self, name: &str) -> Option<T> {
        let value = self.document.value.get(name).filter(|value| !value.is_null())?;
        let cite = self.places.of_part(name, self.sink);
        let part: Part<T> = match serde::Deserialize::deserialize(value) {
            Ok(part) => part,
            Err(error) => {
                let text = format!("{name}: could not be parsed ({error}); the other parts were read");
                self.sink.note(cite, NoteKind::Malformed, text);
                return None;
            }
        };
        let missing = part.seen().err();
        if let Outcome::Seen(reading) = part.outcome {
            return Some(reading);
        }
        if let Some(missing) = missing.filter(|_| !matches!(part.outcome, Outcome::NotAsked)) {
            let kind = if missing.is_trouble { NoteKind::Unreadable } else { NoteKind::Remark };
            let host = self.host.as_deref().unwrap_or("the node");
            self.sink.note(cite, kind, format!("{name} of {host} were not read: {}", missing.why));
        }
        None
    }

    fn at(&self) -> Option<WallTime> {
        (self.at_ns > 0).then_some(WallTime { ns: self.at_ns, error_ns: 1_000_000_000, has_year: true })
    }

    fn who(&self) -> Who {
        Who { host: self.host.clone(), ..Who::default() }
    }

    fn push(&mut self, cite: Cite, fact: Fact, text: &str) {
        let (who, at) = (self.who(), self.at());
        self.sink.push(cite, who, at, fact, text.as_bytes());
    }

    fn push_system(&mut self, cite: Cite, fact: SystemFact, text: &str) {
        self.push(cite, Fact::System(Box::new(fact)), text);
    }

    fn push_net(&mut self, cite: Cite, fact: NetFact, text: &str) {
        self.push(cite, Fact::Net(Box::new(fact)), text);
    }

    /// An environment, with its process if that is known.
    fn push_environment(&mut self, cite: Cite, who: Who, environment: Environment, text: &str) {
        let at = self.at();
        self.sink.push(cite, who, at, Fact::Environment(Box::new(environment)), text.as_bytes());
    }
}

#[cfg(test)]
mod tests;
