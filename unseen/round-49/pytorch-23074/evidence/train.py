parser.add_argument("--local_rank", type=int, default=0)
parser.add_argument("--world_size", type=int, default=4)
args = parser.parse_args()
torch.cuda.set_device(args.local_rank)
torch.distributed.init_process_group("nccl", init_method="env://",
                                     world_size=args.world_size, rank=args.local_rank)
print("init done", args.local_rank, flush=True)
net = SmallNet().to("cuda:%d" % args.local_rank)
print("to DDP", args.local_rank, flush=True)
net = torch.nn.parallel.DistributedDataParallel(net, device_ids=[args.local_rank],
                                                output_device=args.local_rank)   # hangs here
print("DDP ready", args.local_rank, flush=True)
