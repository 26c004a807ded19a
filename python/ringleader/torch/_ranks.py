"""Ranks in words, and which of them are outside of a majority."""


def odd(ranks, values):
    """Ranks outside of the majority; empty if there is none."""
    camps = {}
    for rank, value in zip(ranks, values):
        camps.setdefault(value, []).append(rank)
    most = max(camps.values(), key=len)
    if len(most) * 2 <= len(ranks):
        return []
    return sorted(rank for camp in camps.values() if camp is not most for rank in camp)


def spans(ranks):
    """0-3,7"""
    parts = []
    for rank in sorted(ranks):
        if parts and rank == parts[-1][1] + 1:
            parts[-1][1] = rank
        else:
            parts.append([rank, rank])
    return ",".join(str(a) if a == b else "%d-%d" % (a, b) for a, b in parts)


def named(ranks):
    """rank 7, or ranks 0-3,7"""
    return "rank%s %s" % ("s" if len(ranks) > 1 else "", spans(ranks))
