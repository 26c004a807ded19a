import torch
import torch.distributed as dist


class Stage:
    def __init__(self, module, ranks, shape, dtype=torch.bfloat16):
        self.module, self.shape, self.dtype = module, shape, dtype
        self.i = ranks.index(dist.get_rank())
        self.prev = None if self.i == 0 else ranks[self.i - 1]
        self.next = None if self.i == len(ranks) - 1 else ranks[self.i + 1]

    def _move(self, op, t, peer):
        for r in dist.batch_isend_irecv([dist.P2POp(op, t, peer)]):
            r.wait()
        return t

    def recv_forward(self):
        if self.prev is None:
            return None
        t = torch.empty(self.shape, dtype=self.dtype, device="cuda", requires_grad=True)
        return self._move(dist.irecv, t, self.prev)

    def send_forward(self, t):
        if self.next is None:
            return
        self._move(dist.isend, t, self.next)

    def recv_backward(self):
        if self.next is None:
            return None
        return self._move(dist.irecv, torch.empty(self.shape, dtype=self.dtype, device="cuda"), self.next)

    def send_backward(self, t):
        if self.prev is None:
            return
        self._move(dist.isend, t, self.prev)


def afab(stage, batches, loss_fn):
    """All forward, then all backward."""
    ins, outs = [], []
    for b in batches:
        x = stage.recv_forward()
        y = stage.module(b["ids"] if x is None else x)
        if stage.next is None:
            y = loss_fn(y, b["labels"]) / len(batches)
        stage.send_forward(y)
        ins.append(x)
        outs.append(y)
    for x, y in zip(ins, outs):
        g = stage.recv_backward()
        y.backward(g)
        if x is not None:
            stage.send_backward(x.grad)
