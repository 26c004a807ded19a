"""A variational autoencoder with a discriminator over expression of single cells: Lightning, manual optimisation, early stopping."""
import argparse
import os
import time
from datetime import timedelta

import lightning as L
import torch
from lightning.pytorch.callbacks import Callback, EarlyStopping, ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy
from torch import nn
from torch.utils.data import DataLoader, Dataset

GENES, TYPES = 2000, 12


class Cells(Dataset):
    def __init__(self, n, seed):
        self.n, self.seed = n, seed
        self.programs = torch.randn(TYPES, GENES, generator=torch.Generator().manual_seed(99)).relu()

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(self.seed * 31337 + i)
        kind = int(torch.randint(0, TYPES, (), generator=g))
        counts = torch.poisson(self.programs[kind] * (0.5 + torch.rand(1, generator=g)) * 4, generator=g)
        return torch.log1p(counts), kind


class CellData(L.LightningDataModule):
    def __init__(self, cells, batch, workers, wait):
        super().__init__()
        self.prepare_data_per_node = False
        self.cells, self.batch, self.workers, self.wait = cells, batch, workers, wait

    def prepare_data(self):
        """Once: counts are normalised and written."""
        until = time.time() + self.wait
        while time.time() < until:
            print(f"normalising counts, {max(0, until - time.time()):.0f} s left", flush=True)
            time.sleep(min(7, max(0.1, until - time.time())))
        with open("genes.txt", "w") as file:
            file.write("\n".join(f"gene-{i}" for i in range(GENES)))

    def setup(self, stage):
        with open("genes.txt") as file:
            self.genes = file.read().split()
        self.train, self.valid = Cells(self.cells, 1), Cells(self.batch * 8, 2)

    def train_dataloader(self):
        return DataLoader(self.train, self.batch, shuffle=True, num_workers=self.workers, drop_last=True, persistent_workers=self.workers > 0)

    def val_dataloader(self):
        return DataLoader(self.valid, self.batch, num_workers=1, persistent_workers=True)


class CellModel(L.LightningModule):
    def __init__(self, width, latent, lr):
        super().__init__()
        self.save_hyperparameters()
        self.automatic_optimization = False
        self.enc = nn.Sequential(nn.Linear(GENES, width), nn.LayerNorm(width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, 2 * latent))
        self.dec = nn.Sequential(nn.Linear(latent, width), nn.SiLU(), nn.Linear(width, width), nn.SiLU(), nn.Linear(width, GENES))
        self.critic = nn.Sequential(nn.Linear(latent, width // 2), nn.SiLU(), nn.Linear(width // 2, 1))
        self.latents, self.kinds = [], []

    def encode(self, x):
        mean, spread = self.enc(x).chunk(2, -1)
        spread = spread.clamp(-6, 6)
        return mean + torch.randn_like(mean) * (spread / 2).exp(), mean, spread

    def forward(self, x):
        z, mean, spread = self.encode(x)
        return self.dec(z), z, 0.5 * (mean**2 + spread.exp() - spread - 1).sum(-1).mean()

    def training_step(self, batch, i):
        x, _ = batch
        opt, opt_critic = self.optimizers()
        back, z, kl = self(x)
        fool = nn.functional.softplus(-self.critic(z)).mean()
        loss = nn.functional.mse_loss(back, x) * 10 + 0.01 * kl + 0.05 * fool
        opt.zero_grad()
        self.manual_backward(loss)
        opt.step()
        real = torch.randn_like(z)
        critic_loss = (nn.functional.softplus(-self.critic(real)) + nn.functional.softplus(self.critic(z.detach()))).mean()
        opt_critic.zero_grad()
        self.manual_backward(critic_loss)
        opt_critic.step()
        self.log("loss", loss.detach())
        return {"loss": loss.detach()}

    def validation_step(self, batch, i):
        x, kind = batch
        back, z, _ = self(x)
        self.latents.append(z)
        self.kinds.append(kind)
        self.log("val_mse", nn.functional.mse_loss(back, x), sync_dist=True)

    def on_validation_epoch_end(self):
        z, kind = torch.cat(self.latents), torch.cat(self.kinds)
        z, kind = self.all_gather(z).flatten(0, -2), self.all_gather(kind).flatten()
        centres = torch.stack([z[kind == k].mean(0) if (kind == k).any() else torch.zeros_like(z[0]) for k in range(TYPES)])
        purity = (torch.cdist(z, centres).argmin(1) == kind).float().mean()
        self.log("purity", purity)
        self.latents.clear()
        self.kinds.clear()

    def configure_optimizers(self):
        body = [*self.enc.parameters(), *self.dec.parameters()]
        return torch.optim.AdamW(body, lr=self.hparams.lr), torch.optim.AdamW(self.critic.parameters(), lr=self.hparams.lr / 2)


class Progress(Callback):
    def __init__(self, every):
        self.every = every

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if trainer.is_global_zero and batch_idx % self.every == 0:
            print(f"epoch {trainer.current_epoch} batch {batch_idx}/{trainer.num_training_batches} loss {float(outputs['loss']):.3f}", flush=True)

    def on_validation_end(self, trainer, module):
        if trainer.is_global_zero:
            shown = {k: round(float(v), 4) for k, v in trainer.callback_metrics.items() if k in ("val_mse", "purity")}
            print(f"epoch {trainer.current_epoch} validation {shown}", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cells", type=int, default=8192)
    p.add_argument("--batch", type=int, default=64)
    p.add_argument("--width", type=int, default=512)
    p.add_argument("--latent", type=int, default=24)
    p.add_argument("--epochs", type=int, default=4)
    p.add_argument("--lr", type=float, default=4e-4)
    p.add_argument("--workers", type=int, default=2)
    p.add_argument("--every", type=int, default=10)
    p.add_argument("--wait", type=float, default=0)
    p.add_argument("--timeout", type=float, default=1800)
    args = p.parse_args()
    world, count = int(os.environ["WORLD_SIZE"]), torch.cuda.device_count()
    devices = min(count, int(os.environ["LOCAL_WORLD_SIZE"])) or world
    if 0 < count < int(os.environ["LOCAL_WORLD_SIZE"]):
        os.environ["NCCL_HOSTID"] = "n" + os.environ["RANK"]
        os.environ["LOCAL_RANK"] = str(int(os.environ["LOCAL_RANK"]) % count)
        os.environ["GROUP_RANK"] = os.environ["RANK"]
    L.seed_everything(5, workers=True)
    trainer = L.Trainer(accelerator="gpu" if count else "cpu", devices=devices, num_nodes=max(1, world // devices), max_epochs=args.epochs,
                        strategy=DDPStrategy(find_unused_parameters=True, timeout=timedelta(seconds=args.timeout)), logger=False, enable_progress_bar=False,
                        callbacks=[EarlyStopping("val_mse", patience=6), ModelCheckpoint("ckpt", monitor="val_mse", save_last=True), Progress(args.every)])
    trainer.fit(CellModel(args.width, args.latent, args.lr), datamodule=CellData(args.cells, args.batch, args.workers, args.wait))
    trainer.print(f"fitted, best {trainer.checkpoint_callback.best_model_path}", flush=True)


if __name__ == "__main__":
    main()
