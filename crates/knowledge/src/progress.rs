//! Signs in ordinary output that a job makes progress, or that it ended successfully.
//!
//! ```text
//! [rank3]: [2026-11-20 10:00:01,532] [INFO] [train.py:120] step 812 loss 2.31 lr 3.0e-4
//!   2%|▏         | 812/50000 [10:11<9:58:12,  1.37it/s]
//! {'loss': 2.3123, 'grad_norm': 0.8123, 'epoch': 0.12}
//! `Trainer.fit` stopped: `max_epochs=3` reached.
//! ```

use std::sync::LazyLock;

use aho_corasick::{AhoCorasick, AhoCorasickKind};

use crate::blind::blind;
use crate::pace;

/// A sign of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProgressSign {
    /// A step, epoch or bar, by its number.
    Step(u64),
    /// The job reports that it is done.
    Done,
}

/// Words before the number of a step.
const COUNTERS: &[&str] =
    &["global_step", "step", "iteration", "iter", "epoch", "batch", "update", "round", "generation"];
/// Before the times of one step.
const STEP_TIMES: &str = "time (ms) |";
/// Words that make a line with a number part of a training loop.
const METRICS: &[&str] = &[
    "loss",
    "it/s",
    "s/it",
    "samples/s",
    "tokens/s",
    "tok/s",
    "lr",
    "grad_norm",
    "acc",
    "accuracy",
    "elapsed",
    "throughput",
    "ppl",
    "perplexity",
    "reward",
    "img/s",
    "images/sec",
    "samples/sec",
    "examples/s",
    "ms/step",
    "s/step",
    "mfu",
    "time",
    "speed",
    "seconds",
    "sec",
];
/// Those of them that other work than training prints, too: loading, compiling.
const WEAK: &[&str] = &["elapsed", "time", "speed", "seconds", "sec"];
/// Words of programs that ended successfully.
const DONE: &[&str] = &[
    "training completed",
    "training complete",
    "training finished",
    "training is finished",
    "finished training",
    "training done",
    "done training",
    "`trainer.fit` stopped: `max_",
    "train_runtime",
    "job completed",
    "job finished",
    "completed successfully",
    "finished successfully",
    "exited with code 0",
    "exit code 0",
    "exit status 0",
    "exit status: 0",
    "exited (codes: 0",
    "exits successfully",
    "received 0 from exiting",
    "reporting training success",
    "pipeline finished",
    "returned 0 after",
    "succeeded",
    "state: finished",
    "all done",
    "process group destroyed",
    "training succeeded",
    "total wall time",
    "end date and time",
    "normal termination",
];
/// Before the rate of a server, and in its word of an answer.
const SERVED: [&str; 2] = ["generation throughput", "\"post "];
/// Where a bar of Keras begins.
const KERAS: &str = " [===";
/// Last words of a worker.
const LAST: [&str; 5] = [" finished", " done", "done!", "done in ", " passed"];
/// Last lines of suites of tests, and of scripts that print a status.
const SUITES: [&str; 4] = ["ok (skipped=", "ok (expected failures=", " passed", "rc=0"];
/// Words that make such text a failure.
const NOT_DONE: &[&str] = &["not ", "fail", "error", "before ", "until ", "if ", "when ", "0 succeeded"];

/// Whether a line may show progress: a cheap test for every line of a source.
#[inline]
pub fn may_show(line: &[u8]) -> bool {
    line.iter().any(u8::is_ascii_digit) || line.len() >= 8 && line.len() < 400
}

/// Most counters of a line that a plan follows.
const MAX_FIELDS: usize = 12;

/// Where a line's step is: what [`of`] finds in every line that differs from this one in its digits only.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepPlan {
    /// Digits of a bar's count, and of the epoch before it.
    bar: Option<(Digits, Option<Digits>)>,
    /// Counters, each with the one behind `][`.
    counters: Vec<(Digits, Option<Digits>)>,
    is_dictionary: bool,
    /// Where it says how fast it goes.
    pace: Option<pace::NumberPosition>,
}

/// A run of digits: where it begins, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Digits {
    at: u32,
    n: u32,
}

impl Digits {
    fn of(line: &str, behind: &str) -> Option<Self> {
        let n = behind.bytes().take_while(u8::is_ascii_digit).count();
        (n > 0).then_some(Self { at: (line.len() - behind.len()) as u32, n: n as u32 })
    }

    fn read(self, line: &[u8]) -> Option<u64> {
        let digits = line.get(self.at as usize..(self.at + self.n) as usize)?;
        digits.iter().try_fold(0_u64, |n, b| n.checked_mul(10)?.checked_add(u64::from(b.wrapping_sub(b'0'))))
    }
}

impl StepPlan {
    /// The plan for all lines that differ from `line` in their digits only; None if each of them must be looked at by
    /// itself.
    pub fn of(line: &str) -> Option<Self> {
        let lower = line.to_ascii_lowercase();
        // Some of those words hold digits.
        if DONE.iter().any(|word| stands_blind(lower.as_bytes(), word.as_bytes())) {
            return None;
        }
        // What such lines show does not lie in single numbers of them.
        if is_last_word(&lower)
            || is_suite(&lower)
            || SERVED.iter().chain(&[KERAS, "s/step", STEP_TIMES]).any(|word| lower.contains(word))
        {
            return None;
        }
        let epoch = || bar_epoch(&lower).and_then(|behind| Digits::of(&lower, behind));
        let bar = bar_count(&lower).and_then(|behind| Some((Digits::of(&lower, behind)?, epoch())));
        let mut counters = Vec::new();
        each_counter(&lower, |behind, inner| {
            if let Some(digits) = Digits::of(&lower, behind) {
                counters.push((digits, inner.and_then(|inner| Digits::of(&lower, inner))));
            }
        });
        let pace = pace::NumberPosition::of(&lower);
        let plan = Self { bar, counters, is_dictionary: is_dictionary(&lower), pace };
        (plan.counters.len() <= MAX_FIELDS).then_some(plan)
    }

    /// Whether such lines may show a step.
    pub fn shows(&self) -> bool {
        self.bar.is_some() || !self.counters.is_empty() || self.is_dictionary
    }

    /// What [`pace::of`] finds in a line of this plan.
    #[inline]
    pub fn pace(&self, line: &[u8]) -> Option<pace::Pace> {
        self.pace?.read(line)
    }

    /// What [`of`] finds in a line of this plan.
    #[inline]
    pub fn read(&self, line: &[u8]) -> Option<ProgressSign> {
        let bar = || {
            let (count, epoch) = self.bar?;
            let n = count.read(line).filter(|n| *n > 0)?;
            Some(chained(epoch.and_then(|epoch| epoch.read(line)), n, None))
        };
        let counted = || {
            self.counters.iter().fold(None, |found, (digits, inner)| match digits.read(line) {
                Some(n) => Some(chained(found, n, inner.and_then(|inner| inner.read(line)))),
                None => found,
            })
        };
        let dictionary = || self.is_dictionary.then(|| hashed(line));
        bar().or_else(counted).or_else(dictionary).map(ProgressSign::Step)
    }
}

/// Whether `text` contains `word`, ignoring the digits of both.
fn stands_blind(text: &[u8], word: &[u8]) -> bool {
    let is = |(a, b): (&u8, &u8)| blind(*a) == blind(*b);
    text.windows(word.len()).any(|window| window.iter().zip(word).all(is))
}

/// Signs between a counter's name and its number.
const MAX_SIGNS: usize = 12;
/// Digits of the whole in `20/2110`.
const MIN_OF: usize = 3;

/// Words without which a line shows nothing.
static GATE: LazyLock<Option<AhoCorasick>> = LazyLock::new(|| {
    let words = METRICS.iter().chain(DONE).chain(&["%|", KERAS]).chain(&SERVED).chain(&LAST).chain(&SUITES);
    let mut search = AhoCorasick::builder();
    // Nearly every line has a letter that a word begins with: to look for those first is vain.
    search.ascii_case_insensitive(true).kind(Some(AhoCorasickKind::DFA)).prefilter(false).build(words).ok()
});

/// The sign in `line`, if there is one.
pub fn of(line: &str) -> Option<ProgressSign> {
    if GATE.as_ref().is_some_and(|gate| !gate.is_match(line)) {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    if let Some(done) = DONE.iter().find_map(|words| lower.find(words)) {
        let head = lower.get(..done).unwrap_or_default();
        if !NOT_DONE.iter().any(|n| head.contains(n) || lower.contains("unsuccessful") && *n == "fail") {
            return Some(ProgressSign::Done);
        }
    }
    if is_last_word(&lower) || is_suite(&lower) {
        return Some(ProgressSign::Done);
    }
    let served = || served(&lower);
    bar(&lower)
        .or_else(|| counted(&lower))
        .or_else(|| dictionary(&lower))
        .or_else(served)
        .map(ProgressSign::Step)
}

/// `process 0 finished`, `[rank 3] done`: a few words of a worker that say that it is at its end.
fn is_last_word(line: &str) -> bool {
    const MAX_WORDS: usize = 4;
    let text = line.trim().trim_end_matches(['.', '!']);
    if text == "done" || text.starts_with("done in ") {
        return true;
    }
    let ends = LAST.iter().any(|word| text.ends_with(word));
    let subjects = [
        "process",
        "rank",
        "worker",
        "training",
        "simulation",
        "job",
        "run",
        "fit",
        "(",
        "benchmark",
        "pipeline",
        "all ",
    ];
    ends && text.split_whitespace().count() <= MAX_WORDS && subjects.iter().any(|word| text.contains(word))
}

/// `OK (skipped=71)` of unittest, `===== 12 passed, 2 skipped in 3.21s =====` of pytest, `rc=0` of a script: nothing else is in such
/// a line.
fn is_suite(line: &str) -> bool {
    let text = line.trim().trim_matches('=').trim();
    let [skipped, expected, passed, status] = SUITES;
    let of_pytest = || {
        let is_first =
            text.split(' ').next().is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()));
        is_first && text.contains(passed) && text.contains(" in ") && text.ends_with('s')
    };
    text == status
        || (text.starts_with(skipped) || text.starts_with(expected)) && text.ends_with(')')
        || line.trim().starts_with("==") && of_pytest() && !NOT_DONE.iter().any(|word| text.contains(word))
}

/// A server that answers: `"POST /v1/completions HTTP/1.1" 200 OK`, `Avg generation throughput: 91.4 tokens/s`.
fn served(line: &str) -> Option<u64> {
    let [rate, answer] = SERVED;
    let is_step = line.contains(STEP_TIMES);
    let is_answer = line.contains(answer) && line.contains("http/1.1\" 200");
    let rate = line.find(rate).and_then(|at| line.get(at + rate.len()..));
    let is_rate = rate.is_some_and(|rest| {
        let number: String =
            rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(|c| *c != ' ').collect();
        number.bytes().any(|b| (b'1'..=b'9').contains(&b))
    });
    (is_answer || is_rate || is_step).then(|| hashed(line.as_bytes()))
}

/// `45%|████▌     | 450/1000 [05:12<06:22,  1.44it/s]`, `390/390 [====…] - 61s 156ms/step`: the last bar of a line.
fn bar(line: &str) -> Option<u64> {
    if let Some((done, rest)) = keras_bar(line) {
        // The rest of the line distinguishes one epoch from the next.
        return number(done).filter(|n| *n > 0).map(|n| n.wrapping_add(hashed(rest.as_bytes())));
    }
    let n = number(bar_count(line)?)?;
    // A bar at zero is no progress.
    (n > 0).then(|| chained(bar_epoch(line).and_then(number), n, None))
}

/// The epoch that is before a bar.
fn bar_epoch(line: &str) -> Option<&str> {
    let head = line.get(..line.rfind("%|")?)?;
    let at = head.rfind("epoch")?;
    let behind = after_name(line.get(at + "epoch".len()..)?);
    behind.starts_with(|c: char| c.is_ascii_digit()).then_some(behind)
}

/// `390/390 [====…] - 61s 156ms/step`: from the count on, and what follows the bar's beginning.
fn keras_bar(line: &str) -> Option<(&str, &str)> {
    let plain = || line.split_once("s/step").and_then(|_| line.split_once(" - "));
    let (head, rest) = line.split_once(KERAS).or_else(plain)?;
    let count = head.rsplit(char::is_whitespace).next()?;
    count.contains('/').then_some((count, rest))
}

/// From the count of the last bar on.
fn bar_count(line: &str) -> Option<&str> {
    let at = line.rfind("%|")?;
    Some(line.get(at + 2..)?.split_once('|')?.1.split('|').next()?.trim_start())
}

/// `step 812 loss 2.31`, `iteration      100/   50000 | lm loss: 7.8`, `Epoch: [3][100/5005] Time 0.4`.
fn counted(line: &str) -> Option<u64> {
    let mut found = None;
    each_counter(line, |behind, inner| {
        if let Some(n) = number(behind) {
            found = Some(chained(found, n, inner.and_then(number)));
        }
    });
    found
}

/// The steps of a loop by a line of it: the largest number behind the slash of `Epoch: [0][  3/30]`, `step 3/30`.
pub fn total(line: &str) -> Option<u64> {
    let digits_before = |text: &str| text.bytes().rev().take_while(u8::is_ascii_digit).count();
    let of = |(at, _): (usize, &str)| {
        let (before, behind) = (line.get(..at)?.trim_end(), line.get(at + 1..)?.trim_start());
        let n = digits_before(before);
        let (head, done) = before.split_at_checked(before.len() - n)?;
        let end = behind.bytes().take_while(u8::is_ascii_digit).count();
        let (total, tail) = behind.split_at_checked(end)?;
        let is_part = head.ends_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '/' | '-' | '_'))
            || tail.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '.' | '/' | '-' | '_'));
        let (done, total): (u64, u64) = (done.parse().ok()?, total.parse().ok()?);
        (!is_part && done <= total && total > 1).then_some(total)
    };
    line.match_indices('/').filter_map(of).max()
}

/// One number for all counters of a line.
fn chained(found: Option<u64>, n: u64, inner: Option<u64>) -> u64 {
    let n = n.wrapping_mul(1_000_003).wrapping_add(inner.unwrap_or(0));
    found.unwrap_or(0).wrapping_mul(31).wrapping_add(n)
}

/// Calls `each` with what follows a counter's name, and behind the `][` that follows; not at all without a metric.
fn each_counter<'l>(line: &'l str, mut each: impl FnMut(&'l str, Option<&'l str>)) {
    if !METRICS.iter().any(|m| has_word(line, m)) {
        return;
    }
    // `  2600 change 9.997e+00 hottest 7.7087 10.64 ms/step`
    if let Some(first) = line.split_whitespace().next()
        && line.contains("/step")
        && first.bytes().all(|b| b.is_ascii_digit())
    {
        each(line.trim_start(), None);
    }
    let is_training = METRICS.iter().any(|m| !WEAK.contains(m) && has_word(line, m));
    for word in COUNTERS {
        for (at, _) in line.match_indices(word) {
            let (before, behind) =
                (line.get(..at).unwrap_or_default(), line.get(at + word.len()..).unwrap_or_default());
            if before.ends_with(char::is_alphabetic) {
                continue;
            }
            let behind = after_name(behind);
            let inner = behind.find("][").and_then(|i| behind.get(i + 2..)).map(str::trim_start);
            each(behind, inner);
            if let Some(count) = last_number(before).and_then(|at| line.get(at..)).filter(|_| is_training) {
                each(count, None);
            }
        }
    }
    if !is_training {
        return;
    }
    // `20/2110, loss 0.7973`, `[#00100] loss_A: 0.06612`; the count of a bar is read with the bar.
    let is_bar = line.contains("%|");
    for (at, mark) in line.match_indices(['/', '#']) {
        let (before, behind) = (line.get(..at).unwrap_or_default(), line.get(at + 1..).unwrap_or_default());
        if mark == "#" && before.ends_with('[') {
            each(behind, None);
        } else if mark == "/"
            && !is_bar
            && behind.trim_start_matches(' ').bytes().take_while(u8::is_ascii_digit).count() >= MIN_OF
        {
            // Dates have shorter ones.
            if let Some(count) = last_number(before).and_then(|at| line.get(at..)) {
                each(count, None);
            }
        }
    }
}

/// What is behind a counter's name: `(train) [  50/120000]`, `] =>> 000010`.
fn after_name(behind: &str) -> &str {
    let part = behind.strip_prefix('(').and_then(|rest| rest.split_once(')'));
    let behind = part
        .filter(|(name, _)| name.bytes().all(|b| b.is_ascii_alphabetic()))
        .map_or(behind, |(_, rest)| rest);
    let signs = [' ', ':', '=', '[', ']', '#', '"', '\'', '\t', '>', '|'];
    let rest = behind.trim_start_matches(signs);
    if behind.len() - rest.len() > MAX_SIGNS { "" } else { rest }
}

/// Where the number begins with which `before` ends, spaces aside: `100 updates`, `20/2110`.
fn last_number(before: &str) -> Option<usize> {
    let text = before.trim_end_matches(' ');
    let digits = text.bytes().rev().take_while(u8::is_ascii_digit).count();
    let at = text.len() - digits;
    let is_whole = text.get(..at).is_some_and(|head| {
        !head.ends_with(['.', '/', '-', ':', '_']) && !head.ends_with(char::is_alphanumeric)
    });
    (digits > 0 && is_whole).then_some(at)
}

/// `{'loss': 2.3123, 'learning_rate': 4.9e-05, 'epoch': 0.12}`.
fn dictionary(line: &str) -> Option<u64> {
    is_dictionary(line).then(|| hashed(line.as_bytes()))
}

fn is_dictionary(line: &str) -> bool {
    line.trim_start().starts_with('{') && line.contains("loss") && line.contains("epoch")
}

/// A number for a line's digits, which are what lines of a dictionary differ in; letters count without case.
fn hashed(line: &[u8]) -> u64 {
    let mix = |hash: u64, word: u64| (hash ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29);
    let mut words = line.chunks_exact(8);
    let hash = words.by_ref().fold(7, |hash, word| {
        mix(hash, word.try_into().map_or(0, u64::from_le_bytes) | 0x2020_2020_2020_2020)
    });
    words.remainder().iter().fold(hash, |hash, byte| mix(hash, u64::from(byte | 0x20)))
}

fn number(text: &str) -> Option<u64> {
    let n = text.bytes().take_while(u8::is_ascii_digit).count();
    text.get(..n)?.parse().ok()
}

/// Whether `line` contains `word` without a letter before or after it.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|b| b.chars().next_back());
        let behind = line.get(at + word.len()..).and_then(|b| b.chars().next());
        before.is_none_or(|c| !c.is_alphanumeric()) && behind.is_none_or(|c| !c.is_alphabetic())
    })
}

#[cfg(test)]
mod total_tests {
    use super::total;

    #[test]
    fn steps_of_a_loop() {
        for (line, expected) in [
            ("Train Epoch: [0][   3/30]\t| Mem (GB) 61.00 (60.4/61)\t| images/seq  3", Some(30)),
            ("epoch 1/3 step 20 / 500 loss 2.1", Some(500)),
            ("saved /ckpt/3/40 on 2024/01/12", None),
            ("31 of 30, 40/30", None),
        ] {
            assert_eq!(total(line), expected, "{line}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ProgressSign, of};

    #[test]
    fn steps_bars_and_ends() {
        let steps = |line| matches!(of(line), Some(ProgressSign::Step(_)));
        for line in [
            "[rank3]: [2026-11-20 10:00:01,532] [INFO] [train.py:120] step 812 loss 2.31 lr 3.0e-4",
            "  2%|▏         | 812/50000 [10:11<9:58:12,  1.37it/s, loss=2.31]",
            " iteration      100/   50000 | elapsed time per iteration (ms): 812.4 | lm loss: 7.831524E+00",
            "{'loss': 2.3123, 'grad_norm': 0.8123, 'learning_rate': 4.9e-05, 'epoch': 0.12}",
            "Epoch [3/90][ 100/ 5005] Time  0.412 ( 0.420) Loss 2.3126e+00",
            "[rank 0] epoch 0 50/98 loss 2.100 0.141 s/it",
            "08/16 14:03:21 - mmengine - INFO - Iter(train) [    50/120000]  lr: 9.9e-03  time: 0.4141  loss: 8.7500",
            "[16:21:40] [#00100] loss_A: 0.06612, loss_B: 0.07105   0.412 s/iter",
            "|=>> [Global Step] =>> 000010 =>> Loss :: 10.3100 =>> LR :: 1.50e-05 =>> 1.038 s/step",
            "| epoch 003 |    100 updates | loss 4.190 | wps 183772 | ups 2.4 | gnorm 0.314",
            "Epoch 0, 20/2110, loss 0.7973, lr 2.00e-07, 3.80 it/s",
            "[INFO] [logging.py:60:log_dist] [Rank 0] rank=0 time (ms) | forward_microstep: 133.91 | backward_microstep: 403.96",
        ] {
            assert!(steps(line), "{line}");
        }
        for line in [
            "0%|          | 0/1201 [00:00<?, ?it/s]",
            "Using 8 GPUs",
            "max_steps: 500",
            "loaded 20/2110 shards, time 3 s",
            "",
        ] {
            assert_eq!(of(line), None, "{line}");
        }
        assert_eq!(of("`Trainer.fit` stopped: `max_epochs=3` reached."), Some(ProgressSign::Done));
        assert_eq!(of("Training completed. Do not forget to share your model"), Some(ProgressSign::Done));
        assert_ne!(of("Job has not completed successfully"), Some(ProgressSign::Done));
    }

    #[test]
    fn suites_that_pass() {
        for line in ["OK (skipped=71)", "===== 12 passed, 2 skipped in 3.21s =====", "rc=0"] {
            assert_eq!(of(line), Some(ProgressSign::Done), "{line}");
        }
        for line in [
            "FAILED (failures=1, skipped=71)",
            "===== 1 failed, 12 passed in 3.21s =====",
            "rc=01",
            "src=0",
            "+ echo rc=0",
            "the token was passed in 3 parts",
        ] {
            assert_ne!(of(line), Some(ProgressSign::Done), "{line}");
        }
    }

    /// What a plan made from one line reads from others is what a look at each of them finds.
    #[test]
    fn a_plan_reads_what_a_look_finds() {
        let lines = [
            "[rank3]: [2026-11-20 10:00:01,532] [INFO] [train.py:120] step 812 loss 2.31 lr 3.0e-4",
            "  2%|▏         | 812/50000 [10:11<9:58:12,  1.37it/s, loss=2.31]",
            "  0%|          | 000/50000 [00:00<?, ?it/s] step 4 loss 3",
            " iteration      100/   50000 | elapsed time per iteration (ms): 812.4 | lm loss: 7.831524E+00",
            "{'loss': 2.3123, 'grad_norm': 0.8123, 'learning_rate': 4.9e-05, 'epoch': 0.12}",
            "Epoch [3/90][ 100/ 5005] Time  0.412 ( 0.420) Loss 2.3126e+00",
            "Epoch: [3][ 99999999999999999999999/ 5005] Time  0.412",
            "epoch=0/micro_step=10/global_step=10, RunningAvgSamplesPerSec=7.1, time 3",
            "08/16 14:03:21 - mmengine - INFO - Iter(train) [    50/120000]  lr: 9.9e-03  time: 0.4141  loss: 8.7500",
            "[16:21:40] [#00100] loss_A: 0.06612, loss_B: 0.07105   0.412 s/iter",
            "| epoch 003 |    100 updates | loss 4.190 | wps 183772 | ups 2.4 | gnorm 0.314",
            "Epoch 0, 20/2110, loss 0.7973, lr 2.00e-07, 3.80 it/s",
            "Epoch 2: 100%|##########| 4342/4342 [41:05<00:00,  1.76it/s, loss=0.297, v_num=3]",
            "Using 8 GPUs",
        ];
        for line in lines {
            let plan = super::StepPlan::of(line).unwrap_or_default();
            for digit in '0'..='9' {
                for every in 1..4 {
                    let mut n = 0;
                    let change = |c: char| {
                        n += usize::from(c.is_ascii_digit());
                        if c.is_ascii_digit() && n % every == 0 { digit } else { c }
                    };
                    let other: String = line.chars().map(change).collect();
                    assert_eq!(plan.read(other.as_bytes()), of(&other), "{other}");
                }
            }
            assert_eq!(plan.shows(), line != "Using 8 GPUs");
        }
        assert_eq!(super::StepPlan::of("task 3 exited with code 1"), None);
    }

    #[test]
    fn different_steps_differ() {
        assert_ne!(of("Epoch [3/90][ 100/ 5005] Time 0.4"), of("Epoch [3/90][ 200/ 5005] Time 0.4"));
        assert_ne!(of("step 1 loss 2"), of("step 2 loss 2"));
        assert_ne!(of("Epoch 1: 100%|##| 42/42 [41:05<00:00]"), of("Epoch 2: 100%|##| 42/42 [41:05<00:00]"));
        assert_ne!(of("| epoch 003 | 100 updates | loss 4.1"), of("| epoch 003 | 200 updates | loss 4.1"));
    }
}
