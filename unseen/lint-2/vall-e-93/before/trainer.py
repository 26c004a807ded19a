import logging

import torch
import torch.distributed as dist


def compute_validation_loss(model, loader, world_size):
    model.eval()
    tot = torch.zeros(2, device="cuda")
    with torch.no_grad():
        for batch in loader:
            loss, n = model(batch)
            tot += torch.stack([loss * n, n])
    if world_size > 1:
        dist.all_reduce(tot)
    model.train()
    return (tot[0] / tot[1]).item()


def train_one_epoch(model, opt, scaler, train_dl, valid_dl, params, rank, world_size):
    it = iter(train_dl)  # dynamic buckets: the number of batches differs by rank
    while True:
        try:
            batch = next(it)
        except StopIteration:
            logging.info("Reaches end of dataloader.")
            break
        params.step += 1
        with torch.autocast("cuda", dtype=torch.float16):
            loss, n = model(batch)
        scaler.scale(loss).backward()
        if params.step % params.accumulate == 0:
            scaler.step(opt)
            scaler.update()
            opt.zero_grad()
        if params.step % params.valid_interval == 0:
            valid = compute_validation_loss(model, valid_dl, world_size)
            if rank == 0:
                logging.info("step %d valid %.4f", params.step, valid)
    valid = compute_validation_loss(model, valid_dl, world_size)
    if rank == 0:
        logging.info("end of epoch, valid %.4f", valid)
