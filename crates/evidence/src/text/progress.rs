//! Signs that a job goes on, or ended well: steps, epochs, bars, rates, and the words with which programs say that they
//! are done. A clean bill needs them: that nothing speaks of failure is no health.

use ringleader_knowledge::progress::{self, Sign};
use ringleader_model::{Cite, Fact, Progress, WallTime, Who};

use crate::ground::{Line, Sink, lossy};

/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 2 << 10;

/// The signs of one source.
#[derive(Default)]
pub(super) struct ProgressReader {
    first: Option<Cite>,
    at: Option<WallTime>,
    text: Vec<u8>,
    last_step: Option<u64>,
    /// The line before asked for the exit code of a command.
    has_asked: bool,
    seen: Progress,
}

impl ProgressReader {
    /// Looks at a line.
    #[inline]
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &Sink<'_>) {
        let body = line.body.get(..MAX_BYTES).unwrap_or(line.body);
        // `$ echo $?` and, in the next line, `0`.
        if std::mem::replace(&mut self.has_asked, body.ends_with(b"echo $?")) && body.trim_ascii() == b"0" {
            self.add(Sign::Done, line, sink);
        } else if progress::may_show(body) {
            self.look(line, body, sink);
        }
    }

    fn look(&mut self, line: &Line<'_>, body: &[u8], sink: &Sink<'_>) {
        if let Some(sign) = progress::of(&lossy(body)) {
            self.add(sign, line, sink);
        }
    }

    fn add(&mut self, sign: Sign, line: &Line<'_>, sink: &Sink<'_>) {
        let cite = sink.cite(line.number, line.offset, line.end());
        if self.first.is_none() {
            (self.first, self.at) = (Some(cite), line.tag.at);
            self.text = line.body.to_vec();
        }
        match sign {
            Sign::Step(step) => {
                self.seen.n_lines = self.seen.n_lines.saturating_add(1);
                if self.last_step != Some(step) {
                    self.seen.n_steps = (self.seen.n_steps + 1).min(2);
                    self.last_step = Some(step);
                    self.seen.before_last = self.seen.last;
                }
                (self.seen.last, self.seen.last_at) = (Some(cite), line.tag.at);
            }
            Sign::Done => self.seen.ended = Some(cite),
        }
    }

    /// End of the source.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
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
