import math

import dgl
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def run(proc_id, n_gpus, graph, train_nid, model, epochs):
    dist.init_process_group("nccl", init_method="tcp://127.0.0.1:12345", world_size=n_gpus, rank=proc_id)
    torch.cuda.set_device(proc_id)
    share = len(train_nid) // n_gpus
    train_nid = train_nid[proc_id * share : (proc_id + 1) * share]
    sampler = dgl.dataloading.MultiLayerNeighborSampler([10, 25])
    blocks = dgl.dataloading.NodeDataLoader(graph, train_nid, sampler, batch_size=1024, shuffle=True)
    model = DistributedDataParallel(model.cuda(), device_ids=[proc_id])
    optimizer = torch.optim.Adam(model.parameters())
    for epoch in range(epochs):
        for inputs, seeds, mfgs in blocks:
            loss = model(mfgs, graph.ndata["feat"][inputs]).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
