import glob

import torch
import torch.distributed as dist


class ShardedReader:
    """Every rank reads its own files."""

    def __init__(self, pattern, parse):
        self.files = sorted(glob.glob(pattern))
        self.parse = parse
        self.rank = dist.get_rank() if dist.is_initialized() else 0
        self.world = dist.get_world_size() if dist.is_initialized() else 1

    def __iter__(self):
        for i, path in enumerate(self.files):
            if i % self.world == self.rank:
                with open(path) as f:
                    for line in f:
                        yield self.parse(line)


def batches(reader, size):
    cur = []
    for x in reader:
        cur.append(x)
        if len(cur) == size:
            yield torch.stack(cur)
            cur = []


class Trainer:
    def __init__(self, model, opt, reader, batch_size, distributed):
        self.model, self.opt, self.reader = model, opt, reader
        self.batch_size, self.distributed = batch_size, distributed

    def train_epoch(self):
        total, n = 0.0, 0
        for batch in batches(self.reader, self.batch_size):
            if self.distributed:
                # has another rank run out of data?
                done = torch.tensor(0, device="cuda")
                dist.all_reduce(done)
                if done.item() > 0:
                    break
            self.opt.zero_grad()
            loss = self.model(batch.cuda())
            loss.backward()
            self.opt.step()
            total += loss.item()
            n += 1
        else:
            if self.distributed:
                done = torch.tensor(1, device="cuda")
                dist.all_reduce(done)
        if self.distributed:
            dist.barrier()
            t = torch.tensor([total, float(n)], device="cuda")
            dist.all_reduce(t)
            total, n = t.tolist()
        return total / n
