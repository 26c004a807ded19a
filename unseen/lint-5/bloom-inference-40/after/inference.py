import io
import json
import os
from argparse import ArgumentParser
from pathlib import Path

import deepspeed
import torch
import torch.distributed as dist
from huggingface_hub import snapshot_download
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

parser = ArgumentParser()
parser.add_argument("--name", required=True)
parser.add_argument("--local_rank", type=int)
parser.add_argument("--presharded", action="store_true")
args = parser.parse_args()

deepspeed.init_distributed("nccl")
rank = dist.get_rank()
world_size = int(os.getenv("WORLD_SIZE", "1"))
cache = os.getenv("MODEL_CACHE")
listing = "weights.json"


def say(*text):
    if rank == 0:
        print(*text)


def repo_folder(name):
    if rank == 0:
        snapshot_download(name, cache_dir=cache, ignore_patterns=["*.safetensors"])
    dist.barrier()
    return snapshot_download(name, cache_dir=cache, local_files_only=True)


def weight_files(name):
    folder = repo_folder(name)
    return [str(p) for p in Path(folder).rglob("*.bin") if p.is_file()]


def write_listing():
    files = weight_files(args.name)
    if rank == 0:
        with io.open(listing, "w", encoding="utf-8") as f:
            json.dump({"type": "BLOOM", "checkpoints": files, "version": 1.0}, f)


say("loading", args.name)
tokenizer = AutoTokenizer.from_pretrained(args.name)
config = AutoConfig.from_pretrained(args.name)
with deepspeed.OnDevice(dtype=torch.float16, device="meta"):
    model = AutoModelForCausalLM.from_config(config, torch_dtype=torch.bfloat16)
model = model.eval()

root = repo_folder(args.name)
if args.presharded:
    listing = os.path.join(root, "ds_inference_config.json")
else:
    write_listing()
    dist.barrier()

model = deepspeed.init_inference(
    model, mp_size=world_size, base_dir=root, dtype=torch.float16, checkpoint=listing
).module
say("ready")
