import json
import os

import torch
from accelerate import Accelerator, DeepSpeedPlugin


class PolicyTrainer:
    def __init__(self, cfg, policy, optimizer, loader):
        plugin = DeepSpeedPlugin(zero_stage=3, gradient_clipping=cfg.clip)
        self.cfg = cfg
        self.accelerator = Accelerator(deepspeed_plugin=plugin, mixed_precision="bf16")
        self.policy, self.optimizer, self.loader = self.accelerator.prepare(
            policy, optimizer, loader
        )
        self.step = 0

    def store(self, name):
        folder = os.path.join(self.cfg.out_dir, name)
        weights = self.accelerator.get_state_dict(self.policy)
        if self.accelerator.is_main_process:
            os.makedirs(folder, exist_ok=True)
            torch.save(weights, os.path.join(folder, "policy.pt"))
            with open(os.path.join(folder, "progress.json"), "w") as handle:
                json.dump({"step": self.step}, handle)
        self.accelerator.wait_for_everyone()

    def fit(self):
        self.policy.train()
        stream = iter(self.loader)
        while self.step < self.cfg.max_steps:
            try:
                batch = next(stream)
            except StopIteration:
                stream = iter(self.loader)
                batch = next(stream)
            loss = self.policy(**batch)["action_loss"]
            self.accelerator.backward(loss)
            self.optimizer.step()
            self.optimizer.zero_grad()
            self.step += 1
            if self.step % self.cfg.log_every == 0:
                self.accelerator.print(f"step {self.step} loss {loss.item():.4f}")
            if self.step % self.cfg.save_every == 0:
                self.store(f"step_{self.step}")
        self.store("final")
