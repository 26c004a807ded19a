import os

from accelerate import Accelerator
from accelerate.utils import DistributedType


class SaveHooks:
    """Writes adapters in the form that the pipelines read."""

    def __init__(self, args, accelerator):
        self.args, self.accelerator = args, accelerator

    def save(self, models, weights, output_dir):
        weights.clear()
        if not self.accelerator.is_main_process:
            return
        self.write(models, output_dir)

    def write(self, models, output_dir):
        for n, model in enumerate(models):
            model.save_pretrained(os.path.join(output_dir, f"adapter_{n}"))


def train(args, loader, model, optimizer):
    accelerator = Accelerator()
    hooks = SaveHooks(args, accelerator)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    step = 0
    for batch in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(**batch).loss)
            optimizer.step()
            optimizer.zero_grad()
        step += 1
        if step % args.save_every == 0 and accelerator.is_main_process:
            path = os.path.join(args.output_dir, f"checkpoint-{step}")
            hooks.save([accelerator.unwrap_model(model)], [], path)
