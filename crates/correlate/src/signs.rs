//! Signs of a case: those that lines give, and those that follow from what readers have understood.

use std::collections::BTreeSet;

use ringleader_knowledge::interface;
use ringleader_knowledge::sign::{self, ids};
use ringleader_model::{
    Case, Cite, Evidence, Fact, GpuForm, GpuRow, Interface, NcclLog, NcclTransport, NetFact, Observation,
    Pid, ProcessRow, Route, RunPace, SourceKind, SystemFact, Who,
};

use crate::said::CITED_CHARS;
use crate::said::messages::Claims;
use crate::said::statements::Statements;
use crate::when::course::Course;
use crate::when::failure::{JobFailure, Way};
use crate::who::roster::Roster;

/// One sign with its places.
#[derive(Clone, Debug)]
pub struct SeenSign {
    /// Id of the sign.
    pub id: &'static str,
    /// Lines that give it.
    pub count: u32,
    /// The first line of each source, at most a few.
    pub evidence: Vec<Evidence>,
    /// Who gives it, where the lines show it.
    pub by: Vec<Who>,
}

/// All signs of a case, by id.
#[derive(Clone, Debug, Default)]
pub struct Signs {
    seen: Vec<SeenSign>,
}

/// The network of one host in one communicator.
struct HostNetwork<'a> {
    id: u64,
    host: &'a str,
    network: &'a str,
    cite: Option<Cite>,
    who: &'a Who,
}

impl HostNetwork<'_> {
    fn is_like(&self, other: &HostNetwork<'_>) -> bool {
        (self.id, self.host, self.network) == (other.id, other.host, other.network)
    }
}

/// Networks that are compared.
const MAX_MEMBERS: usize = 256;
/// Utilisation of an almost idle GPU, percent.
const MAX_IDLE_PCT: f32 = 10.0;
/// Utilisation of a GPU on which a kernel runs all the time, percent.
const BUSY_PCT: f32 = 99.0;
/// Share of its power limit below which such a kernel only waits, and the watts where no limit is given: a third of what a
/// large card draws at work.
const SPINNING_SHARE: f32 = 0.4;
const SPINNING_W: f32 = 100.0;
/// Performance state of a GPU without work, and more.
const RESTING_STATE: u8 = 5;
/// A context alone takes a few hundred MiB: memory that is held is at least this part of the GPU's.
const HELD_PARTS: u64 = 5;
/// Routes that are compared.
const MAX_ROUTES: usize = 512;
/// Runs that are compared.
const MAX_RUNS: usize = 64;
/// Periods, of 0.1 s as a rule, without which a quota shows nothing.
const MIN_PERIODS: u64 = 100;
/// Places that are kept of one sign.
const MAX_PLACES: usize = 4;

/// Whether a GPU is busy all the time and draws little, of its limit where that is known.
fn spins(gpu: &GpuRow) -> bool {
    let least = gpu.power_limit_w.map_or(SPINNING_W, |limit| limit * SPINNING_SHARE);
    gpu.utilization_pct.is_some_and(|pct| pct >= BUSY_PCT) && gpu.power_w.is_some_and(|watts| watts < least)
}

/// Whether a group of processes had used up its quota in four of five periods, over some seconds at least.
fn is_held_back(fact: &SystemFact) -> bool {
    let SystemFact::CpuGroup(group) = fact else { return false };
    group.periods >= MIN_PERIODS && group.throttled.saturating_mul(5) >= group.periods.saturating_mul(4)
}

impl Signs {
    /// Collects the signs of a case.
    pub fn new(
        case: &Case,
        roster: &Roster,
        stated: &Statements<'_>,
        claims: &Claims<'_>,
        failure: &JobFailure,
        course: &Course<'_>,
    ) -> Self {
        let mut signs = Self::default();
        for observation in &case.observations {
            match &observation.fact {
                Fact::Sign(one) => {
                    let kind = SourceKind::PlainText;
                    let evidence = Evidence { cite: observation.cite, text: shown(&observation.text), kind };
                    signs.add(one.id, one.count, Some(evidence), &observation.who);
                }
                Fact::Nccl(log) => signs.of_nccl(observation, log),
                Fact::System(fact) if is_held_back(fact) => {
                    signs.add(ids::PROCESSORS_HELD_BACK, 1, Some(cited(observation)), &observation.who);
                }
                Fact::StepTimes(times) if times.n_steps >= MIN_STEPS && times.data * 2.0 > times.total => {
                    signs.add(ids::DATA_TIME_DOMINATES, 1, Some(cited(observation)), &observation.who);
                }
                _ => {}
            }
        }
        signs.of_networks(case);
        signs.of_paces(case);
        signs.of_gpus(case);
        signs.of_held_memory(case);
        signs.of_shared_gpus(case);
        signs.of_routes(case);
        signs.of_processes(case);
        signs.of_job(case, roster, (stated, failure, course));
        if let Some(own) = claims.own_exceptions().iter().find(|own| own.place().is_some()) {
            signs.add(ids::USER_EXCEPTION, 1, Some(own.evidence()), &own.observation.who);
        }
        signs
    }

    /// The sign, if it is there.
    pub fn get(&self, id: &str) -> Option<&SeenSign> {
        self.seen.iter().find(|s| s.id == id)
    }

    /// All of them.
    pub fn all(&self) -> &[SeenSign] {
        &self.seen
    }

    /// Topologies without NVLink, and GPUs without work.
    fn of_gpus(&mut self, case: &Case) {
        for observation in &case.observations {
            let Fact::Gpus(table) = &observation.fact else { continue };
            // The matrix of peer access says nothing of the way.
            let is_way = |kind: &str| matches!(kind, "PIX" | "PXB" | "PHB" | "NODE" | "SYS" | "SOC" | "PSB");
            if !table.paths.is_empty() && table.paths.iter().all(|path| is_way(&path.kind)) {
                self.add(ids::TOPOLOGY_WITHOUT_NVLINK, 1, Some(cited(observation)), &observation.who);
            }
            let uses: Vec<f32> = table.gpus.iter().filter_map(|gpu| gpu.utilization_pct).collect();
            let n_idle = uses.iter().filter(|used| **used <= MAX_IDLE_PCT).count();
            // Those of the job are the ones with a process.
            let holds = |gpu: &&GpuRow| {
                table.processes.is_empty()
                    || table.processes.iter().any(|(index, _)| Some(*index) == gpu.index)
            };
            let held: Vec<f32> =
                table.gpus.iter().filter(holds).filter_map(|gpu| gpu.utilization_pct).collect();
            let n_full = held.iter().filter(|used| **used >= BUSY_PCT).count();
            let n_rest = held.iter().filter(|used| **used <= MAX_IDLE_PCT).count();
            if n_rest > 0 && n_rest <= n_full && n_rest + n_full == held.len() {
                self.add(ids::SOME_GPUS_REST, 1, Some(cited(observation)), &observation.who);
            }
            if table.gpus.len() > 1 && table.gpus.iter().all(spins) {
                self.add(ids::GPUS_SPIN, 1, Some(cited(observation)), &observation.who);
            }
            // One that works for a moment is no sign of work.
            if uses.len() > 1 && uses.len() == table.gpus.len() && n_idle * 4 >= uses.len() * 3 {
                self.add(ids::GPUS_IDLE, 1, Some(cited(observation)), &observation.who);
            }
        }
    }

    /// Memory of idle GPUs that no listed process holds. Inside a container the list is empty while its own processes run, so the
    /// GPU must rest.
    fn of_held_memory(&mut self, case: &Case) {
        for observation in &case.observations {
            let Fact::Gpus(table) = &observation.fact else { continue };
            let is_whole = table.form == GpuForm::Table && table.processes.is_empty() && !table.is_cut;
            let is_held = |gpu: &GpuRow| {
                let rests = gpu.utilization_pct == Some(0.0)
                    && gpu.performance_state.is_some_and(|state| state >= RESTING_STATE);
                let share = gpu.memory_used_mib.zip(gpu.memory_total_mib);
                rests && share.is_some_and(|(used, total)| used * HELD_PARTS > total)
            };
            if is_whole && table.gpus.iter().any(is_held) {
                self.add(ids::MEMORY_HELD_BY_NOBODY, 1, Some(cited(observation)), &observation.who);
            }
        }
    }

    /// Processes that are on one GPU beside their own: they make tensors on the first GPU by mistake.
    fn of_shared_gpus(&mut self, case: &Case) {
        for observation in &case.observations {
            let Fact::Gpus(table) = &observation.fact else { continue };
            let shared = table.processes.iter().map(|(gpu, _)| *gpu).min().is_some_and(|first| {
                let on_first = table.processes.iter().filter(|(gpu, _)| *gpu == first);
                let on_first: BTreeSet<Pid> = on_first.map(|(_, pid)| *pid).collect();
                let others =
                    table.processes.iter().filter(|(gpu, pid)| *gpu != first && on_first.contains(pid));
                others.take(2).count() == 2
            });
            if shared {
                self.add(ids::PROCESSES_ON_TWO_GPUS, 1, Some(cited(observation)), &observation.who);
            }
        }
    }

    /// Two interfaces of a host through which one network is reached.
    fn of_routes(&mut self, case: &Case) {
        let mut seen: Vec<(&Observation, &Route)> = Vec::new();
        let mut links: Vec<(&Observation, &Interface)> = Vec::new();
        for observation in &case.observations {
            let Fact::Net(fact) = &observation.fact else { continue };
            if let NetFact::Interface(interface) = &**fact {
                self.of_interface(&mut links, observation, interface);
                continue;
            }
            let NetFact::Route(route) = &**fact else { continue };
            if route.is_dead || route.via.is_some() || !route.names_network() || seen.len() == MAX_ROUTES {
                continue;
            }
            let is_other = |(o, r): &&(&Observation, &Route)| {
                o.cite.source == observation.cite.source
                    && o.who.host == observation.who.host
                    && r.to == route.to
                    && r.device != route.device
            };
            if let Some((first, _)) = seen.iter().find(is_other) {
                for one in [first, observation] {
                    self.add(ids::TWO_ROUTES_TO_ONE_NETWORK, 1, Some(cited(one)), &one.who);
                }
                return;
            }
            seen.push((observation, route));
        }
    }

    /// Two interfaces of a host that are up, with addresses in one network.
    fn of_interface<'a>(
        &mut self,
        seen: &mut Vec<(&'a Observation, &'a Interface)>,
        observation: &'a Observation,
        interface: &'a Interface,
    ) {
        let is_virtual = interface::is_virtual(&interface.name);
        if is_virtual || interface.is_up() == Some(false) || seen.len() == MAX_ROUTES {
            return;
        }
        let shares = |(o, other): &&(&Observation, &Interface)| {
            o.cite.source == observation.cite.source
                && o.who.host == observation.who.host
                && other.name != interface.name
                && other.networks.iter().any(|network| interface.networks.contains(network))
        };
        if let Some((first, _)) = seen.iter().find(shares) {
            for one in [first, observation] {
                self.add(ids::TWO_ROUTES_TO_ONE_NETWORK, 1, Some(cited(one)), &one.who);
            }
        }
        seen.push((observation, interface));
    }

    /// A process that has ended and waits for its parent, beside siblings that run.
    fn of_processes(&mut self, case: &Case) {
        for observation in &case.observations {
            let Fact::Processes(table) = &observation.fact else { continue };
            let is_over = |row: &ProcessRow| row.state.starts_with('Z');
            let found = table.rows.iter().find(|row| {
                let is_sibling = |other: &&ProcessRow| other.ppid == row.ppid && other.state.starts_with('R');
                is_over(row) && row.ppid.is_some() && table.rows.iter().any(|other| is_sibling(&other))
            });
            if found.is_some() {
                self.add(ids::WORKER_ENDED_BESIDE_OTHERS, 1, Some(cited(observation)), &observation.who);
            }
        }
    }

    /// Runs that differ in their number of GPUs: more of them are to be faster, or as fast for each.
    fn of_paces(&mut self, case: &Case) {
        let runs: Vec<(&Observation, &RunPace)> = case
            .observations
            .iter()
            .filter_map(|o| if let Fact::Pace(run) = &o.fact { Some((o, run)) } else { None })
            .take(MAX_RUNS)
            .collect();
        let slower = |one: &RunPace, many: &RunPace| {
            let is_alike = (one.unit, one.is_epoch) == (many.unit, many.is_epoch);
            let has_more = one.devices.zip(many.devices).is_some_and(|(a, b)| b >= 2 * a);
            // The time of a step may stay as it is, and a rate may be that of each GPU; the time of an epoch must fall.
            let least = if one.is_epoch { 1.1 } else { 0.65 };
            is_alike && has_more && many.speed < one.speed * least
        };
        let found = runs.iter().find_map(|(a, one)| {
            let (b, _) = runs.iter().find(|(_, many)| slower(one, many))?;
            Some([*a, *b])
        });
        for run in found.into_iter().flatten() {
            self.add(ids::MORE_GPUS_NO_FASTER, 1, Some(cited(run)), &Who::default());
        }
    }

    /// Networks that hosts of one communicator use.
    fn of_networks(&mut self, case: &Case) {
        let mut seen: Vec<HostNetwork<'_>> = Vec::new();
        for observation in &case.observations {
            let Fact::Nccl(log) = &observation.fact else { continue };
            for comm in &log.comms {
                let (Some(id), Some(process)) = (comm.comm_id, log.processes.get(comm.process as usize))
                else {
                    continue;
                };
                let (Some(host), Some(network)) = (process.who.host.as_deref(), process.network.as_deref())
                else {
                    continue;
                };
                let one = HostNetwork { id, host, network, cite: process.first, who: &process.who };
                if seen.len() < MAX_MEMBERS && !seen.iter().any(|o| o.is_like(&one)) {
                    seen.push(one);
                }
            }
        }
        let uses = |of: &HostNetwork<'_>, network: &str| {
            seen.iter().any(|o| o.id == of.id && o.host == of.host && o.network == network)
        };
        let parted = seen.iter().find_map(|one| {
            let differs = |o: &&HostNetwork<'_>| {
                o.id == one.id && o.host != one.host && !uses(o, one.network) && !uses(one, o.network)
            };
            Some([one, seen.iter().find(differs)?])
        });
        for one in parted.into_iter().flatten() {
            let text = format!("{}: Using network {}", one.host, one.network);
            let at = one.cite.map(|cite| Evidence { cite, text, kind: SourceKind::NcclLog });
            self.add(ids::NETWORKS_DIFFER, 1, at, one.who);
        }
    }

    fn of_nccl(&mut self, observation: &Observation, log: &NcclLog) {
        for process in &log.processes {
            let at = process.first.map(|cite| Evidence {
                cite,
                text: format!("Using network {}", process.network.as_deref().unwrap_or_default()),
                kind: SourceKind::NcclLog,
            });
            if process.meets_at().is_some_and(|socket| socket.is_loopback()) {
                self.add(ids::BOOTSTRAP_ON_LOOPBACK, 1, at.clone(), &process.who);
            }
            if process.uses_sockets() {
                self.add(ids::SOCKETS_USED, 1, at, &process.who);
            } else if process.uses_verbs() {
                self.add(ids::VERBS_USED, 1, at, &process.who);
            }
        }
        for link in &log.links {
            let text = format!("{} -> {} via {}", link.from.0, link.to.0, link.transport);
            let who = log.processes.get(link.process as usize).map(|p| p.who.clone()).unwrap_or_default();
            let at = Evidence { cite: link.cite, text, kind: SourceKind::NcclLog };
            if link.over == NcclTransport::PeerToPeer {
                self.add("p2p-used", 1, Some(at), &who);
            } else if link.is_direct() {
                self.add(ids::GDR_USED, 1, Some(at), &who);
            } else if link.is_shared_memory() {
                self.add(ids::SHM_USED, 1, Some(at), &who);
            }
        }
        if log.comms.iter().any(|c| c.completed.is_some()) {
            self.add(ids::COMMUNICATOR_MADE, 1, None, &observation.who);
        }
    }

    fn of_job(
        &mut self,
        case: &Case,
        roster: &Roster,
        (stated, failure, course): (&Statements<'_>, &JobFailure, &Course<'_>),
    ) {
        let mut hosts: Vec<&str> = Vec::new();
        for host in roster.members.iter().filter_map(|m| m.host.as_ref()) {
            if !hosts.contains(&&**host) {
                hosts.push(host);
            }
        }
        if hosts.len() > 1 {
            self.add(ids::SEVERAL_HOSTS, hosts.len() as u32, None, &Who::default());
        }
        let mut trouble = failure.first().map(|(_, evidence)| evidence.clone());
        if failure.has(Way::TimedOut) {
            self.add(ids::TIMED_OUT, 1, trouble.clone(), &Who::default());
        }
        for one in stated.all() {
            let is_harmless = one.role() == Some(ringleader_knowledge::message::Role::Harmless);
            let open = !course.was_outlived(one)
                && (one.weight() == ringleader_model::FormWeight::Strong || !one.rows.is_empty());
            // What healthy jobs print as well is no trouble, and may tell something together with other signs.
            if !open && !is_harmless {
                continue;
            }
            let first = one.evidence(1).next();
            if !is_harmless {
                trouble = trouble.or_else(|| first.clone());
            }
            for row in &one.rows {
                self.add(row.id(), 1, first.clone(), &Who::default());
            }
        }
        let stands = self.get(ids::NOTE_STANDS_STILL).map(|s| s.evidence.first().cloned());
        if let Some(evidence) = stands {
            trouble = trouble.or(evidence);
        }
        if trouble.is_some() {
            self.add(ids::TROUBLE, 1, trouble, &Who::default());
        }
        let goes_on =
            case.observations.iter().find(|o| matches!(&o.fact, Fact::Progress(p) if p.n_steps > 1));
        if let Some(observation) = goes_on {
            self.add(ids::STEPS_GO_ON, 1, Some(cited(observation)), &observation.who);
        }
    }

    fn add(&mut self, id: &'static str, count: u32, at: Option<Evidence>, who: &Who) {
        let place = self.seen.iter().position(|s| s.id == id);
        let place = place.unwrap_or_else(|| {
            self.seen.push(SeenSign { id, count: 0, evidence: Vec::new(), by: Vec::new() });
            self.seen.len() - 1
        });
        let Some(seen) = self.seen.get_mut(place) else { return };
        seen.count = seen.count.saturating_add(count);
        if seen.evidence.len() < MAX_PLACES {
            seen.evidence.extend(at);
        }
        if !who.is_nobody() && seen.by.len() < MAX_PLACES && !seen.by.contains(who) {
            seen.by.push(who.clone());
        }
    }

    /// The evidence for a conclusion, or None if it does not follow.
    pub fn follows(&self, conclusion: &sign::Conclusion) -> Option<Vec<Evidence>> {
        if conclusion.none.iter().any(|id| self.has(id)) {
            return None;
        }
        let mut evidence = Vec::new();
        for choices in conclusion.all {
            let found = choices.iter().find(|id| self.has(id))?;
            evidence.extend(
                self.get(plain(found).0).into_iter().flat_map(|s| s.evidence.iter().take(2)).cloned(),
            );
        }
        Some(evidence)
    }

    fn has(&self, id: &str) -> bool {
        let (id, least) = plain(id);
        self.get(id).is_some_and(|s| s.count >= least)
    }
}

/// The id of a sign or row, and how often it must occur: `ddp-first-rank x2`.
fn plain(id: &str) -> (&str, u32) {
    let id = id.strip_prefix("row:").unwrap_or(id);
    match id.rsplit_once(" x") {
        Some((id, n)) => (id, n.parse().unwrap_or(1)),
        None => (id, 1),
    }
}

/// Steps below which their times tell nothing.
const MIN_STEPS: u32 = 5;

fn cited(observation: &Observation) -> Evidence {
    Evidence { cite: observation.cite, text: shown(&observation.text), kind: SourceKind::PlainText }
}

fn shown(text: &str) -> String {
    match text.char_indices().nth(CITED_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod quota_tests {
    use ringleader_model::{CpuGroup, GpuRow, SystemFact};

    use super::{is_held_back, spins};

    #[test]
    fn a_gpu_on_which_a_kernel_only_waits() {
        let gpu = |pct, watts, limit| GpuRow {
            utilization_pct: Some(pct),
            power_w: Some(watts),
            power_limit_w: limit,
            ..GpuRow::default()
        };
        assert!(spins(&gpu(100.0, 84.0, Some(280.0))));
        assert!(spins(&gpu(100.0, 72.0, None)));
        // It works, is a small card at its limit, or rests.
        assert!(!spins(&gpu(100.0, 231.0, Some(280.0))));
        assert!(!spins(&gpu(100.0, 70.0, Some(72.0))));
        assert!(!spins(&gpu(3.0, 40.0, Some(280.0))));
    }

    #[test]
    fn a_quota_that_is_always_used_up() {
        let group =
            |periods, throttled| SystemFact::CpuGroup(CpuGroup { periods, throttled, ..CpuGroup::default() });
        assert!(is_held_back(&group(2_411, 2_389)));
        // Bursts, and a moment.
        assert!(!is_held_back(&group(2_411, 900)));
        assert!(!is_held_back(&group(10, 10)));
    }
}
