import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import Callback
from torchmetrics.detection import MeanAveragePrecision

STATES = ("detection_box", "detection_mask", "detection_scores", "detection_labels",
          "groundtruth_box", "groundtruth_mask", "groundtruth_labels",
          "groundtruth_crowds", "groundtruth_area")


def gather_states(metric):
    """Puts what all ranks have collected into this metric: one gather a state, in fixed order."""
    for name in STATES:
        own = [x.cpu() if torch.is_tensor(x) else x for x in getattr(metric, name)]
        parts = [None] * dist.get_world_size()
        dist.all_gather_object(parts, own)
        merged = [x for part in parts for x in part]
        setattr(metric, name, [x.to(metric.device) if torch.is_tensor(x) else x for x in merged])


class CocoEvaluation(Callback):
    """Mean average precision of boxes and masks over the validation set."""

    def __init__(self, max_detections=500, every=1):
        self.max_detections = max_detections
        self.every = every

    def setup(self, trainer, pl_module, stage):
        self.metric = MeanAveragePrecision(
            iou_type=["bbox", "segm"],
            class_metrics=True,
            max_detection_thresholds=[1, 10, self.max_detections],
            backend="faster_coco_eval",
            sync_on_compute=False,
        )

    def on_validation_epoch_start(self, trainer, pl_module):
        self.metric.to(pl_module.device).reset()

    def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        predictions = [{k: r[k] for k in ("boxes", "scores", "labels", "masks")}
                       for r in outputs["results"]]
        targets = [{"boxes": t["boxes"], "labels": t["labels"], "masks": t["masks"].bool(),
                    "iscrowd": t["iscrowd"]} for t in outputs["targets"]]
        self.metric.update(predictions, targets)

    def on_validation_epoch_end(self, trainer, pl_module):
        if (trainer.current_epoch + 1) % self.every:
            return
        if trainer.world_size > 1:
            gather_states(self.metric)
        scores = self.metric.compute()
        for kind in ("bbox", "segm"):
            pl_module.log(f"val/{kind}_map", scores[f"{kind}_map"], rank_zero_only=False)
            pl_module.log(f"val/{kind}_map_50", scores[f"{kind}_map_50"], rank_zero_only=False)
