from accelerate.state import AcceleratorState
from accelerate.utils import (
    broadcast,
    broadcast_object_list,
    concatenate,
    find_batch_size,
    get_data_structure,
    initialize_tensors,
    send_to_device,
    slice_tensors,
)
from torch.utils.data import DataLoader


class Dispatcher(DataLoader):
    """Process 0 reads; every process receives its slice."""

    def __init__(self, dataset, drop_last_group=False, **kwargs):
        super().__init__(dataset, **kwargs)
        self.state = AcceleratorState()
        self.drop_last_group = drop_last_group
        self.finished = False

    def _fetch(self, iterator):
        batches, batch = [], None
        if self.state.process_index == 0:
            try:
                for _ in range(self.state.num_processes):
                    batches.append(next(iterator))
                batch = concatenate(batches, dim=0)
                info = [get_data_structure(batch), False]
            except StopIteration:
                info = [None, True]
        else:
            info = [None, self.finished]
        broadcast_object_list(info)
        self.finished = info[1]
        if self.finished and not self.drop_last_group:
            if self.state.process_index == 0 and len(batches) > 0:
                batch = concatenate(batches, dim=0)
                info = [get_data_structure(batch), False]
            else:
                info = [None, True]
            broadcast_object_list(info)
        return batch, info

    def __iter__(self):
        self.finished = False
        iterator, first = super().__iter__(), None
        while not self.finished:
            batch, info = self._fetch(iterator)
            if info[0] is None:
                break
            if self.state.process_index != 0:
                batch = initialize_tensors(info[0])
            batch = broadcast(send_to_device(batch, self.state.device), from_process=0)
            if first is None:
                first = slice_tensors(batch, slice(0, self.state.num_processes))
            size = find_batch_size(batch)
            if self.finished and size % self.state.num_processes != 0:
                batch = concatenate([batch, first], dim=0)
            share = -(-size // self.state.num_processes)
            start = self.state.process_index * share
            yield slice_tensors(batch, slice(start, start + share))
