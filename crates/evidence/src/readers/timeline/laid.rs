//! Events in the layout in which PyTorch's profiler writes them: the arguments last, closed by a line of their own. The end of
//! arguments that nobody needs (those of operators and of arrows, a large part of a file) is searched for, and they are not read.
//!
//! ```text
//!   {
//!     "ph": "X", "cat": "cpu_op", "name": "aten::mm", "pid": 4711, "tid": 4711,
//!     "ts": 5.000, "dur": 31.250,
//!     "args": {
//!       "External id": 7,"Record function id": 0, "Ev Idx": 7
//!     }
//!   },
//! ```
//!
//! Any doubt, and the arguments are read as all others are (`None`).

use memchr::memmem;

/// Behind the arguments: JSON has no raw line break in a string.
const CLOSE: &[u8] = b"\n    }\n  }";
/// Part of it behind the arguments' own brace.
const CLOSE_EVENT_BYTES: usize = b"\n  }".len();
/// Longest arguments that are passed over; a stray quote or a cut would have to hide within them.
const MAX_ARGS_BYTES: usize = 2_000;

/// Whether an event of this phase, category and name (with their quotes) needs its arguments.
#[inline]
pub(super) fn needs_arguments(phase: &[u8], category: &[u8], name: &[u8]) -> bool {
    match phase {
        b"\"X\"" => {
            let is_plain = matches!(
                category,
                b"\"cpu_op\"" | b"\"python_function\"" | b"\"user_annotation\"" | b"\"Operator\""
            );
            !is_plain || name == b"\"record_param_comms\""
        }
        b"\"s\"" | b"\"f\"" | b"\"i\"" => false,
        _ => true,
    }
}

/// The ends of the arguments that begin at `at`, and of their event, if they are laid out so.
#[inline]
pub(super) fn ends(bytes: &[u8], at: usize) -> Option<(usize, usize)> {
    let args = bytes.get(at..(at + MAX_ARGS_BYTES).min(bytes.len()))?;
    let n = memmem::find(args, CLOSE)?;
    // Another event within: this one was cut.
    if args.first() != Some(&b'{') || memmem::find(args.get(..n)?, b"\"ph\"").is_some() {
        return None;
    }
    let end = at + n + CLOSE.len();
    matches!(bytes.get(end)?, b',' | b'\n' | b'\r' | b']').then_some((end - CLOSE_EVENT_BYTES, end))
}

#[cfg(test)]
mod tests {
    use super::{ends, needs_arguments};

    #[test]
    fn the_end_of_arguments_is_found_where_nothing_is_odd() {
        let whole = b"{\n      \"a\": {\"b\": \"} ]\"}\n    }\n  },\n  {";
        let (args, event) = ends(whole, 0).unwrap();
        assert_eq!((&whole[args - 2..args], &whole[event - 4..event]), (&b" }"[..], &b"\n  }"[..]));
        // Another event within, something else behind, or no end in reach.
        assert_eq!(ends(b"{\n \"a\": 1,\n  {\n    \"ph\": \"X\", \"args\": {\n    }\n  },", 0), None);
        assert_eq!(ends(b"{\n    }\n  } INFO", 0), None);
        assert_eq!(ends(b"{\n    }\n  }", 0), None);
        let long = [&b"{"[..], &[b' '; super::MAX_ARGS_BYTES], b"\n    }\n  },"].concat();
        assert_eq!(ends(&long, 0), None);
        assert_eq!(ends(b"[\n    }\n  },", 0), None);
    }

    #[test]
    fn arguments_that_are_read_are_not_passed_over() {
        let needs = |phase: &str, category: &str, name: &str| {
            needs_arguments(phase.as_bytes(), category.as_bytes(), name.as_bytes())
        };
        assert!(!needs("\"X\"", "\"cpu_op\"", "\"aten::mm\""));
        assert!(needs("\"X\"", "\"cpu_op\"", "\"record_param_comms\""));
        assert!(
            needs("\"X\"", "\"kernel\"", "\"gemm\"")
                && needs("\"X\"", "\"cuda_runtime\"", "\"cudaLaunchKernel\"")
        );
        assert!(!needs("\"s\"", "\"ac2g\"", "\"ac2g\"") && needs("\"b\"", "\"COLL\"", "\"AllReduce\""));
    }
}
