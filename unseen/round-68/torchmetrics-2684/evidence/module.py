import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_only
from torchmetrics.image import StructuralSimilarityIndexMeasure, PeakSignalNoiseRatio
from torchmetrics.image.fid import FrechetInceptionDistance


class TalkingHead(L.LightningModule):
    def __init__(self, net):
        super().__init__()
        self.net = net
        self.fid = FrechetInceptionDistance(feature=192, normalize=True)
        self.ssim = StructuralSimilarityIndexMeasure(data_range=1.0)
        self.psnr = PeakSignalNoiseRatio(data_range=1.0)

    def validation_step(self, batch, batch_idx):
        self.last_val_batch = batch
        return self.net.loss(batch)

    @rank_zero_only
    def on_validation_end(self):
        vid, audio, mask = (self.last_val_batch[k] for k in ("video", "audio", "masks"))
        with torch.no_grad():
            pred = self.net(vid, audio, mask).clamp(0, 1)
        ssim = float(self.ssim(pred, vid))
        psnr = float(self.psnr(pred, vid))
        self.logger.log_metrics({"val/ssim": ssim, "val/psnr": psnr}, step=self.global_step)
        self.fid.update(vid, real=True)
        self.fid.update(pred, real=False)
        fid = self.fid.compute()
        self.logger.log_metrics({"val/fid": float(fid)}, step=self.global_step)
