import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from gathering import active, all_gather_pairs


class ContrastiveEncoder(nn.Module):
    def __init__(self, transformer, temperature=0.05):
        super().__init__()
        self.transformer = transformer
        self.temperature = temperature

    def embed(self, tokens):
        hidden = self.transformer(**tokens).last_hidden_state
        mask = tokens["attention_mask"].unsqueeze(-1).float()
        return (hidden * mask).sum(1) / mask.sum(1).clamp(min=1e-9)

    def forward(self, anchors, positives):
        a, p = self.embed(anchors), self.embed(positives)
        a, p = all_gather_pairs(a, p)
        both = F.normalize(torch.cat([a, p]), dim=-1)
        similarity = both @ both.t() / self.temperature
        similarity.fill_diagonal_(float("-inf"))
        n = a.size(0)
        labels = torch.cat([torch.arange(n, 2 * n), torch.arange(n)]).to(both.device)
        loss = F.cross_entropy(similarity, labels)
        return loss


def train(transformer, loader, local_rank, lr):
    model = ContrastiveEncoder(transformer).cuda(local_rank)
    model = DistributedDataParallel(model, device_ids=[local_rank])
    optimizer = torch.optim.AdamW(model.parameters(), lr=lr)
    for step, (anchors, positives) in enumerate(loader):
        loss = model(anchors, positives)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0 and dist.get_rank() == 0:
            print(step, loss.item())
