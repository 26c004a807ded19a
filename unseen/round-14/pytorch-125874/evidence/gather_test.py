x = torch.full((1024,), float(dist.get_rank()), dtype=torch.bfloat16, device="cuda")
out = torch.empty(1024 * world, dtype=torch.bfloat16, device="cuda")
dist.all_gather_into_tensor(out, x)
for r in range(world):
    got = out[r * 1024].item()
    if int(got) != r:
        print(f"[{rank}] rank {r}: expected {r} got {got}")
