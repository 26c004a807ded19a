import torch
from megatron.core import mpu


def _send(tensor):
    if tensor is not None:
        torch.distributed.broadcast(
            tensor,
            mpu.get_tensor_model_parallel_src_rank(),
            group=mpu.get_tensor_model_parallel_group(),
        )


def batch_for_tp_rank(stream, micro_batch, seq_length):
    """The first rank of each tensor-parallel group reads, the others receive."""
    first, last = mpu.is_pipeline_first_stage(), mpu.is_pipeline_last_stage()
    if not (first or last):
        return {}
    if mpu.get_tensor_model_parallel_rank() == 0:
        data = next(stream)
        batch = {k: data[k].cuda(non_blocking=True) for k in ("tokens", "labels", "loss_mask", "position_ids")}
        if mpu.get_pipeline_model_parallel_world_size() == 1:
            for key in ("tokens", "labels", "loss_mask", "position_ids"):
                _send(batch[key])
        elif first:
            _send(batch["tokens"])
            _send(batch["position_ids"])
        elif last:
            _send(batch["labels"])
            _send(batch["loss_mask"])
    else:
        def room(dtype):
            return torch.empty(
                (micro_batch, seq_length), dtype=dtype, device=torch.cuda.current_device()
            )

        batch = {
            "tokens": room(torch.int64),
            "labels": room(torch.int64),
            "loss_mask": room(torch.float32),
            "position_ids": room(torch.int64),
        }
        if mpu.get_pipeline_model_parallel_world_size() == 1:
            for key in ("tokens", "labels", "loss_mask", "position_ids"):
                _send(batch[key])
        elif first:
            batch["labels"] = batch["loss_mask"] = None
            _send(batch["tokens"])
            _send(batch["position_ids"])
        elif last:
            batch["tokens"] = batch["position_ids"] = None
            _send(batch["labels"])
            _send(batch["loss_mask"])
    return batch
