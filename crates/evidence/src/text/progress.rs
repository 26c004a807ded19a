//! Signs that a job goes on, or ended well: steps, epochs, bars, rates, and the words with which programs say that they
//! are done. A clean bill needs them: that nothing speaks of failure is no health.

use ringleader_knowledge::pace;
use ringleader_knowledge::progress::{self, ProgressSign};
use ringleader_model::{Cite, Fact, Progress, WallTime, Who};

use super::json;
use super::ordinary::Body;
use super::pace::PaceReader;
use super::prefix::Stripper;
use crate::ground::{Line, Sink, Tag, lossy};

/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 2 << 10;
/// Bytes of a line that hold its time stamp.
const MAX_HEAD_BYTES: usize = 1 << 10;

/// The signs of one source.
#[derive(Default)]
pub(super) struct ProgressReader {
    first: Option<Cite>,
    at: Option<WallTime>,
    text: Vec<u8>,
    last_step: Option<u64>,
    /// The line before asked for the exit code of a command.
    has_asked: bool,
    /// The beginning of the last line, if its time was not read yet; else empty.
    last_head: Vec<u8>,
    seen: Progress,
    /// How fast it goes.
    pub(super) pace: PaceReader,
}

impl ProgressReader {
    /// Looks at a line.
    #[inline]
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &Sink<'_>) {
        let body = line.body.get(..MAX_BYTES).unwrap_or(line.body);
        if self.ends_well(body) {
            self.add(ProgressSign::Done, line, sink);
        } else if progress::may_show(body) {
            self.look(line, body, sink);
        }
    }

    fn look(&mut self, line: &Line<'_>, body: &[u8], sink: &Sink<'_>) {
        let text = lossy(body);
        let Some(sign) = progress::of(&text) else { return };
        self.add(sign, line, sink);
        if let (ProgressSign::Step(_), Some(pace)) = (sign, pace::of(&text)) {
            let cite = sink.cite(line.number, line.offset, line.end());
            self.pace.step(pace, line.number, cite, body);
        }
    }

    fn add(&mut self, sign: ProgressSign, line: &Line<'_>, sink: &Sink<'_>) {
        let cite = sink.cite(line.number, line.offset, line.end());
        if self.first.is_none() {
            let said_at = || json::unpack(line.body)?.at;
            (self.first, self.at) = (Some(cite), line.tag.at.or_else(said_at));
            self.text = line.body.to_vec();
            // Of later lines only some are looked at.
            self.seen.total = progress::total(&lossy(line.body.get(..MAX_BYTES).unwrap_or(line.body)));
        }
        match sign {
            ProgressSign::Step(step) => {
                self.step(step, cite);
                self.seen.last_at = line.tag.at;
                self.last_head.clear();
                if json::begins(line.body) {
                    self.last_head.extend_from_slice(line.raw.get(..MAX_HEAD_BYTES).unwrap_or(line.raw));
                }
            }
            ProgressSign::Done => self.seen.ended = Some(cite),
        }
    }

    /// `$ echo $?` and, in the next line, `0`.
    #[inline]
    fn ends_well(&mut self, line: &[u8]) -> bool {
        let has_asked = std::mem::replace(&mut self.has_asked, line.ends_with(b"echo $?"));
        has_asked && line.trim_ascii() == b"0"
    }

    /// Whether a sign was seen: of the first one all is kept.
    #[inline]
    pub(super) fn has_begun(&self) -> bool {
        self.first.is_some()
    }

    #[inline]
    fn step(&mut self, step: u64, cite: Cite) {
        self.seen.n_lines = self.seen.n_lines.saturating_add(1);
        if self.last_step != Some(step) {
            self.seen.n_steps = (self.seen.n_steps + 1).min(2);
            self.last_step = Some(step);
            self.seen.before_last = self.seen.last;
        }
        self.seen.last = Some(cite);
    }

    /// Looks at an ordinary line: what is known of its body, its place, and `raw`, all of it. Its time is read at the end,
    /// unless it is `known` already. Only once one [has begun](Self::has_begun).
    #[inline]
    pub(super) fn ordinary(&mut self, body: &Body, raw: &[u8], known: Option<&Tag>, cite: Cite) {
        if self.ends_well(raw) {
            self.seen.ended = Some(cite);
        }
        let Some(plan) = &body.plan else { return };
        let text = raw.get(body.n_prefix..).unwrap_or_default();
        if let Some(ProgressSign::Step(step)) = plan.read(text) {
            self.step(step, cite);
            if let Some(pace) = plan.pace(text) {
                self.pace.step(pace, cite.line, cite, text);
            }
            self.last_head.clear();
            match known {
                Some(tag) => self.seen.last_at = tag.at,
                None => self.last_head.extend_from_slice(raw.get(..MAX_HEAD_BYTES).unwrap_or(raw)),
            }
        }
    }

    /// End of the source.
    pub(super) fn finish(&mut self, is_log: bool, sink: &mut Sink<'_>) {
        self.pace.finish(is_log, sink);
        if !self.last_head.is_empty() {
            let mut tag = Tag::default();
            let body = Stripper::default().strip(&self.last_head, &mut tag);
            self.seen.last_at = json::unpack(body).and_then(|record| record.at).or(tag.at);
        }
        if let Some(first) = self.first.take() {
            sink.push(
                first,
                Who::default(),
                self.at,
                Fact::Progress(std::mem::take(&mut self.seen)),
                &self.text,
            );
        }
    }
}
