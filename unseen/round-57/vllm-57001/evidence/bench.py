with torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
    fn()                      # all_gather of a few hundred KB, then the experts
    torch.cuda.synchronize()
print(f"rank {rank}", prof.key_averages().table(sort_by="cuda_time_total", row_limit=5))
