import argparse
import json
import os
import queue
import sys
import threading
import time
import urllib.request
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch
import torch.distributed as dist
from torch import nn

JOBS = queue.Queue()


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        done = threading.Event()
        body["answer"] = None
        JOBS.put((body, done))
        done.wait()
        data = json.dumps({"tokens": body["answer"]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *words):
        pass


class Shard(nn.Module):
    """Half of each matrix."""

    def __init__(self, width, depth):
        super().__init__()
        part = width * 4 // dist.get_world_size()
        self.embed = nn.Embedding(2000, width)
        self.up = nn.ModuleList([nn.Linear(width, part) for _ in range(depth)])
        self.down = nn.ModuleList([nn.Linear(part, width, bias=False) for _ in range(depth)])

    def forward(self, ids):
        x = self.embed(ids).mean(1)
        for up, down in zip(self.up, self.down):
            h = down(torch.relu(up(x)))
            dist.all_reduce(h)
            x = x + h
        return x @ self.embed.weight.T


class Engine:
    def __init__(self, device):
        torch.manual_seed(1)
        self.device = device
        self.model = Shard(512, 6).to(device).eval()
        self.rank = dist.get_rank()

    @torch.inference_mode()
    def generate(self, request):
        ids = torch.tensor([request["prompt"]], device=self.device)
        for _ in range(request["max_tokens"]):
            ids = torch.cat([ids, self.model(ids).argmax(-1, keepdim=True)], 1)
        return ids[0, len(request["prompt"]):].tolist()

    def loop(self):
        served = 0
        while True:
            box = [None]
            if self.rank == 0:
                job, done = JOBS.get()
                box = [{k: v for k, v in job.items() if k != "answer"}]
            dist.broadcast_object_list(box, src=0, device=self.device)
            request = box[0]
            if request.get("stop"):
                if self.rank == 0:
                    job["answer"] = []
                    done.set()
                return served
            tokens = self.generate(request)
            served += 1
            if self.rank == 0:
                job["answer"] = tokens
                done.set()


def clients(port, count, pause):
    def ask(body):
        call = urllib.request.Request(f"http://127.0.0.1:{port}/generate", json.dumps(body).encode())
        return json.loads(urllib.request.urlopen(call).read())
    for n in range(count):
        began = time.time()
        got = ask({"prompt": [(n * 37 + k) % 2000 for k in range(5 + n % 20)], "max_tokens": 16})
        if n % 20 == 0:
            print(f"request {n}: {len(got['tokens'])} tokens in {(time.time() - began) * 1e3:.0f} ms", flush=True)
        time.sleep(pause)
    ask({"prompt": [], "max_tokens": 0, "stop": True})


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--http-port", type=int, default=0)
    p.add_argument("--self-test", type=int, default=150)
    p.add_argument("--pause", type=float, default=0.01)
    p.add_argument("--nccl-timeout", type=int, default=1800)
    o = p.parse_args()
    cuda = torch.cuda.is_available()
    local = int(os.environ["LOCAL_RANK"])
    if cuda:
        torch.cuda.set_device(local)
    dist.init_process_group("nccl" if cuda else "gloo", timeout=timedelta(seconds=o.nccl_timeout))
    engine = Engine(torch.device("cuda", local) if cuda else torch.device("cpu"))
    if engine.rank == 0:
        server = ThreadingHTTPServer(("127.0.0.1", o.http_port), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        print(f"serving on port {server.server_address[1]}", flush=True)
        threading.Thread(target=clients, args=(server.server_address[1], o.self_test, o.pause), daemon=True).start()
    served = engine.loop()
    print(f"worker {engine.rank}: {served} requests served, shutting down", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
