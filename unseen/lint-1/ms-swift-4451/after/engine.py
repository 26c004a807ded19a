import copy
from dataclasses import dataclass

import torch.distributed as dist
from vllm import LLM, SamplingParams


@dataclass
class Sampling:
    temperature: float = 1.0
    top_p: float = 0.95
    max_tokens: int = 1024
    n: int = 1


class ColocatedEngine:
    """One vLLM engine per tensor-parallel group, inside the trainer processes."""

    def __init__(self, model_dir, tp, cfg: Sampling, base_seed=0):
        self.tp = tp
        self.cfg = cfg
        self.base_seed = base_seed
        self.groups = [
            dist.new_group(list(range(i * tp, (i + 1) * tp))) for i in range(dist.get_world_size() // tp)
        ]
        self.group = self.groups[dist.get_rank() // tp]
        self.llm = LLM(
            model=model_dir,
            tensor_parallel_size=tp,
            distributed_executor_backend="external_launcher",
            seed=base_seed + dist.get_rank() // tp,
        )

    def _params(self):
        c = copy.copy(self.cfg)
        # equal inside a tensor-parallel group, different between groups
        seed = self.base_seed + dist.get_rank() // self.tp
        return SamplingParams(temperature=c.temperature, top_p=c.top_p, max_tokens=c.max_tokens, n=c.n, seed=seed)

    def generate(self, prompts):
        lists = [None] * self.tp
        dist.all_gather_object(lists, prompts, group=self.group)
        every = [p for part in lists for p in part]
        outs = self.llm.generate(every, self._params(), use_tqdm=False)
        r = dist.get_rank(self.group)
        k = len(prompts)
        return outs[r * k : (r + 1) * k]
