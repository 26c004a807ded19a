//! Where the time of training steps goes, by the steps' own lines.
//!
//! ```text
//! Epoch [1][100/2503] lr: 2.000e-01, eta: 4 days, time: 1.659, data_time: 1.398, memory: 6913, loss: 6.8500
//! Epoch: [0][40/2503] Time 9.904 (3.233) Data 9.482 (2.674) Loss 6.9509 (7.0200)
//! Train Epoch: 0 [2560/127430000 (0%)] Data (t): 14.282 Batch (t): 14.603, 175.3/s
//! ```

use ringleader_model::{Cite, Fact, StepTimes, WallTime, Who};

use crate::ground::{Line, Sink, lossy};

/// Names of the time in which a step waits for its data, in small letters.
const DATA: [&str; 6] = ["data_time", "data (t)", "dataload_time", "data time", "data_loading_time", "data"];
/// Names of the time of the whole step.
const TOTAL: [&str; 7] =
    ["time", "batch (t)", "batch_time", "iter_time", "step_time", "batch time", "time_per_step"];
/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 2 << 10;

/// Whether a line may hold both times.
fn may_show(shape: &[u8]) -> bool {
    let has = |word: &[u8]| shape.windows(word.len()).any(|w| w.eq_ignore_ascii_case(word));
    has(b"data") && (has(b"time") || has(b"batch (t)"))
}

/// The times of one source.
#[derive(Default)]
pub(super) struct TimesReader {
    first: Option<(Cite, Option<WallTime>, Vec<u8>)>,
    seen: StepTimes,
}

impl TimesReader {
    /// Looks at a line.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &Sink<'_>) {
        let body = line.body.get(..MAX_BYTES).unwrap_or(line.body);
        if !may_show(body) {
            return;
        }
        let Some((data, total)) = both(&lossy(body)) else { return };
        if self.first.is_none() {
            let cite = sink.cite(line.number, line.offset, line.end());
            self.first = Some((cite, line.tag.at, line.body.to_vec()));
        }
        self.seen.n_steps = self.seen.n_steps.saturating_add(1);
        self.seen.data += data;
        self.seen.total += total;
    }

    /// End of the source.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        let seen = std::mem::take(&mut self.seen);
        if let Some((cite, at, text)) = self.first.take() {
            sink.push(cite, Who::default(), at, Fact::StepTimes(seen), &text);
        }
    }
}

/// Time for data, and time of the step.
fn both(line: &str) -> Option<(f64, f64)> {
    let lower = line.to_ascii_lowercase();
    let data = DATA.iter().find_map(|name| value(&lower, name))?;
    let total = TOTAL.iter().find_map(|name| value(&lower, name))?;
    (total > 0.0 && (0.0..=total * 1.001).contains(&data)).then_some((data, total))
}

/// The number behind a name that is a word of its own, with at most `: `, `=` or blanks between.
fn value(lower: &str, name: &str) -> Option<f64> {
    lower.match_indices(name).find_map(|(at, _)| {
        let head = lower.get(..at)?;
        if head.ends_with(|c: char| c.is_ascii_alphanumeric() || c == '_' || c == '/') {
            return None;
        }
        let tail = lower.get(at + name.len()..)?;
        let number = tail.trim_start_matches([' ', '\t', ':', '=', '\'', '"']);
        if number.len() == tail.len() {
            return None;
        }
        let end = number.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(number.len());
        let after = number.get(end..).unwrap_or_default();
        // `time 12:30:11` and `data 3/40` are none.
        if after.starts_with([':', '/', '-', '%']) {
            return None;
        }
        number.get(..end)?.trim_end_matches('.').parse().ok()
    })
}

#[cfg(test)]
mod tests {
    use super::both;

    #[test]
    fn spellings() {
        let check = |line: &str, expected: Option<(f64, f64)>| assert_eq!(both(line), expected, "{line}");
        check(
            "Epoch [1][100/2503]\teta: 4 days, time: 1.659, data_time: 1.398, loss: 6.85",
            Some((1.398, 1.659)),
        );
        check("Epoch: [0][40/2503]\tTime 9.904 (3.233)\tData 9.482 (2.674)\tLoss 6.9", Some((9.482, 9.904)));
        check("0 [2560/127430000 (0%)] Data (t): 14.282 Batch (t): 14.603, 175.3/s", Some((14.282, 14.603)));
        check("Epoch: [1][20/5000], Time: 0.59, Data: 0.01, lr: 0.019996", Some((0.01, 0.59)));
        check("Loading data took a long time", None);
        check("data 3/40 time 12:30:11", None);
    }
}
