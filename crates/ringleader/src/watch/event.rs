//! What `watch` says: one object a line as JSON, or a line of text. `ringleader.watch.v1`.
//!
//! Within version 1 fields are only added.

use serde::Serialize;

use crate::report::json::Report;
use crate::report::quote::plain;
use crate::report::text;

/// Name and version of the format.
pub(crate) const SCHEMA: &str = "ringleader.watch.v1";

/// One thing said, and when.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Said {
    /// [`SCHEMA`].
    pub(crate) schema: &'static str,
    /// What.
    #[serde(flatten)]
    pub(crate) event: Event,
    /// Seconds since 1970.
    pub(crate) at: f64,
}

/// What there is to say.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub(crate) enum Event {
    /// Whose job is followed, and by what; once, and when that changes.
    Watching(Watching),
    /// How far it is, every few seconds.
    Progress { comms: Vec<CommLine>, slowest: Option<Slowest> },
    /// A rank that comes late again and again.
    Straggler(Straggler),
    /// The job's rhythm has broken.
    Stall(Stall),
    /// Evidence was written.
    Bundle { path: String },
    /// The answer.
    Verdict { report: Box<Report> },
    /// It goes on.
    Recovered { comm: String, after_s: f64 },
    /// It has ended.
    Ended { how: String },
    /// Anything else that a reader should know.
    Note { text: String },
}

/// Who is watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Watching {
    pub(crate) nodes: usize,
    pub(crate) ranks: usize,
    /// `plugin`, `ras`, `processes`: the best that is there.
    pub(crate) sees: &'static str,
    pub(crate) cannot_see: Vec<String>,
}

/// One communicator.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct CommLine {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) size: u32,
    pub(crate) ranks_seen: u32,
    /// Operations that the rank furthest behind has ended.
    pub(crate) ops_done: u64,
    pub(crate) ops_per_s: f64,
    pub(crate) bytes_per_s: f64,
    /// As nccl-tests define it; null where the kind of operation has none.
    pub(crate) busbw_gbs: Option<f64>,
    pub(crate) in_flight: u32,
    /// Ranks of the job that others wait for now.
    pub(crate) waiting_for: Vec<u32>,
}

/// The rank that comes last most.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Slowest {
    pub(crate) rank: Option<u32>,
    pub(crate) late_ms: f64,
    pub(crate) persistent: bool,
}

/// A rank that comes late.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Straggler {
    pub(crate) rank: Option<u32>,
    pub(crate) late_ms: f64,
    /// Of the operations it was the last to enter, 0 to 1.
    pub(crate) share: f64,
    /// `compute`, `host`, `network`, `unknown`.
    pub(crate) of: String,
    pub(crate) confidence: String,
    pub(crate) comm: String,
}

/// Nothing has ended for longer than the job's rhythm allows.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Stall {
    pub(crate) comm: String,
    pub(crate) op: OpName,
    /// Last progress, seconds since 1970.
    pub(crate) since: f64,
    pub(crate) after_s: f64,
    pub(crate) expected_s: f64,
    pub(crate) states: Vec<RankLine>,
    pub(crate) suspects: Vec<u32>,
}

/// Which operation.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct OpName {
    /// NCCL's name: `AllReduce`.
    pub(crate) kind: String,
    pub(crate) number: Option<u64>,
}

/// One rank, and what it does.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct RankLine {
    pub(crate) rank: Option<u32>,
    pub(crate) host: String,
    pub(crate) pid: u32,
    /// A word: `not-entered`, `kernel-not-started`, `waits-for-peer`, `finished`, `stopped`, `dead`, …
    pub(crate) state: String,
    /// The same in a sentence.
    pub(crate) detail: String,
}

impl Said {
    pub(crate) fn new(event: Event, at: f64) -> Self {
        Self { schema: SCHEMA, event, at }
    }

    /// One line of JSON with its end.
    pub(crate) fn json(&self) -> String {
        // Types of our own with names for keys: printing them cannot fail.
        let mut line = serde_json::to_string(self).unwrap_or_default();
        line.push('\n');
        line
    }
}

impl Event {
    /// Lines for people, without what would act on a terminal. None for what a plain view passes over.
    pub(crate) fn text(&self) -> Option<String> {
        Some(match self {
            Self::Watching(watching) => {
                let mut out = format!(
                    "watching {} on {}, by {}",
                    count(watching.ranks, "rank"),
                    count(watching.nodes, "node"),
                    match watching.sees {
                        "plugin" => "the plugin",
                        "ras" => "NCCL RAS",
                        _ => "their processes alone",
                    }
                );
                for text in &watching.cannot_see {
                    out.push_str(&format!("\n  cannot see: {}", plain(text)));
                }
                out
            }
            Self::Progress { comms, slowest } => progress(comms, slowest.as_ref())?,
            Self::Straggler(straggler) => format!(
                "{} comes {:.1} ms late into {:.0} % of the operations of {} ({}, {} confidence)",
                rank_name(straggler.rank),
                straggler.late_ms,
                straggler.share * 100.0,
                plain(&straggler.comm),
                plain(&straggler.of),
                plain(&straggler.confidence)
            ),
            Self::Stall(stall) => stall.text(),
            Self::Bundle { path } => format!("evidence is in {}", plain(path)),
            Self::Verdict { report } => {
                let mut out = format!("verdict: {}\n  {}", text::headline(report), plain(&report.verdict.summary));
                for culprit in &report.verdict.culprits {
                    out.push_str(&format!("\n  culprit: {}", text::who(culprit)));
                    if let Some(place) = text::place(culprit) {
                        out.push_str(&format!(", at {place}"));
                    }
                }
                out
            }
            Self::Recovered { comm, after_s } => {
                format!("{} goes on after {after_s:.1} s", plain(comm))
            }
            Self::Ended { how } => format!("the job has ended: {}", plain(how)),
            Self::Note { text } => format!("note: {}", plain(text)),
        })
    }
}

impl Stall {
    /// The alarm: what stands still, who is suspected, what each rank does.
    pub(crate) fn text(&self) -> String {
        let number = self.op.number.map(|number| format!(" #{number}")).unwrap_or_default();
        let what = if self.op.kind.is_empty() { "the job".to_owned() } else { plain(&self.op.kind) + &number };
        let of = if self.comm.is_empty() { String::new() } else { format!(" of {}", plain(&self.comm)) };
        let mut out = format!(
            "STALL: {what}{of} stands still for {:.1} s; {:.1} s would be usual",
            self.after_s, self.expected_s
        );
        if !self.suspects.is_empty() {
            let list: Vec<String> = self.suspects.iter().map(u32::to_string).collect();
            out.push_str(&format!("; suspected: rank {}", list.join(", ")));
        }
        for rank in self.states.iter().take(MAX_STATES) {
            out.push_str(&format!(
                "\n  {} ({} pid {}): {}",
                rank_name(rank.rank),
                plain(&rank.host),
                rank.pid,
                plain(if rank.detail.is_empty() { &rank.state } else { &rank.detail })
            ));
        }
        if self.states.len() > MAX_STATES {
            out.push_str(&format!("\n  … and {} more", self.states.len() - MAX_STATES));
        }
        out
    }
}

/// Ranks that a line of text tells of; JSON has them all.
const MAX_STATES: usize = 16;
/// Communicators that a line of progress tells of.
const MAX_COMMS: usize = 4;

fn progress(comms: &[CommLine], slowest: Option<&Slowest>) -> Option<String> {
    // The busiest say most.
    let mut busy: Vec<&CommLine> = comms.iter().filter(|comm| comm.ops_per_s > 0.0).collect();
    busy.sort_by(|a, b| b.bytes_per_s.total_cmp(&a.bytes_per_s).then_with(|| a.id.cmp(&b.id)));
    if busy.is_empty() {
        return None;
    }
    let told: Vec<String> = busy
        .iter()
        .take(MAX_COMMS)
        .map(|comm| {
            let band = comm.busbw_gbs.map(|gbs| format!(", bus {gbs:.1} GB/s")).unwrap_or_default();
            format!("{}: {:.1} op/s{band}", plain(comm.label()), comm.ops_per_s)
        })
        .collect();
    let mut out = told.join("; ");
    if busy.len() > MAX_COMMS {
        out.push_str(&format!("; and {} more", busy.len() - MAX_COMMS));
    }
    if let Some(slowest) = slowest {
        let often = if slowest.persistent { "always" } else { "at times" };
        out.push_str(&format!("; {often} last: {} by {:.1} ms", rank_name(slowest.rank), slowest.late_ms));
    }
    Some(out)
}

impl CommLine {
    /// Its name, else its id.
    pub(crate) fn label(&self) -> &str {
        if self.name.is_empty() { &self.id } else { &self.name }
    }
}

pub(crate) fn rank_name(rank: Option<u32>) -> String {
    rank.map_or_else(|| "a rank of unknown number".to_owned(), |rank| format!("rank {rank}"))
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_of_json_with_its_name_and_its_time() {
        let note = Said::new(Event::Note { text: "a\nb \"c\"".to_owned() }, 1.5);
        assert_eq!(
            note.json(),
            "{\"schema\":\"ringleader.watch.v1\",\"event\":\"note\",\"text\":\"a\\nb \\\"c\\\"\",\"at\":1.5}\n"
        );
        let comms = vec![CommLine { id: "0x1".to_owned(), size: 2, ..CommLine::default() }];
        let said: serde_json::Value =
            serde_json::from_str(&Said::new(Event::Progress { comms, slowest: None }, 2.0).json()).unwrap();
        assert_eq!(said["event"], "progress");
        assert_eq!(said["slowest"], serde_json::Value::Null);
        assert_eq!(said["comms"][0]["waiting_for"], serde_json::json!([]));
    }

    #[test]
    fn names_from_the_job_do_not_act_on_the_terminal() {
        let stall = Stall {
            comm: "dp\u{1b}[2J".to_owned(),
            op: OpName { kind: "AllReduce".to_owned(), number: Some(7) },
            after_s: 6.0,
            expected_s: 1.0,
            states: vec![RankLine { rank: Some(1), host: "n\r".to_owned(), ..RankLine::default() }],
            suspects: vec![1],
            ..Stall::default()
        };
        let text = Event::Stall(stall).text().unwrap();
        assert!(text.starts_with("STALL: AllReduce #7 of dp\\x1b[2J stands still for 6.0 s"), "{text}");
        assert!(text.contains("suspected: rank 1\n  rank 1 (n\\r pid 0): "), "{text}");
    }
}
