# examples/run_simple_mcore_train_loop.py, first lines as shipped
def initialize_distributed(tensor_model_parallel_size: int = 1, pipeline_model_parallel_size: int = 1) -> None:
    parallel_state.destroy_model_parallel()

    # Torch setup for distributed training
    rank: int = int(os.environ["LOCAL_RANK"])
    world_size: int = torch.cuda.device_count()
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group(world_size=world_size, rank=rank)
