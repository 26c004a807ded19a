import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from model import EquivariantNet                    # e3nn convolutions, use_flash=True -> flashTP_e3nn kernels

local_rank = int(os.environ["LOCAL_RANK"])
dist.init_process_group("nccl")
device = torch.device(f"cuda:{local_rank}")
model = EquivariantNet(lmax=2, channels=64, use_flash=True).to(device)
model = DDP(model, device_ids=[local_rank])
opt = torch.optim.AdamW(model.parameters(), lr=5e-3)
for epoch in range(100):
    sampler.set_epoch(epoch)
    for batch in loader:
        batch = batch.to(device)
        energy, forces = model(batch)
        loss = criterion(energy, forces, batch)
        opt.zero_grad(); loss.backward(); opt.step()
