import os
import pickle
import shutil
import tempfile
from itertools import chain, zip_longest

import mmengine.dist as dist

_NOTHING = object()


def collect_parts(part, size, folder=None):
    """Puts the results of all ranks together through a shared folder.

    Only rank 0 gets the list; the others get None.
    """
    rank, world = dist.get_dist_info()
    if world == 1:
        return part[:size]

    if folder is None:
        chosen = [None]
        if rank == 0:
            os.makedirs(".eval_parts", exist_ok=True)
            chosen[0] = tempfile.mkdtemp(dir=".eval_parts")
        dist.broadcast_object_list(chosen, src=0)
        folder = chosen[0]
    else:
        os.makedirs(folder, exist_ok=True)
        dist.barrier()

    with open(os.path.join(folder, f"part_{rank}.pkl"), "wb") as handle:
        pickle.dump(part, handle, protocol=2)
    dist.barrier()

    if rank != 0:
        return None

    parts = []
    for r in range(world):
        path = os.path.join(folder, f"part_{r}.pkl")
        if not os.path.exists(path):
            raise FileNotFoundError(f"{path}: the folder must be shared by all machines")
        with open(path, "rb") as handle:
            parts.append(pickle.load(handle))
    rows = zip_longest(*parts, fillvalue=_NOTHING)
    merged = [item for item in chain.from_iterable(rows) if item is not _NOTHING]
    shutil.rmtree(folder)
    return merged[:size]
