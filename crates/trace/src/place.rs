//! Where in the program a call was made: the operator around it, and the line of the user's code, if the recorder kept
//! Python's stack.

use std::collections::BTreeMap;

use ringleader_model::{HostSpan, RuntimeCall, SpanKind};

use crate::view::RankTimeline;

/// Spans that are looked at before a call, to find those around it.
const MAX_BACK: usize = 4_096;
/// Calls that are looked at.
const MAX_CALLS: usize = 2_000;
/// A place is named if this share of the time is spent there, percent.
const LEAST_PCT: i64 = 30;

/// Where most of the time of these calls is spent: `aten::item at train.py(42): step`. None if unknown.
pub(crate) fn of_calls(
    views: &[RankTimeline<'_>],
    is_wanted: impl Fn(RuntimeCall, i64) -> bool,
) -> Option<String> {
    let mut times: BTreeMap<String, i64> = BTreeMap::new();
    let mut total = 0;
    for view in views {
        let calls = (0..view.runtime.len() as u32).filter_map(|place| view.call(place)).filter(|call| {
            matches!(call.kind, SpanKind::Runtime(kind) if is_wanted(kind, call.end_ns - call.start_ns))
        });
        for call in calls.take(MAX_CALLS) {
            let time = call.end_ns - call.start_ns;
            total += time;
            if let Some(place) = around(view, call) {
                *times.entry(place).or_default() += time;
            }
        }
    }
    let (place, time) =
        times.into_iter().max_by_key(|(place, time)| (*time, std::cmp::Reverse(place.clone())))?;
    (time * 100 >= total * LEAST_PCT).then_some(place)
}

/// The context of a call: its outermost operator, and the innermost line of the user's code.
fn around(view: &RankTimeline<'_>, call: &HostSpan) -> Option<String> {
    let spans = &view.timeline.host_spans;
    let until = spans.partition_point(|s| s.start_ns <= call.start_ns);
    let holds = |s: &&HostSpan| s.thread == call.thread && s.end_ns >= call.end_ns;
    let (mut operator, mut line) = (None, None);
    for span in spans.iter().take(until).rev().take(MAX_BACK).filter(holds) {
        let name = view.timeline.name(span.name);
        match span.kind {
            SpanKind::Operator => operator = Some(name),
            SpanKind::Python if line.is_none() && is_users(name) => line = Some(name),
            _ => {}
        }
    }
    match (operator, line) {
        (Some(operator), Some(line)) => Some(format!("{operator} at {line}")),
        (Some(one), None) | (None, Some(one)) => Some(one.to_owned()),
        (None, None) => None,
    }
}

/// Parts of paths of code that is not the user's.
const LIBRARIES: [&str; 7] =
    ["site-packages/", "dist-packages/", "lib/python", "torch/", "<frozen ", "<string>", "runpy.py"];

/// Whether the name of a Python function is of the user's code: `train.py(42): step`.
fn is_users(name: &str) -> bool {
    name.contains(".py(") && !LIBRARIES.iter().any(|part| name.contains(part))
}

#[cfg(test)]
mod tests {
    use super::is_users;

    #[test]
    fn lines_of_the_user() {
        assert!(is_users("train.py(42): step"));
        assert!(is_users("/home/u/job/model.py(7): forward"));
        for name in
            ["torch/nn/modules/module.py(1501): _call_impl", "nn.Module: Linear_0", "<built-in method item>"]
        {
            assert!(!is_users(name), "{name}");
        }
    }
}
