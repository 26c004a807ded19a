import torch
import torch.distributed as dist
from flask import Flask, jsonify, request

import groups

GENERATE, STOP = 0, 1
app = Flask(__name__)


def tell(choice):
    t = torch.tensor([choice], dtype=torch.long, device="cuda")
    dist.broadcast(t, groups.tp_src(), group=groups.tp_group())


def send_prompt(ids):
    size = torch.tensor([ids.numel()], dtype=torch.long, device="cuda")
    dist.broadcast(size, 0)
    dist.broadcast(ids, 0)


def recv_prompt():
    size = torch.zeros(1, dtype=torch.long, device="cuda")
    dist.broadcast(size, 0)
    ids = torch.empty(int(size), dtype=torch.long, device="cuda")
    dist.broadcast(ids, 0)
    return ids


@app.route("/api", methods=["PUT"])
def api():
    ids = torch.tensor(app.tokenizer.encode(request.json["prompt"]), device="cuda")
    tell(GENERATE)
    send_prompt(ids)
    return jsonify(text=app.generate(ids))


def serve(model, tokenizer, generate):
    app.tokenizer, app.generate = tokenizer, lambda ids: generate(model, ids)
    if dist.get_rank() == 0:
        app.run(host="0.0.0.0", threaded=False)
    else:
        while True:
            choice = torch.zeros(1, dtype=torch.long, device="cuda")
            dist.broadcast(choice, 0)
            if choice.item() == STOP:
                break
            generate(model, recv_prompt())


def main():
    dist.init_process_group("nccl")
    groups.build(tensor=4, pipeline=2)
