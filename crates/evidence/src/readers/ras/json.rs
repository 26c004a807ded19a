//! The JSON form, NCCL 2.28.7 and later. It states every rank and judges nothing.

use ringleader_model::{GroupRank, OpKind, Pid, RasComm, RasPeer, RasRank, RasReport};
use serde_json::Value;

use super::peer;
use crate::ground::Document;

/// Reads a report, if the document is one.
pub(super) fn report(document: &Document<'_>) -> Option<RasReport> {
    let value = document.value;
    let comms = value.get("communicators")?.as_array()?;
    value.get("nccl_version").or(value.get("communicators_count"))?;
    let mut lines = RankLines::new(document);
    let timeouts = value.get("ras").and_then(|r| r.get("timeouts_count"));
    Some(RasReport {
        nccl_version: value.get("nccl_version").and_then(Value::as_str).map(Into::into),
        at: value.get("timestamp").and_then(Value::as_str).and_then(crate::ground::clock::iso),
        comms: comms.iter().map(|c| comm(c, &mut lines)).collect(),
        n_timeouts: number(timeouts).unwrap_or(0),
        unavailable: comms.is_empty().then(|| "no communicator in the report".into()),
        ..RasReport::default()
    })
}

fn comm(value: &Value, lines: &mut RankLines<'_>) -> RasComm {
    let list = |key: &str| value.get(key).and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let ranks: Vec<RasRank> = list("ranks").iter().map(|r| rank(r, lines)).collect();
    let missing: Vec<RasPeer> = list("missing_ranks").iter().map(|r| named(r, lines)).collect();
    let hash = value.get("hash").and_then(Value::as_str).unwrap_or_default();
    let stated: Option<u32> = number(value.get("ranks_count"));
    RasComm {
        hash: u64::from_str_radix(hash.strip_prefix("0x").unwrap_or(hash), 16).unwrap_or(0),
        size: number(value.get("size")).unwrap_or(0),
        listed_all: stated.is_none_or(|n| n as usize == ranks.len()),
        ranks,
        missing,
        ..RasComm::default()
    }
}

fn rank(value: &Value, lines: &mut RankLines<'_>) -> RasRank {
    let status = value.get("status");
    let code = |key: &str| status.and_then(|s| s.get(key)?.as_i64());
    let flag = |key: &str| status.and_then(|s| s.get(key)?.as_bool()).unwrap_or(false);
    let counts = value.get("collective_counts").and_then(Value::as_object);
    let counts = counts.into_iter().flatten().filter_map(|(function, count)| {
        let kind = OpKind::from_nccl(function);
        Some((kind, count.as_u64()?)).filter(|_| kind != OpKind::Other)
    });
    let mut counts: Vec<(OpKind, u64)> = counts.collect();
    counts.sort_unstable();
    RasRank {
        peer: named(value, lines),
        counts,
        status: None,
        init_state: code("init_state"),
        async_error: code("async_error"),
        aborting: flag("abort_flag"),
        finalizing: flag("finalize_called") || flag("destroy_flag"),
    }
}

fn named(value: &Value, lines: &mut RankLines<'_>) -> RasPeer {
    let flag = |key: &str| value.get("status").and_then(|s| s.get(key)?.as_bool()).unwrap_or(false);
    let rank: Option<u32> = number(value.get("rank"));
    RasPeer {
        line: if rank.is_some() { lines.next() } else { 0 },
        rank: rank.map(GroupRank),
        host: value.get("host").and_then(Value::as_str).and_then(peer::host),
        pid: number(value.get("pid")).map(Pid),
        cuda_dev: number(value.get("cuda_dev")),
        unresponsive: flag("unresponsive"),
        dead: flag("considered_dead"),
    }
}

pub(super) fn number(value: Option<&Value>) -> Option<u32> {
    u32::try_from(value?.as_u64()?).ok()
}

/// Lines of the `"rank":` keys in order: the parsed values keep none.
struct RankLines<'a> {
    rest: &'a [u8],
    line: u32,
}

impl<'a> RankLines<'a> {
    fn new(document: &Document<'a>) -> Self {
        Self { rest: document.bytes, line: document.line }
    }

    fn next(&mut self) -> u32 {
        let key = b"\"rank\":";
        let Some((before, after)) =
            memchr::memmem::find(self.rest, key).and_then(|at| self.rest.split_at_checked(at + key.len()))
        else {
            return 0;
        };
        self.line = self.line.saturating_add(memchr::memchr_iter(b'\n', before).count() as u32);
        self.rest = after;
        self.line
    }
}
