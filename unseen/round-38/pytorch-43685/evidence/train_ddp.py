def worker(rank, world_size, args):
    os.environ['MASTER_ADDR'] = 'localhost'
    os.environ['MASTER_PORT'] = '29611'
    dist.init_process_group("gloo", rank=rank, world_size=world_size)
    net = build_model(args.arch, n_classes=args.ncls)
    net = torch.nn.SyncBatchNorm.convert_sync_batchnorm(net)
    net = net.cuda(rank)
    net = DDP(net, device_ids=[rank], find_unused_parameters=True)
    opt = torch.optim.Adam(net.parameters())
    for epoch in range(args.epochs):
        for batch in loader:
            x, y = batch['x'].cuda(rank), batch['y'].cuda(rank)
            loss = criterion(net(x), y)
            loss.backward()
            opt.step()
            opt.zero_grad()
