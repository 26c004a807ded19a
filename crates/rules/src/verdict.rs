//! Orders findings: cause before consequence. No rule sees those of another; here all of them come together.
//!
//! Weight comes first: what a failing rank states or records prove beats what is derived, that beats a symptom, and an
//! echo never comes before anything. Among equals the surer finding wins, then the earlier one, then the one that
//! explains more ranks. A finding whose culprits are the victims of another one of the same weight yields to it.

use std::cmp::Reverse;
use std::panic::{AssertUnwindSafe, catch_unwind};

use ringleader_knowledge::signal::SIGABRT;
use ringleader_knowledge::{cause, collecting};
use ringleader_model::{
    Category, Cause, Confidence, Finding, LookState, Need, RankLook, RankSet, Severity, SourceId, SourceKind,
    Verdict, Weight,
};

use crate::likeness::ENDS;
use crate::rule::{Outcome, Rule};
use crate::weigh::Decision;
use crate::{blame, drafting, health, overcome, rules, settle, unexplained, weigh};
use ringleader_correlate::Scene;
use ringleader_correlate::process::fate::End;
use ringleader_correlate::when::failure::Way;

/// Runs every rule, weighs what they found, and names whom the verdict accuses.
pub fn decide(scene: &Scene<'_>, rules: &[&Rule]) -> Decision {
    let mut decision = settle::settle(scene, by_rules(scene, rules));
    blame::complete(scene, &mut decision.verdict);
    decision
}

/// What the rules alone say.
fn by_rules(scene: &Scene<'_>, rules: &[&Rule]) -> Verdict {
    let mut findings = Vec::new();
    let mut needs = Vec::new();
    for rule in rules {
        // A panic costs only that rule.
        match catch_unwind(AssertUnwindSafe(|| (rule.check)(scene))) {
            Ok(Outcome::Clear) => {}
            Ok(Outcome::Found(mut found)) => findings.append(&mut found),
            Ok(Outcome::Undecided(mut open)) => needs.append(&mut open),
            Err(_) => needs.push(Need {
                question: format!(
                    "rule {} failed; this is a bug of ringleader, the other rules are not affected",
                    rule.id
                ),
                command: String::new(),
                ..Need::default()
            }),
        }
    }
    if scene.ledger().n_left_out() > 0 {
        needs.push(Need {
            question: format!(
                "{} communicators were left out: the evidence claims more members than any one job has",
                scene.ledger().n_left_out()
            ),
            command: String::new(),
            ..Need::default()
        });
    }
    needs.sort();
    needs.dedup();
    yield_to_rules(&mut findings);
    yield_to_machines(&mut findings);
    yield_to_conclusions(&mut findings);
    yield_to_last_words(scene, &mut findings);
    yield_to_memory(&mut findings);
    yield_to_the_absent(&mut findings);
    yield_to_the_named(scene, &mut findings);
    overcome::overcome(scene, &mut findings);
    order(&mut findings);
    drop_repeats(&mut findings);
    if findings.first().is_none_or(|f| SILENCE_MATTERS.contains(&f.cause)) {
        needs.extend(longer_kernel_logs(scene));
    }
    let zones = match findings.first() {
        Some(f) if !SILENCE_MATTERS.contains(&f.cause) && f.severity > Severity::Info => Vec::new(),
        _ => other_zones(scene),
    };
    let Some(first) = findings.first().filter(|first| weigh::is_decisive(first)) else {
        needs.extend(zones);
        return without_finding(scene, findings, needs);
    };
    let same = same_fault(first, &findings);
    // Once a sure cause is known, what another rule would have needed does not matter.
    if same.confidence == Confidence::High && first.severity == Severity::Error {
        needs.retain(|n| n.command.is_empty());
    }
    needs.extend(zones);
    Verdict {
        cause: first.cause,
        category: category_of_event(scene, first),
        confidence: same.confidence,
        summary: first.title.clone(),
        culprits: same.culprits,
        victims: first.victims.clone(),
        actions: first.actions.clone(),
        needs,
        findings,
        ranks: rows(scene),
    }
}

/// Each rank of a job that runs: those that are not there, then those with the fewest others at the same place.
fn rows(scene: &Scene<'_>) -> Vec<RankLook> {
    let looks = scene.looks();
    let missing = looks.missing().iter().map(|rank| RankLook {
        rank: rank.0,
        state: LookState::Missing,
        apart_s: looks.apart_s(),
        ..RankLook::default()
    });
    let there = looks.by_place().into_iter().flatten().map(|look| {
        let waits_for = match &look.doing {
            Some(doing) => Some(doing.clone()),
            None if look.waits => Some("the others, or the GPU".to_owned()),
            None => look.wchan.as_deref().map(str::to_owned),
        };
        RankLook {
            rank: look.rank.0,
            host: scene.roster().culprit_rank(look.rank).host.map(|host| host.as_ref().into()),
            pid: Some(look.pid.0),
            state: LookState::Letter(look.state.clone()),
            cpu_ms: Some(look.cpu_ms),
            busy: Some(look.busy),
            place: look.place.clone(),
            waits_for,
            activity: look.activity,
            has_moved: look.has_moved,
            apart_s: looks.apart_s(),
        }
    });
    missing.chain(there).collect()
}

/// A finding by the message table yields to a rule that has found the same cause: it knows more.
fn yield_to_rules(findings: &mut Vec<Finding>) {
    let by_table = rules::program::message_names_cause::RULE.id;
    let found: Vec<Cause> = findings.iter().filter(|f| f.rule != by_table).map(|f| f.cause).collect();
    findings.retain(|f| f.rule != by_table || !found.contains(&f.cause));
}

/// An exception that a broken machine may have brought about yields to what is known to be broken, and to a message that
/// states a cause of its own.
fn yield_to_machines(findings: &mut [Finding]) {
    let is_broken = |f: &Finding| {
        cause::class(f.cause) == Some(ringleader_model::Class::Node)
            && f.severity == Severity::Error
            && f.weight > Weight::Echo
            && f.confidence > Confidence::Low
    };
    let by_table = rules::program::message_names_cause::RULE.id;
    let is_stated = |f: &Finding| {
        f.rule == by_table && f.weight >= Weight::Derived && f.cause != Cause::ApplicationException
    };
    if findings.iter().any(|f| is_broken(f) || is_stated(f)) {
        let unsure =
            |f: &&mut Finding| f.cause == Cause::ApplicationException && f.confidence < Confidence::High;
        findings.iter_mut().filter(unsure).for_each(|f| f.weight = f.weight.min(Weight::Echo));
    }
}

/// A program that finds something wrong says so and aborts: what its last words state, or records prove, is the cause, the abort
/// only the end.
fn yield_to_last_words(scene: &Scene<'_>, findings: &mut [Finding]) {
    let by_table = rules::program::message_names_cause::RULE.id;
    let is_mismatch = |cause| {
        matches!(
            cause,
            Cause::ShapeMismatch | Cause::DtypeMismatch | Cause::OpMismatch | Cause::CollectiveDesync
        )
    };
    let is_by_table = |f: &Finding| f.rule == by_table && f.weight > Weight::Symptom;
    let is_proven = |f: &Finding| {
        f.severity == Severity::Error && f.confidence == Confidence::High && f.weight >= Weight::Derived
    };
    // Which of two ranks differs may be open where the records prove that they do.
    let differs = |f: &Finding| is_mismatch(f.cause) && f.weight >= Weight::Derived;
    let is_stated = |f: &Finding| is_proven(f) && f.weight >= Weight::Stated && !ENDS.contains(&f.cause);
    let is_said = findings.iter().any(|f| differs(f) || is_stated(f));
    let has_raised = findings.iter().any(|f| {
        f.cause == Cause::ApplicationException && is_proven(f) && f.culprits.iter().any(|c| c.rank.is_some())
    });
    let are_aborts = scene.fates().all().all(|(_, fate)| match fate.end() {
        End::Crashed(signal) => signal.number == SIGABRT,
        _ => true,
    });
    if (is_said || has_raised) && are_aborts {
        let crashes = findings.iter_mut().filter(|f| f.cause == Cause::ProcessCrashed);
        crashes.for_each(|f| f.weight = f.weight.min(Weight::Symptom));
        // The end is a second kind of evidence beside the words.
        let said = findings.iter_mut().filter(|f| is_mismatch(f.cause) && is_by_table(f));
        said.for_each(|f| f.confidence = Confidence::High);
    }
}

/// A kill for want of memory explains the exceptions and kills beside it, and where it is only likely those that yield
/// to it.
fn yield_to_memory(findings: &mut [Finding]) {
    let is_oom = |f: &Finding| f.cause == Cause::OomKilled && f.weight > Weight::Aside;
    // A kernel's log may be of another program.
    let is_told = |f: &Finding| f.evidence.iter().any(|e| e.kind != SourceKind::KernelLog);
    let is_sure = findings
        .iter()
        .any(|f| is_oom(f) && f.confidence > Confidence::Low && f.weight > Weight::Echo && is_told(f));
    let is_likely = findings.iter().any(is_oom);
    for finding in findings {
        let is_end = matches!(finding.cause, Cause::ProcessKilled | Cause::ApplicationException);
        if is_end && is_sure || is_likely && finding.yields_to == Some(Cause::OomKilled) {
            finding.weight = finding.weight.min(Weight::Echo);
        }
    }
}

/// Who waited for a rank reports less than the rank itself, which says in its own output why it could not join.
fn yield_to_the_absent(findings: &mut [Finding]) {
    let is_wait = |f: &Finding| f.cause == Cause::MissingRank;
    let waits: Vec<SourceId> =
        findings.iter().filter(|f| is_wait(f)).flat_map(|f| &f.evidence).map(|e| e.cite.source).collect();
    let has_reason = findings.iter().any(|f| {
        !is_wait(f)
            && f.category == Category::Init
            && f.severity == Severity::Error
            && f.weight >= Weight::Stated
            && f.evidence.iter().all(|e| !waits.contains(&e.cite.source))
    });
    if has_reason {
        let waits = findings.iter_mut().filter(|f| is_wait(f));
        waits.for_each(|f| f.weight = f.weight.min(Weight::Echo));
    }
}

/// That some peer is gone adds nothing where a rank is known to have been ended from outside or to have crashed. A loss that
/// is not a number ends no process without a word.
fn yield_to_the_named(scene: &Scene<'_>, findings: &mut [Finding]) {
    let is_end = |f: &Finding| {
        matches!(f.cause, Cause::OomKilled | Cause::ProcessKilled | Cause::ProcessCrashed)
            && f.severity == Severity::Error
            && f.weight > Weight::Aside
            && f.culprits.iter().any(|c| c.rank.is_some())
    };
    let is_named = findings.iter().any(is_end);
    let ranks_of = |f: &Finding| -> RankSet { f.culprits.iter().filter_map(|c| c.rank).collect() };
    let ended: Vec<RankSet> = findings.iter().filter(|f| is_end(f)).map(ranks_of).collect();
    let is_told = |f: &Finding| {
        let ranks = ranks_of(f);
        ended.iter().any(|told| ranks.ranks().iter().all(|rank| told.contains(*rank)))
    };
    let is_silently_gone =
        scene.fates().all().any(|(rank, fate)| fate.left_a_ring().is_some() && scene.thrown(rank).is_none());
    for finding in findings {
        let is_echo = match finding.cause {
            Cause::PeerProcessDied => is_named && (finding.culprits.is_empty() || is_told(finding)),
            Cause::NanLoss => is_silently_gone,
            _ => false,
        };
        if is_echo {
            finding.weight = finding.weight.min(Weight::Echo);
        }
    }
}

/// What another rule's finding explains is its echo.
fn yield_to_conclusions(findings: &mut [Finding]) {
    let explained: Vec<(&str, Cause)> =
        findings.iter().flat_map(|f| f.explains.iter().map(|cause| (f.rule, *cause))).collect();
    let is_echo =
        |f: &&mut Finding| explained.iter().any(|(rule, cause)| *rule != f.rule && *cause == f.cause);
    findings.iter_mut().filter(is_echo).for_each(|f| f.weight = f.weight.min(Weight::Echo));
}

/// Causes that also rest on what the kernel did not report.
const SILENCE_MATTERS: [Cause; 6] = [
    Cause::ProcessKilled,
    Cause::ProcessCrashed,
    Cause::PeerProcessDied,
    Cause::ProcessUninterruptible,
    Cause::NetworkUnreachable,
    Cause::GpuKernelStuck,
];

/// Kernel logs whose last line is from before the failure: they do not show that nothing happened.
fn longer_kernel_logs(scene: &Scene<'_>) -> Vec<Need> {
    let Some(failed) = scene.failure().told_at() else { return Vec::new() };
    let short = scene.kernel().ends_before(failed).into_iter();
    short
        .map(|(host, before)| {
            let of = host.map_or_else(String::new, |h| format!(" of {h}"));
            Need {
                question: format!(
                    "the kernel log{of} ends {before} before the failure, so it does not cover it: what has the kernel logged since?"
                ),
                command: "dmesg -T".to_owned(),
                ..Need::default()
            }
        })
        .collect()
}

/// Kernel events that are whole half hours from the failure.
fn other_zones(scene: &Scene<'_>) -> Vec<Need> {
    let needs = scene.shifted().into_iter().take(4).map(|s| {
        let side = if s.hours < 0.0 { "before" } else { "after" };
        let of = s.event.observation.who.host.as_ref().map_or_else(String::new, |h| format!(" of {h}"));
        let said: String = s.event.observation.text.lines().next().unwrap_or_default().chars().take(drafting::QUOTED_CHARS).collect();
        let hours = s.hours.abs();
        Need {
            question: format!(
                "the kernel log{of} has, exactly {hours} hours {side} the failure: {said} - is its clock in a different time zone than the job's? If so, that is the fault"
            ),
            command: "date; date -u; dmesg -T | tail -n 1".to_owned(),
            ..Need::default()
        }
    });
    needs.collect()
}

/// A finding that a rank is gone adds nothing to one that says how it ended.
fn drop_repeats(findings: &mut Vec<Finding>) {
    let ranks = |f: &Finding| -> RankSet { f.culprits.iter().filter_map(|c| c.rank).collect() };
    let Some(first) = findings.first().map(&ranks).filter(|r| !r.is_empty()) else { return };
    let mut at = 0;
    findings.retain(|f| {
        at += 1;
        at == 1 || f.cause != Cause::PeerProcessDied || ranks(f) != first
    });
}

/// The finding that decided, with what others of the same cause add to it.
struct Same {
    confidence: Confidence,
    culprits: Vec<ringleader_model::Culprit>,
}

fn same_fault(first: &Finding, findings: &[Finding]) -> Same {
    let mut same = Same { confidence: first.confidence, culprits: first.culprits.clone() };
    for other in findings.iter().skip(1).filter(|f| f.cause == first.cause && f.weight == first.weight) {
        let overlap =
            other.culprits.iter().any(|c| c.rank.is_some() && same.culprits.iter().any(|s| s.rank == c.rank));
        if overlap {
            same.confidence = same.confidence.max(other.confidence);
        }
        // Several ranks hold up the same others in the same way: all of them are named.
        let shared = other.rule == first.rule && !first.victims.is_empty() && other.victims == first.victims;
        if shared && other.confidence == first.confidence {
            let fresh: Vec<_> =
                other.culprits.iter().filter(|c| !same.culprits.contains(c)).cloned().collect();
            same.culprits.extend(fresh);
        }
    }
    same
}

/// Root first.
/// Of equal findings without a time, that of another cause whose first line comes before in the same source is first.
fn by_lines(findings: &mut [Finding]) {
    let first_line = |f: &Finding| f.evidence.first().map(|e| (e.cite.source, e.cite.start));
    let Some(first) = findings.first().filter(|f| f.at_ns.is_none() && weigh::is_decisive(f)) else { return };
    let Some((source, start)) = first_line(first) else { return };
    let is_equal = |f: &Finding| {
        (f.weight, f.severity, f.confidence, f.at_ns)
            == (first.weight, first.severity, first.confidence, None)
    };
    let equals = findings.iter().take_while(|f| is_equal(f)).enumerate();
    let others = equals.filter(|(_, f)| f.cause != first.cause);
    let lines = others.filter_map(|(at, f)| Some((first_line(f)?, at)));
    let earliest = lines.filter(|((of, line), _)| *of == source && *line < start).min();
    if let Some((_, at)) = earliest
        && let Some(part) = findings.get_mut(..=at)
    {
        part.rotate_right(1);
    }
}

fn order(findings: &mut [Finding]) {
    findings.sort_by_key(|f| {
        (
            f.weight == Weight::Aside,
            Reverse(f.severity),
            Reverse(f.weight),
            Reverse(f.confidence),
            f.at_ns.is_none(),
            f.at_ns,
            Reverse(f.victims.len()),
        )
    });
    by_lines(findings);
    // A finding that blames only victims of an equal one is a consequence of it.
    if let Some(first) = findings.first() {
        let weight = first.weight;
        let ranks = |f: &Finding| -> RankSet { f.culprits.iter().filter_map(|c| c.rank).collect() };
        let equals =
            findings.iter().take_while(|f| f.weight == weight && f.severity == first.severity).count();
        let root = (0..equals).find(|at| {
            let mine = findings.get(*at).map(&ranks).unwrap_or_default();
            !mine.is_empty()
                && !findings.iter().take(equals).enumerate().any(|(other, f)| {
                    other != *at
                        && !ranks(f).is_empty()
                        && mine.ranks().iter().all(|r| f.victims.contains(*r))
                        && !ranks(f).ranks().iter().any(|r| mine.contains(*r))
                        && !ranks(f)
                            .ranks()
                            .iter()
                            .all(|r| findings.get(*at).is_some_and(|m| m.victims.contains(*r)))
                })
        });
        if let Some(root) = root
            && findings.first().is_some_and(|f| !ranks(f).is_empty())
            && let Some(part) = findings.get_mut(..=root)
        {
            part.rotate_right(1);
        }
    }
}

/// Blocked processes that are asked about.
const MAX_ASKED: usize = 4;

/// Nothing was found: either all is well, or something is wrong that this evidence does not explain.
fn without_finding(scene: &Scene<'_>, findings: Vec<Finding>, mut needs: Vec<Need>) -> Verdict {
    // No evidence that any reader knows: that is not health.
    let nothing = health::is_without_evidence(scene.case());
    let trouble = if nothing { None } else { health::trouble(scene) };
    let unseen = if nothing || trouble.is_some() { None } else { health::unseen(scene) };
    // Where nothing but the job's processes was seen, what a kernel reports of the machine may well be of the job.
    let of_kernel =
        |f: &Finding| f.weight > Weight::Aside && f.evidence.iter().any(|e| e.kind == SourceKind::KernelLog);
    // Nor is the machine well where nothing shows a job at work on it.
    let is_bare =
        !scene.roster().members.iter().any(|m| m.rank.is_some()) && !scene.course().text().goes_on();
    let has_broken =
        |f: &Finding| of_kernel(f) && cause::class(f.cause) == Some(ringleader_model::Class::Node);
    let reported = health::is_sight_alone(scene) && findings.iter().any(of_kernel)
        || is_bare && findings.iter().any(has_broken);
    // Processes that were seen alive may well not mind it.
    let is_broken = is_bare && trouble.is_none() && !health::is_sight_alone(scene);
    let broken = if is_broken { broken(&findings) } else { None };
    needs.extend(health::blocked(scene).filter_map(|(row, _)| row.pid).take(MAX_ASKED).map(|pid| Need {
        question: format!("does pid {} leave the kernel, or is it in the same place a minute later?", pid.0),
        command: format!("cat /proc/{0}/stack; sleep 60; cat /proc/{0}/stack", pid.0),
        ..Need::default()
    }));
    let open = if nothing { Vec::new() } else { unexplained::unexplained(scene, &findings) };
    needs.extend(unexplained::needs(&open));
    needs.extend(unexplained::likely(&open));
    let unproven = !nothing && !unexplained::shows_health(scene);
    let undecided = nothing
        || trouble.is_some()
        || unseen.is_some()
        || reported
        || !open.is_empty()
        || unproven
        || !needs.is_empty();
    if let Some(first) = broken {
        return of_machine(scene, first, findings, needs);
    }
    let summary = match (&trouble, undecided) {
        _ if nothing => {
            health::cut(scene.case()).unwrap_or_else(|| "there is no usable evidence".to_owned())
        }
        (Some(sign), _) => format!("{sign}, but the evidence does not single out a cause"),
        (None, true) => match unseen {
            Some(what) => format!("{what}; what was seen shows nothing wrong"),
            None if reported => {
                "the kernel reports a fault of the machine, and nothing shows whether it affects the job".to_owned()
            }
            None if unproven && open.is_empty() => unexplained::unproven(scene).to_owned(),
            None => unexplained::summary(&open)
                .unwrap_or_else(|| "the evidence does not single out a cause".to_owned()),
        },
        (None, false) if !scene.case().sources.iter().any(health::is_known) => {
            "the output shows progress, and no line of it is an unexplained error".to_owned()
        }
        (None, false) if health::is_sight_alone(scene) => {
            "the job's processes are alive, none is stopped or blocked, and their node shows no fault; nothing has recorded what they do"
                .to_owned()
        }
        (None, false) if !scene.has_job() => {
            "the evidence shows nothing wrong".to_owned()
        }
        (None, false) if scene.ledger().may_run() => {
            "the job ran on while its records were copied; nothing failed or timed out in them".to_owned()
        }
        (None, false) => "nothing failed or timed out, and no rank waits for another".to_owned(),
    };
    if nothing || trouble.is_some() || reported {
        needs.extend(general_needs(scene));
        needs.sort();
        needs.dedup();
    }
    let cause = if undecided { Cause::Undecided } else { Cause::None };
    Verdict {
        cause,
        category: if undecided {
            // What the readers understood of the failure says more than unexplained lines.
            let by_words = if scene.failure().is_stated() { None } else { unexplained::category(&open) };
            by_words.unwrap_or_else(|| trouble_category(scene))
        } else {
            cause::category(Cause::None)
        },
        confidence: if undecided { Confidence::Low } else { health::confidence(scene) },
        summary,
        culprits: Vec::new(),
        victims: RankSet::default(),
        actions: Vec::new(),
        findings,
        needs,
        ranks: rows(scene),
    }
}

/// Faults of GPUs that leave them without use to anybody: nothing else than the kernel's word is needed where no job is seen.
const UNUSABLE: [Cause; 4] =
    [Cause::GspTimeout, Cause::GpuFallenOffBus, Cause::EccUncorrectable, Cause::RowRemapFailure];

/// The finding of the one fault of the machine that its kernel reports.
fn broken(findings: &[Finding]) -> Option<Finding> {
    let of_kernel =
        |f: &&Finding| f.weight > Weight::Aside && f.evidence.iter().any(|e| e.kind == SourceKind::KernelLog);
    let mut all = findings.iter().filter(of_kernel);
    let first = all.next().filter(|first| UNUSABLE.contains(&first.cause))?;
    all.all(|f| f.cause == first.cause).then(|| first.clone())
}

/// What a kernel reports of its machine, where no job was seen that it may have ended.
fn of_machine(scene: &Scene<'_>, first: Finding, findings: Vec<Finding>, needs: Vec<Need>) -> Verdict {
    Verdict {
        cause: first.cause,
        category: category_of_event(scene, &first),
        confidence: Confidence::Low,
        summary: first.title,
        culprits: first.culprits,
        victims: first.victims,
        actions: first.actions,
        needs,
        findings,
        ranks: rows(scene),
    }
}

/// The category of what was seen, where a fault of the machine or of the start did not show as its cause usually does.
fn category_of_event(scene: &Scene<'_>, first: &Finding) -> Category {
    let usual = cause::category(first.cause);
    // A rule that says which one knows why.
    if first.category != usual {
        return first.category;
    }
    let failure = scene.failure();
    let has_hung = (failure.has(Way::TimedOut) || failure.has(Way::Stuck)) && !failure.has(Way::NcclError);
    let has_crashed = failure.has(Way::Crashed);
    match usual {
        Category::Crash | Category::Error | Category::Init if has_hung && !failure.ended_process() => {
            Category::Hang
        }
        Category::Init if has_crashed => Category::Crash,
        // A state that a tool shows, and nothing that happened to a job.
        Category::Crash if !scene.has_job() && !failure.is_stated() && is_of_tool(first) => Category::Error,
        usual => usual,
    }
}

/// Whether all that is cited was printed by a tool that was asked.
fn is_of_tool(first: &Finding) -> bool {
    first.evidence.iter().all(|e| e.kind == SourceKind::NvidiaSmi)
}

fn trouble_category(scene: &Scene<'_>) -> Category {
    let failure = scene.failure();
    let hang = failure.has(Way::TimedOut) || failure.has(Way::Stuck);
    let crash = failure.has(Way::Crashed) || failure.has(Way::RankFailed);
    if hang {
        Category::Hang
    } else if crash {
        Category::Crash
    } else {
        Category::Error
    }
}

/// Absent evidence that would show more.
fn general_needs(scene: &Scene<'_>) -> Vec<Need> {
    let mut needs = Vec::new();
    let mut need = |question: &str, kind: SourceKind| {
        let command = collecting::command(kind).unwrap_or_default().to_owned();
        needs.push(Need { question: question.to_owned(), command, ..Need::default() });
    };
    if scene.dumps().is_empty() {
        need("what did each rank call last?", SourceKind::FlightRecorder);
    }
    if scene.stacks().next().is_none() {
        need("where is each rank while the job hangs?", SourceKind::Stacks);
    }
    if scene.nccl_logs().next().is_none() {
        need("what did NCCL see?", SourceKind::NcclLog);
    }
    if scene.process_tables().next().is_none() {
        need("is every rank alive?", SourceKind::Processes);
    }
    needs
}

/// The order of the variants of `Weight` is the order of trust.
const _: () =
    assert!((Weight::Aside as u8) < (Weight::Echo as u8) && (Weight::Echo as u8) < (Weight::Stated as u8));

#[cfg(test)]
mod tests {
    use ringleader_model::{Cause, Confidence, Rank, TorchEvent};

    use crate::diagnose;
    use crate::trial::StagedCase;
    use ringleader_correlate::staging::kernel::BEGAN_S;

    #[test]
    fn a_kernel_log_that_ends_before_the_failure_is_asked_for_again() {
        let exit = TorchEvent::ChildExit { exit_code: -9, is_first: false };
        let job = |last_s: i64| {
            let stage = StagedCase::new().two_ranks().torch(Some(1), exit.clone(), "failed (exitcode: -9)");
            let stage = stage.at_s(BEGAN_S + 600).failed(1, -9, true).covers(BEGAN_S + last_s);
            diagnose(&stage.case)
        };
        let asks = |last_s| job(last_s).needs.iter().any(|n| n.question.contains("ends 9 minutes before"));
        assert!(asks(60));
        // It reaches past the failure: what it does not tell did not happen.
        assert!(!asks(700));
        assert_eq!(job(60).cause, Cause::ProcessKilled);
    }

    #[test]
    fn why_a_rank_ended_says_more_than_that_it_is_gone() {
        let killed = "DataLoader worker (pid 4711) is killed by signal: Killed.";
        let job = || {
            let stage = StagedCase::job(2).logs().dumps(&["ar:1 ar:9?", "ar:1"]);
            stage.ps("S -").raised(Some(1), "RuntimeError", killed, &[("/srv/train.py", 92, "main")])
        };
        let verdict = diagnose(&job().case);
        assert!(matches!(verdict.cause, Cause::OomKilled | Cause::ProcessKilled), "{verdict:#?}");
        assert_eq!(verdict.culprits[0].rank, Some(Rank(1)));
    }

    #[test]
    fn a_gpu_without_use_is_the_fault_where_no_job_is_seen() {
        const GSP: &str = "Timeout after 6s of waiting for RPC response from GPU4 GSP!";
        // The process that asked is another one than that which was seen.
        let silent =
            || StagedCase::new().process("node0", 100, None).xid("0000:9b:00", 119, 9_120, GSP).on("node0");
        let alone = diagnose(&silent().case);
        assert_eq!((alone.cause, alone.confidence), (Cause::GspTimeout, Confidence::Low), "{alone:#?}");
        // A second fault: which one it was is not known.
        let two = silent().xid("0000:1b:00", 79, 9_121, "GPU has fallen off the bus.").on("node0");
        assert_eq!(diagnose(&two.case).cause, Cause::Undecided);
    }

    #[test]
    fn a_kernel_log_of_another_zone_is_a_question() {
        let exit = TorchEvent::ChildExit { exit_code: -9, is_first: false };
        let stage = StagedCase::new().two_ranks().torch(Some(1), exit, "failed (exitcode: -9)");
        let stage = stage.at_s(BEGAN_S + 600).failed(1, -9, true);
        let stage = stage.oom(77_123, "pt_main_thread").at_s(BEGAN_S + 598 - 8 * 3_600);
        let needs = diagnose(&stage.case).needs;
        assert!(needs.iter().any(|n| n.question.contains("different time zone")), "{needs:#?}");
    }
}
