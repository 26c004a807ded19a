//! # What it checks
//!
//! Environment of the ranks: variables that must agree do, variables that must differ do, and values mean what they
//! say.
//!
//! # What fails
//!
//! Different values of a variable that all ranks must agree on; two ranks with the same GPU, or one rank twice. It
//! warns if misread values, names that nothing reads, or settings that cancel each other do harm.
//!
//! # What to do
//!
//! Set the variable for all ranks or for none; `ringleader explain NAME` shows how a variable is read.
//!
//! # References
//!
//! Data of ringleader-knowledge (variables, traps, conflicts), each row with its source.

use std::collections::{BTreeMap, BTreeSet};

use ringleader_knowledge::conflict;
use ringleader_knowledge::variable::{self, Agreement, Status, misread};
use ringleader_knowledge::version::NcclVersion;
use ringleader_model::plain_word;
use ringleader_node::Process;

use crate::answer::{CheckAnswer, CheckState, Impact, Item, ValueKind};
use crate::jobs::{by_meeting, name};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "job-environment",
    title: "environment of the ranks",
    area: Area::Job,
    reads: &[Probe::Jobs, Probe::Libraries],
    drains: false,
    is_quick: false,
    since: "0.2",
    doc: include_str!("job_environment.rs"),
    run,
};

/// Variables of the launcher that its ranks must agree on.
const OF_LAUNCHER: &[&str] = &["WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"];
/// Largest number of remarks for one node.
const MAX_REMARKS: usize = 40;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let jobs = match view.node.jobs.seen() {
        Ok(jobs) => jobs,
        Err(missing) => return missing.into(),
    };
    let (mut items, mut linted) = (Vec::new(), Vec::new());
    let mut n_ranks = 0;
    let mut settings: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for ranks in by_meeting(jobs) {
        let ranks: Vec<&Process> = ranks.into_iter().filter(|rank| rank.environment.is_some()).collect();
        n_ranks += ranks.len();
        agreement(&ranks, &mut items);
        doubles(&ranks, &mut items);
        linted.extend(lint(view, &ranks, &mut items));
        for (key, value) in ranks.iter().filter_map(|rank| rank.environment.as_ref()).flatten() {
            let must = variable::get(key).is_some_and(|known| known.agreement == Agreement::Must);
            if must {
                settings.entry(key).or_default().insert(value);
            }
        }
    }
    // Ranks of one launcher with different meeting points never meet.
    for job in crate::jobs::by_launcher(jobs)
        .iter()
        .filter(|job| job.launcher.and_then(crate::jobs::launcher) == Some("torchrun"))
    {
        for key in OF_LAUNCHER {
            differs(&job.ranks, key, CheckState::Fail, &mut items);
        }
    }
    if n_ranks == 0 {
        return CheckAnswer::skipped("no rank runs here whose environment can be read");
    }
    // Harmful settings first; names without a row cannot be explained.
    linted.sort_by_key(|(verdict, _)| std::cmp::Reverse(*verdict));
    let odd =
        linted.iter().find(|(_, key)| variable::get(key).is_some() || variable::get_unread(key).is_some());
    let mut answer = CheckAnswer::from_items(format!("{n_ranks} ranks agree"), items);
    if let Some(name) = odd.and_then(|(_, name)| plain_word(name)) {
        let text = "check how the variable is read";
        answer = answer.advise(Impact::Harmless, text, Some(format!("ringleader explain {name}")));
    }
    answer =
        answer.advise(Impact::Disruptive, "restart the job with the same environment on all ranks", None);
    for (key, values) in settings {
        let all: Vec<&str> = values.into_iter().collect();
        answer = answer.value(format!("environment.{key}"), all.join(" | "), ValueKind::Same);
    }
    answer
}

fn agreement(ranks: &[&Process], items: &mut Vec<Item>) {
    let names: BTreeSet<&str> = ranks
        .iter()
        .filter_map(|r| r.environment.as_ref())
        .flat_map(|e| e.keys().map(String::as_str))
        .collect();
    for key in names {
        let verdict = match variable::get(key).map(|known| known.agreement) {
            Some(Agreement::Must) => CheckState::Fail,
            Some(Agreement::Should) => CheckState::Warn,
            _ => continue,
        };
        // OF_LAUNCHER is checked per launcher: here it defines the groups.
        if !OF_LAUNCHER.contains(&key) {
            differs(ranks, key, verdict, items);
        }
    }
}

fn differs(ranks: &[&Process], key: &str, verdict: CheckState, items: &mut Vec<Item>) {
    let mut by_value: BTreeMap<Option<&str>, Vec<&Process>> = BTreeMap::new();
    // A value removed for secrecy exists but is unknown.
    for rank in ranks.iter().filter(|rank| !rank.cut_variables.iter().any(|cut| cut == key)) {
        by_value.entry(rank.variable(key).map(str::trim)).or_default().push(rank);
    }
    if by_value.len() < 2 {
        return;
    }
    let most = by_value.values().map(Vec::len).max().unwrap_or(0);
    let odd: Vec<String> =
        by_value.values().filter(|who| who.len() < most).flatten().map(|rank| name(rank)).collect();
    let values: Vec<&str> = by_value.keys().map(|value| value.unwrap_or("not set")).collect();
    let evidence: Vec<String> = by_value
        .iter()
        .filter_map(|(value, who)| {
            Some(format!("/proc/{}/environ: {key} {}", who.first()?.pid, value.unwrap_or("not set")))
        })
        .collect();
    items.push(Item {
        subject: match odd.as_slice() {
            [] => key.to_owned(),
            [first, .., last] if odd.len() > 3 => format!("{first} … {last}"),
            odd => odd.join(", "),
        },
        verdict,
        text: format!("ranks differ in {key}: {}", values.join(" | ")),
        evidence: evidence.join("; "),
    });
}

/// Two processes for one rank, and two ranks for one GPU.
fn doubles(ranks: &[&Process], items: &mut Vec<Item>) {
    for (at, rank) in ranks.iter().enumerate() {
        for other in ranks.iter().skip(at + 1) {
            if rank.rank() == other.rank() {
                items.push(Item {
                    subject: format!("{}, {}", name(rank), name(other)),
                    verdict: CheckState::Fail,
                    text: format!("two processes have one rank of one job{}", older(rank, other)),
                    evidence: format!("/proc/{}/environ, /proc/{}/environ", rank.pid, other.pid),
                });
                continue;
            }
            let device = |p: &Process| one_device(p).map(str::to_owned);
            if let Some(gpu) = device(rank).filter(|gpu| device(other).as_deref() == Some(gpu)) {
                items.push(Item {
                    subject: format!("{}, {}", name(rank), name(other)),
                    verdict: CheckState::Fail,
                    text: format!("both see GPU {gpu} alone: NCCL refuses two ranks on one GPU"),
                    evidence: format!("CUDA_VISIBLE_DEVICES={gpu} in both"),
                });
            }
        }
        let devices = rank
            .variable("CUDA_VISIBLE_DEVICES")
            .map(|list| list.split(',').filter(|d| !d.trim().is_empty()).count());
        if let (Some(n), Some(local)) = (devices, rank.local_rank())
            && n > 1
            && local as usize >= n
        {
            items.push(Item {
                subject: name(rank),
                verdict: CheckState::Warn,
                text: format!("sees {n} GPUs, but its local rank {local} needs one more"),
                evidence: format!(
                    "CUDA_VISIBLE_DEVICES={}",
                    rank.variable("CUDA_VISIBLE_DEVICES").unwrap_or_default()
                ),
            });
        }
    }
}

/// Which of two was there first: it may be left over from an earlier run.
fn older(one: &Process, other: &Process) -> String {
    let (old, new) = if one.started_ns <= other.started_ns { (one, other) } else { (other, one) };
    let seconds = (new.started_ns - old.started_ns) / 1_000_000_000;
    if seconds == 0 { String::new() } else { format!(": pid {} is {seconds} s older", old.pid) }
}

fn one_device(rank: &Process) -> Option<&str> {
    let mut devices =
        rank.variable("CUDA_VISIBLE_DEVICES")?.split(',').map(str::trim).filter(|d| !d.is_empty());
    let first = devices.next()?;
    devices.next().is_none().then_some(first)
}

/// What is wrong with a setting by itself, once for all ranks that have it; and the names of those settings.
fn lint<'a>(view: &NodeView<'_>, ranks: &[&'a Process], items: &mut Vec<Item>) -> Vec<(CheckState, &'a str)> {
    let mut remarks: BTreeMap<String, (CheckState, Vec<&Process>, &'a str)> = BTreeMap::new();
    for rank in ranks {
        let Some(environment) = &rank.environment else { continue };
        let version = view.node.libraries.get().and_then(|libraries| {
            let (_, version) =
                libraries.get(&rank.pid)?.iter().find(|(name, _)| name.starts_with("libnccl.so"))?;
            NcclVersion::parse(version)
        });
        let mut note = |text: String, hurts: bool, key: &'a str| {
            let verdict = if hurts { CheckState::Warn } else { CheckState::Ok };
            remarks.entry(text).or_insert_with(|| (verdict, Vec::new(), key)).1.push(rank);
        };
        for (key, value) in environment {
            if let Some((text, hurts)) = by_itself(key, value, version) {
                note(text, hurts, key);
            }
        }
        let today = |name: &str| {
            let known = variable::get(name);
            environment.get(name).or_else(|| known?.aliases.iter().find_map(|alias| environment.get(*alias)))
        };
        for (row, names) in conflict::found(|name| today(name).map(String::as_str)) {
            let set: Vec<String> =
                names.iter().filter_map(|name| Some(format!("{name}={}", today(name)?))).collect();
            let first = names.iter().find_map(|name| environment.get_key_value(*name));
            let first = first.map_or("", |(name, _)| name);
            note(format!("{}: {}", set.join(" with "), row.means), row.hurts, first);
        }
    }
    let mut linted = Vec::new();
    for (text, (verdict, who, key)) in remarks.into_iter().take(MAX_REMARKS) {
        linted.push((verdict, key));
        let subject = if who.len() == ranks.len() {
            "all ranks".to_owned()
        } else {
            who.iter().take(3).map(|rank| name(rank)).collect::<Vec<_>>().join(", ")
        };
        let pid = who.first().map_or(0, |rank| rank.pid);
        items.push(Item { subject, verdict, text, evidence: format!("lint of /proc/{pid}/environ") });
    }
    linted
}

fn by_itself(key: &str, value: &str, version: Option<NcclVersion>) -> Option<(String, bool)> {
    if let Some(unread) = variable::get_unread(key) {
        return Some((format!("nothing reads {key}; use instead: {}", unread.meant), true));
    }
    let Some(known) = variable::get(key) else {
        let is_foreign = variable::is_of_plugin(key)
            || variable::is_label(key)
            || version.is_some_and(|version| version > variable::newest());
        let is_ours = key.starts_with("NCCL_") || key.starts_with("TORCH_NCCL_");
        let text = || format!("no NCCL up to {} and no PyTorch is known to read {key}", variable::newest());
        return (is_ours && !is_foreign).then(|| (text(), false));
    };
    if known.reader == "NCCL" && variable::is_read_by(known.name, version) == Some(false) {
        let version = version.map(|version| version.to_string()).unwrap_or_default();
        return Some((format!("NCCL {version} does not read {key}"), false));
    }
    if known.status == Status::Removed && version.is_none() {
        return Some((format!("no current release reads {key}"), false));
    }
    let misread = misread(known, value, version)?;
    Some((format!("{key}={value}: {}; {}", misread.what, misread.trap.instead), true))
}

#[cfg(test)]
mod tests {
    use ringleader_node::Process;

    use super::CHECK;
    use crate::answer::CheckState;
    use crate::staging_jobs::{NodeStage, process};

    fn set(rank: &mut Process, key: &str, value: &str) {
        rank.environment.as_mut().unwrap().insert(key.to_owned(), value.to_owned());
    }

    /// `value` on rank `which`, `usual` on the others; an empty value means unset.
    fn differing(key: &'static str, which: u32, value: &'static str, usual: &'static str) -> NodeStage {
        NodeStage::job(move |n, rank| {
            let value = if n == which { value } else { usual };
            if !value.is_empty() {
                set(rank, key, value);
            }
        })
    }

    #[test]
    fn what_must_agree() {
        differing("NCCL_ALGO", 2, "Tree", "Ring").expect(&CHECK, CheckState::Fail, &["pid 82 (rank 2)"]);
        differing("NCCL_ALGO", 1, "Ring", "").expect(&CHECK, CheckState::Fail, &["pid 81 (rank 1)"]);
        differing("WORLD_SIZE", 3, "8", "4").expect(&CHECK, CheckState::Fail, &["pid 83 (rank 3)"]);
        differing("MASTER_PORT", 3, "1234", "29500").expect(&CHECK, CheckState::Fail, &["pid 83 (rank 3)"]);
    }

    #[test]
    fn what_may_differ() {
        NodeStage::job(|_, _| {}).expect(&CHECK, CheckState::Ok, &[]);
        differing("NCCL_DEBUG_FILE", 2, "/tmp/a", "/tmp/b").expect(&CHECK, CheckState::Ok, &[]);
        differing("NCCL_ALGO", 9, "", "Ring").expect(&CHECK, CheckState::Ok, &[]);
        // A value removed for secrecy is not absent.
        let cut = NodeStage::job(|n, rank| match n {
            1 => rank.cut_variables.push("NCCL_ALGO".to_owned()),
            _ => set(rank, "NCCL_ALGO", "Ring"),
        });
        cut.expect(&CHECK, CheckState::Ok, &[]);
        // Another job with other settings on the same node.
        let other = [
            ("RANK", "0"),
            ("LOCAL_RANK", "0"),
            ("MASTER_PORT", "1"),
            ("NCCL_ALGO", "Tree"),
            ("WORLD_SIZE", "1"),
        ];
        let stage = differing("NCCL_ALGO", 9, "", "Ring");
        let stage =
            stage.process(process(400, 1, "torchrun", &[])).process(process(401, 400, "python3", &other));
        stage.expect(&CHECK, CheckState::Ok, &[]);
    }

    #[test]
    fn one_gpu_or_one_rank_for_two() {
        let devices = |n: u32| ["0", "1", "1", "3"][n as usize];
        let same = NodeStage::job(move |n, rank| set(rank, "CUDA_VISIBLE_DEVICES", devices(n)));
        same.expect(&CHECK, CheckState::Fail, &["pid 81 (rank 1), pid 82 (rank 2)"]);
        NodeStage::job(|n, rank| set(rank, "CUDA_VISIBLE_DEVICES", &n.to_string())).expect(
            &CHECK,
            CheckState::Ok,
            &[],
        );
        NodeStage::job(|_, rank| set(rank, "CUDA_VISIBLE_DEVICES", "0,1,2,3")).expect(
            &CHECK,
            CheckState::Ok,
            &[],
        );
        NodeStage::job(|_, rank| set(rank, "CUDA_VISIBLE_DEVICES", "0,1,2")).expect(
            &CHECK,
            CheckState::Warn,
            &["pid 83 (rank 3)"],
        );
        let twice = NodeStage::job(|n, rank| {
            if n == 3 {
                set(rank, "RANK", "0");
            }
        });
        twice.expect(&CHECK, CheckState::Fail, &["pid 80 (rank 0), pid 83 (rank 0)"]);
        let twice = NodeStage::job(|n, rank| {
            set(rank, "RANK", if n == 3 { "0" } else { ["0", "1", "2"][n as usize] });
            rank.started_ns += if n == 3 { 0 } else { 90_000_000_000 };
        });
        assert!(twice.answer(&CHECK).summary.ends_with("pid 83 is 90 s older"), "{:?}", twice.answer(&CHECK));
    }

    #[test]
    fn values_that_say_something_else() {
        let stage = NodeStage::job(|_, rank| set(rank, "NCCL_IB_DISABLE", "true"));
        stage.expect(&CHECK, CheckState::Warn, &["all ranks"]);
        assert_eq!(
            stage.answer(&CHECK).fixes[0].command.as_deref(),
            Some("ringleader explain NCCL_IB_DISABLE")
        );
        // A name unknown to all releases may belong to a newer one.
        NodeStage::job(|_, rank| set(rank, "NCCL_NO_SUCH_THING", "1")).expect(&CHECK, CheckState::Ok, &[]);
    }

    #[test]
    fn nothing_to_judge() {
        NodeStage::new().expect(&CHECK, CheckState::Skipped, &[]);
        NodeStage::new().with(|node| node.jobs = ringleader_node::Part::default()).expect(
            &CHECK,
            CheckState::Skipped,
            &[],
        );
    }
}
