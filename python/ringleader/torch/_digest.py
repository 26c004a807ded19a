"""A 64-bit digest of a tensor's bits, the same on every device.

The words are mixed with themselves, weighted with fixed odd numbers, added up row by row, and each row's sum is mixed with its
place. Integer addition wraps and commutes, so that the order of adding does not matter. One flipped bit always changes the
digest; exchanged words, and flips of the same bit in two words, do too, where XOR or a plain weighted sum would miss them.
"""

import torch

# Words of a row: the weights of a row are one tensor of 512 KiB on each device.
ROW = 1 << 16
# Words at once: what the temporaries may take, 64 MiB each.
CHUNK = 1 << 23
_MASK = 0xFFFFFFFF


def _signed(value):
    """A number below 2^64 as torch's int64."""
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >> 63 else value


_ODD = _signed(0x9E3779B97F4A7C15)
_MIX_1 = _signed(0xBF58476D1CE4E5B9)
_MIX_2 = _signed(0x94D049BB133111EB)
_weights = {}


def _weight(device):
    found = _weights.get(device)
    if found is None:
        generator = torch.Generator().manual_seed(0x72696E67)
        low = torch.randint(0, 1 << 62, (ROW,), generator=generator, dtype=torch.int64)
        found = ((low << 2) ^ (low >> 31) | 1).to(device)
        _weights[device] = found
    return found


def _logical(x, bits):
    """x >> bits without the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _final(x):
    x = (x ^ _logical(x, 30)) * _MIX_1
    x = (x ^ _logical(x, 27)) * _MIX_2
    return x ^ _logical(x, 31)


def words(tensor):
    """The bits of a tensor as int64 words, the last one filled up with zeros."""
    flat = tensor.detach().contiguous().reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    if flat.dtype == torch.bool:
        flat = flat.to(torch.uint8)
    data = flat.view(torch.uint8)
    odd = data.numel() % 8
    if odd or data.data_ptr() % 8:
        padded = torch.zeros(data.numel() + (8 - odd) % 8, dtype=torch.uint8, device=data.device)
        padded[: data.numel()] = data
        data = padded
    return data.view(torch.int64)


def digest_words(data):
    """The digest of int64 words, as a tensor of one int64 on their device."""
    weight = _weight(data.device)
    total = torch.zeros((), dtype=torch.int64, device=data.device)
    row = 0
    for start in range(0, data.numel(), CHUNK):
        part = data[start : start + CHUNK]
        # The sign of a word fills the upper half of what is shifted: still every flipped bit shows, and one pass over memory less
        # than with a mask. Only a word with all of its 64 bits flipped looks like itself.
        mixed = part ^ (part >> 32)
        whole = mixed.numel() // ROW * ROW
        sums = []
        if whole:
            sums.append((mixed[:whole].view(-1, ROW) * weight).sum(dim=1))
        if whole < mixed.numel():
            rest = mixed[whole:]
            sums.append((rest * weight[: rest.numel()]).sum().reshape(1))
        sums = torch.cat(sums) if len(sums) > 1 else sums[0]
        places = torch.arange(row, row + sums.numel(), dtype=torch.int64, device=data.device)
        total = total + _final(sums ^ ((places + 1) * _ODD)).sum()
        row += sums.numel()
    return total


def digest(tensor):
    """The digest of a tensor's bits and length, as a tensor of one int64 on its device."""
    data = words(tensor)
    length = _signed((tensor.numel() + 1) * 0x9E3779B97F4A7C15)
    if not data.numel():
        return torch.full((), length, dtype=torch.int64, device=tensor.device)
    return _final(digest_words(data) ^ length)
