    if dist.is_initialized():
        model._ddp_params_and_buffers_to_ignore = {"freqs_cos", "freqs_sin"}
        model = DistributedDataParallel(model, device_ids=[local_rank])
...
def grpo_train_epoch(epoch, loader, iters, rollout_engine, ref_model, start_step=0):
    for step, batch in enumerate(loader, start=start_step + 1):
        outputs, full_mask, completion_ids = rollout(batch, rollout_engine)
        model_unwrapped = model.module if isinstance(model, DistributedDataParallel) else model
        with autocast_ctx:
            res = model_unwrapped(outputs, attention_mask=full_mask)
            aux_loss = res.aux_loss if lm_config.use_moe else torch.tensor(0.0, device=args.device)
        policy_loss = grpo_loss(res.logits, outputs, batch, full_mask)
        loss = (policy_loss + aux_loss) / args.accumulation_steps
        loss.backward()
        if step % args.accumulation_steps == 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)
            optimizer.step(); scheduler.step(); optimizer.zero_grad()
            if args.debug_sum:
                s = sum(p.double().sum().item() for p in model.parameters())
                print(f"[rank{dist.get_rank()}] step {step} sum(params) {s:.6f}", flush=True)
