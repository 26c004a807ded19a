import torch
from transformers import Trainer


class PolicyTrainer(Trainer):
    def __init__(self, *args, top_entropy_quantile=1.0, epsilon=0.2, **kwargs):
        super().__init__(*args, **kwargs)
        self.top_entropy_quantile = top_entropy_quantile
        self.epsilon = epsilon

    def high_entropy_mask(self, entropies, mask, threshold):
        """True for tokens whose entropy is above the quantile of all processes."""
        own = entropies[mask.bool()].float()
        filler = -1e9
        padded = self.accelerator.pad_across_processes(own, dim=0, pad_index=filler)
        everything = self.accelerator.gather(padded)
        everything = everything[everything != filler]
        if everything.numel() == 0:
            return torch.zeros_like(entropies, dtype=torch.bool)
        border = torch.quantile(everything, threshold)
        return (entropies * mask.float() >= border) & mask.bool()

    def token_stats(self, model, inputs):
        logits = model(input_ids=inputs["input_ids"]).logits[:, :-1]
        logps = torch.log_softmax(logits.float(), dim=-1)
        chosen = logps.gather(-1, inputs["input_ids"][:, 1:, None]).squeeze(-1)
        entropies = -(logps.exp() * logps).sum(-1)
        return chosen, entropies.detach()

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        mask = inputs["completion_mask"][:, 1:]
        chosen, entropies = self.token_stats(model, inputs)
        if self.top_entropy_quantile < 1.0:
            keep = self.high_entropy_mask(entropies, mask, 1 - self.top_entropy_quantile)
        else:
            keep = mask.bool()
        ratio = torch.exp(chosen - inputs["old_logps"])
        clipped = torch.clamp(ratio, 1 - self.epsilon, 1 + self.epsilon)
        advantage = inputs["advantages"][:, None]
        per_token = -torch.min(ratio * advantage, clipped * advantage) * keep
        return (per_token * mask).sum() / mask.sum().clamp(min=1)
