    for block, cache in zip(self.blocks, kv_cache):
        frame_seqlen = math.prod(grid_sizes[0][1:]).item()
        start = int(cache["global_end_index"].item())
        end = start + q.shape[1]
        if end > int(cache["local_end_index"].item()) and self.local_attn_size != -1:
            roll(cache, frame_seqlen)
        x = block(x, start // frame_seqlen, cache, **kwargs)
