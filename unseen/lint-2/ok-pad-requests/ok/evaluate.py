import torch


def pad_counts(accelerator, requests, device):
    """How many dummy requests this process needs so that FSDP runs equally often everywhere."""
    mine = torch.tensor(len(requests), device=device)
    every = accelerator.gather(mine).cpu().tolist()
    return max(every) - every[accelerator.process_index]


@torch.no_grad()
def run(accelerator, model, requests, device):
    pad = pad_counts(accelerator, requests, device)
    todo = list(requests)
    if accelerator.num_processes > 1 and pad > 0:
        for _ in range(pad):
            todo.append(requests[-1])
    answers = []
    for ids in todo:
        answers.append(model(ids.to(device)).logits[:, -1].argmax(-1))
    answers = answers[: len(requests)]
    accelerator.wait_for_everyone()
    local = torch.stack(answers).sum()
    total = accelerator.reduce(local, reduction="sum")
    if accelerator.is_main_process:
        print("sum", total.item())
    return answers
