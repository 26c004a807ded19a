import torch

from gather import gather_tensors


class PrecisionRecall:
    """Keeps all scores of this rank; the curve is made of those of all ranks."""

    def __init__(self, device):
        self.device = device
        self.scores, self.labels = [], []

    def update(self, scores, labels):
        keep = labels >= 0
        self.scores.append(scores[keep].flatten())
        self.labels.append(labels[keep].flatten())

    def _all(self, parts, dtype):
        own = torch.cat(parts) if parts else torch.empty(0, dtype=dtype, device=self.device)
        return torch.cat(gather_tensors(own))

    def compute(self):
        scores = self._all(self.scores, torch.float32)
        labels = self._all(self.labels, torch.int64)
        if labels.sum() == 0:
            return None
        order = scores.argsort(descending=True)
        hits = labels[order].cumsum(0)
        precision = hits / torch.arange(1, len(hits) + 1, device=self.device)
        return precision, hits / hits[-1]


@torch.no_grad()
def evaluate(model, loader, device):
    model.eval()
    metric = PrecisionRecall(device)
    for images, labels in loader:
        metric.update(model(images.to(device)).sigmoid(), labels.to(device))
    return metric.compute()
