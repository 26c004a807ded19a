import torch
from accelerate.utils import gather_object


class Validation:
    def __init__(self, cfg, accelerator, pipeline):
        self.cfg, self.accelerator, self.pipeline = cfg, accelerator, pipeline
        self.done = set()

    def exists(self, kind):
        return kind in self.done

    @torch.no_grad()
    def run(self, step, kind):
        prompts = self.cfg.prompts
        if self.cfg.validation_multigpu == "batch-parallel":
            with self.accelerator.split_between_processes(prompts) as mine:
                images = [(p, self.pipeline(p)) for p in mine]
            images = gather_object(images)
        else:
            images = [(p, self.pipeline(p)) for p in prompts]
        if self.accelerator.is_main_process:
            for i, (prompt, img) in enumerate(images):
                img.save(f"{self.cfg.out}/{kind}_{step}_{i}.png")
        self.done.add(kind)
