import torch
from accelerate import Accelerator
from accelerate.utils import gather_object


class EmbeddingEval:
    """Retrieval score over all processes."""

    def __init__(self, accelerator: Accelerator, encoder, loader):
        self.accelerator = accelerator
        self.encoder = encoder
        self.loader = loader

    @torch.no_grad()
    def run(self):
        queries, labels = [], []
        for batch in self.loader:
            # anchor, positive and a varying number of negatives per sample
            emb = self.encoder(**batch["inputs"])
            lab = batch["labels"].to(emb.device)
            emb = torch.cat([t.to(emb.device) for t in gather_object([emb.cpu()])])
            lab = torch.cat([t.to(emb.device) for t in gather_object([lab.cpu()])])
            queries.append(emb.float().cpu())
            labels.append(lab.cpu())
        q, l = torch.cat(queries), torch.cat(labels)
        sim = q @ q.T
        sim.fill_diagonal_(-1)
        return (l[sim.argmax(1)] == l).float().mean().item()
