import datetime
from collections import OrderedDict

import torch
import torch.distributed as dist


class TextHook:
    """Prints one line every interval iterations; all ranks call log, rank 0 prints."""

    def __init__(self, interval=50):
        self.interval = interval
        self.sec = 0.0

    def _max_memory(self, runner):
        mb = torch.tensor([torch.cuda.max_memory_allocated() / 2**20], dtype=torch.int, device="cuda")
        if runner.world_size > 1:
            dist.reduce(mb, 0, op=dist.ReduceOp.MAX)
        return mb.item()

    def after_iter(self, runner):
        if (runner.it + 1) % self.interval == 0 or runner.buffer.ready:
            runner.buffer.average()
            self.log(runner)

    def log(self, runner):
        out = runner.buffer.output
        rec = OrderedDict()
        # iterations of a rank that filled no timer look like evaluation
        mode = "train" if "time" in out else "val"
        rec["mode"], rec["epoch"], rec["iter"] = mode, runner.epoch + 1, runner.it + 1
        rec["lr"] = runner.lr()[0]
        memory = self._max_memory(runner) if torch.cuda.is_available() else None
        if mode == "train":
            rec["time"], rec["data_time"] = out["time"], out["data_time"]
            if memory is not None:
                rec["memory"] = memory
        for k, v in out.items():
            if k not in ("time", "data_time"):
                rec[k] = v
        if runner.rank == 0:
            self.write(rec)

    def write(self, rec):
        line = f"Epoch({rec.pop('mode')}) [{rec.pop('epoch')}][{rec.pop('iter')}] "
        if "time" in rec:
            self.sec += rec["time"] * self.interval
            line += f"elapsed: {datetime.timedelta(seconds=int(self.sec))} "
        print(line + ", ".join(f"{k}: {v:.4g}" for k, v in rec.items()), flush=True)
