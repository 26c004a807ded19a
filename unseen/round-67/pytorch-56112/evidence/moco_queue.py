 20  @torch.no_grad()
 21  def concat_all_gather(t):
 22      out = [torch.ones_like(t) for _ in range(dist.get_world_size())]
 23      dist.all_gather(out, t, async_op=False)
 24      return torch.cat(out, dim=0)
 25
 26
 27  class PairEncoder(nn.Module):
 28      def forward(self, query_idx, attention_mask, token_type_ids):
 29          valid_len = attention_mask.sum(1)
 30          max_len = valid_len.max().item()
 31          # do not waste compute on padding
 32          query_idx = query_idx[:, :max_len].contiguous()
 33          attention_mask = attention_mask[:, :max_len].contiguous()
 34          token_type_ids = token_type_ids[:, :max_len].contiguous()
 35          if self.rank_debug:
 36              print(f"rank{dist.get_rank()} before gather", tuple(query_idx.shape), flush=True)
 37          q = self.encoder(query_idx, attention_mask, token_type_ids)
 38          all_idx = concat_all_gather(query_idx)
 39          self._enqueue(q, all_idx)
 40          return q
