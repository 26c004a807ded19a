//! What the nodes' tools show, and how it belongs to the job: by host, by device, by address.
//!
//! A tool's output counts against a job only if the job uses what it is about. Output without a host's name belongs to
//! the host whose address it lists, or to the only host there is.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_model::address::is_loopback_name;
use ringleader_model::{
    BenchRun, Case, Cite, CopyTest, Evidence, Fact, Host, Interface, MemoryGroup, Mount, NcclLog,
    NcclProcess, NcclTransport, NetFact, Observation, Pid, SourceId, SourceKind, SystemFact,
};

use crate::who::roster::Roster;

/// Longest text of a tool that is cited, characters.
pub const CITED_CHARS: usize = 300;

/// A verbs port as a process of the job uses it.
#[derive(Clone, Copy)]
pub struct VerbsUser<'a> {
    /// The log.
    pub log: &'a NcclLog,
    /// Index of the process in it.
    pub index: u32,
    /// The process.
    pub process: &'a NcclProcess,
    /// Index of the device in NCCL's list, which `NET/IB/3` names.
    pub slot: usize,
}

/// A process that listens: where it was seen, its address and port, program and process.
pub type Listener<'a> = (&'a Observation, &'a str, Option<(&'a str, Pid)>);

/// What is looked up for each statement of a tool, made once: there may be very many of them.
pub struct Tools<'a> {
    case: &'a Case,
    /// Hosts of sources that list an address of theirs.
    by_source: BTreeMap<SourceId, Host>,
    /// The only host of the job.
    only: Option<Host>,
    /// Users of each verbs port.
    verbs: BTreeMap<(&'a str, u32), Vec<VerbsUser<'a>>>,
    /// Processes whose bootstrap or sockets go over an interface of this name, with their first lines.
    interfaces: BTreeMap<&'a str, Vec<(&'a NcclProcess, Cite)>>,
}

impl<'a> Tools<'a> {
    /// Joins what the tools list with who the job is.
    pub fn new(case: &'a Case, roster: &Roster) -> Self {
        let hosts: BTreeSet<&Host> = roster.members.iter().filter_map(|m| m.host.as_ref()).collect();
        let mut tools = Self {
            case,
            by_source: BTreeMap::new(),
            only: None,
            verbs: BTreeMap::new(),
            interfaces: BTreeMap::new(),
        };
        if hosts.len() == 1 {
            tools.only = hosts.first().map(|h| (*h).clone());
        }
        let mut of_address: BTreeMap<&str, BTreeSet<&Host>> = BTreeMap::new();
        for member in &roster.members {
            if let (Some(address), Some(host)) = (&member.address, &member.host) {
                of_address.entry(address).or_default().insert(host);
            }
        }
        let mut listed: BTreeMap<SourceId, BTreeSet<&Host>> = BTreeMap::new();
        for observation in &case.observations {
            match &observation.fact {
                Fact::Net(fact) => {
                    let NetFact::Interface(interface) = &**fact else { continue };
                    let of_job = interface
                        .addresses
                        .iter()
                        .filter(|a| !is_loopback_name(a))
                        .filter_map(|a| of_address.get(&**a));
                    listed.entry(observation.cite.source).or_default().extend(of_job.flatten().copied());
                }
                Fact::Nccl(log) => tools.add_log(log),
                _ => {}
            }
        }
        for (source, hosts) in listed {
            if let (1, Some(host)) = (hosts.len(), hosts.first()) {
                tools.by_source.insert(source, (*host).clone());
            }
        }
        tools
    }

    fn add_log(&mut self, log: &'a NcclLog) {
        for (index, process) in log.processes.iter().enumerate() {
            for (slot, port) in process.verbs_ports().enumerate() {
                let user = VerbsUser { log, index: index as u32, process, slot };
                self.verbs.entry((port.device, port.port)).or_default().push(user);
            }
            let Some(first) = process.first else { continue };
            let sockets = process.meets_at().into_iter().chain(process.sockets());
            let names: BTreeSet<&str> = sockets.map(|socket| socket.interface).collect();
            for name in names {
                self.interfaces.entry(name).or_default().push((process, first));
            }
        }
    }

    /// What tools of the fabric and the network say, in source order.
    pub fn net(&self) -> impl Iterator<Item = (&'a Observation, &'a NetFact)> + use<'a> {
        self.case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Net(fact) => Some((o, &**fact)),
            _ => None,
        })
    }

    /// What tools of the node say, in source order.
    pub fn system(&self) -> impl Iterator<Item = (&'a Observation, &'a SystemFact)> + use<'a> {
        self.case.observations.iter().filter_map(|o| match &o.fact {
            Fact::System(fact) => Some((o, &**fact)),
            _ => None,
        })
    }

    /// Who listens on a port, as `ss` or netstat shows it, with the process that holds it, if it is known.
    pub fn listeners(&self, port: u16) -> impl Iterator<Item = Listener<'a>> {
        self.net().filter_map(move |(o, fact)| match fact {
            NetFact::Listener { local, holder }
                if local.rsplit_once(':').and_then(|(_, n)| n.parse().ok()) == Some(port) =>
            {
                Some((o, &**local, holder.as_ref().map(|(name, pid)| (&**name, *pid))))
            }
            _ => None,
        })
    }

    /// Runs of nccl-tests.
    pub fn benches(&self) -> impl Iterator<Item = (&'a Observation, &'a BenchRun)> + use<'a> {
        self.case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Bench(run) => Some((o, &**run)),
            _ => None,
        })
    }

    /// Copies between GPUs.
    pub fn copies(&self) -> impl Iterator<Item = (&'a Observation, &'a CopyTest)> + use<'a> {
        self.case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Copy(test) => Some((o, &**test)),
            _ => None,
        })
    }

    /// Whether /dev/shm of a host is full, or as small as containers have it by default.
    pub fn has_tight_shm(&self, host: Option<&Host>) -> bool {
        self.system().any(|(o, fact)| match fact {
            SystemFact::Mount(mount) if mount.at.ends_with("/shm") => {
                (is_full(mount) || is_small(mount)) && may_be_on(self.host_of(o).as_ref(), host)
            }
            _ => false,
        })
    }

    /// Memory cgroups of a host that count kills for lack of memory, with the line and the count. Those of other
    /// services of the machine are left out.
    pub fn group_kills(
        &self,
        host: Option<&Host>,
    ) -> impl Iterator<Item = (&'a Observation, &'a MemoryGroup, u32, u64)> {
        let is_jobs = |group: &MemoryGroup| {
            let path = group.path.as_deref().unwrap_or_default();
            let of_jobs = ["slurm", "docker", "containerd", "crio", "kubepods", "user@"];
            !path.contains("/system.slice/") || of_jobs.iter().any(|part| path.contains(part))
        };
        self.system().filter_map(move |(o, fact)| match fact {
            SystemFact::MemoryGroup(group) if is_jobs(group) => {
                let (line, n) = group.oom_kill.filter(|(_, n)| *n > 0)?;
                may_be_on(self.host_of(o).as_ref(), host).then_some((o, group, line, n))
            }
            _ => None,
        })
    }

    /// The host that a tool ran on, if it is known.
    pub fn host_of(&self, observation: &Observation) -> Option<Host> {
        if let Some(host) = &observation.who.host {
            return Some(host.clone());
        }
        // All files that are read are of one host.
        self.by_source.get(&observation.cite.source).or(self.only.as_ref()).cloned()
    }

    /// Whether the source itself identifies its host: by name, or by an address of the host.
    pub fn names_host(&self, observation: &Observation) -> bool {
        observation.who.host.is_some() || self.by_source.contains_key(&observation.cite.source)
    }

    /// Processes that said they use this port: `[0]mlx5_0:1/IB`.
    pub fn verbs_users(&self, host: Option<&Host>, device: &str, port: u32) -> Vec<VerbsUser<'a>> {
        let all = self.verbs.get(&(device, port)).map(Vec::as_slice).unwrap_or_default();
        let here = |u: &&VerbsUser<'a>| may_be_on(host, u.process.who.host.as_ref());
        let mut users: Vec<VerbsUser<'a>> = all.iter().filter(here).copied().collect();
        // Those with a channel over this very device, where the log has channels at all.
        let over_it = |u: &VerbsUser<'_>| {
            let over = NcclTransport::Verbs(Some(u.slot as u32));
            u.log.links.iter().any(|l| l.process == u.index && l.over == over)
        };
        if users.iter().any(over_it) {
            users.retain(over_it);
        }
        users
    }

    /// Processes whose bootstrap or sockets go over this interface.
    pub fn interface_users(
        &self,
        host: Option<&Host>,
        interface: &Interface,
    ) -> Vec<(&'a NcclProcess, Cite)> {
        let all = self.interfaces.get(&*interface.name).map(Vec::as_slice).unwrap_or_default();
        // Without a host's name an address has to agree: every node has an eth0.
        let agrees = |process: &NcclProcess| {
            let bootstrap = process.bootstrap.as_deref().unwrap_or_default();
            host.is_some() || interface.addresses.iter().any(|a| bootstrap.contains(&**a))
        };
        all.iter().filter(|(p, _)| may_be_on(host, p.who.host.as_ref()) && agrees(p)).copied().collect()
    }
}

/// Whether output of `tool_host` may be of a process on `host`: nothing says otherwise.
pub fn may_be_on(tool_host: Option<&Host>, host: Option<&Host>) -> bool {
    match (tool_host, host) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    }
}

/// Size of /dev/shm in a container by default: less than two ranks of NCCL and a few data loaders take.
const SMALL_BYTES: u64 = 64 << 20;
/// Room below which a segment of NCCL (about 9 MB) cannot be had.
const LEAST_BYTES: u64 = 4 << 20;

/// A mount with less room is full only if more than this many tenths of it are in use: a tiny one has little room when empty.
const FULL_TENTHS: u64 = 9;

/// No room is left in a mount.
pub fn is_full(mount: &Mount) -> bool {
    let rest =
        !mount.is_inodes && mount.available < LEAST_BYTES && mount.used / FULL_TENTHS > mount.size / 10;
    mount.size > 0 && (mount.available == 0 || rest)
}

/// A mount is as small as that of a container by default.
pub fn is_small(mount: &Mount) -> bool {
    !mount.is_inodes && mount.size > 0 && mount.size <= SMALL_BYTES
}

/// What a tool printed, as cited evidence.
pub fn shown(
    observation: &Observation,
    line: Option<u32>,
    kind: SourceKind,
    text: impl Into<String>,
) -> Evidence {
    let mut text: String = text.into();
    if text.is_empty() {
        text = observation.text.chars().take(CITED_CHARS).collect();
    }
    let cite = Cite { line: line.unwrap_or(observation.cite.line), ..observation.cite };
    Evidence { cite, text, kind }
}

/// The devices that a process of the log uses, as cited evidence.
pub fn uses(process: &NcclProcess, cite: Cite) -> Evidence {
    let devices = process.ib_devices.as_deref().or(process.bootstrap.as_deref()).unwrap_or_default();
    let cite = process.devices_at.unwrap_or(cite);
    Evidence { cite, text: format!("NCCL uses {devices}"), kind: SourceKind::NcclLog }
}
