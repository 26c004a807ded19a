//! Structured logs of the field, whatever their keys.

use std::fmt::Write as _;

use ringleader_model::{Fact, FormWeight, TorchEvent};

use super::*;
use crate::tell;

fn lines(line: &str) -> Vec<String> {
    unpack(line.as_bytes()).map(|record| record.lines).unwrap_or_default()
}

#[test]
fn the_text_is_found_whatever_its_key() {
    for line in [
        r#"{"ts":"2026-11-20T08:21:34Z","level":"error","msg":"peer is gone"}"#,
        r#"{"time": 1795162894.5, "level": "error", "message": "peer is gone"}"#,
        r#"{"log":"peer is gone\n","stream":"stderr","time":"2026-11-20T08:21:34.5Z"}"#,
        r#"{"event": "peer is gone", "level": "error", "timestamp": "2026-11-20 08:21:34"}"#,
        r#"{"@timestamp":"2026-11-20T08:21:34Z","fields":{"message":"peer is gone"},"level":"error"}"#,
        r#"{"text": "x | peer is gone", "record": {"level": {"name": "ERROR", "no": 40}, "message": "peer is gone"}}"#,
        r#"{"log":"{\"level\":\"error\",\"msg\":\"peer is gone\"}\n","stream":"stderr","time":"2026-11-20T08:21:34.5Z"}"#,
    ] {
        assert_eq!(lines(line), ["peer is gone"], "{line}");
    }
    for line in [r#"{"loss": 2.31, "epoch": 3}"#, r#"{"log": 3}"#, "{'msg': 'x'}", r#"{"msg": "cut"#] {
        assert!(lines(line).is_empty(), "{line}");
    }
}

#[test]
fn level_time_rank_and_host_are_kept() {
    let line = r#"{"ts":"2026-11-20T08:21:34Z","level":"error","rank":3,"hostname":"node7","msg":"x"}"#;
    let record = unpack(line.as_bytes()).unwrap_or_default();
    assert_eq!(record.level, Some(Level::Error));
    assert_eq!(record.rank, Some(Rank(3)));
    assert_eq!(record.host.as_deref(), Some("node7"));
    assert_eq!(record.at.map(|at| at.ns / 1_000_000_000), Some(1_795_162_894));
    let ms = unpack(br#"{"time":1795162894500,"level":50,"msg":"x"}"#).unwrap_or_default();
    assert_eq!((ms.at.map(|at| at.ns / 1_000_000), ms.is_numbered), (Some(1_795_162_894_500), true));
}

/// An error among thousands of lines is a statement with its level, and a traceback within a string is read.
#[test]
fn errors_of_a_structured_log_are_read() {
    let mut log = String::new();
    for step in 0..5_000 {
        let _ = writeln!(
            log,
            "{{\"ts\": \"2026-11-20T08:{:02}:{:02}Z\", \"level\": \"info\", \"msg\": \"step done\", \"step\": {step}, \"loss\": 2.31}}",
            step / 60 % 60,
            step % 60
        );
        if step == 3_000 {
            log.push_str("{\"ts\": \"2026-11-20T09:00:00Z\", \"level\": \"error\", \"rank\": 5, \"msg\": \"peer is gone\"}\n");
        }
        if step == 4_000 {
            log.push_str("{\"level\": \"critical\", \"message\": \"training ends\", \"rank\": 2, \"exc_info\": \"Traceback (most recent call last):\\n  File \\\"/srv/train.py\\\", line 3, in step\\n    f()\\nValueError: bad shard\"}\n");
        }
    }
    let extract = tell::read_all("x", log.as_bytes());
    let said: Vec<_> = extract
        .observations
        .iter()
        .filter_map(|o| match &o.fact {
            Fact::Said(said) => {
                Some((o.cite.line, o.who.rank.map(|r| r.0), said.form.weight, o.text.to_string()))
            }
            _ => None,
        })
        .collect();
    assert!(said.contains(&(3_002, Some(5), FormWeight::Strong, "ERROR: peer is gone".into())), "{said:?}");
    let raised = extract.observations.iter().find_map(|o| match &o.fact {
        Fact::Torch(TorchEvent::Exception(raised)) => {
            Some((raised.class.to_string(), o.who.rank.map(|r| r.0), o.cite.line))
        }
        _ => None,
    });
    assert_eq!(raised, Some(("ValueError".into(), Some(2), 4_003)));
    let progress = extract.observations.iter().find_map(|o| match &o.fact {
        Fact::Progress(progress) => {
            Some((progress.n_lines, progress.last.map(|c| c.line), progress.last_at.is_some()))
        }
        _ => None,
    });
    assert_eq!(progress, Some((5_000, Some(5_002), true)));
}

/// A line that says at the level of information that something failed weighs little.
#[test]
fn the_level_counts() {
    let log = "{\"level\":\"info\",\"ts\":1795162894,\"msg\":\"2 retries failed\"}\n".repeat(3);
    let extract = tell::read_all("x", log.as_bytes());
    let weight = extract.observations.iter().find_map(|o| match &o.fact {
        Fact::Said(said) => Some((said.form.weight, said.count)),
        _ => None,
    });
    assert!(weight.is_none_or(|(weight, _)| weight == FormWeight::Weak), "{weight:?}");
}
