#!/usr/bin/env python3
"""Saves checkpoints with real frameworks on two ranks and loads them on two, one and four: does `ringleader run` know who can?

    zoo/run/worlds.py --ringleader PROGRAM --python PYTHON [--only dcp,accelerate,trainer,deepspeed,deepspeed-0] [--out FILE]

For each framework and each number of ranks: what the framework does (loads, or refuses with which words), and whether
`ringleader run --print-checkpoint -- torchrun --nproc-per-node N` names the checkpoint. Both must agree. CPU only; a framework that
is missing is reported.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile

import checkpoints as made_by

SAVED_BY = 2
TRIED = (2, 1, 4)


def engine(stage):
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed
    import torch

    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(64, 64)
    config = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True,
              "zero_force_ds_cpu_optimizer": False}
    optimizer = torch.optim.Adam(model.parameters())
    return deepspeed.initialize(model=model, model_parameters=model.parameters(), optimizer=optimizer, config=config)[0]


def deepspeed_of(stage):
    def save(to):
        import torch

        built = engine(stage)
        built.backward(built(torch.ones(2, 64)).sum())
        built.step()
        built.save_checkpoint(to, tag="global_step20")

    def load(path):
        folder, tag = os.path.split(path)
        assert engine(stage).load_checkpoint(folder, tag=tag)[0], "nothing was loaded"

    return save, load


def load_dcp(path):
    import torch
    import torch.distributed as dist
    import torch.distributed.checkpoint as dcp
    from torch.distributed.tensor import Shard, distribute_tensor, init_device_mesh

    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {"model": {"w": distribute_tensor(torch.zeros(64, 64), mesh, [Shard(0)])}, "step": 0}
    dcp.load(state, checkpoint_id=path)
    assert torch.equal(state["model"]["w"].full_tensor(), torch.arange(4096.0).reshape(64, 64)), "wrong values"


def load_accelerate(path):
    import torch
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    accelerator.prepare(model, optimizer, schedule)
    accelerator.load_state(path)


def load_trainer(path):
    import torch
    from transformers import Trainer, TrainingArguments

    rows = [{"input_ids": torch.arange(8), "labels": torch.arange(8)} for _ in range(200)]
    how = TrainingArguments(output_dir=tempfile.mkdtemp(), max_steps=22, save_steps=100, per_device_train_batch_size=2, report_to=[],
                            use_cpu=True, disable_tqdm=True, ddp_backend="gloo" if "RANK" in os.environ else None)
    done = Trainer(model=made_by.tiny(), args=how, train_dataset=rows).train(resume_from_checkpoint=path)
    assert done.global_step == 22, done


FRAMEWORKS = {"dcp": (made_by.make_dcp, load_dcp), "accelerate": (made_by.make_accelerate, load_accelerate),
              "trainer": (made_by.make_trainer, load_trainer), "deepspeed": deepspeed_of(2), "deepspeed-0": deepspeed_of(0)}


def on_ranks(args, n, name, how, folder):
    """Runs this file on n ranks; returns the words of a failure."""
    env = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(made_by.port()), "WORLD_SIZE": str(n), "CUDA_VISIBLE_DEVICES": "",
           "LOCAL_WORLD_SIZE": str(n), "OMP_NUM_THREADS": "1", "ACCELERATE_USE_CPU": "true"}
    words = [args.python, os.path.abspath(__file__), "--do", how, "--name", name, "--folder", folder]
    ranks = [subprocess.Popen(words, env={**env, "RANK": str(rank), "LOCAL_RANK": str(rank)}, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True) for rank in range(n)]
    said = []
    for child in ranks:
        try:
            said.append(child.communicate(timeout=args.limit)[0])
        except subprocess.TimeoutExpired:
            child.kill()
            said.append(child.communicate()[0] + "\ntimeout")
    # The rank that failed first explains the others, which lost their peer.
    bad = sorted((text for child, text in zip(ranks, said) if child.returncode), key=lambda text: "onnection" in text)
    return bad[0].strip().splitlines()[-1][:300] if bad else None


def play(args, name):
    folder = tempfile.mkdtemp(prefix=f"worlds-{name}-")
    row = {"framework": name, "saved_by": SAVED_BY, "failed": on_ranks(args, SAVED_BY, name, "save", folder)}
    if row["failed"]:
        return row
    ask = [args.ringleader, "run", "--print-checkpoint", "--checkpoints", folder]
    newest = subprocess.run(ask, capture_output=True, text=True).stdout.strip()
    row["tried"] = []
    for n in TRIED:
        refused = on_ranks(args, n, name, "load", newest)
        asked = subprocess.run([*ask, "--", "torchrun", "--nproc-per-node", str(n), "t.py"], capture_output=True, text=True)
        row["tried"].append({"ranks": n, "loads": refused is None, "refused": refused, "named": asked.stdout.strip() == newest,
                             "said": asked.stderr.strip().splitlines()[:2]})
    row["agrees"] = all(tried["loads"] == tried["named"] for tried in row["tried"])
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ringleader")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--only", default=",".join(FRAMEWORKS))
    parser.add_argument("--limit", type=float, default=180)
    parser.add_argument("--out", default=None)
    parser.add_argument("--do", choices=["save", "load"], default=None, help=argparse.SUPPRESS)
    parser.add_argument("--name", help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.do:
        FRAMEWORKS[args.name][args.do == "load"](args.folder)
        return
    args.ringleader = os.path.abspath(args.ringleader)
    rows = []
    for name in args.only.split(","):
        rows.append(play(args, name))
        print(json.dumps(rows[-1]), flush=True)
    if args.out:
        with open(args.out, "w") as file:
            json.dump(rows, file, indent=1)
    sys.exit(0 if all(row.get("agrees", True) for row in rows) else 1)


if __name__ == "__main__":
    main()
