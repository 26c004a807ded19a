import os
import time

import torch
import torch.distributed as dist


def synchronize_flag(flag, device):
    t = torch.tensor(flag, device=device)
    dist.broadcast(t, 0)
    return bool(t.item())


class Loop:
    def __init__(self, cfg, step_fn, save_fn, device):
        self.cfg, self.step_fn, self.save_fn, self.device = cfg, step_fn, save_fn, device
        self.t0 = time.monotonic()

    def cancelled(self):
        stop, reason = False, None
        if dist.get_rank() == 0:
            if self.cfg.time_limit and time.monotonic() - self.t0 > self.cfg.time_limit:
                stop, reason = True, "time limit"
            elif os.path.exists(self.cfg.kill_file):
                stop, reason = True, "kill file"
        stop = synchronize_flag(stop, self.device)
        if stop and reason is not None:
            print(f"stopping: {reason}", flush=True)
        return stop

    def run(self):
        for step in range(self.cfg.steps):
            self.step_fn(step)
            if step % self.cfg.check_every == 0 and self.cancelled():
                self.save_fn(step)
                dist.barrier()
                break
        else:
            self.save_fn(self.cfg.steps)
        dist.barrier()
