# 16 ranks on 2 nodes
dispatch_cfg = deep_ep.Config(24, 8, 512, 16, 128)      # num_sms, nvl send, nvl recv, rdma send, rdma recv
combine_cfg  = deep_ep.Config(24, 8, 512, int(os.getenv("RDMA_CHUNK", "16")), 128)

recv_x, _, _, _, handle, ev = buf.dispatch(x=x, topk_idx=topk_idx, topk_weights=topk_w, config=dispatch_cfg, **layout)
out, _, ev = buf.combine(x=recv_x, handle=handle, config=combine_cfg)
torch.cuda.synchronize()
print(f"[{rank}] chunk {combine_cfg} ok", flush=True)
