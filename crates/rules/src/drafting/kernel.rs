//! From kernel logs to a draft: whose device it is, how far it may be believed, with which lines.

use ringleader_knowledge::xid;
use ringleader_model::{
    Cause, Confidence, Culprit, Impact, KernelEvent, KernelEventKind, Severity, Weight, Xid,
};

use crate::drafting::claims::ClaimsOfCause;
use crate::health;
use crate::rule::{Draft, Rule};
use ringleader_correlate::Scene;
use ringleader_correlate::machine::faults::gpu_of;
use ringleader_correlate::machine::kernel::{Bond, KernelStatement};
use ringleader_correlate::machine::links::{Up, Used, downs, up_before_failure};
use ringleader_correlate::who::culprits::add_culprit;

/// Citations of one finding.
const CITATIONS: usize = 6;

/// Statements of one fault, those that belong to the job most closely.
pub(crate) struct KernelFault<'s, 'a> {
    scene: &'s Scene<'a>,
    events: Vec<&'s KernelStatement<'a>>,
    bond: Bond,
}

impl<'s, 'a> KernelFault<'s, 'a> {
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

    /// It is of this job, or judged by itself.
    pub(crate) fn is_bound(&self) -> bool {
        self.bond >= Bond::Alone
    }

    /// Leaves out the statements that `is_not` names; None if nothing is left.
    pub(crate) fn without(mut self, is_not: impl Fn(&KernelStatement<'a>) -> bool) -> Option<Self> {
        self.events.retain(|e| !is_not(e));
        (!self.events.is_empty()).then_some(self)
    }

    /// The processes that the statements are about.
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

    /// A draft that cites these statements and blames the processes that they name, as sure as their bond to the job
    /// allows.
    pub(crate) fn draft(&self, rule: &Rule, cause: Cause, title: impl Into<String>) -> Draft {
        let in_trouble = health::in_trouble(self.scene);
        let (severity, weight, confidence) = match self.bond {
            // No rank runs on it: reported beside any verdict.
            Bond::Beside => (Severity::Info, Weight::Aside, Confidence::Low),
            // The job completed regardless of it.
            Bond::Process | Bond::DeviceInTime if health::completed(self.scene) => {
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
            title.push_str(" (nothing shows whether it belongs to this job)");
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
        draft.advise(Impact::Disruptive, format!("if it recurs: {}", row.then.sentence()))
    }
}

/// What the job's own messages and the kernel's show of one fault.
pub(crate) enum Both<'s, 'a> {
    /// The job reports it; the kernel may confirm it.
    Told(ClaimsOfCause<'s, 'a>, Option<KernelFault<'s, 'a>>),
    /// Only the kernel reports it.
    Seen(KernelFault<'s, 'a>),
}

impl<'s, 'a> Both<'s, 'a> {
    /// None if neither reports it.
    pub(crate) fn of(told: Option<ClaimsOfCause<'s, 'a>>, seen: Option<KernelFault<'s, 'a>>) -> Option<Self> {
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
        from_told: impl Fn(&ClaimsOfCause<'s, 'a>) -> String,
        from_seen: impl Fn(&KernelFault<'s, 'a>) -> String,
    ) -> Draft {
        match self {
            Self::Seen(seen) => seen.draft(rule, cause, from_seen(seen)),
            Self::Told(told, None) => told.draft(rule, cause, from_told(told)),
            Self::Told(told, Some(seen)) => {
                let mut culprits = told.culprits();
                if seen.is_bound() {
                    // The kernel names the device that failed; the process that reported it may be a neighbour.
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

    /// What the kernel reports.
    pub(crate) fn seen(&self) -> Option<&KernelFault<'s, 'a>> {
        match self {
            Self::Told(_, seen) => seen.as_ref(),
            Self::Seen(seen) => Some(seen),
        }
    }
}

/// An Xid that the table gives to this rule.
pub(crate) fn is_own(rule: &Rule, event: &KernelEvent) -> bool {
    matches!(&event.kind, KernelEventKind::Xid(x) if xid::get(x.code).is_some_and(|row| row.rule == rule.id))
}

/// A link that went down in mid-run: a draft, if there is such a link. `infiniband`: ports of InfiniBand, else network
/// links.
pub(crate) fn link_down(scene: &Scene<'_>, rule: &Rule, cause: Cause, infiniband: bool) -> Option<Draft> {
    let used = Used::new(scene.case());
    let downs: Vec<_> = downs(scene.kernel(), scene.has_job(), &used)
        .into_iter()
        .filter(|d| d.is_infiniband == infiniband)
        .collect();
    let best = downs.iter().map(|d| (d.is_used, d.event.bond)).max()?;
    let downs: Vec<_> = downs.iter().filter(|d| (d.is_used, d.event.bond) == best).collect();
    let first = downs.first()?;
    let seen = KernelFault::from(scene, downs.iter().map(|d| d.event).collect())?;
    let sort = if infiniband { "port" } else { "link" };
    let host = first.event.culprit.host.as_ref().map_or_else(String::new, |h| format!(" on {h}"));
    let did = match (downs.len(), downs.iter().any(|d| d.up_again.is_some())) {
        (1, true) => "went down for a while".to_owned(),
        (n, true) => format!("went down {n} times and came back"),
        _ => "went down".to_owned(),
    };
    let mut draft = seen.draft(rule, cause, format!("the {sort} of {}{host} {did}", first.name));
    if first.is_used && seen.bond() >= Bond::Time && health::in_trouble(scene) {
        draft = draft.severity(Severity::Error).weight(Weight::Stated).confidence(Confidence::High);
    }
    if downs.iter().all(|d| d.is_guess) {
        draft = draft.at_most(Confidence::Low);
    }
    // A process that was killed may have hung since then; a watchdog says since when it has waited.
    Some(match up_before_failure(&downs, scene.failure()) {
        Some(Up::BeforeStart) => past(draft).severity(Severity::Info),
        Some(Up::BeforeEnd) => past(draft).severity(Severity::Warning),
        None => draft,
    })
}

/// A fault that was over long before the job failed is no sure cause.
fn past(draft: Draft) -> Draft {
    draft.weight(Weight::Derived).confidence(Confidence::Low)
}
