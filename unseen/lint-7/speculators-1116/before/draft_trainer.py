import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


class DraftTrainer:
    def __init__(self, model, optimizer, loader, log_every=20):
        self.rank = dist.get_rank()
        self.model = DistributedDataParallel(model)
        self.optimizer = optimizer
        self.loader = loader
        self.log_every = log_every

    def _forward(self, batch):
        out = self.model(batch["tokens"], batch["hidden"], batch["mask"])
        metrics = {
            "loss": out.loss.detach().clone(),
            "accept_rate": out.accepted.float().mean(),
        }
        metrics["bad_records"] = torch.tensor(
            batch["bad_records"], dtype=torch.int32, device=out.loss.device
        )
        metrics["bad_records_steps"] = torch.tensor(
            1.0 if self.rank == 0 else 0, device=out.loss.device
        )
        return out.loss, metrics

    def _log(self, step, metrics):
        for value in metrics.values():
            dist.reduce(value, dst=0, op=dist.ReduceOp.SUM)
        if self.rank == 0:
            world = dist.get_world_size()
            print(
                f"[{step}] loss={metrics['loss'].item() / world:.4f} "
                f"accept={metrics['accept_rate'].item() / world:.3f} "
                f"bad={int(metrics['bad_records'])}/{int(metrics['bad_records_steps'])}"
            )

    def run(self, epochs):
        step = 0
        for _ in range(epochs):
            for batch in self.loader:
                loss, metrics = self._forward(batch)
                loss.backward()
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
                step += 1
                if step % self.log_every == 0:
                    self._log(step, metrics)
