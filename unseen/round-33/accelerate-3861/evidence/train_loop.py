    # (part of main(), accelerate 1.12.0)
    timeout_kwargs = InitProcessGroupKwargs(backend="nccl", timeout=timedelta(seconds=1800))
    accelerator = Accelerator(
        gradient_accumulation_steps=args.gradient_accumulation_steps,
        mixed_precision=args.mixed_precision,
        log_with=args.report_to,
        project_config=accelerator_project_config,
        kwargs_handlers=[timeout_kwargs],
    )
    ...
    for epoch in range(first_epoch, args.num_train_epochs):
        unet.train()
        train_loss = 0.0
        for step, batch in enumerate(train_dataloader):
            with accelerator.accumulate(unet):
                ...
                accelerator.backward(loss)
                optimizer.step(); lr_scheduler.step(); optimizer.zero_grad()

        accelerator.wait_for_everyone()
        if accelerator.is_main_process:
            if epoch % args.validation_epochs == 0:
                accelerator.wait_for_everyone()
                unwrapped = accelerator.unwrap_model(unet)
                pipeline = StableDiffusionPipeline.from_pretrained(args.pretrained_model_name_or_path, unet=unwrapped)
                log_validation(pipeline, args, accelerator, epoch)
                del pipeline
                torch.cuda.empty_cache()
