"""The digest sees what it must."""

import random

import pytest
import torch

from ringleader.torch import _digest
from ringleader.torch._digest import digest


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.bool])
@pytest.mark.parametrize("n", [0, 1, 3, 8, 1000, 70_001])
def test_one_flipped_bit_is_always_seen(dtype, n):
    generator = torch.Generator().manual_seed(n)
    size = torch.empty(0, dtype=dtype).element_size()
    bits = torch.randint(0, 2 if dtype == torch.bool else 256, (n * size,), generator=generator, dtype=torch.uint8)
    tensor = bits.view(dtype)
    own = digest(tensor).item()
    assert digest(tensor.clone()).item() == own
    for _ in range(20 if n else 0):
        other = bits.clone()
        if dtype == torch.bool:
            other[random.randrange(n)] ^= 1
        else:
            other[random.randrange(n * size)] ^= 1 << random.randrange(8)
        assert digest(other.view(dtype)).item() != own


def test_exchanged_words_and_pairs_of_flips_are_seen():
    words = torch.arange(1, 200_000, dtype=torch.int64)
    own = digest(words).item()
    for a, b in [(0, 1), (5, 100_000), (65_535, 65_536), (0, 65_536)]:
        other = words.clone()
        other[a], other[b] = words[b], words[a]
        assert digest(other).item() != own
        # The same bit in two words: XOR would miss it, and a sum with odd weights the highest bit.
        for bit in (0, 31, 62):
            other = words.clone()
            other[a] ^= 1 << bit
            other[b] ^= 1 << bit
            assert digest(other).item() != own
        other = words.clone()
        other[a] ^= -(1 << 63)
        other[b] ^= -(1 << 63)
        assert digest(other).item() != own


def test_length_counts_and_chunks_do_not(monkeypatch):
    assert digest(torch.zeros(3)).item() != digest(torch.zeros(4)).item()
    assert digest(torch.zeros(0)).item() != digest(torch.zeros(1)).item()
    tensor = torch.randn(500_001)
    own = digest(tensor).item()
    monkeypatch.setattr(_digest, "CHUNK", 1 << 17)
    assert digest(tensor).item() == own


def test_views_and_misaligned_storage_have_the_digest_of_their_values():
    base = torch.arange(101, dtype=torch.float16)
    assert digest(base[1:]).item() == digest(base[1:].clone()).item()
    square = torch.randn(40, 30)
    assert digest(square.t()).item() == digest(square.t().contiguous()).item()
    assert digest(-torch.zeros(1)).item() != digest(torch.zeros(1)).item()
