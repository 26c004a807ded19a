import torch
import torch.distributed as dist


class BlockwisePreconditioned(torch.optim.Optimizer):
    """Each rank preconditions the blocks it owns and publishes the directions."""

    def __init__(self, params, lr, shards, pg):
        super().__init__(params, dict(lr=lr, seen=0))
        self._shards = shards
        self._pg = pg

    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group, shard in zip(self.param_groups, self._shards):
            grads = [p.grad for p in shard.owned if p.grad is not None]
            if not grads:
                continue
            group["seen"] += 1
            directions = self._precondition(shard, grads, group["seen"])
            torch._foreach_mul_(directions, -group["lr"])
            self._publish(shard, directions)
        return loss

    def _precondition(self, shard, grads, seen):
        directions = []
        for grad, factor in zip(grads, shard.factors):
            factor.mul_(0.99).addmm_(grad, grad.t(), alpha=0.01)
            if seen % shard.every == 1:
                shard.roots[factor] = torch.linalg.pinv(factor, hermitian=True)
            directions.append(shard.roots[factor] @ grad)
        return directions

    def _publish(self, shard, directions):
        shard.local_flat.zero_()
        offset = 0
        for direction in directions:
            shard.local_flat[offset:offset + direction.numel()].copy_(direction.flatten())
            offset += direction.numel()
        dist.all_gather_into_tensor(shard.global_flat, shard.local_flat, group=self._pg)
        for param, view in zip(shard.params, shard.views):
            param.add_(view)
