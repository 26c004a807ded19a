model = torch.nn.parallel.DistributedDataParallel(
    model,
    broadcast_buffers=True,
    find_unused_parameters=True,
    gradient_as_bucket_view=True,
    bucket_cap_mb=512,
)
...
for bidx, batch in enumerate(dataset_iter):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        preds, posteriors = model(model_params, batch)
        loss = loss_calculator(preds, batch)
    grad_scaler.scale(loss).backward()
    grad_scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm=cf.grad_clip)
    grad_scaler.step(optimizer)
    grad_scaler.update()
