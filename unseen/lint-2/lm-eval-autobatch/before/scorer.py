import torch
import torch.nn.functional as F
from accelerate import Accelerator
from accelerate.utils import find_executable_batch_size


class Scorer:
    """Log-likelihood of requests over all processes."""

    def __init__(self, model, max_length, batch="auto"):
        self.accelerator = Accelerator()
        self.model = self.accelerator.prepare(model)
        self.rank, self.world = self.accelerator.process_index, self.accelerator.num_processes
        self.device = self.accelerator.device
        self.max_length = max_length
        self.batch = self.detect() if batch == "auto" else int(batch)

    def detect(self):
        """The largest batch that fits, by trying."""

        @find_executable_batch_size(starting_batch_size=64)
        def attempt(batch_size):
            ids = torch.ones((batch_size, self.max_length), device=self.device).long()
            for _ in range(3):
                F.log_softmax(self.model(ids).logits, dim=-1).cpu()
            return batch_size

        size = attempt()
        torch.cuda.empty_cache()

        return size

    @torch.no_grad()
    def score(self, requests):
        out = []
        for i in range(0, len(requests), self.batch):
            ids = torch.stack(requests[i : i + self.batch]).to(self.device)
            logp = F.log_softmax(self.model(ids).logits.float(), dim=-1)
            got = logp[:, :-1].gather(2, ids[:, 1:, None]).squeeze(-1).sum(-1)
            out.extend(self.accelerator.gather(got).tolist())
        return out
