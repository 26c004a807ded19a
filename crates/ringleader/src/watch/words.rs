//! Events as lines for people. JSON is the events themselves (`ringleader_watch::event`).

use std::fmt::Write as _;

use ringleader_report::quote::plain;
use ringleader_watch::event::{CommProgress, Confidence, Event, Lag, Slowest, Stall, What};
use ringleader_watch::view::Sees;

/// Most ranks in the text of a stall; JSON has more.
const MAX_STATES: usize = 16;
/// Most communicators in a line of progress.
const MAX_COMMS: usize = 4;

/// The lines of an event, without what would act on a terminal and without a newline at the end. None for what has
/// nothing to tell. A verdict's report is printed by its own means.
pub(crate) fn lines(event: &Event) -> Option<String> {
    Some(match &event.what {
        What::Watching { .. } => watching(&event.what, None)?,
        What::Progress { comms, slowest } => progress(comms, slowest.as_ref())?,
        What::Straggler(late) if !late.text.is_empty() => format!("late: {}", plain(&late.text)),
        What::Straggler(late) => format!(
            "late: rank {} by {:.1} ms in {:.0} % of the collectives of {} ({}, {} confidence)",
            late.rank,
            late.late_ms,
            late.share * 100.0,
            plain(&late.comm),
            lag(late.of),
            sure(late.confidence)
        ),
        What::Stall(stall) => stalled(stall),
        What::Waiting(wait) => format!("waiting for {:.0} s: {}", wait.after_s, plain(&wait.text)),
        What::Ranks { .. } => return None,
        What::Bundle { path } => format!("evidence: {}", plain(path)),
        What::Verdict { report } => {
            let of = |name: &str| report["verdict"][name].as_str().unwrap_or_default();
            format!("verdict: {}: {}", plain(of("cause")), plain(of("summary")))
        }
        What::Recovered { comm, after_s } => {
            let what = if comm.is_empty() { "the job".to_owned() } else { plain(comm) };
            format!("{what} moves again after {after_s:.1} s")
        }
        What::Over { comm, after_s } => {
            let what = if comm.is_empty() { "the job".to_owned() } else { plain(comm) };
            format!("{what} stood still for {after_s:.1} s until ranks of it ended")
        }
        What::Ended { how } => format!("ended: {}", plain(how)),
        What::Note { text } => format!("note: {}", plain(text)),
    })
}

/// What is watched, as far as it was not said before. None if all of it was.
pub(crate) fn watching(now: &What, before: Option<&What>) -> Option<String> {
    let What::Watching { nodes, ranks, sees, cannot_see } = now else { return None };
    let (is_same, known) = match before {
        Some(What::Watching { nodes: old_nodes, ranks: old_ranks, sees: old_sees, cannot_see }) => {
            ((nodes, ranks, sees) == (old_nodes, old_ranks, old_sees), cannot_see.as_slice())
        }
        _ => (false, &[][..]),
    };
    let mut lines: Vec<String> = Vec::new();
    if !is_same {
        lines.push(format!(
            "watching {} on {}, by {}",
            count(*ranks as usize, "rank"),
            count(*nodes as usize, "node"),
            means(*sees)
        ));
    }
    let new = cannot_see.iter().filter(|text| !known.contains(text));
    lines.extend(new.map(|text| format!("cannot see: {}", plain(text))));
    (!lines.is_empty()).then(|| lines.join("\n  "))
}

/// What is stalled, which ranks are suspected, what each rank does.
pub(crate) fn stalled(stall: &Stall) -> String {
    let mut out = format!("STALL: {}", headline(stall));
    for rank in stall.states.iter().take(MAX_STATES) {
        let what = if rank.detail.is_empty() { &rank.state } else { &rank.detail };
        let _ =
            write!(out, "\n  rank {} ({} pid {}): {}", rank.rank, plain(&rank.host), rank.pid, plain(what));
    }
    if stall.states.len() > MAX_STATES {
        let _ = write!(out, "\n  … and {} more", stall.states.len() - MAX_STATES);
    }
    out
}

/// The alarm in one line.
pub(crate) fn headline(stall: &Stall) -> String {
    let what = match (stall.op.kind.as_str(), comm_name(&stall.comm_name, &stall.comm)) {
        ("", "") => "the job".to_owned(),
        ("", comm) => plain(comm),
        (kind, comm) => format!("{} #{} of {}", plain(kind), stall.op.number, plain(comm)),
    };
    let mut out = format!("{what} has made no progress for {:.1} s", stall.after_s);
    // Without a rhythm nothing is usual.
    if stall.expected_s > 0.0 {
        let _ = write!(out, "; up to {:.1} s would be usual", stall.expected_s);
    }
    if !stall.text.is_empty() {
        let _ = write!(out, "; {}", plain(&stall.text));
    }
    if !stall.suspects.is_empty() {
        let _ = write!(out, "; suspected: {}", rank_list(&stall.suspects));
    }
    out
}

fn progress(comms: &[CommProgress], slowest: Option<&Slowest>) -> Option<String> {
    // The busiest say most.
    let mut busy: Vec<&CommProgress> = comms.iter().filter(|comm| comm.ops_per_s > 0.0).collect();
    busy.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s).then_with(|| a.id.cmp(&b.id)));
    if busy.is_empty() {
        return None;
    }
    let told: Vec<String> = busy
        .iter()
        .take(MAX_COMMS)
        .map(|comm| {
            let bus = comm.busbw_gbs.map(|gbs| format!(", bus {gbs:.1} GB/s")).unwrap_or_default();
            format!("{} {:.1} op/s{bus}", plain(comm_name(&comm.name, &comm.id)), comm.ops_per_s)
        })
        .collect();
    let mut out = told.join("; ");
    if busy.len() > MAX_COMMS {
        let _ = write!(out, "; and {} more", busy.len() - MAX_COMMS);
    }
    if let Some(slowest) = slowest {
        let often = if slowest.persistent { "always last" } else { "sometimes last" };
        let _ = write!(out, "; {often}: rank {} by {:.1} ms", slowest.rank, slowest.late_ms);
    }
    Some(out)
}

/// `ranks 0, 3`.
pub(crate) fn rank_list(ranks: &[u32]) -> String {
    let list: Vec<String> = ranks.iter().map(u32::to_string).collect();
    format!("rank{} {}", if ranks.len() == 1 { "" } else { "s" }, list.join(", "))
}

/// Its name, else its identifier.
pub(crate) fn comm_name<'a>(name: &'a str, id: &'a str) -> &'a str {
    if name.is_empty() { id } else { name }
}

/// By what a job is seen.
pub(crate) fn means(sees: Sees) -> &'static str {
    match sees {
        Sees::Plugin => "the plugin",
        Sees::Ras => "NCCL RAS",
        Sees::Processes => "only their processes",
    }
}

/// Why a rank is late.
pub(crate) fn lag(of: Lag) -> &'static str {
    match of {
        Lag::Compute => "compute",
        Lag::Host => "host",
        Lag::Network => "network",
        Lag::Unknown => "unknown",
    }
}

fn sure(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Low => "low",
        Confidence::Medium => "medium",
        Confidence::High => "high",
    }
}

/// `1 node`, `2 nodes`.
pub(crate) fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]

    use ringleader_watch::event::{RankState, StalledOp};

    use super::*;

    #[test]
    fn names_from_the_job_do_not_act_on_the_terminal() {
        let stall = Stall {
            comm: "dp\u{1b}[2J".to_owned(),
            op: StalledOp { kind: "AllReduce".to_owned(), number: 7 },
            after_s: 6.0,
            expected_s: 1.0,
            states: vec![RankState { rank: 1, host: "n\r".to_owned(), ..RankState::default() }],
            suspects: vec![1],
            ..Stall::default()
        };
        let text = lines(&Event::new(0, What::Stall(Box::new(stall)))).unwrap();
        assert_eq!(
            text,
            "STALL: AllReduce #7 of dp\\x1b[2J has made no progress for 6.0 s; up to 1.0 s would be usual; suspected: \
             rank 1\n  rank 1 (n\\r pid 0): "
        );
    }

    #[test]
    fn what_is_watched_is_not_said_twice() {
        let watching = |ranks, cannot_see: &[&str]| What::Watching {
            nodes: 1,
            ranks,
            sees: Sees::Processes,
            cannot_see: cannot_see.iter().map(|text| (*text).to_owned()).collect(),
        };
        let first = watching(2, &["operations"]);
        let said = super::watching(&first, None).unwrap();
        assert_eq!(said, "watching 2 ranks on 1 node, by only their processes\n  cannot see: operations");
        let more = watching(2, &["operations", "RAS"]);
        assert_eq!(super::watching(&more, Some(&first)).unwrap(), "cannot see: RAS");
        assert_eq!(super::watching(&first, Some(&more)), None);
        let fewer = watching(1, &["operations"]);
        let said = super::watching(&fewer, Some(&first)).unwrap();
        assert_eq!(said, "watching 1 rank on 1 node, by only their processes");
    }

    #[test]
    fn without_a_rhythm_nothing_is_usual() {
        let stall = Stall { after_s: 15.0, text: "rank 1 is stopped".to_owned(), ..Stall::default() };
        assert_eq!(headline(&stall), "the job has made no progress for 15.0 s; rank 1 is stopped");
    }

    #[test]
    fn progress_tells_of_the_busiest_and_is_silent_about_nothing() {
        let comm = |name: &str, rate: f64| CommProgress {
            name: name.to_owned(),
            ops_per_s: rate,
            bytes_per_s: rate * 10.0,
            ..CommProgress::default()
        };
        let slowest = Some(Slowest { rank: 3, late_ms: 12.34, persistent: true });
        let of = |comms: Vec<CommProgress>, slowest| lines(&Event::new(0, What::Progress { comms, slowest }));
        assert_eq!(of(vec![comm("a", 0.0)], None), None);
        assert_eq!(
            of(vec![comm("a", 1.0), comm("b", 2.0)], slowest).unwrap(),
            "b 2.0 op/s; a 1.0 op/s; always last: rank 3 by 12.3 ms"
        );
    }
}
