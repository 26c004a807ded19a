//! From what kernels say to a finding: whose device it is, how far it may be believed, with which lines.

use ringleader_knowledge::xid;
use ringleader_model::{
    Cause, Confidence, Culprit, Evidence, Finding, Host, Impact, KernelEvent, KernelEventKind, Severity,
    StorageTrouble, Weight, Xid,
};

use crate::health;
use crate::rule::{Draft, Outcome, Rule};
use crate::told::{Told, add_culprit};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::kernel::{Bond, KernelStatement};
use ringleader_correlate::machine::links::{Down, Used, downs};

/// Citations of one finding.
const CITATIONS: usize = 6;

/// Statements of one fault, those that belong to the job most closely.
pub(crate) struct Seen<'s, 'a> {
    scene: &'s Scene<'a>,
    events: Vec<&'s KernelStatement<'a>>,
    bond: Bond,
}

impl<'s, 'a> Seen<'s, 'a> {
    /// Statements that `is_it` accepts; None if there is none that may concern the job.
    pub(crate) fn of(scene: &'s Scene<'a>, is_it: impl Fn(&KernelStatement<'a>) -> bool) -> Option<Self> {
        Self::from(scene, scene.kernel().near().filter(|e| is_it(e)).collect())
    }

    /// These statements; None if there is none.
    pub(crate) fn from(scene: &'s Scene<'a>, all: Vec<&'s KernelStatement<'a>>) -> Option<Self> {
        let bond = all.iter().map(|e| e.bond).max()?;
        // Weaker ones may be of another job: they neither prove nor blame.
        let mut events: Vec<&KernelStatement<'a>> = all.into_iter().filter(|e| e.bond == bond).collect();
        events.sort_by_key(|e| (e.at_ns().is_none(), e.at_ns(), e.observation.cite));
        Some(Self { scene, events, bond })
    }

    /// The same for Xids of these codes.
    pub(crate) fn xids(scene: &'s Scene<'a>, is_it: impl Fn(&Xid) -> bool) -> Option<Self> {
        Self::of(scene, |e| matches!(&e.event.kind, KernelEventKind::Xid(x) if is_it(x)))
    }

    /// The same for Xids that the table gives to this rule.
    pub(crate) fn own(scene: &'s Scene<'a>, rule: &Rule) -> Option<Self> {
        Self::of(scene, |e| is_own(rule, e.event))
    }

    /// The statements, earliest first.
    pub(crate) fn events(&self) -> &[&'s KernelStatement<'a>] {
        &self.events
    }

    /// The earliest statement.
    pub(crate) fn first(&self) -> Option<&'s KernelStatement<'a>> {
        self.events.first().copied()
    }

    /// How it belongs to the job.
    pub(crate) fn bond(&self) -> Bond {
        self.bond
    }

    /// It is of this job, or stands for itself.
    pub(crate) fn is_bound(&self) -> bool {
        self.bond >= Bond::Alone
    }

    /// Leaves out the statements that `is_not` names; None if nothing is left.
    pub(crate) fn without(mut self, is_not: impl Fn(&KernelStatement<'a>) -> bool) -> Option<Self> {
        self.events.retain(|e| !is_not(e));
        (!self.events.is_empty()).then_some(self)
    }

    /// Whom the statements are about.
    pub(crate) fn culprits(&self) -> Vec<Culprit> {
        let mut culprits = Vec::new();
        for event in &self.events {
            if event.culprit != Culprit::default() {
                add_culprit(&mut culprits, event.culprit.clone());
            }
        }
        // Without ranks one device is enough: the others of a flood follow it.
        if culprits.iter().all(|c: &Culprit| c.rank.is_none()) {
            culprits.truncate(1);
        }
        culprits
    }

    /// `GPU 0000:3b:00.0 of rank 2`, `a GPU on node7`.
    pub(crate) fn gpu(&self) -> String {
        self.first().map_or_else(|| "a GPU".to_owned(), gpu_of)
    }

    /// A draft that cites these statements and blames whom they name, as sure as their bond to the job allows.
    pub(crate) fn draft(&self, rule: &Rule, cause: Cause, title: impl Into<String>) -> Draft {
        let in_trouble = health::trouble(self.scene).is_some() || self.scene.has_failed();
        let ended_well = self.scene.failure().ended_in_order() && !in_trouble;
        let (severity, weight, confidence) = match self.bond {
            // No rank runs on it: worth a word whatever the verdict is.
            Bond::Beside => (Severity::Info, Weight::Aside, Confidence::Low),
            // Whatever it was, the job went on to its end.
            Bond::Process | Bond::DeviceInTime if ended_well => {
                (Severity::Info, Weight::Derived, Confidence::Low)
            }
            Bond::Process | Bond::DeviceInTime | Bond::Alone => {
                (Severity::Error, Weight::Stated, Confidence::High)
            }
            Bond::Device | Bond::Time | Bond::Untold if in_trouble => {
                (Severity::Error, Weight::Derived, Confidence::Medium)
            }
            Bond::Loose if in_trouble => (Severity::Warning, Weight::Derived, Confidence::Low),
            Bond::Device | Bond::Time | Bond::Untold | Bond::Loose | Bond::Foreign => {
                (Severity::Info, Weight::Derived, Confidence::Low)
            }
        };
        let mut title = title.into();
        if self.bond == Bond::Beside {
            title.push_str(" (no rank uses it)");
        } else if self.bond < Bond::Time {
            title.push_str(" (of this job or not: nothing ties it)");
        }
        Draft::new(rule.id, cause, title)
            .severity(severity)
            .weight(weight)
            .confidence(confidence)
            .at(self.first().and_then(KernelStatement::at_ns))
            .culprits(self.culprits())
            .evidence(self.events.iter().take(CITATIONS).map(|e| e.evidence()))
    }

    /// What the table of Xids says to do, of the first Xid among the statements.
    pub(crate) fn advise_by_table(&self, draft: Draft) -> Draft {
        let Some(row) = self.events.iter().find_map(|e| match &e.event.kind {
            KernelEventKind::Xid(x) => xid::get(x.code),
            _ => None,
        }) else {
            return draft;
        };
        let first = format!("Xid {} ({}): {}", row.code, row.name, row.action.sentence());
        let draft = match row.action {
            xid::Move::ResetGpu | xid::Move::RebootNode => draft.advise(Impact::Destructive, first),
            xid::Move::RestartApp | xid::Move::Diagnose => draft.advise(Impact::Disruptive, first),
            _ => draft.advise(Impact::Harmless, first),
        };
        if row.then == row.action {
            return draft;
        }
        draft.advise(Impact::Disruptive, format!("if it comes again: {}", row.then.sentence()))
    }
}

/// What a rule makes of both: the job's own words and the kernel's.
pub(crate) enum Both<'s, 'a> {
    /// The job says it; the kernel may confirm.
    Told(Told<'s, 'a>, Option<Seen<'s, 'a>>),
    /// The kernel alone says it.
    Seen(Seen<'s, 'a>),
}

impl<'s, 'a> Both<'s, 'a> {
    /// None if neither speaks.
    pub(crate) fn of(told: Option<Told<'s, 'a>>, seen: Option<Seen<'s, 'a>>) -> Option<Self> {
        match (told, seen) {
            (Some(told), seen) => Some(Self::Told(told, seen)),
            (None, Some(seen)) => Some(Self::Seen(seen)),
            (None, None) => None,
        }
    }

    /// A draft of both. `from_told` and `from_seen` make the title.
    pub(crate) fn draft(
        &self,
        rule: &Rule,
        cause: Cause,
        from_told: impl Fn(&Told<'s, 'a>) -> String,
        from_seen: impl Fn(&Seen<'s, 'a>) -> String,
    ) -> Draft {
        match self {
            Self::Seen(seen) => seen.draft(rule, cause, from_seen(seen)),
            Self::Told(told, None) => told.draft(rule, cause, from_told(told)),
            Self::Told(told, Some(seen)) => {
                let mut culprits = told.culprits();
                if seen.is_bound() {
                    // The kernel names the device that failed; who complained of it may be a neighbour.
                    let named: Vec<Culprit> =
                        seen.culprits().into_iter().filter(|c| c.rank.is_some()).collect();
                    if !named.is_empty() {
                        culprits.retain(|c| named.iter().any(|n| n.rank == c.rank));
                    } else if let ([one], Some(c)) = (culprits.as_mut_slice(), seen.culprits().first()) {
                        one.gpu = one.gpu.or(c.gpu);
                    }
                    for c in named {
                        add_culprit(&mut culprits, c);
                    }
                }
                let draft = told.draft_naming(rule, cause, from_told(told), culprits);
                if seen.bond() < Bond::Device {
                    return draft;
                }
                draft.evidence(seen.events().iter().take(CITATIONS).map(|e| e.evidence()))
            }
        }
    }

    /// What the kernel said.
    pub(crate) fn seen(&self) -> Option<&Seen<'s, 'a>> {
        match self {
            Self::Told(_, seen) => seen.as_ref(),
            Self::Seen(seen) => Some(seen),
        }
    }
}

/// `GPU 0000:3b:00.0 of rank 2`, `a GPU on node7`.
pub(crate) fn gpu_of(event: &KernelStatement<'_>) -> String {
    let name = event.event.device.map_or_else(|| "a GPU".to_owned(), |d| format!("GPU {d}"));
    match (event.culprit.rank, &event.culprit.host) {
        (Some(rank), _) => format!("{name} of rank {}", rank.0),
        (None, Some(host)) => format!("{name} on {host}"),
        (None, None) => name,
    }
}

/// How long one fault of a GPU goes on making numbers: the driver tries to recover and resets, the program retries until its
/// collective times out, by default after ten minutes.
pub(crate) const ONE_FAULT_S: f64 = 600.0;
/// Memory, link or bus of a GPU fail first, and programs fault in their next launches: a step takes seconds, a slow one a
/// minute.
pub(crate) const NEXT_LAUNCHES_S: f64 = 60.0;
/// A fatal error of a switch takes the links of its GPUs along as soon as they are used or trained again.
pub(crate) const SWITCH_TAKES_LINKS_S: f64 = 30.0;
/// After a program's own fault the driver stops its channels at once; a full log may be written late.
pub(crate) const CHANNELS_STOP_S: f64 = 10.0;
/// Two statements of one moment may stand in either order.
const SAME_MOMENT_S: f64 = 0.5;

/// Whether `event` follows another statement that `is_root` accepts within `seconds`, of the same device if
/// `same_device`.
pub(crate) fn follows(
    scene: &Scene<'_>,
    event: &KernelStatement<'_>,
    seconds: f64,
    same_device: bool,
    is_root: impl Fn(&KernelEvent) -> bool,
) -> bool {
    scene.kernel().all().iter().any(|root| {
        is_root(root.event)
            && (!same_device || root.event.device == event.event.device)
            && root.observation.cite != event.observation.cite
            && root.seconds_to(event).is_some_and(|after| (-SAME_MOMENT_S..=seconds).contains(&after))
    })
}

/// A GPU that is gone, with its number or without.
pub(crate) fn is_lost_gpu(event: &KernelEvent) -> bool {
    match &event.kind {
        KernelEventKind::GpuLost => true,
        KernelEventKind::Xid(x) => x.code == 79,
        _ => false,
    }
}

/// An Xid that the table gives to this rule.
pub(crate) fn is_own(rule: &Rule, event: &KernelEvent) -> bool {
    matches!(&event.kind, KernelEventKind::Xid(x) if xid::get(x.code).is_some_and(|row| row.rule == rule.id))
}

/// One of these Xids.
pub(crate) fn is_xid(event: &KernelEvent, codes: &[u16]) -> bool {
    matches!(&event.kind, KernelEventKind::Xid(x) if codes.contains(&x.code))
}

/// Storage of a host that failed or did not answer while the job ran: what it is, and the kernel's words.
pub(crate) fn storage(
    scene: &Scene<'_>,
    host: Option<&Host>,
    is_it: impl Fn(StorageTrouble) -> bool,
) -> Option<(String, Vec<Evidence>)> {
    let mut first = None;
    let mut evidence = Vec::new();
    for event in scene.kernel().near() {
        let KernelEventKind::Storage { name, trouble } = &event.event.kind else { continue };
        // What nothing ties to the job's time or host may be of any day.
        if !is_it(*trouble)
            || event.bond < Bond::Untold
            || !scene.may_be_on(event.observation.who.host.as_ref(), host)
        {
            continue;
        }
        let does = match trouble {
            StorageTrouble::ReadOnly => "turned read-only",
            StorageTrouble::IoError => "has I/O errors",
            StorageTrouble::NotResponding => "does not answer",
        };
        first.get_or_insert_with(|| format!("{name} {does}"));
        if evidence.len() < 2 {
            evidence.push(event.evidence());
        }
    }
    Some((first?, evidence))
}

/// A link that went down in mid-run: a draft, if there is such a link. `infiniband` picks the sort.
pub(crate) fn link_down(scene: &Scene<'_>, rule: &Rule, cause: Cause, infiniband: bool) -> Option<Draft> {
    let used = Used::new(scene.case());
    let downs: Vec<_> = downs(scene.kernel(), scene.has_job(), &used)
        .into_iter()
        .filter(|d| d.is_infiniband == infiniband)
        .collect();
    let best = downs.iter().map(|d| (d.is_used, d.event.bond)).max()?;
    let downs: Vec<_> = downs.iter().filter(|d| (d.is_used, d.event.bond) == best).collect();
    let first = downs.first()?;
    let seen = Seen::from(scene, downs.iter().map(|d| d.event).collect())?;
    let sort = if infiniband { "port" } else { "link" };
    let host = first.event.culprit.host.as_ref().map_or_else(String::new, |h| format!(" on {h}"));
    let did = match (downs.len(), downs.iter().any(|d| d.up_again.is_some())) {
        (1, true) => "went down for a while".to_owned(),
        (n, true) => format!("went down {n} times and came back"),
        _ => "went down".to_owned(),
    };
    let mut draft = seen.draft(rule, cause, format!("the {sort} of {}{host} {did}", first.name));
    if first.is_used && seen.bond() >= Bond::Time && (health::trouble(scene).is_some() || scene.has_failed())
    {
        draft = draft.severity(Severity::Error).weight(Weight::Stated).confidence(Confidence::High);
    }
    if downs.iter().all(|d| d.is_guess) {
        draft = draft.at_most(Confidence::Low);
    }
    Some(over_before_failure(scene, &downs, draft))
}

/// How long a connection survives a dead link: TCP sends again for 15 minutes and a half (tcp_retries2 = 15), verbs
/// for less.
const SURVIVES_NS: i64 = 1_000_000_000_000;

/// Links that came back and were up for longer than any connection would have waited before the first thing failed.
fn over_before_failure(scene: &Scene<'_>, downs: &[&Down<'_, '_>], draft: Draft) -> Draft {
    let gaps: Option<Vec<(i64, bool)>> =
        downs.iter().map(|d| scene.failure().after(d.up_again?.observation.at)).collect();
    let Some((gap, is_start)) = gaps.and_then(|g| g.into_iter().min()) else { return draft };
    if gap < SURVIVES_NS {
        return draft;
    }
    // A process that was killed may have hung since then; a watchdog says since when it has waited.
    let severity = if is_start { Severity::Info } else { Severity::Warning };
    draft.severity(severity).weight(Weight::Derived).confidence(Confidence::Low)
}

/// Findings of drafts.
pub(crate) fn outcome(drafts: impl IntoIterator<Item = Draft>) -> Outcome {
    let findings: Vec<Finding> = drafts.into_iter().filter_map(Draft::build).collect();
    Outcome::from_findings(findings)
}
