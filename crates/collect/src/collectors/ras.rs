//! NCCL RAS of the running job: one question as text and one as JSON for each address its ranks listen at. The task looks
//! first whether it is they who listen.

use std::collections::BTreeMap;

use ringleader_bundle::{ItemOutcome, Origin};
use ringleader_node::Process;

use super::{Context, outcome_of, run_for_each};
use crate::request::{Peer, Request, Target};
use crate::tasks::RasAnswer;

/// Where NCCL listens unless NCCL_RAS_ADDR says otherwise.
const DEFAULT: &str = "localhost:28028";
/// Addresses that are asked: jobs of one user on one node share theirs.
const MAX_ADDRESSES: usize = 16;

pub(super) fn collect(context: &mut Context<'_, '_>) -> Result<(), ringleader_bundle::BundleError> {
    let Some(jobs) = context.jobs() else { return Ok(()) };
    let is_on = |p: &&Process| {
        p.rank().is_some()
            && p.state != "Z"
            && p.variable("NCCL_RAS_ENABLE").is_none_or(|on| on.trim() != "0")
    };
    let mut named: BTreeMap<(Option<u64>, String), Vec<u32>> = BTreeMap::new();
    for process in jobs.processes.iter().filter(is_on) {
        let address = process.variable("NCCL_RAS_ADDR").unwrap_or(DEFAULT).to_owned();
        named.entry((process.net_namespace, address)).or_default().push(process.pid);
    }
    let mut questions: Vec<(String, Vec<u32>)> =
        named.into_iter().map(|((_, address), pids)| (address, pids)).collect();
    // In the order of the job's processes.
    questions.sort_by_key(|(_, pids)| pids.first().copied());
    questions.truncate(MAX_ADDRESSES);
    // All at once: where ranks are stopped each costs its patience.
    let forms = [("text", "status.txt"), ("json", "status.json")];
    let requests: Vec<Request> = questions
        .iter()
        .flat_map(|(address, pids)| forms.map(|(purpose, _)| (address, pids, purpose)))
        .map(|(address, pids, purpose)| {
            let (host, port) = split(address);
            let peer = Peer { host, port, purpose: purpose.to_owned(), ..Peer::default() };
            Request {
                peers: vec![peer],
                target: Target { pids: pids.clone(), ..Target::default() },
                deadline_ms: 0,
                ..context.ask.request.clone()
            }
        })
        .collect();
    let parts = run_for_each(context.program, "ras-of", &requests, 2 * MAX_ADDRESSES, context.ask.longest_ms);
    for (n, ((address, pids), parts)) in questions.iter().zip(parts.chunks(forms.len())).enumerate() {
        let folder = if n == 0 { "ras".to_owned() } else { format!("ras-{}", n + 1) };
        let mut has_failed = false;
        for ((_, file), part) in forms.iter().zip(parts) {
            // Both forms fail for the same reason: said once.
            if outcome_of(part).is_some_and(|outcome| matches!(outcome, ItemOutcome::Failed(_)))
                && std::mem::replace(&mut has_failed, true)
            {
                continue;
            }
            let answer: Option<RasAnswer> =
                part.get().and_then(|value| serde_json::from_value(value.clone()).ok());
            let mut item = context.item("ras", &format!("{folder}/{file}"), Origin::Address(address.clone()));
            item.pid = pids.first().copied().filter(|_| questions.len() > 1);
            if let Some(why) = answer.as_ref().and_then(|answer| answer.cut.clone()) {
                item.outcome = ItemOutcome::Partial(why);
            }
            context.add_text(item, part, answer.as_ref().map(|answer| answer.report.as_str()))?;
        }
    }
    Ok(())
}

/// `host:port` or `[::1]:port`.
fn split(address: &str) -> (String, Option<u16>) {
    match address.rsplit_once(':') {
        Some((host, port)) if port.parse::<u16>().is_ok() => {
            (host.trim_matches(['[', ']']).to_owned(), port.parse().ok())
        }
        _ => (address.to_owned(), None),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn addresses_in_both_forms() {
        assert_eq!(super::split("localhost:28028"), ("localhost".to_owned(), Some(28_028)));
        assert_eq!(super::split("[::1]:99"), ("::1".to_owned(), Some(99)));
        assert_eq!(super::split("node"), ("node".to_owned(), None));
    }
}
