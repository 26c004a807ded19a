//! Turns a report into the judgement that decisions are based on, and finds the traceback that a person should see
//! first.

use std::path::Path;

use ringleader_knowledge::signal::SIGKILL;
use ringleader_model::{Cause, Class, Confidence as Sure};
use ringleader_report::json::{Confidence, Culprit as Blamed, Report};
use ringleader_run::judgement::{Citation, Culprit, Judgement, class_of};
use ringleader_run::state::Ended;

/// Number of citations that are kept.
const MAX_EVIDENCE: usize = 8;
/// Longest citation, bytes.
const MAX_TEXT: usize = 400;
/// Amount of output that is searched for a traceback, bytes.
const MAX_OUTPUT: u64 = 16 << 20;
/// Longest traceback, lines.
const MAX_LINES: usize = 40;
/// Errors that ranks print because another rank failed, and errors of launchers.
const CONSEQUENCES: [&str; 9] = [
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "ChildFailedError",
    "SignalException",
    "DistBackendError",
    "DistNetworkError",
    "KeyboardInterrupt",
    "Gloo connectFullMesh failed",
];

/// The judgement in the report, for the nodes of the job.
pub(crate) fn judged(report: &Report, bundle: &Path, nodes: &[String]) -> Judgement {
    let verdict = &report.verdict;
    let culprits: Vec<Culprit> = verdict.culprits.iter().map(culprit).collect();
    let mut judgement = Judgement {
        cause: verdict.cause().into(),
        class: Class::Unknown,
        confidence: match verdict.confidence {
            Confidence::Low => Sure::Low,
            Confidence::Medium => Sure::Medium,
            Confidence::High => Sure::High,
        },
        summary: verdict.summary.clone(),
        culprits,
        evidence: Vec::new(),
        bundle: Some(bundle.display().to_string()),
        doubted: None,
    };
    judgement.class = class_of(verdict.cause(), &judgement.hosts(), nodes);
    if judgement.class == Class::Program && is_of_the_world(&judgement.summary) {
        // A failure outside of the program may be gone in the next attempt.
        judgement.class = Class::Unknown;
    }
    let deciding = report.findings.iter().filter(|finding| finding.cause == verdict.cause);
    let quoted = deciding.flat_map(|finding| &finding.evidence).take(MAX_EVIDENCE);
    judgement.evidence = quoted
        .map(|evidence| Citation {
            source: evidence.source.clone(),
            line: evidence.line,
            text: cut(&evidence.text),
        })
        .collect();
    judgement
}

/// An exception that reports an error of the file system, a server or another process: `[Errno 28] No space left on
/// device`.
fn is_of_the_world(summary: &str) -> bool {
    // EIO, EAGAIN, ENOSPC, EROFS, EPIPE, ENONET, ENOLINK, ECONNRESET, ETIMEDOUT, EHOSTUNREACH, ESTALE, EDQUOT.
    const NUMBERS: [u32; 12] = [5, 11, 28, 30, 32, 64, 67, 104, 110, 113, 116, 122];
    summary.match_indices("[Errno ").any(|(at, word)| {
        let digits = summary.get(at + word.len()..).unwrap_or_default();
        let number = digits.split(']').next().and_then(|number| number.parse::<u32>().ok());
        number.is_some_and(|number| NUMBERS.contains(&number))
    })
}

fn culprit(blamed: &Blamed) -> Culprit {
    let place = blamed.place.as_ref().map(|place| {
        let line = place.line.map_or_else(String::new, |line| format!(":{line}"));
        let function = place.function.as_ref().map_or_else(String::new, |function| format!(" in {function}"));
        format!("{}{line}{function}", place.file)
    });
    Culprit { rank: blamed.rank, host: blamed.host.clone(), gpu: blamed.gpu.clone(), place }
}

fn cut(text: &str) -> String {
    let end = (0..=MAX_TEXT.min(text.len())).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    text.get(..end).unwrap_or_default().to_owned()
}

/// If the launcher is the program itself, no evidence shows which signal ended it; its parent, the holder, knows. If
/// the evidence names no cause, that signal is the cause, and this node's rank, if it has only one, is the culprit.
pub(crate) fn with_exit(judgement: Judgement, exit: Option<&Ended>, node: &str, seen: &[u32]) -> Judgement {
    let Some(signal) = exit.and_then(|exit| exit.signal) else { return judgement };
    if !judgement.cause.says_nothing() {
        return judgement;
    }
    let is_kill = signal == i32::from(SIGKILL);
    let cause = if is_kill { Cause::ProcessKilled } else { Cause::ProcessCrashed };
    let summary = format!("the launcher was killed by signal {signal}, which its supervisor did not send");
    let citation = Citation { source: "holder.json".to_owned(), line: None, text: summary.clone() };
    let class = class_of(cause, &[], &[]);
    let rank = if let [rank] = seen { Some(*rank) } else { None };
    let culprit = Culprit { rank, host: Some(node.to_owned()), ..Culprit::default() };
    Judgement {
        cause: cause.into(),
        class,
        confidence: Sure::High,
        summary,
        culprits: vec![culprit],
        evidence: vec![citation],
        ..judgement
    }
}

/// A job that received a request to end ended because of it, unless the evidence names an earlier cause.
pub(crate) fn with_told(judgement: Judgement, told: &str) -> Judgement {
    if !judgement.cause.says_nothing() {
        return judgement;
    }
    let citation = Citation { source: "holder.json".to_owned(), line: None, text: told.to_owned() };
    Judgement {
        cause: Cause::StoppedFromOutside.into(),
        class: class_of(Cause::StoppedFromOutside, &[], &[]),
        confidence: Sure::High,
        summary: format!("the job received a request to end: {told}"),
        evidence: vec![citation],
        ..judgement
    }
}

/// A rank that exited with its own code and no message is a fault of the program. torchrun's table has the code:
///
/// ```text
/// Root Cause (first observed failure):
///   rank      : 1 (local_rank: 1)
///   exitcode  : 3 (pid: 4711)
/// ```
///
/// A rank that is missing from the table, and that the launcher did not end, exited with 0 before its peers failed.
pub(crate) fn with_table(judgement: Judgement, files: &[std::path::PathBuf], seen: &[u32]) -> Judgement {
    if !says_no_cause(&judgement) {
        return judgement;
    }
    let texts: Vec<String> = files
        .iter()
        .filter_map(|file| Some(String::from_utf8_lossy(&read(file).ok()?).into_owned()))
        .collect();
    let Some((rank, code)) = texts.iter().find_map(|text| own_exit(text)) else {
        let Some(ranks) = texts.iter().find_map(|text| left_early(text, seen)) else { return judgement };
        let names = numbers(&ranks);
        return exited_early(
            judgement,
            &ranks,
            format!("torchrun's table of failures does not list rank {names}"),
        );
    };
    let summary = format!("rank {rank} exited with code {code} and no traceback");
    let citation = Citation { text: format!("exitcode  : {code}"), ..Citation::default() };
    let culprit = judgement.culprits.iter().find(|culprit| culprit.rank == Some(rank)).cloned();
    Judgement {
        cause: Cause::ApplicationException.into(),
        class: class_of(Cause::ApplicationException, &[], &[]),
        confidence: Sure::Medium,
        summary,
        culprits: vec![culprit.unwrap_or(Culprit { rank: Some(rank), ..Culprit::default() })],
        evidence: std::iter::once(citation).chain(judgement.evidence.iter().cloned()).collect(),
        ..judgement
    }
}

/// A rank of this node is gone, its peers wait, and the launcher still runs: torchrun and its like end all ranks as soon as
/// one fails, so this one exited with 0. A launcher that is already ending them says so in its log.
pub(crate) fn with_live_launcher(
    judgement: Judgement,
    files: &[std::path::PathBuf],
    seen: &[u32],
) -> Judgement {
    const ENDING: [&str; 3] = ["closing signal", "failed (exitcode", "exits with return code"];
    let ranks: Vec<u32> = judgement.culprits.iter().filter_map(|culprit| culprit.rank).collect();
    let are_ours = !ranks.is_empty() && ranks.iter().all(|rank| seen.contains(rank));
    if judgement.cause != Cause::PeerProcessDied || !are_ours {
        return judgement;
    }
    let is_ending = files.iter().filter_map(|file| read(file).ok()).any(|bytes| {
        let text = String::from_utf8_lossy(&bytes);
        ENDING.iter().any(|words| text.contains(words))
    });
    if is_ending {
        return judgement;
    }
    let names = numbers(&ranks);
    exited_early(
        judgement,
        &ranks,
        format!("rank {names} is gone and the launcher, which ends all ranks when one fails, still runs"),
    )
}

/// Nothing is known of the cause, or only that a rank is gone.
pub(crate) fn says_no_cause(judgement: &Judgement) -> bool {
    judgement.cause.says_nothing() || judgement.cause == Cause::PeerProcessDied
}

fn numbers(ranks: &[u32]) -> String {
    ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")
}

/// The judgement if ranks exited with 0 while others continued; `shown` is what shows it.
fn exited_early(judgement: Judgement, ranks: &[u32], shown: String) -> Judgement {
    let summary = format!("rank {} exited with code 0 while the others continued", numbers(ranks));
    let citation = Citation { text: shown, ..Citation::default() };
    let culprit = |rank: &u32| {
        let known = judgement.culprits.iter().find(|culprit| culprit.rank == Some(*rank)).cloned();
        known.unwrap_or(Culprit { rank: Some(*rank), ..Culprit::default() })
    };
    Judgement {
        cause: Cause::RankExitedEarly.into(),
        class: class_of(Cause::RankExitedEarly, &[], &[]),
        confidence: Sure::Medium,
        summary,
        culprits: ranks.iter().map(culprit).collect(),
        evidence: std::iter::once(citation).chain(judgement.evidence.iter().cloned()).collect(),
        ..judgement
    }
}

/// Ranks of this node that were observed running and are missing from torchrun's table. None if the table lists no rank or
/// one that was not observed, or if the launcher ended a rank that is not listed, which may also have exited with 0.
fn left_early(text: &str, seen: &[u32]) -> Option<Vec<u32>> {
    let table = text.rsplit_once("FAILED\n")?.1;
    table.contains("Root Cause (first observed failure)").then_some(())?;
    let listed: Vec<u32> = table
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("rank")?.split_once(':'))
        .filter_map(|(_, number)| number.split_whitespace().next()?.parse().ok())
        .collect();
    let ended = text.matches("closing signal").count();
    let left: Vec<u32> = seen.iter().copied().filter(|rank| !listed.contains(rank)).collect();
    let all_known = listed.iter().all(|rank| seen.contains(rank));
    // A listed rank that the launcher ended is counted; one that is not listed could be any rank.
    let n_ended_and_listed =
        table.matches("exitcode  : -15").count() + table.matches("exitcode  : -9").count();
    (all_known && !listed.is_empty() && !left.is_empty() && ended <= n_ended_and_listed).then_some(left)
}

/// Rank and code of the first failure in torchrun's table, if the rank ended by itself.
fn own_exit(text: &str) -> Option<(u32, i32)> {
    let table = text.rsplit_once("Root Cause (first observed failure)")?.1;
    let field = |name: &str| {
        let line = table.lines().take(12).find(|line| line.trim_start().starts_with(name))?;
        line.split_once(':')?.1.split_whitespace().next()?.parse::<i32>().ok()
    };
    let (rank, code) = (u32::try_from(field("rank")?).ok()?, field("exitcode")?);
    // An exception exits with 1, and its traceback says more.
    (code > 1).then_some((rank, code))
}

/// The traceback of the first rank that failed: the first printed one that is not a consequence of another failure.
/// Empty if there is none.
pub(crate) fn first_traceback(files: &[std::path::PathBuf]) -> Vec<String> {
    for file in files.iter().rev().filter(|file| file.extension().is_some_and(|end| end == "log")) {
        let Ok(bytes) = read(file) else { continue };
        let text = String::from_utf8_lossy(&bytes);
        let mut blocks = tracebacks(&text);
        let is_own = |block: &Vec<String>| {
            let last = block.last().map(String::as_str).unwrap_or_default();
            !CONSEQUENCES.iter().any(|words| last.contains(words))
        };
        if let Some(at) = blocks.iter().position(is_own) {
            return bounded(&blocks.swap_remove(at));
        }
    }
    Vec::new()
}

/// Other nodes receive it: long lines are cut.
fn bounded(lines: &[String]) -> Vec<String> {
    lines.iter().map(|line| cut(line)).collect()
}

fn read(file: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    std::fs::File::open(file)?.take(MAX_OUTPUT).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Tracebacks in a text; those that ranks print at the same time are separated by the prefix of their lines. An uncaught
/// C++ exception has two lines: `terminate called after throwing …` and `what():  …`.
fn tracebacks(text: &str) -> Vec<Vec<String>> {
    const HEAD: &str = "Traceback (most recent call last)";
    const THROWN: &str = "terminate called after throwing an instance of";
    let lines: Vec<&str> = text.lines().collect();
    let mut blocks = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let what = lines.get(at + 1).filter(|next| line.contains(THROWN) && next.contains("what():"));
        if let Some(what) = what {
            blocks.push(vec![(*line).to_owned(), (*what).to_owned()]);
            continue;
        }
        let Some(column) = line.find(HEAD) else { continue };
        let prefix = line.get(..column).unwrap_or_default();
        let mut block = vec![(*line).to_owned()];
        for next in lines.get(at + 1..).unwrap_or_default().iter().take(4 * MAX_LINES) {
            let Some(body) = next.strip_prefix(prefix) else { continue };
            if block.len() >= MAX_LINES || body.contains(HEAD) {
                break;
            }
            block.push((*next).to_owned());
            // It ends with the error itself: the first line that is not indented.
            if !body.starts_with([' ', '\t']) && !body.is_empty() {
                break;
            }
        }
        blocks.push(block);
    }
    blocks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exit_of_its_own_is_read_from_the_table() {
        let table = |code: i32| {
            format!(
                "Root Cause (first observed failure):\n[0]:\n  time      : x\n  host      : vm\n  rank      : 1 (local_rank: 1)\n  \
                 exitcode  : {code} (pid: 7)\n  error_file: <N/A>\n"
            )
        };
        assert_eq!(own_exit(&table(3)), Some((1, 3)));
        for code in [1, 0, -9] {
            assert_eq!(own_exit(&table(code)), None);
        }
        assert_eq!(own_exit("exitcode : 3"), None);
    }

    #[test]
    fn a_rank_that_no_table_lists_has_left() {
        let row = |rank: u32, code: i32| {
            format!("  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: 7)\n")
        };
        let table = |others: &str, root: &str| {
            format!(
                "t.py FAILED\n---\nFailures:\n{others}---\nRoot Cause (first observed failure):\n[0]:\n{root}"
            )
        };
        let text = table("", &row(1, 1));
        assert_eq!(left_early(&text, &[0, 1]), Some(vec![0]));
        // All are listed; no rank was observed; the launcher ended a rank, which may have exited with 0 for that
        // reason.
        assert_eq!(left_early(&table(&row(0, -15), &row(1, 1)), &[0, 1]), None);
        assert_eq!(left_early(&text, &[]), None);
        let ended = format!("W api.py] Sending process 8 closing signal SIGTERM\n{text}");
        assert_eq!(left_early(&ended, &[0, 1]), None);
        let three = format!("Sending process 8 closing signal SIGTERM\n{}", table(&row(2, -15), &row(1, 1)));
        assert_eq!(left_early(&three, &[0, 1, 2]), Some(vec![0]));
        let judgement = exited_early(Judgement::unjudged("?"), &[0], "so".to_owned());
        assert_eq!((judgement.class, judgement.cause), (Class::Program, Cause::RankExitedEarly.into()));
    }

    #[test]
    fn a_rank_that_is_gone_beside_a_live_launcher_exited_with_0() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let file = folder.path().join("stderr-0001.log");
        let gone = |cause: Cause, rank| Judgement {
            cause: cause.into(),
            culprits: vec![Culprit { rank: Some(rank), ..Culprit::default() }],
            ..Judgement::unjudged("rank 1 is gone")
        };
        let judged = |text: &str, cause: Cause, rank| {
            std::fs::write(&file, text).unwrap_or_else(|error| panic!("{error}"));
            with_live_launcher(gone(cause, rank), std::slice::from_ref(&file), &[0, 1]).cause
        };
        assert_eq!(judged("step 3\n", Cause::PeerProcessDied, 1), Cause::RankExitedEarly);
        // The launcher is ending the others; the rank is another node's; the verdict says something else.
        let ending = "W api.py] Sending process 8 closing signal SIGTERM\n";
        assert_eq!(judged(ending, Cause::PeerProcessDied, 1), Cause::PeerProcessDied);
        assert_eq!(judged("step 3\n", Cause::PeerProcessDied, 5), Cause::PeerProcessDied);
        assert_eq!(judged("step 3\n", Cause::ProcessStopped, 1), Cause::ProcessStopped);
    }

    #[test]
    fn what_the_world_answers_is_no_fault_of_the_program() {
        for (text, expected) in [
            ("rank 1 raised OSError: [Errno 28] No space left on device: '/data'", true),
            ("rank 1 raised OSError: [Errno 116] Stale file handle", true),
            ("rank 1 raised FileNotFoundError: [Errno 2] No such file or directory: 'x'", false),
            ("rank 1 raised ValueError: batch 28", false),
            ("[Errno ", false),
        ] {
            assert_eq!(is_of_the_world(text), expected, "{text}");
        }
    }

    #[test]
    fn the_first_own_traceback_is_found() {
        let folder = tempfile::tempdir().unwrap_or_else(|error| panic!("{error}"));
        let file = folder.path().join("stderr-0001.log");
        let text = "[rank1]: Traceback (most recent call last):\n[rank0]: Traceback (most recent call last):\n\
                    [rank1]:   File \"t.py\", line 3, in f\n[rank0]:   File \"t.py\", line 9, in g\n\
                    [rank1]: RuntimeError: Connection closed by peer\n[rank0]:     x = 1/0\n\
                    [rank0]: ZeroDivisionError: division by zero\nmore\n";
        std::fs::write(&file, text).unwrap_or_else(|error| panic!("{error}"));
        let found = first_traceback(&[file]);
        assert_eq!(found.last().map(String::as_str), Some("[rank0]: ZeroDivisionError: division by zero"));
        assert_eq!(found.len(), 4);
        let file = folder.path().join("stderr-0002.log");
        let text = "terminate called after throwing an instance of 'gloo::EnforceNotMet'\n  what():  [enforce fail] 8192 vs 4\n\
                    [rank0]: Traceback (most recent call last):\n[rank0]:   File \"t.py\", line 9, in g\n\
                    [rank0]: RuntimeError: Connection reset by peer\n";
        std::fs::write(&file, text).unwrap_or_else(|error| panic!("{error}"));
        let found = first_traceback(&[file]);
        assert_eq!(found.last().map(String::as_str), Some("  what():  [enforce fail] 8192 vs 4"));
        assert!(first_traceback(&[folder.path().join("absent")]).is_empty());
    }
}
