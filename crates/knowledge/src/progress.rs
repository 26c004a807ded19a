//! Signs in ordinary output that a job makes progress, or that it ended successfully.
//!
//! ```text
//! [rank3]: [2026-11-20 10:00:01,532] [INFO] [train.py:120] step 812 loss 2.31 lr 3.0e-4
//!   2%|▏         | 812/50000 [10:11<9:58:12,  1.37it/s]
//! {'loss': 2.3123, 'grad_norm': 0.8123, 'epoch': 0.12}
//! `Trainer.fit` stopped: `max_epochs=3` reached.
//! ```

/// A sign of progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// A step, epoch or bar, by its number.
    Step(u64),
    /// The job reports that it is done.
    Done,
}

/// Words before the number of a step.
const COUNTERS: &[&str] =
    &["global_step", "step", "iteration", "iter", "epoch", "batch", "update", "round", "generation"];
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
    "returned 0 after",
    "succeeded",
    "state: finished",
    "all done",
    "process group destroyed",
    "training succeeded",
];
/// Words that turn such text into a failure.
const NOT_DONE: &[&str] = &["not ", "fail", "error", "before ", "until ", "if ", "when ", "0 succeeded"];

/// Whether a line may show progress: a cheap test for every line of a source.
#[inline]
pub fn may_show(line: &[u8]) -> bool {
    line.iter().any(u8::is_ascii_digit) || line.len() >= 8 && line.len() < 400
}

/// The sign in `line`, if there is one.
pub fn of(line: &str) -> Option<Sign> {
    let lower = line.to_ascii_lowercase();
    if let Some(done) = DONE.iter().find_map(|words| lower.find(words)) {
        let head = lower.get(..done).unwrap_or_default();
        if !NOT_DONE.iter().any(|n| head.contains(n) || lower.contains("unsuccessful") && *n == "fail") {
            return Some(Sign::Done);
        }
    }
    if is_last_word(&lower) {
        return Some(Sign::Done);
    }
    let served = || served(&lower);
    bar(&lower).or_else(|| counted(&lower)).or_else(|| dictionary(&lower)).or_else(served).map(Sign::Step)
}

/// `process 0 finished`, `[rank 3] done`: a few words of a worker that say that it is at its end.
fn is_last_word(line: &str) -> bool {
    const MAX_WORDS: usize = 4;
    let text = line.trim().trim_end_matches(['.', '!']);
    let ends = text.ends_with(" finished") || text.ends_with(" done");
    let subjects = ["process", "rank", "worker", "training"];
    ends && text.split_whitespace().count() <= MAX_WORDS && subjects.iter().any(|word| text.contains(word))
}

/// A server that answers: `"POST /v1/completions HTTP/1.1" 200 OK`, `Avg generation throughput: 91.4 tokens/s`.
fn served(line: &str) -> Option<u64> {
    const RATE: &str = "generation throughput";
    let is_answer = line.contains("\"post ") && line.contains("http/1.1\" 200");
    let rate = line.find(RATE).and_then(|at| line.get(at + RATE.len()..));
    let is_rate = rate.is_some_and(|rest| {
        let number: String =
            rest.chars().skip_while(|c| !c.is_ascii_digit()).take_while(|c| *c != ' ').collect();
        number.bytes().any(|b| (b'1'..=b'9').contains(&b))
    });
    (is_answer || is_rate)
        .then(|| line.bytes().fold(11, |hash: u64, b| hash.wrapping_mul(31).wrapping_add(u64::from(b))))
}

/// `45%|████▌     | 450/1000 [05:12<06:22,  1.44it/s]`, `390/390 [====…] - 61s 156ms/step`: the last bar of a line.
fn bar(line: &str) -> Option<u64> {
    if let Some((head, rest)) = line.split_once(" [===")
        && rest.contains('s')
    {
        let (done, _) = head.rsplit(|c: char| c.is_whitespace()).next()?.split_once('/')?;
        // The rest of the line tells one epoch from the next.
        let tail = rest.bytes().fold(0, |hash: u64, b| hash.wrapping_mul(31).wrapping_add(u64::from(b)));
        return number(done).filter(|n| *n > 0).map(|n| n.wrapping_add(tail));
    }
    let at = line.rfind("%|")?;
    let behind = line.get(at + 2..)?.split('|').nth(1)?;
    let n = number(behind.trim_start())?;
    // A bar at zero is no progress.
    (n > 0).then_some(n)
}

/// `step 812 loss 2.31`, `iteration      100/   50000 | lm loss: 7.8`, `Epoch: [3][100/5005] Time 0.4`.
fn counted(line: &str) -> Option<u64> {
    if !METRICS.iter().any(|m| has_word(line, m)) {
        return None;
    }
    let mut found = None;
    for word in COUNTERS {
        for (at, _) in line.match_indices(word) {
            let behind = line.get(at + word.len()..).unwrap_or_default();
            let before = line.get(..at).and_then(|b| b.chars().next_back());
            if before.is_some_and(char::is_alphabetic) {
                continue;
            }
            let behind = behind.trim_start_matches([' ', ':', '=', '[', '#', '"', '\'', '\t']);
            if let Some(n) = number(behind) {
                let inner = behind.find("][").and_then(|i| number(behind.get(i + 2..)?.trim_start()));
                let n = n.wrapping_mul(1_000_003).wrapping_add(inner.unwrap_or(0));
                found = Some(found.unwrap_or(0_u64).wrapping_mul(31).wrapping_add(n));
            }
        }
    }
    found
}

/// `{'loss': 2.3123, 'learning_rate': 4.9e-05, 'epoch': 0.12}`.
fn dictionary(line: &str) -> Option<u64> {
    let is_metrics = line.trim_start().starts_with('{') && line.contains("loss") && line.contains("epoch");
    is_metrics.then(|| line.bytes().fold(7, |hash: u64, b| hash.wrapping_mul(31).wrapping_add(u64::from(b))))
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
mod tests {
    use super::{Sign, of};

    #[test]
    fn steps_bars_and_ends() {
        let steps = |line| matches!(of(line), Some(Sign::Step(_)));
        for line in [
            "[rank3]: [2026-11-20 10:00:01,532] [INFO] [train.py:120] step 812 loss 2.31 lr 3.0e-4",
            "  2%|▏         | 812/50000 [10:11<9:58:12,  1.37it/s, loss=2.31]",
            " iteration      100/   50000 | elapsed time per iteration (ms): 812.4 | lm loss: 7.831524E+00",
            "{'loss': 2.3123, 'grad_norm': 0.8123, 'learning_rate': 4.9e-05, 'epoch': 0.12}",
            "Epoch [3/90][ 100/ 5005] Time  0.412 ( 0.420) Loss 2.3126e+00",
            "[rank 0] epoch 0 50/98 loss 2.100 0.141 s/it",
        ] {
            assert!(steps(line), "{line}");
        }
        for line in ["0%|          | 0/1201 [00:00<?, ?it/s]", "Using 8 GPUs", "max_steps: 500", ""] {
            assert_eq!(of(line), None, "{line}");
        }
        assert_eq!(of("`Trainer.fit` stopped: `max_epochs=3` reached."), Some(Sign::Done));
        assert_eq!(of("Training completed. Do not forget to share your model"), Some(Sign::Done));
        assert_ne!(of("Job has not completed successfully"), Some(Sign::Done));
    }

    #[test]
    fn different_steps_differ() {
        assert_ne!(of("Epoch [3/90][ 100/ 5005] Time 0.4"), of("Epoch [3/90][ 200/ 5005] Time 0.4"));
        assert_ne!(of("step 1 loss 2"), of("step 2 loss 2"));
    }
}
