def get_grad_norm_fp32(grads_for_norm, data_parallel_group=None, model_parallel_group=None, norm_type=2.0, ...):
    grads_for_norm = to_local_if_dtensor(grads_for_norm)
    norm_type = float(norm_type)
    total_norm = 0.0

    if not grads_for_norm:
        return 0.0

    device = current_platform.current_device()
    ...
        if data_parallel_group:
            dist.all_reduce(total_norm_cuda, op=dist.ReduceOp.SUM, group=data_parallel_group)
