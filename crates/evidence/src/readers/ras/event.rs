//! Events of monitor mode, NCCL 2.29.2 and later, text and JSON.
//!
//! A peer that is dead, or that fell silent and was not heard again before the recording ends, becomes a report of its
//! own with the time of the event.

use ringleader_model::{Cite, Fact, Pid, RasPeer, RasReport, SourceKind, WallTime, Who};
use serde_json::Value;

use super::{json, peer};
use crate::ground::{Document, Line, Sink};

/// Peers that are gone by what was heard so far.
#[derive(Default)]
pub(super) struct Events {
    gone: Vec<Gone>,
}

struct Gone {
    cite: Cite,
    at: Option<WallTime>,
    peer: RasPeer,
    text: Box<[u8]>,
}

/// Most peers that are followed.
const MAX_PEERS: usize = 10_000;

impl Events {
    /// `[2026-11-20 08:21:32] PEER_DEAD: Process 1347 on node 192.0.2.2 managing GPU 2`; the stamp may have been taken
    /// off as a prefix.
    pub(super) fn line(&mut self, line: &Line<'_>, body: &[u8], sink: &mut Sink<'_>) -> bool {
        let Ok(words) = std::str::from_utf8(body) else { return false };
        let (stamp, event) = match words.strip_prefix('[') {
            Some(rest) => match rest.split_once("] ") {
                Some(parts) => parts,
                None => return false,
            },
            None => ("", words),
        };
        let Some((event, rest)) = event.split_once(':').filter(|(name, _)| is_event(name)) else {
            return false;
        };
        let rest = rest.trim();
        let mut found = peer::process(rest).unwrap_or_else(|| RasPeer {
            host: peer::host(rest.split([' ', '<']).next().unwrap_or_default()),
            ..RasPeer::default()
        });
        found.line = line.number;
        let at = crate::ground::clock::iso(stamp).or(line.tag.at);
        self.heard(event, found, sink.cite(line.number, line.offset, line.end()), at, body, sink);
        true
    }

    /// One event object, if the document is one.
    pub(super) fn json(&mut self, document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
        let value = document.value;
        let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let Some(event) = text(value, "event").filter(|e| is_event(e)) else { return false };
        let peer = value.get("peer").unwrap_or(&Value::Null);
        let address = text(peer, "addr").unwrap_or_default();
        let found = RasPeer {
            line: document.line,
            host: peer::host(
                &text(peer, "host").unwrap_or_else(|| address.split('<').next().unwrap_or_default().into()),
            ),
            pid: json::number(peer.get("pid")).map(Pid),
            cuda_dev: match peer.get("cuda_devs").and_then(Value::as_array).map(Vec::as_slice) {
                Some([one]) => json::number(Some(one)),
                _ => None,
            },
            ..RasPeer::default()
        };
        let at = text(value, "timestamp").as_deref().and_then(crate::ground::clock::iso);
        self.heard(&event, found, document.cite(sink), at, document.bytes, sink);
        true
    }

    fn heard(
        &mut self,
        event: &str,
        peer: RasPeer,
        cite: Cite,
        at: Option<WallTime>,
        text: &[u8],
        sink: &mut Sink<'_>,
    ) {
        sink.saw(SourceKind::Ras);
        let dead = matches!(event, "PEER_DEAD" | "PEER_TIMEOUT_DEAD");
        let known = self.gone.iter().position(|g| g.peer.host == peer.host && g.peer.pid == peer.pid);
        match (event, known) {
            ("PEER_RECOVERED", Some(known)) if self.gone.get(known).is_some_and(|g| !g.peer.dead) => {
                self.gone.remove(known);
            }
            // The first state of a peer counts, unless it got worse.
            ("PEER_DEAD" | "PEER_TIMEOUT_DEAD" | "PEER_UNRESPONSIVE", _) => {
                let gone =
                    Gone { cite, at, peer: RasPeer { unresponsive: true, dead, ..peer }, text: text.into() };
                let has_room = self.gone.len() < MAX_PEERS;
                match known.and_then(|k| self.gone.get_mut(k)) {
                    Some(known) if dead && !known.peer.dead => *known = gone,
                    Some(_) => {}
                    None if has_room => self.gone.push(gone),
                    None => {}
                }
            }
            _ => {}
        }
    }

    pub(super) fn finish(self, sink: &mut Sink<'_>) {
        for gone in self.gone {
            let report =
                RasReport { at: gone.at, missing_processes: vec![gone.peer], ..RasReport::default() };
            sink.push(gone.cite, Who::default(), gone.at, Fact::Ras(report.into()), &gone.text);
        }
    }
}

fn is_event(name: &str) -> bool {
    name.strip_prefix("PEER_")
        .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
}
