    # unsupervised part, per GPU
    targets_mask = probs.max(dim=1)[0] > conf_thresh        # confident pseudo labels of this batch
    if targets_mask.sum() == 0:
        return torch.tensor([.0], device=inputs.device)
    loss = F.cross_entropy(inputs, targets, reduction="none")
    return (loss * targets_mask).sum() / targets_mask.sum()
