import torch, torch.distributed as dist
from transformers import AutoModelForCausalLM, DistributedConfig

model = AutoModelForCausalLM.from_pretrained(
    "/fsx/ckpt/glm-665g", dtype=torch.bfloat16,
    distributed_config=DistributedConfig(tp_plan="auto"),
)
print("weights loaded, entering barrier all_reduce", flush=True)
flag = torch.ones(1, device="cuda")
dist.all_reduce(flag)
