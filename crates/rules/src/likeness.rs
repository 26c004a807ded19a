//! What the words of the evidence resemble, where no rule speaks: never more than low, with what each word adds.

use ringleader_correlate::Scene;
use ringleader_knowledge::cause;
use ringleader_model::{Category, Cause, Confidence, Finding, Impact, Severity, SourceKind, Weight};

use crate::rule::Draft;

/// Name of the finding's rule.
pub(crate) const RULE: &str = "likeness";
/// Least score, and how far it must be ahead, where something speaks of failure.
const LEAST: (f32, f32) = (0.2, 0.0);
/// The same where nothing does.
const LEAST_OF_NONE: (f32, f32) = (0.6, 0.2);

/// The likeliest cause as a finding; `is_clean`: nothing speaks of failure; `is_running`: steps go on.
pub(crate) fn finding(scene: &Scene<'_>, is_clean: bool, is_running: bool) -> Option<Finding> {
    let likely = scene.likeness().likeliest()?;
    let (score, ahead) = if is_clean { LEAST_OF_NONE } else { LEAST };
    if likely.score < score || likely.ahead < ahead || matches!(likely.cause, Cause::None | Cause::Undecided)
    {
        return None;
    }
    // The calls of a job that runs resemble those of one that hangs.
    let category = cause::category(likely.cause);
    if is_clean && category == Category::Hang
        || is_running && matches!(category, Category::Crash | Category::Init)
    {
        return None;
    }
    let named = |cause: Cause| cause.id();
    let title = format!("by its words this resembles {}; no rule decides it", named(likely.cause));
    let slow = cause::category(likely.cause) == Category::Performance;
    let next: Vec<&str> = likely.next.iter().copied().filter(|c| *c != Cause::None).map(named).collect();
    let mut draft = Draft::new(RULE, likely.cause, title)
        .severity(if slow { Severity::Warning } else { Severity::Error })
        .weight(Weight::Symptom)
        .confidence(Confidence::Low)
        .at_most(Confidence::Low);
    for (word, part, cite) in &likely.because {
        draft = draft.cite(*cite, SourceKind::PlainText, format!("\"{}\" +{part:.2}", word.text()));
    }
    draft
        .advise_made(
            Impact::Harmless,
            format!("read what would show it; the next by likeness: {}", next.join(", ")),
            Some(format!("ringleader explain {}", likely.cause.id())),
        )
        .build()
}
