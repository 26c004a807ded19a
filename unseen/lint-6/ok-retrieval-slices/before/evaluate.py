import torch
import torch.distributed as dist
import torch.nn.functional as F


def rank_and_size():
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size()
    return 0, 1


@torch.no_grad()
def match_scores(model, loader, texts, device, top_k=128):
    """Scores of all images against all texts; each rank re-ranks a slice of the images."""
    model.eval()
    text_states, text_embeds = [], []
    for start in range(0, len(texts), 256):
        states = model.encode_text(texts[start:start + 256])
        text_states.append(states)
        text_embeds.append(F.normalize(model.text_proj(states[:, 0]), dim=-1))
    text_states, text_embeds = torch.cat(text_states), torch.cat(text_embeds)

    image_states, image_embeds = [], []
    for images, _ in loader:
        states = model.encode_image(images.to(device))
        image_states.append(states.cpu())
        image_embeds.append(F.normalize(model.image_proj(states[:, 0]), dim=-1))
    image_states, image_embeds = torch.cat(image_states), torch.cat(image_embeds)

    similarity = image_embeds @ text_embeds.t()
    scores = torch.full_like(similarity, -100.0)
    rank, size = rank_and_size()
    step = len(similarity) // size + 1
    start, end = rank * step, min(len(similarity), (rank + 1) * step)
    for index in range(start, end):
        best, chosen = similarity[index].topk(top_k)
        states = image_states[index].to(device).expand(top_k, -1, -1)
        scores[index, chosen] = model.match(text_states[chosen], states) + best

    if size > 1:
        dist.barrier()
        dist.all_reduce(scores)
    return scores.cpu()
