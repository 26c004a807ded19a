use proptest::prelude::*;
use ringleader_model::Fact;

use crate::tell;

const PYTHON: &str =
    "try:\n  step()\nexcept RuntimeError:\n  raise RuntimeError(\"CUDA out of memory. lower the batch\")\n";
const RUST: &str = "//! torch.OutOfMemoryError, `CUDA out of memory` of torch.\nuse crate::staging::Stage;\n\n\
    #[test]\nfn it_runs_out() {\n    let stage = Stage::job(2)\n        \
    .raised(Some(0), \"torch.OutOfMemoryError\", \"CUDA out of memory.\", &[]);\n    stage.silent(&RULE);\n}\n";
const SHELL: &str = "#!/bin/bash\nset -e\nexport NCCL_DEBUG=INFO\nif grep -q x log; then\n  \
    echo \"RuntimeError: CUDA out of memory\"\nfi\n";
const RUNBOOK: &str = "# Memory runs out\n\nIf the log says CUDA out of memory, lower the size of the batch.\n\n\
    - `RuntimeError: CUDA out of memory`: lower the batch\n- Killed: ask for more memory\n\n```\n\
    torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB\n```\n";
const TOML: &str = "# What programs say.\n[[saying]]\ncause = \"cuda-oom\"\ntext = \"CUDA out of memory\"\n\
    since = \"2.0\"\n";

/// Whether what a text says of errors counts; a note says if not.
fn check(text: &str, counts: bool) {
    let extract = tell::read("x", text.as_bytes());
    let accuses = extract.observations.iter().any(|o| matches!(o.fact, Fact::Torch(_)));
    assert_eq!((accuses, extract.notes.is_empty()), (counts, counts), "{text}");
}

#[test]
fn programs_and_documents_accuse_nobody() {
    for text in [PYTHON, RUST, SHELL, RUNBOOK, TOML] {
        check(text, false);
    }
}

#[test]
fn one_sign_of_a_log_makes_it_one() {
    for text in [PYTHON, RUST, SHELL, RUNBOOK, TOML] {
        for sign in [
            "Traceback (most recent call last):\n",
            "[rank0]: RuntimeError: x\n",
            "vm:1:1 [0] NCCL INFO x\n",
            "[E1120 08:17:08.659 ProcessGroupNCCL.cpp:689] x\n",
            "W1120 08:17:08.659000 12 torch/distributed/run.py:897] x\n",
            "2026-11-20 08:22:52,123 x\n",
            "RuntimeError: CUDA out of memory\n",
            "F1201 02:18:44.329628   10585 client.h:86] x. Disable buffering, i.e. `python -u`, to see `all`\n",
            "    @     0x7fbe32f0d7d4  absl::log_internal::LogMessage::SendToLog()\n",
            "srun: error: node1: task 3: Out Of Memory\n",
        ] {
            for whole in [format!("{text}{sign}"), format!("{sign}{text}")] {
                let extract = tell::read("x", whole.as_bytes());
                assert_eq!(extract.notes.len(), 0, "{whole}");
            }
        }
    }
}

#[test]
fn short_pastes_of_errors_stay_evidence() {
    for text in [
        "RuntimeError: CUDA out of memory\n",
        "Error: CUDA out of memory\n",
        "E   RuntimeError: CUDA out of memory\n",
        "step failed: CUDA out of memory\n",
        "raise RuntimeError(\"CUDA out of memory\")\nRuntimeError: CUDA out of memory\n",
        "Exception: {'error': 'CUDA out of memory'}\n",
        "ray.exceptions.RayTaskError(RuntimeError(\"CUDA out of memory.\"))\n",
        "loss = 0.5\nloss = 0.4\nloss = 0.3\nstep failed: CUDA out of memory\n",
        "lr=0.1\nbatch=8\nenv=x\nstep failed: CUDA out of memory\n",
        "{\n  \"lr\": 0.1,\n  \"layers\": [\n    1,\n    2\n  ]\n}\nstep failed: CUDA out of memory\n",
        "# nThread 1 nGpus 2\n#\n# Using devices\n#  Rank  0 Group  0\n - a: unhandled error: out of memory\n",
    ] {
        check(text, true);
    }
}

proptest! {
    /// What has a sign gives the same, whatever program text follows it.
    #[test]
    fn program_text_below_a_log_changes_nothing(n in 0_usize..40) {
        let log = "[rank1]: Traceback (most recent call last):\n[rank1]: ValueError: x\n";
        let whole = format!("{log}{}", "import torch\nmodel = build()\n".repeat(n));
        let (alone, below) = (tell::read("x", log.as_bytes()), tell::read("x", whole.as_bytes()));
        prop_assert_eq!(alone.observations.len(), below.observations.len());
        prop_assert_eq!(alone.observations.len(), 1);
    }
}
