//! # What it shows
//!
//! The process that was to serve the rendezvous could not open its port. Everybody else then waits for it or joins
//! a stranger.
//!
//! # Why it happens
//!
//! Two jobs with the same fixed port on one host, an old process that still lives, a second process with rank 0.
//!
//! # Evidence
//!
//! `EADDRINUSE` or `Address already in use` about a server socket. The server of torch's store is rank 0, or
//! torchrun's agent. `ss -ltnp` of that host names the process that holds the port.
//!
//! # What looks like it but is not
//!
//! `Connection refused` is the opposite: nothing listens. The RAS service of a second job on the host says it too and
//! is harmless. A listener on the same port of another host, or on another port. A port that is free when `ss` runs:
//! the process that held it has ended since.
//!
//! # What to do
//!
//! Let the launcher choose a free port, or end the process that holds it.
//!
//! # References
//!
//! pytorch/pytorch torch/csrc/distributed/c10d/TCPStore.cpp, torch/distributed/rendezvous.py; Linux errno 98.

use ringleader_knowledge::wording;
use ringleader_model::{
    Cause, Cite, Culprit, Evidence, Impact, Pid, SourceKind, StoreEvent, TorchEvent, Who,
};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::said::messages::{Claim, Voice};
use ringleader_correlate::who::culprits::{add_culprit, who};
use ringleader_correlate::who::tools::{CITED_CHARS, shown};

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "port-in-use",
    title: "the rendezvous port is taken",
    since: "0.1",
    doc: include_str!("port_in_use.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = ClaimsOfCause::of(scene, Cause::PortInUse) else { return Outcome::Clear };
    let mut culprits: Vec<Culprit> = told.culprits();
    if culprits.is_empty() && told.claims().iter().any(|c| serves_as_rank_0(c)) {
        let place = told.claims().iter().find_map(|c| c.place().cloned());
        add_culprit(&mut culprits, Culprit { place, ..scene.culprit(&Who::rank(0)) });
    }
    let port = told.claims().iter().find_map(|c| port(c));
    let named = port.map_or("the rendezvous port".to_owned(), |p| format!("port {p}"));
    let server = if culprits.is_empty() { "the server".to_owned() } else { who(&culprits) };
    let held = port.and_then(|p| holder(scene, p, &culprits));
    let taker = held
        .as_ref()
        .and_then(|h| h.name.as_ref())
        .map_or_else(|| "another process".to_owned(), |(name, pid)| format!("{name} (pid {})", pid.0));
    let title = format!("{server} could not open {named}: it is taken by {taker}");
    let held_by = match port {
        Some(port) => format!("ss -ltnp 'sport = :{port}'"),
        None => "ss -ltnp".to_owned(),
    };
    let draft = told
        .draft_naming(&RULE, Cause::PortInUse, title, culprits)
        .evidence(held.iter().flat_map(|h| h.evidence.iter().cloned()));
    // Ending a process that was looked at is better advice than moving out of its way.
    let draft = match held.as_ref().and_then(|h| h.name.as_ref()) {
        Some((name, pid)) => draft.advise_made(
            Impact::Harmless,
            format!("check what that {name} is: an old run, another job, or this job's own second rank 0"),
            Some(format!("ps -o pid,ppid,user,lstart,args -p {}", pid.0)),
        ),
        None => draft,
    };
    let draft = draft
        .advise_made(Impact::Harmless, "on the host of rank 0, see which process holds the port", Some(held_by))
        .advise_command(
            Impact::Harmless,
            "start the job with a free port: another --master-port, --rdzv-endpoint=HOST:0, or on one node let torchrun choose",
            "torchrun --standalone …",
        )
        .advise(
            Impact::Harmless,
            "if it is this job's own process, two processes were started with rank 0: check the node ranks",
        );
    found(draft)
}

/// The process that holds the port on the server's host.
struct Holder {
    name: Option<(String, Pid)>,
    evidence: Vec<Evidence>,
}

fn holder(scene: &Scene<'_>, port: u16, servers: &[Culprit]) -> Option<Holder> {
    let here = |o: &ringleader_model::Observation| {
        let host = scene.host_of(o);
        servers.iter().all(|c| scene.may_be_on(host.as_ref(), c.host.as_ref()))
    };
    let mut listeners: Vec<_> = scene.listeners(port).filter(|(o, ..)| here(o)).collect();
    // IPv4 and IPv6 stand on a line each; one that names its process says more.
    listeners.sort_by_key(|(o, _, by)| (by.is_none(), o.cite));
    let (observation, _, by) = *listeners.first()?;
    // Two hosts that both listen there, and nothing that shows which one is meant.
    if listeners.iter().any(|(o, ..)| scene.host_of(o) != scene.host_of(observation)) {
        return None;
    }
    let mut evidence = vec![shown(observation, None, SourceKind::Network, "")];
    if let Some((_, pid)) = by {
        // The list of processes says what it runs.
        let row = scene.process_tables().find_map(|(o, table)| {
            let host = scene.host_of(o);
            let row = table.rows.iter().find(|r| r.pid == Some(pid))?;
            scene.may_be_on(scene.host_of(observation).as_ref(), host.as_ref()).then_some((o, row))
        });
        evidence.extend(row.map(|(o, row)| Evidence {
            cite: Cite { line: row.line, ..o.cite },
            text: format!("pid {}: {}", pid.0, row.command.chars().take(CITED_CHARS).collect::<String>()),
            kind: SourceKind::Processes,
        }));
    }
    Some(Holder { name: by.map(|(name, pid)| (name.to_owned(), pid)), evidence })
}

/// The exception was raised where a worker makes its store: only the process with rank 0 serves one.
fn serves_as_rank_0(claim: &Claim<'_>) -> bool {
    let Voice::Exception(exception) = claim.voice else { return false };
    let worker =
        |name: &str| matches!(name, "_create_c10d_store" | "_env_rendezvous_handler" | "init_process_group");
    exception.frames.iter().any(|f| worker(&f.function))
        && !exception.frames.iter().any(|f| f.file.contains("distributed/elastic/"))
}

fn port(claim: &Claim<'_>) -> Option<u16> {
    if let Voice::Torch(TorchEvent::Store(StoreEvent::AddressInUse { port: Some(port) })) = claim.voice {
        return Some(*port);
    }
    wording::taken_port(&claim.text)
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const TEXT: &str = "The server socket has failed to listen on any local network address. port: 29508, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use";

    #[test]
    fn a_worker_that_makes_the_store_is_rank_0() {
        let stage = StagedCase::new().raised(
            None,
            "torch.distributed.DistNetworkError",
            TEXT,
            &[
                ("/v/site-packages/torch/distributed/rendezvous.py", 199, "_create_c10d_store"),
                ("/srv/job.py", 224, "main"),
            ],
        );
        stage.expect(&RULE, &["port-in-use 0"]);
        assert!(stage.finding(&RULE).title.contains("port 29508"));
    }

    #[test]
    fn without_a_traceback_nobody_is_named() {
        StagedCase::new()
            .store(
                None,
                super::StoreEvent::AddressInUse { port: Some(29500) },
                "errno: 98 - Address already in use",
            )
            .expect(&RULE, &["port-in-use"]);
    }

    #[test]
    fn ss_names_who_holds_it() {
        use ringleader_model::{NetFact, Pid};
        let listens = |local: &str| NetFact::Listener {
            local: local.into(),
            holder: Some(("python3".into(), Pid(4242))),
        };
        let failed = || {
            let taken = super::StoreEvent::AddressInUse { port: Some(29500) };
            StagedCase::new().process("node0", 100, Some(0)).store(
                Some(0),
                taken,
                "errno: 98 - Address already in use",
            )
        };
        let finding = failed().net("node0", listens("*:29500")).finding(&RULE);
        assert!(finding.title.ends_with("it is taken by python3 (pid 4242)"), "{}", finding.title);
        assert_eq!(finding.evidence.len(), 2);
        assert!(finding.actions.iter().any(|a| a.command.as_deref().is_some_and(|c| c.ends_with("-p 4242"))));
        // Another port, another host.
        for (host, local) in [("node0", "*:29501"), ("node1", "0.0.0.0:29500")] {
            let finding = failed().net(host, listens(local)).finding(&RULE);
            assert!(finding.title.ends_with("by another process"), "{}", finding.title);
            assert_eq!(finding.evidence.len(), 1);
        }
    }

    #[test]
    fn nobody_listens_is_the_opposite() {
        let refused = super::StoreEvent::ConnectFailed {
            address: "[host]:29500".into(),
            errno: Some(111),
            text:
                "The client socket has failed to connect to [host]:29500 (errno: 111 - Connection refused)."
                    .into(),
        };
        StagedCase::new().store(Some(1), refused, "").silent(&RULE);
    }
}
