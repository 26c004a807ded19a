import dataclasses

import numpy as np


@dataclasses.dataclass(frozen=True)
class Stats:
    """Room that a packed batch needs on one device."""

    ids_per_shard: int
    unique_ids: int
    buffer: int

    def at_least(self, other):
        return Stats(*(max(a, b) for a, b in zip(dataclasses.astuple(self),
                                                 dataclasses.astuple(other))))


def count(ids, shards):
    per_shard = np.bincount(ids % shards, minlength=shards)
    unique = len(np.unique(ids))
    return Stats(int(per_shard.max(initial=0)), unique, 8 * int(np.ceil(len(ids) / 8)))


def pack(ids, weights, shards, limits):
    """Sorts the ids of this host by shard into buffers as large as the limits say, or as needed."""
    needed = count(ids, shards)
    room = limits.at_least(needed)
    order = np.argsort(ids % shards, kind="stable")
    packed_ids = np.full(room.buffer, -1, dtype=np.int32)
    packed_weights = np.zeros(room.buffer, dtype=np.float32)
    packed_ids[: len(ids)] = ids[order]
    packed_weights[: len(ids)] = weights[order]
    starts = np.searchsorted(ids[order] % shards, np.arange(shards)).astype(np.int32)
    return {"ids": packed_ids, "weights": packed_weights, "starts": starts,
            "room": (room.ids_per_shard, room.unique_ids)}, room
