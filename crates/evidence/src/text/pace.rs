//! Training speed of the runs in a source, from the lines of their steps; detects a speed that falls below half and
//! stays there.
//!
//! ```text
//! $ python train.py --gpu 0,1
//! step   1500  loss = 5.000  images/sec: 201.9 +/- 0.6   total: 1615
//! step   1800  loss = 4.940  images/sec: 48.9 +/- 41.2   total: 391
//! ```
//! A command begins a run.

use ringleader_knowledge::pace::{self, Pace};
use ringleader_knowledge::sign::ids;
use ringleader_model::{Cite, Fact, RunPace, Sign, Who, median};

use crate::ground::{Line, Sink, lossy, shell};

/// Number of steps kept per run; longer runs keep every second step, every fourth and so on.
const MAX_STEPS: usize = 1 << 14;
/// Most runs per source.
const MAX_RUNS: usize = 64;
/// Longest line that may begin a run, bytes.
const MAX_BYTES: usize = 2 << 10;
/// Fewest steps for comparing speeds within a run.
const MIN_STEPS: usize = 8;
/// Number of consecutive slow steps, and of fast steps before them.
const MIN_SLOW: usize = 3;
/// The same for progress bars, which average over steps and start slowly.
const MIN_SLOW_OF_BAR: usize = 8;
/// One in this many steps must be slow.
const SLOW_SHARE: usize = 25;
/// Below this share of the usual speed a step is slow. Chosen: a fall to half is no jitter of one machine.
const SLOW: f64 = 0.5;
/// Above this share of the usual speed a run has left its slow first steps behind. Chosen, between slow and usual.
const UP_TO_SPEED: f64 = 0.75;
/// The usual speed is the one that this share of the steps does not exceed, percent. Not the median: half of a run may be
/// slow. Chosen.
const USUAL_PCT: usize = 75;
/// Candidates of the first slow line.
const MAX_PLACES: usize = 64;

/// The runs of one source.
#[derive(Default)]
pub(super) struct PaceReader {
    run: Run,
    done: Vec<Run>,
}

#[derive(Default)]
struct Run {
    devices: Option<u32>,
    first: Option<(Pace, NumberedLine)>,
    /// Speeds, each with its line number.
    seen: Vec<(f64, u32)>,
    n_steps: u32,
    /// How often every second step was dropped.
    n_halved: u32,
    fastest: f64,
    first_slow: Vec<NumberedLine>,
}

#[derive(Clone)]
struct NumberedLine {
    number: u32,
    cite: Cite,
    text: Vec<u8>,
}

impl PaceReader {
    /// Examines a line that may begin a run or state the number of GPUs; `is_early` if all lines are passed in.
    pub(super) fn start(&mut self, line: &Line<'_>, is_early: bool) {
        let is_command = shell::may_be_command(line.body) && !line.body.trim_ascii_start().starts_with(b"#");
        if !is_command && !is_early || line.body.len() > MAX_BYTES {
            return;
        }
        let text = lossy(line.body);
        if is_command && !text.trim_start().starts_with(['+', '=']) && shell::command(&text).is_some() {
            self.end();
            self.run.devices = pace::devices(&text);
        } else if self.run.devices.is_none() && self.run.first.is_none() {
            self.run.devices = pace::devices(&text);
        }
    }

    /// A step that states its pace.
    pub(super) fn step(&mut self, pace: Pace, number: u32, cite: Cite, body: &[u8]) {
        self.run.step(pace, number, cite, body);
    }

    fn end(&mut self) {
        let run = std::mem::take(&mut self.run);
        if run.first.is_some() && self.done.len() < MAX_RUNS {
            self.done.push(run);
        }
    }

    /// End of the source.
    pub(super) fn finish(&mut self, is_log: bool, sink: &mut Sink<'_>) {
        self.end();
        for run in std::mem::take(&mut self.done) {
            if is_log {
                run.tell(sink);
            }
        }
    }
}

impl Run {
    fn step(&mut self, pace: Pace, number: u32, cite: Cite, body: &[u8]) {
        let place = || NumberedLine { number, cite, text: body.to_vec() };
        let (first, _) = self.first.get_or_insert_with(|| (pace, place()));
        if (pace.unit, pace.is_epoch) != (first.unit, first.is_epoch) {
            return;
        }
        let is_kept = self.n_steps.trailing_zeros() >= self.n_halved;
        self.n_steps = self.n_steps.saturating_add(1);
        if !is_kept {
            return;
        }
        if self.seen.len() == MAX_STEPS {
            let mut at = 0_u32;
            self.seen.retain(|_| {
                at += 1;
                at % 2 == 1
            });
            self.n_halved += 1;
        }
        self.seen.push((pace.speed, number));
        // The line that will be cited is known only at the end: those that may be it are kept.
        self.fastest = self.fastest.max(pace.speed);
        if pace.speed < self.fastest * SLOW && self.first_slow.len() < MAX_PLACES {
            self.first_slow.push(NumberedLine { number, cite, text: body.to_vec() });
        }
    }

    fn tell(self, sink: &mut Sink<'_>) {
        let Some((pace, place)) = self.first else { return };
        let is_bar = pace.unit == "it/s";
        if let Some((start, count)) = drop_of(&self.seen, if is_bar { MIN_SLOW_OF_BAR } else { MIN_SLOW })
            && let Some(slow) = self.first_slow.into_iter().find(|p| p.number >= start)
        {
            let sign = Sign { id: ids::THROUGHPUT_DROPS, count };
            sink.push(slow.cite, Who::default(), None, Fact::Sign(sign), &slow.text);
        }
        let Some(speed) = median::upper(self.seen.iter().map(|s| s.0)) else { return };
        let Pace { unit, is_time, is_epoch, .. } = pace;
        let run = RunPace { unit, is_time, is_epoch, speed, n_steps: self.n_steps, devices: self.devices };
        sink.push(place.cite, Who::default(), None, Fact::Pace(run), &place.text);
    }
}

/// The first line number of the longest slow stretch, and its number of steps.
fn drop_of(seen: &[(f64, u32)], min_slow: usize) -> Option<(u32, u32)> {
    if seen.len() < MIN_STEPS {
        return None;
    }
    let mut sorted: Vec<f64> = seen.iter().map(|s| s.0).collect();
    sorted.sort_by(f64::total_cmp);
    let usual = *sorted.get(sorted.len() * USUAL_PCT / 100)?;
    // The first steps are slow in every job: it must have been fast before.
    let fast = seen.iter().position(|s| s.0 >= usual * UP_TO_SPEED)?;
    let rest = seen.get(fast..)?;
    if rest.iter().take(MIN_SLOW).any(|s| s.0 < usual * UP_TO_SPEED) {
        return None;
    }
    let runs = rest.chunk_by(|a, b| (a.0 < usual * SLOW) == (b.0 < usual * SLOW));
    let longest =
        runs.filter(|run| run.first().is_some_and(|s| s.0 < usual * SLOW)).max_by_key(|run| run.len())?;
    let n = u32::try_from(longest.len()).unwrap_or(u32::MAX);
    (longest.len() >= min_slow.max(seen.len() / SLOW_SHARE)).then_some((longest.first()?.1, n))
}

#[cfg(test)]
mod tests {
    use ringleader_model::{Fact, RunPace};

    use super::drop_of;
    use crate::{Limits, Scratch};

    #[test]
    fn slow_for_a_while() {
        let series = |speeds: &[f64]| -> Vec<(f64, u32)> {
            speeds.iter().enumerate().map(|(n, s)| (*s, n as u32)).collect()
        };
        let drop_of = |speeds: &[f64]| drop_of(&series(speeds), 3);
        let falls = [200., 201., 199., 200., 148., 88., 49., 27., 25., 26., 187., 200.];
        assert_eq!(drop_of(&falls), Some((5, 5)));
        // The first steps are slow; one step that saves a checkpoint is, too.
        assert_eq!(drop_of(&[5., 20., 90., 200., 201., 199., 200., 200., 198., 200.]), None);
        assert_eq!(drop_of(&[200., 201., 199., 200., 20., 200., 201., 200., 200., 20., 200.]), None);
        assert_eq!(drop_of(&[200., 20.]), None);
    }

    /// The paces of runs found in `text`.
    fn runs(text: &str) -> Vec<RunPace> {
        let case = crate::read("log", &mut text.as_bytes(), &mut Scratch::default(), &Limits::default());
        let pace = |fact: &Fact| if let Fact::Pace(run) = fact { Some(*run) } else { None };
        case.observations.iter().filter_map(|o| pace(&o.fact)).collect()
    }

    #[test]
    fn each_command_begins_a_run() {
        let text = "\
$ python train.py --gpu 0 --epochs 3
Epoch 0, Time(s) 25.0, Loss 0.9
Epoch 1, Time(s) 20.0, Loss 0.7
Epoch 2, Time(s) 20.0, Loss 0.5
$ python train.py --gpu 0,1 --epochs 3
Epoch 0, Time(s) 22.0, Loss 0.9
Epoch 1, Time(s) 20.0, Loss 0.7
";
        let seen: Vec<_> =
            runs(text).iter().map(|r| (r.devices, r.n_steps, 1.0 / r.speed, r.is_epoch)).collect();
        assert_eq!(seen, [(Some(1), 3, 20.0, true), (Some(2), 2, 20.0, true)]);
    }

    #[test]
    fn a_long_run_is_seen_to_its_end() {
        let step = |n: u32| {
            let time = if (1_500..2_500).contains(&n) { 3.4 } else { 0.4 };
            format!("ep 1 train, step {n}, ctc 1.2, {time:.3} sec/step\n")
        };
        let text: String = (0..4_000).map(step).collect();
        let case = crate::read("log", &mut text.as_bytes(), &mut Scratch::default(), &Limits::default());
        let sign =
            case.observations.iter().find(|o| matches!(&o.fact, Fact::Sign(s) if s.id == "throughput-drops"));
        assert_eq!(sign.map(|o| o.cite.line), Some(1_501));
    }
}
