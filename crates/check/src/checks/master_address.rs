//! # What it checks
//!
//! Whether MASTER_ADDR of this node's ranks resolves to an address that all nodes can mean, and what the kernel shows of
//! MASTER_PORT: who listens if it is this node, which rank is connected or waits for an answer. The port itself is not
//! tried: it is the job's.
//!
//! # What fails
//!
//! A name that does not resolve, or not in time. Loopback in a job of several nodes (Debian gives the host's own name
//! 127.0.1.1); on the master's own node that only warns: the store listens on all addresses, gloo does not. A rank that
//! connects and gets no answer, or has no route. A port where nothing listens a minute after the ranks started. A port
//! held by a process outside the job, or left over from an earlier run.
//!
//! # What to do
//!
//! Give an address that other nodes reach; free the port, or choose another one.
//!
//! # References
//!
//! PyTorch, torchrun and TCPStore; Debian Reference, the hostname resolution (127.0.1.1).

use std::net::IpAddr;

use ringleader_model::plain_word;
use ringleader_node::{Listener, PortSeen, Process, Reach, ReachFailure};

use crate::answer::{CheckAnswer, CheckState, Impact, Item};
use crate::rule::{Area, Check, Probe};
use crate::view::NodeView;
use crate::wiring;

/// See the module.
pub(super) static CHECK: Check = Check {
    id: "master-address",
    title: "the master resolves, answers and belongs to the job",
    area: Area::Network,
    reads: &[Probe::Reach, Probe::Network, Probe::Jobs],
    drains: false,
    // A peer that is silent takes its time.
    is_quick: false,
    since: "0.2",
    doc: include_str!("master_address.rs"),
    run,
};

/// A rank has loaded its libraries and called init_process_group by then.
const START_NS: i64 = 60_000_000_000;
/// torchrun's default.
const DEFAULT_PORT: u16 = 29_500;

fn run(view: &NodeView<'_>) -> CheckAnswer {
    let masters: Vec<&Reach> = view
        .node
        .reach
        .get()
        .into_iter()
        .flatten()
        .filter(|reach| reach.purpose == "master-address" && reach.interface.is_none())
        .collect();
    if masters.is_empty() {
        return without_master(view);
    }
    let mut items = Vec::new();
    let mut n_tried = 0;
    for master in &masters {
        n_tried += u32::from(master.failure_kind != Some(ReachFailure::NotTried));
        items.extend(judge(view, master));
    }
    if n_tried == 0 {
        let why = masters[0].failure.clone().unwrap_or_default();
        return CheckAnswer::skipped(format!("{}: {why}", masters[0].target));
    }
    let well: Vec<String> = masters
        .iter()
        .map(|master| {
            let address = master.addresses.first().map(String::as_str).unwrap_or_default();
            let seen = match (master.answered_ms, master.seen) {
                (Some(ms), _) => format!(", answered in {ms:.1} ms"),
                (_, Some(PortSeen::Listening)) => ", a process listens".to_owned(),
                (_, Some(PortSeen::Connected)) => ", a rank is connected".to_owned(),
                _ => String::new(),
            };
            format!("{} is {address}{seen}", master.target)
        })
        .collect();
    let port = masters.iter().find_map(|master| master.port).unwrap_or(DEFAULT_PORT);
    // Any user's process names a master; text that a shell would interpret is not printed as a command.
    let look =
        plain_word(&masters[0].host).map(|host| format!("getent ahosts {host}; ss -ltnp 'sport = :{port}'"));
    CheckAnswer::from_items(well.join("; "), items)
        .advise(Impact::Harmless, "check what the name resolves to on each node, and who listens", look)
        .advise(
            Impact::Disruptive,
            "start the job with an address of the master that the other nodes reach, and a port that is free",
            Some("torchrun --master-addr <address> --master-port <port> …".to_owned()),
        )
}

/// No rank names a master: only torchrun's default port can be checked.
fn without_master(view: &NodeView<'_>) -> CheckAnswer {
    let why = match view.node.reach.seen() {
        Ok(_) => "no rank here names a master".to_owned(),
        Err(missing) if missing.is_trouble => return missing.into(),
        Err(missing) => missing.why,
    };
    let holder = view.node.net.get().and_then(|net| {
        let mut listeners = net.listeners.iter().filter(|listener| listener.port == DEFAULT_PORT);
        listeners.find(|listener| !listener.pid.is_some_and(|pid| is_of_any_job(view, pid)))
    });
    let Some(holder) = holder else { return CheckAnswer::skipped(why) };
    let item = Item {
        subject: format!("port {DEFAULT_PORT}"),
        verdict: CheckState::Warn,
        text: format!(
            "taken by {}, which no rank here has as its master: a job on torchrun's default port will not start",
            who(holder)
        ),
        evidence: evidence(holder),
    };
    CheckAnswer::from_items("", vec![item]).advise(
        Impact::Harmless,
        "check who listens, or choose another port",
        Some(format!("ss -ltnp 'sport = :{DEFAULT_PORT}'")),
    )
}

fn processes<'a>(view: &'a NodeView<'a>) -> &'a [Process] {
    view.node.jobs.get().map_or(&[], |jobs| jobs.processes.as_slice())
}

fn is_of_any_job(view: &NodeView<'_>, pid: u32) -> bool {
    processes(view).iter().any(|process| process.pid == pid)
}

fn who(listener: &Listener) -> String {
    match (listener.pid, &listener.command) {
        (Some(pid), Some(command)) => format!("pid {pid} ({command})"),
        (Some(pid), None) => format!("pid {pid}"),
        _ => "a process that is hidden from this user".to_owned(),
    }
}

fn evidence(listener: &Listener) -> String {
    format!("/proc/net/tcp: {}:{} is listened on by {}", listener.address, listener.port, who(listener))
}

fn judge(view: &NodeView<'_>, master: &Reach) -> Option<Item> {
    let ranks: Vec<&Process> =
        processes(view).iter().filter(|process| master.asked_by.contains(&process.pid)).collect();
    let is_multi = ranks.iter().any(|rank| wiring::spans_nodes(rank) == Some(true));
    let looked_up =
        if master.addresses.is_empty() { "no address".to_owned() } else { master.addresses.join(" ") };
    let asked =
        if ranks.is_empty() { String::new() } else { format!("; named by {}", wiring::named(&ranks)) };
    let item = |verdict, text: String| {
        Some(Item {
            subject: format!("MASTER_ADDR {}", master.target),
            verdict,
            text,
            evidence: format!("{} resolves to {looked_up}{asked}", master.host),
        })
    };
    if let Some(kind) = master.failure_kind {
        let why = master.failure.clone().unwrap_or_default();
        return match kind {
            ReachFailure::NotTried => item(CheckState::Ok, format!("not tried: {why}")),
            _ => item(CheckState::Fail, why),
        };
    }
    let is_loopback = !master.addresses.is_empty()
        && master.addresses.iter().all(|address| address.parse::<IpAddr>().is_ok_and(|a| a.is_loopback()));
    if is_multi && is_loopback {
        let text = format!("is {}, the loopback address: every node connects to itself", master.addresses[0]);
        let is_here = ranks.iter().any(|rank| rank.rank() == Some(0));
        return if is_here {
            item(CheckState::Warn, format!("{text}; torch's store works from here, gloo does not"))
        } else {
            item(CheckState::Fail, text)
        };
    }
    if let Some(port) = master.port {
        if master.is_refused {
            return nobody_listens(view, &ranks, port).and_then(|(verdict, text)| item(verdict, text));
        }
        if master.is_local {
            return taken(view, master, &ranks, port);
        }
    }
    None
}

/// The host answers but nothing listens.
fn nobody_listens(view: &NodeView<'_>, ranks: &[&Process], port: u16) -> Option<(CheckState, String)> {
    let youngest = ranks.iter().map(|rank| rank.started_ns).filter(|started| *started > 0).max()?;
    let age_ns = view.node.at_ns - youngest;
    let text =
        format!("nothing listens on port {port}, {} s after the ranks started", age_ns / 1_000_000_000);
    if age_ns >= START_NS {
        Some((CheckState::Fail, format!("{text}; rank 0 has not come up, or has ended")))
    } else {
        Some((CheckState::Ok, text))
    }
}

/// Somebody listens on this node: whether it is the job.
fn taken(view: &NodeView<'_>, master: &Reach, ranks: &[&Process], port: u16) -> Option<Item> {
    let net = view.node.net.get()?;
    let listener = net.listeners.iter().find(|listener| {
        let address: Option<IpAddr> = listener.address.parse().ok();
        listener.port == port
            && address.is_some_and(|a| a.is_unspecified() || master.addresses.contains(&a.to_string()))
    })?;
    let pid = listener.pid?;
    let item = |text: String| {
        let subject = format!("MASTER_ADDR {}", master.target);
        Some(Item { subject, verdict: CheckState::Fail, text, evidence: evidence(listener) })
    };
    let all = processes(view);
    let holder = all.iter().find(|process| process.pid == pid);
    // A rank, or what started the ranks: torchrun's agent keeps the store for them.
    let is_above = |rank: &&Process| {
        let parent = |pid: u32| all.iter().find(|process| process.pid == pid).map(|process| process.ppid);
        std::iter::successors(Some(rank.pid), |pid| parent(*pid)).take(32).any(|above| above == pid)
    };
    let is_named_alike = |process: &Process| {
        process.variable("MASTER_PORT").and_then(|own| own.trim().parse().ok()) == Some(port)
    };
    match holder {
        Some(process) if is_named_alike(process) => {
            let is_left = process.ppid == 1 && ranks.iter().any(|rank| rank.ppid != 1);
            let rank = process.rank().map_or_else(String::new, |rank| format!(", rank {rank}"));
            is_left.then(|| {
                item(format!(
                    "held by {}{rank}, left over from an earlier run: its parent is gone",
                    who(listener)
                ))
            })?
        }
        _ if ranks.iter().any(is_above) => None,
        _ if ranks.is_empty() => item(format!("taken by {}", who(listener))),
        _ => item(format!("taken by {}, which does not belong to the job", who(listener))),
    }
}

#[cfg(test)]
mod tests {
    use ringleader_node::{Node, Outcome, Part};

    use super::*;
    use crate::wiring::staging::{ask, interface, node, rank};

    const BEGAN: i64 = 900_000_000_000;

    /// Ranks 2 and 3 of four, started by 4700, and what came of their master.
    fn with(ranks: [u32; 2], change: impl FnOnce(&mut Reach)) -> Node {
        let ranks: Vec<Process> = ranks
            .map(|n| Process {
                started_ns: BEGAN,
                ..rank(n, &[("MASTER_ADDR", "head"), ("MASTER_PORT", "29500")])
            })
            .into();
        let mut reach = Reach {
            purpose: "master-address".to_owned(),
            target: "head:29500".to_owned(),
            host: "head".to_owned(),
            port: Some(29_500),
            asked_by: ranks.iter().map(|rank| rank.pid).collect(),
            addresses: vec!["10.0.0.1".to_owned()],
            answered_ms: Some(0.2),
            ..Reach::default()
        };
        change(&mut reach);
        let mut all = ranks;
        all.push(Process { pid: 4700, ppid: 1, command: "torchrun".to_owned(), ..Process::default() });
        let mut node = node(vec![], vec![interface(2, "eth0", "10.0.0.1/24")], all);
        node.reach = Part::of(vec![reach]);
        node
    }

    fn listen(node: &mut Node, pid: Option<u32>) {
        if let Outcome::Seen(net) = &mut node.net.outcome {
            let command = Some("python3".to_owned());
            net.listeners = vec![Listener { address: "0.0.0.0".to_owned(), port: 29_500, pid, command }];
        }
    }

    fn failing(reach: &mut Reach, why: &str, kind: ReachFailure) {
        reach.answered_ms = None;
        reach.failure = Some(why.to_owned());
        reach.failure_kind = Some(kind);
    }

    #[test]
    fn a_master_that_answers_is_well() {
        let answer = ask(&CHECK, &with([2, 3], |_| {}));
        assert_eq!(
            (answer.verdict, answer.summary.as_str()),
            (CheckState::Ok, "head:29500 is 10.0.0.1, answered in 0.2 ms")
        );
    }

    #[test]
    fn each_failure_is_told_in_its_own_words() {
        for (why, kind) in [
            ("the name does not resolve: Name or service not known", ReachFailure::Unresolved),
            ("the name service did not answer within 800 ms", ReachFailure::LookupTimedOut),
            ("no answer from 10.0.0.1 within 800 ms", ReachFailure::TimedOut),
            ("no way to 10.0.0.1: No route to host", ReachFailure::NoRoute),
        ] {
            let answer = ask(&CHECK, &with([2, 3], |reach| failing(reach, why, kind)));
            assert_eq!(answer.verdict, CheckState::Fail);
            assert!(answer.summary.contains(why), "{}", answer.summary);
        }
        let elsewhere = with([2, 3], |reach| failing(reach, "in a container", ReachFailure::NotTried));
        assert_eq!(ask(&CHECK, &elsewhere).verdict, CheckState::Skipped);
    }

    #[test]
    fn loopback_is_well_on_one_node_alone() {
        let looped = |ranks| {
            with(ranks, |reach| {
                reach.addresses = vec!["127.0.1.1".to_owned()];
                reach.is_local = true;
            })
        };
        let answer = ask(&CHECK, &looped([2, 3]));
        assert_eq!(answer.verdict, CheckState::Fail);
        assert!(answer.summary.contains("127.0.1.1"), "{}", answer.summary);
        assert_eq!(ask(&CHECK, &looped([0, 1])).verdict, CheckState::Warn, "where rank 0 runs");
        let mut alone = looped([0, 1]);
        if let Outcome::Seen(jobs) = &mut alone.jobs.outcome {
            for process in &mut jobs.processes {
                if let Some(variables) = &mut process.environment {
                    variables.insert("WORLD_SIZE".to_owned(), "2".to_owned());
                }
            }
        }
        assert_eq!(ask(&CHECK, &alone).verdict, CheckState::Ok);
    }

    #[test]
    fn a_refused_port_fails_once_the_ranks_have_waited() {
        let mut node = with([2, 3], |reach| reach.is_refused = true);
        let answer = ask(&CHECK, &node);
        assert_eq!(answer.verdict, CheckState::Fail);
        assert!(answer.summary.contains("100 s after"), "{}", answer.summary);
        node.at_ns = BEGAN + 5_000_000_000;
        assert_eq!(ask(&CHECK, &node).verdict, CheckState::Ok, "they still load their libraries");
    }

    #[test]
    fn a_port_held_by_a_stranger_or_an_orphan_fails_and_by_the_job_is_well() {
        let here = || with([0, 1], |reach| reach.is_local = true);
        for (pid, verdict) in [(4711, CheckState::Ok), (4700, CheckState::Ok), (77, CheckState::Fail)] {
            let mut node = here();
            listen(&mut node, Some(pid));
            let answer = ask(&CHECK, &node);
            assert_eq!(answer.verdict, verdict, "pid {pid}: {answer:?}");
            assert!(
                verdict == CheckState::Ok
                    || answer.summary.contains("pid 77 (python3), which does not belong to the job")
            );
        }
        let mut node = here();
        listen(&mut node, Some(3000));
        if let Outcome::Seen(jobs) = &mut node.jobs.outcome {
            let mut left = rank(0, &[("MASTER_ADDR", "head"), ("MASTER_PORT", "29500")]);
            (left.pid, left.ppid) = (3000, 1);
            jobs.processes.push(left);
        }
        let answer = ask(&CHECK, &node);
        assert_eq!(answer.verdict, CheckState::Fail);
        assert!(answer.summary.contains("earlier run"), "{}", answer.summary);
        // The listening process is hidden: none is blamed.
        let mut node = here();
        listen(&mut node, None);
        assert_eq!(ask(&CHECK, &node).verdict, CheckState::Ok);
    }

    #[test]
    fn without_a_job_only_the_port_of_torchrun_is_looked_at() {
        let mut idle = node(vec![], vec![interface(2, "eth0", "10.0.0.1/24")], vec![]);
        idle.reach = Part { outcome: Outcome::Absent("no peer was named".to_owned()), ..Part::default() };
        assert_eq!(ask(&CHECK, &idle).verdict, CheckState::Skipped);
        listen(&mut idle, Some(77));
        let answer = ask(&CHECK, &idle);
        assert_eq!(answer.verdict, CheckState::Warn);
        assert!(answer.summary.contains("pid 77 (python3)"), "{}", answer.summary);
        idle.reach = Part { outcome: Outcome::Failed("start it".to_owned()), ..Part::default() };
        assert_eq!(ask(&CHECK, &idle).verdict, CheckState::Skipped);
    }
}
