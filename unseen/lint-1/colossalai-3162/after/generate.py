import torch
import torch.distributed as dist
import torch.nn as nn


def _all_finished(alive):
    if dist.is_initialized() and dist.get_world_size() > 1:
        alive = alive.clone()
        dist.all_reduce(alive)
    return alive.max() == 0


def sample(model: nn.Module, ids, max_length, eos_id, pad_id, temperature=1.0, early_stopping=True):
    """ids [batch, prompt]; the model is sharded (ZeRO-3), so each forward gathers parameters."""
    alive = torch.ones(ids.size(0), dtype=torch.long, device=ids.device)
    mask = ids.ne(pad_id).long()
    for _ in range(ids.size(1), max_length):
        logits = model(ids, attention_mask=mask)["logits"][:, -1, :]
        probs = torch.softmax(logits / temperature, dim=-1)
        nxt = torch.multinomial(probs, num_samples=1).squeeze(1)
        nxt = nxt * alive + pad_id * (1 - alive)
        ids = torch.cat([ids, nxt[:, None]], dim=-1)
        mask = torch.cat([mask, alive[:, None]], dim=-1)
        alive = alive * (nxt != eos_id).long()
        if early_stopping and _all_finished(alive):
            break
    return ids


class Experience:
    def __init__(self, actor, critic, cfg):
        self.actor, self.critic, self.cfg = actor, critic, cfg

    @torch.no_grad()
    def make(self, prompts):
        self.actor.eval()
        seqs = sample(self.actor, prompts, self.cfg.max_length, self.cfg.eos_id, self.cfg.pad_id)
        values = self.critic(seqs)
        dist.all_reduce(values.mean(), op=dist.ReduceOp.SUM)
        return seqs, values
