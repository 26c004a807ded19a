//! How processes began and ended, in the words of launchers and shells.
//!
//! ```text
//! prterun noticed that process rank 1 with PID 11399 on node node7 exited on
//! signal 11 (Segmentation fault).
//! launch.sh: line 5:  1676 Killed                  python -u train.py
//! ```
//! The rows of the message table say what each line tells (`process`). Some launchers name the process in one line and
//! its end in a line below.

use ringleader_knowledge::message::{Hole, Match, ProcessPart, Role};
use ringleader_knowledge::{program, signal};
use ringleader_model::{Fact, LocalRank, Pid, Rank, SourceKind, TorchEvent, Who};

use crate::ground::{Line, Sink, host_of};

/// Lines between the name of a process and its end.
const MAX_BETWEEN: u32 = 4;
/// Ranks of one line.
const MAX_RANKS: usize = 64;

/// What the lines of one source tell.
#[derive(Default)]
pub(super) struct Ends {
    /// A process that was named, whether it was the first to end, and the line.
    named: Option<(Who, bool, u32)>,
}

impl Ends {
    /// Looks at a line and the rows that it was printed from.
    pub(super) fn line(&mut self, line: &Line<'_>, text: &str, rows: &[Match<'_>], sink: &mut Sink<'_>) {
        let Some((found, process)) = rows.iter().find_map(|m| Some((m, m.row.process()?))) else { return };
        let whom = named(found);
        let is_first = found.row.is_first_end();
        let code = match process {
            ProcessPart::Named => {
                self.named = whom.into_iter().next().map(|who| (who, is_first, line.number));
                return;
            }
            ProcessPart::Started => {
                let whom = if whom.is_empty() { listed(text) } else { whom };
                for who in whom {
                    push(line, who, TorchEvent::Started, text, sink);
                }
                return;
            }
            ProcessPart::Joins => return,
            ProcessPart::ExitCode => found.number(Hole::Code),
            ProcessPart::Signal => found.of(Hole::Signal).and_then(signal::number_of).map(|n| -i64::from(n)),
            // A shell that tells of its launcher's end tells nothing of a rank.
            ProcessPart::EndedWith(_) if runs_launcher(text) => return,
            ProcessPart::EndedWith(code) => Some(code),
        };
        let before = self.named.take().filter(|(.., at)| line.number - at <= MAX_BETWEEN);
        let Some(exit_code) = code else { return };
        let mut ended: Vec<(Who, bool)> = whom.into_iter().map(|who| (who, is_first)).collect();
        if ended.is_empty() {
            ended.extend(before.map(|(who, is_first, _)| (who, is_first)));
        }
        // A launcher that does not say which: the job has lost a process all the same.
        if ended.is_empty()
            && process == ProcessPart::ExitCode
            && exit_code != 0
            && found.row.role() > Role::Echo
        {
            ended.push((Who::default(), false));
        }
        for (who, is_first) in ended {
            push(line, who, TorchEvent::ChildExit { exit_code, is_first }, text, sink);
        }
    }
}

/// `['5306 (10.0.0.12)', '4410 (10.0.0.13)']`: processes and their hosts in the order of their ranks.
fn listed(text: &str) -> Vec<Who> {
    let Some((_, list)) = text.split_once("['") else { return Vec::new() };
    let items = list.split(']').next().unwrap_or_default().split(',').take(MAX_RANKS);
    let of = |(rank, item): (u32, &str)| {
        let (pid, host) = item.trim_matches([' ', '\'']).split_once(" (")?;
        let host = Some(host.trim_end_matches(')')).filter(|host| !host.is_empty()).map(host_of);
        Some(Who { rank: Some(Rank(rank)), pid: Some(Pid(pid.parse().ok()?)), host, ..Who::default() })
    };
    (0..).zip(items).map(of).collect::<Option<_>>().unwrap_or_default()
}

/// Whether the command of a line starts ranks and is none.
fn runs_launcher(text: &str) -> bool {
    text.split_whitespace()
        .any(|word| program::is(program::ProgramRole::Typed, word.rsplit('/').next().unwrap_or(word)))
}

fn push(line: &Line<'_>, who: Who, event: TorchEvent, text: &str, sink: &mut Sink<'_>) {
    let cite = sink.cite(line.number, line.offset, line.end());
    sink.saw(SourceKind::TorchLog);
    sink.push(cite, who, line.tag.at, Fact::Torch(event), text.as_bytes());
}

/// The processes that a line names, each once.
fn named(found: &Match<'_>) -> Vec<Who> {
    let pid = found.number(Hole::Pid).and_then(|pid| u32::try_from(pid).ok()).filter(|pid| *pid > 0).map(Pid);
    let local_rank = found.number(Hole::Local).and_then(|n| u32::try_from(n).ok()).map(LocalRank);
    let host = found.of(Hole::Host).filter(|h| !h.is_empty()).map(host_of);
    let ranks = found.ranks(MAX_RANKS);
    let one = Who { pid, local_rank, host, ..Who::default() };
    match ranks.as_slice() {
        [] if pid.is_none() && local_rank.is_none() => Vec::new(),
        [] => vec![one],
        [rank] => vec![Who { rank: Some(Rank(*rank)), ..one }],
        many => many.iter().map(|rank| Who { rank: Some(Rank(*rank)), pid: None, ..one.clone() }).collect(),
    }
}
