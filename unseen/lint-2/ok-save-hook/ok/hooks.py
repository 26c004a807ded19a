import os

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType


class SaveHook:
    """Registered with accelerator.register_save_state_pre_hook; save_state runs on all processes."""

    def __init__(self, accelerator: Accelerator, adapters):
        self.accelerator, self.adapters = accelerator, adapters

    def __call__(self, models, weights, output_dir):
        if self.accelerator.distributed_type == DistributedType.FSDP:
            return
        if not self.accelerator.is_main_process:
            return
        os.makedirs(output_dir, exist_ok=True)
        for name, model in zip(self.adapters, models):
            state = {k: v.cpu() for k, v in self.accelerator.unwrap_model(model).state_dict().items() if "lora" in k}
            torch.save(state, os.path.join(output_dir, f"{name}.pt"))
        weights.clear()


def run(accelerator, model, loader, opt, cfg):
    accelerator.register_save_state_pre_hook(SaveHook(accelerator, ["unet"]))
    model, opt, loader = accelerator.prepare(model, opt, loader)
    for step, batch in enumerate(loader):
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            opt.step()
            opt.zero_grad()
        if step and step % cfg.save_every == 0:
            accelerator.wait_for_everyone()
            accelerator.save_state(os.path.join(cfg.out, f"checkpoint-{step}"))
            if accelerator.is_main_process:
                open(os.path.join(cfg.out, "latest"), "w").write(str(step))
    accelerator.wait_for_everyone()
