from accelerate import Accelerator

from config import TrainConfig


def checkpoint_dir(output_dir, total, step):
    return output_dir / "checkpoints" / str(step).zfill(len(str(total)))


def save(accelerator, cfg, step):
    target = checkpoint_dir(cfg.output_dir, cfg.steps, step)
    if accelerator.is_main_process:
        target.mkdir(parents=True, exist_ok=True)
    accelerator.wait_for_everyone()
    accelerator.save_state(str(target))
    accelerator.wait_for_everyone()


def train(cfg: TrainConfig, make_parts):
    cfg.validate()
    accelerator = Accelerator()
    model, optimizer, loader = accelerator.prepare(*make_parts(cfg))
    if cfg.resume:
        accelerator.load_state(str(cfg.output_dir / "checkpoints" / "last"))

    batches = iter(loader)
    for step in range(1, cfg.steps + 1):
        batch = next(batches, None)
        if batch is None:
            batches = iter(loader)
            batch = next(batches)
        loss = model(**batch).loss
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % cfg.save_freq == 0 or step == cfg.steps:
            save(accelerator, cfg, step)
