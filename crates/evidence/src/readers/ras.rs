//! NCCL RAS: what the service at `localhost:28028` of NCCL 2.24 and later answers, as `ncclras`, `nc` or a script saved
//! it.
//!
//! Written by NCCL (`src/ras/client_support.cc`; the client is `src/ras/client.cc`). Forms:
//! * text of `STATUS` and `VERBOSE STATUS`, see [`text`]:
//!   `Rank 2 has launched up to operation 47 -- GPU 2 managed by process 1347 on node 192.0.2.2`
//! * JSON of 2.28.7 and later, see [`json`]; after `OK` lines (the answers to `TIMEOUT` and `SET FORMAT`), as it comes
//! * events of `MONITOR`, 2.29.2 and later, see [`event`]:
//!   `[2026-11-20 08:21:32] PEER_DEAD: Process 1347 on node 192.0.2.2 managing GPU 2`
//! * the service's absence, as the client tells it
//!
//! Ranks here are those of the communicator, never global ones; the text form names outliers only.

use ringleader_model::{Cite, Fact, RasReport, SourceKind};

use crate::ground::{Document, Line, LineReader, Sink, Wants};

mod embedded;
mod event;
mod json;
mod peer;
mod text;

/// NCCL RAS in a text file: reports, events, and JSON that follows other lines.
#[derive(Default)]
pub(crate) struct RasTextReader {
    report: Option<text::OpenRasReport>,
    embedded: embedded::Embedded,
    events: event::Events,
    refusal: Option<Refusal>,
    last_line: u32,
    /// The line that comes may lack its end, so that its last number cannot be trusted.
    is_cut: bool,
}

/// Reports, events, and the words of a client.
pub(crate) const WANTS: Wants = Wants {
    words: || {
        vec![
            "PEER_",
            "nccl_version",
            "NCCL ",
            ":28028",
            "nc: ",
            "Ncat: ",
            "Job summary",
            "CUDA runtime version ",
        ]
    },
    begins: |line| line.trim_ascii() == b"{",
};

/// What a client said that did not get through.
struct Refusal {
    cite: Cite,
    text: Box<[u8]>,
    /// The line names no service: it counts only if nothing else is in the file.
    is_vague: bool,
}

impl LineReader for RasTextReader {
    fn line(&mut self, line: &Line<'_>, sink: &mut Sink<'_>) -> bool {
        self.last_line = line.number;
        if self.embedded.line(line, sink, &mut self.events) {
            return true;
        }
        let body = line.body.trim_ascii();
        let Some(&first) = body.first() else { return false };
        match first {
            b'[' | b'P' if !self.is_cut && self.events.line(line, body, sink) => return true,
            b'[' | b'F' | b'n' | b'N' | b'C' if self.refused(line, body, sink) => return true,
            _ => {}
        }
        let Ok(words) = std::str::from_utf8(body) else { return false };
        if self.is_cut {
            return false;
        }
        if text::begins_report(words, self.report.as_ref()) {
            self.close_report(sink);
            self.report = Some(text::OpenRasReport::begin(line, sink));
        }
        self.report.as_mut().is_some_and(|report| report.line(line, words, sink))
    }

    fn awake_until(&self) -> u32 {
        if self.report.is_some() || !self.embedded.is_idle() { u32::MAX } else { 0 }
    }

    fn next_is_cut(&mut self) {
        self.is_cut = true;
    }

    fn finish(&mut self, sink: &mut Sink<'_>) {
        self.embedded.finish(sink, &mut self.events);
        self.close_report(sink);
        std::mem::take(&mut self.events).finish(sink);
        let is_alone = self.last_line == 1 && sink.saw_nothing();
        if let Some(refusal) = self.refusal.take().filter(|r| !r.is_vague || is_alone) {
            let text = crate::ground::bounded_text(&refusal.text, 300).into_boxed_str();
            let report = RasReport { unavailable: Some(text), ..RasReport::default() };
            sink.saw(SourceKind::Ras);
            sink.push(
                refusal.cite,
                ringleader_model::Who::default(),
                None,
                Fact::Ras(report.into()),
                &refusal.text,
            );
        }
    }
}

impl RasTextReader {
    fn close_report(&mut self, sink: &mut Sink<'_>) {
        if let Some(report) = self.report.take() {
            report.close(sink);
        }
    }

    /// The client's own words, or a lone connection error, which a script saved in place of an answer.
    fn refused(&mut self, line: &Line<'_>, body: &[u8], sink: &Sink<'_>) -> bool {
        let is_named = body.starts_with(b"Failed to connect to the NCCL RAS service")
            || body.starts_with(b"NCCL RAS protocol version mismatch")
            || (body.starts_with(b"Connecting to ") && has(body, b":28028"))
            || ((body.starts_with(b"nc: ") || body.starts_with(b"Ncat: ")) && has(body, b"28028"));
        let is_vague = line.number == 1
            && (body.starts_with(b"[ConnectionRefusedError(") || body.starts_with(b"[TimeoutError("))
            && body.ends_with(b")]");
        if (is_named || is_vague) && self.refusal.is_none() {
            let cite = sink.cite(line.number, line.offset, line.end());
            self.refusal = Some(Refusal { cite, text: body.into(), is_vague });
        }
        is_named
    }
}

fn has(body: &[u8], word: &[u8]) -> bool {
    memchr::memmem::find(body, word).is_some()
}

/// Reads a RAS report or a monitor event in JSON, if it is one.
pub(crate) fn read_json(document: &Document<'_>, sink: &mut Sink<'_>) -> bool {
    if let Some(report) = json::report(document) {
        sink.saw(SourceKind::Ras);
        let at = report.at;
        let who = ringleader_model::Who::default();
        sink.push(document.cite(sink), who, at, Fact::Ras(report.into()), document.bytes);
        return true;
    }
    let mut events = event::Events::default();
    let is_event = events.json(document, sink);
    events.finish(sink);
    is_event
}

#[cfg(test)]
mod tests;
