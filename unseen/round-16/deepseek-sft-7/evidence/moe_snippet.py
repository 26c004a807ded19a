# modeling_deepseek.py (training branch)
for i, expert in enumerate(self.experts):
    mask = flat_topk_idx == i
    if mask.any():
        y[mask] = expert(hidden_states[mask])
