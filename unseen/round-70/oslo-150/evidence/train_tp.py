import torch, oslo
from transformers import AutoModelForCausalLM, AutoTokenizer
from oslo.torch.distributed import ParallelContext
from oslo.torch.nn.parallel import TensorParallel

pc = ParallelContext.from_slurm(host=None, port=29571, tensor_parallel_size=4)
print(f"rank {pc.get_global_rank()} local {pc.local_rank} of {pc.local_world_size}"
      f" device {torch.cuda.current_device()}", flush=True)
tok = AutoTokenizer.from_pretrained("gpt2")
model = TensorParallel(AutoModelForCausalLM.from_pretrained("gpt2"), parallel_context=pc)
oslo.ready(model, parallel_context=pc)
batch = tok("hello there", return_tensors="pt").to(f"cuda:{pc.get_local_rank(oslo.ParallelMode.TENSOR)}")
print(model(**batch).logits.shape)
