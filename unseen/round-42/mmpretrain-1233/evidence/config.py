_base_ = ['../_base_/models/resnet50.py', '../_base_/default_runtime.py']
model = dict(head=dict(num_classes=2, topk=(1,)))
data = dict(
    samples_per_gpu=64, workers_per_gpu=6,
    train=dict(type='DefectDataset', ann_file='/data/ann/train.json', pipeline=train_pipeline),
    val=dict(type='DefectDataset', ann_file='/data/ann/val.json', pipeline=test_pipeline))
optimizer = dict(type='SGD', lr=0.01, momentum=0.9, weight_decay=1e-4)
runner = dict(type='EpochBasedRunner', max_epochs=100)
checkpoint_config = dict(interval=1)
evaluation = dict(interval=1, metric='accuracy')
log_config = dict(interval=100, hooks=[
    dict(type='TextLoggerHook'),
    dict(type='MMClsWandbHook', init_kwargs=dict(project='defects'),
         log_checkpoint=True, log_checkpoint_metadata=True, num_eval_images=64)])
