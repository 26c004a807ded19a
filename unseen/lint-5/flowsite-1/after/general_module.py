import lightning.pytorch as pl
import torch


class GeneralModule(pl.LightningModule):
    def __init__(self, args, model):
        super().__init__()
        self.args = args
        self.model = model
        self.skipped = 0

    def general_step(self, batch):
        positions, logits = self.model(batch)
        distance = ((positions - batch["positions"]) ** 2).sum(-1).mean()
        kind = torch.nn.functional.cross_entropy(logits, batch["residues"])
        return distance + self.args.residue_weight * kind

    def skip_anywhere(self, skip):
        flag = torch.tensor(float(skip), device=self.device)
        return bool(self.all_gather(flag).sum() > 0)

    def training_step(self, batch, batch_idx):
        loss, skip = None, False
        try:
            loss = self.general_step(batch)
        except RuntimeError as e:
            if "out of memory" not in str(e):
                raise
            print("out of memory, skipping batch of size", len(batch["residues"]))
            torch.cuda.empty_cache()
            skip = True
        if self.skip_anywhere(skip):
            self.skipped += 1
            return None
        self.log("train_loss", loss.detach(), batch_size=len(batch["residues"]))
        return loss

    def validation_step(self, batch, batch_idx):
        with torch.no_grad():
            loss = self.general_step(batch)
        self.log("val_loss", loss, sync_dist=True, batch_size=len(batch["residues"]))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.model.parameters(), lr=self.args.lr)


def fit(args, model, train_loader, val_loader):
    trainer = pl.Trainer(
        strategy="ddp", devices=args.num_gpus, max_epochs=args.epochs, use_distributed_sampler=True
    )
    trainer.fit(GeneralModule(args, model), train_loader, val_loader)
