from torch.distributed._fsdp import FullyShardedDataParallel as FSDP     # nightly 1.11.0.dev20211130
for i, blk in enumerate(model.h):
    model.h[i] = FSDP(blk)
model = FSDP(model)
...
for x, y in loader:
    loss = model(x, y)
    loss.backward()
    opt.step(); opt.zero_grad()
