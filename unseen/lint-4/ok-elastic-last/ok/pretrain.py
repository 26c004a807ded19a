import time

import lightning as L
import torch


def fit(fabric: L.Fabric, model, train_loader, val_loader, max_steps, save_every, out):
    start = time.perf_counter()
    for step in range(max_steps):
        batch = next(train_loader)
        loss = model(batch).mean()
        fabric.backward(loss)
        if step % 10 == 0:
            mean = fabric.all_reduce(loss.detach(), reduce_op="mean")
            fabric.print(f"{step} {mean.item():.3f} {time.perf_counter() - start:.1f} s")
        if step % save_every == 0:
            fabric.save(out / f"{step}.pth", {"model": model})
            if fabric.global_rank == 0:
                (out / "latest").write_text(str(step))
            fabric.barrier()
