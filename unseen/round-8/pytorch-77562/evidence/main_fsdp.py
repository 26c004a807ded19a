# part of the training script
def validation(model, rank, world_size, val_loader):
    model.eval()
    fsdp_loss = torch.zeros(3).to(rank)
    with torch.no_grad():
        for batch in val_loader:
            output = model(input_ids=batch["source_ids"], attention_mask=batch["source_mask"], labels=batch["target_ids"])
            fsdp_loss[0] += output["loss"].item()
            fsdp_loss[1] += len(batch["source_ids"])
    dist.reduce(fsdp_loss, 0, op=dist.ReduceOp.SUM)
    val_loss = fsdp_loss[0] / fsdp_loss[1]
    if rank == 0:
        print(f"Validation Loss: {val_loss:.4f}")
    return val_loss

# in fsdp_main(), each epoch
        curr_val_loss = validation(model, rank, world_size, val_loader)
        print(f"--> rank {rank} epoch {epoch} curr_val_loss {curr_val_loss:.4f} best_val_loss {best_val_loss:.4f} -> "
              + ("entering save" if curr_val_loss < best_val_loss else "no save"))
        if cfg.save_model and curr_val_loss < best_val_loss:
            save_policy = FullStateDictConfig(offload_to_cpu=True, rank0_only=True)
            with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, save_policy):
                cpu_state = model.state_dict()
            if rank == 0:
                save_model(cpu_state, cfg, curr_val_loss, epoch)
        if curr_val_loss < best_val_loss:
            best_val_loss = curr_val_loss
