//! What a rank outside of any collective does, from its stack.

use std::fmt::Write as _;

use ringleader_knowledge::place;
use serde::{Deserialize, Serialize};

/// What a rank does, and the frame that shows it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outside {
    /// An id of `ringleader_knowledge::place`: `data-loader`, `storage`, `lock`, ... Empty if neither stack nor kernel tell.
    pub label: String,
    /// For people: `in the data loader: _next_data (torch/utils/data/dataloader.py:788)`.
    pub text: String,
    /// The frame.
    pub frame: String,
}

/// What a stack (outermost frame first, each `function (file:line)`) and the kernel's function say. None where there is
/// neither.
pub fn outside(stack: &[String], wchan: Option<&str>) -> Option<Outside> {
    let frames: Vec<(&str, &str)> = stack.iter().rev().map(|f| parts(f)).collect();
    let shown = place::of_stack(&frames);
    let kernel = wchan.and_then(|w| Some((place::of_wait(w)?, w)));
    let frame = |at: usize| stack.iter().rev().nth(at).cloned().unwrap_or_default();
    match (shown, kernel) {
        (Some((place, at)), kernel) => {
            let mut text = format!("{}: {}", place.text, frame(at));
            // A lock in Python is a lock in the kernel too, and most other waits are a futex there.
            if let Some((below, wchan)) = kernel.filter(|(below, _)| {
                below.id != place.id && !matches!(below.id, place::ids::LOCK | place::ids::FUTEX)
            }) {
                _ = write!(text, ", {} ({wchan} of the kernel)", below.text);
            }
            Some(Outside { label: place.id.to_owned(), text, frame: frame(at) })
        }
        (None, Some((place, wchan))) => Some(Outside {
            label: place.id.to_owned(),
            text: format!("{} ({wchan} of the kernel)", place.text),
            frame: frame(0),
        }),
        (None, None) => {
            let frame = stack.last()?;
            Some(Outside { label: String::new(), text: format!("in {frame}"), frame: frame.clone() })
        }
    }
}

/// Function and file of `function (file:line)`.
fn parts(frame: &str) -> (&str, &str) {
    let Some((function, place)) = frame.rsplit_once(" (") else { return (frame.trim(), "") };
    let place = place.trim_end_matches(')');
    let file = place.rsplit_once(':').filter(|(_, line)| line.bytes().all(|b| b.is_ascii_digit()));
    (function.trim(), file.map_or(place, |(file, _)| file))
}

#[cfg(test)]
mod tests {
    use super::outside;

    fn stack(frames: &[&str]) -> Vec<String> {
        frames.iter().map(|f| (*f).to_owned()).collect()
    }

    #[test]
    fn frame_and_kernel() {
        let loader = stack(&[
            "main (train.py:10)",
            "_next_data (/opt/torch/utils/data/dataloader.py:788)",
            "wait (threading.py:327)",
        ]);
        let seen = outside(&loader, Some("futex_wait_queue")).unwrap();
        assert_eq!(seen.label, "data-loader");
        assert_eq!(seen.text, "in the data loader: _next_data (/opt/torch/utils/data/dataloader.py:788)");
        let saves = stack(&["main (train.py:10)", "save_checkpoint (train.py:90)"]);
        let seen = outside(&saves, Some("rpc_wait_bit_killable")).unwrap();
        assert_eq!(seen.label, "checkpoint");
        assert!(seen.text.contains("waiting for storage"), "{}", seen.text);
    }

    #[test]
    fn one_of_both() {
        assert_eq!(outside(&[], Some("nv_wait")).unwrap().label, "driver");
        let own = outside(&stack(&["main (train.py:10)"]), None).unwrap();
        assert_eq!((&*own.label, &*own.text), ("", "in main (train.py:10)"));
        assert_eq!(outside(&[], Some("do_poll")), None);
    }
}
