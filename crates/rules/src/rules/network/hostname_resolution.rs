//! # What it shows
//!
//! A process cannot turn the name of the rendezvous host into an address.
//!
//! # Why it happens
//!
//! The name is of another domain or only known elsewhere, name service is not up yet in a new pod, the name has no
//! address of the wanted family.
//!
//! # Evidence
//!
//! `Name or service not known`, `Temporary failure in name resolution` and their numbers, about the host of the
//! rendezvous.
//!
//! # What looks like it but is not
//!
//! `gai error: -9` about IPv6 is harmless: IPv4 is tried next. `The hostname of the client socket cannot be retrieved`
//! is a failed reverse look-up, harmless. A job that started got past it.
//!
//! # What to do
//!
//! Use an address, or fix the name service.
//!
//! # References
//!
//! pytorch/pytorch torch/csrc/distributed/c10d/socket.cpp; getaddrinfo(3).

use ringleader_knowledge::wording;
use ringleader_model::{Cause, Culprit, Impact, StoreEvent, TorchEvent, plain_word};

use crate::drafting::claims::ClaimsOfCause;
use crate::rule::{Outcome, Rule, found};
use ringleader_correlate::Scene;
use ringleader_correlate::said::messages::Voice;
use ringleader_correlate::who::culprits::{add_culprit, who};
use ringleader_correlate::who::settings;

/// See the module.
pub(in crate::rules) static RULE: Rule = Rule {
    id: "hostname-resolution",
    title: "a host name does not resolve",
    since: "0.1",
    doc: include_str!("hostname_resolution.rs"),
    check,
};

fn check(scene: &Scene<'_>) -> Outcome {
    let Some(told) = ClaimsOfCause::of(scene, Cause::HostnameResolution) else { return Outcome::Clear };
    let raised = told.claims().iter().any(|c| matches!(c.voice, Voice::Exception(_)));
    if !raised && scene.got_going(told.cites()) {
        return Outcome::Clear;
    }
    let name = told.claims().iter().find_map(|c| match c.voice {
        Voice::Torch(TorchEvent::Store(StoreEvent::Unresolved { name, .. })) if !name.is_empty() => {
            Some(&**name)
        }
        _ => wording::unresolved_host(&c.text),
    });
    let culprits = match told.culprits() {
        // A log that all ranks write does not identify a rank: the environment with the name does.
        nobody if nobody.iter().all(|c| c.rank.is_none()) => {
            name.map(|name| told_to_ask(scene, name)).filter(|asked| !asked.is_empty()).unwrap_or(nobody)
        }
        speakers => speakers,
    };
    let shown = name.map_or("a host name".to_owned(), |n| format!("the host name {n}"));
    let title = format!("{} cannot resolve {shown}", who(&culprits));
    let draft = told
        .draft_naming(&RULE, Cause::HostnameResolution, title, culprits)
        .advise_made(
            Impact::Harmless,
            "ask the resolver on the host (or in the container) that reports it",
            name.map_or(Some("$MASTER_ADDR"), plain_word).map(|name| format!("getent ahosts {name}")),
        )
        .advise_command(
            Impact::Harmless,
            "use an address instead of the name",
            "MASTER_ADDR=<address of rank 0's host>",
        );
    found(draft)
}

/// Ranks whose environment names this host as the meeting place.
fn told_to_ask(scene: &Scene<'_>, name: &str) -> Vec<Culprit> {
    let listings = settings::of(scene.case()).into_iter().filter(|s| s.who.rank.is_some());
    listings.filter(|s| s.get("MASTER_ADDR") == Some(name)).fold(Vec::new(), |mut all, s| {
        add_culprit(&mut all, scene.culprit(s.who));
        all
    })
}

#[cfg(test)]
mod tests {
    use super::RULE;
    use crate::trial::{StagedCase, Trial as _};

    const TEXT: &str = "[c10d] The IPv6 network addresses of (job-01.internal, 43021) cannot be retrieved (gai error: -2 - Name or service not known).";

    #[test]
    fn the_name_is_told() {
        let stage = StagedCase::new().error_line(Some(3), TEXT);
        stage.expect(&RULE, &["hostname-resolution 3"]);
        assert!(stage.finding(&RULE).title.contains("job-01.internal"));
    }

    #[test]
    fn a_name_that_a_shell_takes_apart_is_no_command() {
        let commands = |text: &str| {
            let finding = StagedCase::new().error_line(Some(3), text).finding(&RULE);
            finding.actions.into_iter().filter_map(|action| action.command).collect::<Vec<_>>().join("\n")
        };
        assert!(commands(TEXT).contains("getent ahosts job-01.internal"));
        let hostile = TEXT.replace("job-01.internal", "x;touch${IFS}/tmp/pwn");
        assert!(!commands(&hostile).contains("pwn"));
    }

    #[test]
    fn a_log_of_all_ranks_and_the_environment_of_the_one() {
        let of = |rank: u32, master: &'static str| {
            move |stage: StagedCase| {
                stage.listing(
                    Some(rank),
                    &[("RANK", if rank == 0 { "0" } else { "1" }), ("MASTER_ADDR", master)],
                )
            }
        };
        let stage = of(1, "job-01.internal")(of(0, "127.0.0.1")(StagedCase::new().error_line(None, TEXT)));
        stage.expect(&RULE, &["hostname-resolution 1"]);
        assert!(stage.finding(&RULE).title.starts_with("rank 1 cannot resolve"));
    }

    #[test]
    fn a_job_that_got_going_overcame_it() {
        StagedCase::new()
            .error_line(Some(3), TEXT)
            .process("n", 1, Some(3))
            .comm(3, 4, 1, true)
            .silent(&RULE);
    }

    #[test]
    fn the_other_family_and_reverse_look_ups_are_harmless() {
        StagedCase::new()
            .error_line(None, "[c10d] The IPv6 network addresses of (node0, 29500) cannot be retrieved (gai error: -9 - Address family for hostname not supported).")
            .error_line(None, "[c10d] The hostname of the client socket cannot be retrieved. err=-3")
            .silent(&RULE);
    }
}
