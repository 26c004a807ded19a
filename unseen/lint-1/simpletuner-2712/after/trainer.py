import torch
from accelerate import Accelerator


class Trainer:
    def __init__(self, cfg, model, optimizer, loader):
        self.cfg = cfg
        self.accelerator = Accelerator(gradient_accumulation_steps=cfg.accum)
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        self.loader = loader  # yields False when the buckets of this rank are empty
        self.step = 0

    def _any_rank_done(self, done):
        if self.accelerator.num_processes == 1:
            return done
        flag = torch.tensor(int(done), device=self.accelerator.device)
        torch.distributed.all_reduce(flag, op=torch.distributed.ReduceOp.MAX)
        return bool(flag.item())

    def train(self):
        for epoch in range(self.cfg.epochs):
            self.loader.set_epoch(epoch, rank=self.accelerator.process_index)
            self.model.train()
            for batch in self.loader.batches():

                # all leave together as soon as one has no more data
                if self._any_rank_done(batch is False):
                    break

                with self.accelerator.accumulate(self.model):
                    loss = self.model(**batch).loss
                    self.accelerator.backward(loss)
                    if self.accelerator.sync_gradients:
                        self.accelerator.clip_grad_norm_(self.model.parameters(), 1.0)
                    self.optimizer.step()
                    self.optimizer.zero_grad()
                self.step += 1
                if self.step % self.cfg.log_every == 0:
                    mean = self.accelerator.gather(loss.detach()).mean().item()
                    self.accelerator.print(f"step {self.step} loss {mean:.4f}")
            self.accelerator.wait_for_everyone()
            if self.accelerator.is_main_process:
                torch.save(self.accelerator.unwrap_model(self.model).state_dict(), f"{self.cfg.out}/epoch{epoch}.pt")
