//! What a rank does outside of collectives, derived from a frame of its stack or the kernel function that it sleeps
//! in.

use crate::tables::{ASIDE, MARKS, PLACES};
pub use crate::tables::{marks, places as ids};

/// An activity of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Activity {
    /// `data-loader`, `compilation`, ...
    pub id: &'static str,
    /// Its wording: `in the data loader`.
    pub text: &'static str,
    /// Function and file of frames that show it.
    pub frames: &'static [(&'static str, &'static str)],
    /// Kernel functions that show it.
    pub waits: &'static [&'static str],
    /// Parts of names of functions that access files: not enough to show this activity, but enough to examine the
    /// storage below it.
    pub file_work: &'static [&'static str],
    /// Who is here waits for other ranks.
    pub waits_for_ranks: bool,
    /// It does not end by itself.
    pub is_endless: bool,
    /// Source of the names.
    pub source: &'static str,
}

/// What a single frame shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameMark {
    /// `gpu-wait`, `backward`, ...
    pub id: &'static str,
    /// Function and file of frames that show it.
    pub frames: &'static [(&'static str, &'static str)],
    /// Source of the names.
    pub source: &'static str,
}

/// All activities, most specific first.
pub fn all() -> &'static [Activity] {
    PLACES
}

/// The activity that a stack shows, and the index of the frame that shows it. Frames are function and file, innermost
/// first; the file of a native frame may be empty.
pub fn of_stack(frames: &[(&str, &str)]) -> Option<(&'static Activity, usize)> {
    PLACES.iter().find_map(|place| {
        let at = frames.iter().position(|(function, file)| place.is_frame(function, file))?;
        Some((place, at))
    })
}

/// The activity that a kernel function shows (`/proc/PID/wchan`).
pub fn of_wait(wchan: &str) -> Option<&'static Activity> {
    PLACES.iter().find(|place| place.waits.iter().any(|pattern| is_name(pattern, wchan)))
}

/// Whether a function of Python, torch or its loaders reads or writes files, or waits for that, by a part of its
/// name.
pub fn is_file_work(function: &str) -> bool {
    let name = function.to_ascii_lowercase();
    PLACES.iter().any(|place| place.file_work.iter().any(|part| name.contains(part)))
}

/// Whether a function does what one rank often does alone, beside the steps of training: an evaluation, a checkpoint, a
/// metric.
pub fn is_aside(function: &str) -> bool {
    let name = function.to_ascii_lowercase();
    ASIDE.iter().any(|part| name.contains(part))
}

/// Whether a frame is marked so: one of [`marks`].
pub fn is_marked(mark: &str, function: &str, file: &str) -> bool {
    // `Queue.get` of a class is `get`; a native function may have any dots: `connect(…) [clone .cold]`.
    let name = function.rsplit('.').next().unwrap_or(function);
    let is_import = function == "<module>";
    let fits = |pattern: &str| {
        (is_name(pattern, function) || is_name(pattern, name)) && !(is_import && pattern.is_empty())
    };
    let marked = MARKS.iter().find(|m| m.id == mark);
    marked.is_some_and(|mark| mark.frames.iter().any(|(name, path)| fits(name) && is_path(path, file)))
}

impl Activity {
    /// Whether a frame shows this activity.
    pub fn is_frame(&self, function: &str, file: &str) -> bool {
        // `Queue.get`: tools of newer interpreters give the class, too.
        let function = function.rsplit('.').next().unwrap_or(function);
        // A module that is being imported does nothing of what its functions do.
        let is_import = function == "<module>";
        let fits = |name: &str| is_name(name, function) && !(is_import && name.is_empty());
        self.frames.iter().any(|(name, path)| fits(name) && is_path(path, file))
    }
}

/// Whether a name matches a pattern: `*` at its end or start matches anything.
pub(crate) fn is_name(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        _ if pattern.is_empty() => true,
        (Some(rest), Some(_)) => name.contains(rest.trim_end_matches('*')),
        (None, Some(start)) => name.starts_with(start),
        (Some(end), None) => name.ends_with(end),
        (None, None) => name == pattern,
    }
}

fn is_path(pattern: &str, file: &str) -> bool {
    // Whole parts of the path: `mythreading.py` is not `threading.py`.
    let at_part = |at: usize| at == 0 || file.as_bytes().get(at - 1) == Some(&b'/');
    if pattern.is_empty() {
        return true;
    }
    if pattern.ends_with('/') {
        return file.match_indices(pattern).any(|(at, _)| at_part(at));
    }
    file.len().checked_sub(pattern.len()).is_some_and(|at| file.ends_with(pattern) && at_part(at))
}

#[cfg(test)]
mod tests {
    use super::{is_aside, is_marked, marks, of_stack, of_wait};

    #[test]
    fn marks_of_frames() {
        let rendezvous = "torch/distributed/elastic/agent/server/api.py";
        assert!(is_marked(marks::LAUNCHER_RENDEZVOUS, "SimpleElasticAgent._rendezvous", rendezvous));
        assert!(!is_marked(marks::LAUNCHER_RENDEZVOUS, "run", rendezvous));
        let connects = "c10d::detail::SocketConnectOp::tryConnect(int) [clone .cold]";
        assert!(is_marked(marks::STORE_CONNECTION, connects, ""));
        assert!(is_marked(marks::GPU_WAIT, "cuMemcpyDtoH_v2", "libcuda.so.1"));
        assert!(!is_marked(marks::GPU_WAIT, "query", "/x/torch/cuda/streams.py"));
        assert!(is_marked(marks::GPU_CALL, "query", "/x/torch/cuda/streams.py"));
        assert!(!is_marked(marks::TORCH_COLLECTIVE, "<module>", "torch/distributed/distributed_c10d.py"));
    }

    fn id(frames: &[(&str, &str)]) -> Option<(&'static str, usize)> {
        of_stack(frames).map(|(place, at)| (place.id, at))
    }

    #[test]
    fn what_says_most_speaks() {
        let site = "/opt/site-packages";
        let loader = format!("{site}/torch/utils/data/dataloader.py");
        let stack =
            [("wait", "/usr/lib/python3.12/threading.py"), ("get", "queue.py"), ("_next_data", &*loader)];
        assert_eq!(id(&stack), Some(("data-loader", 2)));
        assert_eq!(id(stack.get(..2).unwrap_or_default()), Some(("lock", 0)));
        let saves = format!("{site}/torch/serialization.py");
        assert_eq!(
            id(&[("__write_nocancel", ""), ("_save", &saves), ("main", "train.py")]),
            Some(("checkpoint", 1))
        );
        assert_eq!(id(&[("take_gil", ""), ("main", "train.py")]), Some(("gil", 0)));
        assert_eq!(id(&[("cuStreamSynchronize", ""), ("step", "train.py")]), Some(("cuda-call", 0)));
        assert_eq!(id(&[("main", "train.py")]), None);
    }

    #[test]
    fn a_module_that_is_imported() {
        let imports = [
            ("get_data", "<frozen importlib._bootstrap_external>"),
            ("<module>", "torch/utils/data/dataloader.py"),
            ("_find_and_load", "<frozen importlib._bootstrap>"),
            ("<module>", "train.py"),
        ];
        assert_eq!(id(&imports), Some(("import", 2)));
        // A program that is started by an import.
        let trains = [
            ("_next_data", "torch/utils/data/dataloader.py"),
            ("_find_and_load", "<frozen importlib._bootstrap>"),
        ];
        assert_eq!(id(&trains), Some(("data-loader", 0)));
    }

    #[test]
    fn what_only_looks_like_it() {
        // This recomputes activations.
        assert_eq!(id(&[("checkpoint", "/opt/site-packages/torch/utils/checkpoint.py")]), None);
        // This runs code that was compiled earlier.
        assert_eq!(id(&[("_fn", "/opt/site-packages/torch/_dynamo/eval_frame.py")]), None);
        assert_eq!(id(&[("wait", "/srv/mythreading.py")]), None);
    }

    #[test]
    fn beside_the_steps_of_training() {
        for name in ["Trainer.evaluate", "_run_validation", "save_checkpoint", "gather_for_metrics"] {
            assert!(is_aside(name), "{name}");
        }
        for name in [
            "training_step",
            "backward",
            "save_for_backward",
            "checkpoint",
            "barrier",
            "get_symmetric_memory",
        ] {
            assert!(!is_aside(name), "{name}");
        }
    }

    #[test]
    fn the_kernel_tells_too() {
        let id = |wchan| of_wait(wchan).map(|p| p.id);
        assert_eq!(id("rpc_wait_bit_killable"), Some("storage"));
        // A lock, a queue, or a wait for CUDA: the name does not distinguish them.
        assert_eq!(id("futex_wait_queue"), Some("futex"));
        assert_eq!(id("flock_lock_inode_wait"), Some("lock"));
        assert_eq!(id("nv_wait_for_gpu"), Some("driver"));
        assert_eq!(id("hrtimer_nanosleep"), Some("sleep"));
        assert_eq!(id("0"), None);
        assert_eq!(id("do_poll"), None);
    }
}
