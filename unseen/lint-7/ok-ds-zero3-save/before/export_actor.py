import os

import deepspeed
import torch
from deepspeed.runtime.zero.partition_parameters import ZeroParamStatus


def _absent(params):
    return [p for p in params if hasattr(p, "ds_id") and p.ds_status == ZeroParamStatus.NOT_AVAILABLE]


def export_actor(model, tokenizer, rank, folder, stage):
    os.makedirs(folder, exist_ok=True)
    target = os.path.join(folder, "pytorch_model.bin")
    bare = model.module if hasattr(model, "module") else model

    if stage != 3:
        if rank == 0:
            torch.save(bare.state_dict(), target)
            bare.config.save_pretrained(folder)
            tokenizer.save_pretrained(folder)
        return

    weights = {}
    for name, param in bare.named_parameters():
        if hasattr(param, "ds_id"):
            with deepspeed.zero.GatheredParameters(_absent([param]), enabled=True):
                value = param.data.cpu()
        else:
            value = param.cpu()
        if rank == 0 and "lora_" not in name:
            weights[name] = value
    if rank == 0:
        torch.save(weights, target)
        bare.config.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    del weights


def finish(engine, tokenizer, args):
    export_actor(engine, tokenizer, torch.distributed.get_rank(), args.output_dir, args.zero_stage)
    torch.distributed.barrier()
    if torch.distributed.get_rank() == 0:
        print(f"actor stored in {args.output_dir}")
