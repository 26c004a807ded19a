//! Places in the code: the stacks from which calls are made.

use crate::prng::Prng;

/// One frame, innermost first within a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlainFrame {
    pub(crate) function: String,
    pub(crate) file: String,
    pub(crate) line: u32,
}

/// Index into [`Places`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PlaceId(pub(crate) u16);

/// All stacks of a job.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    stacks: Vec<Vec<PlainFrame>>,
    /// Directory of the installed packages.
    pub(crate) packages: String,
    /// The user's script.
    pub(crate) script: String,
    /// Function names of the script.
    pub(crate) names: ScriptNames,
}

/// Names in the user's script.
#[derive(Clone, Debug)]
pub(crate) struct ScriptNames {
    pub(crate) main: &'static str,
    pub(crate) train: &'static str,
    pub(crate) step: &'static str,
    pub(crate) sync: &'static str,
    pub(crate) load: &'static str,
    pub(crate) save: &'static str,
    pub(crate) finish: &'static str,
    pub(crate) log: &'static str,
    pub(crate) forward: &'static str,
    pub(crate) backward: &'static str,
}

impl Places {
    pub(crate) fn new(prng: &mut Prng) -> Self {
        let root = prng.pick(&["/srv/train", "/workspace/llm", "/home/ml/run-17", "/data/exp/code", "/app"]);
        let file = prng.pick(&["train.py", "pretrain.py", "main.py", "finetune.py"]);
        let packages = prng
            .pick(&["/opt/venv/lib/python3.12/site-packages/", "/usr/local/lib/python3.10/dist-packages/"]);
        Self {
            stacks: Vec::new(),
            packages: packages.to_owned(),
            script: format!("{root}/{file}"),
            names: ScriptNames {
                main: prng.pick(&["main", "run", "entry"]),
                train: prng.pick(&["train", "fit", "training_loop"]),
                step: prng.pick(&["train_step", "training_step", "one_step"]),
                sync: prng.pick(&["sync_grads", "reduce_gradients", "average_gradients"]),
                load: prng.pick(&["load_batch", "next_batch", "fetch_sample"]),
                save: prng.pick(&["save_checkpoint", "evaluate", "tokenize_shard"]),
                finish: prng.pick(&["finish", "end_of_epoch", "wrap_up"]),
                log: prng.pick(&["log_metrics", "report_loss", "track_stats"]),
                forward: prng.pick(&["forward_stage", "run_forward", "forward_pass"]),
                backward: prng.pick(&["backward_stage", "run_backward", "backward_pass"]),
            },
        }
    }

    pub(crate) fn stack(&self, place: PlaceId) -> &[PlainFrame] {
        &self.stacks[usize::from(place.0)]
    }

    /// Finds a stack, or adds it.
    pub(crate) fn add(&mut self, stack: Vec<PlainFrame>) -> PlaceId {
        if let Some(at) = self.stacks.iter().position(|s| *s == stack) {
            return PlaceId(at as u16);
        }
        self.stacks.push(stack);
        PlaceId((self.stacks.len() - 1) as u16)
    }

    /// A frame of an installed package.
    pub(crate) fn package(&self, function: &str, path: &str, line: u32) -> PlainFrame {
        PlainFrame { function: function.to_owned(), file: format!("{}{path}", self.packages), line }
    }

    /// A frame of the script.
    pub(crate) fn user(&self, function: &str, line: u32) -> PlainFrame {
        PlainFrame { function: function.to_owned(), file: self.script.clone(), line }
    }

    /// The outer frames of every stack of the main thread. `line` is the line of the call inside `train`.
    pub(crate) fn outer(&self, line: u32) -> Vec<PlainFrame> {
        vec![self.user(self.names.train, line), self.user(self.names.main, 402), self.user("<module>", 411)]
    }

    /// A stack: `inner` frames, then `function` of the script at `line`, called from the loop.
    pub(crate) fn in_user(&mut self, inner: Vec<PlainFrame>, function: &str, line: u32) -> PlaceId {
        let mut stack = inner;
        stack.push(self.user(function, line));
        stack.push(self.user(self.names.step, 290 + line % 7));
        stack.extend(self.outer(350));
        self.add(stack)
    }

    /// The innermost function of the script in a stack, if there is one.
    pub(crate) fn user_function(&self, place: PlaceId) -> Option<&str> {
        self.stack(place).iter().find(|f| f.file == self.script).map(|f| f.function.as_str())
    }

    /// Frames of torch through which a collective is entered.
    pub(crate) fn entry(&self, function: &str) -> Vec<PlainFrame> {
        let line = match function {
            "all_gather_into_tensor" => 4186,
            "reduce_scatter_tensor" => 4652,
            "broadcast" => 2999,
            "reduce" => 3170,
            "barrier" => 4958,
            "isend" => 2552,
            "irecv" => 2597,
            _ => 3068,
        };
        vec![
            self.package(function, "torch/distributed/distributed_c10d.py", line),
            self.package("wrapper", "torch/distributed/c10d_logger.py", 83),
        ]
    }
}
