//! Links that went down while something ran, by kernel logs: neither the downs of setting up nor those of tearing
//! down.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::driver;
use ringleader_model::{Case, Fact, KernelEventKind, LinkMedium, LinkState, NetFact, NicTrouble, SourceId};

use crate::machine::kernel::{Bond, KernelLogs, KernelStatement};
use crate::when::failure::JobFailure;

/// Uptime below which a link that was never up is still being set up, seconds.
const SETTING_UP_US: u64 = 300_000_000;
/// An interface that is removed this soon after went down for that.
const TEARING_DOWN_S: f64 = 5.0;

/// Interfaces and verbs devices that the job's logs name.
#[derive(Clone, Debug, Default)]
pub struct Used {
    /// Network interfaces: of the bootstrap, and of sockets.
    pub interfaces: BTreeSet<String>,
    /// Verbs devices: `mlx5_0`.
    pub devices: BTreeSet<String>,
    /// Some of these devices are Ethernet cards, which kernels call by their interface.
    has_roce: bool,
    /// Verbs device of each interface that a tool names with it (show_gids, `rdma link`).
    device_of: BTreeMap<String, BTreeSet<String>>,
}

impl Used {
    /// What NCCL's logs say.
    pub fn new(case: &Case) -> Self {
        let mut used = Self::default();
        let logs = case.observations.iter().filter_map(|o| match &o.fact {
            Fact::Nccl(log) => Some(log),
            _ => None,
        });
        for process in logs.flat_map(|log| &log.processes) {
            let sockets = process.meets_at().into_iter().chain(process.sockets());
            used.interfaces.extend(sockets.map(|socket| socket.interface.to_owned()));
            used.devices.extend(process.verbs_ports().map(|port| port.device.to_owned()));
            used.has_roce |= process.verbs_ports().any(|port| port.is_roce());
        }
        for observation in &case.observations {
            let Fact::Net(fact) = &observation.fact else { continue };
            let (device, interface) = match &**fact {
                NetFact::Gid(entry) => (&*entry.device, &*entry.netdev),
                NetFact::Port(port) => (&*port.device, port.netdev.as_deref().unwrap_or_default()),
                _ => continue,
            };
            if !device.is_empty() && !interface.is_empty() {
                used.device_of.entry(interface.to_owned()).or_default().insert(device.to_owned());
            }
        }
        used
    }

    /// The interface is that of a verbs device that the job uses; None if no tool names its device.
    fn is_verbs(&self, interface: &str) -> Option<bool> {
        let devices = self.device_of.get(interface)?;
        Some(devices.iter().any(|d| self.devices.contains(d)))
    }

    fn has(&self, name: &str) -> bool {
        self.interfaces.contains(name) || self.devices.contains(name)
    }

    fn is_empty(&self) -> bool {
        self.interfaces.is_empty() && self.devices.is_empty()
    }
}

/// A link that went down in mid-run.
#[derive(Clone, Debug)]
pub struct Down<'s, 'a> {
    /// The statement.
    pub event: &'s KernelStatement<'a>,
    /// Its name.
    pub name: &'s str,
    /// An InfiniBand port, or a card whose firmware died.
    pub is_infiniband: bool,
    /// When it came back, the first time after.
    pub up_again: Option<&'s KernelStatement<'a>>,
    /// The job's logs name it.
    pub is_used: bool,
    /// It may be a port that the job's logs call by its other name.
    pub is_guess: bool,
}

/// What one log says of one link of one host, in its order.
#[derive(Default)]
struct LinkHistory<'s, 'a> {
    /// When it came up.
    ups: Vec<&'s KernelStatement<'a>>,
    /// When its interface was removed.
    removed: Vec<&'s KernelStatement<'a>>,
}

impl<'s, 'a> LinkHistory<'s, 'a> {
    fn was_up_before(&self, event: &KernelStatement<'_>) -> bool {
        self.ups.first().is_some_and(|first| first.seconds_to(event).is_some_and(|s| s > 0.0))
    }

    fn up_again_after(&self, event: &KernelStatement<'_>) -> Option<&'s KernelStatement<'a>> {
        next(&self.ups, event).filter(|up| event.seconds_to(up).is_some_and(|s| s > 0.0))
    }

    fn is_removed_after(&self, event: &KernelStatement<'_>) -> bool {
        let seconds = next(&self.removed, event).and_then(|removed| event.seconds_to(removed));
        seconds.is_some_and(|s| (0.0..=TEARING_DOWN_S).contains(&s))
    }
}

/// The first of `all` after `event`: a log is in the order of time.
fn next<'s, 'a>(
    all: &[&'s KernelStatement<'a>],
    event: &KernelStatement<'_>,
) -> Option<&'s KernelStatement<'a>> {
    let at = all.partition_point(|other| other.observation.cite <= event.observation.cite);
    all.get(at).copied()
}

type Link<'s> = (SourceId, Option<&'s str>, &'s str);

fn link<'s>(event: &'s KernelStatement<'_>, name: &'s str) -> Link<'s> {
    (event.observation.cite.source, event.observation.who.host.as_deref(), name)
}

fn lives<'s, 'a>(logs: &'s KernelLogs<'a>) -> BTreeMap<Link<'s>, LinkHistory<'s, 'a>> {
    let mut lives: BTreeMap<Link<'_>, LinkHistory<'_, '_>> = BTreeMap::new();
    for event in logs.all() {
        let KernelEventKind::Link { interface, state, .. } = &event.event.kind else { continue };
        let life = lives.entry(link(event, interface)).or_default();
        match state {
            LinkState::Up => life.ups.push(event),
            LinkState::Removed => life.removed.push(event),
            LinkState::Down => {}
        }
    }
    lives
}

/// Downs in mid-run of links that the job may use, in source order.
pub fn downs<'s, 'a>(logs: &'s KernelLogs<'a>, has_job: bool, used: &Used) -> Vec<Down<'s, 'a>> {
    let mut found = Vec::new();
    let lives = lives(logs);
    let unknown = LinkHistory::default();
    for event in logs.near() {
        let (name, is_infiniband, driver) = match &event.event.kind {
            KernelEventKind::Link { interface, driver, state: LinkState::Down, medium }
                if *medium != LinkMedium::Bridge =>
            {
                (&**interface, *medium == LinkMedium::InfiniBand, driver)
            }
            KernelEventKind::NicTrouble {
                driver,
                interface,
                trouble: NicTrouble::Dead | NicTrouble::Module,
            } => (interface.as_deref().unwrap_or(driver), driver.starts_with("mlx"), driver),
            _ => continue,
        };
        let life = lives.get(&link(event, name)).unwrap_or(&unknown);
        let was_up = life.was_up_before(event);
        let is_removed = life.is_removed_after(event);
        let is_setting_up = !was_up && event.event.uptime_us.is_some_and(|us| us < SETTING_UP_US);
        let verbs = used.is_verbs(name);
        let is_used = used.has(name) || verbs == Some(true);
        let is_infiniband = is_infiniband || verbs == Some(true);
        let is_guess = used.has_roce && verbs.is_none() && !is_used && driver::has_verbs(driver);
        // Another card of the same logs does not concern the job.
        let is_foreign = has_job && !used.is_empty() && !is_used && !is_guess && is_named(event);
        if is_removed || is_setting_up || is_foreign || event.bond == Bond::Foreign {
            continue;
        }
        let up_again = life.up_again_after(event);
        found.push(Down { event, name, is_infiniband, up_again, is_used, is_guess });
    }
    found
}

/// The statement names an interface, rather than a card by its driver alone.
fn is_named(event: &KernelStatement<'_>) -> bool {
    match &event.event.kind {
        KernelEventKind::Link { interface, driver, .. } => interface != driver,
        KernelEventKind::NicTrouble { interface, .. } => interface.is_some(),
        _ => false,
    }
}

/// How long a connection survives a dead link: TCP sends again for 15 minutes and a half (tcp_retries2 = 15), verbs for
/// less.
const SURVIVES_NS: i64 = 1_000_000_000_000;

/// Links that came back for good before anything failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Up {
    /// Before the wait began that ended in the failure.
    BeforeStart,
    /// Before the failure, which is known by its end alone: the wait may have begun earlier.
    BeforeEnd,
}

/// Whether all of these links were up again for longer than any connection waits before the first thing failed.
pub fn up_before_failure(downs: &[&Down<'_, '_>], failure: &JobFailure) -> Option<Up> {
    let gaps: Option<Vec<(i64, bool)>> =
        downs.iter().map(|down| failure.after(down.up_again?.observation.at)).collect();
    let (gap, is_start) = gaps?.into_iter().min()?;
    let up = if is_start { Up::BeforeStart } else { Up::BeforeEnd };
    (gap >= SURVIVES_NS).then_some(up)
}
