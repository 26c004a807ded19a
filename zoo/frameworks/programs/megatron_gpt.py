import argparse
import os
from datetime import timedelta

import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.tensor_parallel import broadcast_data
from megatron.core.tensor_parallel.random import model_parallel_cuda_manual_seed
from megatron.core.transformer.transformer_config import TransformerConfig


def build(args):
    config = TransformerConfig(num_layers=4, hidden_size=256, num_attention_heads=8, use_cpu_initialization=True,
                               pipeline_dtype=torch.float32, tensor_model_parallel_size=args.tp,
                               gradient_accumulation_fusion=False, masked_softmax_fusion=False)
    return GPTModel(config=config, transformer_layer_spec=get_gpt_layer_local_spec(), vocab_size=2048,
                    max_sequence_length=args.seq)


def sample(step, args):
    g = torch.Generator().manual_seed(step)
    text = torch.randint(0, 2048, (args.micro_batch, args.seq + 1), generator=g)
    return {"text": text}


def get_batch(step, args):
    data = None
    if parallel_state.get_tensor_model_parallel_rank() == 0:
        data = {key: value.cuda() for key, value in sample(step, args).items()}
    text = broadcast_data(["text"], data, torch.int64)["text"]
    tokens, labels = text[:, :-1].contiguous(), text[:, 1:].contiguous()
    positions = torch.arange(args.seq, device=tokens.device).expand_as(tokens)
    mask = torch.ones(args.seq, args.seq, dtype=torch.bool, device=tokens.device).triu(1)[None, None]
    return tokens, labels, positions, mask


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp", type=int, default=2)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--micro-batch", type=int, default=4)
    parser.add_argument("--train-iters", type=int, default=150)
    parser.add_argument("--save-interval", type=int, default=100)
    parser.add_argument("--timeout", type=int, default=600)
    parser.add_argument("--save", default="mcore_ckpt")
    args = parser.parse_args()
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", timeout=timedelta(seconds=args.timeout))
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=args.tp,
                                             distributed_timeout_minutes=max(args.timeout / 60, 0.1))
    model_parallel_cuda_manual_seed(42)
    model = build(args).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
    for iteration in range(1, args.train_iters + 1):
        tokens, labels, positions, mask = get_batch(iteration, args)
        loss = model(tokens, positions, mask, labels=labels).float().mean()
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        if iteration % 10 == 0 and rank == 0:
            print(f" iteration {iteration:8d}/{args.train_iters:8d} | lm loss: {loss.item():.6E} | grad norm: {norm.item():.3f} |", flush=True)
        if iteration % args.save_interval == 0:
            os.makedirs(args.save, exist_ok=True)
            torch.save(model.state_dict(), os.path.join(args.save, f"mp_rank_{rank:02d}.pt"))
            dist.barrier()
    if rank == 0:
        print("[after training is done]", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
