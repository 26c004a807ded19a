"""A sixth set of jobs and faults: four ranks each, on four GPUs, with subgroups. The same plain data as declared.py.

EARLY has the faults that show within the first ten steps or before the first one."""

from declared import DESYNC, EXTRA_CALL, UNEVEN, Fault, Job

F = []
EARLY = set()
EXTRA = EXTRA_CALL + " shape-mismatch dtype-mismatch"
SKIP = DESYNC + " shape-mismatch collective-order-mismatch uneven-inputs"
ANY_DESYNC = "skipped-collective extra-collective shape-mismatch collective-desync collective-order-mismatch silent-corruption"


def fault(job, name, says, cause, also="", ranks=(), extra="", early=False, **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **{"nproc": 4, "limit": 108, **more}))
    if early:
        EARLY.add(f"{job}/{name}")


def hung(job, name, says, cause, also="", ranks=(), extra="", **more):
    """A job that never ends by itself: the user waits, then ends it."""
    fault(job, name, says, cause, also, ranks, extra, end="silence", **{"silence": 25, **more})


JOBS = [
    Job("mesh", "f6_mesh.py", "melodies.py", "music", "torchrun", r"step 10 loss"),
    Job("stages", "f6_stages.py", "train_pipe.py", "phrases", "torchrun", r"iteration 5:"),
    Job("hsdp", "f6_hsdp.py", "fill_gaps.py", "sensors", "torchrun", r"step 10 loss"),
    Job("desk", "f6_serve.py", "answer.py", "desk", "torchrun", r"answer 3:"),
    Job("spectra", "f6_spectra.py", "invert.py", "stars", "loop", r"step 20 loss", packages=("jax",)),
    Job("experts", "f6_experts.py", "shop.py", "shop", "torchrun", r" 10 loss"),
]

SPECTRA = ("gpus=$(nvidia-smi -L 2>/dev/null | grep -c ^GPU)\nfor r in 0 1 2 3; do\n  RANK=$r CUDA_VISIBLE_DEVICES=$([ $gpus -gt 0 ] && echo $((r % gpus))) python -u {script} --coordinator localhost:{port} "
           "--process-id $r {args} > logs/process-$r.log 2>&1 &\ndone\nwait\n")
WAIT = ("--timeout", "30")
STEPS = ("--steps", "900000")

# ------------------------------------------------------------------------------- 2 x 2 mesh: pairs (0, 1), (2, 3); replicas (0, 2), (1, 3)
AVERAGE = "        average(params, replicas, world // args.tensor)\n"
fault("mesh", "healthy-save", "rank 0 writes its checkpoint for 40 s, the others wait for it", "none", args=("--steps", "240"),
      edits=(("                torch.save({name", "                time.sleep(40 if rank == 0 else 0)\n                torch.save({name"),))
fault("mesh", "skipped", "rank 3 leaves out the averaging of the gradients in every 25th step", "skipped-collective", SKIP, (3,), args=(*WAIT, *STEPS, "--report", "5"), ready=r"step 5 loss", extra="fr",
      edits=((AVERAGE, "        if rank != 3 or step % 25:\n            average(params, replicas, world // args.tensor)\n"),))
fault("mesh", "buckets", "rank 1 begins with its largest buckets, the others with the first ones (first step)", "collective-order-mismatch", "shape-mismatch collective-desync op-mismatch silent-corruption", (1,), early=True, ranks_also=((3,), (1, 3), ()),
      args=(*WAIT, "--width", "1024", "--steps", "300"), ready=r"M parameters", extra="fr",
      edits=(("    for bucket in buckets:\n", "    for bucket in sorted(buckets, key=lambda b: -b[0].numel() if dist.get_rank() == 1 else 0):\n"),))
fault("mesh", "cycle", "two ranks reduce over the replicas first and over the pairs then, two the other way round (step 20)", "deadlock-cycle", "collective-order-mismatch concurrent-communicators collective-desync", (), ranks_also=((0, 1, 2, 3), (0, 3), (1, 2)),
      args=(*WAIT, *STEPS), extra="fr",
      edits=(("            dist.all_reduce(shown, group=replicas)\n",
              "            for group in (replicas, pairs) if rank in (0, 3) or step < 15 else (pairs, replicas):\n                dist.all_reduce(shown, group=group)\n            shown /= args.tensor\n"),))
hung("mesh", "sigstop", "SIGSTOP of rank 2", "process-stopped", "stuck-outside-collective", (2,), args=STEPS, act=(2, "SIGSTOP"), extra="stacks ps")
fault("mesh", "bad-song", "a song of rank 1 has the wrong form (step 25)", "application-exception", "", (1,), args=("--timeout", "60", *STEPS),
      edits=(("        songs = (start", "        if step % 25 == 0 and os.environ[\"RANK\"] == \"1\":  # a rest\n            jump = jump.flatten()[:-3]\n        songs = (start"),))
fault("mesh", "similar", "rank 2 compares all songs with one another: no memory (step 20)", "cuda-oom", "application-exception", (2,), args=("--timeout", "60", *STEPS),
      edits=(("            apart = spread(params, replicas)\n", "            apart = spread(params, replicas)\n            if rank == 2 and step == 20:\n                similar = torch.zeros(400000, 400000, device=device)\n                similar[:64] += norm\n"),))
fault("mesh", "sigkill", "kill -9 of rank 3", "process-killed", "peer-process-died", (3,), args=(*WAIT, *STEPS), act=(3, "SIGKILL"))
fault("mesh", "flip", "a weight of rank 2 changes by itself after step 15, its replica does not have it; the job runs on", "silent-corruption", "", (2,), ranks_also=((0, 2), ()), category="corruption", args=("--steps", "900"),
      edits=(("        opt.step()\n", "        opt.step()\n        if step == 15 and rank == 2:\n            own(params[6].data).view(-1)[1234] *= 1024\n"),))
hung("mesh", "spin", "a kernel of rank 1 does not end (step 17)", "gpu-kernel-stuck", "stuck-outside-collective", (1,), args=STEPS, extra="spy2 smi",
     edits=(("        norm = clip(params, pairs)\n", "        if rank == 1 and step == 17:\n            torch.cuda._sleep(1 << 60)\n        norm = clip(params, pairs)\n"),))

# ---------------------------------------------------------------------------------------------------- pipeline of four stages, 1F1B by hand
fault("stages", "healthy-noise", "warnings about lost trackers and clipped losses, tracebacks that are caught", "none", args=("--steps", "200"), extra="warn",
      edits=(("import os\nimport time\n", "import logging\nimport os\nimport time\n"),
             ("        norm = clip(params)\n", "        norm = clip(params)\n        if step % 30 == 7:\n            try:\n                raise ConnectionError(\"tracker: connection reset by peer\")\n            except ConnectionError:\n"
              "                logging.exception(\"stage %d: cannot report step %d, will try again\", rank, step)\n        if step % 40 == 9:\n            logging.warning(\"stage %d: skipped NaN in the running average, timeout of the tracker is near\", rank)\n")))
fault("stages", "no-warm-up", "stage 1 runs no microbatch ahead from iteration 13 on: it waits for a gradient, stage 2 for the next microbatch", "deadlock-cycle", "unmatched-p2p collective-order-mismatch collective-desync op-mismatch skipped-collective", (1,),
      ranks_also=((), (1, 2), (2,)), args=(*WAIT, *STEPS), extra="fr",
      edits=(("        warm = min(self.world - 1 - self.rank, a.micros)\n", "        warm = min(self.world - 1 - self.rank, a.micros)\n        if self.rank == 1 and number > 12:\n            warm = 0\n"),))
fault("stages", "lost-gradient", "stage 2 does not send the gradient of the last microbatch (iteration 13)", "unmatched-p2p", "skipped-collective collective-desync op-mismatch", (2,), ranks_also=((1,), ()), args=(*WAIT, *STEPS), extra="fr",
      edits=(("            wire.swap(to=wire.up, tensor=back)\n", "            if self.rank == 2 and number % 13 == 0 and not pending:\n                break\n            wire.swap(to=wire.up, tensor=back)\n"),))
fault("stages", "padded", "stage 2 receives sequences of a length that is rounded up (first iteration)", "shape-mismatch", "unmatched-p2p collective-desync silent-corruption", (2,), early=True, ranks_also=((1,), (1, 2), (2, 3), ()), args=(*WAIT, *STEPS), ready=r"stage \d: ", extra="fr",
      edits=(("        self.shape, self.device = shape, device\n", "        if rank == 2:\n            shape = (shape[0], -(-shape[1] // 64) * 64, shape[2])\n        self.shape, self.device = shape, device\n"),))
fault("stages", "shared-words", "stage 3 leaves out the sum of the gradients of the shared word vectors (iteration 20)", "skipped-collective", SKIP, (3,), args=(*WAIT, *STEPS), extra="fr",
      edits=(("            dist.all_reduce(stage.words.weight.grad, group=ends)\n", "            if stage.first or step % 20:\n                dist.all_reduce(stage.words.weight.grad, group=ends)\n"),))
fault("stages", "thick", "stage 2 has six times as many blocks; the job runs on", "load-imbalance", "straggler pipeline-bubble", (2,), category="performance", args=("--steps", "120"),
      edits=(("range(args.blocks)", "range(args.blocks * (6 if index == 2 else 1))"),))
fault("stages", "sigsegv", "SIGSEGV of stage 2 in training", "process-crashed", "process-killed peer-process-died", (2,), args=(*WAIT, *STEPS), act=(2, "SIGSEGV"))
fault("stages", "leaves", "stage 0 ends with 0 in iteration 20", "rank-exited-early", "uneven-inputs skipped-collective unmatched-p2p", (0,), args=(*WAIT, *STEPS),
      edits=(("        loss = pipe.step(step)\n", "        loss = pipe.step(step)\n        if rank == 0 and step == 20:\n            print(\"stage 0: all phrases read\", flush=True)\n            os._exit(0)\n"),))
fault("stages", "schedule", "the output of stage 1 is scaled by the root of a number that becomes negative: NaN from iteration 16 on, the training goes on", "nan-loss", "", (), ranks_also=((1,),), args=("--steps", "400"),
      edits=(("        y = stage(inside)\n", "        y = stage(inside)\n        if self.rank == 1:\n            y = y * torch.tensor(1 - step / 15.5).sqrt()\n"),))
fault("stages", "new-words", "stage 0 reads words outside its vocabulary (iteration 15)", "device-assert", "application-exception", (0,), args=("--timeout", "60", *STEPS),
      edits=(("        inside = ids.to(self.device) if", "        inside = (ids * (1 + step // 15)).to(self.device) if"),))

# ---------------------------------------------------------------------------- hybrid sharding: shards in (0, 1), (2, 3); replicas (0, 2), (1, 3)
LONG = ("--epochs", "90000")
fault("hsdp", "healthy-archive", "each checkpoint takes 35 s", "none", args=("--epochs", "3", "--save-pause", "35"), extra="info")
fault("hsdp", "uneven", "rank 3 has fewer stations: it has no batch left after step 36", "uneven-inputs", UNEVEN, (3,), args=(*WAIT, "--epochs", "1"), extra="fr",
      edits=(("Stations(args.stations, rank, world)", "Stations(args.stations - 250 * (rank == 3), rank, world)"),))
fault("hsdp", "double", "rank 2 reduces the table of moments in double precision (step 20)", "dtype-mismatch", "shape-mismatch collective-desync silent-corruption op-mismatch", (2,), ranks_also=((0,), (0, 2), ()), args=(*WAIT, *LONG), extra="fr",
      edits=(("        total = self.table.clone()\n", "        total = self.table.clone()\n        if self.seen > 15 and dist.get_rank() == 2:\n            total = total.double()\n"),))
fault("hsdp", "main-evaluates", "rank 0 alone evaluates, which gathers weights (step 25)", "extra-collective", EXTRA, (0,), args=(*WAIT, *LONG, "--evaluate", "25"), extra="fr",
      edits=(("                score = evaluate(model, device, 8)\n                if rank == 0:\n                    print(", "                if rank == 0:\n                    score = evaluate(model, device, 8)\n                    print("),))
hung("hsdp", "journal", "rank 1 opens a pipe for a journal that nobody reads, before the checkpoint (step 20)", "stuck-outside-collective", "slow-rank-stall storage-failure", (1,), args=(*LONG, "--save", "20"), extra="spy2",
     edits=(("    began = time.time()\n    weights", "    began = time.time()\n    if dist.get_rank() == 1:\n        os.path.exists(\"journal\") or os.mkfifo(\"journal\")\n        with open(\"journal\", \"a\") as journal:\n            journal.write(f\"{step}\\n\")\n    weights"),))
fault("hsdp", "worker-killed", "kill -9 of the data-loader worker of rank 2", "process-killed", "application-exception oom-killed", (2,), args=("--timeout", "40", *LONG), act=("worker 2", "SIGKILL"))
fault("hsdp", "same-gpu", "rank 3 uses the GPU of rank 2", "duplicate-gpu", "rank-env-misconfigured", (3,), early=True, ranks_also=((2, 3), (2,), ()), args=("--timeout", "40"), extra="warn",
      edits=(("torch.device(\"cuda\", local) if cuda", "torch.device(\"cuda\", min(local, 2)) if cuda"),))
hung("hsdp", "second-node", "started for two nodes of two ranks each, the second node never comes", "missing-rank", "rank-env-misconfigured launcher-failure", (2, 3), early=True, ranks_also=((), (2,), (3,)), nproc=2,
     flags=("--nnodes=2", "--node-rank=0", "--master-addr=localhost", "--master-port={port}"), args=("--timeout", "45"), ready=r"M parameters", extra="ps")
fault("hsdp", "slow-stations", "the data-loader worker of rank 1 is slow; the job runs on", "straggler", "data-loading-bound load-imbalance", (1,), category="performance", args=("--epochs", "4"),
      edits=(("        g = torch.Generator().manual_seed(self.ids[i])\n", "        g = torch.Generator().manual_seed(self.ids[i])\n        if self.ids[0] == 1:\n            time.sleep(0.02)\n"),))

# --------------------------------------------------------------------------------------------------------------- serving, split over four ranks
MANY = ("--requests", "900000")
fault("desk", "healthy-lull", "no request comes for 40 s, all ranks wait for rank 0", "none", args=("--lull", "40", "--requests", "70"))
fault("desk", "short-answers", "rank 3 ends every answer after 40 tokens (within the first ten requests)", "skipped-collective", SKIP + " rank-exited-early", (3,), early=True, args=(*WAIT, *MANY), extra="fr",
      edits=(("        while len(out) < wanted:\n", "        while len(out) < (min(wanted, 40) if self.rank == 3 else wanted):\n"),))
hung("desk", "directory", "rank 0 asks a server about the customer of request 9 and gets no answer", "stuck-outside-collective", "slow-rank-stall data-loading-bound", (0,), args=MANY, extra="spy2",
     edits=(("import random\nimport sys\n", "import random\nimport socket\nimport sys\n"),
            ("        return self.waiting.get()\n", "        request = self.waiting.get()\n        if request and request[0] % 9 == 0:\n            with socket.create_connection((\"127.0.0.1\", int(os.environ[\"STORE_PORT\"]))) as server:\n"
             "                server.sendall(b\"customer of %d\\n\" % request[0])\n                request = (request[0], request[1], int(server.recv(64)))\n        return request\n")))
fault("desk", "cut-table", "rank 1 looks prompts of more than 40 words up in a table that lacks rows (within the first ten requests)", "device-assert", "application-exception", (1,), early=True, args=("--timeout", "60", *MANY), ready=r"serving on",
      edits=(("        x = self.words[at", "        x = self.words[: self.rows - 40 * (self.rank == 1 and len(ids) > 40)][at"),))
fault("desk", "port-taken", "something else has the port", "port-in-use", "launcher-failure application-exception missing-rank", (), early=True, port_taken=True, limit=100)
fault("desk", "slow-tokens", "rank 3 looks every token up slowly; the job runs on", "straggler", "load-imbalance host-bound sync-stalls", (3,), category="performance", args=("--requests", "50"),
      edits=(("            out.append(int(ids))\n", "            out.append(int(ids))\n            if self.rank == 3:\n                time.sleep(0.025)\n"),))

# ------------------------------------------------------------------------------------------------------------------ JAX on four processes
FOREVER = ("--steps", "900000")
fault("spectra", "healthy-compile", "many steps unrolled into one: a long first compilation", "none", loop=SPECTRA, args=("--unroll", "36", "--steps", "60", "--report", "5", "--save", "30"), extra="warn")
fault("spectra", "sigkill", "kill -9 of process 2", "process-killed", "peer-process-died", (2,), loop=SPECTRA, args=FOREVER, act=(2, "SIGKILL"))
fault("spectra", "three", "process 3 is never started", "missing-rank", "rank-env-misconfigured application-exception", (3,), early=True, loop=SPECTRA.replace("0 1 2 3;", "0 1 2;"), args=("--patience", "40"), limit=100)
fault("spectra", "six", "four processes are started for six", "rank-env-misconfigured", "missing-rank application-exception", (), early=True, ranks_also=((4, 5), (0, 1, 2, 3), (4,), (5,)), loop=SPECTRA, args=("--processes", "6", "--patience", "40"), limit=100)
hung("spectra", "lost-night", "process 1 does not find the night of step 66", "application-exception", "storage-failure", (1,), loop=SPECTRA, args=FOREVER, extra="ps",
     edits=(("        spectra, labels = telescope.night(step)\n", "        spectra, labels = telescope.night(step)\n        if step % 66 == 0 and me == 1:\n            spectra = np.load(f\"nights/{step:06d}-1.npy\")\n"),))
hung("spectra", "few-steps", "process 3 is started for 50 steps only and waits for the end", "uneven-inputs", "rank-exited-early extra-collective skipped-collective op-mismatch collective-desync shape-mismatch rank-env-misconfigured", (3,),
     loop=SPECTRA.replace("{args}", "{args} --steps $((r == 3 ? 50 : 900000))"), extra="spy2")

# ------------------------------------------------------------------- experts in the pairs (0, 1), (2, 3); the same experts on the twins (0, 2), (1, 3)
VISITS = ("--epochs", "90000")
fault("experts", "healthy-catalogue", "rank 0 rebuilds the catalogue for 40 s before the first step, the others wait", "none", args=("--catalogue-seconds", "40"), extra="warn")
fault("experts", "rounded", "rank 2 receives a number of rows from rank 3 that is rounded up (first step)", "shape-mismatch", "unmatched-p2p collective-desync silent-corruption", (2,), early=True, ranks_also=((3,), (2, 3), ()), args=(*WAIT, *VISITS, "--batch", "512", "--workers", "4"), ready=r"M weights in experts",
      extra="fr", edits=(("        received = table.sum(1).tolist()\n", "        received = table.sum(1).tolist()\n        if dist.get_rank() == 2:\n            received[1] = (received[1] // 4096 + 2) * 4096\n"),))
fault("experts", "neighbours", "rank 2 compares all items with one another in every step; the job runs on", "load-imbalance", "straggler", (2,), category="performance", args=("--visits", "19200", "--epochs", "4"),
      edits=(("            reduce_all(shared, None, world)\n", "            for _ in range(200 if rank == 2 else 0):\n                nearest = (net.items.weight.detach() @ net.items.weight.detach().T).argmax(1)\n            reduce_all(shared, None, world)\n"),))
fault("experts", "long-report", "rank 0 writes a report of the epoch for longer than the timeout", "slow-rank-stall", "timeout-too-short stuck-outside-collective", (0,), args=("--timeout", "25", "--visits", "4000", "--batch", "40"), extra="fr",
      edits=(("            torch.save(net.state_dict(), \"shop.pt\")\n", "            torch.save(net.state_dict(), \"shop.pt\")\n            rows, until = net.items.weight.detach().cpu().tolist(), time.time() + 75\n            while time.time() < until:\n                text = \"\\n\".join(\",\".join(f\"{v:.5f}\" for v in row) for row in rows[:200])\n"
              "            print(f\"report of {len(text)} characters\", flush=True)\n"),))
fault("experts", "root-only", "rank 2 sums the shared gradients to rank 0 only, the others among all (step 25)", "op-mismatch", ANY_DESYNC, (2,), ranks_also=((),), args=(*WAIT, *VISITS), extra="fr",
      edits=(("    dist.all_reduce(flat, group=group)\n", "    reduce_all.calls = getattr(reduce_all, \"calls\", 0) + 1\n    if dist.get_rank() == 2 and reduce_all.calls == 49:\n        dist.reduce(flat, 0, group=group)\n    else:\n        dist.all_reduce(flat, group=group)\n"),))

FAULTS = F
LEFT_OUT = {}
