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

/// The step in a line; None if the line names none.
pub fn of(line: &str) -> Option<u64> {
    if line.len() > 4096 {
        return None;
    }
    let lower = line.to_ascii_lowercase();
    // An error message names a step that was not completed.
    if ["error", "exception", "resum", "warn"].iter().any(|word| lower.contains(word)) {
        return None;
    }
    worded(&lower).or_else(|| bar(&lower))
}

fn worded(line: &str) -> Option<u64> {
    WORDS.iter().find_map(|word| {
        line.match_indices(word).find_map(|(at, _)| {
            let before = line.get(..at).and_then(|head| head.chars().next_back());
            if before.is_some_and(|c| c.is_alphanumeric() || c == '_' && *word != "global_step") {
                return None;
            }
            let behind = line.get(at + word.len()..)?;
            let number = behind.trim_start_matches([' ', ':', '=', '[', '#', '"', '\'', '\t']);
            // `steps 5` and `step5` are read, `step_time 5` and `step ms 5` are not.
            digits(number)
        })
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
    fn lines() {
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
            assert_eq!(of(line), expected, "{line}");
        }
        assert_eq!(of(&"step 9 ".repeat(10_000)), None);
    }
}
