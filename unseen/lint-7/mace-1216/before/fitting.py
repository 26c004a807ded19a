import logging

import torch
import torch.distributed as dist

from potential.evaluate import validation_loss
from potential.steps import train_batches


def fit(model, loss_fn, optimizer, scheduler, loaders, saver, opts, device, rank=0, distributed=False):
    best = float("inf")
    stale = 0
    train_loader, valid_loader = loaders
    wrapped = torch.nn.parallel.DistributedDataParallel(model, [device]) if distributed else model

    for epoch in range(opts.epochs):
        if distributed:
            train_loader.sampler.set_epoch(epoch)
        train_batches(wrapped, loss_fn, train_loader, optimizer, device)
        if distributed:
            dist.barrier()

        if epoch % opts.eval_every == 0:
            valid = validation_loss(wrapped, loss_fn, valid_loader, device, distributed)
            if rank == 0:
                logging.info("epoch %d: validation loss %.6f", epoch, valid)
                if valid >= best:
                    stale += 1
                    if stale >= opts.patience:
                        logging.info("no gain in %d evaluations, stopping", stale)
                        break
                else:
                    best = valid
                    stale = 0
                    saver.save(model, optimizer, scheduler, epoch)
            scheduler.step(valid)
        if distributed:
            dist.barrier()

    logging.info("training complete")
    if distributed:
        dist.barrier()
    return saver.load_best(model, device)
