parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
parser.add_argument("--batch_size", type=int, default=16)
args = parser.parse_args()

def train():
    torch.cuda.set_device(args.local_rank)
    dist.init_process_group(
        backend="nccl", init_method="tcp://127.0.0.1:47531",
        rank=args.local_rank, world_size=int(os.environ["WORLD_SIZE"]))
