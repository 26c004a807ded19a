#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "tests read recordings and may panic")]

mod hostile;
mod laws;
mod lessons;
mod real;
mod versions;
mod writer;

use std::fmt::Write as _;

use ringleader_model::{Fact, FlightDump, FlightOp, NoteKind, OpState};

use crate::{Extract, Limits, Scratch};

/// Reads bytes as a file of this name.
fn read(path: &str, bytes: &[u8]) -> Extract {
    crate::read(path, &mut &*bytes, &mut Scratch::default(), &Limits::default())
}

/// The dump of an extract, if it has one.
fn dump_of(extract: &Extract) -> Option<&FlightDump> {
    extract
        .observations
        .iter()
        .find_map(|o| if let Fact::Flight(dump) = &o.fact { Some(&**dump) } else { None })
}

/// An operation with all that its indices refer to: what the entry says, in one line.
fn line(dump: &FlightDump, op: &FlightOp) -> String {
    let group = dump.groups.get(op.group as usize).unwrap();
    let signature = dump.signatures.get(op.signature as usize).unwrap();
    let name = match (signature.me, signature.peer) {
        (Some(me), Some(peer)) => format!("{} {}:{}", signature.kind.name(), me.0, peer.0),
        _ if signature.name.is_empty() => signature.kind.name().to_owned(),
        _ => signature.name.to_string(),
    };
    let state = match op.state {
        OpState::Scheduled => "scheduled",
        OpState::Started => "started",
        OpState::Completed => "completed",
    };
    let mut text = format!(
        "{} {}:{}:{} {}/{} {name} {:?}{} {:?}{} {} {} {} {state} r{} p{} {}ms {}us",
        op.record_id,
        group.id,
        group.name,
        group.desc,
        op.seq,
        op.p2p_seq,
        signature.input_sizes,
        signature.input_dtypes.join(","),
        signature.output_sizes,
        signature.output_dtypes.join(","),
        op.created_ns,
        op.started_ns,
        op.completed_ns,
        op.flags & FlightOp::RETIRED,
        u8::from(op.is_p2p()),
        op.timeout_ms,
        op.duration_us,
    );
    for frame in dump.stacks.get(op.stack as usize).unwrap() {
        let frame = dump.frames.get(*frame as usize).unwrap();
        write!(text, " {}@{}:{}", frame.function, frame.file, frame.line).unwrap();
    }
    text
}

fn lines(dump: &FlightDump) -> Vec<String> {
    dump.ops.iter().map(|op| line(dump, op)).collect()
}

/// Checksum (FNV-1a, 64 bits) of all lines, each with its line end.
fn checksum(lines: &[String]) -> u64 {
    lines
        .iter()
        .flat_map(|l| l.bytes().chain(*b"\n"))
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A dump in a few lines.
fn summary(extract: &Extract) -> String {
    let mut out = String::new();
    let Some(dump) = dump_of(extract) else {
        writeln!(out, "no dump; kinds {:?}", extract.sources.first().unwrap().kinds).unwrap();
        for note in &extract.notes {
            writeln!(out, "note {:?} at {}: {}", note.kind, note.cite.start, note.text).unwrap();
        }
        return out;
    };
    let lines = lines(dump);
    writeln!(
        out,
        "version {} library {} hint {} ops {} frames {} stacks {} signatures {} threads {:?}{} sum {:016x}",
        dump.version,
        dump.library_version.as_deref().unwrap_or("-"),
        dump.name_hint.map_or("-".to_owned(), |r| r.0.to_string()),
        lines.len(),
        dump.frames.len(),
        dump.stacks.len(),
        dump.signatures.len(),
        dump.thread_ids,
        if dump.truncated { " truncated" } else { "" },
        checksum(&lines),
    )
    .unwrap();
    for g in &dump.groups {
        let ranks: Vec<u32> = g.ranks.iter().map(|r| r.0).collect();
        let status = (g.last_enqueued, g.last_started, g.last_completed);
        writeln!(
            out,
            "group {:?} name {:?} desc {:?} ranks {ranks:?} status {status:?}",
            g.id, g.name, g.desc
        )
        .unwrap();
    }
    for l in lines.first().into_iter().chain(lines.get(1..).and_then(<[String]>::last)) {
        writeln!(out, "{l}").unwrap();
    }
    for note in &extract.notes {
        writeln!(out, "note {:?} at {}: {}", note.kind, note.cite.start, note.text).unwrap();
    }
    out
}

fn note_kinds(extract: &Extract) -> Vec<NoteKind> {
    extract.notes.iter().map(|n| n.kind).collect()
}
