//! What schedulers say of jobs and pods, and which of it is of this job.

use std::collections::BTreeSet;

use ringleader_model::{Host, Observation, Scheduler, SchedulerEvent, SchedulerKind, hostlist};

/// Nodes of one job that are compared.
const MAX_NODES: usize = 16_384;

/// Events of schedulers.
#[derive(Clone, Debug)]
pub struct Schedulers<'s, 'a> {
    events: Vec<(&'a Observation, &'a SchedulerEvent)>,
    hosts: BTreeSet<&'s Host>,
    other_jobs: BTreeSet<&'a str>,
}

impl<'s, 'a> Schedulers<'s, 'a> {
    /// Joins what schedulers say with the hosts of the job.
    pub fn new(
        events: impl Iterator<Item = (&'a Observation, &'a SchedulerEvent)>,
        hosts: BTreeSet<&'s Host>,
    ) -> Self {
        let mut all = Self { events: events.collect(), hosts, other_jobs: BTreeSet::new() };
        all.other_jobs = all.other_jobs();
        all
    }

    /// All events, in source order.
    pub fn events(&self) -> impl Iterator<Item = (&'a Observation, &'a SchedulerEvent)> {
        self.events.iter().copied()
    }

    /// Whether an event is of another job: its id is one whose nodes are not this job's.
    pub fn is_of_other_job(&self, event: &SchedulerEvent) -> bool {
        is_slurm(event) && self.other_jobs.contains(job(event))
    }

    /// Whether an event is of a job of Slurm, and no other job is accounted for.
    pub fn is_only_job(&self, event: &SchedulerEvent) -> bool {
        let own = job(event);
        is_slurm(event) && !own.is_empty() && self.events().all(|(_, e)| job(e).is_empty() || job(e) == own)
    }

    /// Whether the nodes of an event hold all hosts of the job.
    pub fn covers_job(&self, event: &SchedulerEvent) -> bool {
        let holds = |nodes: &str| self.hosts.iter().all(|host| hostlist::contains(nodes, host));
        event.node.as_deref().is_some_and(holds)
    }

    /// The host of the job that an event names: its node, or a pod whose name is its host's.
    pub fn host_of(&self, event: &SchedulerEvent) -> Option<Host> {
        let named = [event.node.as_deref().unwrap_or_default(), pod(event)];
        self.hosts.iter().find(|h| named.contains(&&****h)).map(|h| (*h).clone())
    }

    /// The one node that all jobs which failed had, and none of those that run or have completed. Two failures are needed, and at
    /// least one of them on several nodes.
    pub fn common_node(&self) -> Option<Host> {
        let nodes = |event: &SchedulerEvent| -> BTreeSet<String> {
            let parsed = event.node.as_deref().and_then(|node| hostlist::parse(node).ok());
            parsed.into_iter().flatten().take(MAX_NODES).collect()
        };
        let failed = self.events().map(|(_, e)| e).filter(|e| {
            matches!(e.kind, SchedulerKind::NodeFail | SchedulerKind::Failed)
                && is_slurm(e)
                && e.node.is_some()
        });
        let mut common: Option<BTreeSet<String>> = None;
        let mut jobs = BTreeSet::new();
        let mut widest = 0;
        for event in failed {
            let of = nodes(event);
            // A column that is too narrow cuts the list: what is left of it names nobody.
            if of.is_empty() {
                continue;
            }
            widest = widest.max(of.len());
            jobs.insert(job(event));
            common =
                Some(common.map_or_else(|| of.clone(), |known| known.intersection(&of).cloned().collect()));
        }
        let mut common = common.filter(|_| jobs.len() > 1 && widest > 1)?;
        let well = |e: &SchedulerEvent| matches!(e.kind, SchedulerKind::Completed | SchedulerKind::Running);
        for event in self.events().map(|(_, e)| e).filter(|e| well(e)) {
            for node in nodes(event) {
                common.remove(&node);
            }
        }
        let one = common.pop_first()?;
        common.is_empty().then(|| Host::from(one.as_str()))
    }

    /// Ids of Slurm's table whose nodes are not those of this job: a job's row lists all of its nodes. Of several that
    /// fit, the newest is this job.
    fn other_jobs(&self) -> BTreeSet<&'a str> {
        let number = |id: &str| {
            let digits = id.bytes().take_while(u8::is_ascii_digit).count();
            id.get(..digits).and_then(|d| d.parse::<u64>().ok())
        };
        let is_row = |e: &SchedulerEvent| is_slurm(e) && !e.subject.is_empty() && !e.subject.contains('.');
        let rows = self.events().map(|(_, e)| e).filter(|e| is_row(e) && !self.hosts.is_empty());
        let fitting = rows.filter(|e| self.covers_job(e)).map(|e| &*e.subject);
        // Without one that fits, the names may be written in another way: nothing is kept apart.
        let Some(newest) = fitting.max_by_key(|id| number(id)) else { return BTreeSet::new() };
        let ids = self.events().map(|(_, e)| e).filter(|e| is_slurm(e)).map(job);
        ids.filter(|id| !id.is_empty() && *id != newest).collect()
    }
}

fn is_slurm(event: &SchedulerEvent) -> bool {
    event.scheduler == Scheduler::Slurm
}

/// `812` of Slurm's `812.0` and `812.batch`.
pub fn job(event: &SchedulerEvent) -> &str {
    event.subject.split('.').next().unwrap_or(&event.subject)
}

/// The pod's name without its namespace.
pub fn pod(event: &SchedulerEvent) -> &str {
    event.subject.rsplit('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use ringleader_model::{
        Cite, Fact, Observation, Scheduler, SchedulerEvent, SchedulerKind, SourceId, SystemFact, Who,
    };

    use super::Schedulers;

    fn common(jobs: &[(&str, SchedulerKind, &str)]) -> Option<String> {
        let events: Vec<SchedulerEvent> = jobs
            .iter()
            .map(|(subject, kind, node)| SchedulerEvent {
                scheduler: Scheduler::Slurm,
                kind: *kind,
                subject: (*subject).into(),
                node: Some((*node).into()),
                ..SchedulerEvent::default()
            })
            .collect();
        let said = Observation {
            cite: Cite { source: SourceId(0), line: 1, start: 0, end: 1 },
            who: Who::default(),
            at: None,
            fact: Fact::System(Box::new(SystemFact::Scheduler(SchedulerEvent::default()))),
            text: "".into(),
        };
        let all = Schedulers::new(events.iter().map(|event| (&said, event)), BTreeSet::new());
        all.common_node().map(|host| host.to_string())
    }

    #[test]
    fn the_node_that_all_failed_jobs_had() {
        use SchedulerKind::{Completed, NodeFail, Running};
        let wide = ("1871", NodeFail, "d[016-019]");
        let other = ("1874", NodeFail, "d[017,020-021]");
        assert_eq!(common(&[wide, other]).as_deref(), Some("d017"));
        assert_eq!(common(&[wide, other, ("1", Running, "d[011-014]")]).as_deref(), Some("d017"));
        // It works for others, is one of two, or a list was cut; and one failure shows nothing.
        assert_eq!(common(&[wide, other, ("1", Completed, "d017")]), None);
        assert_eq!(common(&[wide, ("1874", NodeFail, "d[016-017]")]), None);
        assert_eq!(common(&[wide, other, ("9", NodeFail, "17-018,020-021]")]).as_deref(), Some("d017"));
        assert_eq!(common(&[("1871", NodeFail, "d017")]), None);
    }
}
