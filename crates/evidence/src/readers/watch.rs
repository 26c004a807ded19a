//! Events of `ringleader watch`, `ringleader.watch.v1`: what `--json` prints, one object a line, and what a bundle that a
//! watcher took says of why it was taken.
//!
//! ```text
//! {"schema": "ringleader.watch.v1", "at": 1795308064.1, "event": "stall", "comm": "7e7f3342744da618", "since": 1795308055.7,
//!  "after_s": 8.4, "expected_s": 8.0, "shape": "not-started", "text": "…", "suspects": [0, 1], "states": […]}
//! ```
//!
//! Written by `crates/watch`, whose types hold the format. Only stalls, that they are over, slow links, and who was which rank,
//! say something of the job that the rest of the evidence does not; a verdict among the events is an answer, no evidence.
//! Ranks that are late show in the rings, too, but these hold the last operations only: what the watcher is sure of counts.

use ringleader_model::{
    Fact, LocalRank, NoteKind, Pid, Rank, SourceKind, StallShape, WallTime, WatchEvent, WatchedEnd,
    WatchedLate, WatchedLink, WatchedStall, Who,
};
use serde_json::Value;

use crate::ground::{Document, Sink, bounded_text};

/// Suspects that are read.
const MAX_SUSPECTS: usize = 1024;
/// Processes of one event that are read.
const MAX_RANKS: usize = 16_384;
/// Seconds since 1970 beyond which a time is none: year 2200.
const MAX_SECONDS: f64 = 7_258_118_400.0;

/// Less often late than this is a habit that healthy jobs have, too.
const MIN_LATE_SHARE: f64 = 0.8;
/// So is a rank that costs the others less of their time.
const MIN_COST: f64 = 0.3;
/// On balance no rank of a healthy job cost the others as much, whatever it did: the most was 0.41, on GPUs that jobs share.
const CERTAIN_COST: f64 = 0.45;
/// Where whole seconds of the job show that its calls are missing: of sixteen healthy jobs on GPUs that jobs share, the most was 0.03.
const CALLS_COST: f64 = 0.15;
/// A rank that costs the others less, and is late at times alone, is like any other.
const LEAST_COST: f64 = 0.1;

/// Whether it says that a rank is late more than others are; and whether it does so without doubt.
fn lateness(document: &Document<'_>) -> (bool, bool) {
    let value = |key: &str| document.value.get(key);
    let number = |key: &str| value(key).and_then(Value::as_f64).unwrap_or_default();
    let is_persistent = value("persistent").and_then(Value::as_bool) == Some(true);
    let is_usual = number("share") >= MIN_LATE_SHARE && number("cost") >= MIN_COST;
    let is_explained = value("confidence").and_then(Value::as_str) == Some("high");
    let by_calls = value("over_s").is_some() && value("of").and_then(Value::as_str) == Some("host");
    let least = if by_calls { CALLS_COST } else { CERTAIN_COST };
    let is_sure = is_persistent && (number("cost") >= least || is_usual && is_explained);
    (is_persistent || number("cost") >= LEAST_COST, is_sure)
}

/// Reads an event; false if the document is none.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    let word = |key: &str| document.value.get(key).and_then(Value::as_str).unwrap_or_default();
    let Some(version) = word("schema").strip_prefix("ringleader.watch.v") else { return false };
    sink.saw(SourceKind::Watch);
    let cite = document.cite(sink);
    if version != "1" {
        let text = format!("an event of format {version}, this program reads 1; a newer ringleader reads it");
        sink.note(cite, NoteKind::UnknownVersion, text);
        return true;
    }
    let seconds = |key: &str| document.value.get(key).and_then(Value::as_f64).and_then(ns);
    let event = match word("event") {
        "stall" => {
            let (Some(since_ns), Some(after_ns)) = (seconds("since"), seconds("after_s")) else {
                let text = "a stall without a start time; it was left out".to_owned();
                sink.note(cite, NoteKind::Malformed, text);
                return true;
            };
            let suspects = document.value.get("suspects").and_then(Value::as_array).into_iter().flatten();
            let suspects = suspects.filter_map(|rank| u32::try_from(rank.as_u64()?).ok().map(Rank));
            let limit = sink.limits.max_text_chars;
            WatchEvent::Stall(Box::new(WatchedStall {
                comm: number(word("comm")),
                since_ns,
                after_ns,
                expected_ns: seconds("expected_s").unwrap_or_default(),
                shape: match word("shape") {
                    "start" => StallShape::Start,
                    "process" => StallShape::Process,
                    _ => StallShape::Other,
                },
                suspects: suspects.take(MAX_SUSPECTS).collect(),
                text: bounded_text(word("text").as_bytes(), limit).into(),
            }))
        }
        "ranks" => {
            let ranks = || document.value.get("ranks").and_then(Value::as_array).into_iter().flatten();
            let began = |rank: &Value| rank.get("began").and_then(Value::as_f64).and_then(ns);
            if let Some(began_ns) = ranks().filter_map(began).min() {
                let at = Some(WallTime { ns: began_ns, error_ns: 0, has_year: true });
                let event = WatchEvent::Began(began_ns);
                sink.push(cite, Who::default(), at, Fact::Watch(event), b"watch: the first process began");
            }
            let is_gone =
                |rank: &&Value| matches!(rank.get("state").and_then(Value::as_str), Some("dead" | "zombie"));
            let ended: Vec<WatchedEnd> = ranks().filter(is_gone).filter_map(end).take(MAX_RANKS).collect();
            if !ended.is_empty() {
                let is_all = ranks().all(|rank| is_gone(&rank));
                let text = format!("watch: {} processes have ended", ended.len());
                let event = Fact::Watch(WatchEvent::Gone(ended, is_all));
                sink.push(cite, Who::default(), None, event, text.as_bytes());
            }
            let ranks = ranks();
            WatchEvent::Ranks(ranks.filter_map(process).take(MAX_RANKS).collect())
        }
        // `over` is no recovery: the ranks of the stall have ended.
        "recovered" => WatchEvent::Recovered(number(word("comm"))),
        "straggler" if word("of") == "network" => {
            let rank = |key: &str| document.value.get(key)?.as_u64()?.try_into().ok().map(Rank);
            let Some(own) = rank("rank") else {
                let text = "a slow link without a rank; it was left out".to_owned();
                sink.note(cite, NoteKind::Malformed, text);
                return true;
            };
            let text = bounded_text(word("text").as_bytes(), sink.limits.max_text_chars).into();
            WatchEvent::SlowLink(Box::new(WatchedLink { rank: own, peer: rank("peer"), text }))
        }
        "straggler" => {
            let (is_late, is_sure) = lateness(document);
            if !is_late {
                return true;
            }
            let rank =
                document.value.get("rank").and_then(Value::as_u64).and_then(|rank| rank.try_into().ok());
            let Some(rank) = rank.map(Rank) else { return true };
            let text = bounded_text(word("text").as_bytes(), sink.limits.max_text_chars).into();
            let cost = document.value.get("cost").and_then(Value::as_f64);
            let cost_percent = cost.map(|cost| (cost.clamp(0.0, 1.0) * 100.0) as u32);
            WatchEvent::Late(Box::new(WatchedLate { rank, is_sure, cost_percent, text }))
        }
        _ => return true,
    };
    let at = seconds("at").map(|ns| WallTime { ns, error_ns: 0, has_year: true });
    let text = match &event {
        WatchEvent::Stall(stall) => {
            let after_s = stall.after_ns as f64 / 1e9;
            // Without a rhythm nothing is usual.
            let usual = match stall.expected_ns {
                0 => String::new(),
                ns => format!(", {:.1} s would be usual", ns as f64 / 1e9),
            };
            format!("watch: no progress for {after_s:.1} s{usual}; {}", stall.text)
        }
        WatchEvent::Recovered(_) => "watch: moves again".to_owned(),
        WatchEvent::Began(_) => "watch: the first process began".to_owned(),
        WatchEvent::SlowLink(link) => format!("watch: {}", link.text),
        WatchEvent::Late(late) => format!("watch: {}", late.text),
        WatchEvent::Gone(..) => "watch: processes have ended".to_owned(),
        WatchEvent::Ranks(ranks) => format!("watch: {} processes with a rank", ranks.len()),
    };
    sink.push(cite, Who::default(), at, Fact::Watch(event), text.as_bytes());
    true
}

/// When a process with a rank ended, and how.
fn end(value: &Value) -> Option<WatchedEnd> {
    let rank = value.get("rank").and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok()).map(Rank)?;
    let at_ns = value.get("since").and_then(Value::as_f64).and_then(ns)?;
    Some(WatchedEnd { rank, at_ns, exit_code: value.get("exit_code").and_then(Value::as_i64) })
}

/// A process with its rank.
fn process(value: &Value) -> Option<Who> {
    let number = |key: &str| value.get(key).and_then(Value::as_u64).and_then(|n| u32::try_from(n).ok());
    let host = value.get("host").and_then(Value::as_str).filter(|host| !host.is_empty());
    Some(Who {
        rank: Some(Rank(number("rank")?)),
        local_rank: number("local_rank").map(LocalRank),
        host: host.map(crate::ground::host_of),
        pid: Some(Pid(number("pid").filter(|pid| *pid != 0)?)),
    })
}

/// NCCL's number of a communicator. Those that the watcher has made up, for interfaces that tell none, begin with `?`.
fn number(comm: &str) -> Option<u64> {
    u64::from_str_radix(comm, 16).ok()
}

/// Seconds as nanoseconds, to the microsecond: more digits a number since 1970 does not hold. None for what is no time.
fn ns(seconds: f64) -> Option<i64> {
    (0.0..MAX_SECONDS).contains(&seconds).then(|| (seconds * 1e6).round() as i64 * 1_000)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ringleader_model::{Fact, NoteKind, SourceKind, WatchEvent, WatchedStall};

    use crate::{Extract, Limits, Scratch};

    const STALL: &str = r#"{"schema": "ringleader.watch.v1", "at": 1795308064.5, "event": "stall",
        "comm": "7e7f3342744da618", "comm_name": "default_pg", "op": {"kind": "AllReduce", "number": 0}, "since": 1795308055.25,
        "after_s": 9.25, "expected_s": 8.0, "shape": "never-entered", "text": "rank 3 has not entered AllReduce 0",
        "states": [{"rank": 3, "host": "n0", "pid": 7, "state": "waiting", "detail": ""}], "n_states": [["waiting", 1]],
        "suspects": [3, 900000, 4294967296, "x"], "victims": []}"#;

    fn read(text: &[u8]) -> Extract {
        crate::read("stall.json", &mut &*text, &mut Scratch::default(), &Limits::default())
    }

    fn events(extract: &Extract) -> Vec<&WatchEvent> {
        let facts = extract.observations.iter();
        facts.filter_map(|o| if let Fact::Watch(event) = &o.fact { Some(event) } else { None }).collect()
    }

    #[test]
    fn a_stall_as_the_watcher_prints_it() {
        let extract = read(STALL.as_bytes());
        assert_eq!(extract.sources[0].kinds, [SourceKind::Watch]);
        let expected = WatchedStall {
            comm: Some(0x7e7f_3342_744d_a618),
            since_ns: 1_795_308_055_250_000_000,
            after_ns: 9_250_000_000,
            expected_ns: 8_000_000_000,
            shape: ringleader_model::StallShape::Other,
            suspects: [3, 900_000].into_iter().map(ringleader_model::Rank).collect(),
            text: "rank 3 has not entered AllReduce 0".into(),
        };
        assert_eq!(events(&extract), [&WatchEvent::Stall(Box::new(expected))]);
        let observation = &extract.observations[0];
        assert_eq!(observation.at.map(|at| at.ns), Some(1_795_308_064_500_000_000));
        assert_eq!(
            &*observation.text,
            "watch: no progress for 9.2 s, 8.0 s would be usual; rank 3 has not entered AllReduce 0"
        );
    }

    #[test]
    fn a_whole_run_line_by_line() {
        let stall = STALL.replace('\n', " ");
        let text = format!(
            "{{\"schema\": \"ringleader.watch.v1\", \"at\": 1.0, \"event\": \"watching\", \"nodes\": 1}}\n{stall}\n\
             {{\"schema\": \"ringleader.watch.v1\", \"at\": 2.0, \"event\": \"recovered\", \"comm\": \"\", \"after_s\": 3.0}}\n\
             {{\"schema\": \"ringleader.watch.v1\", \"at\": 3.0, \"event\": \"verdict\", \"report\": {{\"verdict\": {{}}}}}}\n"
        );
        let extract = read(text.as_bytes());
        let events = events(&extract);
        assert!(matches!(events[..], [WatchEvent::Stall(_), WatchEvent::Recovered(None)]), "{events:?}");
        assert_eq!(extract.observations[0].cite.line, 2);
        assert!(extract.notes.is_empty(), "{:?}", extract.notes);
    }

    #[test]
    fn who_was_which_rank() {
        let text = r#"{"schema": "ringleader.watch.v1", "at": 1.0, "event": "ranks", "ranks": [
            {"rank": 2, "local_rank": 0, "host": "n1.cluster", "pid": 17, "state": "dead", "began": 7.5},
            {"rank": 3, "pid": 0}, 4]}"#;
        let extract = read(text.as_bytes());
        let [WatchEvent::Began(began), WatchEvent::Ranks(ranks)] = &events(&extract)[..] else {
            panic!("{extract:?}")
        };
        assert_eq!(*began, 7_500_000_000);
        assert_eq!(ranks.len(), 1);
        assert_eq!((ranks[0].host.as_deref(), ranks[0].pid.map(|pid| pid.0)), (Some("n1"), Some(17)));
    }

    #[test]
    fn who_ended_when_and_how() {
        let ended = |third: &str| {
            let text = format!(
                r#"{{"schema": "ringleader.watch.v1", "at": 9.0, "event": "ranks", "ranks": [
                {{"rank": 0, "pid": 5, "state": "dead", "since": 7.5}},
                {{"rank": 1, "pid": 6, "state": "zombie", "since": 8.5, "exit_code": -9}},
                {{"rank": 2, "pid": 7, "state": "{third}", "since": 8.0}}, {{"rank": 3, "state": "dead"}}]}}"#
            );
            let extract = read(text.as_bytes());
            let found = events(&extract).into_iter().find_map(|event| match event {
                WatchEvent::Gone(ended, is_all) => Some((ended.clone(), *is_all)),
                _ => None,
            });
            found.unwrap_or_default()
        };
        let (some, is_all) = ended("alive");
        let at = |rank, at_ns, exit_code| ringleader_model::WatchedEnd {
            rank: ringleader_model::Rank(rank),
            at_ns,
            exit_code,
        };
        assert_eq!(some, [at(0, 7_500_000_000, None), at(1, 8_500_000_000, Some(-9))]);
        assert!(!is_all);
        assert!(ended("dead").1);
    }

    #[test]
    fn a_slow_link_and_a_rank_that_is_late() {
        let text = r#"{"schema": "ringleader.watch.v1", "at": 1.0, "event": "straggler", "rank": 2, "late_ms": 9.5, "share": 0.9,
            "of": "network", "comm": "7e", "peer": null, "text": "the link of rank 2 (10.0.0.2) is slow"}"#;
        let extract = read(text.as_bytes());
        let [WatchEvent::SlowLink(link)] = &events(&extract)[..] else { panic!("{extract:?}") };
        assert_eq!((link.rank.0, link.peer), (2, None));
        assert_eq!(&*extract.observations[0].text, "watch: the link of rank 2 (10.0.0.2) is slow");
        let pair = read(text.replace("null", "7").as_bytes());
        let [WatchEvent::SlowLink(link)] = &events(&pair)[..] else { panic!("{pair:?}") };
        assert_eq!(link.peer.map(|rank| rank.0), Some(7));
        let late = text.replace("network", "host");
        assert_eq!(events(&read(late.as_bytes())), [] as [&WatchEvent; 0]);
        let sure = late
            .replace("\"share\"", "\"persistent\": true, \"confidence\": \"high\", \"cost\": 0.4, \"share\"");
        let is_sure = |text: &str| match events(&read(text.as_bytes()))[..] {
            [WatchEvent::Late(late)] if late.rank.0 == 2 => late.is_sure,
            _ => panic!("no word on rank 2"),
        };
        assert!(is_sure(&sure));
        let sure = sure.replace("0.4", "0.5");
        let less = sure.replace("0.5", "0.32");
        assert!(
            is_sure(&less) && !is_sure(&less.replace("0.9", "0.7")) && !is_sure(&sure.replace("0.5", "0.2"))
        );
        // What costs so much is late, however often; at times alone it is worth a word and no more.
        assert!(is_sure(&sure.replace("0.9", "0.3")) && !is_sure(&sure.replace("true", "false")));
        // Calls that are missing second by second are no noise.
        let calls = sure.replace("0.5", "0.2").replace("\"share\"", "\"over_s\": 24, \"share\"");
        assert!(is_sure(&calls) && !is_sure(&calls.replace("0.2", "0.13")));
        assert!(!is_sure(&calls.replace("\"host\"", "\"compute\"")));
        let rarely = sure.replace("true", "false").replace("0.5", "0.05");
        assert_eq!(events(&read(rarely.as_bytes())), [] as [&WatchEvent; 0]);
        let nobody = read(text.replace("\"rank\": 2", "\"rank\": -2").as_bytes());
        assert_eq!((nobody.observations.len(), nobody.notes[0].kind), (0, NoteKind::Malformed));
    }

    #[test]
    fn what_is_no_event_of_ours() {
        let extract = read(STALL.replace("watch.v1", "watch.v2").as_bytes());
        assert_eq!(extract.notes[0].kind, NoteKind::UnknownVersion);
        for forged in [
            STALL.replace("1795308055.25", "1e300"),
            STALL.replace("1795308055.25", "-5"),
            STALL.replace("\"after_s\": 9.25,", ""),
        ] {
            let extract = read(forged.as_bytes());
            assert!(extract.observations.is_empty());
            assert_eq!(extract.notes[0].kind, NoteKind::Malformed, "{forged}");
        }
        // Cut in the middle it is said to be so.
        assert!(!read(&STALL.as_bytes()[..STALL.len() / 2]).notes.is_empty());
    }

    proptest! {
        #[test]
        fn any_change_is_read_without_a_panic(at in 0..STALL.len(), bytes in prop::collection::vec(any::<u8>(), 0..8)) {
            let mut changed = STALL.as_bytes().to_vec();
            let end = (at + bytes.len()).min(changed.len());
            changed.splice(at..end, bytes);
            for observation in read(&changed).observations {
                if let Fact::Watch(WatchEvent::Stall(stall)) = observation.fact {
                    prop_assert!(stall.since_ns >= 0 && stall.after_ns >= 0 && stall.expected_ns >= 0);
                }
            }
        }
    }
}
