import logging

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard

log = logging.getLogger(__name__)


class DrafterTrainer:
    """Trains the draft model of speculative decoding on rollouts of the target model."""

    def __init__(self, drafter, mesh, config):
        for block in drafter.blocks:
            fully_shard(block, mesh=mesh)
        self.drafter = fully_shard(drafter, mesh=mesh)
        self.group = mesh.get_group()
        self.optimizer = torch.optim.AdamW(drafter.parameters(), lr=config.lr)
        self.max_norm = config.max_norm
        self.ce_weight = config.ce_weight

    def _local_losses(self, batch):
        logits = self.drafter(batch["hidden"], batch["tokens"])
        mask = batch["mask"].float()
        target = batch["target_logits"].softmax(-1)
        soft = -(target * logits.log_softmax(-1)).sum(-1)
        hard = F.cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), reduction="none")
        soft_sum = (soft * mask).sum()
        hard_sum = (hard.view_as(mask) * mask).sum()
        return soft_sum, hard_sum, mask.sum()

    def _reduce(self, *sums):
        sums = torch.stack([s.detach().float() for s in sums])
        if not dist.is_initialized():
            return sums, 1
        dist.all_reduce(sums, group=self.group)
        return sums, dist.get_world_size(self.group)

    def step(self, batch):
        self.optimizer.zero_grad()
        soft_sum, hard_sum, own_tokens = self._local_losses(batch)
        (soft_all, hard_all, tokens), ranks = self._reduce(soft_sum, hard_sum, own_tokens)
        if tokens.item() == 0:
            log.warning("no token to train on in the whole batch")
            return None
        loss = (soft_all + self.ce_weight * hard_all) / tokens
        own = soft_sum + self.ce_weight * hard_sum
        (own * (ranks / tokens)).backward()
        norm = torch.nn.utils.clip_grad_norm_(self.drafter.parameters(), self.max_norm)
        self.optimizer.step()
        return {"drafter/loss": loss.item(), "drafter/tokens": tokens.item(),
                "drafter/grad_norm": float(norm)}
