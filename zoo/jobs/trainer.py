"""A rank of a PyTorch job: start, steps, checkpoint, evaluation, end."""

import ctypes
import os
import random
import time
from datetime import timedelta

import torch
import torch.distributed as dist

from jobs import gpu, host
from jobs.plan import Plan

host.MISFORTUNES.update(gpu.MISFORTUNES)


class Job:
    def __init__(self, settings):
        self.settings = settings
        self.rank = int(os.environ["RANK"])
        self.world = int(os.environ["WORLD_SIZE"])
        self.plan = Plan(settings, self.rank)
        self.random = random.Random(self.rank)
        self.kernels = None
        self.batches = None

    def start(self):
        host.early(self)
        local = int(os.environ.get("LOCAL_RANK", self.rank))
        if self.settings.backend == "nccl":
            n_gpus = torch.cuda.device_count()
            # Nodes with one GPU each share the GPUs of this machine.
            index = (self.rank if os.environ.get("LOCAL_WORLD_SIZE") == "1" else local) % n_gpus
            if self.plan.is_set("duplicate-gpu"):
                index = (index - 1) % n_gpus
            if self.settings.blocking_sync:
                # Hosts sleep instead of spinning while they wait, since many jobs share the processors of one machine.
                cuda = ctypes.CDLL("libcuda.so.1")
                cuda.cuInit(0)
                cuda.cuDevicePrimaryCtxSetFlags_v2(index, 4)
            self.device = torch.device("cuda", index)
            torch.cuda.set_device(self.device)
        else:
            self.device = torch.device("cpu")
        torch.manual_seed(self.rank)
        self.plan.started()
        dist.init_process_group(
            self.settings.backend,
            timeout=timedelta(minutes=10),
            device_id=self.device if self.settings.backend == "nccl" else None,
        )
        if self.settings.backend == "nccl" and self.plan.is_set(*gpu.NEEDS_KERNELS):
            self.kernels = gpu.Kernels()

    def steps(self):
        """Yields the step numbers and does everything around a step."""
        settings = self.settings
        for step in range(settings.steps):
            begin = time.monotonic()
            if self.plan.here("uneven", step, "steps"):
                break
            if step == 0:
                self.first_step()
            yield step
            if step == 0:
                self.plan.record("first-step")
            else:
                self.plan.longest = max(self.plan.longest, time.monotonic() - begin)
            rest = settings.step_ms / 1000 - (time.monotonic() - begin)
            time.sleep(max(0.0, rest) + self.random.random() * settings.jitter_ms / 1000)
            if settings.checkpoint_every and step % settings.checkpoint_every == settings.checkpoint_every - 1:
                self.checkpoint(step)
            if settings.eval_every and step % settings.eval_every == settings.eval_every - 1:
                time.sleep(settings.eval_seconds)
                self.mean(torch.zeros((), device=self.device))

    def first_step(self):
        seconds = self.settings.first_step_seconds
        if self.settings.first_step_extra and self.rank == self.world - 1:
            seconds += self.settings.first_step_extra
        time.sleep(seconds)

    def checkpoint(self, step):
        """Takes as long as three usual steps."""
        if self.settings.checkpoint_rank in (None, self.rank):
            path = os.path.join(self.settings.work, f"model-{self.rank}.pt")
            torch.save({"step": step, "weights": torch.zeros(1 << 16)}, path)
            time.sleep(3 * self.settings.step_ms / 1000)
        dist.barrier()

    def misfortune(self, step):
        host.misfortune(self, step)

    def mean(self, value):
        """The mean over all ranks, on the host: here a step waits for all ranks."""
        dist.all_reduce(value)
        return value.item() / self.world

    def finish(self):
        dist.barrier()
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.plan.record("finished", step=self.settings.steps, longest_s=round(self.plan.longest, 3))
        dist.destroy_process_group()
