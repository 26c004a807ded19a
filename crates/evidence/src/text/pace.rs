//! How fast training goes, by the lines of its steps, and whether that falls and stays low. Only the beginning of a source is
//! looked at: further on, lines that differ in digits alone are not read one by one.
//!
//! ```text
//! step   1500  loss = 5.000  images/sec: 201.9 +/- 0.6   total: 1615
//! step   1800  loss = 4.940  images/sec: 48.9 +/- 41.2   total: 391
//! ```

use ringleader_model::{Cite, Fact, Sign, WallTime, Who};

use crate::ground::{Line, Sink, lossy};

/// Units of the speed, in small letters.
const UNITS: [&str; 16] = [
    "images/sec",
    "images/s",
    "imgs/s",
    "img/sec",
    "img/s",
    "samples/sec",
    "samples/s",
    "samples per second",
    "sequences/s",
    "tokens/sec",
    "tokens/s",
    "tok/s",
    "tokens per second",
    "examples/s",
    "frames/s",
    "examples/sec",
];
/// Words without which a line is none of a step.
const STEP: [&str; 4] = ["step", "iter", "epoch", "loss"];
/// Lines of other work.
const OTHER: [&str; 4] = ["valid", "eval", "test", "infer"];
/// Longest line that is looked at, bytes.
const MAX_BYTES: usize = 1 << 10;
/// Lines that are kept.
const MAX_LINES: usize = 1 << 16;
/// Lines without which nothing is compared.
const MIN_LINES: usize = 8;
/// Lines that must be slow one after the other, and fast before them.
const MIN_RUN: usize = 3;

/// The speeds of one source.
#[derive(Default)]
pub(super) struct SpeedReader {
    unit: usize,
    fastest: f64,
    seen: Vec<(f64, u32)>,
    first_slow: Vec<Place>,
}

struct Place {
    number: u32,
    cite: Cite,
    at: Option<WallTime>,
    who: Who,
    text: Vec<u8>,
}

impl SpeedReader {
    /// Looks at a line.
    pub(super) fn line(&mut self, line: &Line<'_>, sink: &Sink<'_>) {
        if line.body.len() > MAX_BYTES || self.seen.len() >= MAX_LINES || !may_show(line.body) {
            return;
        }
        let lower = lossy(line.body).to_ascii_lowercase();
        let Some((unit, speed)) = speed(&lower) else { return };
        if self.seen.is_empty() {
            self.unit = unit;
        }
        if unit != self.unit {
            return;
        }
        self.seen.push((speed, line.number));
        // The line that will be cited is known only at the end: those that may be it are kept.
        self.fastest = self.fastest.max(speed);
        if speed < self.fastest * 0.5 && self.first_slow.len() < 64 {
            self.first_slow.push(Place {
                number: line.number,
                cite: sink.cite(line.number, line.offset, line.end()),
                at: line.tag.at,
                who: line.tag.who.clone(),
                text: line.body.to_vec(),
            });
        }
    }

    /// End of the source.
    pub(super) fn finish(&mut self, sink: &mut Sink<'_>) {
        let seen = std::mem::take(&mut self.seen);
        self.fastest = 0.0;
        let places = std::mem::take(&mut self.first_slow);
        let Some((start, n_slow)) = drop_of(&seen) else { return };
        if let Some(place) = places.into_iter().find(|p| p.number >= start) {
            let sign = Sign { id: "throughput-drops", count: n_slow };
            sink.push(place.cite, place.who, place.at, Fact::Sign(sign), &place.text);
        }
    }
}

/// Whether a line may tell a speed, whatever its numbers are.
#[inline]
fn may_show(line: &[u8]) -> bool {
    let is_second = |at: usize| matches!(line.get(at + 1), Some(b's' | b'S'));
    let has_unit =
        memchr::memchr_iter(b'/', line).any(is_second) || memchr::memmem::find(line, b"per second").is_some();
    has_unit && {
        let lower = lossy(line).to_ascii_lowercase();
        UNITS.iter().any(|unit| lower.contains(unit)) && STEP.iter().any(|word| lower.contains(word))
    }
}

/// The number of the first line of the longest slow stretch, and how many it has.
fn drop_of(seen: &[(f64, u32)]) -> Option<(u32, u32)> {
    if seen.len() < MIN_LINES {
        return None;
    }
    let mut sorted: Vec<f64> = seen.iter().map(|s| s.0).collect();
    sorted.sort_by(f64::total_cmp);
    let usual = *sorted.get(sorted.len() * 3 / 4)?;
    // The first steps are slow in every job: it must have been fast before.
    let fast = seen.iter().position(|s| s.0 >= usual * 0.75)?;
    let rest = seen.get(fast..)?;
    if rest.iter().take(MIN_RUN).any(|s| s.0 < usual * 0.75) {
        return None;
    }
    let runs = rest.chunk_by(|a, b| (a.0 < usual * 0.5) == (b.0 < usual * 0.5));
    let longest =
        runs.filter(|run| run.first().is_some_and(|s| s.0 < usual * 0.5)).max_by_key(|run| run.len())?;
    let n = u32::try_from(longest.len()).unwrap_or(u32::MAX);
    (longest.len() >= MIN_RUN).then_some((longest.first()?.1, n))
}

/// The unit, by its place in the table, and the number beside it.
fn speed(lower: &str) -> Option<(usize, f64)> {
    let (unit, at) = UNITS.iter().enumerate().find_map(|(n, unit)| Some((n, lower.find(unit)?)))?;
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    if !has(&STEP) || has(&OTHER) {
        return None;
    }
    let name = UNITS.get(unit)?;
    let tail = lower.get(at + name.len()..)?;
    let after = tail.trim_start_matches([')', ']', '"', '\'', ' ']);
    let behind = after.strip_prefix([':', '=']).map(|rest| rest.trim_start_matches([' ', '"', '\'']));
    let number = |text: &str| -> Option<f64> {
        let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        text.get(..end)?.trim_end_matches('.').parse().ok()
    };
    let before = || {
        let head = lower.get(..at)?.trim_end_matches([' ', '(']);
        let start = head.rfind(|c: char| !c.is_ascii_digit() && c != '.').map_or(0, |i| i + 1);
        number(head.get(start..)?)
    };
    let speed = behind.and_then(number).or_else(before)?;
    (speed.is_finite() && speed > 0.0).then_some((unit, speed))
}

#[cfg(test)]
mod tests {
    use super::{drop_of, speed};

    #[test]
    fn spellings() {
        let of = |line: &str| speed(&line.to_ascii_lowercase()).map(|(_, n)| n);
        assert_eq!(of("step   1500  loss = 5.0  images/sec: 201.9 +/- 0.6   total: 1615"), Some(201.9));
        assert_eq!(of("epoch 11 | 2 x H100 | 61218 tok/s | loss 2.204"), Some(61218.0));
        assert_eq!(of("step 5 | samples/s=12.25 | loss 2"), Some(12.25));
        assert_eq!(of("Validation step 5: 12.5 img/s"), None);
        assert_eq!(of("GPU 0: 12.5 img/s"), None);
        assert_eq!(of("loss step img/s"), None);
    }

    #[test]
    fn slow_for_a_while() {
        let series = |speeds: &[f64]| -> Vec<(f64, u32)> {
            speeds.iter().enumerate().map(|(n, s)| (*s, n as u32)).collect()
        };
        let falls = [200., 201., 199., 200., 148., 88., 49., 27., 25., 26., 187., 200.];
        assert_eq!(drop_of(&series(&falls)), Some((5, 5)));
        // The first steps are slow; one step that saves a checkpoint is, too.
        assert_eq!(drop_of(&series(&[5., 20., 90., 200., 201., 199., 200., 200., 198., 200.])), None);
        assert_eq!(drop_of(&series(&[200., 201., 199., 200., 20., 200., 201., 200., 200., 20., 200.])), None);
        assert_eq!(drop_of(&series(&[200., 20.])), None);
    }
}
