import torch
import torch.distributed as dist
import torch.distributed.nn.functional as distnn
import torch.nn.functional as F


def chunk_logprobs(logits, tokens, spans, start):
    """Log-probabilities of the responses that fall into this rank's chunk of the sequence."""
    full = torch.log_softmax(logits.float(), -1).gather(-1, tokens[:, None]).squeeze(-1)
    end = start + full.size(0)
    out = []
    for lo, hi in spans:
        s, e = max(lo, start), min(hi, end)
        if e <= s:
            out.append(full[:0])
        else:
            out.append(full[s - start : e - start])
    return out


def redistribute(parts, spans, start, length, group):
    """Whole responses on all context-parallel ranks."""
    rows = []
    for p, (lo, hi) in zip(parts, spans):
        s, e = max(lo, start), min(hi, start + length)
        if e <= s:
            rows.append(torch.zeros(hi - lo, dtype=p.dtype, device=p.device) + p.sum())
        else:
            rows.append(F.pad(p, (s - lo, hi - e)))
    return distnn.all_reduce(torch.cat(rows), group=group)


def policy_loss(logits, tokens, spans, adv, old, cp_group):
    n = logits.size(0)
    start = dist.get_rank(cp_group) * n
    parts = chunk_logprobs(logits, tokens, spans, start)
    logp = redistribute(parts, spans, start, n, cp_group)
    ratio = (logp - old).exp()
    return -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
