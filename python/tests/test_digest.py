"""The digest sees what it must."""

import random

import pytest
import torch

from ringleader.torch import _digest
from ringleader.torch._digest import Digester, digest


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


def test_length_counts_and_other_tensors_do_not():
    assert digest(torch.zeros(3)).item() != digest(torch.zeros(4)).item()
    assert digest(torch.zeros(0)).item() != digest(torch.zeros(1)).item()
    tensors = [torch.randn(n) for n in (500_001, 0, 3, 40_000, 1 << 15)] + [torch.ones(5, dtype=torch.bool)]
    digester = Digester()
    cpu = torch.device("cpu")
    alone = [digest(tensor).item() for tensor in tensors]
    assert digester(tensors, cpu).tolist() == alone
    assert digester([*tensors[::-1], None], cpu).tolist() == [*alone[::-1], 0]
    # The buffer of the last call leaves nothing behind.
    assert digester(tensors, cpu).tolist() == alone


def test_without_products_of_bytes_the_digest_is_the_same(monkeypatch):
    tensors = [torch.randn(70_001), torch.randn(11, dtype=torch.float64), torch.full((300_000,), -1, dtype=torch.int8)]
    own = [digest(tensor).item() for tensor in tensors]
    monkeypatch.setattr(_digest._table(torch.device("cpu")), "has_products", False)
    monkeypatch.setattr(_digest, "_SLOW_LINES", 7)
    assert [digest(tensor).item() for tensor in tensors] == own


class Planted:
    """A product of bytes that fails so many times."""

    def __init__(self, monkeypatch, error, times=1):
        self.calls, self.error, self.times, self.real = 0, error, times, torch._int_mm
        monkeypatch.setattr(torch, "_int_mm", self)

    def __call__(self, *words, **named):
        self.calls += 1
        if self.calls <= self.times:
            raise self.error
        return self.real(*words, **named)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 32.00 MiB."),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:124] err == 0. DefaultCPUAllocator: can't allocate memory"),
    ],
)
def test_without_memory_the_digest_is_the_same_and_the_next_takes_products_again(monkeypatch, error):
    tensor = torch.randn(300_001)
    own = digest(tensor).item()
    table = _digest._table(torch.device("cpu"))
    assert table.has_products
    taken = []
    to = torch.Tensor.to
    monkeypatch.setattr(torch.Tensor, "to", lambda t, what, *more: taken.append((t.numel(), what)) or to(t, what, *more))
    planted = Planted(monkeypatch, error)
    assert digest(tensor).item() == own and table.has_products
    # In small parts: at most 2 MiB as float64 at once.
    large = [n for n, what in taken if what == torch.float64]
    assert large and max(large) <= 64 * _digest.LINE
    calls = planted.calls
    taken.clear()
    assert digest(tensor).item() == own and planted.calls == 2 * calls
    assert not [n for n, what in taken if what == torch.float64]


def test_what_has_no_product_of_bytes_is_not_asked_again(monkeypatch):
    tensor = torch.randn(300_001)
    own = digest(tensor).item()
    table = _digest._table(torch.device("cpu"))
    monkeypatch.setattr(table, "has_products", True)
    planted = Planted(monkeypatch, RuntimeError("_int_mm_out_cuda not compiled for this platform."), times=99)
    assert digest(tensor).item() == own and not table.has_products
    assert digest(tensor).item() == own and planted.calls == 1


def test_no_memory_at_all_says_who_asked_for_it(monkeypatch):
    tensor = torch.randn(300_001)
    digest(tensor)
    out = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 MiB.")
    Planted(monkeypatch, out, times=99)
    to = torch.Tensor.to

    def without(tensor, what, *more):
        if what == torch.float64:
            raise out
        return to(tensor, what, *more)

    monkeypatch.setattr(torch.Tensor, "to", without)
    with pytest.raises(torch.OutOfMemoryError, match="ringleader guard: cpu has no memory left for digests of 1 MiB.*2.00 MiB"):
        digest(tensor)
    assert _digest._table(torch.device("cpu")).has_products


def test_another_error_of_the_digest_stays_what_it_is(monkeypatch):
    def broken(_):
        raise RuntimeError("something else")

    monkeypatch.setattr(_digest, "_final", broken)
    with pytest.raises(RuntimeError, match="^something else$"):
        digest(torch.ones(3))


def test_the_digest_of_a_line_is_the_sum_of_its_bytes_times_odd_weights():
    digits = _digest._columns().tolist()
    weights = [sum(digit << (8 * j) for j, digit in enumerate(line)) for line in digits]
    assert all(weight & 1 for weight in weights) and len(set(weights)) == _digest.LINE
    bits = torch.randint(0, 256, (_digest.LINE + 5,), dtype=torch.uint8)
    total = 0
    for place, start in enumerate(range(0, bits.numel(), _digest.LINE), 1):
        values = bits[start : start + _digest.LINE].view(torch.int8).tolist()
        line = sum(value * weight for value, weight in zip(values, weights))
        total += mixed(line ^ place * 0x9E3779B97F4A7C15)
    assert digest(bits).item() % 2**64 == mixed(total ^ (bits.numel() + 1) * 0x9E3779B97F4A7C15)


def mixed(x):
    x %= 2**64
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    x = (x ^ x >> 27) * 0x94D049BB133111EB % 2**64
    return x ^ x >> 31


def test_views_and_misaligned_storage_have_the_digest_of_their_values():
    base = torch.arange(101, dtype=torch.float16)
    assert digest(base[1:]).item() == digest(base[1:].clone()).item()
    square = torch.randn(40, 30)
    assert digest(square.t()).item() == digest(square.t().contiguous()).item()
    assert digest(-torch.zeros(1)).item() != digest(torch.zeros(1)).item()
