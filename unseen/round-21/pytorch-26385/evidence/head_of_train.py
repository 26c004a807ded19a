    dist.init_process_group("nccl", init_method="env://")
    ckpt = torch.load(args.resume)              # saved from cuda:0
    model = resnet152().cuda(args.local_rank)
    model.load_state_dict(ckpt["model"])
    model = DDP(model, device_ids=[args.local_rank])
    loader = prefetch(make_loader(args), stream=torch.cuda.Stream())
