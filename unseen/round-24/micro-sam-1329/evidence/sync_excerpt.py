def _sync_gradients(self):
    world = dist.get_world_size()
    for p in self.model.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad, op=dist.ReduceOp.SUM)
            p.grad.div_(world)
