import os, torch, pytorch_lightning as pl
from torch import nn
from torch.utils.data import DataLoader, random_split
from torchvision.datasets import MNIST
from torchvision import transforms

class VAE(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.enc = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 8))
        self.dec = nn.Sequential(nn.Linear(8, 128), nn.ReLU(), nn.Linear(128, 784))
    def training_step(self, batch, idx):
        x, _ = batch
        x = x.view(x.size(0), -1)
        loss = nn.functional.mse_loss(self.dec(self.enc(x)), x)
        self.log("train_loss", loss)
        return loss
    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

ds = MNIST(os.environ["DATA"], train=True, transform=transforms.ToTensor())
train, val = random_split(ds, [55000, 5000])
trainer = pl.Trainer(gpus=2, num_nodes=2, accelerator="ddp", max_epochs=4)
trainer.fit(VAE(), DataLoader(train, batch_size=64, num_workers=8))
