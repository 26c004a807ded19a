def validate(loader, model, criterion, gpu):
    model.eval()
    total = 0.
    with torch.no_grad():
        for x, y in loader:
            x, y = x.cuda(gpu, non_blocking=True), y.cuda(gpu, non_blocking=True)
            total += criterion(model(x), y).item()
    return total / len(loader)

def train(gpu, args):
    rank = args.nr * args.gpus + gpu
    dist.init_process_group(backend='nccl', init_method='env://', world_size=args.world_size, rank=rank)
    torch.cuda.set_device(gpu)
    model = nn.parallel.DistributedDataParallel(Net().cuda(gpu), device_ids=[gpu])
    train_loader = DataLoader(train_set, batch_size=args.bs, num_workers=0, pin_memory=True,
                              sampler=DistributedSampler(train_set, num_replicas=args.world_size, rank=rank))
    if gpu == 0:
        val_loader = DataLoader(val_set, batch_size=args.bs, shuffle=False)
    for epoch in range(args.epochs):
        model.train()
        for i, (images, labels) in enumerate(train_loader):
            loss = criterion(model(images.cuda(gpu)), labels.cuda(gpu))
            optimizer.zero_grad(); loss.backward(); optimizer.step()
        print(f'[gpu {gpu}] epoch {epoch} train done')
        if gpu == 0:
            print(f'[gpu {gpu}] validating')
            v = validate(val_loader, model, criterion, gpu)
            print(f'[gpu {gpu}] val loss {v:.4f}')
        print(f'[gpu {gpu}] before barrier')
        dist.barrier()
        print(f'[gpu {gpu}] after barrier')
