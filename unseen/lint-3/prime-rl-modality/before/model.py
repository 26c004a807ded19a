import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP


class VisionLanguageModel(torch.nn.Module):
    def __init__(self, vision, language):
        super().__init__()
        self.vision, self.language = FSDP(vision), FSDP(language)

    def forward(self, batch):
        embeds = self.language.module.embed(batch["input_ids"])
        if batch.get("pixel_values") is not None:
            embeds = embeds + self.vision(batch["pixel_values"])
        return self.language(inputs_embeds=embeds)


def train(model, loader, optimizer):
    for batch in loader:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
