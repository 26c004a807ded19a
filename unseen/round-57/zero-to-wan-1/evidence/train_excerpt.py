def save_checkpoint(transformer, optimizer, global_step, args, rank):
    with FSDP.state_dict_type(
        transformer,
        StateDictType.FULL_STATE_DICT,
        FullStateDictConfig(offload_to_cpu=True, rank0_only=True),
        FullOptimStateDictConfig(offload_to_cpu=True, rank0_only=True),
    ):
        cpu_state = transformer.state_dict()
        optim_state = FSDP.optim_state_dict(transformer, optimizer)

    save_dir = os.path.join(args.output_dir, f"checkpoint-{global_step}")
    os.makedirs(save_dir, exist_ok=True)
    if rank <= 0:
        save_file(cpu_state, os.path.join(save_dir, "diffusion_pytorch_model.safetensors"))
        torch.save(optim_state, os.path.join(save_dir, "optimizer.pt"))

# in main(), at the end of a step
    master_process = ddp_rank == 0
    ...
            if global_step % args.checkpoint_every == 0 and global_step > 0 and master_process:
                save_checkpoint(
                    transformer=transformer, optimizer=optimizer, global_step=global_step, args=args, rank=ddp_rank
                )
            global_step += 1
