//! Forms of findings that several rules share.

use ringleader_model::{Confidence, Severity};

use crate::finding::{LintFinding, Location, Related};
use crate::flow::catalog;
use crate::flow::compare::{Divergence, Parting};
use crate::flow::machine::SeenCall;
use crate::flow::trace::{Decider, FlowExit};
use crate::flow::value::{GroupValue, Locally, Origin, PLACE};
use crate::python::ast::Expr;
use crate::python::index::{FuncId, Project};
use crate::python::walk;
use crate::{LintRule, Scan};

/// Characters of source that a finding quotes.
const MAX_QUOTE: usize = 120;
/// Calls of a sequence that a finding lists.
const MAX_CALLS: usize = 8;

/// A place in the source.
pub(crate) fn place(project: &Project<'_>, at: Origin, func: Option<FuncId>) -> Location {
    let file = &project.files[at.file];
    let (line, column) = file.position(at.span.at);
    let (end_line, end_column) = file.position(at.span.end);
    let function = func.map(|id| project.functions[id].qualified.clone()).filter(|name| name != "<module>");
    Location {
        path: file.path.to_owned(),
        line,
        column,
        end_line,
        end_column,
        function: function.unwrap_or_default(),
        text: quote(file.slice(at.span)),
    }
}

/// Whether an expression names a rank: a variable or a call by a usual name.
pub(crate) fn names_rank(expr: &Expr<'_>) -> bool {
    let mut found = false;
    walk::exprs(expr, &mut |part| {
        let is_rank = |name: &str| catalog::rank_name(name).is_some() || catalog::rank_call(name).is_some();
        found |= part.last_name().is_some_and(is_rank);
    });
    found
}

/// Source in one line.
pub(crate) fn quote(text: &str) -> String {
    let line = text.lines().next().unwrap_or_default();
    let mut short: String = line.chars().take(MAX_QUOTE).filter(|c| !c.is_control()).collect();
    if short.len() < text.trim_end().len() {
        short.push_str(" ...");
    }
    short
}

/// The findings of a rule about processes that part.
pub(crate) fn partings(
    scan: &Scan<'_, '_>,
    rule: &LintRule,
    is_mine: impl Fn(&Divergence) -> bool,
) -> Vec<LintFinding> {
    let all = scan.tried.iter().flat_map(|(_, tried)| &tried.divergences);
    all.filter(|divergence| is_mine(divergence)).map(|divergence| parting(scan, rule, divergence)).collect()
}

fn parting(scan: &Scan<'_, '_>, rule: &LintRule, d: &Divergence) -> LintFinding {
    let project = scan.project;
    let call = call_text(project, d.op.at);
    let condition = place(project, d.decision.test, Some(d.decision.func));
    // The call where it stands; the condition where the call is far away.
    let is_near = d.op.from.file == d.decision.at.file;
    let at = match d.parting {
        Parting::Exit(_, exit) => exit,
        Parting::Decorator => d.decision.test,
        _ if is_near => d.op.from,
        _ => d.decision.test,
    };
    let mut why = Vec::new();
    for (who, calls) in &d.sides {
        why.push(format!("{who}: {}", sequence(calls)));
    }
    let mut related = Vec::new();
    if at != d.decision.test {
        related.push(Related { place: condition.clone(), text: "the condition".to_owned() });
    }
    if d.op.at != at {
        related
            .push(Related { place: place(project, d.op.at, None), text: format!("{call} is called here") });
    }
    if let Some(origin) = d.decision.taint.origin()
        && origin != d.decision.test
    {
        let text = if d.is_local { "each process finds this for itself" } else { "this depends on the rank" };
        related.push(Related { place: place(project, origin, None), text: text.to_owned() });
    }
    LintFinding {
        rule: rule.id,
        severity: rule.severity,
        confidence: confidence(d).max(own_group(project, d)).min(if rule.severity == Severity::Error {
            Confidence::High
        } else {
            Confidence::Medium
        }),
        place: place(project, at, Some(d.decision.func)),
        title: title(d, &call, &condition.text),
        why,
        related,
        help: help(d, &call),
        page: d.op.row.map_or("https://docs.pytorch.org/docs/stable/distributed.html", |row| row.of.page),
        fix: None,
    }
}

/// Calls on the usual path of all functions that were tried, each once.
pub(crate) fn calls<'a>(
    scan: &'a Scan<'_, '_>,
    is_mine: impl Fn(&SeenCall) -> bool + 'a,
) -> impl Iterator<Item = (FuncId, &'a SeenCall)> {
    scan.tried
        .iter()
        .flat_map(|(func, tried)| tried.seen.iter().map(|seen| (*func, seen)))
        .filter(move |(_, seen)| is_mine(seen))
}

/// A finding about one call.
pub(crate) fn finding(
    scan: &Scan<'_, '_>,
    rule: &LintRule,
    func: FuncId,
    at: Origin,
    title: String,
) -> LintFinding {
    LintFinding {
        rule: rule.id,
        severity: rule.severity,
        confidence: rule.confidence,
        place: place(scan.project, at, Some(func)),
        title,
        why: Vec::new(),
        related: Vec::new(),
        help: String::new(),
        page: "",
        fix: None,
    }
}

/// Source text of a call, without its arguments.
fn call_text(project: &Project<'_>, at: Origin) -> String {
    let text = project.files[at.file].slice(at.span);
    // What a framework calls once a step has returned its loss.
    if text.starts_with("return ") {
        return "the backward pass".to_owned();
    }
    let head = match text.split('(').next().unwrap_or_default().trim() {
        // `(a / b).backward()`
        "" => text.rsplit_once(").").map_or(text, |(_, method)| method.split('(').next().unwrap_or_default()),
        head => head,
    };
    quote(head)
}

fn sequence(calls: &[&str]) -> String {
    if calls.is_empty() {
        return "none".to_owned();
    }
    let mut text = calls.iter().take(MAX_CALLS).copied().collect::<Vec<_>>().join(", ");
    if calls.len() > MAX_CALLS {
        text.push_str(", ...");
    }
    text
}

fn title(d: &Divergence, call: &str, condition: &str) -> String {
    let what = match d.decision.taint.local {
        Some(Locally::Data | Locally::Part) => "the process's own data",
        Some(Locally::Model) => "which parameters of the model the process holds",
        Some(Locally::File) => "the file system that each process sees",
        Some(Locally::Time) => "each process's clock",
        Some(Locally::Random) => "random numbers that the processes do not share",
        Some(Locally::Order) => "an order that differs between processes",
        Some(Locally::Loader | Locally::End) => "how many batches the process has",
        Some(Locally::Exception) => "an exception on one process",
        Some(Locally::Signal) => "a signal to one process",
        None => "the rank",
    };
    let what = if d.is_local { what } else { "the rank" };
    match d.parting {
        Parting::Branch if d.decision.kind == Decider::For || d.decision.kind == Decider::While => {
            format!("how often {call} is called depends on {what}")
        }
        Parting::Branch => {
            format!("{call} is called only where `{condition}` holds or fails: that depends on {what}")
        }
        Parting::Exit(exit, _) => {
            let word = if exit == FlowExit::Raise { "raise" } else { exit.word() };
            format!("{word} under `{condition}` skips {call}: that depends on {what}")
        }
        Parting::Decorator => {
            format!("{call} is called in a function that `@{condition}` keeps from the other ranks")
        }
        Parting::Order => format!("the order of {call} and other collectives depends on {what}"),
        Parting::Handler if d.is_local => {
            format!("a process that gets an exception here does not call {call}")
        }
        Parting::Handler => format!("{call} is called between the two halves of `{condition}`"),
        Parting::Loop => format!("how often {call} is called depends on {what}"),
    }
}

fn help(d: &Divergence, call: &str) -> String {
    match d.parting {
        Parting::Branch if !d.is_local => {
            format!("call {call} on all ranks and keep only the work (printing, writing) under the condition")
        }
        Parting::Exit(..) if !d.is_local => {
            format!("let all ranks reach {call}: leave after it, or guard the work instead of leaving")
        }
        Parting::Decorator => format!("call {call} outside of the decorated function, on all ranks"),
        Parting::Order => "make the calls in one order on all ranks".to_owned(),
        Parting::Handler if d.is_local => {
            format!("let all ranks agree on the failure (all_reduce of a flag) before any goes on to {call}")
        }
        Parting::Handler => format!("call {call} after the block, on all ranks"),
        Parting::Loop if d.decision.taint.local == Some(Locally::Loader) => {
            "agree on the number of batches (all_reduce MIN, drop_last, a fixed number of steps), or use join()".to_owned()
        }
        _ => format!(
            "let all ranks decide alike: all_reduce or broadcast the condition, or call {call} with an empty contribution"
        ),
    }
}

/// How certain it is that each rank makes the groups alone to which it belongs: `if rank in ranks: new_group(ranks)`. Whatever
/// the lists hold, who is in none of them, or in another one, does not call.
fn own_group(project: &Project<'_>, d: &Divergence) -> Confidence {
    let is_made =
        d.op.row.is_some_and(|row| row.call.name == "new_group") && d.decision.arm.file == d.op.at.file;
    let by_rank = d.decision.taint.axes & PLACE != 0 && d.decision.kind == Decider::If;
    let (test, call) = (
        project.files[d.decision.test.file].slice(d.decision.test.span),
        project.files[d.op.at.file].slice(d.op.at.span),
    );
    let list = test.split_once(" in ").map(|(_, list)| list.trim());
    let args = call.split_once('(').map_or("", |(_, args)| args.trim_start());
    let args = args.strip_prefix("ranks=").unwrap_or(args);
    let is_same = list.is_some_and(|list| {
        args.strip_prefix(list).is_some_and(|rest| rest.trim_start().starts_with([',', ')']))
    });
    if is_made && by_rank && is_same && !test.contains(" not in ") && d.decision.arm.span.holds(d.op.at.span)
    {
        Confidence::Medium
    } else {
        Confidence::Low
    }
}

/// Confidence that processes diverge there.
fn confidence(d: &Divergence) -> Confidence {
    let op = &d.op;
    // A group that nobody knows may be just the ranks that the condition names.
    if d.is_local
        || !d.decision.is_known
        || !d.is_near
        || matches!(d.parting, Parting::Exit(FlowExit::Raise, _))
        // What a decorated function reaches in other files depends on the class of its object.
        || (d.parting == Parting::Decorator && op.at.file != d.decision.at.file)
        || matches!(op.group, GroupValue::Some(_))
        || op.is_maybe
    {
        return Confidence::Low;
    }
    // Which ranks a helper of unknown inside talks to, and whether a group is made lazily, nobody knows.
    let is_far = d.op.at != d.op.from;
    let is_helper = op.is_guess && d.decision.taint.axes & PLACE == 0;
    let is_lazy = is_far && op.row.is_some_and(|row| row.call.name == "new_group");
    // Neither is it known elsewhere which ranks hold the model that a backward pass reduces.
    let is_backward = is_far && op.row.is_none() && op.name == "backward" && op.at.file != d.decision.at.file;
    if is_helper || is_lazy || is_backward {
        return Confidence::Low;
    }
    let is_plain = d.decision.is_known
        && d.decision.taint.axes & PLACE != 0
        && op.group == GroupValue::World
        && !op.is_sharded()
        && !op.is_guess
        && d.is_usual
        && d.op
            .row
            .is_some_and(|row| !matches!(row.of.who, ringleader_knowledge::collective::Callers::Model));
    if is_plain { Confidence::High } else { Confidence::Medium }
}
