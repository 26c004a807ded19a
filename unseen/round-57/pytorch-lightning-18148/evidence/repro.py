import torch
import lightning.pytorch as pl
from lightning.pytorch.utilities import rank_zero_only
from torch.utils.data import DataLoader, Dataset


class Noise(Dataset):
    def __init__(self, dim, n):
        self.x = torch.randn(n, dim)

    def __len__(self):
        return self.x.shape[0]

    def __getitem__(self, i):
        return self.x[i]


class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(32, 2)

    @rank_zero_only                      # without this line all is fine
    def on_fit_start(self):
        print("writing to", self.trainer.log_dir)

    def training_step(self, batch, batch_idx):
        print(f"[{self.global_rank}] step {batch_idx}", flush=True)
        return self.fc(batch).pow(2).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


if __name__ == "__main__":
    t = pl.Trainer(accelerator="gpu", devices=2, strategy="ddp", max_epochs=1, enable_progress_bar=False)
    t.fit(Net(), DataLoader(Noise(32, 64), batch_size=2))
