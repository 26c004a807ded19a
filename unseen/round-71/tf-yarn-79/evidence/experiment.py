PytorchExperiment(
    model=DistributedDataParallel(TwoTower()), main_fn=main_fn,
    train_dataset=ParquetDataset(rows=12_779_907),          # split by rank
    dataloader_args=DataLoaderArgs(batch_size=1024, num_workers=2, pin_memory=True),
    n_workers_per_executor=1, backend="nccl")
