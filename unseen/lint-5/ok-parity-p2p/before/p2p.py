import torch
import torch.distributed as dist


class StageLinks:
    """Sends and receives of one pipeline stage with its two neighbours."""

    def __init__(self, group, shape, dtype):
        self.group = group
        self.rank = dist.get_rank(group)
        self.size = dist.get_world_size(group)
        self.shape, self.dtype = shape, dtype
        self.next = dist.get_global_rank(group, (self.rank + 1) % self.size)
        self.prev = dist.get_global_rank(group, (self.rank - 1) % self.size)

    @property
    def is_first(self):
        return self.rank == 0

    @property
    def is_last(self):
        return self.rank == self.size - 1

    def _empty(self):
        return torch.empty(self.shape, dtype=self.dtype, device="cuda", requires_grad=True)

    def _ops(self, send_prev, recv_prev, send_next, recv_next):
        requests = []

        def send(tensor, peer):
            if tensor is not None:
                requests.append(dist.isend(tensor, dst=peer, group=self.group))

        def receive(tensor, peer):
            if tensor is not None:
                requests.append(dist.irecv(tensor, src=peer, group=self.group))

        if self.rank % 2 == 0:
            send(send_next, self.next)
            receive(recv_prev, self.prev)
            send(send_prev, self.prev)
            receive(recv_next, self.next)
        else:
            receive(recv_prev, self.prev)
            send(send_next, self.next)
            receive(recv_next, self.next)
            send(send_prev, self.prev)
        for request in requests:
            request.wait()

    def send_forward_recv_forward(self, output):
        received = None if self.is_first else self._empty()
        self._ops(None, received, None if self.is_last else output, None)
        return received

    def send_backward_recv_backward(self, grad):
        received = None if self.is_last else self._empty()
        self._ops(None if self.is_first else grad, None, None, received)
        return received
