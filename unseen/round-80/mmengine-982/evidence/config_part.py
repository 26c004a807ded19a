train_cfg = dict(type='IterBasedTrainLoop', max_iters=80000, val_interval=8000)
val_cfg = dict(type='ValLoop')
custom_hooks = [dict(type='SyncBuffersHook')]
model_wrapper_cfg = dict(type='MMDistributedDataParallel', broadcast_buffers=False, find_unused_parameters=False)
norm_cfg = dict(type='BN', requires_grad=True)
train_dataloader = dict(batch_size=2, num_workers=4, sampler=dict(type='InfiniteSampler', shuffle=True))
