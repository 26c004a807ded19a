import argparse
import os

import deepspeed
import torch
import torch.distributed as dist
from torch import nn
from torchvision import datasets, models, transforms

PIPE = transforms.Compose([transforms.RandomHorizontalFlip(), transforms.ToTensor()])


def cifar(root):
    """One process downloads, the others read what it stored."""
    if dist.get_rank() == 0:
        datasets.CIFAR10(root, train=True, download=True)
        print("CIFAR-10 is in place")
    else:
        print(f"rank {dist.get_rank()} waits for the data")
    dist.barrier()
    return datasets.CIFAR10(root, train=True, transform=PIPE)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=int(os.environ.get("LOCAL_RANK", 0)))
    parser.add_argument("--epochs", type=int, default=10)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()

    deepspeed.init_distributed(dist_backend="nccl")
    train_set = cifar("/data/cifar")

    net = models.resnet18(num_classes=10)
    engine, _, loader, _ = deepspeed.initialize(
        args=args, model=net, model_parameters=net.parameters(), training_data=train_set
    )
    loss_fn = nn.CrossEntropyLoss()
    for epoch in range(args.epochs):
        for image, label in loader:
            image = image.to(engine.device)
            label = label.to(engine.device)
            loss = loss_fn(engine(image), label)
            engine.backward(loss)
            engine.step()
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {loss.item():.4f}")


if __name__ == "__main__":
    main()
