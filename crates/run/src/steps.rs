//! The training step that a program has reached, from its output.
//!
//! ```text
//! step 812 loss 2.31 lr 3.0e-4
//! [2026-11-20 10:00:01,532] iteration      100/   50000 | lm loss: 7.8
//!   2%|▏         | 812/50000 [10:11<9:58:12,  1.37it/s]
//! ```

/// Words before the number of a step, the most specific first. Epochs do not count: many steps share one.
const WORDS: [&str; 7] = ["global_step", "global step", "step", "iteration", "iter", "batch", "update"];
/// A number with more digits is an id or a time.
const MAX_DIGITS: usize = 12;

/// Number of kinds of counters: one for each word, and progress bars.
const N_KINDS: usize = WORDS.len() + 1;
/// Kinds that count over the whole training.
const N_GLOBAL: usize = 2;
/// A counter that falls by this much to its first number has been reset; two smaller falls show it, too.
const FALL: u64 = 5;

/// A number in the output that counts steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepNumber {
    /// The word before it, as an index; the last one stands for progress bars.
    kind: usize,
    /// The number.
    pub number: u64,
}

/// The steps of one attempt. Programs also print other counters: batches within an epoch, steps of an evaluation. The one
/// that moved most counts, except that `global_step` precedes all others.
#[derive(Clone, Debug, Default)]
pub struct Counters {
    of: [Counter; N_KINDS],
}

/// One counter.
#[derive(Clone, Debug, Default)]
struct Counter {
    /// Time and number of its first step.
    first: Option<(f64, u64)>,
    /// Time and number of its newest step; of one that is never reset, of its highest step.
    last: Option<(f64, u64)>,
    /// Its highest number.
    top: u64,
    /// The newest number in the output.
    newest: Option<u64>,
    n_moves: u64,
    /// How often it has fallen to its first number.
    n_falls: u32,
    /// It starts again, for example with every epoch.
    resets: bool,
}

impl Counters {
    /// Takes a step that was printed at a time. Returns whether it shows progress: the number is a new one. `resumed_from` is
    /// the step of the checkpoint, which the program may print when it resumes.
    pub fn take(&mut self, at: f64, step: StepNumber, resumed_from: Option<u64>) -> bool {
        self.of.get_mut(step.kind).is_some_and(|counter| counter.take(at, step.number, resumed_from))
    }

    fn main(&self) -> Option<&Counter> {
        let moving = || self.of.iter().filter(|counter| counter.last.is_some());
        let of_all = self.of.iter().take(N_GLOBAL).find(|counter| counter.last.is_some());
        // The first of those that moved most.
        of_all.or_else(|| moving().rev().max_by_key(|counter| counter.n_moves))
    }

    /// Time and number of the first step.
    pub fn first(&self) -> Option<(f64, u64)> {
        self.main()?.first
    }

    /// Time and number of the last step.
    pub fn last(&self) -> Option<(f64, u64)> {
        self.main()?.last
    }

    /// The number starts again, for example with every epoch: it does not tell how far the training is.
    pub fn resets(&self) -> bool {
        self.main().is_some_and(|counter| counter.resets)
    }
}

impl Counter {
    fn take(&mut self, at: f64, number: u64, resumed_from: Option<u64>) -> bool {
        let before = self.newest.replace(number);
        // Several ranks print the same step.
        if before == Some(number) {
            return false;
        }
        let Some((_, last)) = self.last else {
            let is_past = resumed_from.is_some_and(|from| number <= from);
            // The first number may be the checkpoint's own; a second one above it is a step.
            if is_past && before.is_none_or(|before| number < before) {
                return false;
            }
            let first = before.filter(|_| is_past).unwrap_or(number);
            (self.first, self.last) = (Some((at, first)), Some((at, number)));
            self.top = if is_past { resumed_from.unwrap_or(number) } else { number };
            (self.resets, self.n_moves) = (is_past, 1);
            return true;
        };
        self.n_moves += 1;
        let first = self.first.map_or(0, |(_, first)| first);
        if number > self.top {
            // It only lagged behind: another rank's, or the program repeated steps.
            (self.top, self.resets, self.n_falls) = (number, false, 0);
            self.last = Some((at, number));
        } else if self.resets {
            self.last = Some((at, number));
        } else if number <= first && number < last {
            self.n_falls += 1;
            if last - number >= FALL || self.n_falls >= 2 {
                self.resets = true;
                self.last = Some((at, number));
            }
        }
        true
    }
}

/// The step in a line; None if the line names none.
pub fn of(line: &str) -> Option<StepNumber> {
    if line.len() > 4096 {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    // An error message names a step that was not completed.
    if ["error", "exception", "resum", "warn"].iter().any(|word| lower.contains(word)) {
        return None;
    }
    let of_bar = || Some(StepNumber { kind: WORDS.len(), number: bar(&lower)? });
    worded(&lower).or_else(of_bar)
}

fn worded(line: &str) -> Option<StepNumber> {
    WORDS.iter().enumerate().find_map(|(kind, word)| {
        let number = line.match_indices(word).find_map(|(at, _)| {
            let before = line.get(..at).and_then(|head| head.chars().next_back());
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' && *word != "global_step") {
                return None;
            }
            let behind = line.get(at + word.len()..)?;
            let number = behind.trim_start_matches([' ', ':', '=', '[', '#', '"', '\'', '\t']);
            // `steps 5` and `step5` are read, `step_time 5` and `step ms 5` are not.
            digits(number)
        });
        Some(StepNumber { kind, number: number? })
    })
}

/// The count of the last progress bar in a line.
fn bar(line: &str) -> Option<u64> {
    let at = line.rfind("%|")?;
    let count = line.get(at + 2..)?.split_once('|')?.1.trim_start();
    let n = digits(count)?;
    count.contains('/').then_some(n).filter(|n| *n > 0)
}

fn digits(text: &str) -> Option<u64> {
    let n = text.bytes().take_while(u8::is_ascii_digit).count();
    // `0.83` and `12:30` are not steps.
    let is_other = text.get(n..).is_some_and(|rest| {
        let mut rest = rest.chars();
        matches!(rest.next(), Some('.' | ':')) && rest.next().is_some_and(|c| c.is_ascii_digit())
    });
    if n == 0 || n > MAX_DIGITS || is_other {
        return None;
    }
    text.get(..n)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_programs() {
        for (line, expected) in [
            ("step 812 loss 2.31 lr 3.0e-4", Some(812)),
            ("[rank0]: step=7: loss=0.1", Some(7)),
            ("iteration      100/   50000 | lm loss: 7.8", Some(100)),
            ("  2%|▏         | 812/50000 [10:11<9:58:12,  1.37it/s]", Some(812)),
            ("{\"global_step\": 40, \"loss\": 1.5}", Some(40)),
            ("epoch 3 step 14 loss 1", Some(14)),
            ("Iter[20] loss 3", Some(20)),
            ("step time 0.83 s", None),
            ("step 0.83", None),
            ("at 12:30 all is well", None),
            ("footstep 5", None),
            ("ValueError: batch of step 50 has no label", None),
            ("resumed from ckpt/step_20.pt at step 20", None),
            ("  0%|          | 0/500 [00:00<?, ?it/s]", None),
            ("", None),
        ] {
            assert_eq!(of(line).map(|step| step.number), expected, "{line}");
        }
        assert_eq!(of(&"step 9 ".repeat(10_000)), None);
    }

    /// What is printed, one line a second: progress for each line, and at the end first and last step and whether it resets.
    fn counted(lines: &[String], resumed_from: Option<u64>) -> (Vec<bool>, Option<u64>, Option<u64>, bool) {
        let mut counters = Counters::default();
        let steps = lines.iter().enumerate().filter_map(|(at, line)| Some((at as f64, of(line)?)));
        let moved = steps.map(|(at, step)| counters.take(at, step, resumed_from)).collect();
        let number = |step: Option<(f64, u64)>| step.map(|(_, number)| number);
        (moved, number(counters.first()), number(counters.last()), counters.resets())
    }

    fn lines(text: &str) -> Vec<String> {
        text.split(';').map(|line| line.trim().to_owned()).collect()
    }

    #[test]
    fn a_counter_that_starts_again_with_every_epoch_is_progress_and_no_measure() {
        let epochs: Vec<String> = (1..4)
            .flat_map(|epoch| (1..21).map(move |batch| format!("epoch {epoch} batch {batch}/20 loss 1")))
            .collect();
        let (moved, first, last, resets) = counted(&epochs, None);
        assert!(moved.iter().all(|moved| *moved) && resets);
        assert_eq!((first, last), (Some(1), Some(20)));
        assert!(!counted(&epochs[..20], None).3, "one epoch");
        let (moved, _, last, resets) = counted(&epochs[..27], Some(500));
        assert!(resets && moved[1..].iter().all(|moved| *moved));
        assert_eq!(last, Some(7));
        let short = lines("batch 1/2; batch 2/2; batch 1/2; batch 2/2; batch 1/2");
        assert!(counted(&short, None).3);
    }

    #[test]
    fn ranks_that_print_the_same_steps_are_one_counter() {
        // Each rank prints each step, one of them later.
        let late = lines("step 1; step 1; step 2; step 3; step 2; step 3; step 4; step 4; step 4");
        let (moved, first, last, resets) = counted(&late, None);
        assert_eq!(moved, [true, false, true, true, true, true, true, false, false]);
        assert_eq!((first, last, resets), (Some(1), Some(4), false));
        // A buffer of twenty lines a rank.
        let twice = |from: u64| (0..40).map(move |n| format!("step {}", from + n % 20));
        let buffered: Vec<String> = twice(1).chain(twice(21)).collect();
        assert_eq!(counted(&buffered, None).2, Some(40));
        assert!(!counted(&buffered, None).3);
    }

    #[test]
    fn a_global_step_precedes_other_counters() {
        let both = lines(
            "batch 7/9; batch 8/9; global_step 100; batch 1/9; batch 2/9; eval step 3; global_step 101; batch 1/9",
        );
        let (moved, first, last, resets) = counted(&both, Some(90));
        assert_eq!((first, last, resets), (Some(100), Some(101), false));
        // The first number of a kind may be the checkpoint's.
        assert_eq!(moved, [false, true, true, true, true, false, true, true]);
        // The counter that moves most, not that of the evaluation.
        let (_, _, last, _) =
            counted(&lines("iteration 5; iteration 6; iteration 7; eval step 900; iteration 8"), None);
        assert_eq!(last, Some(8));
    }

    #[test]
    fn the_checkpoints_own_step_is_no_step() {
        assert_eq!(counted(&lines("step 20; step 20"), Some(20)), (vec![false, false], None, None, false));
        assert_eq!(
            counted(&lines("step 20; step 21"), Some(20)),
            (vec![false, true], Some(21), Some(21), false)
        );
        // The program took an older checkpoint: it repeats steps.
        let older = lines("step 11; step 12; step 21");
        assert_eq!(counted(&older, Some(20)), (vec![false, true, true], Some(11), Some(21), false));
    }
}
