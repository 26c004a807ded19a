//! What a line in which a value is not a number says besides: whether it is a loss, of which step, of which rank.

use ringleader_model::{NanLine, Rank};

/// Words of lines that show the values of a step.
const OF_STEPS: [&str; 5] = ["loss", "epoch", "step", "iter", "round "];

/// Reads it; the template is the line without its numbers.
pub(super) fn read(text: &str, template: &str) -> NanLine {
    let (text, template) = (text.to_ascii_lowercase(), template.to_ascii_lowercase());
    NanLine {
        is_of_step: OF_STEPS.iter().any(|word| template.contains(word)),
        is_loss: has_nan_loss(&text),
        step: step_of(&text),
        at_end: named_at_end(&text),
    }
}

/// `Loss is NaN (local_rank 5)`.
fn named_at_end(lower: &str) -> Option<Rank> {
    let (_, inside) = lower.trim_end().strip_suffix([')', ']'])?.rsplit_once(['(', '['])?;
    let inside = inside.strip_prefix("local_").or(inside.strip_prefix("local ")).unwrap_or(inside);
    inside.strip_prefix("rank")?.trim_start_matches([' ', ':', '=']).parse().ok().map(Rank)
}

/// `TotalLoss:nan`, `loss = nan`, `'loss': nan`.
fn has_nan_loss(lower: &str) -> bool {
    lower.match_indices("loss").any(|(at, name)| {
        let value = lower.get(at + name.len()..).unwrap_or_default();
        value.trim_start_matches([':', '=', ' ', '"', '\'']).starts_with("nan")
    })
}

/// The number behind `step` or `iter`: `Step:412/1843`, `iter 20`.
fn step_of(lower: &str) -> Option<u64> {
    ["step", "iteration", "iter"].iter().find_map(|name| {
        lower.match_indices(name).find_map(|(at, _)| {
            let rest = lower.get(at + name.len()..)?.trim_start_matches([':', '=', ' ', '[', '#', '"', '\'']);
            let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
            rest.get(..end)?.parse().ok()
        })
    })
}

#[cfg(test)]
mod tests {
    use ringleader_model::{NanLine, Rank};

    use super::read;

    #[test]
    fn steps_and_losses_of_lines() {
        for (line, step, is_loss) in [
            ("   | > Step:412/1843  GlobalStep:412  TotalLoss:nan  GradNorm:nan", Some(412), true),
            ("Step:412/1843 TotalLoss:0.34 GradNorm:nan", Some(412), false),
            ("{'loss': nan, 'epoch': 0.1}", None, true),
            ("iter 20 | loss = nan", Some(20), true),
            ("loss 99999999999999999999999 step 99999999999999999999999", None, false),
        ] {
            assert_eq!(read(line, line), NanLine { is_of_step: true, is_loss, step, at_end: None }, "{line}");
        }
        assert!(!read("grad norm nan", "grad norm nan").is_of_step);
    }

    #[test]
    fn the_rank_at_the_end_of_a_line() {
        let at_end = |line: &str| read(line, line).at_end;
        assert_eq!(at_end("WARNING - Loss is NaN or inf   (local_rank 5)"), Some(Rank(5)));
        assert_eq!(at_end("step 4: loss nan [rank 3]"), Some(Rank(3)));
        assert_eq!(at_end("step 4 of rank 3: loss nan (skipped)"), None);
    }
}
