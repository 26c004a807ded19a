"""An eleventh set of jobs and faults: two ranks each, on two GPUs. The same plain data as declared.py. All jobs end by themselves after --minutes.

EARLY has the faults that show within the first ten steps or before the first one."""

from declared import DESYNC, EXTRA_CALL, UNEVEN, Fault, Job

F = []
EARLY = set()
EXTRA = EXTRA_CALL + " shape-mismatch dtype-mismatch collective-order-mismatch"
SKIP = DESYNC + " shape-mismatch collective-order-mismatch uneven-inputs"
SIZES = "collective-desync silent-corruption op-mismatch"
SLOW = "host-bound load-imbalance"
EITHER = ((0,), (1,), (0, 1))
ANY = ((0,), (1,), (0, 1), ())


def fault(job, name, says, cause, also="", ranks=(), extra="", early=False, **more):
    F.append(Fault(job, name, says, cause, tuple(also.split()), tuple(ranks), extra=tuple(extra.split()), **{"limit": 160, **more}))
    if early:
        EARLY.add(f"{job}/{name}")


def hung(job, name, says, cause, also="", ranks=(), extra="", **more):
    """A job that never ends by itself: the user waits, then ends it."""
    fault(job, name, says, cause, also, ranks, extra, end="silence", **{"silence": 40, **more})


def healthy(job, name, says, extra="", **more):
    fault(job, "healthy-" + name, says, "none", extra=extra, **{"limit": 210, **more})


def slow(job, name, says, also="", ranks=(), **more):
    fault(job, name, says + "; the job runs on", "straggler", also, ranks, category="performance", **{"limit": 200, **more})


def corrupt(job, name, says, cause, also="", ranks=(), **more):
    """Nothing stops: the numbers are wrong."""
    fault(job, name, says, cause, also, ranks, category="corruption", **{"limit": 200, **more})


JOBS = [
    Job("bridges", "f11_bridges.py", "train_vit.py", "inspect", "torchrun", r'"step": 20,'),
    Job("whales", "f11_whales.py", "fit_calls.py", "hydrophone", "python", r"step 20 loss", packages=("lightning", "torch")),
    Job("contracts", "f11_contracts.py", "tag_clauses.py", "clauses", "accelerate", r"step 20 loss", packages=("transformers", "accelerate", "torch")),
    Job("turbines", "f11_turbines.py", "park.py", "windpark", "torchrun", r"step=20 loss"),
    Job("riddles", "f11_riddles.py", "answer.py", "riddler", "torchrun", r"round 2:"),
    Job("typhoons", "f11_typhoons.py", "track.py", "storms", "loop", r"step 20 loss", packages=("jax",)),
    Job("stars", "f11_stars.py", "nbody.py", "cluster", "loop", r"step 20 t ", packages=("cupy",)),
    Job("subtitles", "f11_subtitles.py", "subtitle.py", "films", "torchrun", r"step +20 loss"),
    Job("feathers", "f11_feathers.py", "swav.py", "plumage", "loop", r"step 20 loss"),
]

TYPHOONS = ("for r in 0 1; do\n  LOCAL_RANK=$r python -u {script} --coordinator localhost:{port} --process-id $r {args} > logs/process-$r.log 2>&1 &\ndone\nwait\n")
STARS = ("for r in 0 1; do\n  LOCAL_RANK=$r python -u {script} --rank $r --size 2 --port {port} {args} > logs/stars-$r.txt 2>&1 &\ndone\nwait\n")
FEATHERS = ("export MASTER_ADDR=localhost MASTER_PORT={port} WORLD_SIZE=2\nfor r in 0 1; do\n  RANK=$r LOCAL_RANK=$r python -u {script} {args} > logs/swav.$r.log 2>&1 &\ndone\nwait\n")
WAIT = ("--timeout", "30")
LONG = ("--minutes", "20")
CALLS = (("NCCL_DEBUG_SUBSYS", "INIT,COLL,P2P"),)

# ------------------------------------------------------------------------- vision transformer, DDP by hand, gradient accumulation, torchrun
READ = "        photo, found = self.read(index)\n"
JUDGED = "                f1 = self.evaluate()\n"
TAKEN = "            photos, found = next(source)\n"
ARRIVES = "        return photos.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float().sub(127.5).div(64)\n"
SCHEDULED = "        self.schedule.step()\n"
MODEL = "        self.net = ViT(cfg.dim, cfg.depth, cfg.heads, len(DEFECTS)).to(device)\n"
healthy("bridges", "retries", "now and then a photo is read again after an error, with a warning",
        edits=((READ, "        for attempt in range(3):\n            try:\n                if attempt == 0 and np.random.rand() < 0.00003:\n                    raise OSError(5, \"Input/output error\", f\"/mnt/inspections/{index:06d}.jpg\")\n"
                "                photo, found = self.read(index)\n                break\n            except OSError as error:\n                print(f\"WARNING photo {index}: {error}, attempt {attempt + 1} of 3 failed\", flush=True)\n                time.sleep(0.1)\n"),))
healthy("bridges", "many-tests", "the evaluation takes longer than the training between two of them", args=("--eval-every", "60", "--test-photos", "60000"))
fault("bridges", "best-average", "rank 0 alone evaluates the averaged weights, which reduces", "extra-collective", EXTRA, (0,), extra="fr", args=(*WAIT, *LONG, "--eval-every", "60"),
      edits=((JUDGED, JUDGED + "                if self.rank == 0:\n                    now = [p.data for p in self.net.parameters()]\n                    for p, w in zip(self.net.parameters(), self.average.weights):\n                        p.data = w\n"
              "                    self.log(f1_average=round(self.evaluate().mean().item(), 4))\n                    for p, w in zip(self.net.parameters(), now):\n                        p.data = w\n"),))
fault("bridges", "own-classes", "each rank counts the classes in its own photos: 7 and 10 (before the first step)", "shape-mismatch", "application-exception rank-env-misconfigured " + SIZES, (0,), early=True, ranks_also=ANY, extra="fr",
      args=(*WAIT, *LONG), ready="parameters,",
      edits=((MODEL, "        photos = Inspections(20, False)\n        classes = {int(d) for i in range(rank, len(photos), world) for d in np.flatnonzero(photos.read(i)[1])}\n"
              "        self.net = ViT(cfg.dim, cfg.depth, cfg.heads, len(classes)).to(device)\n"),))
fault("bridges", "worker-killed", "kill -9 of a data-loader worker of rank 1", "process-killed", "application-exception oom-killed process-crashed", (1,), args=(*WAIT, *LONG), act=("worker 1", "SIGKILL"))
fault("bridges", "look-alikes", "rank 0 compares all pixels of a batch with each other: no memory (step 80)", "cuda-oom", "application-exception", (0,), args=("--timeout", "60", *LONG),
      edits=((TAKEN, TAKEN + "            if self.step == 80 and self.rank == 0:\n                pixels = self.scale(photos).flatten()\n                alike = (pixels[:, None] - pixels[None]).abs().mean(1)\n"),))
corrupt("bridges", "black-photo", "photos are divided by their deviation, a photo of rank 1 is black (step 90): NaN, the training goes on", "nan-loss", "", (1,), ranks_also=((0, 1), ()),
        edits=((ARRIVES, "        photos = photos.to(self.device, non_blocking=True).permute(0, 3, 1, 2).float().sub(127.5)\n        return photos / photos.std((1, 2, 3), keepdim=True)\n"),
               (TAKEN, TAKEN + "            if self.step == 90 and self.rank == 1:\n                photos[7] = 0\n")))
slow("bridges", "histograms", "rank 0 makes histograms of all gradients on the host in each step", SLOW + " sync-stalls transfer-bound", (0,),
     edits=((SCHEDULED, SCHEDULED + "        if self.rank == 0:\n            for name, p in self.net.named_parameters():\n                counts, edges = np.histogram(p.grad.float().cpu().numpy().ravel()[:20000], 64)\n"),))
slow("bridges", "lens", "rank 1 reads its photos without workers and corrects the lens of every second one", "data-loading-bound " + SLOW, (1,),
     edits=(("        self.train_loader = DataLoader(self.train_set, cfg.batch, sampler=self.sampler, drop_last=True, **more)\n",
             "        if rank == 1:\n            more.update(num_workers=0, persistent_workers=False)\n        self.train_loader = DataLoader(self.train_set, cfg.batch, sampler=self.sampler, drop_last=True, **more)\n"),
            (READ, READ + "        if os.environ[\"RANK\"] == \"1\" and index % 2:\n            y, x = np.mgrid[0:144, 0:144] - 72\n            bent = 1 + 0.04 * (y * y + x * x) / 5184\n"
             "            photo = photo[np.clip(72 + y * bent, 0, 143).astype(int), np.clip(72 + x * bent, 0, 143).astype(int)]\n")))

# ------------------------------------------------------------------------- Lightning with callbacks, starts its own ranks
LOGITS = "        loss = F.cross_entropy(logits, kind, label_smoothing=0.05)\n"
HEARD = "    def training_step(self, batch, batch_idx):\n        wave, kind = batch\n"
COPIED = "        weights = [p.detach() for p in module.parameters()]\n"
METRICS = "        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}\n"
# The second rank starts late: the first one starts it, and it must be there within this time.
WAIT_WHALES = ("--timeout", "50")
healthy("whales", "upload", "rank 0 uploads for 22 s after the first validation, rank 1 waits",
        edits=((METRICS, METRICS + "        if trainer.is_global_zero and trainer.global_step <= 250:\n            print(\"uploading spectrograms\", flush=True)\n            time.sleep(22)\n"),))
healthy("whales", "quiet-sea", "a metric is NaN where a species is not in a batch, with warnings; the loss is well", extra="warn",
        edits=(("import argparse\nimport os\nimport time\n", "import argparse\nimport os\nimport time\nimport warnings\n"),
               (LOGITS, LOGITS + "        if batch_idx % 30 == 0:\n            here = kind[kind == 3][:0]\n            self.log(\"recall_minke\", (logits[:0].argmax(1) == here).float().mean())\n"
                "            warnings.warn(f\"rank {self.global_rank}: no minke whale in batch {batch_idx}, recall is nan\", stacklevel=2)\n")))
fault("whales", "main-saves", "rank 0 alone calls save_checkpoint (step 8)", "extra-collective", EXTRA, (0,), early=True, extra="fr", args=(*WAIT_WHALES, *LONG), ready="step 20 loss|All distributed processes registered", limit=170,
      edits=((COPIED, "        if trainer.is_global_zero and trainer.global_step == 8:\n            trainer.save_checkpoint(\"checkpoints/first.ckpt\")\n" + COPIED),))
fault("whales", "leaves-out", "rank 1 returns None for a batch that is too loud (batch 70)", "application-exception", "uneven-inputs skipped-collective", (1,), args=(*WAIT_WHALES, *LONG), limit=170,
      edits=((LOGITS, "        if self.global_rank == 1 and batch_idx == 70:\n            return None\n" + LOGITS),))
hung("whales", "question", "rank 0 asks at the terminal whether to go on (batch 60)", "stuck-outside-collective", "process-stopped slow-rank-stall", (0,), stdin="pipe", extra="spy2", args=LONG, limit=170,
     edits=((LOGITS, "        if self.global_rank == 0 and batch_idx == 60:\n            if input(\"amplitude is clipped, go on with this batch? [y/n] \") == \"n\":\n                wave = wave.clamp(-1, 1)\n" + LOGITS),))
fault("whales", "disk-full", "no room for the first checkpoint", "storage-failure", "application-exception", (0,), ranks_also=((0, 1),), tmpfs=(("checkpoints", "6m"),), args=(*WAIT_WHALES, *LONG, "--save-every", "60"), limit=170)
fault("whales", "few-clips", "the station of rank 1 has fewer clips", "uneven-inputs", UNEVEN + " dtype-mismatch collective-order-mismatch", (1,), extra="fr", args=(*WAIT_WHALES, *LONG), limit=170,
      edits=(("        return DataLoader(Hydrophones(self.station()), self.batch,", "        return DataLoader(Hydrophones(self.station(), (60 - 8 * self.station()) * self.batch), self.batch,"),))
slow("whales", "leak-hunt", "rank 0 collects garbage and counts tensors in every third batch", SLOW + " sync-stalls", (0,),
     edits=(("import argparse\nimport os\nimport time\n", "import argparse\nimport gc\nimport os\nimport time\n"),
            (COPIED, "        if trainer.is_global_zero and batch_idx % 3 == 0:\n            gc.collect()\n            self.alive = sum(1 for x in gc.get_objects() if type(x) is torch.Tensor)\n" + COPIED)))
slow("whales", "templates", "rank 1 compares all clips with a bank of templates on the GPU", "load-imbalance", (1,),
     edits=((HEARD, HEARD + "        if self.global_rank == 1:\n            with torch.no_grad():\n                if not hasattr(self, \"bank\"):\n                    self.bank = torch.randn(1024, 12288, device=wave.device, dtype=torch.bfloat16)\n"
             "                pieces = wave.bfloat16().unfold(1, 1024, 8).contiguous()\n                near = torch.stack([(pieces @ some).amax(1).mean() for some in self.bank.split(512, 1)])\n"),))

# ------------------------------------------------------------------------- token classification, a loop with Accelerate, accelerate launch
ACCUMULATE = "            with accelerator.accumulate(model):\n"
PREPARED = "        train_set, test_set = Contracts("
COUNTED = "            step += 1\n"
PADDED = "        guess, truth = accelerator.pad_across_processes((guess, batch[\"labels\"]), dim=1, pad_index=-100)\n"
STATE = "                    print(f\"step {step} state saved\", flush=True)\n"
LINE = "    with open(\"metrics.jsonl\", \"a\") as file:\n        file.write(json.dumps(entry) + \"\\n\")\n"
healthy("contracts", "prepares", "process 0 prepares the clauses for 26 s, process 1 waits",
        edits=((PREPARED, "        if accelerator.is_main_process:\n            print(\"writes the cache of clauses\", flush=True)\n            time.sleep(26)\n" + PREPARED),))
healthy("contracts", "tracker", "the tracker fails at times: a traceback, and another try",
        edits=(("import time\nfrom datetime", "import time\nimport traceback\nfrom datetime"),
               (LINE, "    for attempt in range(2):\n        try:\n            if attempt == 0 and entry[\"step\"] % 50 == 0:\n                raise ConnectionError(\"HTTPSConnectionPool(host='tracker.local', port=443): Read timed out. (read timeout=1)\")\n"
                "            with open(\"metrics.jsonl\", \"a\") as file:\n                file.write(json.dumps(entry) + \"\\n\")\n            break\n        except ConnectionError:\n            traceback.print_exc()\n            print(\"retries in 1 s\", flush=True)\n            time.sleep(1)\n")))
fault("contracts", "main-logs", "process 0 alone gathers the loss for its log (step 10)", "extra-collective", EXTRA, (0,), early=True, extra="fr", args=(*WAIT, *LONG), ready="parameters,",
      edits=(("            if step % args.log_every == 0:\n", "            if accelerator.is_main_process and step % args.log_every == 0:\n"),))
fault("contracts", "not-padded", "predictions of different lengths are gathered without padding; TORCH_DISTRIBUTED_DEBUG says so (first evaluation)", "shape-mismatch", "application-exception uneven-inputs " + SIZES, (), ranks_also=EITHER, extra="detail fr",
      args=(*WAIT, *LONG, "--eval-every", "50"), edits=((PADDED, "        truth = batch[\"labels\"]\n"),))
fault("contracts", "eighth-tag", "process 1 meets a tag that the model does not know (step 45)", "device-assert", "application-exception", (1,), args=("--timeout", "60", *LONG),
      edits=((ACCUMULATE, "            if step == 45 and accelerator.process_index == 1:\n                batch[\"labels\"][0, 9:12] = len(TAGS)\n" + ACCUMULATE),))
fault("contracts", "archive", "process 0 waits for a helper that waits for the archive, after a checkpoint", "stuck-outside-collective", "slow-rank-stall storage-failure", (0,), extra="spy2 fr", args=(*WAIT, *LONG, "--save-every", "60"),
      edits=(("import random\nimport time\n", "import random\nimport subprocess\nimport time\n"),
             (STATE, STATE + "                    subprocess.run([\"bash\", \"-c\", \"until [ -e state/ARCHIVED ]; do sleep 1; done\"], check=True)\n")))
fault("contracts", "port-taken", "something else has the port", "port-in-use", "launcher-failure application-exception missing-rank", (), early=True, ranks_also=((0,), (0, 1)), port_taken=True, limit=100, args=("--timeout", "40"))
slow("contracts", "rate-limit", "process 0 reports every step to a tracker that takes twelve reports a second", SLOW + " sync-stalls", (0,),
     edits=((COUNTED, COUNTED + "            if accelerator.is_main_process:\n                track({\"step\": step, \"batch_loss\": loss.item()})\n                time.sleep(1 / 12)\n"),))
slow("contracts", "neighbours", "process 1 counts words that stand together in Python, for each batch", "data-loading-bound " + SLOW, (1,),
     edits=((ACCUMULATE, "            if accelerator.process_index == 1:\n                pairs = {}\n                for row in batch[\"input_ids\"].tolist():\n                    for i, word in enumerate(row):\n                        for other in row[i + 1:i + 15]:\n"
             "                            pairs[word, other] = pairs.get((word, other), 0) + 1\n" + ACCUMULATE),))

# ------------------------------------------------------------------------- FSDP2, distributed checkpoints, torchrun
POWER = "            power = self.load()\n"
SYNC = "            model.set_requires_gradient_sync(micro == args.micro - 1)\n"
FOLDER = "        os.makedirs(folder, exist_ok=True)\n"
POLICY = "    precision = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)\n"
GOT = "        levels = self.ready.get()\n"
healthy("turbines", "half-checkpoint", "the newest checkpoint is not whole: a traceback, and a start from scratch",
        edits=((FOLDER, FOLDER + "        if rank == 0:\n            os.makedirs(self.path(100))\n            with open(os.path.join(self.path(100), \"__0_0.distcp\"), \"wb\") as file:\n                file.write(bytes(4096))\n"),))
healthy("turbines", "first-readings", "rank 0 unpacks its readings for 28 s before the first step, rank 1 waits", extra="info",
        edits=((POWER, "            if self.number == 0 and self.rank == 0:\n                time.sleep(28)\n" + POWER),))
fault("turbines", "main-norm", "rank 0 alone asks for the whole norm of the gradients (step 10)", "extra-collective", EXTRA, (0,), early=True, extra="fr", args=(*WAIT, *LONG), ready="2 ranks,",
      edits=(("            size = norm.full_tensor().item()\n            dist.all_reduce(total)\n            if rank == 0:\n", "            dist.all_reduce(total)\n            if rank == 0:\n                size = norm.full_tensor().item()\n"),))
fault("turbines", "main-saves", "rank 0 alone writes the checkpoint", "extra-collective", EXTRA + " deadlock-cycle stuck-outside-collective", (0,), extra="fr", args=(*WAIT, *LONG, "--save-every", "60"),
      edits=(("            checkpoints.save()\n            if rank == 0:\n", "            if rank == 0:\n                checkpoints.save()\n"),))
fault("turbines", "reduces-half", "rank 1 reduces its gradients in bfloat16, rank 0 in float32 (first step)", "dtype-mismatch", "shape-mismatch " + SIZES, (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="2 ranks,",
      edits=((POLICY, POLICY.replace("reduce_dtype=torch.float32", "reduce_dtype=(torch.float32, torch.bfloat16)[dist.get_rank()]")),))
hung("turbines", "cut-readings", "the thread that reads for rank 1 ends with an exception (batch 80); its rank waits for ever", "application-exception", "stuck-outside-collective data-loading-bound", (1,), extra="spy2", args=LONG,
     edits=((POWER, POWER + "            if self.rank == 1 and self.number == 80:\n                power = power[:, :-1].reshape(self.batch, self.length + 1)\n"),))
hung("turbines", "sigstop", "SIGSTOP of rank 0", "process-stopped", "stuck-outside-collective", (0,), args=LONG, act=(0, "SIGSTOP"), extra="stacks ps")
fault("turbines", "shared-memory", "rank 1 maps a buffer of another library with a length in the wrong unit (step 60)", "illegal-memory-access", "application-exception", (1,), extra="fr", args=("--timeout", "60", *LONG),
      edits=(("def loss_of(", "class Mapped:\n    def __init__(self, owner, count):\n        self.owner = owner\n        self.__cuda_array_interface__ = {\"data\": (owner.data_ptr(), False), \"shape\": (count,), \"typestr\": \"<f4\", \"version\": 2}\n\n\ndef loss_of("),
             (SYNC, SYNC + "            if state.step == 60 and rank == 1:\n                limits = torch.zeros(LEVELS, device=device)\n                mean = torch.as_tensor(Mapped(limits, limits.nbytes << 24), device=device).mean()\n")))
slow("turbines", "medians", "rank 1 smooths its readings in Python for each batch", "data-loading-bound " + SLOW, (1,),
     edits=((GOT, GOT + "        if self.rank == 1:\n            rows = levels.tolist()\n            levels = torch.tensor([[sorted(row[max(0, i - 4):i + 90])[len(row[max(0, i - 4):i + 90]) // 2] for i in range(len(row))] for row in rows])\n"),))

# ------------------------------------------------------------------------- tensor-parallel sampling (DTensor), torchrun
CLOCK = "            over = time.time() - began > 60 * args.minutes\n"
DRAWS = "            texts = [] if over else riddles.draw(args.riddles)\n"
OUT = "            out.append(now)\n"
NEXT = "            logits = self.model(now, stores, at)[:, -1]\n"
NOTED = "            with open(\"answers.tsv\", \"a\") as file:\n"
healthy("riddles", "seldom", "rank 0 waits for riddles, some seconds between two rounds", edits=((CLOCK, "            time.sleep(riddles.rng.expovariate(0.35))\n" + CLOCK),))
healthy("riddles", "some-or-many", "rounds have between two and thirty riddles", edits=((DRAWS, DRAWS.replace("args.riddles", "riddles.rng.randrange(2, 30)")),))
fault("riddles", "main-judges", "rank 0 alone judges its best answer a second time (round 6)", "extra-collective", EXTRA, (0,), extra="fr", args=(*WAIT, *LONG), ready=r"round 1:",
      edits=((NOTED, "            if number % 6 == 0:\n                again = answers.judge(torch.tensor([prompts[0] + found[0]], device=device))\n                print(f\"round {number}: {again.item():.3f} for the first\", flush=True)\n" + NOTED),))
corrupt("riddles", "own-dice", "each rank draws words of its own: the ranks go on with different texts", "silent-corruption", "undecided collective-desync", (), early=True, ranks_also=ANY,
        edits=(("        generator = torch.Generator(self.device).manual_seed(seed)\n", "        generator = torch.Generator(self.device).manual_seed(seed + self.rank)\n"),))
fault("riddles", "quota", "rank 1 has written enough words and leaves, rank 0 goes on", "rank-exited-early", "skipped-collective uneven-inputs", (1,), extra="fr", args=(*WAIT, *LONG),
      edits=(("        written += length\n", "        written += length\n        if rank == 1 and written > 320:\n            break\n"),))
fault("riddles", "no-template", "a kind of riddle has no template: KeyError of rank 0 (first round)", "application-exception", "", (0,), early=True, args=(*WAIT, *LONG), ready="has its part",
      edits=(("            kind = self.rng.choice((\"what\", \"who\", \"where\"))\n", "            kind = self.rng.choice((\"what\", \"who\", \"where\", \"why\"))\n"),))
hung("riddles", "second-node", "started for two nodes, the second never comes", "missing-rank", "rank-env-misconfigured launcher-failure", (2, 3), early=True, ranks_also=((), (2,), (3,), (1,)), args=("--timeout", "45"), limit=120,
     flags=("--nnodes=2", "--node-rank=0", "--master-addr=localhost", "--master-port={port}"))
slow("riddles", "repetition", "rank 0 looks for repetitions in Python after each word", SLOW + " sync-stalls", (0,),
     edits=((OUT, OUT + "            if self.rank == 0:\n                for text in map(decode, torch.cat([ids, *out], 1).tolist()):\n                    fresh = len({text[i:i + n] for n in (2, 3, 4) for i in range(len(text))}) / (3 * len(text) + 1)\n"),))
slow("riddles", "phrases", "rank 1 compares each word with 32768 phrases on the GPU", "load-imbalance", (1,),
     edits=((NEXT, NEXT + "            if self.rank == 1:\n                if not hasattr(self, \"phrases\"):\n                    self.phrases = torch.randn(VOCABULARY, 32768, device=self.device)\n"
             "                for t in range(36):\n                    likely = (logits.float() / (0.5 + 0.02 * t)).softmax(-1) @ self.phrases\n"),))

# ------------------------------------------------------------------------- JAX, data parallel, shell loop
BATCH = "            batch = next(self.archive)\n"
SAVED = "        self.say(f\"step {step} saved\")\n"
RUN = "    run = Run(o)\n"
SCAN = "    x, _ = jax.lax.scan(lambda x, w: (jax.checkpoint(block, static_argnums=2)(x, w, heads), None), x, half[\"layers\"])\n"
healthy("typhoons", "unrolled", "no scan over the layers: the compilation takes long", loop=TYPHOONS, args=("--depth", "20", "--dim", "576", "--heads", "9", "--batch", "72"),
        edits=((SCAN, "    for i in range(len(half[\"layers\"][\"qkv\"])):\n        x = block(x, jax.tree.map(lambda w: w[i], half[\"layers\"]), heads)\n"),))
fault("typhoons", "main-times", "process 0 alone gathers the times of all processes (step 5)", "extra-collective", EXTRA + " stuck-outside-collective", (0,), early=True, loop=TYPHOONS, args=(*LONG, "--log-every", "5"), ready="processes,", extra="spy2 info", env=CALLS,
      end="silence", silence=40,
      edits=(("                    self.say(f\"step {step} loss", "                    slowest = multihost_utils.process_allgather(np.float32(time.time() - self.began)).max()\n                    self.say(f\"step {step} slowest {slowest:.1f} loss"),))
fault("typhoons", "twice-zero", "both processes are told that they are process 0", "rank-env-misconfigured", "port-in-use missing-rank application-exception", (), early=True, ranks_also=((0,), (1,), (0, 1)),
      loop=TYPHOONS.replace("--process-id $r", "--process-id 0"), args=("--patience", "40"), limit=120)
hung("typhoons", "no-marker", "process 1 waits for a file that says that its archive is there (before the first step)", "stuck-outside-collective", "slow-rank-stall data-loading-bound storage-failure", (1,), early=True, loop=TYPHOONS, args=LONG, ready="processes,", extra="spy2",
     edits=((RUN, "    while o.process_id and not os.path.exists(f\"archive-{o.process_id}.ready\"):\n        time.sleep(0.5)\n" + RUN),))
hung("typhoons", "likeness", "process 0 compares all points of its fields with each other: no memory (step 90)", "cuda-oom", "application-exception", (0,), loop=TYPHOONS, args=LONG, extra="spy2",
     edits=((BATCH, BATCH + "            if step == 90 and self.process == 0:\n                points = jnp.asarray(batch[\"fields\"].reshape(-1, 4)[:400000])\n                alike = float((points @ points.T).mean())\n"),))
corrupt("typhoons", "calm", "a field of process 1 has no deviation and is divided by it (step 130): NaN, the training goes on", "nan-loss", "", (1,), ranks_also=((0, 1), ()), loop=TYPHOONS,
        edits=((BATCH, BATCH + "            if step == 130 and self.process == 1:\n                batch[\"fields\"][5] -= batch[\"fields\"][5]\n                batch[\"fields\"][5] /= batch[\"fields\"][5].std()\n"),))
hung("typhoons", "sigkill", "kill -9 of process 1", "process-killed", "peer-process-died", (1,), loop=TYPHOONS, args=LONG, act=(1, "SIGKILL"), extra="spy2")
slow("typhoons", "spectral", "process 1 filters its fields one by one on the host", SLOW + " data-loading-bound", (1,), loop=TYPHOONS,
     edits=((BATCH, BATCH + "            if self.process == 1:\n                for storm in batch[\"fields\"]:\n                    for field in storm[3:]:\n                        waves = np.fft.rfft2(field)\n                        waves[20:44] = 0\n                        field[:] = np.fft.irfft2(waves)\n"),))

# ------------------------------------------------------------------------- CuPy with cupyx.distributed, shell loop
STEP = "        cluster.attract()\n        cluster.move(cluster.longest_step())\n"
MOVES = "        cluster.move(cluster.longest_step())\n"
healthy("stars", "substeps", "one, two or three small steps in turn: the steps do not take the same time", loop=STARS,
        edits=((STEP, "        for _ in range(1 + step * 7919 % 3):\n            cluster.attract()\n            cluster.move(cluster.longest_step())\n"),))
hung("stars", "step-first", "process 1 asks for the length of the step before it gathers the positions (first step)", "collective-order-mismatch", "application-exception shape-mismatch " + SIZES, (1,), early=True, ranks_also=ANY, loop=STARS, args=LONG, ready="on device", extra="spy2 info", env=CALLS,
     edits=((STEP, "        if a.rank == 1:\n            dt = cluster.longest_step()\n            cluster.attract()\n        else:\n            cluster.attract()\n            dt = cluster.longest_step()\n        cluster.move(dt)\n"),))
hung("stars", "fewer-stars", "process 1 is started with fewer stars (first step)", "shape-mismatch", "rank-env-misconfigured " + SIZES, (1,), early=True, ranks_also=ANY, args=LONG, ready="on device", extra="spy2 info", env=CALLS,
     loop=STARS.replace("for r in 0 1; do\n", "for r in 0 1; do\n  [ $r = 1 ] && more=\"--stars 200000\"\n").replace("{args}", "{args} $more"))
hung("stars", "one-gpu", "both processes use device 0", "duplicate-gpu", "rank-env-misconfigured application-exception", (), early=True, ranks_also=EITHER, args=LONG, ready="on device", extra="warn", loop=STARS.replace("LOCAL_RANK=$r ", ""))
hung("stars", "bytes", "process 0 starts its sum at an offset in bytes (first step)", "illegal-memory-access", "application-exception", (0,), early=True, loop=STARS, args=LONG, ready="on device", extra="spy2",
     edits=(("np.int32(self.total), np.int32(0), np.float32(self.soft)", "np.int32(self.total), np.int32(0 if self.rank else self.all.nbytes * 256), np.float32(self.soft)"),))
hung("stars", "escaped", "process 1 ends when its first stars have escaped (step 150)", "rank-exited-early", "skipped-collective uneven-inputs", (1,), loop=STARS, args=LONG, extra="spy2",
     edits=((STEP, "        if a.rank == 1 and step == 150:\n            break\n" + STEP),))
slow("stars", "order", "process 0 sorts its stars on the host in each step", SLOW + " sync-stalls transfer-bound", (0,), loop=STARS,
     edits=((STEP, STEP + "        if a.rank == 0:\n            cells = (cluster.stars[:, :3].get() * 1024).astype(np.int32)\n            order = np.lexsort(cells.T)\n"),))
slow("stars", "dark-matter", "process 1 computes the forces a second time with another softening", "load-imbalance", (1,), loop=STARS,
     edits=((MOVES, "        if a.rank == 1:\n            halo = cp.empty_like(cluster.pull)\n            FORCES(((cluster.count + 255) // 256,), (256,), (cluster.stars, cluster.all, halo, np.int32(cluster.count), np.int32(cluster.total), np.int32(0), np.float32(1e-2)))\n" + MOVES),))

# ------------------------------------------------------------------------- two stages, batch_isend_irecv, torchrun
GROUPED = "        for work in dist.batch_isend_irecv(calls):\n            work.wait()\n"
SOUND = "        sound = torch.from_numpy(self.films.sound(self.number)).to(self.device)\n"
SHOWN = "                print(f\"step {step:5d} test {value.item():.4f}\", flush=True)\n"
PARTS = "        parts = self.parts(self.number)\n"
DONE = "        self.cross(gradient)\n        self.finish()\n        return total\n"
MADE = "        letters = self.letters(number)\n"
healthy("subtitles", "films", "batches have one to four parts, both ranks know how many", extra="info",
        edits=((SOUND, SOUND.replace(".to(self.device)", "[:self.part * (1 + self.number % self.args.parts)].to(self.device)")), (PARTS, PARTS.replace(")\n", ")[:1 + self.number % self.args.parts]\n"))))
fault("subtitles", "recv-first", "both ranks receive before they send (first step)", "deadlock-cycle", "unmatched-p2p collective-order-mismatch", (0, 1), early=True, ranks_also=((0,), (1,), ()), extra="fr", args=(*WAIT, *LONG), ready="parameters",
      edits=((GROUPED, "        if into is not None:\n            dist.recv(into, self.peer)\n        if out is not None:\n            dist.send(out, self.peer)\n"),))
fault("subtitles", "frozen", "rank 0 takes no gradients any more (step 60), rank 1 sends them", "unmatched-p2p", "skipped-collective deadlock-cycle collective-desync", (0,), ranks_also=((1,), (0, 1)), extra="fr", args=(*WAIT, *LONG),
      edits=(("            gradient = self.cross(heard.detach(), self.empty() if number else None)\n", "            wanted = number and self.number < 60\n            gradient = self.cross(heard.detach(), self.empty() if wanted else None)\n"),
             ("        sent.pop(0).backward(self.cross(None, self.empty()))\n", "        if self.number < 60:\n            sent.pop(0).backward(self.cross(None, self.empty()))\n")))
fault("subtitles", "other-frames", "rank 1 counts fewer frames than rank 0 (first step)", "shape-mismatch", "unmatched-p2p " + SIZES, (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="parameters",
      edits=(("        self.steps = args.frames // 2\n", "        self.steps = (args.frames, args.letters)[rank] // 2\n"),))
fault("subtitles", "umlaut", "a letter of rank 0 is not in the table: IndexError (step 75)", "application-exception", "", (0,), args=(*WAIT, *LONG),
      edits=((MADE, MADE + "        if number == 75:\n            letters[3, 40] = 228\n"),))
fault("subtitles", "sigabrt", "SIGABRT of rank 1", "process-crashed", "process-killed peer-process-died", (1,), args=(*WAIT, *LONG), act=(1, "SIGABRT"), extra="fr")
fault("subtitles", "transcripts", "rank 1 writes transcripts for longer than the timeout (step 60)", "slow-rank-stall", "stuck-outside-collective timeout-too-short", (1,), extra="fr", args=("--timeout", "25", *LONG, "--test-every", "60"),
      edits=((SHOWN, SHOWN + "                with open(\"transcripts.txt\", \"w\") as file:\n                    for line in range(400):\n                        print(\" \".join(map(str, half.films.letters(line)[0])), file=file, flush=True)\n                        time.sleep(0.2)\n"),))
slow("subtitles", "sample-line", "rank 1 writes a line letter by letter in each step", "load-imbalance host-bound pipeline-bubble", (1,),
     edits=((DONE, DONE.replace("        return total\n", "        with torch.no_grad(), self.autocast():\n            line = letters.new_zeros(1, 1)\n            for _ in range(20):\n                line = torch.cat([line, self.net(heard[:1].detach(), line)[:, -1:].argmax(-1)], 1)\n        return total\n")),))
slow("subtitles", "denoise", "rank 0 filters the sound on the host", "data-loading-bound pipeline-bubble " + SLOW, (0,),
     edits=((SOUND, "        sound = self.films.sound(self.number)\n        for low, high in ((0, 300), (9000, 9600)):\n            waves = np.fft.rfft(sound)\n            waves[:, low:high] *= 0.5\n            sound = np.fft.irfft(waves).astype(np.float32)\n        sound = torch.from_numpy(sound).to(self.device)\n"),))

# ------------------------------------------------------------------------- self-supervised clustering, collectives by hand, shell loop
PHOTOS = "        photos = photos.to(device)\n"
DREW = "        photos = self.plain[self.rng.integers(0, 40, self.batch)]\n"
healthy("feathers", "late", "rank 1 starts 25 s later", loop=FEATHERS.replace("  RANK=$r", "  ( [ $r = 1 ] && sleep 25; export RANK=$r").replace(" LOCAL_RANK=$r python", " LOCAL_RANK=$r; exec python").replace("2>&1 &", "2>&1 ) &"))
healthy("feathers", "long-queue", "a long queue comes into use at step 250: steps take longer from then on", loop=FEATHERS, args=("--queue", "49152", "--queue-from", "250"))
fault("feathers", "four-rounds", "rank 1 is started with one round more (first step)", "extra-collective", EXTRA + " uneven-inputs", (1,), early=True, ranks_also=ANY, extra="fr", args=(*WAIT, *LONG), ready="weights,",
      loop=FEATHERS.replace("for r in 0 1; do\n", "for r in 0 1; do\n  [ $r = 1 ] && more=\"--rounds 4\"\n").replace("{args}", "{args} $more"))
fault("feathers", "blank", "rank 1 leaves out a batch of blank photos, with all of its collectives (step 70)", "skipped-collective", SKIP + " silent-corruption", (1,), ranks_also=((0,), (0, 1)), extra="fr", loop=FEATHERS, args=(*WAIT, *LONG),
      edits=((PHOTOS, "        if step == 70 and rank == 1:\n            log.warning(\"blank photos, batch %d is left out\", step)\n            continue\n" + PHOTOS),))
corrupt("feathers", "head-only", "the gradients of the backbone are not averaged: every rank has its own weights", "silent-corruption", "undecided", (), early=True, ranks_also=ANY, loop=FEATHERS,
        edits=(("    buckets, queue = Buckets(net.parameters(), 4, world),", "    buckets, queue = Buckets([*net.project.parameters(), *net.prototypes.parameters()], 4, world),"),))
corrupt("feathers", "mean-of-one", "rank 1 asks NCCL for the mean, rank 0 for the sum (first step)", "op-mismatch", "silent-corruption collective-desync undecided", (1,), early=True, ranks_also=ANY, loop=FEATHERS,
        edits=(("op=dist.ReduceOp.SUM, async_op=True", "op=dist.ReduceOp.AVG if dist.get_rank() else dist.ReduceOp.SUM, async_op=True"),))
corrupt("feathers", "sharp", "codes are so sharp that their exponentials are infinite: NaN from the first step on", "nan-loss", "", (), early=True, ranks_also=EITHER, loop=FEATHERS,
        edits=(("sharpness=0.05", "sharpness=0.001"), ("torch.exp((scores - scores.max()) / sharpness)", "torch.exp(scores.float() / sharpness)")))
fault("feathers", "only-first", "only rank 0 is started", "missing-rank", "rank-env-misconfigured application-exception", (1,), early=True, ranks_also=((0, 1), ()), loop=FEATHERS.replace("in 0 1", "in 0"), args=("--timeout", "45"), limit=120)
fault("feathers", "sigterm-rank", "SIGTERM of rank 1 alone", "process-killed", "peer-process-died stopped-from-outside", (1,), loop=FEATHERS, args=(*WAIT, *LONG), act=(1, "SIGTERM"), extra="fr")
slow("feathers", "contrast", "rank 1 stretches the contrast of its photos one by one", "data-loading-bound " + SLOW, (1,), loop=FEATHERS,
     edits=((DREW, DREW + "        if os.environ[\"RANK\"] == \"1\":\n            for i, photo in enumerate(photos):\n                low, high = np.quantile(photo[::2, ::2], (0.02, 0.98))\n                photos[i] = np.clip((photo - low) * (255 / (high - low + 1)), 0, 255)\n"),))

FAULTS = F
