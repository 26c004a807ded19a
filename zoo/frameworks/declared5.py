"""A fifth set of jobs and faults, with separate programs. The same plain data as declared.py. Every job has two ranks, which may share one GPU.

EARLY has the faults that show within the first ten steps or before the first one."""

from dataclasses import replace

from declared import DESYNC, EXTRA_CALL, UNEVEN, Fault, Job

F = []
EARLY = set()
HEALTHY = "nothing is wrong"
EXTRA = EXTRA_CALL + " shape-mismatch dtype-mismatch"
SKIP = DESYNC + " shape-mismatch collective-order-mismatch uneven-inputs"
ANY_DESYNC = "skipped-collective extra-collective op-mismatch shape-mismatch collective-order-mismatch uneven-inputs silent-corruption"


def fault(job, name, says, cause, also="", ranks=(), extra="", early=False, **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **more))
    if early:
        EARLY.add(f"{job}/{name}")


def hung(job, name, says, cause, also="", ranks=(), extra="", **more):
    """A job that never ends by itself: the user waits, then ends it."""
    fault(job, name, says, cause, also, ranks, extra, end="silence", **{"silence": 45, **more})


JOBS = [
    Job("asr", "f5_asr.py", "train_ctc.py", "phones", "torchrun", r"epoch 0 step 20 "),
    Job("distill", "f5_distill.py", "distil.py", "students", "torchrun", r"\[distil\] 30/", packages=("transformers", "torch"),
        args=("--output_dir", "out", "--per_device_train_batch_size", "16", "--max_steps", "160", "--eval_strategy", "steps", "--eval_steps", "40", "--save_steps", "40",
              "--save_total_limit", "2", "--load_best_model_at_end", "true", "--metric_for_best_model", "eval_loss", "--report_to", "none", "--logging_steps", "5",
              "--logging_first_step", "true", "--disable_tqdm", "true", "--learning_rate", "3e-4", "--dataloader_num_workers", "2")),
    Job("cells", "f5_cells.py", "fit_cells.py", "atlas", "torchrun", r"epoch 0 batch 20/", packages=("lightning", "torch")),
    Job("weather", "f5_weather.py", "forecast.py", "weather", "accelerate", r"step=20 loss", packages=("accelerate", "torch")),
    Job("mae", "f5_mae.py", "pretrain_mae.py", "spectrograms", "torchrun", r"step   20 \|"),
    Job("ads", "f5_ads.py", "clicks.py", "ads", "torchrun", r"step 20 loss"),
    Job("disagg", "f5_disagg.py", "serve.py", "halves", "torchrun", r"decode: answer 10 "),
    Job("diloco", "f5_diloco.py", "outer.py", "diloco", "loop", r"\"round\": 3,"),
    Job("ocean", "f5_ocean.py", "ocean.py", "ocean", "loop", r"step 40 loss", packages=("jax",), env=(("XLA_PYTHON_CLIENT_MEM_FRACTION", ".05"),)),
    Job("rsvd", "f5_rsvd.py", "vectors.py", "rsvd", "loop", r"sweep 10:", packages=("cupy",)),
]

DILOCO = ("for r in 0 1; do\n  RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT={port} python -u {script} {args} > logs/worker-$r.log 2>&1 &\ndone\nwait\n")
OCEAN = ("export GPUS=$(nvidia-smi -L 2>/dev/null | grep -c ^GPU)\nfor r in 0 1; do\n  RANK=$r CUDA_VISIBLE_DEVICES=$((r % (GPUS > 0 ? GPUS : 1))) python -u {script} --coordinator localhost:{port} "
         "--process-id $r {args} > logs/process-$r.log 2>&1 &\ndone\nwait\n")
RSVD = ("for r in 0 1; do\n  python -u {script} --rank $r {args} > logs/rank-$r.log 2>&1 &\ndone\nwait\n")

for job, loop in (("asr", ""), ("distill", ""), ("cells", ""), ("weather", ""), ("mae", ""), ("ads", ""), ("disagg", ""), ("diloco", DILOCO), ("ocean", OCEAN), ("rsvd", RSVD)):
    fault(job, "healthy", HEALTHY, "none", loop=loop)

FAULTS = [replace(one, limit=120) if one.limit == 150 else one for one in F]
