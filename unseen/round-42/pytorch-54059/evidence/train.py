def main_worker(gpu, world_size, args):
    dist.init_process_group("nccl", rank=gpu, world_size=world_size)
    torch.cuda.set_device(gpu)
    model = nn.parallel.DistributedDataParallel(Classifier().cuda(gpu), device_ids=[gpu])
    criterion = nn.CrossEntropyLoss().cuda(gpu)
    optimizer = optim.SGD(model.parameters(), lr=0.001, momentum=0.9)
    train_loader, val_loader, sampler = loaders(args, gpu, world_size)

    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        model.train()
        for i, (x, y) in enumerate(train_loader):
            out = model(x.cuda(gpu, non_blocking=True))
            loss = criterion(out, y.cuda(gpu, non_blocking=True))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if i % 50 == 0:
                print(f"[GPU {gpu}] epoch {epoch} it {i} loss {loss.item():.4f}", flush=True)

        if gpu == 0:
            model.eval()
            correct = 0
            with torch.no_grad():
                for x, y in val_loader:
                    correct += (model(x.cuda(gpu)).argmax(1) == y.cuda(gpu)).sum().item()
            print(f"[GPU 0] epoch {epoch} val acc {correct / len(val_loader.dataset):.4f}", flush=True)
        dist.barrier()
        print(f"[GPU {gpu}] passed barrier", flush=True)
