import copy
import itertools
import json
import logging
import os

import numpy as np
from detectron2.evaluation import DatasetEvaluator
from detectron2.utils import comm


class CountEvaluator(DatasetEvaluator):
    """Error of the number of objects found per image."""

    def __init__(self, out_dir, threshold=0.5, distributed=True):
        self._out_dir = out_dir
        self._threshold = threshold
        self._distributed = distributed
        self._log = logging.getLogger(__name__)
        self._rows = []

    def reset(self):
        self._rows = []

    def process(self, inputs, outputs):
        for given, found in zip(inputs, outputs):
            kept = found["instances"].scores > self._threshold
            self._rows.append(
                {"image": given["image_id"], "found": int(kept.sum()), "true": len(given["annotations"])}
            )

    def evaluate(self):
        if self._distributed:
            comm.synchronize()
            rows = comm.gather(self._rows, dst=0)
            rows = list(itertools.chain(*rows))
            if not comm.is_main_process():
                return {}
        else:
            rows = self._rows

        if len(rows) == 0:
            self._log.warning("no predictions")
            return {}
        os.makedirs(self._out_dir, exist_ok=True)
        with open(os.path.join(self._out_dir, "counts.json"), "w") as handle:
            json.dump(rows, handle)
        off = np.array([r["found"] - r["true"] for r in rows])
        result = {"counts": {"MAE": float(np.abs(off).mean()), "bias": float(off.mean())}}
        return copy.deepcopy(result)
