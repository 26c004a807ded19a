train_ds = ToyDataset(X_train, y_train)      # 5 examples
train_loader = DataLoader(
    dataset=train_ds,
    batch_size=2,
    shuffle=False,
    pin_memory=True,
    drop_last=True,
    sampler=DistributedSampler(train_ds)
)
