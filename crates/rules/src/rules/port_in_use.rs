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
//! torchrun's agent.
//!
//! # What looks like it but is not
//!
//! `Connection refused` is the opposite: nobody listens. The RAS service of a second job on the host says it too
//! and is harmless.
//!
//! # What to do
//!
//! Let the launcher choose a free port, or end the process that holds it.
//!
//! # References
//!
//! pytorch/pytorch torch/csrc/distributed/c10d/TCPStore.cpp, torch/distributed/rendezvous.py; Linux errno 98.

use ringleader_model::{Culprit, Impact, StoreEvent, TorchEvent, Who};

use crate::correlate::Scene;
use crate::correlate::claims::{Claim, Voice};
use crate::rule::{Input, Outcome, Rule};
use crate::told::{Told, add_culprit, found, who};

/// See the module.
pub(super) static RULE: Rule = Rule {
    id: "port-in-use",
    title: "the rendezvous port is taken",
    since: "0.1",
    reads: &[Input::TorchLog, Input::NcclLog],
    doc: include_str!("port_in_use.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = Told::of(scene, "port-in-use") else { return Outcome::Clear };
    let mut culprits: Vec<Culprit> = told.culprits();
    if culprits.is_empty() && told.claims().iter().any(|c| serves_as_rank_0(c)) {
        let place = told.claims().iter().find_map(|c| c.place().cloned());
        add_culprit(&mut culprits, Culprit { place, ..scene.culprit(&Who::rank(0)) });
    }
    let port = told.claims().iter().find_map(|c| port(c));
    let named = port.map_or("the rendezvous port".to_owned(), |p| format!("port {p}"));
    let server = if culprits.is_empty() { "the server".to_owned() } else { who(&culprits) };
    let title = format!("{server} could not open {named}: it is taken by another process");
    let held_by = match port {
        Some(port) => format!("ss -ltnp 'sport = :{port}'"),
        None => "ss -ltnp".to_owned(),
    };
    let draft = told
        .draft_naming(&RULE, "port-in-use", title, culprits)
        .advise_command(Impact::Harmless, "on the host of rank 0, see which process holds the port", held_by)
        .advise_command(
            Impact::Disruptive,
            "start the job with a free port: another --master-port, --rdzv-endpoint=HOST:0, or on one node let torchrun choose",
            "torchrun --standalone …",
        )
        .advise(
            Impact::Harmless,
            "if it is this job's own process, two processes were started with rank 0: check the node ranks",
        );
    found(draft)
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
    let text = &*claim.text;
    let digits = |rest: &str| {
        let n = rest.bytes().take_while(u8::is_ascii_digit).count();
        rest.get(..n)?.parse().ok()
    };
    ["port: ", "bind to [::]:", "bind to 0.0.0.0:"]
        .iter()
        .find_map(|key| text.split_once(key).and_then(|(_, rest)| digits(rest)))
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::staging::Stage;

    const TEXT: &str = "The server socket has failed to listen on any local network address. port: 29508, useIpv6: false, code: -98, name: EADDRINUSE, message: address already in use";

    #[test]
    fn a_worker_that_makes_the_store_is_rank_0() {
        let stage = Stage::new().raised(
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
        Stage::new()
            .store(
                None,
                super::StoreEvent::AddressInUse { port: Some(29500) },
                "errno: 98 - Address already in use",
            )
            .expect(&RULE, &["port-in-use"]);
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
        Stage::new().store(Some(1), refused, "").silent(&RULE);
    }
}
